/* The orchestrator's doors: reset, step, state, close, mcp. */
#ifndef SP_LIFECYCLE_H
#define SP_LIFECYCLE_H

#include "gate/gate.h"

extern const struct gate_module lifecycle_module;
extern const struct gate_module lifecycle_plain_module;

#endif

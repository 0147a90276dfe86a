/* Whether calls can be served, and nothing more. */
#ifndef SP_HEALTH_H
#define SP_HEALTH_H

#include "gate/gate.h"

extern const struct gate_module health_module;

#endif

/* The observer's door. */
#ifndef SP_MODULES_OBSERVE_H
#define SP_MODULES_OBSERVE_H

#include "gate/gate.h"

extern const struct gate_module observe_module;

#endif

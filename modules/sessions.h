/* Sessions of the model door over HTTP, for who runs the agents. */
#ifndef SP_SESSIONS_H
#define SP_SESSIONS_H

#include "gate/gate.h"

extern const struct gate_module sessions_module;

#endif

/* Episodes: made, run in, reset, looked into and ended over HTTP. */
#ifndef SP_EPISODES_DOOR_H
#define SP_EPISODES_DOOR_H

#include "gate/gate.h"

extern const struct gate_module episodes_door_module;

#endif

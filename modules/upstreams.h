/* The servers of upstreams: seen, added, removed and drained over HTTP. */
#ifndef SP_UPSTREAMS_H
#define SP_UPSTREAMS_H

#include "gate/gate.h"

extern const struct gate_module upstreams_module;

#endif

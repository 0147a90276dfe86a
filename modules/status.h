/* Counters and histograms for the operator. */
#ifndef SP_STATUS_H
#define SP_STATUS_H

#include "gate/gate.h"

extern const struct gate_module status_module;

#endif

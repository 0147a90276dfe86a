/* The ways out of episodes, in the gate. */
#ifndef SP_GATE_RELAY_GATE_H
#define SP_GATE_RELAY_GATE_H

#include "gate/gate.h"
#include "gate/relay.h"

/*
 * Context: reactor, before the walls close or after.
 * Parameters: g, with its current generation and its inside; its rules are those of the
 *          generation in use at the time.
 * Owner:   as relay_new().
 * Returns: as relay_new().
 */
int relay_gate_new(struct gate *g, struct relay **out) must_check;

#endif

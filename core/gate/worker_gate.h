/* The gate's workers: what they need of it, and who hears of them. */
#ifndef SP_GATE_WORKER_GATE_H
#define SP_GATE_WORKER_GATE_H

#include "gate/gate.h"

struct worker_set;

/* With the episodes: 0; SP_E_NOMEM.  Owner: worker_set_free(). */
int worker_gate_new(struct gate *g, struct worker_set **out) must_check;

#endif

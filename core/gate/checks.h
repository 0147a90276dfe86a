/* Health checks of an upstream's servers, asked for at intervals. */
#ifndef SP_GATE_CHECKS_H
#define SP_GATE_CHECKS_H

#include "conf/conf.h"
#include "event/loop.h"
#include "net/pool.h"

struct checks;

/*
 * Checks each server of the pool from now on: GET of the path, on a connection
 * of its own, good with a status of 200 to 399 in time.  One that fails `fall`
 * times in a row is down until it passes `rise` times.
 * Source:  the directive health_check.
 * Context: reactor; the first ones begin from the loop.
 * Parameters: u, which has a health_check; copied.
 * Owner:   the caller; before the pool is freed.
 * Returns: 0; SP_E_NOMEM.
 */
int checks_new(struct loop *l, struct pool *p, const struct conf_upstream *u,
    struct checks **out) must_check;
void checks_free(struct checks *k); /* NULL allowed */
/* How many have failed: of all servers, and of that in a slot. */
uint64_t checks_failed(const struct checks *k);
uint64_t checks_failed_of(const struct checks *k, size_t slot);

#endif

/* Counts under names, each with a most of its own: who has how many. */
#ifndef SP_GATE_QUOTA_H
#define SP_GATE_QUOTA_H

#include <stdint.h>

#include "base/err.h"
#include "base/view.h"

struct quota;
struct quota_place; /* what one that was taken is counted under */

/*
 * Context: reactor; no blocking.
 * Owner:   the caller; freed when all was given back.
 * Returns: NULL without memory.
 */
struct quota *quota_new(void) must_check;
void quota_free(struct quota *q); /* NULL allowed */
/*
 * One more under that name.
 * Parameters: name, copied; max, 0 no limit.
 * Returns: 0, with *out until quota_give(); SP_E_LIMIT; SP_E_NOMEM.
 */
int quota_take(struct quota *q, struct view name, uint64_t max,
    struct quota_place **out) must_check;
void quota_give(struct quota_place *p); /* NULL allowed */

#endif

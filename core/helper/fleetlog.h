/*
 * Changes of upstreams' servers at run time, so that the next reactor has them
 * too: the reactor tells of each, and is told of all when it starts.
 */
#ifndef SP_HELPER_FLEETLOG_H
#define SP_HELPER_FLEETLOG_H

#include "base/buf.h"
#include "base/err.h"
#include "conf/conf.h"

struct fleetlog;

enum { FLEETLOG_MAX = 1024 }; /* servers that were changed */

/*
 * Context: helper's loop; does not block.
 * Owner:   the caller; fleetlog_free(NULL) is allowed.
 * Returns: NULL without memory.
 */
struct fleetlog *fleetlog_new(void) must_check;
void fleetlog_free(struct fleetlog *l);
/*
 * A MESSAGE_FLEET of the reactor's, which may have been taken over: only an
 * upstream of the configuration and a URL that a `server` could have are kept,
 * the last word on each server alone.
 * Returns: 0, also when there is no room or memory for it (which is logged);
 *          SP_E_PROTO it makes no sense.
 */
int fleetlog_note(struct fleetlog *l, const struct conf *conf,
    struct view body) must_check;
/* Another configuration: forgets upstreams whose `server` lines are others. */
void fleetlog_reload(struct fleetlog *l, const struct conf *before,
    const struct conf *conf);
/* Each as the body of a MESSAGE_FLEET_WAS, in order; stops at an error. */
int fleetlog_each(const struct fleetlog *l,
    int (*one)(void *arg, struct view body), void *arg) must_check;

#endif

/* One start of a role: process, channel, what it is handed. */
#ifndef SP_HELPER_ROLERUN_H
#define SP_HELPER_ROLERUN_H

#include "base/buf.h"
#include "helper/cas.h"
#include "helper/fleetlog.h"
#include "helper/ids.h"
#include "helper/proxycmd.h"
#include "helper/secrets.h"
#include "helper/site.h"
#include "ipc/channel.h"

/* One configuration, as the roles are handed it; all borrowed. */
struct rolerun_generation {
	uint32_t number;
	const struct conf *conf;
	const struct secrets *secrets;
	const struct cas *cas;
	const struct site_set *set;
	int conf_fd; /* sealed memfd of the expanded text */
};

/* All that the roles are made from; borrowed for the helper's life. */
struct rolerun_world {
	struct rolerun_generation now;
	const struct ids *ids;
	struct site *site;
	struct episodes *episodes; /* NULL: no environment */
	struct fleetlog *fleetlog; /* NULL: nothing is kept (-t) */
	uint32_t flags; /* enum role_flag */
	uint32_t reactor_restarts, recorder_restarts;
	const struct proxycmd *proxy; /* of `proxy`, or NULL */
	char *dir; /* where the programs are */
};

/*
 * Finds the programs: beside the helper's own executable, else installed.
 * Owner:   w->dir, mem_free().
 * Returns: 0; SP_E_NOTFOUND after a complaint; SP_E_NOMEM.
 */
int rolerun_find(struct rolerun_world *w) must_check;

/*
 * Starts the role and hands everything over, up to START.
 * Context: helper; does not block: what the socket does not take is queued.
 * Parameters: who, MESSAGE_REACTOR or MESSAGE_RECORDER; peer_fd, its end of
 *          the socket to the other role, taken in every case; -1: there is
 *          none.
 * Owner:   *pid is to be waited for, *channel to be freed.
 * Returns: 0; SP_E_*, nothing runs then.
 */
int rolerun_start(const struct rolerun_world *w, unsigned who, int peer_fd,
    pid_t *pid, struct channel **channel) must_check;

/*
 * Hands another configuration to a role that serves, up to PREPARE.
 * Context: helper; does not block.
 * Returns: 0; what channel_send() does not.
 */
int rolerun_prepare(const struct rolerun_generation *g, unsigned who,
    struct channel *c) must_check;

/* Descriptors that a role needs for so many connections. */
uint64_t rolerun_files(const struct conf *conf, unsigned who);

/* "reactor" or "recorder". */
const char *rolerun_name(unsigned who);

#endif

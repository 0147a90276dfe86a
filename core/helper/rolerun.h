/* One start of a role: process, channel, what it is handed. */
#ifndef SP_HELPER_ROLERUN_H
#define SP_HELPER_ROLERUN_H

#include "base/buf.h"
#include "helper/ids.h"
#include "helper/secrets.h"
#include "helper/site.h"
#include "ipc/channel.h"

/* All that the roles are made from; borrowed for the helper's life. */
struct rolerun_world {
	const struct conf *conf;
	const struct ids *ids;
	const struct secrets *secrets;
	struct site *site;
	int conf_fd; /* sealed memfd of the expanded text */
	uint32_t flags; /* enum role_flag */
	uint32_t reactor_restarts, recorder_restarts;
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
 *          the socket to the other role, taken in every case.
 * Owner:   *pid is to be waited for, *channel to be freed.
 * Returns: 0; SP_E_*, nothing runs then.
 */
int rolerun_start(const struct rolerun_world *w, unsigned who, int peer_fd,
    pid_t *pid, struct channel **channel) must_check;

/* Descriptors that a role needs for so many connections. */
uint64_t rolerun_files(const struct conf *conf, unsigned who);

/* "reactor" or "recorder". */
const char *rolerun_name(unsigned who);

#endif

/* All episodes of this host: which slot is whose, and what may be asked. */
#ifndef SP_HELPER_EPISODES_H
#define SP_HELPER_EPISODES_H

#include <sys/types.h>

#include "conf/conf_env.h"
#include "ipc/channel.h"
#include "os/poller.h"

struct episodes;

struct episodes_world {
	const struct conf *conf; /* borrowed, until episodes_reload() */
	const char *program_dir; /* of sallyport-init; borrowed */
	int state_fd; /* borrowed; -1: nothing is kept (-t) */
	bool privileged;
	const struct ids *ids; /* of the roles; borrowed */
};

/*
 * Makes the host ready: sweeps what an earlier run left, finds the control
 * groups, captures seeds, opens assets, and checks that every guarantee that
 * an environment requires can be had, at last by building a sandbox of each.
 * Context: helper, before its loop; blocks.
 * Owner:   episodes_free(NULL) is allowed.
 * Returns: 0, *out NULL when there is neither an environment nor anything to
 *          sweep; SP_E_CONF after complaints; SP_E_NOMEM; SP_E_*.
 */
int episodes_open(struct episodes **out,
    const struct episodes_world *w) must_check;
/* The loop that will run: 0; SP_E_NOMEM. */
int episodes_attach(struct episodes *e, struct poller *p) must_check;
void episodes_free(struct episodes *e);
/* The table of guarantees of each environment, as text; 0; SP_E_*. */
int episodes_guarantees(const struct episodes *e, struct buf *out) must_check;

/*
 * The reactor serves: send() gives it a message (fd taken); NULL when it is
 * gone.  Warm ones are made from the first time on.
 */
void episodes_reactor(struct episodes *e,
    void (*send)(void *arg, enum message_type type, struct view body, int fd),
    void *arg);
/* A message of the reactor's: 0; SP_E_PROTO.  m->fd may be taken. */
int episodes_heard(struct episodes *e, struct channel_msg *m) must_check;
/* Whether that child was a keeper. */
bool episodes_reaped(struct episodes *e, pid_t pid, int status);
/* Before the loop sleeps. */
void episodes_after(struct episodes *e);
/* Ends all; done() is called from the loop when nothing is left, or at the
 * deadline. */
void episodes_stop(struct episodes *e, void (*done)(void *arg), void *arg);

/*
 * Another configuration: complains of each environment that differs while an
 * episode of it lives.
 * Returns: 0; SP_E_CONF after complaints; SP_E_NOMEM.
 */
int episodes_reload_check(struct episodes *e,
    const struct conf *next) must_check;
/* It is the configuration now: what the one before owned may go. */
void episodes_reload(struct episodes *e, const struct conf *next);

#endif

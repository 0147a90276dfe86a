/* The keeper: what it is told, and what it tells. */
#ifndef SP_INIT_KEEPER_H
#define SP_INIT_KEEPER_H

#include <sys/queue.h>

#include "init/sbox.h"
#include "init/ws.h"
#include "ipc/channel.h"
#include "ipc/wire.h"
#include "os/poller.h"

struct keeper_proc;
struct keeper_job;

enum keeper_state {
	KEEPER_COLLECT, /* SPEC, GIVEs, BUILD */
	KEEPER_SERVE,
	KEEPER_ENDING, /* killed; until nothing is left */
	KEEPER_OVER,
};

struct keeper {
	enum keeper_state state;
	bool helper_gone; /* nobody to answer to */
	bool has_spec, frozen, told_stuck;
	bool sampling; /* the timer is armed */
	struct channel *helper;
	struct poller *po;
	struct poller_fd *helper_at;
	struct buf body; /* of what is being said */

	struct arena *arena; /* of the spec */
	struct buf spec_text;
	struct sandbox_spec spec;
	struct sbox box;

	LIST_HEAD(keeper_procs, keeper_proc) procs;
	size_t procs_n;

	LIST_HEAD(keeper_jobs, keeper_job) jobs; /* file work under way */
	size_t jobs_n;
	struct ws ws; /* where they work; its mounts' descriptors are ours */

	struct poller_timer *sample; /* armed while something runs */
	uint64_t event_seq, oom_kills;
	pid_t watcher; /* process that watches the workspace; 0 none */

	struct poller_fd *init_at; /* pid 1 has died */
	struct poller_timer *end; /* the next look whether it is empty */
	uint64_t end_at_us;
};

/*
 * Serves one sandbox until there is nothing left of it.
 * Source:  the message table, KEEPER_*.
 * Context: the program's main, single-threaded.
 * Parameters: fd, the channel to the helper, taken.
 * Returns: 0 when everything is gone; SP_E_* when it could not begin, or when
 *          something is left that only the next start's sweep can remove.
 */
int keeper_main(int fd) must_check;

/*
 * An empty body for the next message: writing to it takes no memory, and so
 * fails only over the size of a control message.
 */
struct buf *keeper_body(struct keeper *k);
/*
 * Sends; a helper that cannot be told ends the sandbox.
 * Parameters: b, the body, or NULL: empty; fd, taken, or -1.
 */
void keeper_send(struct keeper *k, enum message_type type, const struct buf *b,
    int fd);
/* FAILED or NOT_STARTED: what comes after the fields that are in b. */
void keeper_put_why(struct buf *b, const struct sbox_why *why);

#endif

/* What the files episodes*.c share; nobody else includes it. */
#ifndef SP_HELPER_EPISODES_PRIV_H
#define SP_HELPER_EPISODES_PRIV_H

#include "base/ident.h"
#include "helper/episodes.h"
#include "helper/grade.h"
#include "helper/grade_file.h"
#include "helper/guarantee.h"
#include "helper/seed_job.h"
#include "helper/hold.h"
#include "helper/programs.h"
#include "helper/slot.h"
#include "helper/slot_block.h"
#include "helper/slot_journal.h"

enum { EPISODES_NAME_MAX = IDENT_MAX }; /* bytes of an id */

struct ep_env {
	struct episodes *e;
	char name[65];
	const struct conf_environment *env; /* NULL: no longer configured */
	int seed_fd, assets_fd;
	bool via_veth;
	bool *places; /* of its uids: in use */
	uint32_t places_n;
	struct seed_job *seed; /* its workspace is being captured */
	uint32_t *waiting; /* requests for one, until it is */
	size_t waiting_n;
	uint64_t backoff_ms; /* a warm one could not be built; 0: it could */
	uint32_t warm_ready, warm_told; /* warm ones; as the reactor knows */
	struct poller_timer *again;
};

/* What a slot is for. */
enum ep_use {
	EP_NONE, /* free, or only waits for its sweep */
	EP_WARM, /* nobody's, being built or ready */
	EP_CREATE, /* being built for ep.request */
	EP_FRESH, /* takes the place of ep.pair, once that is empty */
	EP_OWNED, /* the reactor's */
	EP_RESETTING, /* ends for ep.request (0: for the next reactor); ep.pair
			 takes its place */
	EP_ENDING, /* ends for ep.request, 0: of itself */
	EP_REFUSED, /* its reset was refused: it may be asked for again */
};

struct ep {
	struct episodes *e;
	struct slot *slot;
	struct ep_env *env;
	uint32_t place; /* of the environment's uids */
	uint32_t uid; /* first of its CONF_ENV_UIDS_MIN; 0 none of its own */
	enum ep_use use;
	uint32_t request;
	struct ep *pair;
	bool emptied; /* of EP_RESETTING and EP_REFUSED */
	char
	    name[EPISODES_NAME_MAX + 1]; /* for the next reactor; empty: none */
	uint32_t resets; /* likewise: how often its events have begun anew */
	struct hold *hold;
	TAILQ_HEAD(, grade) grades; /* the first is under way */
	LIST_HEAD(, grade_file) files;
};

struct episodes {
	struct episodes_world world;
	struct poller *p;
	struct slot_world slots;
	struct cgroup_root cgroups;
	struct slot_journal journal;
	struct slot_block block;
	struct guarantee guarantee; /* what was probed */
	int disk_fd;
	struct ep_env **envs;
	size_t envs_n;
	struct ep **eps; /* by slot number, from the block's first */
	size_t eps_n;
	void (
	    *send)(void *arg, enum message_type type, struct view body, int fd);
	void *send_arg;
	bool serving; /* a reactor was there */
	bool asked; /* the one that is there asked what there is */
	bool resuming; /* it asked what there is, and was not told all of it */
	bool stopping;
	struct poller_timer *stop_timer;
	struct poller_timer *warm_timer; /* of episodes_warm_later() */
	bool warm_waits; /* it runs */
	int tried; /* of the build that tries: SP_E_AGAIN until it ended */
	struct programs programs; /* that it looks for */
	void (*stopped)(void *arg);
	void *stopped_arg;
};

/* ---- episodes.c ------------------------------------------------------------- */

/* Of slot_world, for those that are being served. */
void episodes_on_ready(void *arg, struct slot *s);
void episodes_on_failed(void *arg, struct slot *s);
void episodes_on_empty(void *arg, struct slot *s);
void episodes_on_stuck(void *arg, struct slot *s);
void episodes_on_swept(void *arg, struct slot *s);
void episodes_on_ending(void *arg, struct slot *s);
/* Begins one of that environment in a free slot: 0 with *out; SP_E_*. */
int episodes_begin(struct ep_env *env, enum ep_use use, uint32_t request,
    struct ep **out) must_check;
/* Makes up the warm ones of all environments. */
void episodes_warm(struct episodes *e);
/*
 * A little later: whoever took one wants to start something in it now, and
 * shall not wait while the next is built.
 */
void episodes_warm_later(struct episodes *e);
void episodes_on_warm_timer(void *arg);
/* Its seed is there, or why it is not: what waited for it is answered. */
void episodes_seeded(struct ep_env *v, int rc, struct view why);

/* The timer of episodes_stop(); NULL without memory. */
struct poller_timer *episodes_stop_timer(struct episodes *e) must_check;

/* ---- episodes_wire.c -------------------------------------------------------- */

/* What the reactor is told; nothing happens while there is none. */
void episodes_tell_refused(struct episodes *e, uint32_t request, unsigned why,
    struct view what);
void episodes_tell_made(struct ep *p, uint32_t request);
/* Before that: its name, if it has one. */
void episodes_tell_named(struct ep *p);
void episodes_tell_resumed(struct episodes *e);
void episodes_tell_ended(struct ep *p, uint32_t request, unsigned end,
    struct view what);
void episodes_tell_frozen(struct ep *p, uint32_t request,
    enum sandbox_frozen how);
/* PROCESS_*, whose body is that behind slot and generation. */
void episodes_tell_process(struct ep *p, enum message_type type,
    struct view body);
/* What a keeper answered, under the reactor's number; fd is taken. */
void episodes_pass(struct ep *p, uint16_t from, uint32_t number,
    struct view rest, int fd);
/* The table, when a reactor begins to serve. */
void episodes_tell_guarantees(struct episodes *e);
/* How many warm ones each environment has, where that has changed. */
void episodes_tell_warm(struct episodes *e);
void episodes_on_heard(void *arg, struct slot *s, const struct channel_msg *m,
    uint32_t number, struct view rest, int fd);
/* Requests about the inside of an episode: 0; SP_E_PROTO. */
int episodes_ask_freeze(struct episodes *e, struct channel_msg *m) must_check;
int episodes_ask_file(struct episodes *e, struct channel_msg *m) must_check;
int episodes_ask_connect(struct episodes *e, struct channel_msg *m) must_check;
int episodes_ask_run(struct episodes *e, struct channel_msg *m) must_check;
int episodes_ask_signal(struct episodes *e, struct channel_msg *m) must_check;
/* The reactor's, by slot and generation, or NULL. */
struct ep *episodes_find(struct episodes *e, uint32_t slot,
    uint32_t generation);

#endif

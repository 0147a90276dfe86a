/* What episode*.c and process.c share; nobody else includes it. */
#ifndef SP_GATE_EPISODE_PRIV_H
#define SP_GATE_EPISODE_PRIV_H

#include "gate/episode.h"

/* Sandboxes that are kept ready, of an environment that has had any. */
struct episode_warm {
	char env[EPISODE_ENV_MAX + 1];
	uint32_t n;
};

struct episode_set {
	struct episode_world w;
	LIST_HEAD(, episode) episodes;
	size_t n;
	LIST_HEAD(, process) dead; /* freed at the end of this turn */
	LIST_HEAD(, episode) gone; /* likewise */
	struct loop_task *reap;
	uint32_t last; /* request or handle given out */
	struct buf guarantees;
	struct episode_warm *warm; /* owned, warm_n of them */
	size_t warm_n;
	bool (*claim)(void *arg, struct episode *ep);
	void *claim_arg;
	bool resumed; /* all are known */
	/* NAMED: what MADE tells of next */
	uint32_t named_slot, named_generation, named_resets;
	struct buf named;
};

/* ---- episode.c -------------------------------------------------------------- */

/* One that is creating; NULL without memory.  Names were checked. */
struct episode *episode_new(struct episode_set *s, struct view environment,
    struct view id) must_check;
/* It is nowhere any more; whoever holds it may look until this turn ends. */
void episode_retire(struct episode *ep);
/* RESET, END, FREEZE: the request, the place, and a flag unless negative. */
int episode_ask(struct episode *ep, enum message_type type, int flag,
    void (*done)(void *arg, struct episode *ep, unsigned refusal,
	struct view what),
    void *arg) must_check;
void episode_tell_closing(struct episode *ep);
/* Its clock stands, or goes on: episode_now_ms(). */
void episode_note_frozen(struct episode *ep, bool on);
void episode_op_free(struct episode_op *op);
/* Answers it, and frees it before. */
void episode_op_done(struct episode_op *op, unsigned refusal, struct view what);
/* Every op of that type, or (0) all: answered alike. */
void episode_ops_done(struct episode *ep, enum message_type type,
    unsigned refusal, struct view what);
/* To the gate and to the watches. */
void episode_tell(struct episode *ep, const struct episode_news *n);
/* A number that nothing open has. */
uint32_t episode_number(struct episode_set *s);
int episode_send(struct episode_set *s, enum message_type type,
    struct buf *body, int rc, int fd);
/* "slot generation" in front of what is about an episode. */
int episode_put_which(struct buf *b, const struct episode *ep);
void process_free(struct process *p);
uint64_t episode_wall_us(void);

#endif

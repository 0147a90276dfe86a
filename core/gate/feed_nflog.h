/* Decisions about packets of episodes, from the kernel to their feeds. */
#ifndef SP_GATE_FEED_NFLOG_H
#define SP_GATE_FEED_NFLOG_H

#include "conf/conf_env.h"
#include "gate/feed.h"

struct feed_nflogs; /* one in the gate */

struct feed_nflog_world {
	struct loop *loop;
	/* whether something may be allowed, so that an accept may be lost */
	bool (*allows)(void *arg, const struct episode *ep);
	void *arg;
};

/*
 * Context: reactor's loop; nothing blocks.
 * Owner:   the gate; freed before its episodes.
 * Returns: NULL without memory.
 */
struct feed_nflogs *feed_nflog_new(const struct feed_nflog_world *w) must_check;
void feed_nflog_free(struct feed_nflogs *s); /* NULL allowed */
/* A socket of that episode, as nl_log_open() makes it; fd is taken. */
void feed_nflog_open(struct feed_nflogs *s, struct episode *ep, int fd);
/* An episode's news, before its feed begins anew: what is left is read. */
void feed_nflog_news(struct feed_nflogs *s, struct episode *ep,
    const struct episode_news *n);

#endif

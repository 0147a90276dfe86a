/* Where the events of a feed come from: each becomes JSON here. */
#ifndef SP_GATE_FEED_SOURCE_H
#define SP_GATE_FEED_SOURCE_H

#include "gate/feed.h"
#include "gate/relay.h"
#include "gate/turn.h"

/*
 * All:
 * Context: reactor's loop; nothing blocks.
 * What cannot be told for want of memory is counted, as feed_add() does.
 */

/* Processes, samples, changed files, losses. */
void feed_source_news(struct episode *ep, const struct episode_news *n);
/* A turn that the recorder has on file, or has not: never its contents. */
void feed_source_turn(struct episode_set *s, const struct turn_facts *facts);
/* What became of a connection through the relay or the CONNECT door. */
void feed_source_relay(const struct episode *ep,
    const struct relay_decision *d);

#endif

/* Changed files of workspaces, from their watches to the episodes' feeds. */
#ifndef SP_GATE_FEED_FILES_H
#define SP_GATE_FEED_FILES_H

#include "gate/feed.h"

struct feed_files; /* one in the gate */

/*
 * Context: reactor's loop; nothing blocks.
 * Owner:   the gate; freed before its episodes.
 * Returns: NULL without memory.
 */
struct feed_files *feed_files_new(struct loop *loop) must_check;
void feed_files_free(struct feed_files *s); /* NULL allowed */
/* A watch of that episode: EPISODE_WATCH's; fd is taken. */
void feed_files_open(struct feed_files *s, struct episode *ep, int fd);
/* An episode's news, before its feed begins anew: what is left is read. */
void feed_files_news(struct feed_files *s, struct episode *ep,
    const struct episode_news *n);

#endif

/*
 * Listeners inside episodes: made in their network namespaces, accepted on
 * here.  Who comes in by one is the episode's agent, whatever it says.
 */
#ifndef SP_GATE_INSIDE_H
#define SP_GATE_INSIDE_H

#include "gate/episode.h"
#include "gate/gate.h"

struct gate_port;
struct inside; /* one in the gate */
struct inside_port;

/*
 * What else comes from the helper for an episode, by the index of its
 * listener (enum netns_door) or as a source of events.  fd is taken.
 */
struct inside_hooks {
	void (*door)(void *arg, struct episode *ep, uint32_t index, int fd);
	void (*source)(void *arg, struct episode *ep, bool files, int fd);
	void *arg;
};

/*
 * Context: reactor's loop; nothing blocks.
 * Owner:   the gate; freed after its episodes.
 * Returns: NULL without memory.
 */
struct inside *inside_new(struct gate *g) must_check;
void inside_free(struct inside *in);
/* Without them such descriptors are kept until the episode's end, unread. */
void inside_set_hooks(struct inside *in, const struct inside_hooks *h);
/* The second of them alone, with an argument of its own. */
void inside_set_source(struct inside *in,
    void (*source)(void *arg, struct episode *ep, bool files, int fd),
    void *arg);

/* episode_world's; arg is the inside. */
void inside_listener(void *arg, uint32_t slot, uint32_t generation,
    uint32_t index, int fd);
void inside_source(void *arg, uint32_t slot, uint32_t generation, bool files,
    int fd);
void inside_news(void *arg, struct episode *ep, const struct episode_news *n);

/*
 * Another generation than before is in use: every port gets its door, or keeps the one of
 * the generation it has when that environment is another now.
 */
void inside_commit(struct inside *in, struct generation *before);
/* Whose port it is; NULL: it is closing. */
const struct episode *inside_episode(const struct inside_port *p);

#endif

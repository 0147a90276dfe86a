/* Programs of the configuration that judge an episode, on a copy of it. */
#ifndef SP_HELPER_GRADE_H
#define SP_HELPER_GRADE_H

#include "helper/slot.h"
#include "ipc/channel.h"

struct ep;
struct episodes;

enum { GRADE_WAITING_MAX = 8 }; /* of one episode, with the one that runs */

/*
 * EPISODE_GRADE of the reactor's: its answers are PROCESS_* with the number
 * it gave, or EPISODE_REFUSED.
 * Context: helper's loop; nothing blocks.  One at a time of each episode; the
 *          others wait.
 * Returns: 0; SP_E_PROTO.
 */
int grade_ask(struct episodes *e, struct channel_msg *m) must_check;
/* A signal of the reactor's to that number: whether it is a grading's. */
bool grade_signal(struct ep *p, uint32_t handle, uint8_t signo);
/* What the oracle's keeper says of its process: whether it is kept back. */
bool grade_heard(struct ep *p, const struct channel_msg *m, uint32_t number,
    struct view rest);
/* Of slot_world. */
void grade_on_oracle(void *arg, struct slot *s, enum slot_oracle_news news,
    struct view why);
/* Nobody listens any more: what runs is ended, what waits is forgotten. */
void grade_reactor_lost(struct ep *p);
/* The slot ends, and with it all of these. */
void grade_drop(struct ep *p);

#endif

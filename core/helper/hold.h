/* An episode that is held still: for whoever asked, and for ourselves. */
#ifndef SP_HELPER_HOLD_H
#define SP_HELPER_HOLD_H

#include <sys/queue.h>

#include "helper/slot.h"
#include "ipc/channel.h"
#include "os/poller.h"

struct ep;
struct episodes;
struct hold;

/* Somebody who waits until all sandboxes are frozen. */
struct hold_wait {
	TAILQ_ENTRY(hold_wait) link;
	/*
	 * Called once: frozen, until hold_release(); or not, and then it is
	 * not to be released.  NULL: nobody waits (any more).
	 */
	void (*done)(void *arg, bool frozen);
	void *arg;
	bool waiting; /* in the queue */
	bool holding;
};

/*
 * Both kinds of holding together: asked for by the reactor, until it says
 * otherwise; and by the helper for a moment, during which what the reactor
 * wants to start or write waits here.  An episode that cannot be thawed ends.
 * Context: helper's loop; nothing blocks.
 */
struct hold *hold_new(struct poller *p, struct ep *ep) must_check;
void hold_free(struct hold *h); /* NULL allowed */

/*
 * Parameters: w, embedded in the caller's; done() may be called at once.
 * Returns: 0; SP_E_STATE the slot is not READY.
 */
int hold_take(struct hold *h, struct hold_wait *w) must_check;
/* In done() of one that is not frozen: there is no means to freeze it by. */
bool hold_never(const struct hold *h) must_check;
/* Also of one that still waits, or does neither. */
void hold_release(struct hold *h, struct hold_wait *w);
/*
 * The reactor's own freeze or thaw: EPISODE_FROZEN or EPISODE_REFUSED answers
 * it.
 */
void hold_ask(struct hold *h, uint32_t request, bool on);
/*
 * Whether a message of the reactor's must wait: then it does, m->fd taken.
 * again() is what it is given to afterwards.
 */
bool hold_defer(struct hold *h, struct channel_msg *m,
    int (*again)(struct episodes *e, struct channel_msg *m));
/* A process that waits to be started never is: whether there was one. */
bool hold_forget_run(struct hold *h, uint32_t handle);
/* The reactor is gone: so is what it asked for. */
void hold_reactor_lost(struct hold *h);
/* The slot ends: nobody is called any more. */
void hold_drop(struct hold *h);

#endif

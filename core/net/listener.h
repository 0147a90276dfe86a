/* Accepts on a listening descriptor that somebody else bound. */
#ifndef SP_NET_LISTENER_H
#define SP_NET_LISTENER_H

#include "event/loop.h"
#include "net/stream.h"

struct listener;

/*
 * accept: called with a new connected descriptor (taken by the callee).
 * When descriptors run out (EMFILE, ENFILE, ENOMEM) it closes nothing, warns
 * once, and pauses for 100 ms.  At most 64 accepts a turn.  May
 *         pause or free the listener.
 * Parameters: fd, listening and non-blocking; taken on success.
 * Returns: 0; SP_E_NOMEM.
 */
int listener_new(struct loop *l, int fd,
    void (*accept)(void *arg, struct listener *from, int fd), void *arg,
    struct listener **out) must_check;
void listener_pause(struct listener *x, bool paused);
/* Closes the descriptor; NULL allowed. */
void listener_free(struct listener *x);

#endif

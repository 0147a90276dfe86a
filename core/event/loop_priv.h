/* What the files of this folder share; nobody else includes it. */
#ifndef SP_EVENT_LOOP_PRIV_H
#define SP_EVENT_LOOP_PRIV_H

struct event_base;
struct loop;

/*
 * Source:  event.h of libevent.
 * Context: reactor.
 * Owner:   borrowed from the loop.
 */
struct event_base *loop_base(struct loop *l);

#endif

/* Connections: accepts, reads requests, plays replies. */
#ifndef SP_SM_CONN_H
#define SP_SM_CONN_H

#include <event2/event.h>

#include "sm_answer.h"

struct sm_server;

/*
 * Context: one libevent loop.
 * Parameters: listener, a listening socket, taken; log_fd, borrowed, -1 none;
 *          body_max in bytes.
 * Owner:   the caller; answer is borrowed.  sm_conn_server_free() closes
 *          listener and connections.
 * Returns: NULL when there is no memory (listener is not taken then).
 */
struct sm_server *sm_conn_server_new(struct event_base *base,
    struct sm_answer *answer, int listener, int log_fd,
    size_t body_max) must_check;
void sm_conn_server_free(struct sm_server *s);

#endif

/* Sockets in the sandbox's network, for the reactor. */
#ifndef SP_INIT_KEEPER_CONNECT_H
#define SP_INIT_KEEPER_CONNECT_H

#include "init/keeper.h"

/*
 * KEEPER_CONNECT, answered at once with CONNECTED.
 * Context: keeper; waits for a child that does not wait.
 * Returns: 0; SP_E_* that ends the channel.
 */
int keeper_connect_take(struct keeper *k, struct channel_msg *m,
    struct wire *w) must_check;

#endif

/* Listening sockets that the service manager opened (LISTEN_FDS). */
#ifndef SP_HELPER_ACTIVATE_H
#define SP_HELPER_ACTIVATE_H

#include "conf/conf.h"

enum { ACTIVATE_FIRST_FD = 3, ACTIVATE_MAX = 64 };

/*
 * Takes over what was passed, away from where the roles' channels will be,
 * and closes everything else from there up.
 * Source:  sd_listen_fds(3).
 * Context: helper, before it opens anything; clears the variables.
 * Returns: 0; SP_E_ARG too many, or a descriptor that is not there; SP_E_SYS.
 */
int activate_begin(void) must_check;
/*
 * A copy of the passed socket at that address, or -1.
 * Owner:   the copy is the caller's; the original is kept for later.
 */
int activate_take(const struct conf_listen *l) must_check;
/*
 * Complains of each passed socket that no `listen` has taken, or that does
 * not listen.
 * Returns: 0; SP_E_CONF.
 */
int activate_check(void) must_check;

#endif

/* Users and groups by name or number. */
#ifndef SP_OS_CRED_H
#define SP_OS_CRED_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

#define CRED_NO_GROUP ((gid_t)-1)

/* Used when a role has no user of its own: not in any distribution's range. */
enum { CRED_REACTOR_ID = 64801, CRED_RECORDER_ID = 64802 };

/*
 * Context: start-up; blocks on the name service.
 * Parameters: name, a user's name, or a decimal uid (whose gid is then the
 *          account's, or the same number).
 * Returns: 0; SP_E_NOTFOUND; SP_E_ARG (empty, over 255 bytes).
 */
int cred_user(struct view name, uid_t *uid, gid_t *gid) must_check;
/* A group's name or decimal gid: 0; SP_E_NOTFOUND; SP_E_ARG. */
int cred_group(struct view name, gid_t *gid) must_check;
/*
 * Whether the process at the other end of a unix stream, as it was when it
 * connected, is root's, this user's, or of that group (CRED_NO_GROUP: none).
 * Source:  unix(7), SO_PEERCRED and SO_PEERGROUPS.
 * Context: any, does not block.
 * Returns: 0; SP_E_DENIED, also of what is no unix socket.
 */
int cred_peer(int fd, gid_t group) must_check;
/* True when an account has that uid; its name goes to out (may be NULL). */
bool cred_uid_named(uid_t uid, struct buf *out);

#endif

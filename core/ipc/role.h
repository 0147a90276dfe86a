/* How a role starts: what the helper hands it before it serves. */
#ifndef SP_IPC_ROLE_H
#define SP_IPC_ROLE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "ipc/channel.h"

enum {
	ROLE_CHANNEL_FD = 3,
	ROLE_LISTENERS_MAX = 64,
	ROLE_DIRS_MAX = 32,
	ROLE_SECRETS_MAX = 256,
	ROLE_CAS_MAX = 65,
	ROLE_CA_MAX_BYTES = 8 * 1024 * 1024
};

struct role_secret {
	uint32_t id;
	char *value; /* cleared and freed by role_clear() */
	size_t n;
};
struct role_fd {
	uint32_t index;
	int fd;
};

struct role_ca {
	uint32_t index; /* of the upstream, or MESSAGE_CA_SYSTEM */
	struct buf pem;
};
struct role_keep {
	uint32_t index, was; /* of the listener, now and before */
};

struct role {
	struct channel *helper;
	struct buf conf; /* the expanded configuration text */
	uint32_t generation;
	struct role_secret secrets[ROLE_SECRETS_MAX];
	size_t secrets_n;
	struct role_fd listeners[ROLE_LISTENERS_MAX];
	size_t listeners_n;
	struct role_fd trace_dirs[ROLE_DIRS_MAX];
	size_t trace_dirs_n;
	struct role_ca cas[ROLE_CAS_MAX];
	size_t cas_n;
	struct role_keep keeps[ROLE_LISTENERS_MAX]; /* of a later generation */
	size_t keeps_n;
	int trace_root_fd; /* directories beneath may follow, or -1 */
	int key_dir_fd;
	int peer_fd;
	int error_log_fd;
	int access_log_fd;
	uint32_t flags; /* of MESSAGE_START: enum role_flag */
	uint32_t reactor_restarts, recorder_restarts;
	uint32_t control_gid; /* UINT32_MAX: no group */
};
enum role_flag {
	ROLE_CONFINE = 1 << 0, /* the helper runs as root: full walls */
	ROLE_PROXY = 1 << 1, /* `sallyport proxy` */
	ROLE_CHECK = 1 << 2, /* -t: build everything, answer, end */
};

/*
 * Collects messages from descriptor 3 until MESSAGE_START (blocking, with a
 * deadline of 30 s between messages).  Ignores TERM, INT and HUP, and dies
 * when the helper does.
 * Context: first thing in a role's main; me is its message_party.
 * Owner:   the caller; what it uses it takes out (sets to -1 or NULL), and
 *          role_clear() closes and clears the rest.
 * Returns: 0; SP_E_PROTO; SP_E_GONE; SP_E_TIMEOUT; SP_E_NOMEM.
 */
int role_boot(struct role *r, unsigned me) must_check;
void role_clear(struct role *r);
/* Tells the helper why the role cannot start, and exits with status 1. */
void role_fail(struct role *r, const char *fmt, ...) printf_like(2, 3)
    __attribute__((noreturn));
/* MESSAGE_READY; the channel is in state RUN after it. */
int role_ready(struct role *r) must_check;

/*
 * A later generation, while the role serves: next collects what belongs to it
 * (conf, secrets, CAs, listeners, directories) and has no channel.
 * Owner:   role_clear(next), after which it may be used again.
 * Returns (role_next_take): 0; SP_E_NOMEM, nothing of the message was kept;
 *          SP_E_PROTO a message out of order, or none of these.  *whole is
 *          set by PREPARE: the collection is complete.  The message's
 *          descriptor is taken or left in m->fd.
 */
void role_next_init(struct role *next);
int role_next_take(struct role *next, struct channel_msg *m,
    bool *whole) must_check;
/* True between CONF and role_clear(). */
bool role_next_begun(const struct role *next);
/* MESSAGE_PREPARED: why is empty when it can be had. */
int role_prepared(struct role *r, uint32_t generation,
    struct view why) must_check;
int role_committed(struct role *r, uint32_t generation) must_check;
/* MESSAGE_ALIVE: asked, the answer to PING; else of long work. */
int role_alive(struct role *r, bool asked) must_check;

#endif

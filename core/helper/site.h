/* What is opened once and outlives the roles: directories, logs, listeners. */
#ifndef SP_HELPER_SITE_H
#define SP_HELPER_SITE_H

#include "base/buf.h"
#include "conf/conf.h"
#include "helper/ids.h"
#include "ipc/role.h"

/* Of the file in state_dir that a running sallyport holds. */
extern const char site_lock_name[];

struct site_listen {
	uint32_t index; /* conf_listen.index */
	int fd;
	bool kept; /* the descriptor of the generation before, under */
	uint32_t was; /* this index */
	bool control; /* the control socket */
	bool passed; /* the service manager's: its path stays */
};

/* What a configuration opens, besides what is there for good. */
struct site_set {
	struct role_fd traces[ROLE_DIRS_MAX]; /* by conf_capture.index */
	size_t traces_n;
	struct site_listen listens[ROLE_LISTENERS_MAX];
	size_t listens_n;
	int error_fd, access_fd; /* of another log than before; else -1 */
};

struct site {
	const struct conf *conf; /* borrowed */
	const struct ids *ids; /* borrowed */
	int state_fd, lock_fd;
	int key_fd; /* state_dir/keys, the recorder's */
	int root_fd; /* state_dir/traces, or -1 */
	int error_fd; /* -1: syslog */
	int access_fd; /* -1: off */
	struct site_set set;
};

/*
 * Opens everything, in the order in which a failure costs least, with
 * complaints.
 * Context: helper, before its loop; blocks on the disk.
 * Owner:   site_clear(), also after a failure.
 * Returns: 0; SP_E_CONF after a complaint; SP_E_NOMEM.
 */
int site_open(struct site *s, const struct conf *conf,
    const struct ids *ids) must_check;
/*
 * The same for another configuration: listening sockets of addresses that
 * stay are kept, all else is opened.
 * Owner:   site_take() or site_give_up(), also after a failure.
 */
int site_next(const struct site *s, const struct conf *conf,
    struct site_set *set) must_check;
/* From now on that: what it does not have is closed. */
void site_take(struct site *s, const struct conf *conf, struct site_set *set);
/* Closes what site_next() opened. */
void site_give_up(struct site_set *set);
/*
 * Opens the log files again.
 * Returns: 0; the first error, logged, and what could not be opened stays.
 */
int site_reopen_logs(struct site *s) must_check;
/* Appends "127.0.0.1:7000 unix:/run/x", what is listened on. */
int site_addresses(const struct site *s, struct buf *out) must_check;
/* Stops listening here (the reactor has descriptors of its own). */
void site_close_listeners(struct site *s);
/*
 * The process that runs on this state_dir; complaints go to standard error.
 * Returns: 0 with *pid; SP_E_NOTFOUND.
 */
int site_holder(const struct conf *conf, pid_t *pid) must_check;
void site_clear(struct site *s);

#endif

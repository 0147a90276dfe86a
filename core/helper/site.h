/* What is opened once and outlives the roles: directories, logs, listeners. */
#ifndef SP_HELPER_SITE_H
#define SP_HELPER_SITE_H

#include "base/buf.h"
#include "conf/conf.h"
#include "helper/ids.h"
#include "ipc/role.h"

struct site {
	const struct conf *conf; /* borrowed */
	const struct ids *ids; /* borrowed */
	int state_fd, lock_fd;
	int key_fd; /* state_dir/keys, the recorder's */
	int error_fd; /* -1: syslog */
	int access_fd; /* -1: off */
	struct role_fd traces[ROLE_DIRS_MAX]; /* by conf_capture.index */
	size_t traces_n;
	struct role_fd listens[ROLE_LISTENERS_MAX]; /* conf_listen.index */
	size_t listens_n;
};

/*
 * Opens everything, in the order in which a failure costs least; complaints
 * go to standard error.
 * Context: helper, before its loop; blocks on the disk.
 * Owner:   site_clear(), also after a failure.
 * Returns: 0; SP_E_CONF after a complaint; SP_E_NOMEM.
 */
int site_open(struct site *s, const struct conf *conf,
    const struct ids *ids) must_check;
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

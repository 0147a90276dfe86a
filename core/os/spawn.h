/* Starting a role: fork, everything that is taken away, exec. */
#ifndef SP_OS_SPAWN_H
#define SP_OS_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { SPAWN_CHANNEL_FD = 3, SPAWN_FAILED = 127 };

struct spawn {
	const char *path; /* absolute */
	const char *name; /* argv[0]; there are no arguments */
	bool change_ids; /* to uid and gid, without other groups */
	uid_t uid;
	gid_t gid;
	uint64_t files; /* RLIMIT_NOFILE that it needs */
	int channel_fd; /* becomes descriptor 3; borrowed */
};

/*
 * Starts it: standard input is /dev/null, output and error are the caller's,
 * descriptor 3 is the channel, nothing else is open; signals are unblocked
 * and default; no core files; no_new_privs; killed when the caller dies; the
 * environment holds only what SPAWN's source lists (time zone, certificate
 * store).
 * Source:  execve(2), setresuid(2), prctl(2), close_range(2).
 * Context: helper; does not wait for the exec.  What fails after the fork is
 *          logged by the child, which exits with status SPAWN_FAILED.
 * Returns: 0 with *pid; SP_E_ARG when it would run as root; SP_E_SYS and the
 *          like when there is no process to be had.
 */
int spawn_role(const struct spawn *s, pid_t *pid) must_check;

/*
 * How many descriptors spawn_role() can give of those wanted: the hard limit,
 * or more with privilege.
 * Context: any.
 */
uint64_t spawn_files(uint64_t wanted);

#endif

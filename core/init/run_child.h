/* Starting one process inside: on the way in, no step is left out. */
#ifndef SP_INIT_RUN_CHILD_H
#define SP_INIT_RUN_CHILD_H

#include <sys/types.h>

#include "init/run_env.h"
#include "init/sbox.h"

enum run_stdio { RUN_STDIN, RUN_STDOUT, RUN_STDERR, RUN_EVENT, RUN_STDIO };

struct run_child {
	const struct sbox *box;
	const struct run_env *env;
	int stdio[RUN_STDIO]; /* the process's ends; -1: /dev/null, or none */
	int sock; /* to the keeper; see run_child_read() */
	bool probe; /* it ends before it becomes the program, see run_probe() */
};

/*
 * Forks a go-between, which joins the sandbox's namespaces and makes the
 * process as the keeper's own child in them and in its control group, and
 * leaves.  The keeper reaps both.
 * Source:  setns(2), clone(2) with CLONE_PARENT and CLONE_INTO_CGROUP.
 * Context: keeper; does not wait.
 * Returns: 0 with the go-between's *pid; SP_E_* there is no process to be had.
 */
int run_child_start(const struct run_child *c, pid_t *pid) must_check;

enum run_child_word {
	RUN_CHILD_MADE = 1, /* pid and pidfd: as the keeper sees it */
	RUN_CHILD_INSIDE, /* pid: as the sandbox sees it */
	RUN_CHILD_FAILED, /* why */
};
struct run_child_msg {
	enum run_child_word word;
	pid_t pid;
	struct sbox_why why;
};
/*
 * What the two say, one at a time.
 * Owner:   *pidfd (-1: none) is the caller's.
 * Returns: 0; SP_E_AGAIN; SP_E_EOF: both ends are closed, which after INSIDE
 *          and without FAILED means that the program runs.
 */
int run_child_read(int sock, struct run_child_msg *out, int *pidfd) must_check;

#endif

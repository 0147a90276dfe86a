/* After the exec: is the process what it was meant to be? */
#ifndef SP_INIT_RUN_CHECK_H
#define SP_INIT_RUN_CHECK_H

#include <sys/types.h>

#include "init/sbox.h"

/*
 * Reads what the kernel says: no_new_privs, a seccomp filter, no capability
 * in any set, no group besides its own, uid and gid in all their forms.
 * Source:  proc_pid_status(5).
 * Context: keeper; pid is its own child, not reaped.
 * Returns: 0; SP_E_DENIED with *w, in the stage CHECK.
 */
int run_check(struct sbox_why *w, const struct sbox *b, pid_t pid) must_check;

/* The value of "Name:\tvalue" in the text of a status file; else empty. */
struct view run_check_field(struct view text, const char *name);

/* The session of a process, as the keeper sees it; 0 when there is none. */
pid_t run_check_session(pid_t pid);

#endif

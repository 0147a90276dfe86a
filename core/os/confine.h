/* seccomp and Landlock for the roles, from tables. */
#ifndef SP_OS_CONFINE_H
#define SP_OS_CONFINE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum confine_profile { CONFINE_REACTOR, CONFINE_RECORDER };

/*
 * Closes the walls around the calling process, for good: no_new_privs, not
 * dumpable, Landlock (no filesystem; the recorder keeps the given directory
 * descriptors' trees), then the seccomp allowlist of the profile (a call that
 * is not on it kills the process and is logged by the kernel).
 * Source:  seccomp(2), landlock(7).
 * Parameters: dirs, n: directories that stay usable (recorder).
 * Returns: 0; SP_E_UNSUPPORTED with *what naming the missing part (a kernel
 *          without it); SP_E_SYS.  In a build without confinement it does
 *          nothing and returns 0.
 */
int confine_enter(enum confine_profile profile, const int *dirs, size_t n,
    const char **what) must_check;
/* The kernel's version of Landlock, in every build; 0: it has none. */
int confine_landlock_abi(void);
/* True in builds where confine_enter() does something. */
bool confine_built(void);
/* "libseccomp 2.5.4" of the library in use, NULL without confinement. */
const char *confine_library(void);

#endif

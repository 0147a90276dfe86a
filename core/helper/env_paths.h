/* Paths of the host that an environment names. */
#ifndef SP_HELPER_ENV_PATHS_H
#define SP_HELPER_ENV_PATHS_H

#include "base/err.h"
#include "conf/conf_env.h"

/*
 * Complains of each path of read_only, and of the rootfs, that this host
 * lacks.
 * Context: helper, at start, for -t and at a reload; blocks on the file
 *          system.
 * Returns: 0; SP_E_CONF; SP_E_NOMEM.
 */
int env_paths_check(const struct conf_environment *env) must_check;
/*
 * Complains of a workspace that is no directory; what else a capture finds
 * wrong it says itself.
 * Returns: 0, also without one; SP_E_CONF; SP_E_NOMEM.
 */
int env_paths_workspace(const struct conf_environment *env) must_check;

#endif

/* What a process gets as arguments and environment. */
#ifndef SP_INIT_RUN_ENV_H
#define SP_INIT_RUN_ENV_H

#include "init/sbox.h"

struct run_env {
	char **argv, **env; /* NULL-terminated */
	const char *cwd;
};

/*
 * The run's variables over the spec's over the defaults (PATH, HOME, USER,
 * LANG, TMPDIR); the event pipe's number, if there is one.
 * Context: keeper; does not block.
 * Parameters: a, from which everything is taken.
 * Returns: 0; SP_E_NOMEM.
 */
int run_env_make(const struct sbox *b, const struct sandbox_run *run,
    struct arena *a, struct run_env *out) must_check;

#endif

/* The values behind env:NAME and file:PATH. */
#ifndef SP_HELPER_SECRETS_H
#define SP_HELPER_SECRETS_H

#include "base/view.h"
#include "conf/conf.h"

enum { SECRETS_VALUE_MAX = 16 * 1024 - 64 }; /* fits one message */

struct secrets_value {
	char *p; /* cleared when freed */
	size_t n;
};
/* A variable, as it was when it was first read: later ones have it, too. */
struct secrets_env {
	char *name;
	struct secrets_value value;
};
struct secrets {
	struct secrets_value *values; /* by conf_secret.id */
	size_t n;
	struct secrets_env *env;
	size_t env_n;
};

/*
 * Reads every secret that the configuration names, and clears the variables
 * in this process's own environment.  Complaints come with file and line of
 * the directive, never with a byte of a value.
 * Context: helper; blocks on files.
 * Parameters: before, those of the configuration before, whose variables are
 *          fixed; NULL at the start.
 * Owner:   secrets_clear(), also after a failure.
 * Returns: 0; SP_E_CONF after complaints; SP_E_NOMEM.
 */
int secrets_read(struct secrets *s, struct conf *conf,
    const struct secrets *before) must_check;
void secrets_clear(struct secrets *s);

#endif

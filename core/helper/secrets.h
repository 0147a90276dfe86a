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
struct secrets {
	struct secrets_value *values; /* by conf_secret.id */
	size_t n;
};

/*
 * Reads every secret that the configuration names, and clears the variables
 * in this process's own environment.  Complaints go to standard error with
 * file and line of the directive, never with a byte of a value.
 * Context: helper, before its loop; blocks on files.
 * Owner:   secrets_clear(), also after a failure.
 * Returns: 0; SP_E_CONF after complaints; SP_E_NOMEM.
 */
int secrets_read(struct secrets *s, struct conf *conf) must_check;
void secrets_clear(struct secrets *s);

#endif

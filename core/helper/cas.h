/* Certificates that upstreams are checked against, read for the reactor. */
#ifndef SP_HELPER_CAS_H
#define SP_HELPER_CAS_H

#include "conf/conf.h"
#include "ipc/role.h"

struct cas {
	struct role_fd v[ROLE_CAS_MAX]; /* sealed memory; by upstream */
	size_t n;
};

/*
 * Reads what `ca` names, a file or a directory of them, and the system's
 * bundle where an upstream with TLS names none.  The reactor has no file
 * system when it takes a later configuration.
 * Context: helper; blocks on files.  Complaints with file and line.
 * Owner:   cas_clear(), also after a failure.
 * Returns: 0; SP_E_CONF after a complaint; SP_E_NOMEM.
 */
int cas_read(struct cas *c, const struct conf *conf) must_check;
void cas_clear(struct cas *c);

#endif

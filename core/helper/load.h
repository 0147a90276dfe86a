/* The configuration, read and parsed, with the defaults of this start. */
#ifndef SP_HELPER_LOAD_H
#define SP_HELPER_LOAD_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "conf/conf.h"
#include "helper/manifestcmd.h"
#include "helper/proxycmd.h"

struct load_source {
	const char *path; /* NULL: the default file */
	const char *extra; /* of -g, or NULL */
	const struct proxycmd *proxy; /* instead of a file, or NULL */
	const struct manifestcmd *manifest; /* likewise */
	bool privileged;
};

struct load {
	struct buf text; /* expanded; goes to the roles as it is */
	struct conf *conf;
	char *path; /* the file, or "proxy", or the manifest */
	struct buf state_dir, run_dir; /* NUL-terminated defaults */
};

/*
 * Reads and parses; complaints are a line each.
 * Context: helper; blocks on files.
 * Owner:   load_clear() releases all of it, also after a failure.
 * Returns: 0; SP_E_CONF after complaints; SP_E_NOMEM.
 */
int load_conf(struct load *l, const struct load_source *src) must_check;
/* What in it has no effect, to the error log. */
void load_warn(const struct load *l);
void load_clear(struct load *l);

#endif

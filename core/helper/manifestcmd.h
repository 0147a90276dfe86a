/*
 * `sallyport --manifest openenv.yaml [flags]` and `sallyport -m openenv.yaml`:
 * flags in, configuration text out.
 */
#ifndef SP_HELPER_MANIFESTCMD_H
#define SP_HELPER_MANIFESTCMD_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "helper/manifest.h"

enum manifestcmd_do {
	MANIFESTCMD_RUN,
	MANIFESTCMD_PRINT, /* -m */
	MANIFESTCMD_CHECK, /* -t */
	MANIFESTCMD_DUMP, /* -T */
};

struct manifestcmd {
	char *path; /* absolute, of the manifest */
	enum manifestcmd_do what;
	const char *extra; /* of -g */
	struct manifest_site site; /* the strings below, and argv's */
	char *dir, *python, *bootstrap, *workspace, *asset_root;
	struct pyhome pyhome;
	bool has_port;
	const char *boxed; /* the last flag that no bare app heeds; NULL */
};

/* Whether these arguments are about a manifest. */
bool manifestcmd_asked(int argc, char **argv);
/*
 * Source:  the flags of openenvd: --host, --port, --factory, --action-class,
 *          --workspace, --asset-root, --uid, --gid, --timeout, --cgroup-root;
 *          and --python of our own.
 * Context: helper, before anything else; complaints go to standard error.
 * Owner:   manifestcmd_clear(), also after a failure; argv is borrowed.
 * Returns: 0; SP_E_ARG after a complaint; SP_E_NOTFOUND help was asked for and
 *          printed; SP_E_NOMEM.
 */
int manifestcmd_parse(struct manifestcmd *c, int argc, char **argv) must_check;
void manifestcmd_clear(struct manifestcmd *c);
/*
 * The configuration that it stands for, from the manifest as it is now.
 * Returns: 0; SP_E_CONF with lines in err; SP_E_LIMIT; SP_E_NOMEM.
 */
int manifestcmd_text(const struct manifestcmd *c, struct buf *out,
    struct buf *err) must_check;
/* The same for `manifest PATH;` in an environment; path is absolute. */
int manifestcmd_inner(const char *path, struct buf *out,
    struct buf *err) must_check;
/* -m: the exit status. */
int manifestcmd_print(const struct manifestcmd *c) must_check;
/*
 * Where openenvd is not enabled: becomes the app, which is logged; with -t it
 * is but logged that it would.  Returns only when it is enabled or checked (0),
 * or the app cannot be run so (SP_E_* after a complaint).
 */
int manifestcmd_app(const struct manifestcmd *c) must_check;

#endif

/* From a path inside a sandbox to a place that nothing there can move. */
#ifndef SP_INIT_WS_PLACE_H
#define SP_INIT_WS_PLACE_H

#include <limits.h>

#include "init/ws.h"

struct ws_place {
	const struct ws_mount *mount;
	char rest[PATH_MAX]; /* beneath it, "." for itself */
};

/*
 * Context, Owner: as in ws.h.
 * Returns: SP_OK; else another SP_E_*, and the answer says why.
 */
int ws_place_find(const struct ws *w, const char *path, struct ws_place *p,
    struct ws_answer *a) must_check;
/* Opens it as it is; O_PATH for what may be anything. */
int ws_place_open(const struct ws_place *p, int flags, int *out,
    struct ws_answer *a) must_check;
/*
 * The directory that it is in, and its name there.
 * Parameters: make, NULL: parents must be there; else new ones belong to its
 *          uid and gid.
 */
int ws_place_parent(struct ws_place *p, const struct ws *make, int *out,
    char name[NAME_MAX + 1], struct ws_answer *a) must_check;

/* An answer without a descriptor; each returns what it is given. */
void ws_place_begin(struct ws_answer *a);
int ws_place_fail(struct ws_answer *a, int rc, const char *what);
/* A sentence of its own, without the error's; returns SP_E_DENIED. */
int ws_place_refuse(struct ws_answer *a, enum sandbox_file_result result,
    const char *what);

#endif

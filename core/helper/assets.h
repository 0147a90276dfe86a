/* The files that graders have and workloads never see. */
#ifndef SP_HELPER_ASSETS_H
#define SP_HELPER_ASSETS_H

#include "base/buf.h"
#include "conf/conf_env.h"
#include "ipc/sandbox_msg.h"
#include "os/poller.h"

enum {
	ASSETS_READ_MAX = 1024 * 1024, /* bytes of one */
	ASSETS_HEAD = 256 + 1, /* of a script, with a NUL */
};

/* Where they are inside an oracle's sandbox; a slash and the file follow. */
extern const char assets_inside[];

/*
 * Opens the directory and looks at what is in it: only this user may enter
 * it, no workload is shown it under another name, what is to be run can be.
 * Context: helper, before its loop and at a reload; complains.
 * Owner:   *out, -1 when there are none, is the caller's, also on failure.
 * Returns: 0; SP_E_CONF after complaints; SP_E_NOMEM.
 */
int assets_open(const struct conf_environment *env, int *out) must_check;

/* The asset of that kind, or NULL. */
const struct conf_env_asset *assets_find(const struct conf_environment *env,
    struct view kind);
/*
 * Whether it is a regular file now, and (run) one that can be executed.
 * Returns: 0; SP_E_CONF with *why, which names it and the remedy; SP_E_NOMEM.
 */
int assets_check(const struct conf_environment *env, int dir,
    const struct conf_env_asset *a, bool run, struct buf *why) must_check;

/* Whether something runs the file itself. */
bool assets_run(const struct conf_environment *env,
    const struct conf_env_asset *a);
/*
 * What a script names behind "#!", an absolute path in head; empty: it is no
 * script, or cannot be read.
 * Context: helper; a regular file of the directory that is root's alone.
 */
struct view assets_interpreter(const struct conf_environment *env,
    const struct conf_env_asset *a, char head[ASSETS_HEAD]);

/* The path behind "/openenvd/assets/", or an empty view: it is none of these. */
struct view assets_path(struct view path);

struct assets_read;
struct assets_ask {
	const struct conf_environment *env;
	int dir; /* borrowed, until it is done */
	struct view name; /* a kind, or a path beneath the directory */
	uint64_t max; /* bytes */
};
/*
 * Reads a file in a child.
 * Parameters: done, called once from the poller, after which the read is gone;
 *          fd, sealed, taken; -1 without one.
 * Owner:   assets_read_drop() takes it back.
 * Returns: NULL without memory, or children.
 */
struct assets_read *assets_read_start(struct poller *p,
    const struct assets_ask *ask,
    void (*done)(void *arg, enum sandbox_file_result result, uint64_t size,
	int fd),
    void *arg) must_check;
void assets_read_drop(struct assets_read *r); /* NULL allowed */

#endif

/* File work of the keeper in its sandbox: whatever lies there is hostile. */
#ifndef SP_INIT_WS_H
#define SP_INIT_WS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "ipc/sandbox_msg.h"
#include "os/tree.h"

enum {
	WS_MOUNTS_MAX = 80, /* root, workspace, HOME, /tmp, read_write */
	WS_READ_MAX = 64 * 1024 * 1024, /* bytes, whatever was asked for */
	WS_RECORDS_MAX = 64 * 1024 * 1024, /* bytes of a list or a diff */
	WS_DEPTH_MAX = 4096, /* directories that a put makes */
	WS_DIFF_PATH_MAX = 3840, /* bytes of a directory's path in a diff: with
				    a name in it PATH_MAX at most */
};

/*
 * One mount of ours as the sandbox sees it.  A path is looked up beneath the
 * mount with the longest prefix of it, and no link or other mount is ever
 * crossed, so nothing that lives in the sandbox can lead out of these.
 */
struct ws_mount {
	const char *path; /* inside: "/", "/workspace"; borrowed */
	int fd; /* its root directory; borrowed */
	bool writable; /* ws_put() and the like may work there */
};

struct ws {
	struct ws_mount mounts[WS_MOUNTS_MAX];
	size_t mounts_n;
	const char *workspace; /* "/workspace", for the paths of a diff */
	int upper; /* the overlay's upper layer; -1 none */
	int lower; /* its lower one; -1 none: all is new */
	bool userxattr; /* made in a user namespace: user.overlay.* */
	uid_t uid; /* new files belong to it */
	gid_t gid;
};

/* What becomes KEEPER_FILE_DONE, and KEEPER_FILE_DATA. */
struct ws_answer {
	enum sandbox_file_result result;
	uint64_t size; /* bytes: of the file, of the records, that were put */
	int fd; /* sealed memfd, or -1; the caller's */
	char what[160]; /* for people; no bytes of the sandbox */
};

/*
 * All of these:
 * Source:  openat2(2): RESOLVE_BENEATH, NO_SYMLINKS, NO_MAGICLINKS, NO_XDEV.
 * Context: keeper; blocks on the file system, and not on what the sandbox
 *          does: FIFOs, devices, changing trees.
 * Parameters: path, absolute, as it is inside; without "..".
 * Owner:   a->fd is the caller's.
 * Answers: in a->result; nothing else is returned.
 */

/*
 * A regular file, at most max bytes of it.  SPECIAL: something else.
 * TOO_LARGE: a->size is what it has.
 */
void ws_read(const struct ws *w, const char *path, uint64_t max,
    struct ws_answer *a);
/* The entries of a directory, as sandbox_dirent records, in byte order. */
void ws_list(const struct ws *w, const char *path,
    const struct tree_bounds *bounds, struct ws_answer *a);
/*
 * Makes or replaces a regular file from what fd gives until its end (a memfd,
 * a file, a pipe; not closed), at most bounds->bytes; until it is whole, what
 * was there stays.  Parents are made.  mode: permission bits, 0 is 0644.
 */
void ws_put(const struct ws *w, const char *path, mode_t mode, int fd,
    const struct tree_bounds *bounds, struct ws_answer *a);
/* Makes a directory and its parents; one that is there is fine. */
void ws_mkdir(const struct ws *w, const char *path, mode_t mode,
    struct ws_answer *a);
/* A file or a tree; never the root of a mount. */
void ws_remove(const struct ws *w, const char *path, uint64_t deadline_ms,
    struct ws_answer *a);

/*
 * What differs in the workspace from its seed, as sandbox_change records; the
 * same tree gives the same text.  What was only copied up, or touched, is none.
 * Its cost is in the changes.  The caller has frozen the sandbox.
 * A directory of a path over WS_DIFF_PATH_MAX is told as UNREADABLE, and so are
 * those of shorter ones, down to all that there are, where the records would
 * be over WS_RECORDS_MAX or the entries over the bound.  TOO_LARGE: what lies
 * in the workspace itself is.
 * Parameters: bounds, entries, time; compared bytes: what lies
 *          beyond is told as UNCOMPARED.  BUSY: it changed nevertheless.
 *          NO_LAYERS: there is no upper layer.
 */
void ws_diff(const struct ws *w, const struct tree_bounds *bounds,
    struct ws_answer *a);
/*
 * Copies the upper layer into the directory `to`, as another overlay's upper
 * layer.  The caller has frozen the sandbox, and removes what is in `to` when
 * it fails.
 */
void ws_snapshot(const struct ws *w, int to, const struct tree_bounds *bounds,
    struct ws_answer *a);

#endif

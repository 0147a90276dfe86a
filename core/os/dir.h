/* Directories and files that others must not be able to tamper with. */
#ifndef SP_OS_DIR_H
#define SP_OS_DIR_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct dir_want {
	uid_t uid; /* owner */
	gid_t gid;
	mode_t mode; /* 0700, 02750 */
	bool set_ids; /* a new one is given to uid and gid (root) */
	mode_t parents; /* mode of parents that are missing; 0: none made */
	bool as_it_is; /* an existing one needs only to be a directory */
};

/*
 * Opens a directory, made when it is missing.
 * Context: helper, at start; blocks on the disk.
 * Parameters: path, absolute.
 * Owner:   *out (O_PATH not set, O_DIRECTORY) is the caller's.
 * Returns: 0; SP_E_DENIED with *why naming what is wrong with an existing one
 *          (owner, mode, not a directory); the error of the call otherwise.
 */
int dir_open(const char *path, const struct dir_want *want, int *out,
    const char **why) must_check;

/*
 * Opens a file for appending, 0640, made when missing; the directory must
 * belong to root or the caller and be writable by no one else, unless it is
 * sticky; not through a symlink.
 * Returns: 0; SP_E_DENIED with *why; the error of the call otherwise.
 */
int dir_open_log(const char *path, int *out, const char **why) must_check;

/* Replaces a small file (pid_file), 0644, under the same rules. */
int dir_write_file(const char *path, const void *p, size_t n,
    const char **why) must_check;

/*
 * Takes the lock file in dir and writes this process's id into it; held as
 * long as *out is open.
 * Returns: 0; SP_E_EXISTS with *holder, the id of who has it (0 unknown).
 */
int dir_lock(int dir, const char *name, int *out, pid_t *holder) must_check;
/* Who holds the lock: 0 with *holder; SP_E_NOTFOUND nobody. */
int dir_lock_holder(int dir, const char *name, pid_t *holder) must_check;
/* True when the descriptor's filesystem is overlayfs. */
bool dir_is_overlay(int fd);

#endif

/* The process that tells which files of a workspace change. */
#ifndef SP_INIT_FS_WATCH_H
#define SP_INIT_FS_WATCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "init/sbox_why.h"

struct fs_watch {
	int workspace; /* its directory; borrowed */
	bool shared; /* it is part of a file system that others write too */
	uid_t uid; /* that it runs as, of nobody else */
	gid_t gid;
};

/*
 * Marks the workspace's file system and forks a process that reads what is
 * told, finds the paths, and says them as sandbox_file_note records in
 * messages on a SOCK_SEQPACKET socket.  It has CAP_DAC_READ_SEARCH, which
 * open_by_handle_at(2) needs, and nothing else: no descriptor but its own, no
 * way to write, and a filter that kills it for any system call but those few.
 * When nobody reads, it waits, the kernel's queue runs full, and that is told.
 * Of a shared file system what lies elsewhere is passed over, and so is what
 * was in a directory that has gone: whose it was nobody knows.
 * Source:  fanotify(7), open_by_handle_at(2), capabilities(7).
 * Context: keeper.
 * Owner:   *fd, the other end, and *pid are the caller's: it ends with the
 *          caller, with the other end, or by SIGKILL.
 * Returns: 0; SP_E_* with *why.
 */
int fs_watch_start(const struct fs_watch *w, pid_t *pid, int *fd,
    struct sbox_why *why) must_check;

#endif

#include "config.h"

#include "init/fs_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/fs_dirs.h"
#include "init/fs_note.h"
#include "init/sbox_filter.h"
#include "ipc/sandbox_msg.h"
#include "os/fd.h"

enum {
	WATCH_READ_BYTES = 16 * 1024,
	WATCH_MESSAGE_BYTES = 8 * 1024, /* then it is sent */
	WATCH_MESSAGE_MAX = 32 * 1024,
	WATCH_NICE = 15,
	WATCH_FD_NOTES = 3,
	WATCH_FD_WORKSPACE,
	WATCH_FD_SOCK,
	WATCH_FD_PROC,
	WATCH_FDS,
};

static const uint64_t watch_mask = FAN_CREATE | FAN_DELETE | FAN_MODIFY |
    FAN_CLOSE_WRITE | FAN_MOVED_FROM | FAN_MOVED_TO | FAN_ATTRIB | FAN_ONDIR |
    FAN_EVENT_ON_CHILD;

struct watcher {
	struct fs_dirs *dirs;
	char base[SANDBOX_MSG_PATH_MAX + 1]; /* the workspace's own */
	size_t base_n;
	bool shared;
	struct buf out;
	/* what was said last: a file that is written is told once a time */
	char last[SANDBOX_MSG_PATH_MAX + 1];
	size_t last_n;
	uint8_t last_kind;
	uint64_t lost; /* whose path nobody knows, not told yet */
};

/* ---- saying ----------------------------------------------------------------- */

/* Waits for who reads: what comes meanwhile is the kernel's to keep. */
static void
watch_flush(struct watcher *w)
{
	struct view v = buf_view(&w->out);
	ssize_t n;

	if (v.n == 0)
		return;
	do
		n = send(WATCH_FD_SOCK, v.p, v.n, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		_exit(0);
	buf_reset(&w->out, SIZE_MAX);
}

static void
watch_put(struct watcher *w, const struct sandbox_file_note *note)
{
	if (sandbox_msg_file_note_put(&w->out, note) != SP_OK)
		w->lost++;
	else if (buf_len(&w->out) >= WATCH_MESSAGE_BYTES)
		watch_flush(w);
}

static void
watch_say(struct watcher *w, struct view path, uint8_t kind, bool dir)
{
	const struct sandbox_file_note note = { .kind = kind,
		.dir = dir,
		.path = path };

	watch_put(w, &note);
	memcpy(w->last, path.p, path.n);
	w->last_n = path.n;
	w->last_kind = kind;
}

static void
watch_say_lost(struct watcher *w, uint8_t kind, uint64_t lost)
{
	const struct sandbox_file_note note = { .kind = kind,
		.lost = lost,
		.path = VIEW_NONE };

	watch_put(w, &note);
	w->last_n = 0;
	w->last_kind = 0;
}

/* ---- paths ------------------------------------------------------------------ */

/* Of a descriptor, as the keeper's mounts have it: 0; SP_E_*. */
static int
watch_readlink(int proc, int fd, char *out, size_t max, size_t *n)
{
	char name[16];
	ssize_t got;

	(void)snprintf(name, sizeof(name), "%d", fd);
	got = readlinkat(proc, name, out, max);
	if (got <= 0 || (size_t)got >= max)
		return SP_E_LIMIT;
	out[got] = '\0';
	*n = (size_t)got;
	return SP_OK;
}

/* Where that directory is now, relative to the workspace. */
static int
watch_find(struct watcher *w, struct view key, char *out, size_t *n)
{
	_Alignas(struct file_handle) char
	    mem[sizeof(struct file_handle) + FS_NOTE_HANDLE_MAX];
	char path[SANDBOX_MSG_PATH_MAX + 1];
	struct view handle = view_from(key, FS_NOTE_FSID);
	struct stat st;
	size_t got;
	int fd, rc;

	if (handle.n > sizeof(mem))
		return SP_E_LIMIT;
	memcpy(mem, handle.p, handle.n);
	fd = open_by_handle_at(WATCH_FD_WORKSPACE, (struct file_handle *)mem,
	    O_PATH | O_CLOEXEC);
	if (fd < 0)
		return SP_E_NOTFOUND;
	rc = fstat(fd, &st) == 0 && st.st_nlink > 0 ? SP_OK : SP_E_NOTFOUND;
	if (rc == SP_OK)
		rc =
		    watch_readlink(WATCH_FD_PROC, fd, path, sizeof(path), &got);
	fd_close(&fd);
	if (rc != SP_OK)
		return rc;
	if (got < w->base_n || memcmp(path, w->base, w->base_n) != 0 ||
	    (got > w->base_n && path[w->base_n] != '/'))
		return SP_E_NOTFOUND;
	*n = got > w->base_n ? got - w->base_n - 1 : 0;
	memcpy(out, path + got - *n, *n);
	fs_dirs_add(w->dirs, key, view_of(out, *n));
	return SP_OK;
}

/* The whole path of what a note is about. */
static int
watch_path(struct watcher *w, const struct fs_note *note, char *out, size_t *n)
{
	const char *known = fs_dirs_find(w->dirs, note->dir);
	int rc = SP_OK;

	if (known != NULL) {
		*n = strlen(known);
		memcpy(out, known, *n);
	} else {
		rc = watch_find(w, note->dir, out, n);
	}
	if (rc != SP_OK || view_eq(note->name, VIEW(".")))
		return rc;
	if (*n + 1 + note->name.n > SANDBOX_MSG_PATH_MAX)
		return SP_E_LIMIT;
	if (*n > 0)
		out[(*n)++] = '/';
	memcpy(out + *n, note->name.p, note->name.n);
	*n += note->name.n;
	return SP_OK;
}

static bool
watch_is_there(const char *path)
{
	struct stat st;

	return fstatat(WATCH_FD_WORKSPACE, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- notes ------------------------------------------------------------------ */

/*
 * Notes about one name are merged while nobody reads: what is there now tells
 * which of making and removing came last.
 */
static void
watch_changes(struct watcher *w, uint64_t mask, char *path, size_t n)
{
	bool made = (mask & (FAN_CREATE | FAN_MOVED_TO)) != 0;
	bool removed = (mask & (FAN_DELETE | FAN_MOVED_FROM)) != 0;
	bool written = (mask & FAN_MODIFY) != 0;
	bool touched = (mask & (FAN_CLOSE_WRITE | FAN_ATTRIB)) != 0;
	bool dir = (mask & FAN_ONDIR) != 0, there = made;
	struct view v = view_of(path, n);

	path[n] = '\0';
	if (made && removed)
		there = watch_is_there(path);
	if (made && removed && there)
		watch_say(w, v, SANDBOX_DELETED, dir);
	if (made)
		watch_say(w, v, SANDBOX_CREATED, dir);
	if (written ||
	    (touched && !made && !removed &&
		!(w->last_n == n && memcmp(w->last, path, n) == 0 &&
		    w->last_kind != SANDBOX_DELETED)))
		watch_say(w, v, SANDBOX_MODIFIED, dir);
	if (removed && !(made && there))
		watch_say(w, v, SANDBOX_DELETED, dir);
}

static void
watch_note(struct watcher *w, const struct fs_note *note)
{
	char path[SANDBOX_MSG_PATH_MAX + 1];
	size_t n = 0;
	int rc;

	if (note->mask & FAN_Q_OVERFLOW) {
		fs_dirs_forget(w->dirs);
		watch_say_lost(w, SANDBOX_NOTE_OVERFLOW, 0);
		return;
	}
	/* of an inode alone: another note has its name */
	if (note->dir.p == NULL || note->name.n == 0)
		return;
	rc = watch_path(w, note, path, &n);
	if (rc != SP_OK) {
		w->lost += !(w->shared && rc == SP_E_NOTFOUND);
		return;
	}
	/* the workspace itself: its mode, which is ours */
	if (n == 0)
		return;
	if (w->lost > 0) {
		watch_say_lost(w, SANDBOX_NOTE_LOST, w->lost);
		w->lost = 0;
	}
	watch_changes(w, note->mask, path, n);
	if ((note->mask & FAN_ONDIR) == 0)
		return;
	/* paths beneath it are others now */
	if (note->mask & (FAN_MOVED_FROM | FAN_MOVED_TO | FAN_DELETE))
		fs_dirs_forget(w->dirs);
	else if ((note->mask & FAN_CREATE) && note->target.p != NULL)
		fs_dirs_add(w->dirs, note->target, view_of(path, n));
}

static void __attribute__((noreturn)) watch_run(struct watcher *w)
{
	_Alignas(
	    struct fanotify_event_metadata) static char mem[WATCH_READ_BYTES];
	struct fs_note note;
	struct view rest;
	ssize_t n;
	int rc;

	for (;;) {
		n = read(WATCH_FD_NOTES, mem, sizeof(mem));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			_exit(0);
		rest = view_of(mem, (size_t)n);
		while ((rc = fs_note_next(&rest, &note)) == SP_OK)
			watch_note(w, &note);
		if (rc != SP_E_EOF)
			w->lost++;
		if (w->lost > 0)
			watch_say_lost(w, SANDBOX_NOTE_LOST, w->lost);
		w->lost = 0;
		watch_flush(w);
	}
}

/* ---- the process ------------------------------------------------------------ */

/* All of root's power but one piece, and that in no other way. */
static int
watch_drop(const struct fs_watch *c)
{
	struct __user_cap_header_struct head;
	struct __user_cap_data_struct data[2];
	unsigned long cap;

	for (cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0)
			return SP_E_SYS;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 ||
	    setgroups(0, NULL) != 0 || setresgid(c->gid, c->gid, c->gid) != 0 ||
	    setresuid(c->uid, c->uid, c->uid) != 0)
		return SP_E_SYS;
	memset(&head, 0, sizeof(head));
	head.version = _LINUX_CAPABILITY_VERSION_3;
	memset(data, 0, sizeof(data));
	data[0].effective = data[0].permitted = 1U << CAP_DAC_READ_SEARCH;
	return syscall(SYS_capset, &head, data) == 0 ? SP_OK : SP_E_SYS;
}

/* Its own at their places, and no other. */
static int
watch_descriptors(int notes, int workspace, int sock)
{
	int from[] = { notes, workspace, sock, -1 };
	size_t i;

	from[3] = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (i = 0; i < 4; i++) {
		/* out of the way of the places */
		from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 16);
		if (from[i] < 0)
			return SP_E_SYS;
	}
	for (i = 0; i < 4; i++)
		if (dup2(from[i], WATCH_FD_NOTES + (int)i) < 0)
			return SP_E_SYS;
	return fd_close_from(WATCH_FDS);
}

static void __attribute__((noreturn))
watch_child(const struct fs_watch *c, int notes, int sock, struct view filter)
{
	static struct watcher w;
	struct sbox_why ignored;
	pid_t parent = getppid();

	(void)prctl(PR_SET_NAME, "sallyport-watch", 0, 0, 0);
	/* how much it does is the workload's choice, and the time the service's */
	(void)setpriority(PRIO_PROCESS, 0, WATCH_NICE);
	w.shared = c->shared;
	buf_init(&w.out, WATCH_MESSAGE_MAX);
	w.dirs = fs_dirs_new();
	if (w.dirs == NULL || buf_reserve(&w.out, WATCH_MESSAGE_MAX) != SP_OK ||
	    watch_descriptors(notes, c->workspace, sock) != SP_OK ||
	    watch_readlink(WATCH_FD_PROC, WATCH_FD_WORKSPACE, w.base,
		sizeof(w.base), &w.base_n) != SP_OK ||
	    watch_drop(c) != SP_OK ||
	    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 ||
	    getppid() != parent || sbox_filter_load(&ignored, filter) != SP_OK)
		_exit(1);
	/* a mount at the root of all */
	if (w.base_n == 1)
		w.base_n = 0;
	watch_run(&w);
}

static int
watch_mark(const struct fs_watch *c, int *out, struct sbox_why *why)
{
	int fd = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_DFID_NAME_TARGET |
		FAN_CLOEXEC,
	    0);

	if (fd < 0)
		return sbox_why_errno(why, errno, "fanotify_init");
	if (fanotify_mark(fd, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, watch_mask,
		c->workspace, NULL) != 0) {
		int rc = sbox_why_errno(why, errno, "watching the workspace");

		fd_close(&fd);
		return rc;
	}
	*out = fd;
	return SP_OK;
}

int
fs_watch_start(const struct fs_watch *c, pid_t *pid, int *fd,
    struct sbox_why *why)
{
	int notes = -1, pair[2] = { -1, -1 };
	struct buf filter = BUF_INIT(0);
	int rc = sbox_filter_compile_watch(why, &filter);

	if (rc == SP_OK)
		rc = watch_mark(c, &notes, why);
	if (rc == SP_OK &&
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		rc = sbox_why_errno(why, errno, "watching the workspace");
	if (rc == SP_OK) {
		*pid = fork();
		if (*pid == 0)
			watch_child(c, notes, pair[1], buf_view(&filter));
		if (*pid < 0)
			rc = sbox_why_errno(why, errno,
			    "watching the workspace");
	}
	buf_clear(&filter);
	fd_close(&notes);
	fd_close(&pair[1]);
	if (rc == SP_OK)
		*fd = pair[0];
	else
		fd_close(&pair[0]);
	return rc;
}

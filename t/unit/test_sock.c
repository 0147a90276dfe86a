#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/confine.h"
#include "os/cred.h"
#include "os/dir.h"
#include "os/fd.h"
#include "os/sock.h"
#include "os/xdg.h"
#include "tap.h"

static char base[] = "/tmp/test_sock.XXXXXX";
static char path[256];

static const char *
at(const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", base, name);
	return path;
}

static void
test_tcp(void)
{
	static const char *const wrong[] = { "", "localhost", "1.2.3", "[::1",
		"300.0.0.1", "::1%lo", "127.0.0.1 " };
	struct buf b = BUF_INIT(128);
	const char *step = "";
	int fd = -1;
	size_t i;

	tap_is_int(sock_listen_tcp(VIEW("127.0.0.1"), 0, 10, &fd, &step), SP_OK,
	    "a port that the kernel chooses");
	tap_is_int(sock_name(fd, &b), SP_OK, "has a name");
	tap_ok(view_starts(buf_view(&b), VIEW("127.0.0.1:")) &&
		!view_ends(buf_view(&b), VIEW(":0")),
	    "with that port");
	tap_ok((fcntl(fd, F_GETFD) & FD_CLOEXEC) &&
		(fcntl(fd, F_GETFL) & O_NONBLOCK),
	    "close-on-exec and non-blocking");
	fd_close(&fd);
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		tap_is_int(sock_listen_tcp(view_str(wrong[i]), 0, 1, &fd,
			       &step),
		    SP_E_ARG, "no address");
	tap_is_int(sock_listen_tcp(VIEW("203.0.113.1"), 0, 1, &fd, &step),
	    SP_E_SYS, "an address of another host");
	tap_is_str(step, "bind", "and the step that failed");
	if (sock_listen_tcp(VIEW("::1"), 0, 10, &fd, &step) == SP_OK) {
		buf_reset(&b, 128);
		tap_ok(sock_name(fd, &b) == SP_OK &&
			view_starts(buf_view(&b), VIEW("[::1]:")),
		    "IPv6");
		fd_close(&fd);
	} else {
		tap_skip(1, "no IPv6");
	}
	buf_clear(&b);
}

static void
test_unix(void)
{
	struct buf b = BUF_INIT(300);
	const char *step = "";
	struct stat st;
	int fd = -1, other = -1;

	tap_is_int(sock_listen_unix(view_str(at("s")), 5, &fd, &step), SP_OK,
	    "a unix socket");
	tap_ok(sock_name(fd, &b) == SP_OK &&
		view_starts(buf_view(&b), VIEW("unix:/")),
	    "has a name");
	tap_is_int(sock_listen_unix(view_str(at("s")), 5, &other, &step),
	    SP_E_EXISTS, "in use");
	fd_close(&fd);
	tap_is_int(sock_listen_unix(view_str(at("s")), 5, &fd, &step), SP_OK,
	    "a stale one is replaced");
	sock_unlink(fd);
	tap_ok(lstat(at("s"), &st) != 0, "and removed at the end");
	fd_close(&fd);
	fd = open(at("file"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	fd_close(&fd);
	tap_is_int(sock_listen_unix(view_str(at("file")), 5, &fd, &step),
	    SP_E_EXISTS, "a file is left alone");
	tap_ok(lstat(at("file"), &st) == 0, "and is there still");
	tap_is_int(sock_listen_unix(VIEW("relative"), 5, &fd, &step), SP_E_ARG,
	    "a relative path");
	buf_clear(&b);
}

static void
test_private(void)
{
	const char *step = "";
	struct stat st;
	int fd = -1;

	tap_is_int(sock_listen_private(view_str(at("p")), SOCK_NO_GROUP, 5, &fd,
		       &step),
	    SP_OK, "a private socket");
	tap_ok(lstat(at("p"), &st) == 0 && (st.st_mode & 07777) == 0600,
	    "is this user's alone");
	sock_unlink(fd);
	fd_close(&fd);
	tap_is_int(sock_listen_private(view_str(at("p")), getegid(), 5, &fd,
		       &step),
	    SP_OK, "a group's socket");
	tap_ok(lstat(at("p"), &st) == 0 && (st.st_mode & 07777) == 0660 &&
		st.st_gid == getegid(),
	    "is that group's, too");
	sock_unlink(fd);
	fd_close(&fd);
}

static void
test_peer(void)
{
	int pair[2], pipes[2], inet;

	inet = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0 ||
	    pipe(pipes) != 0 || inet < 0)
		abort();
	tap_is_int(cred_peer(pair[0], CRED_NO_GROUP), SP_OK, "this user");
	tap_is_int(cred_peer(pair[0], getegid()), SP_OK, "and its group");
	tap_is_int(cred_peer(pipes[0], getegid()), SP_E_DENIED, "a pipe");
	tap_is_int(cred_peer(inet, getegid()), SP_E_DENIED, "the internet");
	fd_close(&inet);
	fd_close(&pair[0]);
	fd_close(&pair[1]);
	fd_close(&pipes[0]);
	fd_close(&pipes[1]);
}

static void
test_dir(void)
{
	struct dir_want want = { geteuid(), getegid(), 0700, false, 0700,
		false };
	const char *why = "";
	struct stat st;
	pid_t holder = 0;
	int dir = -1, lock = -1, other = -1;

	tap_is_int(dir_open(at("a/b/c"), &want, &dir, &why), SP_OK, "made");
	tap_ok(fstat(dir, &st) == 0 && (st.st_mode & 07777) == 0700,
	    "with its mode");
	tap_is_int(dir_lock(dir, "lock", &lock, &holder), SP_OK, "locked");
	tap_is_int(dir_lock(dir, "lock", &other, &holder), SP_E_EXISTS,
	    "not twice");
	tap_is_int(holder, getpid(), "and who has it");
	tap_is_int(dir_lock_holder(dir, "lock", &holder), SP_OK, "asked for");
	tap_is_int(holder, getpid(), "it is told");
	fd_close(&lock);
	tap_is_int(dir_lock_holder(dir, "lock", &holder), SP_E_NOTFOUND,
	    "nobody, though the file is there");
	fd_close(&dir);
	tap_is_int(dir_open(at("a/b/c"), &want, &dir, &why), SP_OK, "again");
	fd_close(&dir);
	chmod(at("a/b/c"), 0777);
	tap_is_int(dir_open(at("a/b/c"), &want, &dir, &why), SP_E_DENIED,
	    "not when others can write it");
	tap_is_str(why, "can be written by others", "and why");
	chmod(at("a/b/c"), 0700);
	want.uid++;
	tap_is_int(dir_open(at("a/b/c"), &want, &dir, &why), SP_E_DENIED,
	    "not when it is another's");
	want.as_it_is = true;
	tap_is_int(dir_open(at("a/b/c"), &want, &dir, &why), SP_OK,
	    "unless it is taken as it is");
	fd_close(&dir);
	want.as_it_is = false;
	want.uid--;
	tap_is_int(dir_open(at("file"), &want, &dir, &why), SP_E_SYS,
	    "not a file");
	tap_is_int(dir_open("rel", &want, &dir, &why), SP_E_ARG, "relative");
	tap_is_int(dir_open("/", &want, &dir, &why), SP_E_ARG, "the root");
}

static void
test_log(void)
{
	const char *why = "";
	int fd = -1;

	tap_is_int(dir_open_log(at("log"), &fd, &why), SP_OK, "a log");
	fd_close(&fd);
	tap_is_int(dir_open_log(at("log"), &fd, &why), SP_OK, "again");
	fd_close(&fd);
	tap_is_int(dir_write_file(at("log"), "12345", 5, &why), SP_OK,
	    "filled");
	tap_is_int(dir_write_file(at("log"), "ab", 2, &why), SP_OK, "replaced");
	fd = open(at("log"), O_RDONLY | O_CLOEXEC);
	tap_is_int(lseek(fd, 0, SEEK_END), 2, "by the shorter");
	fd_close(&fd);
	(void)!symlink("/tmp/elsewhere", at("link"));
	tap_ok(dir_open_log(at("link"), &fd, &why) != SP_OK,
	    "not through a symlink");
	(void)!mkdir(at("open"), 0700);
	chmod(at("open"), 0777);
	tap_is_int(dir_open_log(at("open/log"), &fd, &why), SP_E_DENIED,
	    "not where others can write");
	(void)!mkfifo(at("fifo"), 0600);
	tap_ok(dir_open_log(at("fifo"), &fd, &why) != SP_OK, "not a fifo");
}

static void
test_xdg(void)
{
	struct buf b = BUF_INIT(128);

	setenv("HOME", "/home/x", 1);
	unsetenv("XDG_STATE_HOME");
	tap_is_int(xdg_dir(XDG_STATE, &b), SP_OK, "state");
	tap_ok(view_eq(buf_view(&b), VIEW("/home/x/.local/state")), "default");
	buf_reset(&b, 128);
	setenv("XDG_STATE_HOME", "/s", 1);
	tap_ok(xdg_dir(XDG_STATE, &b) == SP_OK &&
		view_eq(buf_view(&b), VIEW("/s")),
	    "as the variable says");
	buf_reset(&b, 128);
	setenv("XDG_RUNTIME_DIR", "relative", 1);
	tap_is_int(xdg_dir(XDG_RUNTIME, &b), SP_E_NOTFOUND,
	    "a relative one does not count");
	buf_clear(&b);
}

/* In a process of its own: what a confined recorder can and cannot do. */
static int
confined_child(int dir)
{
	const char *what = "";
	int fd = -1, rc = confine_enter(CONFINE_RECORDER, &dir, 1, &what);

	if (rc != SP_OK && rc != SP_E_UNSUPPORTED)
		return 10;
	if (fd_open_beneath(dir, "t", O_WRONLY | O_CREAT, 0600, &fd) != SP_OK ||
	    fd_write_all(fd, "x", 1) != SP_OK || fsync(fd) != 0)
		return 11;
	if (socket(AF_INET, SOCK_STREAM, 0) >= 0 || errno != EACCES)
		return 12;
	if (rc == SP_OK && openat(AT_FDCWD, "/etc/passwd", O_RDONLY) >= 0)
		return 13;
	return rc == SP_OK ? 0 : 1;
}

static void
test_confined(void)
{
	int status, dir = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *what = "";
	pid_t pid;

	if (!confine_built()) {
		tap_ok(confine_enter(CONFINE_REACTOR, NULL, 0, NULL) == SP_OK,
		    "a build without confinement does nothing");
		fd_close(&dir);
		return;
	}
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(confined_child(dir));
	waitpid(pid, &status, 0);
	tap_diag("status %#x (1: no Landlock here)", status);
	tap_ok(WIFEXITED(status) && WEXITSTATUS(status) <= 1,
	    "a confined recorder writes its directory and nothing else");
	pid = fork();
	if (pid == 0) {
		if (confine_enter(CONFINE_REACTOR, NULL, 0, &what) == SP_E_SYS)
			_exit(1);
		(void)execl("/bin/true", "true", (char *)NULL);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	tap_ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS,
	    "a confined reactor that execs dies");
	fd_close(&dir);
}

static void
clean(void)
{
	static const char *const names[] = { "s", "file", "a/b/c/lock", "log",
		"link", "fifo", "t" };
	static const char *const dirs[] = { "a/b/c", "a/b", "a", "open" };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlink(at(names[i]));
	for (i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		rmdir(at(dirs[i]));
	rmdir(base);
}

int
main(void)
{
	if (mkdtemp(base) == NULL)
		return 1;
	test_tcp();
	test_unix();
	test_private();
	test_peer();
	test_dir();
	test_log();
	test_xdg();
	test_confined();
	clean();
	return tap_done();
}

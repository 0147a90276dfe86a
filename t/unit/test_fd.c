#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/fd.h"
#include "tap.h"

static char dir_path[] = "/tmp/test_fd.XXXXXX";

static bool
is_cloexec(int fd)
{
	return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

static void
test_pipe(void)
{
	int p[2];
	char c[8];
	size_t n;
	struct iovec v = { c, sizeof(c) };

	memset(c, 'x', sizeof(c));
	if (pipe2(p, O_CLOEXEC) != 0)
		return;
	tap_is_int(fd_nonblock(p[0]), SP_OK, "non-blocking");
	tap_is_int(fd_read(p[0], c, 8, &n), SP_E_AGAIN, "nothing to read");
	tap_is_int(fd_write_all(p[1], "abc", 3), SP_OK, "write all");
	tap_is_int(fd_read(p[0], c, 8, &n), SP_OK, "a short read");
	tap_is_int((long long)n, 3, "says how much");
	tap_is_int(fd_writev(p[1], &v, 1, &n), SP_OK, "writev");
	tap_is_int((long long)n, 8, "says how much");
	tap_is_int(fd_read(p[0], c, 8, &n), SP_OK, "read it again");
	fd_close(&p[1]);
	tap_is_int(p[1], -1, "closed once");
	fd_close(&p[1]);
	tap_is_int(fd_read(p[0], c, 8, &n), SP_E_EOF, "the end");
	fd_close(&p[0]);
	tap_is_int(fd_read(p[0], c, 8, &n), SP_E_ARG, "no descriptor");
	tap_is_int(fd_nonblock(-1), SP_E_ARG, "nor flags of one");
	if (pipe2(p, O_CLOEXEC) != 0)
		return;
	fd_close(&p[0]);
	tap_is_int(fd_writev(p[1], &v, 1, &n), SP_E_GONE, "a broken pipe");
	tap_is_int(fd_write_all(p[1], "x", 1), SP_E_GONE, "for all, too");
	fd_close(&p[1]);
}

static void
test_files(int dir)
{
	struct buf b = BUF_INIT(40000), small = BUF_INIT(10);
	char big[30000];
	int fd = -1;

	memset(big, 'b', sizeof(big));
	if (fd_open_beneath(dir, ".", O_RDONLY, 0, &fd) == SP_E_UNSUPPORTED) {
		tap_skip(1, "openat2 is not to be had (valgrind)");
		return;
	}
	fd_close(&fd);
	tap_is_int(fd_open_beneath(dir, "a", O_WRONLY | O_CREAT | O_EXCL, 0640,
		       &fd),
	    SP_OK, "makes a file beneath");
	tap_ok(is_cloexec(fd), "close-on-exec");
	tap_is_int(fd_write_all(fd, big, sizeof(big)), SP_OK, "fills it");
	fd_close(&fd);
	tap_is_int(fd_open_beneath(dir, "a", O_WRONLY | O_CREAT | O_EXCL, 0640,
		       &fd),
	    SP_E_EXISTS, "not twice");
	tap_is_int(fd_open_beneath(dir, "a", O_RDONLY, 0, &fd), SP_OK, "opens");
	tap_is_int(fd_read_all(fd, &b), SP_OK, "reads all");
	tap_is_mem(b.mem + b.off, buf_len(&b), big, sizeof(big), "of it");
	fd_close(&fd);
	tap_is_int(fd_open_beneath(dir, "../etc/passwd", O_RDONLY, 0, &fd),
	    SP_E_DENIED, "no way out by ..");
	tap_is_int(fd_open_beneath(dir, "/etc/passwd", O_RDONLY, 0, &fd),
	    SP_E_DENIED, "nor by an absolute path");
	if (symlinkat("/etc/passwd", dir, "l") == 0)
		tap_is_int(fd_open_beneath(dir, "l", O_RDONLY, 0, &fd),
		    SP_E_DENIED, "nor by a symlink");
	tap_is_int(fd_open_beneath(dir, "none", O_RDONLY, 0, &fd),
	    SP_E_NOTFOUND, "what is not there");
	tap_is_int(fd_read_file("/dev/zero", &small), SP_E_LIMIT,
	    "the buffer's maximum ends an endless file");
	tap_is_int(fd_read_file("/nonexistent", &small), SP_E_NOTFOUND,
	    "no such file");
	buf_clear(&b);
	buf_init(&b, 40000);
	mem_fail_after(1, 1);
	tap_is_int(fd_read_file("/etc/passwd", &b), SP_E_NOMEM, "no memory");
	mem_fail_after(0, 0);
	buf_clear(&b);
	buf_clear(&small);
	unlinkat(dir, "a", 0);
	unlinkat(dir, "l", 0);
}

static void
test_full(void)
{
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	if (fd < 0) {
		tap_skip(1, "no /dev/full");
		return;
	}
	tap_is_int(fd_write_all(fd, "x", 1), SP_E_NOSPC, "a full disk");
	fd_close(&fd);
}

static void
test_sealed(void)
{
	struct buf b = BUF_INIT(64);
	int fd = -1, plain, dup_fd;
	struct view v;

	tap_is_int(fd_sealed("conf", "text", 4, &fd), SP_OK, "sealed");
	tap_ok(is_cloexec(fd), "close-on-exec");
	tap_ok(write(fd, "x", 1) < 0 && errno == EPERM, "cannot be written");
	tap_ok(ftruncate(fd, 0) != 0, "nor shrunk");
	dup_fd = dup(fd);
	tap_is_int(fd_read_sealed(fd, &b), SP_OK, "is read");
	tap_is_int(fd_read_sealed(dup_fd, &b), SP_OK, "twice, from the start");
	v = buf_view(&b);
	tap_is_mem(v.p, v.n, "texttext", 8, "the same");
	fd_close(&fd);
	fd_close(&dup_fd);
	plain = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	tap_is_int(fd_read_sealed(plain, &b), SP_E_DENIED, "unsealed: refused");
	fd_close(&plain);
	plain = open("/dev/null", O_RDONLY | O_CLOEXEC);
	tap_is_int(fd_read_sealed(plain, &b), SP_E_DENIED, "nor another file");
	fd_close(&plain);
	buf_clear(&b);
}

static void
test_pair(void)
{
	static char big[128 * 1024];
	int pair[2] = { -1, -1 };
	char c[4];

	tap_is_int(fd_seqpacket_pair(pair), SP_OK, "a pair");
	tap_ok(is_cloexec(pair[0]) && is_cloexec(pair[1]), "close-on-exec");
	tap_ok((fcntl(pair[0], F_GETFL) & O_NONBLOCK) != 0, "non-blocking");
	tap_ok(send(pair[0], big, sizeof(big), 0) == (ssize_t)sizeof(big),
	    "takes a bulk message whole");
	tap_ok(send(pair[0], "ab", 2, 0) == 2 &&
		recv(pair[1], big, sizeof(big), 0) == (ssize_t)sizeof(big) &&
		recv(pair[1], c, sizeof(c), 0) == 2,
	    "keeps the bounds of messages");
	fd_close(&pair[0]);
	fd_close(&pair[1]);
}

int
main(void)
{
	int dir, fd;

	signal(SIGPIPE, SIG_IGN);
	test_pipe();
	if (mkdtemp(dir_path) == NULL)
		return 1;
	dir = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	test_files(dir);
	fd_close(&dir);
	rmdir(dir_path);
	test_full();
	test_sealed();
	test_pair();
	fd = dup(1);
	tap_is_int(fd_close_from(fd), SP_OK, "close from");
	tap_ok(fcntl(fd, F_GETFD) < 0, "closes");
	tap_is_int(fd_close_from(-1), SP_E_ARG, "not from below zero");
	return tap_done();
}

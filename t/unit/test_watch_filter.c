/* core/init/sbox_filter.c: what the process that watches files may call. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hmap.h"
#include "base/mem.h"
#include "init/sbox_filter.h"
#include "tap.h"

static struct buf program;
static int pair[2];

/* A handle that names nothing, as the kernel tells them. */
static int
open_handle(int flags)
{
	_Alignas(
	    struct file_handle) char mem[sizeof(struct file_handle) + 8] = {
		0
	};
	struct file_handle *h = (struct file_handle *)mem;

	h->handle_bytes = 8;
	h->handle_type = 1;
	return open_by_handle_at(pair[0], h, flags);
}

/* ---- what it does: 0 when the kernel looked at it ---------------------------- */

static int
say_and_hear(void)
{
	char c;

	return send(pair[0], "x", 1, MSG_NOSIGNAL) == 1 &&
		read(pair[1], &c, 1) == 1
	    ? 0
	    : 1;
}

static int
find_place(void)
{
	char name[64];
	struct stat st;

	/* not root: EPERM; root: no such file there */
	if (open_handle(O_PATH | O_CLOEXEC) >= 0)
		return 1;
	(void)!readlinkat(pair[0], "x", name, sizeof(name));
	(void)fstatat(pair[0], "x", &st, AT_SYMLINK_NOFOLLOW);
	return fstat(pair[0], &st) == 0 && close(pair[0]) == 0 ? 0 : 1;
}

static int
use_memory(void)
{
	size_t n;

	for (n = 1; n <= 1U << 24; n *= 4) {
		char *p = mem_calloc(1, n), *q = mem_realloc(p, 2 * n);

		if (q == NULL)
			return 1;
		q[2 * n - 1] = 1;
		mem_free(q);
	}
	return 0;
}

static int
use_table(void)
{
	struct hmap *m = hmap_new(16);
	bool good = m != NULL && hmap_add(m, VIEW("a directory"), m) == SP_OK;

	hmap_free(m);
	return good ? 0 : 1;
}

/* ---- and what kills it ------------------------------------------------------- */

static int
read_a_file(void)
{
	return open_handle(O_RDONLY | O_CLOEXEC);
}

static int
write_a_file(void)
{
	return open_handle(O_WRONLY | O_CLOEXEC);
}

static int
open_a_path(void)
{
	return open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

static int
make_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0);
}

static int
make_process(void)
{
	return (int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static int
run_program(void)
{
	char *none[] = { NULL };

	return execve("/bin/true", none, none);
}

static int
run_memory(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
}

static int
signal_parent(void)
{
	return kill(getppid(), 0);
}

static int
trace_parent(void)
{
	return (int)ptrace(PTRACE_ATTACH, 1, NULL, NULL);
}

static int
change_itself(void)
{
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static const struct {
	const char *what;
	int (*call)(void);
	bool dies;
} rows[] = {
	{ "it hears and says", say_and_hear, false },
	{ "it finds what a handle names", find_place, false },
	{ "it has memory", use_memory, false },
	{ "it has tables", use_table, false },
	{ "reading what a handle names", read_a_file, true },
	{ "writing there", write_a_file, true },
	{ "opening a path", open_a_path, true },
	{ "a socket", make_socket, true },
	{ "another process", make_process, true },
	{ "another program", run_program, true },
	{ "code that it wrote", run_memory, true },
	{ "a signal", signal_parent, true },
	{ "ptrace", trace_parent, true },
	{ "being dumpable", change_itself, true },
};

static void
try(const char *what, int (*call)(void), bool dies)
{
	struct sbox_why why;
	int status = 0;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
		tap_ok(false, "%s: %s", what, strerror(errno));
		return;
	}
	pid = fork();
	if (pid == 0) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
		    sbox_filter_load(&why, buf_view(&program)) != SP_OK)
			_exit(99);
		_exit(call() == 0 ? 0 : 1);
	}
	close(pair[0]);
	close(pair[1]);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		tap_ok(false, "%s: no process", what);
	else if (dies)
		tap_ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS,
		    "%s: kills it (%#x)", what, (unsigned)status);
	else
		tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
		    "%s (%#x)", what, (unsigned)status);
}

static void
test_memory(void)
{
	struct sbox_why why;
	struct buf b = BUF_INIT(0);

	mem_fail_after(1, 0);
	tap_is_int(sbox_filter_compile_watch(&why, &b), SP_E_NOMEM,
	    "no memory, no filter");
	mem_fail_after(0, 0);
	buf_clear(&b);
}

int
main(void)
{
	struct sbox_why why;
	size_t i;

	if (getenv("SP_VALGRIND") != NULL) {
		tap_skip(1, "valgrind calls the kernel as it likes");
		return tap_done();
	}
	if (sbox_filter_compile_watch(&why, &program) != SP_OK)
		tap_ok(false, "a filter");
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		try(rows[i].what, rows[i].call, rows[i].dies);
	buf_clear(&program);
	test_memory();
	return tap_done();
}

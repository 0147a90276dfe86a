#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tap.h"

static void
test_alloc(void)
{
	unsigned long before = mem_count();
	volatile size_t huge = SIZE_MAX;
	char *p, *q;
	size_t i;
	bool good = true;

	p = mem_alloc(0);
	tap_ok(p != NULL, "nothing is something");
	mem_free(p);
	p = mem_calloc(10, 10);
	for (i = 0; p != NULL && i < 100; i++)
		good &= p[i] == 0;
	tap_ok(p != NULL && good, "zeros");
	p = mem_realloc(p, 200);
	tap_ok(p != NULL && p[99] == 0, "larger");
	q = mem_reallocarray(p, huge / 2, 3);
	tap_ok(q == NULL && p[99] == 0, "overflow of an array");
	mem_free_zero(p, 200);
	tap_ok(mem_calloc(huge / 2, 3) == NULL, "overflow of zeros");
	tap_ok(mem_alloc(huge) == NULL, "too much");
	tap_ok(mem_strndup("", huge) == NULL, "too long");
	p = mem_strdup("text");
	tap_is_str(p, "text", "strdup");
	mem_free(p);
	p = mem_strndup("text", 2);
	tap_is_str(p, "te", "strndup");
	mem_free(p);
	p = mem_strndup(NULL, 0);
	tap_is_str(p, "", "strndup of nothing");
	mem_free(p);
	mem_free(NULL);
	mem_free_zero(NULL, 5);
	tap_ok(mem_count() >= before + 8, "counted");
}

static bool
works(void)
{
	void *p = mem_alloc(1);

	mem_free(p);
	return p != NULL;
}

static void
test_inject(void)
{
	mem_fail_after(2, 0);
	tap_ok(works(), "the first works");
	tap_ok(!works(), "the second fails");
	tap_ok(works(), "the third works");
	mem_fail_after(1, 1);
	tap_ok(!works() && !works() && !works(), "sticky");
	mem_fail_after(0, 0);
	tap_ok(works(), "off");
	mem_fail_after(1, 0);
	tap_ok(mem_realloc(NULL, 5) == NULL, "realloc fails");
	mem_fail_after(1, 0);
	tap_ok(mem_reallocarray(NULL, 5, 5) == NULL, "reallocarray fails");
	mem_fail_after(1, 0);
	tap_ok(mem_calloc(1, 5) == NULL, "calloc fails");
	mem_fail_after(1, 0);
	tap_ok(mem_strdup("x") == NULL, "strdup fails");
}

/* The exit status of this program run again with SP_FAIL_ALLOC=value. */
static int
again(const char *self, const char *value)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		setenv("SP_FAIL_ALLOC", value, 1);
		execl(self, self, "child", (char *)NULL);
		_exit(99);
	}
	while (pid > 0 && waitpid(pid, &status, 0) == -1 && errno == EINTR)
		continue;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int
child(void)
{
	int bits = 0, i;

	for (i = 0; i < 3; i++)
		bits |= works() << i;
	return bits;
}

static void
test_environment(const char *self)
{
#if SP_CONFINEMENT
	tap_is_int(again(self, "2"), 7, "SP_FAIL_ALLOC is not looked at");
#else
	tap_is_int(again(self, "2"), 5, "SP_FAIL_ALLOC=2");
	tap_is_int(again(self, "-2"), 7, "SP_FAIL_ALLOC=-2 is no number");
	tap_is_int(again(self, "0"), 7, "SP_FAIL_ALLOC=0 does nothing");
#endif
}

static void
test_err(void)
{
	static const int known[] = { ENOMEM, EAGAIN, EINTR, ENOENT, EEXIST,
		EPIPE, ECONNRESET, ETIMEDOUT, EACCES, ENOSPC, EMFILE, EINVAL,
		ECONNREFUSED, EOPNOTSUPP, EPROTO, ERANGE, EBUSY };
	bool good = true;
	size_t i;
	int e;

	for (e = 0; e >= SP_E_CONF; e--)
		good &= strcmp(err_str(e), "unknown error") != 0;
	tap_ok(good, "every error has a text");
	tap_is_str(err_str(1), "unknown error", "1 has none");
	tap_is_str(err_str(SP_E_CONF - 1), "unknown error", "nor the next");
	tap_is_str(err_str(INT32_MIN), "unknown error", "nor the least");
	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		e = err_from_errno(known[i]);
		good &= e < 0 && e != SP_E_SYS;
	}
	tap_ok(good, "errno values are mapped");
	tap_is_int(err_from_errno(EIO), SP_E_SYS, "EIO is SP_E_SYS");
	tap_is_int(err_from_errno(0), 0, "0 stays 0");
}

static void
test_bug(void)
{
	const struct rlimit no_core = { 0, 0 };
	char said[200];
	ssize_t n;
	int fds[2], status = 0;
	pid_t pid;

	if (pipe(fds) != 0 || (pid = fork()) == -1) {
		tap_skip(2, "no pipe or process");
		return;
	}
	if (pid == 0) {
		(void)setrlimit(RLIMIT_CORE, &no_core);
		(void)signal(SIGABRT, SIG_DFL);
		dup2(fds[1], 2);
		err_assert(1 == 2 + 3);
		_exit(0);
	}
	close(fds[1]);
	n = read(fds[0], said, sizeof(said) - 1);
	said[n > 0 ? n : 0] = '\0';
	close(fds[0]);
	(void)waitpid(pid, &status, 0);
	tap_ok(strstr(said, "1 == 2 + 3") != NULL, "a bug says what");
	tap_ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "aborts");
}

static void
is_time(uint64_t us, const char *want)
{
	char out[25];

	clock_format(us, out);
	tap_is_str(out, want, want);
}

static void
test_live(void)
{
	size_t before = mem_live(), of_tls = mem_live_for(MEM_TLS), n;
	char *p = mem_alloc(1000), *q = mem_alloc_for(MEM_TLS, 5000), *r;

	tap_ok(mem_live() >= before + 6000 && mem_live() < before + 12000,
	    "what is live is counted");
	tap_ok(mem_live_for(MEM_TLS) >= of_tls + 5000 &&
		mem_live_for(MEM_OWN) < mem_live(),
	    "by its part");
	p = mem_realloc(p, 100000);
	tap_ok(p != NULL && mem_live() >= before + 105000, "what grew");
	r = mem_realloc_for(MEM_TLS, q, 10);
	tap_ok(r != NULL && mem_live_for(MEM_TLS) < of_tls + 1000,
	    "what shrank");
	mem_fail_after(1, 0);
	n = mem_live();
	tap_ok(mem_realloc(p, 200000) == NULL && mem_live() == n,
	    "what could not grow");
	tap_ok(mem_realloc_for(MEM_TLS, r, 0) == NULL, "nothing is wanted");
	mem_free_for(MEM_TLS, NULL);
	mem_free(p);
	tap_ok(mem_live() == before && mem_live_for(MEM_TLS) == of_tls,
	    "and all of it is gone");
	mem_fail_after(1, 0);
	q = mem_alloc_for(MEM_TLS, 1);
	tap_ok(q != NULL, "the TLS library's do not fail by injection");
	mem_free_for(MEM_TLS, q);
	mem_fail_after(0, 0);
	mem_trim();
}

static void
test_clock(void)
{
	uint64_t a = clock_ns();

	tap_ok(clock_ns() >= a, "does not go back");
	tap_ok(clock_us() >= a / 1000 && clock_ms() >= a / 1000000, "units");
	tap_ok(clock_wall_us() > UINT64_C(1600000000000000), "wall time");
	is_time(0, "1970-01-01T00:00:00.000Z");
	is_time(UINT64_C(951825599999999), "2000-02-29T11:59:59.999Z");
	is_time(UINT64_C(1709251199000000), "2024-02-29T23:59:59.000Z");
	is_time(UINT64_C(1709251200123456), "2024-03-01T00:00:00.123Z");
	is_time(UINT64_C(4107542399999000), "2100-02-28T23:59:59.999Z");
	is_time(UINT64_C(4107542400000000), "2100-03-01T00:00:00.000Z");
	is_time(UINT64_C(1798761599000000), "2026-12-31T23:59:59.000Z");
	is_time(UINT64_MAX, "9999-12-31T23:59:59.999Z");
}

int
main(int argc, char **argv)
{
	if (argc > 1)
		return child();
	test_alloc();
	test_inject();
	test_live();
	test_environment(argv[0]);
	test_err();
	test_bug();
	test_clock();
	return tap_done();
}

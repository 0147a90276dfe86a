#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "os/fd.h"
#include "os/spawn.h"

/* Newer than the oldest C library that is supported. */
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

enum { SPAWN_FILES_MIN = 1024, SPAWN_ENV_MAX = 16 };

/* The whole environment of a role, where the helper has it. */
static const char *const spawn_env[] = {
	"TZ",
	"SSL_CERT_FILE",
	"SSL_CERT_DIR",
#if !SP_CONFINEMENT
	/* what instrumented builds are steered by */
	"ASAN_OPTIONS",
	"UBSAN_OPTIONS",
	"LSAN_OPTIONS",
	"GCOV_PREFIX",
	"GCOV_PREFIX_STRIP",
	"LLVM_PROFILE_FILE",
	"SP_FAIL_ALLOC",
	"SP_FAIL_HELPER",
	"SP_FAIL_POINT",
	"SP_FAIL_STAGE",
#endif
};
_Static_assert(sizeof(spawn_env) / sizeof(spawn_env[0]) < SPAWN_ENV_MAX,
    "room for NULL");

/* The entries of environ with those names, in out, which ends with NULL. */
static void
spawn_environment(char *out[SPAWN_ENV_MAX])
{
	size_t i, n = 0, len;
	char **e;

	for (i = 0; i < sizeof(spawn_env) / sizeof(spawn_env[0]); i++) {
		len = strlen(spawn_env[i]);
		for (e = environ; e != NULL && *e != NULL; e++) {
			if (strncmp(*e, spawn_env[i], len) != 0 ||
			    (*e)[len] != '=')
				continue;
			out[n++] = *e;
			break;
		}
	}
	out[n] = NULL;
}

static rlim_t
spawn_max_files(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) != 0)
		return SPAWN_FILES_MIN;
	return rl.rlim_max;
}

uint64_t
spawn_files(uint64_t wanted)
{
	rlim_t hard = spawn_max_files();

	if (wanted < SPAWN_FILES_MIN)
		wanted = SPAWN_FILES_MIN;
	if (hard == RLIM_INFINITY || wanted <= hard || geteuid() == 0)
		return wanted;
	return hard;
}

static int
spawn_limits(const struct spawn *s)
{
	struct rlimit rl = { 0, 0 };

	/* memory of a role holds keys and prompts: never on disk */
	if (setrlimit(RLIMIT_CORE, &rl) != 0)
		return -1;
	rl.rlim_cur = rl.rlim_max = spawn_files(s->files);
	if (setrlimit(RLIMIT_NOFILE, &rl) == 0)
		return 0;
	/* over fs.nr_open, or privilege that a container lacks */
	rl.rlim_max = spawn_max_files();
	if (rl.rlim_cur > rl.rlim_max)
		rl.rlim_cur = rl.rlim_max;
	return setrlimit(RLIMIT_NOFILE, &rl);
}

/*
 * Gives all privilege up.  Safe against whatever the role becomes later: real,
 * effective and saved ids change in one call each, groups before users, and
 * the way back is tried and must be shut.  The numbers come from the helper's
 * own look-up and were checked not to be root's.
 */
static int
spawn_drop(const struct spawn *s)
{
	if (!s->change_ids)
		return 0;
	if (setgroups(0, NULL) != 0 || setresgid(s->gid, s->gid, s->gid) != 0 ||
	    setresuid(s->uid, s->uid, s->uid) != 0)
		return -1;
	if (setuid(0) == 0 || setgid(0) == 0 || geteuid() != s->uid ||
	    getegid() != s->gid) {
		errno = EPERM;
		return -1;
	}
	return 0;
}

static int
spawn_signals(void)
{
	sigset_t none;
	int i;

	for (i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL); /* KILL and STOP say no */
	sigemptyset(&none);
	return sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Descriptors 0 and 3; all above become close-on-exec. */
static int
spawn_descriptors(const struct spawn *s)
{
	int fd;

	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (fd < 0 || dup2(fd, STDIN_FILENO) < 0)
		return -1;
	if (s->channel_fd == SPAWN_CHANNEL_FD) {
		if (fcntl(SPAWN_CHANNEL_FD, F_SETFD, 0) != 0)
			return -1;
	} else if (dup2(s->channel_fd, SPAWN_CHANNEL_FD) < 0) {
		return -1;
	}
	/* not closed yet: the log may be one of them */
	if (syscall(SYS_close_range, SPAWN_CHANNEL_FD + 1U, ~0U,
		CLOSE_RANGE_CLOEXEC) != 0)
		return errno == ENOSYS ? 0 : -1; /* all of ours have it set */
	return 0;
}

static int
spawn_prepare(const struct spawn *s, pid_t parent, const char **step)
{
	*step = "descriptors";
	if (spawn_descriptors(s) != 0)
		return -1;
	*step = "signals";
	if (spawn_signals() != 0)
		return -1;
	*step = "limits";
	if (spawn_limits(s) != 0)
		return -1;
	umask(077);
	*step = "working directory";
	if (chdir("/") != 0)
		return -1;
	*step = "change of user";
	if (spawn_drop(s) != 0)
		return -1;
	*step = "no_new_privs";
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return -1;
	/* after the change of user, which clears it */
	*step = "parent's death signal";
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		return -1;
	*step = "parent";
	errno = ESRCH;
	return getppid() == parent ? 0 : -1;
}

static void __attribute__((noreturn))
spawn_child(const struct spawn *s, pid_t parent, char *const env[])
{
	char *const argv[] = { (char *)(uintptr_t)s->name, NULL };
	const char *step = "";
	int fd = open(s->path, O_PATH | O_CLOEXEC);

	if (spawn_prepare(s, parent, &step) == 0) {
		step = "exec";
		execve(s->path, argv, env);
		/*
		 * A build tree in a folder that the role's user cannot enter:
		 * by the descriptor.  The file itself must still be
		 * executable to that user.
		 */
		if (errno == EACCES && fd > SPAWN_CHANNEL_FD)
			(void)syscall(SYS_execveat, fd, "", argv, env,
			    AT_EMPTY_PATH);
	}
	log_error("cannot start %s: %s: %s", s->path, step, strerror(errno));
	_exit(SPAWN_FAILED);
}

int
spawn_role(const struct spawn *s, pid_t *pid)
{
	char *env[SPAWN_ENV_MAX];
	pid_t parent = getpid(), child;

	if (s->change_ids && (s->uid == 0 || s->gid == 0))
		return SP_E_ARG;
	spawn_environment(env);
	child = fork();
	if (child < 0)
		return err_from_errno(errno);
	if (child == 0)
		spawn_child(s, parent, env);
	*pid = child;
	return SP_OK;
}

#include "config.h"

#include "os/confine.h"

#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#if SP_CONFINEMENT

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "os/fd.h"

/* ---- seccomp: what a role may ask of the kernel --------------------------- */

enum confine_roles {
	ON_REACTOR = 1 << CONFINE_REACTOR,
	ON_RECORDER = 1 << CONFINE_RECORDER,
	ON_BOTH = ON_REACTOR | ON_RECORDER,
};

struct confine_call {
	int nr;
	unsigned roles;
};

/* Allowed whatever the arguments. */
static const struct confine_call allowed[] = {
	/* bytes on descriptors that it has */
	{ SCMP_SYS(read), ON_BOTH },
	{ SCMP_SYS(readv), ON_BOTH },
	{ SCMP_SYS(write), ON_BOTH },
	{ SCMP_SYS(writev), ON_BOTH },
	{ SCMP_SYS(pread64), ON_BOTH }, /* the sealed configuration */
	{ SCMP_SYS(close), ON_BOTH },
	{ SCMP_SYS(close_range), ON_BOTH },
	{ SCMP_SYS(fcntl), ON_BOTH },
	{ SCMP_SYS(fcntl64), ON_BOTH },
	{ SCMP_SYS(dup), ON_BOTH },
	{ SCMP_SYS(dup2), ON_BOTH },
	{ SCMP_SYS(dup3), ON_BOTH },
	{ SCMP_SYS(fstat), ON_BOTH },
	{ SCMP_SYS(fstat64), ON_BOTH },
	{ SCMP_SYS(lseek), ON_BOTH },
	{ SCMP_SYS(_llseek), ON_BOTH },
	{ SCMP_SYS(pipe2), ON_BOTH },
	{ SCMP_SYS(recvmsg), ON_BOTH },
	{ SCMP_SYS(recvfrom), ON_BOTH },
	{ SCMP_SYS(recvmmsg), ON_BOTH },
	{ SCMP_SYS(sendmsg), ON_BOTH },
	{ SCMP_SYS(sendto), ON_BOTH },
	{ SCMP_SYS(sendmmsg), ON_BOTH },
	{ SCMP_SYS(shutdown), ON_BOTH },
	{ SCMP_SYS(getsockopt), ON_BOTH },
	{ SCMP_SYS(getsockname), ON_BOTH },
	/* waiting */
	{ SCMP_SYS(poll), ON_BOTH },
	{ SCMP_SYS(ppoll), ON_BOTH },
	{ SCMP_SYS(select), ON_BOTH },
	{ SCMP_SYS(pselect6), ON_BOTH },
	{ SCMP_SYS(epoll_create), ON_BOTH },
	{ SCMP_SYS(epoll_create1), ON_BOTH },
	{ SCMP_SYS(epoll_ctl), ON_BOTH },
	{ SCMP_SYS(epoll_wait), ON_BOTH },
	{ SCMP_SYS(epoll_pwait), ON_BOTH },
	{ SCMP_SYS(epoll_pwait2), ON_BOTH },
	{ SCMP_SYS(eventfd2), ON_BOTH },
	{ SCMP_SYS(signalfd4), ON_BOTH },
	{ SCMP_SYS(timerfd_create), ON_BOTH },
	{ SCMP_SYS(timerfd_settime), ON_BOTH },
	{ SCMP_SYS(timerfd_gettime), ON_BOTH },
	{ SCMP_SYS(nanosleep), ON_BOTH },
	{ SCMP_SYS(clock_nanosleep), ON_BOTH },
	{ SCMP_SYS(restart_syscall), ON_BOTH },
	{ SCMP_SYS(sched_yield), ON_BOTH },
	{ SCMP_SYS(futex), ON_BOTH },
	/* clocks, chance, itself */
	{ SCMP_SYS(clock_gettime), ON_BOTH },
	{ SCMP_SYS(clock_getres), ON_BOTH },
	{ SCMP_SYS(gettimeofday), ON_BOTH },
	{ SCMP_SYS(time), ON_BOTH },
	{ SCMP_SYS(getrandom), ON_BOTH },
	{ SCMP_SYS(getpid), ON_BOTH },
	{ SCMP_SYS(getppid), ON_BOTH },
	{ SCMP_SYS(gettid), ON_BOTH },
	{ SCMP_SYS(getuid), ON_BOTH },
	{ SCMP_SYS(geteuid), ON_BOTH },
	{ SCMP_SYS(getgid), ON_BOTH },
	{ SCMP_SYS(getegid), ON_BOTH },
	{ SCMP_SYS(getrusage), ON_BOTH },
	{ SCMP_SYS(getrlimit), ON_BOTH },
	{ SCMP_SYS(ugetrlimit), ON_BOTH },
	{ SCMP_SYS(uname), ON_BOTH },
	{ SCMP_SYS(sysinfo), ON_BOTH },
	{ SCMP_SYS(umask), ON_BOTH },
	{ SCMP_SYS(sched_getaffinity), ON_BOTH },
	{ SCMP_SYS(rt_sigaction), ON_BOTH },
	{ SCMP_SYS(rt_sigprocmask), ON_BOTH },
	{ SCMP_SYS(rt_sigreturn), ON_BOTH },
	{ SCMP_SYS(sigaltstack), ON_BOTH },
	{ SCMP_SYS(exit), ON_BOTH },
	{ SCMP_SYS(exit_group), ON_BOTH },
	/* memory; mmap and mprotect below */
	{ SCMP_SYS(brk), ON_BOTH },
	{ SCMP_SYS(munmap), ON_BOTH },
	{ SCMP_SYS(mremap), ON_BOTH },
	{ SCMP_SYS(madvise), ON_BOTH },
	/* the network is the reactor's */
	{ SCMP_SYS(accept), ON_REACTOR },
	{ SCMP_SYS(accept4), ON_REACTOR },
	{ SCMP_SYS(connect), ON_REACTOR },
	{ SCMP_SYS(setsockopt), ON_REACTOR },
	{ SCMP_SYS(getpeername), ON_REACTOR },
	/* what is to run in a sandbox, sealed */
	{ SCMP_SYS(memfd_create), ON_REACTOR },
	/* files are the recorder's, as far as Landlock lets it */
	{ SCMP_SYS(openat), ON_RECORDER },
	{ SCMP_SYS(openat2), ON_RECORDER },
	{ SCMP_SYS(newfstatat), ON_RECORDER },
	{ SCMP_SYS(fstatat64), ON_RECORDER },
	{ SCMP_SYS(statx), ON_RECORDER },
	{ SCMP_SYS(fstatfs), ON_RECORDER },
	{ SCMP_SYS(fstatfs64), ON_RECORDER },
	{ SCMP_SYS(getdents64), ON_RECORDER },
	{ SCMP_SYS(pwrite64), ON_BOTH }, /* the reactor: older events */
	{ SCMP_SYS(preadv), ON_RECORDER },
	{ SCMP_SYS(pwritev), ON_RECORDER },
	{ SCMP_SYS(ftruncate), ON_RECORDER },
	{ SCMP_SYS(ftruncate64), ON_RECORDER },
	{ SCMP_SYS(fallocate), ON_RECORDER },
	{ SCMP_SYS(fsync), ON_RECORDER },
	{ SCMP_SYS(fdatasync), ON_RECORDER },
	{ SCMP_SYS(sync_file_range), ON_RECORDER },
	{ SCMP_SYS(fadvise64), ON_RECORDER },
	{ SCMP_SYS(flock), ON_RECORDER },
	{ SCMP_SYS(fchmod), ON_RECORDER },
	{ SCMP_SYS(fchown), ON_RECORDER },
	{ SCMP_SYS(linkat), ON_RECORDER },
	{ SCMP_SYS(mkdirat), ON_RECORDER },
	{ SCMP_SYS(renameat), ON_RECORDER },
	{ SCMP_SYS(renameat2), ON_RECORDER },
	{ SCMP_SYS(unlinkat), ON_RECORDER },
};

/*
 * What libraries try of their own accord and can live without: refused with
 * an error instead of death.
 */
static const struct {
	int nr;
	unsigned roles;
	int en;
} refused[] = {
	{ SCMP_SYS(open), ON_BOTH, EACCES },
	{ SCMP_SYS(openat), ON_REACTOR, EACCES }, /* certificates, zones */
	{ SCMP_SYS(openat2), ON_REACTOR, EACCES },
	{ SCMP_SYS(stat), ON_BOTH, EACCES },
	{ SCMP_SYS(stat64), ON_BOTH, EACCES },
	{ SCMP_SYS(lstat), ON_BOTH, EACCES },
	{ SCMP_SYS(lstat64), ON_BOTH, EACCES },
	{ SCMP_SYS(statx), ON_REACTOR, EACCES },
	{ SCMP_SYS(access), ON_BOTH, EACCES },
	{ SCMP_SYS(faccessat), ON_BOTH, EACCES },
	{ SCMP_SYS(faccessat2), ON_BOTH, EACCES },
	{ SCMP_SYS(readlink), ON_BOTH, EACCES },
	{ SCMP_SYS(readlinkat), ON_BOTH, EACCES },
	{ SCMP_SYS(getcwd), ON_BOTH, EACCES },
	{ SCMP_SYS(bind), ON_REACTOR, EACCES },
	/* syslog(3) that lost its socket */
	{ SCMP_SYS(socket), ON_RECORDER, EACCES },
	{ SCMP_SYS(connect), ON_RECORDER, EACCES },
	{ SCMP_SYS(setsockopt), ON_RECORDER, EACCES },
	/* names of memory areas, by the C library */
	{ SCMP_SYS(prctl), ON_BOTH, EPERM },
};

static const char *const seccomp_missing = "seccomp filters";

static int
confine_allow_calls(scmp_filter_ctx ctx, unsigned role)
{
	size_t i;
	int rc = 0;

	for (i = 0; i < sizeof(allowed) / sizeof(allowed[0]) && rc == 0; i++)
		if (allowed[i].roles & role)
			rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW,
			    allowed[i].nr, 0);
	for (i = 0; i < sizeof(refused) / sizeof(refused[0]) && rc == 0; i++)
		if (refused[i].roles & role)
			rc = seccomp_rule_add(ctx,
			    SCMP_ACT_ERRNO((uint32_t)refused[i].en),
			    refused[i].nr, 0);
	return rc;
}

/* Calls that are harmless with some arguments only. */
static const struct {
	int nr;
	unsigned roles;
	uint32_t action;
	struct scmp_arg_cmp arg;
} by_argument[] = {
	/* no memory that can be executed */
	{ SCMP_SYS(mmap), ON_BOTH, SCMP_ACT_ALLOW,
	    { 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0 } },
	{ SCMP_SYS(mmap2), ON_BOTH, SCMP_ACT_ALLOW,
	    { 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0 } },
	{ SCMP_SYS(mprotect), ON_BOTH, SCMP_ACT_ALLOW,
	    { 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0 } },
	/* reading its own limits, setting none */
	{ SCMP_SYS(prlimit64), ON_BOTH, SCMP_ACT_ALLOW,
	    { 2, SCMP_CMP_EQ, 0, 0 } },
	{ SCMP_SYS(ioctl), ON_BOTH, SCMP_ACT_ALLOW,
	    { 1, SCMP_CMP_EQ, FIONREAD, 0 } },
	{ SCMP_SYS(ioctl), ON_BOTH, SCMP_ACT_ALLOW,
	    { 1, SCMP_CMP_EQ, FIONBIO, 0 } },
	/* is it a terminal: no */
	{ SCMP_SYS(ioctl), ON_BOTH, SCMP_ACT_ERRNO(ENOTTY),
	    { 1, SCMP_CMP_EQ, TCGETS, 0 } },
	/* fstat() is this in newer C libraries; no other use of it */
	{ SCMP_SYS(newfstatat), ON_REACTOR, SCMP_ACT_ALLOW,
	    { 3, SCMP_CMP_MASKED_EQ, AT_EMPTY_PATH, AT_EMPTY_PATH } },
	{ SCMP_SYS(newfstatat), ON_REACTOR, SCMP_ACT_ERRNO(EACCES),
	    { 3, SCMP_CMP_MASKED_EQ, AT_EMPTY_PATH, 0 } },
	{ SCMP_SYS(socket), ON_REACTOR, SCMP_ACT_ALLOW,
	    { 0, SCMP_CMP_EQ, AF_INET, 0 } },
	{ SCMP_SYS(socket), ON_REACTOR, SCMP_ACT_ALLOW,
	    { 0, SCMP_CMP_EQ, AF_INET6, 0 } },
	{ SCMP_SYS(socket), ON_REACTOR, SCMP_ACT_ALLOW,
	    { 0, SCMP_CMP_EQ, AF_UNIX, 0 } },
	/* resolvers ask the routing table for addresses: they cope */
	{ SCMP_SYS(socket), ON_REACTOR, SCMP_ACT_ERRNO(EAFNOSUPPORT),
	    { 0, SCMP_CMP_EQ, AF_NETLINK, 0 } },
};

static int
confine_allow_args(scmp_filter_ctx ctx, unsigned role)
{
	/* abort() of this process, no signal to another */
	struct scmp_arg_cmp self = { 0, SCMP_CMP_EQ, 0, 0 };
	size_t i;
	int rc;

	self.datum_a = (scmp_datum_t)getpid();
	rc = seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
	    &self);
	for (i = 0; i < sizeof(by_argument) / sizeof(by_argument[0]); i++)
		if (rc == 0 && (by_argument[i].roles & role))
			rc = seccomp_rule_add_array(ctx, by_argument[i].action,
			    by_argument[i].nr, 1, &by_argument[i].arg);
	return rc;
}

static int
confine_seccomp(enum confine_profile profile, const char **what)
{
	unsigned role = 1U << profile;
	scmp_filter_ctx ctx;
	int rc;

	ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
	if (ctx == NULL)
		return SP_E_NOMEM;
	/* system calls of another ABI than the native one */
	rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH,
	    SCMP_ACT_KILL_PROCESS);
	if (rc == 0)
		rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 1);
	/* a death by filter shows in the kernel's log without being asked */
	if (rc == 0)
		rc = confine_allow_calls(ctx, role);
	if (rc == 0)
		rc = confine_allow_args(ctx, role);
	if (rc == 0)
		rc = seccomp_load(ctx);
	seccomp_release(ctx);
	if (rc == 0)
		return SP_OK;
	*what = seccomp_missing;
	if (rc == -ECANCELED || rc == -EINVAL || rc == -ENOSYS)
		return SP_E_UNSUPPORTED;
	return rc == -ENOMEM ? SP_E_NOMEM : SP_E_SYS;
}

/* ---- Landlock: which files, which network --------------------------------- */

/*
 * The kernel's interface in its newest form that is used here, as headers of
 * the oldest supported system lack parts of it.
 */
struct confine_ruleset_attr {
	uint64_t fs;
	uint64_t net;
	uint64_t scoped;
};

#define FS_EXECUTE (1ULL << 0)
#define FS_WRITE_FILE (1ULL << 1)
#define FS_READ_FILE (1ULL << 2)
#define FS_READ_DIR (1ULL << 3)
#define FS_REMOVE_DIR (1ULL << 4)
#define FS_REMOVE_FILE (1ULL << 5)
#define FS_MAKE_DIR (1ULL << 7)
#define FS_MAKE_REG (1ULL << 8)
#define FS_REFER (1ULL << 13) /* ABI 2 */
#define FS_TRUNCATE (1ULL << 14) /* ABI 3 */
#define FS_IOCTL_DEV (1ULL << 15) /* ABI 5 */
#define FS_ABI_1 ((1ULL << 13) - 1)
#define NET_BIND_TCP (1ULL << 0) /* ABI 4 */
#define NET_CONNECT_TCP (1ULL << 1) /* ABI 4 */
#define SCOPE_ABSTRACT_UNIX (1ULL << 0) /* ABI 6 */
#define SCOPE_SIGNAL (1ULL << 1) /* ABI 6 */

#define FS_OF_RECORDER \
	(FS_WRITE_FILE | FS_READ_FILE | FS_READ_DIR | FS_REMOVE_DIR | \
	    FS_REMOVE_FILE | FS_MAKE_DIR | FS_MAKE_REG | FS_REFER | \
	    FS_TRUNCATE)

static const char *const landlock_missing = "Landlock";

static void
confine_landlock_attr(enum confine_profile profile, long abi,
    struct confine_ruleset_attr *attr, size_t *n)
{
	memset(attr, 0, sizeof(*attr));
	*n = sizeof(attr->fs);
	attr->fs = FS_ABI_1;
	if (abi >= 2)
		attr->fs |= FS_REFER;
	if (abi >= 3)
		attr->fs |= FS_TRUNCATE;
	if (abi >= 5)
		attr->fs |= FS_IOCTL_DEV;
	if (abi >= 4) {
		attr->net = NET_BIND_TCP;
		if (profile == CONFINE_RECORDER)
			attr->net |= NET_CONNECT_TCP;
		*n += sizeof(attr->net);
	}
	if (abi >= 6) {
		attr->scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL;
		*n += sizeof(attr->scoped);
	}
}

static int
confine_landlock(enum confine_profile profile, const int *dirs, size_t n,
    const char **what)
{
	struct confine_ruleset_attr attr;
	struct landlock_path_beneath_attr beneath;
	size_t i, attr_n;
	long abi, set;
	int fd, rc = SP_OK;

	*what = landlock_missing;
	abi = syscall(SYS_landlock_create_ruleset, NULL, 0,
	    LANDLOCK_CREATE_RULESET_VERSION);
	if (abi < 1)
		return SP_E_UNSUPPORTED;
	confine_landlock_attr(profile, abi, &attr, &attr_n);
	set = syscall(SYS_landlock_create_ruleset, &attr, attr_n, 0);
	if (set < 0)
		return err_from_errno(errno);
	fd = (int)set;
	for (i = 0; i < n && rc == SP_OK; i++) {
		memset(&beneath, 0, sizeof(beneath));
		beneath.allowed_access = FS_OF_RECORDER & attr.fs;
		beneath.parent_fd = dirs[i];
		if (syscall(SYS_landlock_add_rule, fd,
			LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) != 0)
			rc = err_from_errno(errno);
	}
	if (rc == SP_OK && syscall(SYS_landlock_restrict_self, fd, 0) != 0)
		rc = err_from_errno(errno);
	fd_close(&fd);
	return rc;
}

int
confine_enter(enum confine_profile profile, const int *dirs, size_t n,
    const char **what)
{
	const char *ignored;
	int landlock, rc;

	if (what == NULL)
		what = &ignored;
	*what = "no_new_privs";
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return SP_E_SYS;
	/* no core, no ptrace by a process of the same uid */
	*what = "PR_SET_DUMPABLE";
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
		return SP_E_SYS;
	landlock = confine_landlock(profile, dirs, n, what);
	if (landlock != SP_OK && landlock != SP_E_UNSUPPORTED)
		return landlock;
	/*
	 * Without Landlock the filter still comes, so that a caller that can
	 * do with less has it; who cannot, leaves.
	 */
	rc = confine_seccomp(profile, what);
	if (rc != SP_OK)
		return rc;
	if (landlock != SP_OK)
		*what = landlock_missing;
	return landlock;
}

const char *
confine_library(void)
{
	static char text[40];
	const struct scmp_version *v = seccomp_version();

	snprintf(text, sizeof(text), "libseccomp %u.%u.%u",
	    v != NULL ? v->major : 0, v != NULL ? v->minor : 0,
	    v != NULL ? v->micro : 0);
	return text;
}

#else

const char *
confine_library(void)
{
	return NULL;
}

int
confine_enter(enum confine_profile profile, const int *dirs, size_t n,
    const char **what)
{
	(void)profile;
	(void)dirs;
	(void)n;
	(void)what;
	return SP_OK;
}

#endif

bool
confine_built(void)
{
	return SP_CONFINEMENT != 0;
}

int
confine_landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0,
	    LANDLOCK_CREATE_RULESET_VERSION);

	return abi > 0 ? (int)abi : 0;
}

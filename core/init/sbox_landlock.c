#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/sbox_landlock.h"
#include "init/sbox_root.h"
#include "os/fd.h"

/*
 * The kernel's interface in its newest form that is used here, as headers of
 * the oldest supported system lack parts of it.
 */
struct ruleset_attr {
	uint64_t fs;
	uint64_t net;
	uint64_t scoped;
};

#define FS_EXECUTE (1ULL << 0)
#define FS_WRITE_FILE (1ULL << 1)
#define FS_READ_FILE (1ULL << 2)
#define FS_READ_DIR (1ULL << 3)
#define FS_MAKE_CHAR (1ULL << 6)
#define FS_MAKE_BLOCK (1ULL << 11)
#define FS_REFER (1ULL << 13) /* ABI 2 */
#define FS_TRUNCATE (1ULL << 14) /* ABI 3 */
#define FS_IOCTL_DEV (1ULL << 15) /* ABI 5 */
#define FS_ABI_1 ((1ULL << 13) - 1)
#define SCOPE_ABSTRACT_UNIX (1ULL << 0) /* ABI 6 */

/*
 * By path, hierarchically; what is writable (sbox_root_writable()) comes on
 * top.  Signals are not scoped: the pid namespace bounds them, and each
 * process that is started has a domain of its own, between which a shell's
 * `kill` must work.
 */
static const struct {
	const char *path;
	uint64_t access;
} rules[] = {
	{ "/", FS_EXECUTE | FS_READ_FILE | FS_READ_DIR },
	/* /dev/null, a terminal's settings */
	{ "/dev", FS_WRITE_FILE | FS_IOCTL_DEV | FS_TRUNCATE },
	/* a process's own comm, oom_score_adj; the rest is masked */
	{ "/proc", FS_WRITE_FILE | FS_TRUNCATE },
};

static uint64_t
known_access(long abi)
{
	uint64_t fs = FS_ABI_1;

	if (abi >= 2)
		fs |= FS_REFER;
	if (abi >= 3)
		fs |= FS_TRUNCATE;
	if (abi >= 5)
		fs |= FS_IOCTL_DEV;
	return fs;
}

static int
add_rule(struct sbox_why *w, int set, const char *path, uint64_t access)
{
	struct landlock_path_beneath_attr beneath;
	int fd = open(path, O_PATH | O_CLOEXEC), rc = SP_OK;

	if (fd < 0)
		return sbox_why_errno(w, errno, "%s", path);
	memset(&beneath, 0, sizeof(beneath));
	beneath.allowed_access = access;
	beneath.parent_fd = fd;
	if (syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH,
		&beneath, 0) != 0)
		rc = sbox_why_errno(w, errno, "rule for %s", path);
	fd_close(&fd);
	return rc;
}

static int
add_rules(const struct sbox *b, struct sbox_why *w, int set, uint64_t fs)
{
	const uint64_t all = fs & ~(FS_MAKE_CHAR | FS_MAKE_BLOCK);
	const char *path;
	int rc = SP_OK;
	size_t i;

	for (i = 0; i < sizeof(rules) / sizeof(rules[0]) && rc == SP_OK; i++)
		rc = add_rule(w, set, rules[i].path, rules[i].access & fs);
	for (i = 0; rc == SP_OK; i++) {
		path = sbox_root_writable(b, i);
		if (path == NULL)
			break;
		rc = add_rule(w, set, path, all);
	}
	return rc;
}

int
sbox_landlock_rules(const struct sbox *b, struct sbox_why *w, int *out)
{
	struct ruleset_attr attr;
	size_t n = sizeof(attr.fs);
	long abi, set;
	int fd, rc;

	abi = syscall(SYS_landlock_create_ruleset, NULL, 0,
	    LANDLOCK_CREATE_RULESET_VERSION);
	if (abi < 1)
		return sbox_why_errno(w, abi < 0 ? errno : ENOSYS,
		    "the kernel has no Landlock: add it to lsm=");
	memset(&attr, 0, sizeof(attr));
	attr.fs = known_access(abi);
	if (abi >= 6) {
		attr.scoped = SCOPE_ABSTRACT_UNIX;
		n = sizeof(attr);
	}
	set = syscall(SYS_landlock_create_ruleset, &attr, n, 0);
	if (set < 0)
		return sbox_why_errno(w, errno, "ruleset");
	fd = (int)set;
	rc = add_rules(b, w, fd, attr.fs);
	if (rc == SP_OK)
		*out = fd;
	else
		fd_close(&fd);
	return rc;
}

int
sbox_landlock_apply(struct sbox_why *w, int ruleset)
{
	if (syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
		return sbox_why_errno(w, errno, "restrict_self");
	return SP_OK;
}

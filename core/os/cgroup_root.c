#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/cgroup.h"
#include "os/cgroup_ctl.h"
#include "os/cgroup_find.h"
#include "os/cgroup_top.h"
#include "os/fd.h"

enum { MOUNTINFO_MAX = 16 * 1024 * 1024, PATH_BYTES_MAX = 16 * 1024 };

#define OUR_NAME "sallyport"
#define OUR_SELF "/" OUR_NAME "/self"

/* The name of each matter in v1, in cgroup.controllers, in messages. */
static const char *const names[CGROUP_HIERARCHIES] = {
	[CGROUP_UNIFIED] = "cgroup2",
	[CGROUP_MEMORY] = "memory",
	[CGROUP_PIDS] = "pids",
	[CGROUP_CPU] = "cpu",
	[CGROUP_FREEZER] = "freezer",
};

struct search {
	struct buf group, mounts; /* the kernel's texts */
	const char *path; /* beneath each mount; NULL: where we are */
	bool top; /* of v2, not where we are: cgroup_top_better() */
	struct buf *why;
	bool told[CGROUP_HIERARCHIES]; /* what is not to be had of v2 */
	bool v2; /* is there */
};

/* A line about what is not to be had; that it fits is not essential. */
static void
complain(struct search *s, enum cgroup_hierarchy h, const char *what, int rc)
{
	s->told[h] = true;
	(void)!buf_printf(s->why, "%s: %s%s%s\n", names[h], what,
	    rc != SP_OK ? ": " : "", rc != SP_OK ? err_str(rc) : "");
}

/* The directory beneath which ours is made. */
static int
base_path(const struct search *s, const char *controller, struct buf *out)
{
	struct view group = VIEW_NONE;
	int rc;

	if (s->top && controller == NULL) {
		group = VIEW("/");
	} else if (s->path == NULL) {
		rc = cgroup_find_group(buf_view(&s->group), controller, &group);
		if (rc != SP_OK)
			return rc;
		/* started from what runs in the leaf of another one */
		if (view_ends(group, VIEW(OUR_SELF)))
			group.n -= sizeof(OUR_SELF) - 1;
		if (group.n == 0)
			group = VIEW("/");
	}
	rc = cgroup_find_mount(buf_view(&s->mounts), controller, group, out);
	if (rc == SP_OK && s->path != NULL)
		rc = buf_printf(out, "%s%s", s->path[0] == '/' ? "" : "/",
		    s->path);
	return rc;
}

/* Opens the path, making what is missing of s->path. */
static int
open_base(const struct search *s, const struct buf *path, int *out)
{
	struct view rest = buf_view(path), piece;
	char name[256];
	int fd, next = -1, rc = SP_OK;

	fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_from_errno(errno);
	while (rc == SP_OK && view_split(&rest, '/', &piece)) {
		if (piece.n == 0)
			continue;
		if (piece.n >= sizeof(name) || view_eq(piece, VIEW(".."))) {
			rc = SP_E_ARG;
			break;
		}
		memcpy(name, piece.p, piece.n);
		name[piece.n] = 0;
		next = openat(fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (next < 0 && errno == ENOENT && s->path != NULL)
			rc = cgroup_ctl_dir(fd, name, &next);
		else if (next < 0)
			rc = err_from_errno(errno);
		fd_close(&fd);
		fd = next;
	}
	if (rc != SP_OK)
		fd_close(&fd);
	else
		*out = fd;
	return rc;
}

/* Moves the caller out of base, so that base may have children that share. */
static int
move_self(int ours)
{
	int self = -1, rc;

	rc = cgroup_ctl_dir(ours, "self", &self);
	if (rc == SP_OK)
		rc = cgroup_ctl_write(self, "cgroup.procs", "0");
	fd_close(&self);
	return rc;
}

/* Passes a v2 controller down to the leaves that will be. */
static int
pass_down(const int dirs[3], const char *controller)
{
	char text[32];
	int i, rc = SP_OK;

	(void)snprintf(text, sizeof(text), "+%s", controller);
	for (i = 0; i < 3 && rc == SP_OK; i++)
		rc = cgroup_ctl_write(dirs[i], "cgroup.subtree_control", text);
	return rc;
}

static int
again(int fd, int *out)
{
	*out = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return *out < 0 ? err_from_errno(errno) : SP_OK;
}

/*
 * Takes from the v2 tree what it bounds here.  A group with processes cannot
 * share out controllers (the root apart), hence move_self(); others' processes
 * in it stay where they are, and are named as the cause.
 */
static int
take_controllers(struct cgroup_root *r, struct search *s, const int dirs[3])
{
	struct buf have = BUF_INIT(4096);
	int h, rc;

	rc = cgroup_ctl_read(dirs[0], "cgroup.controllers", &have);
	for (h = CGROUP_MEMORY; h <= CGROUP_CPU && rc == SP_OK; h++) {
		if (!cgroup_ctl_word(buf_view(&have), names[h]))
			continue;
		rc = pass_down(dirs, names[h]);
		if (rc == SP_E_STATE)
			complain(s, (enum cgroup_hierarchy)h,
			    "other processes are in sallyport's own group: "
			    "give it one of its own (systemd: Delegate=yes)",
			    SP_OK);
		else if (rc != SP_OK)
			complain(s, (enum cgroup_hierarchy)h,
			    "cannot be passed to sandboxes", rc);
		else
			rc = again(dirs[2], &r->fd[h]);
		if (r->fd[h] >= 0)
			rc = buf_add_view(&r->path[h],
			    buf_view(&r->path[CGROUP_UNIFIED]));
		else if (rc != SP_E_NOMEM && rc != SP_E_LIMIT)
			rc = SP_OK;
	}
	buf_clear(&have);
	return rc;
}

static int
check_domain(struct search *s, int episodes)
{
	struct buf text = BUF_INIT(64);
	int rc;

	if (faccessat(episodes, "cgroup.kill", F_OK, 0) != 0) {
		complain(s, CGROUP_UNIFIED, "this kernel has no cgroup.kill",
		    SP_OK);
		return SP_E_NOTFOUND;
	}
	/* in a threaded tree nothing can be killed as a group */
	rc = cgroup_ctl_read(episodes, "cgroup.type", &text);
	if (rc == SP_OK && !view_eq(buf_view(&text), VIEW("domain\n"))) {
		complain(s, CGROUP_UNIFIED, "its group is a threaded one",
		    SP_OK);
		rc = SP_E_UNSUPPORTED;
	}
	buf_clear(&text);
	return rc;
}

/* Goes to the top of the tree from *base, for root, where that is better. */
static int
go_up(struct cgroup_root *r, struct search *s, int *base)
{
	struct buf path = BUF_INIT(PATH_BYTES_MAX);
	int top = -1, rc;

	if (s->path != NULL || geteuid() != 0)
		return SP_OK;
	s->top = true;
	rc = base_path(s, NULL, &path);
	if (rc == SP_OK)
		rc = open_base(s, &path, &top);
	s->top = rc == SP_OK && cgroup_top_better(*base, top);
	if (s->top) {
		buf_truncate(&r->path[CGROUP_UNIFIED], 0);
		rc = buf_add_view(&r->path[CGROUP_UNIFIED], buf_view(&path));
		fd_close(base);
		*base = top;
		top = -1;
	} else if (rc != SP_E_NOMEM) {
		rc = SP_OK; /* a mount that does not show the top */
	}
	fd_close(&top);
	buf_clear(&path);
	return rc;
}

/* Makes OUR_NAME/episodes beneath base: dirs[1] and dirs[2]. */
static int
make_dirs(int dirs[3])
{
	int rc;

	rc = cgroup_ctl_dir(dirs[0], OUR_NAME, &dirs[1]);
	if (rc == SP_OK)
		rc = cgroup_ctl_dir(dirs[1], "episodes", &dirs[2]);
	/* one that root made, in a group that is not this user's to divide */
	if (rc == SP_OK && faccessat(dirs[2], ".", W_OK, AT_EACCESS) != 0)
		rc = err_from_errno(errno);
	return rc;
}

/* Opens one hierarchy; dirs are base, ours, episodes, for the caller. */
static int
open_tree(struct cgroup_root *r, struct search *s, enum cgroup_hierarchy h,
    int dirs[3])
{
	int rc;

	dirs[0] = dirs[1] = dirs[2] = -1;
	rc = base_path(s, h == CGROUP_UNIFIED ? NULL : names[h], &r->path[h]);
	if (rc == SP_OK)
		rc = open_base(s, &r->path[h], &dirs[0]);
	else if (rc == SP_E_NOTFOUND)
		complain(s, h,
		    s->v2 && s->path == NULL
			? "not passed down to sallyport's own group "
			  "(systemd: Delegate=yes)"
			: "not mounted here, says /proc/self/mountinfo",
		    SP_OK);
	if (rc == SP_OK && h == CGROUP_UNIFIED)
		rc = go_up(r, s, &dirs[0]);
	if (rc != SP_OK)
		return rc;
	rc = make_dirs(dirs);
	if (rc != SP_OK) {
		(void)!buf_printf(s->why,
		    "%s: cannot make groups in %.*s: %s\n", names[h],
		    VIEW_ARG(buf_view(&r->path[h])), err_str(rc));
		return rc;
	}
	rc = buf_add_str(&r->path[h], "/" OUR_NAME "/episodes");
	if (rc == SP_OK)
		rc = again(dirs[2], &r->fd[h]);
	return rc;
}

static void
close_dirs(int dirs[3])
{
	int i;

	for (i = 0; i < 3; i++)
		fd_close(&dirs[i]);
}

static int
open_unified(struct cgroup_root *r, struct search *s)
{
	int dirs[3], rc;

	rc = open_tree(r, s, CGROUP_UNIFIED, dirs);
	if (rc == SP_OK)
		rc = check_domain(s, dirs[2]);
	if (rc == SP_OK) {
		rc = move_self(dirs[1]);
		if (rc != SP_OK)
			complain(s, CGROUP_UNIFIED,
			    "cannot move into a leaf of its own", rc);
	}
	if (rc == SP_OK)
		rc = take_controllers(r, s, dirs);
	close_dirs(dirs);
	if (rc != SP_OK)
		fd_close(&r->fd[CGROUP_UNIFIED]);
	return rc;
}

static int
open_v1(struct cgroup_root *r, struct search *s, enum cgroup_hierarchy h)
{
	int dirs[3], rc;

	buf_reset(&r->path[h], 0);
	rc = open_tree(r, s, h, dirs);
	r->v1[h] = r->fd[h] >= 0;
	close_dirs(dirs);
	return rc;
}

/* All that there is; what is missing is told, and not fatal by itself. */
static int
open_all(struct cgroup_root *r, struct search *s)
{
	int h, rc;

	rc = open_unified(r, s);
	if (rc != SP_OK && rc != SP_E_NOTFOUND)
		return rc;
	if (rc == SP_E_NOTFOUND) {
		/* v1 alone: a frozen group can be killed one by one */
		rc = open_v1(r, s, CGROUP_FREEZER);
		if (rc != SP_OK)
			return rc;
	}
	s->v2 = rc == SP_OK;
	for (h = CGROUP_MEMORY; h <= CGROUP_CPU; h++) {
		/* one of v2 is not in v1, too */
		if (r->fd[h] >= 0 || s->told[h])
			continue;
		rc = open_v1(r, s, (enum cgroup_hierarchy)h);
		if (rc == SP_E_NOMEM || rc == SP_E_LIMIT)
			return rc;
	}
	return SP_OK;
}

int
cgroup_root_open(struct cgroup_root *r, const char *path, struct buf *why)
{
	struct search s = { .group = BUF_INIT(MOUNTINFO_MAX),
		.mounts = BUF_INIT(MOUNTINFO_MAX),
		.path = path,
		.why = why };
	int h, rc;

	memset(r, 0, sizeof(*r));
	for (h = 0; h < CGROUP_HIERARCHIES; h++) {
		r->fd[h] = -1;
		buf_init(&r->path[h], PATH_BYTES_MAX);
	}
	rc = fd_read_file("/proc/self/cgroup", &s.group);
	if (rc == SP_OK)
		rc = fd_read_file("/proc/self/mountinfo", &s.mounts);
	if (rc == SP_OK)
		rc = open_all(r, &s);
	buf_clear(&s.group);
	buf_clear(&s.mounts);
	return rc;
}

int
cgroup_root_adopt(const struct cgroup_root *r, int pid)
{
	if (pid <= 0)
		return SP_E_ARG;
	/* v1 groups have no rule about processes between the leaves */
	if (r->fd[CGROUP_UNIFIED] < 0)
		return SP_OK;
	return cgroup_ctl_write_u64(r->fd[CGROUP_UNIFIED],
	    "../self/cgroup.procs", (uint64_t)pid);
}

void
cgroup_root_clear(struct cgroup_root *r)
{
	int h;

	for (h = 0; h < CGROUP_HIERARCHIES; h++) {
		fd_close(&r->fd[h]);
		buf_clear(&r->path[h]);
	}
}

#include "config.h"

#include "os/cgroup_find.h"

/* One line of mountinfo, as far as it matters. */
struct mount_line {
	struct view root; /* of the file system, what is mounted */
	struct view point;
	struct view type;
	struct view options; /* of the file system: v1 controllers */
};

static bool
has_option(struct view list, const char *word)
{
	struct view piece;

	while (view_split(&list, ',', &piece))
		if (view_eq(piece, view_str(word)))
			return true;
	return false;
}

int
cgroup_find_group(struct view text, const char *controller, struct view *group)
{
	struct view line, id, list;

	while (view_split(&text, '\n', &line)) {
		/* the path itself may hold colons */
		if (!view_split(&line, ':', &id) ||
		    !view_split(&line, ':', &list) || line.n == 0 ||
		    line.p[0] != '/')
			continue;
		if (controller == NULL ? view_eq(id, VIEW("0")) && list.n == 0
				       : has_option(list, controller)) {
			*group = line;
			return SP_OK;
		}
	}
	return SP_E_NOTFOUND;
}

/* "36 35 98:0 /root /point rw,noatime master:1 - type source options" */
static bool
parse_line(struct view line, struct mount_line *m)
{
	struct view skip;
	unsigned i;

	for (i = 0; i < 3; i++)
		if (!view_split(&line, ' ', &skip))
			return false;
	if (!view_split(&line, ' ', &m->root) ||
	    !view_split(&line, ' ', &m->point))
		return false;
	/* options, and any number of optional fields */
	do
		if (!view_split(&line, ' ', &skip))
			return false;
	while (!view_eq(skip, VIEW("-")));
	return view_split(&line, ' ', &m->type) &&
	    view_split(&line, ' ', &skip) &&
	    view_split(&line, ' ', &m->options);
}

/* A field without its escapes: \040 and the like. */
static int
unescape(struct view v, struct buf *out)
{
	size_t i;
	int rc = SP_OK;
	unsigned c;

	for (i = 0; i < v.n && rc == SP_OK; i++) {
		c = (unsigned char)v.p[i];
		if (c == '\\' && v.n - i > 3 && v.p[i + 1] >= '0' &&
		    v.p[i + 1] <= '3' && v.p[i + 2] >= '0' &&
		    v.p[i + 2] <= '7' && v.p[i + 3] >= '0' &&
		    v.p[i + 3] <= '7') {
			c = (unsigned)(v.p[i + 1] - '0') * 64 +
			    (unsigned)(v.p[i + 2] - '0') * 8 +
			    (unsigned)(v.p[i + 3] - '0');
			i += 3;
		}
		rc = buf_add_char(out, (char)c);
	}
	return rc;
}

/*
 * What of the group lies beneath a mount of `root`: false when the mount does
 * not show it (a container host may mount a part, or bind one elsewhere).
 */
static bool
beneath(struct view root, struct view group, struct view *rest)
{
	if (group.n == 0 || view_eq(root, VIEW("/"))) {
		*rest = view_eq(group, VIEW("/")) ? VIEW_NONE : group;
		return true;
	}
	if (!view_starts(group, root))
		return false;
	*rest = view_from(group, root.n);
	return rest->n == 0 || rest->p[0] == '/';
}

static int
add_path(const struct mount_line *m, struct view group, struct buf *out)
{
	struct buf root = BUF_INIT(64 * 1024);
	struct view rest = VIEW_NONE;
	size_t before = buf_len(out);
	int rc;

	rc = unescape(m->root, &root);
	if (rc == SP_OK && !beneath(buf_view(&root), group, &rest))
		rc = SP_E_NOTFOUND;
	if (rc == SP_OK)
		rc = unescape(m->point, out);
	if (rc == SP_OK)
		rc = buf_add_view(out, rest);
	if (rc != SP_OK)
		buf_truncate(out, before);
	buf_clear(&root);
	return rc;
}

int
cgroup_find_mount(struct view text, const char *controller, struct view group,
    struct buf *out)
{
	struct mount_line m;
	struct view line;
	int rc;

	while (view_split(&text, '\n', &line)) {
		if (!parse_line(line, &m))
			continue;
		if (controller == NULL ? !view_eq(m.type, VIEW("cgroup2"))
				       : !view_eq(m.type, VIEW("cgroup")) ||
			    !has_option(m.options, controller))
			continue;
		rc = add_path(&m, group, out);
		if (rc != SP_E_NOTFOUND)
			return rc;
	}
	return SP_E_NOTFOUND;
}

#include "config.h"

#include <string.h>

#include "ipc/sandbox_msg.h"

/*
 * Both encodings are their fields in the order of these tables, by kind: a
 * sealed memfd may have been made by a peer that was taken over, so what is
 * read is checked here, once, for everybody.
 */
enum field_kind { FIELD_U8, FIELD_U32, FIELD_U64, FIELD_TEXT, FIELD_LIST };

enum { TEXT_MAX = 64 * 1024 }; /* resolv_conf, hosts */

struct field {
	enum field_kind kind;
	size_t at;
	size_t max; /* bytes of a text, of each entry of a list */
};

#define SPEC(kind, name, max) \
	{ \
		kind, offsetof(struct sandbox_spec, name), max \
	}
#define RUN(kind, name, max) \
	{ \
		kind, offsetof(struct sandbox_run, name), max \
	}

static const struct field spec_fields[] = {
	SPEC(FIELD_U32, slot, 0),
	SPEC(FIELD_U32, generation, 0),
	SPEC(FIELD_U8, side, 0),
	SPEC(FIELD_U32, flags, 0),
	SPEC(FIELD_TEXT, cgroup, SANDBOX_MSG_NAME_MAX),
	SPEC(FIELD_TEXT, hostname, SANDBOX_MSG_NAME_MAX),
	SPEC(FIELD_U32, init_uid, 0),
	SPEC(FIELD_U32, uid, 0),
	SPEC(FIELD_U32, gid, 0),
	SPEC(FIELD_U64, memory_bytes, 0),
	SPEC(FIELD_U64, pids, 0),
	SPEC(FIELD_U64, cpu_milli, 0),
	SPEC(FIELD_U64, files, 0),
	SPEC(FIELD_U64, file_bytes, 0),
	SPEC(FIELD_U64, workspace_bytes, 0),
	SPEC(FIELD_U64, workspace_inodes, 0),
	SPEC(FIELD_U64, tmp_bytes, 0),
	SPEC(FIELD_U64, tmp_inodes, 0),
	SPEC(FIELD_U64, shm_bytes, 0),
	SPEC(FIELD_U64, teardown_ms, 0),
	SPEC(FIELD_TEXT, rootfs, SANDBOX_MSG_PATH_MAX),
	SPEC(FIELD_TEXT, assets, SANDBOX_MSG_NAME_MAX),
	SPEC(FIELD_LIST, read_only, SANDBOX_MSG_PATH_MAX),
	SPEC(FIELD_LIST, read_write, SANDBOX_MSG_PATH_MAX),
	SPEC(FIELD_TEXT, resolv_conf, TEXT_MAX),
	SPEC(FIELD_TEXT, hosts, TEXT_MAX),
	SPEC(FIELD_LIST, env, SANDBOX_MSG_RUN_MAX),
};
static const struct field run_fields[] = {
	RUN(FIELD_U32, flags, 0),
	RUN(FIELD_U64, timeout_ms, 0),
	RUN(FIELD_TEXT, cwd, SANDBOX_MSG_PATH_MAX),
	RUN(FIELD_LIST, argv, SANDBOX_MSG_RUN_MAX),
	RUN(FIELD_LIST, env, SANDBOX_MSG_RUN_MAX),
};

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

/* The magic tells the two apart, and from anything else. */
static const uint32_t SPEC_MAGIC = 0x43505331; /* "1SPC" */
static const uint32_t RUN_MAGIC = 0x4e555231; /* "1RUN" */

static int
put_list(struct buf *b, const struct sandbox_list *l, size_t max)
{
	size_t i;
	int rc;

	if (l->n > SANDBOX_MSG_LIST_MAX)
		return SP_E_LIMIT;
	rc = wire_put_u32(b, (uint32_t)l->n);
	for (i = 0; i < l->n && rc == 0; i++)
		rc = l->v[i].n > max ? SP_E_LIMIT : wire_put_bytes(b, l->v[i]);
	return rc;
}

static int
put_field(struct buf *b, const struct field *f, const char *base)
{
	const char *at = base + f->at;
	struct sandbox_list list;
	struct view text;
	uint64_t u64;
	uint32_t u32;

	switch (f->kind) {
	case FIELD_U8:
		return wire_put_u8(b, (uint8_t)*at);
	case FIELD_U32:
		memcpy(&u32, at, sizeof(u32));
		return wire_put_u32(b, u32);
	case FIELD_U64:
		memcpy(&u64, at, sizeof(u64));
		return wire_put_u64(b, u64);
	case FIELD_TEXT:
		memcpy(&text, at, sizeof(text));
		return text.n > f->max ? SP_E_LIMIT : wire_put_bytes(b, text);
	case FIELD_LIST:
		memcpy(&list, at, sizeof(list));
		return put_list(b, &list, f->max);
	}
	return SP_E_ARG;
}

static int
put(struct buf *b, uint32_t magic, const struct field *f, size_t n,
    const void *base)
{
	size_t i;
	int rc;

	rc = wire_put_u32(b, magic);
	for (i = 0; i < n && rc == 0; i++)
		rc = put_field(b, &f[i], base);
	return rc;
}

/* A text becomes a C string later: a NUL in it would cut it short. */
static int
get_text(struct wire *w, size_t max, struct view *out)
{
	*out = wire_bytes(w);
	if (out->n > max ||
	    (out->n > 0 && memchr(out->p, '\0', out->n) != NULL))
		return SP_E_PROTO;
	return 0;
}

static int
get_list(struct wire *w, struct arena *a, size_t max, struct sandbox_list *out)
{
	uint32_t n = wire_u32(w);
	size_t i;
	int rc = 0;

	memset(out, 0, sizeof(*out));
	/* each entry has a length of its own: more cannot be there */
	if (n > SANDBOX_MSG_LIST_MAX || n > w->n / 4)
		return SP_E_PROTO;
	if (n == 0)
		return 0;
	out->v = arena_zalloc(a, n * sizeof(out->v[0]));
	if (out->v == NULL)
		return SP_E_NOMEM;
	out->n = n;
	for (i = 0; i < n && rc == 0; i++)
		rc = get_text(w, max, &out->v[i]);
	return rc;
}

static int
get_field(struct wire *w, struct arena *a, const struct field *f, char *base)
{
	char *at = base + f->at;
	struct sandbox_list list;
	struct view text;
	uint64_t u64;
	uint32_t u32;
	int rc = 0;

	switch (f->kind) {
	case FIELD_U8:
		*(uint8_t *)at = wire_u8(w);
		break;
	case FIELD_U32:
		u32 = wire_u32(w);
		memcpy(at, &u32, sizeof(u32));
		break;
	case FIELD_U64:
		u64 = wire_u64(w);
		memcpy(at, &u64, sizeof(u64));
		break;
	case FIELD_TEXT:
		rc = get_text(w, f->max, &text);
		memcpy(at, &text, sizeof(text));
		break;
	case FIELD_LIST:
		rc = get_list(w, a, f->max, &list);
		memcpy(at, &list, sizeof(list));
		break;
	}
	return rc;
}

static int
get(struct view text, uint32_t magic, struct arena *a, const struct field *f,
    size_t n, void *base)
{
	struct wire w;
	size_t i;
	int rc;

	wire_init(&w, text);
	rc = wire_u32(&w) == magic ? 0 : SP_E_PROTO;
	for (i = 0; i < n && rc == 0; i++)
		rc = get_field(&w, a, &f[i], base);
	return rc != 0 ? rc : wire_done(&w);
}

static bool
all_absolute(const struct sandbox_list *l)
{
	size_t i;

	for (i = 0; i < l->n; i++)
		if (l->v[i].n == 0 || l->v[i].p[0] != '/')
			return false;
	return true;
}

/* NAME=VALUE, with a name. */
static bool
all_assignments(const struct sandbox_list *l)
{
	size_t i, at;

	for (i = 0; i < l->n; i++) {
		at = view_find(l->v[i], '=');
		if (at == 0 || at >= l->v[i].n)
			return false;
	}
	return true;
}

static bool
spec_is_sane(const struct sandbox_spec *s)
{
	if (s->side == 0 || s->side >= SANDBOX_SIDES)
		return false;
	if (s->cgroup.n == 0 || s->hostname.n == 0 ||
	    view_find(s->cgroup, '/') < s->cgroup.n || s->cgroup.p[0] == '.')
		return false;
	if (s->rootfs.n > 0 && s->rootfs.p[0] != '/')
		return false;
	if (s->assets.n > 0 &&
	    (s->assets.p[0] == '.' || view_find(s->assets, '/') < s->assets.n))
		return false;
	return all_absolute(&s->read_only) && all_absolute(&s->read_write) &&
	    all_assignments(&s->env);
}

int
sandbox_msg_spec_put(struct buf *b, const struct sandbox_spec *s)
{
	return put(b, SPEC_MAGIC, spec_fields, N_OF(spec_fields), s);
}

int
sandbox_msg_spec_get(struct view text, struct arena *a, struct sandbox_spec *s)
{
	int rc;

	memset(s, 0, sizeof(*s));
	if (text.n > SANDBOX_MSG_SPEC_MAX)
		return SP_E_PROTO;
	rc = get(text, SPEC_MAGIC, a, spec_fields, N_OF(spec_fields), s);
	if (rc == 0 && !spec_is_sane(s))
		rc = SP_E_PROTO;
	return rc;
}

int
sandbox_msg_run_put(struct buf *b, const struct sandbox_run *r)
{
	return put(b, RUN_MAGIC, run_fields, N_OF(run_fields), r);
}

int
sandbox_msg_run_get(struct view text, struct arena *a, struct sandbox_run *r)
{
	const uint32_t known = SANDBOX_RUN_STDIN |
	    SANDBOX_RUN_STDERR_TO_STDOUT | SANDBOX_RUN_EVENT_FD |
	    SANDBOX_RUN_PROBE;
	int rc;

	memset(r, 0, sizeof(*r));
	if (text.n > SANDBOX_MSG_RUN_MAX)
		return SP_E_PROTO;
	rc = get(text, RUN_MAGIC, a, run_fields, N_OF(run_fields), r);
	if (rc != 0)
		return rc;
	if ((r->flags & ~known) != 0 || r->argv.n == 0 || r->argv.v[0].n == 0 ||
	    !all_assignments(&r->env) || (r->cwd.n > 0 && r->cwd.p[0] != '/'))
		return SP_E_PROTO;
	return 0;
}

const char *
sandbox_msg_stage(unsigned stage)
{
	static const char *const names[SANDBOX_STAGES] = {
		[SANDBOX_STAGE_SPEC] = "spec",
		[SANDBOX_STAGE_CGROUP] = "cgroup",
		[SANDBOX_STAGE_LIMITS] = "limits",
		[SANDBOX_STAGE_NAMESPACES] = "namespaces",
		[SANDBOX_STAGE_IDMAP] = "idmap",
		[SANDBOX_STAGE_NETWORK] = "network",
		[SANDBOX_STAGE_WORKSPACE] = "workspace",
		[SANDBOX_STAGE_ROOT] = "root",
		[SANDBOX_STAGE_DEV] = "dev",
		[SANDBOX_STAGE_PROC] = "proc",
		[SANDBOX_STAGE_PIVOT] = "pivot_root",
		[SANDBOX_STAGE_INIT] = "init",
		[SANDBOX_STAGE_ENTER] = "enter",
		[SANDBOX_STAGE_STDIO] = "stdio",
		[SANDBOX_STAGE_CREDENTIALS] = "credentials",
		[SANDBOX_STAGE_LANDLOCK] = "landlock",
		[SANDBOX_STAGE_SECCOMP] = "seccomp",
		[SANDBOX_STAGE_EXEC] = "exec",
		[SANDBOX_STAGE_CHECK] = "check",
	};

	if (stage == 0 || stage >= SANDBOX_STAGES)
		return "?";
	return names[stage];
}

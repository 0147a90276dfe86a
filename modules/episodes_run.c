/* What is to be run or made, read from JSON. */
#include "config.h"

#include "episodes_call.h"
#include "json/jscan.h"

enum {
	OUTPUT_DEFAULT = 1024 * 1024,
	OUTPUT_MAX = 64 * 1024 * 1024,
};
static const int64_t TIMEOUT_MAX_MS = (int64_t)30 * 24 * 3600 * 1000;

struct reader {
	struct arena *a;
	struct episodes_run *out;
	struct jscan s;
	struct buf text; /* one decoded string */
	const char *why;
};

static int
refuse(struct reader *r, const char *why)
{
	r->why = why;
	return SP_E_SYNTAX;
}

/* ---- values --------------------------------------------------------------- */

/* A string without a NUL, which no argument can have: into r->text. */
static int
read_text(struct reader *r, const struct jscan_span *v)
{
	struct view t;
	int rc;

	if (v->kind != JSCAN_STRING)
		return refuse(r,
		    "argv, env, cwd and the other words are "
		    "strings");
	rc = jscan_decode(&r->s, v, &r->text, NULL);
	if (rc == SP_E_LIMIT)
		return refuse(r, "a string of what is to be run is too long");
	t = buf_view(&r->text);
	if (rc == SP_OK && t.p != NULL && memchr(t.p, 0, t.n) != NULL)
		return refuse(r,
		    "no string of what is to be run may hold a "
		    "NUL");
	return rc;
}

static int
read_string(struct reader *r, struct view *out)
{
	struct jscan_span v;
	int rc;

	buf_reset(&r->text, 0);
	rc = jscan_skip(&r->s, &v);
	if (rc == SP_OK)
		rc = read_text(r, &v);
	return rc == SP_OK ? arena_dup(r->a, buf_view(&r->text), out) : rc;
}

static int
read_number(struct reader *r, int64_t max, uint64_t *out)
{
	struct jscan_span v;
	int64_t n = 0;
	int rc = jscan_skip(&r->s, &v);

	if (rc == SP_OK &&
	    (v.kind != JSCAN_NUMBER || jscan_i64(&r->s, &v, &n) != SP_OK ||
		n < 0 || n > max))
		return refuse(r,
		    "timeout_ms and limit are whole numbers: "
		    "at most 30 days, and 64 MiB");
	*out = (uint64_t)n;
	return rc;
}

/* Members or elements of the container at the cursor. */
static size_t
count(const struct reader *r, bool object)
{
	struct jscan s = r->s;
	struct jscan_span key;
	size_t n = 0;

	if (jscan_enter(&s) != SP_OK)
		return 0;
	while ((object ? jscan_member(&s, &key) : jscan_element(&s)) == 1 &&
	    jscan_skip(&s, NULL) == SP_OK)
		n++;
	return n;
}

static int
list_new(struct reader *r, bool object, struct sandbox_list *out)
{
	size_t n = count(r, object);

	if (n > SANDBOX_MSG_LIST_MAX)
		return refuse(r, "argv and env have at most 4096 entries");
	out->n = 0;
	out->v = arena_zalloc(r->a, (n + 1) * sizeof(out->v[0]));
	return out->v != NULL ? SP_OK : SP_E_NOMEM;
}

static int
read_argv(struct reader *r)
{
	struct sandbox_list *l = &r->out->run.argv;
	int rc, more;

	if (jscan_peek(&r->s) != JSCAN_ARRAY)
		return refuse(r, "argv is an array of strings");
	rc = list_new(r, false, l);
	if (rc == SP_OK)
		rc = jscan_enter(&r->s);
	while (rc == SP_OK && (more = jscan_element(&r->s)) != 0) {
		rc = more < 0 ? more : read_string(r, &l->v[l->n]);
		l->n++;
	}
	return rc;
}

/* "NAME": "VALUE" becomes NAME=VALUE. */
static int
read_assignment(struct reader *r, const struct jscan_span *key,
    struct view *out)
{
	struct view name;
	struct jscan_span v;
	int rc;

	buf_reset(&r->text, 0);
	rc = read_text(r, key);
	name = buf_view(&r->text);
	if (rc == SP_OK && (name.n == 0 || view_find(name, '=') < name.n))
		return refuse(r,
		    "a name in env is neither empty nor holds a "
		    "\"=\"");
	if (rc == SP_OK)
		rc = buf_add_char(&r->text, '=');
	if (rc == SP_OK)
		rc = jscan_skip(&r->s, &v);
	if (rc == SP_OK)
		rc = read_text(r, &v);
	return rc == SP_OK ? arena_dup(r->a, buf_view(&r->text), out) : rc;
}

static int
read_env(struct reader *r)
{
	struct sandbox_list *l = &r->out->run.env;
	struct jscan_span key;
	int rc, more;

	if (jscan_peek(&r->s) != JSCAN_OBJECT)
		return refuse(r, "env is an object of strings");
	rc = list_new(r, true, l);
	if (rc == SP_OK)
		rc = jscan_enter(&r->s);
	while (rc == SP_OK && (more = jscan_member(&r->s, &key)) != 0) {
		rc = more < 0 ? more : read_assignment(r, &key, &l->v[l->n]);
		l->n++;
	}
	return rc;
}

static int
read_cwd(struct reader *r)
{
	int rc = read_string(r, &r->out->run.cwd);

	if (rc == SP_OK && r->out->run.cwd.n > 0 && r->out->run.cwd.p[0] != '/')
		return refuse(r, "cwd is an absolute path");
	return rc;
}

static int
read_side(struct reader *r)
{
	struct view side = VIEW_NONE;
	int rc = read_string(r, &side);

	if (rc != SP_OK)
		return rc;
	if (view_eq(side, VIEW("agent")))
		r->out->side = SANDBOX_AGENT;
	else if (view_eq(side, VIEW("worker")))
		r->out->side = SANDBOX_WORKER;
	else
		return refuse(r, "side is \"agent\" or \"worker\"");
	return SP_OK;
}

static int
read_timeout(struct reader *r)
{
	return read_number(r, TIMEOUT_MAX_MS, &r->out->run.timeout_ms);
}

static int
read_limit(struct reader *r)
{
	return read_number(r, OUTPUT_MAX, &r->out->limit);
}

static int
read_stdin(struct reader *r)
{
	struct jscan_span v;
	int rc;

	buf_reset(&r->text, 0);
	rc = jscan_skip(&r->s, &v);
	if (rc == SP_OK && v.kind != JSCAN_STRING)
		return refuse(r, "stdin is a text");
	/* a NUL may stand in this one */
	if (rc == SP_OK)
		rc = jscan_decode(&r->s, &v, &r->text, NULL);
	if (rc == SP_E_LIMIT)
		return refuse(r, "stdin is too long: use the framed form");
	return rc == SP_OK
	    ? arena_dup(r->a, buf_view(&r->text), &r->out->stdin_text)
	    : rc;
}

static int
read_environment(struct reader *r)
{
	return read_string(r, &r->out->environment);
}

/* ---- the object ----------------------------------------------------------- */

static const struct {
	const char *name;
	int (*read)(struct reader *r);
} members[] = {
	{ "argv", read_argv },
	{ "env", read_env },
	{ "cwd", read_cwd },
	{ "side", read_side },
	{ "timeout_ms", read_timeout },
	{ "limit", read_limit },
	{ "stdin", read_stdin },
	{ "environment", read_environment },
};
enum { MEMBERS_N = sizeof(members) / sizeof(members[0]) };

static int
read_member(struct reader *r, const struct jscan_span *key, unsigned *seen)
{
	size_t i;

	for (i = 0; i < MEMBERS_N; i++)
		if (jscan_is(&r->s, key, view_str(members[i].name)))
			break;
	if (i == MEMBERS_N)
		return refuse(r,
		    "unknown member; expected argv, env, cwd, "
		    "side, timeout_ms, limit, stdin or "
		    "environment");
	if ((*seen & 1u << i) != 0)
		return refuse(r, "a member stands there twice");
	*seen |= 1u << i;
	return members[i].read(r);
}

static int
check(struct reader *r, bool fresh)
{
	const struct episodes_run *o = r->out;

	if (o->run.argv.n == 0 || o->run.argv.v[0].n == 0)
		return refuse(r,
		    "argv is missing: expected the program and "
		    "its arguments");
	if (fresh && o->environment.n == 0)
		return refuse(r,
		    "a fresh episode is made of an "
		    "\"environment\"");
	if (!fresh && o->environment.p != NULL)
		return refuse(r,
		    "the episode is there: \"environment\" is for "
		    "a fresh one");
	return SP_OK;
}

int
episodes_run_read(struct view text, bool fresh, struct arena *a,
    struct episodes_run *out, const char **why)
{
	struct reader r = { .a = a,
		.out = out,
		.text = BUF_INIT(EPISODES_RUN_MAX),
		.why = "expected a JSON object with argv" };
	struct jscan_span key;
	unsigned seen = 0;
	int rc = SP_E_SYNTAX, more;

	memset(out, 0, sizeof(*out));
	out->side = SANDBOX_AGENT;
	out->limit = OUTPUT_DEFAULT;
	jscan_init(&r.s, text, 0);
	if (jscan_peek(&r.s) == JSCAN_OBJECT)
		rc = jscan_enter(&r.s);
	while (rc == SP_OK && (more = jscan_member(&r.s, &key)) != 0)
		rc = more < 0 ? more : read_member(&r, &key, &seen);
	if (rc == SP_OK)
		rc = jscan_finish(&r.s);
	if (rc == SP_OK)
		rc = check(&r, fresh);
	if (rc == SP_E_LIMIT)
		rc = SP_E_SYNTAX; /* nested too deep */
	*why = r.why;
	buf_clear(&r.text);
	return rc;
}

int
episodes_run_create(struct view text, struct buf *environment, struct buf *id,
    const char **why)
{
	struct jscan_span key, v;
	struct buf *to;
	struct jscan s;
	int rc = SP_E_SYNTAX, more;

	*why = "expected {\"environment\": NAME} and perhaps an \"id\"";
	jscan_init(&s, text, 0);
	if (jscan_peek(&s) == JSCAN_OBJECT)
		rc = jscan_enter(&s);
	while (rc == SP_OK && (more = jscan_member(&s, &key)) != 0) {
		to = jscan_is(&s, &key, VIEW("environment")) ? environment
		    : jscan_is(&s, &key, VIEW("id"))         ? id
							     : NULL;
		rc = more < 0 || to == NULL || buf_len(to) > 0 ? SP_E_SYNTAX
							       : SP_OK;
		if (rc == SP_OK)
			rc = jscan_skip(&s, &v);
		if (rc == SP_OK)
			rc = jscan_decode(&s, &v, to, NULL);
	}
	if (rc == SP_OK)
		rc = jscan_finish(&s);
	if (rc == SP_E_LIMIT || (rc == SP_OK && buf_len(environment) == 0))
		rc = SP_E_SYNTAX; /* no name is as long, or empty */
	return rc;
}

int
episodes_run_grade(struct view text, struct buf *process, const char **why)
{
	struct jscan_span key, v;
	bool seen = false;
	struct jscan s;
	int rc = SP_E_SYNTAX, more;

	*why = "expected {\"process\": NAME}, or {} for the asset \"oracle\"";
	if (text.n == 0)
		return SP_OK;
	jscan_init(&s, text, 0);
	if (jscan_peek(&s) == JSCAN_OBJECT)
		rc = jscan_enter(&s);
	while (rc == SP_OK && (more = jscan_member(&s, &key)) != 0) {
		rc = more < 0 || seen || !jscan_is(&s, &key, VIEW("process"))
		    ? SP_E_SYNTAX
		    : jscan_skip(&s, &v);
		if (rc == SP_OK)
			rc = v.kind == JSCAN_STRING
			    ? jscan_decode(&s, &v, process, NULL)
			    : SP_E_SYNTAX;
		seen = true;
	}
	if (rc == SP_OK)
		rc = jscan_finish(&s);
	return rc == SP_E_LIMIT ? SP_E_SYNTAX : rc;
}

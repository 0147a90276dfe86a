#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "ctl/ctl_env.h"
#include "ctl/ctl_http.h"
#include "ctl/ctl_record.h"
#include "ctl/ctl_socket.h"
#include "ctl/ctl_text.h"
#include "json/jwrite.h"

enum {
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	ANSWER_MAX = 256 * 1024 * 1024,
	SHOWN_MAX = 160, /* bytes of an answer */
	REST_MAX = 4096,
	TAIL_MAX = 1536, /* bytes of a failed worker's standard error */
};

const char ctl_env_usage[] =
    "       sallyportctl env check [--json] [--step JSON] ENVIRONMENT\n";

/* One environment under test. */
struct check {
	const char *name; /* of it */
	const char *step; /* the action, JSON */
	bool json; /* lines of it, instead of text */
	const char *what; /* of the line that has begun */
	struct buf id; /* of the episode, NUL-terminated */
	struct buf out; /* the last answer */
	unsigned status; /* of it; 0: nothing answered */
	uint64_t began_us;
	unsigned failed;
	bool lost; /* nothing answers any more */
};

/* ---- lines ------------------------------------------------------------------ */

static void
begin_line(struct check *c, const char *what)
{
	c->what = what;
	if (!c->json)
		(void)printf("  %-9s", what);
	(void)fflush(stdout);
	c->began_us = clock_us();
}

static void
json_begin(const struct check *c, struct jwrite *w, struct buf *b)
{
	jwrite_init(w, b);
	jwrite_object(w);
	jwrite_key(w, "environment");
	jwrite_cstr(w, c->name);
}

static void
json_end(struct jwrite *w, struct buf *b)
{
	jwrite_end_object(w);
	if (jwrite_finish(w) == SP_OK && buf_add_char(b, '\n') == SP_OK)
		(void)!fwrite(buf_view(b).p, 1, buf_len(b), stdout);
	buf_clear(b);
}

static void
json_line(const struct check *c, const char *how, unsigned ms,
    struct view detail)
{
	struct buf b = BUF_INIT(ANSWER_MAX);
	struct jwrite w;

	json_begin(c, &w, &b);
	jwrite_key(&w, "step");
	jwrite_cstr(&w, c->what);
	jwrite_key(&w, "outcome");
	jwrite_cstr(&w, how);
	jwrite_key(&w, "ms");
	jwrite_u64(&w, ms);
	jwrite_key(&w, "detail");
	jwrite_string(&w, detail);
	json_end(&w, &b);
}

static void
end_line(struct check *c, const char *how, struct view detail)
{
	unsigned ms = (unsigned)((clock_us() - c->began_us + 500) / 1000);

	while (view_ends(detail, VIEW("\n")))
		detail.n--;
	if (c->json) {
		json_line(c, how, ms, detail);
	} else {
		(void)printf("%-7s%6u ms  ", how, ms);
		ctl_text_print(stdout, view_sub(detail, 0, SHOWN_MAX), NULL);
		(void)printf("%s\n", detail.n > SHOWN_MAX ? "..." : "");
	}
	(void)fflush(stdout);
}

static void
fail_line(struct check *c, struct view text)
{
	c->failed++;
	if (c->json) {
		end_line(c, "failed", text);
		return;
	}
	end_line(c, "FAILED", VIEW_NONE);
	(void)printf("            ");
	ctl_text_print(stdout, text, NULL);
	(void)putchar('\n');
}

/* The daemon's own words, or why there are none. */
static void
say_failed(struct check *c)
{
	struct buf text = BUF_INIT(ANSWER_MAX);
	struct view v = ctl_record_get(buf_view(&c->out), VIEW("error"));

	if (ctl_record_string(ctl_record_get(v, VIEW("message")), &text) != 0)
		(void)!buf_add_view(&text, buf_view(&c->out));
	fail_line(c, buf_view(&text));
	buf_clear(&text);
}

/* ---- requests --------------------------------------------------------------- */

/* True: a status of 2xx, with the body in c->out. */
static bool
request(struct check *c, const char *method, const char *what, struct view body)
{
	struct buf rest = BUF_INIT(REST_MAX);
	struct ctl_http_params p = { .url = ctl_socket_url(),
		.location = "/episodes",
		.method = method,
		.body = body,
		.patient = true };
	const char *why = "expected an absolute path of the control socket";
	int rc;

	buf_reset(&c->out, 0);
	c->status = 0;
	rc = buf_len(&c->id) > 0
	    ? buf_printf(&rest, "/%s%s", buf_view(&c->id).p, what)
	    : SP_OK;
	if (rc == SP_OK)
		rc = buf_add_char(&rest, '\0');
	p.rest = buf_view(&rest).p;
	if (rc == SP_OK && p.url == NULL)
		rc = SP_E_ARG;
	if (rc == SP_OK)
		rc = ctl_http_ask(&p, &c->out, &c->status, &why);
	buf_clear(&rest);
	if (rc != SP_OK) {
		c->lost = true;
		buf_reset(&c->out, 0);
		(void)!buf_printf(&c->out, "%s: %s: %s",
		    p.url != NULL ? p.url : "the control socket", why,
		    err_str(rc));
		c->status = 0;
	}
	return c->status >= 200 && c->status < 300;
}

/* Asks the worker; what it answered is *result. */
static bool
ask_worker(struct check *c, const char *op, const char *data,
    struct view *result)
{
	struct buf b = BUF_INIT(ANSWER_MAX);
	struct jwrite w;
	bool good = false;

	*result = VIEW_NONE;
	jwrite_init(&w, &b);
	jwrite_object(&w);
	jwrite_key(&w, "op");
	jwrite_cstr(&w, op);
	if (data != NULL) {
		jwrite_key(&w, "data");
		jwrite_span(&w, view_str(data));
	}
	jwrite_end_object(&w);
	if (jwrite_finish(&w) == SP_OK)
		good = request(c, "POST", "/worker", buf_view(&b));
	buf_clear(&b);
	if (good)
		*result = ctl_record_get(buf_view(&c->out), VIEW("result"));
	return good;
}

/* Its last lines, whole ones. */
static struct view
tail_of(struct view v)
{
	while (view_ends(v, VIEW("\n")))
		v.n--;
	if (v.n > TAIL_MAX) {
		v = view_from(v, v.n - TAIL_MAX);
		v = view_from(v, view_find(v, '\n') + 1);
	}
	return v;
}

static void
print_tail(const char *whose, struct view rest)
{
	struct view line;

	(void)printf("            the %s%s\n", whose,
	    rest.n > 0 ? ":" : " is empty");
	while (rest.n > 0 && view_split(&rest, '\n', &line)) {
		(void)printf("            | ");
		ctl_text_print(stdout, line, NULL);
		(void)putchar('\n');
	}
}

static void
say_tail(const struct check *c, struct view rest)
{
	struct buf b = BUF_INIT(ANSWER_MAX);
	struct jwrite w;

	if (!c->json) {
		print_tail("worker's standard error", rest);
		return;
	}
	json_begin(c, &w, &b);
	jwrite_key(&w, "stderr");
	jwrite_string(&w, rest);
	json_end(&w, &b);
}

/* One that lives has refused, which is no matter of its standard error. */
static void
say_worker_failed(struct check *c)
{
	struct buf text = BUF_INIT(ANSWER_MAX);

	say_failed(c);
	if (c->lost || !request(c, "GET", "/worker", VIEW_NONE) ||
	    !view_eq(ctl_record_get(buf_view(&c->out), VIEW("state")),
		VIEW("\"failed\"")) ||
	    ctl_record_string(ctl_record_get(buf_view(&c->out), VIEW("stderr")),
		&text) != 0) {
		buf_clear(&text);
		return;
	}
	say_tail(c, tail_of(buf_view(&text)));
	buf_clear(&text);
}

/* The machine-readable word of an error. */
static bool
is_code(const struct check *c, struct view code)
{
	struct view v = ctl_record_get(buf_view(&c->out), VIEW("error"));

	v = ctl_record_get(v, VIEW("code"));
	return v.n == code.n + 2 && view_eq(view_sub(v, 1, code.n), code);
}

/* ---- steps ------------------------------------------------------------------ */

static bool
create(struct check *c, const char *name)
{
	struct buf b = BUF_INIT(REST_MAX);
	struct jwrite w;
	bool good = false;

	begin_line(c, "sandbox");
	jwrite_init(&w, &b);
	jwrite_object(&w);
	jwrite_key(&w, "environment");
	jwrite_cstr(&w, name);
	jwrite_end_object(&w);
	if (jwrite_finish(&w) == SP_OK)
		good = request(c, "POST", "", buf_view(&b)) &&
		    ctl_record_string(ctl_record_get(buf_view(&c->out),
					  VIEW("id")),
			&c->id) == 0;
	if (good) {
		end_line(c, "ok", buf_view(&c->id));
		good = buf_add_char(&c->id, '\0') == SP_OK;
	} else {
		say_failed(c);
	}
	buf_clear(&b);
	return good;
}

static const char *
kind_of(struct view v)
{
	switch (v.n > 0 ? v.p[0] : 0) {
	case 0:
		return "missing";
	case '{':
		return "an object";
	case '[':
		return "a list";
	case '"':
		return "a text";
	case 't':
	case 'f':
		return "a boolean";
	case 'n':
		return "null";
	default:
		return "a number";
	}
}

/*
 * What clients of OpenEnv make a result of: sallyport.conf(5), WORKERS.  Its
 * reward may be a boolean, too.
 */
static int
put_wrong(struct view result, struct buf *out)
{
	static const struct {
		const char *name, *kinds, *expected;
	} rows[] = {
		{ "observation", "{", "an object" },
		{ "reward", "-0123456789ntf", "a number or null" },
		{ "done", "tf", "true or false" },
	};
	size_t i;
	int rc = SP_OK;

	if (result.n == 0 || result.p[0] != '{')
		return buf_printf(out,
		    "the result is %s; expected an object with observation, "
		    "reward and done",
		    kind_of(result));
	for (i = 0; i < sizeof(rows) / sizeof(*rows) && rc == SP_OK; i++) {
		struct view v = ctl_record_get(result, view_str(rows[i].name));

		if (v.n == 0 || strchr(rows[i].kinds, v.p[0]) == NULL)
			rc = buf_printf(out, "%s%s is %s; expected %s",
			    buf_len(out) > 0 ? ". " : "", rows[i].name,
			    kind_of(v), rows[i].expected);
	}
	return rc;
}

/* A result of reset or step, and the answer to it when something is wrong. */
static void
say_result(struct check *c, struct view result)
{
	struct buf wrong = BUF_INIT(REST_MAX);

	if (put_wrong(result, &wrong) != SP_OK || buf_len(&wrong) == 0) {
		end_line(c, "ok", result);
	} else {
		fail_line(c, buf_view(&wrong));
		if (!c->json)
			print_tail("worker's answer",
			    view_sub(result, 0, TAIL_MAX));
	}
	buf_clear(&wrong);
}

static void
ask_state(struct check *c)
{
	struct buf wrong = BUF_INIT(REST_MAX);
	struct view v;

	begin_line(c, "state");
	if (!ask_worker(c, "state", NULL, &v)) {
		say_worker_failed(c);
	} else if (v.n > 0 && v.p[0] == '{') {
		end_line(c, "ok", v);
	} else {
		(void)!buf_printf(&wrong,
		    "the result is %s; expected an object", kind_of(v));
		fail_line(c, buf_view(&wrong));
	}
	buf_clear(&wrong);
}

/* Names of the tools in a JSON-RPC answer. */
static int
put_tools(struct view rpc, struct buf *out)
{
	struct view tools =
	    ctl_record_get(ctl_record_get(rpc, VIEW("result")), VIEW("tools"));
	struct jscan_span v;
	struct jscan s;
	int rc = buf_printf(out, "%zu:", ctl_record_count(tools)), more;

	jscan_init(&s, tools, 0);
	if (rc != SP_OK || jscan_peek(&s) != JSCAN_ARRAY)
		return rc != SP_OK ? rc : SP_E_SYNTAX;
	rc = jscan_enter(&s);
	while (rc == SP_OK && (more = jscan_element(&s)) != 0) {
		rc = more < 0 ? more : jscan_skip(&s, &v);
		if (rc == SP_OK)
			rc = buf_add_char(out, ' ');
		if (rc == SP_OK)
			rc = ctl_record_string(ctl_record_get(jscan_raw(&s, &v),
						   VIEW("name")),
			    out);
	}
	return rc;
}

static void
list_tools(struct check *c)
{
	struct buf text = BUF_INIT(ANSWER_MAX);
	struct view v;

	begin_line(c, "tools");
	if (!ask_worker(c, "mcp",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}", &v))
		say_failed(c);
	else if (put_tools(v, &text) == SP_OK)
		end_line(c, "ok", buf_view(&text));
	else
		end_line(c, "none", v); /* an environment may have none */
	buf_clear(&text);
}

/* An environment may well refuse an action that means nothing to it. */
static void
take_step(struct check *c)
{
	struct view v;

	begin_line(c, "step");
	if (ask_worker(c, "step",
		c->step != NULL ? c->step : "{\"type\":\"list_tools\"}", &v))
		say_result(c, v);
	else if (c->step == NULL && is_code(c, VIEW("worker_error")))
		end_line(c, "refused",
		    VIEW("{\"type\":\"list_tools\"}; --step names an action"));
	else
		say_failed(c);
}

/* Its line is cut: what it wrote, or the end of that. */
static void
print_wrote(const struct check *c, const char *name, const char *whose)
{
	struct view all = buf_view(&c->out);
	struct buf text = BUF_INIT(ANSWER_MAX);

	if (ctl_record_string(ctl_record_get(all, view_str(name)), &text) ==
		SP_OK &&
	    buf_len(&text) > 0)
		print_tail(whose, tail_of(buf_view(&text)));
	buf_clear(&text);
}

static void
run_oracle(struct check *c)
{
	begin_line(c, "oracle");
	if (request(c, "POST", "/grade", VIEW("{}"))) {
		end_line(c, "ok", buf_view(&c->out));
		if (!c->json && buf_len(&c->out) > SHOWN_MAX) {
			print_wrote(c, "stdout", "oracle's standard output");
			print_wrote(c, "stderr", "oracle's standard error");
		}
	} else if (c->status == 404) {
		end_line(c, "none", VIEW_NONE);
	} else {
		say_failed(c);
	}
}

static void
reset_sandbox(struct check *c)
{
	begin_line(c, "renew");
	if (request(c, "POST", "/reset", VIEW_NONE))
		end_line(c, "ok", VIEW("another sandbox"));
	else
		say_failed(c);
}

/* After a reset nothing is left; what the reset itself makes is told. */
static void
look(struct check *c)
{
	struct view v;
	size_t n = 0, at;

	begin_line(c, "changes");
	if (!request(c, "GET", "/diff", VIEW_NONE)) {
		if (is_code(c, VIEW("no_layers")))
			end_line(c, "refused",
			    VIEW("not had with enforcement local"));
		else
			say_failed(c);
		return;
	}
	for (v = buf_view(&c->out); v.n > 0; v = view_from(v, at + 1), n++)
		at = view_find(v, '\n');
	end_line(c, n == 0 ? "none" : "some",
	    view_sub(buf_view(&c->out), 0, view_find(buf_view(&c->out), '\n')));
}

static void
end_episode(struct check *c)
{
	begin_line(c, "end");
	if (request(c, "DELETE", "", VIEW_NONE))
		end_line(c, "ok", VIEW("nothing is left"));
	else
		say_failed(c);
}

static void
try_worker(struct check *c)
{
	struct view v;

	begin_line(c, "reset");
	if (!ask_worker(c, "reset", "{}", &v)) {
		if (is_code(c, VIEW("no_worker")))
			end_line(c, "none",
			    VIEW("the environment has no worker"));
		else
			say_worker_failed(c);
		return;
	}
	say_result(c, v);
	list_tools(c);
	ask_state(c);
	take_step(c);
}

static void
say_all(const struct check *c)
{
	struct buf b = BUF_INIT(ANSWER_MAX);
	struct jwrite w;

	if (c->json) {
		json_begin(c, &w, &b);
		jwrite_key(&w, "failed");
		jwrite_u64(&w, c->failed);
		json_end(&w, &b);
	} else if (c->failed == 0) {
		(void)printf("it works\n");
	} else {
		(void)printf("%u of these failed\n", c->failed);
	}
}

static int
check(struct check *c)
{
	buf_init(&c->id, REST_MAX);
	buf_init(&c->out, ANSWER_MAX);
	if (!c->json)
		(void)printf("environment %s\n", c->name);
	if (create(c, c->name)) {
		try_worker(c);
		if (!c->lost)
			run_oracle(c);
		if (!c->lost)
			reset_sandbox(c);
		if (!c->lost)
			look(c);
		end_episode(c);
	}
	say_all(c);
	buf_clear(&c->id);
	buf_clear(&c->out);
	return c->failed == 0 ? 0 : EXIT_FAILED;
}

int
ctl_env(int argc, char **argv)
{
	struct check c = { .json = false };
	int i;

	for (i = 2; i < argc && argv[i][0] == '-'; i++) {
		if (strcmp(argv[i], "--json") == 0)
			c.json = true;
		else if (strcmp(argv[i], "--step") == 0 && i + 1 < argc)
			c.step = argv[++i];
		else
			break;
	}
	if (argc < 3 || strcmp(argv[1], "check") != 0 || i != argc - 1) {
		(void)fprintf(stderr, "usage:\n%s", ctl_env_usage);
		return EXIT_USAGE;
	}
	if (c.step != NULL && jscan_valid(view_str(c.step), 0) != SP_OK) {
		(void)fprintf(stderr, "sallyportctl: --step is no JSON\n");
		return EXIT_USAGE;
	}
	c.name = argv[i];
	return check(&c);
}

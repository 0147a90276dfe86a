#include "config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/b64.h"
#include "base/num.h"
#include "ctl/ctl_episodes.h"
#include "ctl/ctl_http.h"
#include "ctl/ctl_record.h"
#include "ctl/ctl_socket.h"
#include "ctl/ctl_text.h"
#include "json/jwrite.h"
#include "os/fd.h"

enum {
	EXIT_REFUSED = 1,
	EXIT_USAGE = 2,
	EXIT_NO_VERDICT = 125, /* as env(1) and timeout(1) */
	BODY_MAX = 1024 * 1024 * 1024,
	REST_MAX = 64 * 1024,
	LINE_MAX_BYTES = 256 * 1024 * 1024,
	IDS_WIDTH = 24,
};

const char ctl_episodes_usage[] =
    "       sallyportctl episodes [--json] [list]\n"
    "       sallyportctl episodes create ENVIRONMENT [ID]\n"
    "       sallyportctl reset | freeze | thaw | end ID\n"
    "       sallyportctl diff [--json] [--frozen] ID\n"
    "       sallyportctl grade [--json] ID [PROCESS]\n"
    "       sallyportctl read ID PATH\n"
    "       sallyportctl put ID PATH < FILE\n"
    "       sallyportctl events ID\n"
    "       sallyportctl logs [--json] ID [-f]\n"
    "       sallyportctl worker ID [reset | step | state | mcp [JSON]]\n";

/* What was given, and what belongs there. */
static int
usage(int argc, char **argv, const char *expected)
{
	int i;

	(void)fprintf(stderr, "sallyportctl: %s: expected %s, got", argv[0],
	    expected);
	for (i = 1; i < argc; i++)
		(void)fprintf(stderr, " \"%s\"", argv[i]);
	(void)fprintf(stderr, "%s\nusage:\n%s", argc < 2 ? " nothing" : "",
	    ctl_episodes_usage);
	return EXIT_USAGE;
}

/* The code of an error whose cause its standard error may tell. */
static bool
is_workers(struct view code)
{
	return view_eq(code, VIEW("\"worker_error\"")) ||
	    view_eq(code, VIEW("\"worker_gone\"")) ||
	    view_eq(code, VIEW("\"worker_timeout\""));
}

void
ctl_episodes_complain(unsigned status, struct view body)
{
	struct buf text = BUF_INIT(1024 * 1024);
	struct view v = ctl_record_get(body, VIEW("error"));

	(void)fprintf(stderr, "sallyportctl: refused with status %u: ", status);
	if (ctl_record_string(ctl_record_get(v, VIEW("message")), &text) == 0)
		ctl_text_print(stderr, buf_view(&text), NULL);
	(void)fputc('\n', stderr);
	if (is_workers(ctl_record_get(v, VIEW("code"))))
		(void)fprintf(stderr,
		    "sallyportctl: what the worker wrote of "
		    "it: see sallyportctl logs ID\n");
	buf_clear(&text);
}

static int
unreachable(const char *url, const char *why, int rc)
{
	(void)fprintf(stderr, "sallyportctl: %s: %s: %s\n",
	    url != NULL ? url : "the control socket", why, err_str(rc));
	return EXIT_USAGE;
}

/* ---- one request ---------------------------------------------------------- */

/* The head of a good answer is there: 0; else the exit status, said why. */
static int
begin(struct ctl_http_params *p, struct ctl_http *h)
{
	struct buf out = BUF_INIT(1024 * 1024);
	const char *why = "expected an absolute path";
	unsigned status = 0;
	int rc = SP_E_ARG;

	p->url = ctl_socket_url();
	p->location = "/episodes";
	memset(h, 0, sizeof(*h));
	h->fd = -1;
	if (p->url != NULL)
		rc = ctl_http_open(p, h, &why);
	if (rc == 0)
		rc = ctl_http_head(h, &status);
	if (rc != 0)
		return unreachable(p->url, why, rc);
	if (status >= 200 && status < 300)
		return 0;
	rc = ctl_http_rest(h, &out);
	ctl_episodes_complain(status, rc == 0 ? buf_view(&out) : VIEW_NONE);
	buf_clear(&out);
	return EXIT_REFUSED;
}

static int
broken(int rc)
{
	return unreachable(ctl_socket_url(), "the answer broke off", rc);
}

/* All of a good answer. */
static int
ask(struct ctl_http_params *p, struct buf *out)
{
	struct ctl_http h;
	int status = begin(p, &h), rc;

	if (status == 0) {
		rc = ctl_http_rest(&h, out);
		status = rc == 0 ? 0 : broken(rc);
	}
	ctl_http_close(&h);
	return status;
}

/* RFC 3986 s2.3: what is not unreserved is escaped. */
static int
put_escaped(struct buf *b, const char *s)
{
	int rc = SP_OK;

	for (; *s != '\0' && rc == SP_OK; s++) {
		unsigned char c = (unsigned char)*s;

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		    (c >= '0' && c <= '9') || (c != '\0' && strchr("-._~", c)))
			rc = buf_add_char(b, (char)c);
		else
			rc = buf_printf(b, "%%%02X", c);
	}
	return rc;
}

/* "/ID" and what follows, with a path in the query. */
static int
put_rest(struct buf *b, const char *id, const char *what, const char *path)
{
	int rc = buf_add_char(b, '/');

	if (rc == SP_OK)
		rc = put_escaped(b, id);
	if (rc == SP_OK)
		rc = buf_add_str(b, what);
	if (rc == SP_OK && path != NULL)
		rc = put_escaped(b, path);
	return rc == SP_OK ? buf_add_char(b, '\0') : rc;
}

static int
print(struct view v)
{
	if (v.n > 0 && fwrite(v.p, 1, v.n, stdout) != v.n)
		return EXIT_USAGE;
	return fflush(stdout) == 0 ? 0 : EXIT_USAGE;
}

/* ---- episodes ------------------------------------------------------------- */

/* Without a width it is the last of its line, and ends where it ends. */
static void
print_string(struct view json, int width)
{
	struct buf text = BUF_INIT(64 * 1024);
	size_t n;

	if (ctl_record_string(json, &text) != 0)
		(void)!buf_add_view(&text, json.n > 0 ? json : VIEW("-"));
	ctl_text_print(stdout, buf_view(&text), NULL);
	for (n = buf_len(&text); n < (size_t)width; n++)
		(void)putchar(' ');
	if (width > 0)
		(void)putchar(' ');
	buf_clear(&text);
}

/* One that is frozen is live all the same, and nothing in it goes on. */
static void
print_state(struct view one)
{
	struct view state = ctl_record_get(one, VIEW("state"));

	if (view_eq(state, VIEW("\"live\"")) &&
	    view_eq(ctl_record_get(one, VIEW("frozen")), VIEW("true")))
		state = VIEW("\"frozen\"");
	print_string(state, 9);
}

static void
print_row(struct view one)
{
	print_string(ctl_record_get(one, VIEW("id")), IDS_WIDTH);
	print_string(ctl_record_get(one, VIEW("environment")), 16);
	print_state(one);
	print_string(ctl_record_get(one, VIEW("processes")), 5);
	print_string(ctl_record_get(one, VIEW("resets")), 6);
	print_string(ctl_record_get(one, VIEW("created_at")), 0);
	(void)putchar('\n');
}

static int
list(bool json)
{
	struct ctl_http_params p = { .method = "GET", .rest = "" };
	struct buf out = BUF_INIT(BODY_MAX);
	int status = ask(&p, &out);
	struct view all;
	struct jscan_span v;
	struct jscan s;

	if (status == 0 && json)
		status = print(buf_view(&out));
	if (status == 0 && !json) {
		(void)printf("%-24s %-16s %-9s %-5s %-6s %s\n", "ID",
		    "ENVIRONMENT", "STATE", "PROCS", "RESETS", "CREATED");
		all = ctl_record_get(buf_view(&out), VIEW("episodes"));
		jscan_init(&s, all, 0);
		if (jscan_peek(&s) == JSCAN_ARRAY && jscan_enter(&s) == 0)
			while (
			    jscan_element(&s) == 1 && jscan_skip(&s, &v) == 0)
				print_row(jscan_raw(&s, &v));
		status = print(VIEW_NONE);
	}
	buf_clear(&out);
	return status;
}

int
ctl_episodes_create(const char *environment, const char *id, struct buf *out)
{
	struct ctl_http_params p = { .method = "POST",
		.rest = "",
		.patient = true };
	struct buf body = BUF_INIT(64 * 1024);
	struct jwrite w;
	int status, rc;

	jwrite_init(&w, &body);
	jwrite_object(&w);
	jwrite_key(&w, "environment");
	jwrite_cstr(&w, environment);
	if (id != NULL) {
		jwrite_key(&w, "id");
		jwrite_cstr(&w, id);
	}
	jwrite_end_object(&w);
	rc = jwrite_finish(&w);
	p.body = buf_view(&body);
	status = rc == SP_OK ? ask(&p, out)
			     : unreachable(environment, "no request", rc);
	buf_clear(&body);
	return status;
}

static int
episodes(int argc, char **argv)
{
	struct buf out = BUF_INIT(1024 * 1024);
	bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
	int status;

	argc -= json;
	if (json)
		argv[1] = argv[0];
	argv += json;
	if (argc == 1 || (argc == 2 && strcmp(argv[1], "list") == 0))
		return list(json);
	if ((argc != 3 && argc != 4) || strcmp(argv[1], "create") != 0) {
		return usage(argc, argv,
		    "list, or create with an environment and perhaps an id "
		    "(what ends one is sallyportctl end ID)");
	}
	status = ctl_episodes_create(argv[2], argc == 4 ? argv[3] : NULL, &out);
	if (status == 0 && json) {
		status = print(buf_view(&out));
	} else if (status == 0) {
		print_string(ctl_record_get(buf_view(&out), VIEW("id")), 0);
		status = print(VIEW("\n"));
	}
	buf_clear(&out);
	return status;
}

/* ---- what is done to one -------------------------------------------------- */

/* reset, freeze, thaw, end. */
static int
change(int argc, char **argv)
{
	bool end = strcmp(argv[0], "end") == 0;
	struct ctl_http_params p = { .method = end ? "DELETE" : "POST",
		.patient = true };
	struct buf rest = BUF_INIT(REST_MAX), what = BUF_INIT(64);
	struct buf out = BUF_INIT(1024 * 1024);
	int status = EXIT_USAGE, rc;

	if (argc != 2)
		return usage(argc, argv, "the id of one episode");
	rc = end ? SP_OK : buf_printf(&what, "/%s", argv[0]);
	if (rc == SP_OK)
		rc = buf_add_char(&what, '\0');
	if (rc == SP_OK)
		rc = put_rest(&rest, argv[1], buf_view(&what).p, NULL);
	if (rc == SP_OK) {
		p.rest = buf_view(&rest).p;
		status = ask(&p, &out);
	} else {
		(void)unreachable(argv[1], "no request", rc);
	}
	buf_clear(&rest);
	buf_clear(&what);
	buf_clear(&out);
	return status;
}

/* ---- what is read --------------------------------------------------------- */

static int
print_change(struct view line)
{
	static const char *const kinds[] = { "created", "modified", "deleted",
		"replaced" };
	struct view kind = ctl_record_get(line, VIEW("change"));
	struct view path = ctl_record_get(line, VIEW("path"));
	char sign = '?';
	size_t i;

	if (kind.n > 2)
		kind = view_sub(kind, 1, kind.n - 2);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (view_eq(kind, view_str(kinds[i])))
			sign = "AMDR"[i];
	/* nobody looked: said where it cannot be taken for a name */
	if (ctl_record_get(line, VIEW("unreadable")).n > 0)
		(void)printf("%c(unreadable) ", sign);
	else if (ctl_record_get(line, VIEW("uncompared")).n > 0)
		(void)printf("%c(uncompared) ", sign);
	else
		(void)printf("%c ", sign);
	print_string(ctl_record_get(line, VIEW("type")), 9);
	if (path.n == 0) {
		(void)fputs("base64:", stdout);
		path = ctl_record_get(line, VIEW("path_b64"));
	}
	print_string(path, 0);
	(void)putchar('\n');
	return 0;
}

/* Calls each() for every line, as it comes. */
static int
lines(struct ctl_http_params *p, int (*each)(struct view line))
{
	struct buf line = BUF_INIT(LINE_MAX_BYTES);
	struct ctl_http h;
	struct view data;
	int status = begin(p, &h), rc = 0;
	size_t n;

	while (status == 0 && (rc = ctl_http_next(&h, &data)) == 1) {
		while (rc == 1 && data.n > 0) {
			n = view_find(data, '\n');
			if (buf_add_view(&line, view_sub(data, 0, n)) != 0)
				rc = SP_E_NOMEM;
			if (rc == 1 && n < data.n && buf_len(&line) > 0) {
				status = each(buf_view(&line));
				buf_reset(&line, REST_MAX);
			}
			data = view_from(data, n + 1);
		}
		if (fflush(stdout) != 0)
			status = EXIT_USAGE;
		if (rc != 1)
			break;
	}
	if (status == 0 && rc != 0)
		status = broken(rc);
	ctl_http_close(&h);
	buf_clear(&line);
	return status;
}

static int
print_line(struct view line)
{
	(void)fwrite(line.p, 1, line.n, stdout);
	return putchar('\n') == EOF ? EXIT_USAGE : 0;
}

static int
diff_or_events(int argc, char **argv)
{
	bool diff = strcmp(argv[0], "diff") == 0;
	bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
	bool frozen =
	    diff && argc > 1 + json && strcmp(argv[1 + json], "--frozen") == 0;
	struct ctl_http_params p = { .method = "GET", .patient = true };
	struct buf rest = BUF_INIT(REST_MAX);
	int status, rc;

	argc -= json + frozen;
	argv[json + frozen] = argv[0];
	argv += json + frozen;
	if (argc != 2)
		return usage(argc, argv, "the id of one episode");
	rc = put_rest(&rest, argv[1],
	    frozen     ? "/diff?frozen=1"
		: diff ? "/diff"
		       : "/events",
	    NULL);
	p.rest = buf_view(&rest).p;
	status = rc == SP_OK
	    ? lines(&p, diff && !json ? print_change : print_line)
	    : unreachable(argv[1], "no request", rc);
	buf_clear(&rest);
	return status;
}

/* "source: text" */
static int
print_log(struct view line)
{
	struct view lost = ctl_record_get(line, VIEW("lost_bytes"));

	if (lost.n > 0) {
		(void)printf("... %.*s bytes are gone\n", VIEW_ARG(lost));
		return 0;
	}
	print_string(ctl_record_get(line, VIEW("source")), 0);
	(void)fputs(": ", stdout);
	print_string(ctl_record_get(line, VIEW("text")), 0);
	return putchar('\n') == EOF ? EXIT_USAGE : 0;
}

/* What its programs say; -f: and what they will. */
static int
logs(int argc, char **argv)
{
	bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
	bool follow = argc > 2 && strcmp(argv[argc - 1], "-f") == 0;
	struct ctl_http_params p = { .method = "GET", .patient = true };
	struct buf rest = BUF_INIT(REST_MAX);
	int status, rc;

	if (argc != 2 + json + follow)
		return usage(argc, argv, "the id of one episode");
	rc = put_rest(&rest, argv[1 + json],
	    follow ? "/logs?follow=1" : "/logs", NULL);
	p.rest = buf_view(&rest).p;
	status = rc == SP_OK ? lines(&p, json ? print_line : print_log)
			     : unreachable(argv[1], "no request", rc);
	buf_clear(&rest);
	return status;
}

static int
copy_out(struct ctl_http_params *p)
{
	struct ctl_http h;
	struct view data;
	int status = begin(p, &h), rc = 0;

	while (status == 0 && (rc = ctl_http_next(&h, &data)) == 1) {
		rc = fd_write_all(STDOUT_FILENO, data.p, data.n);
		if (rc != 0)
			status = unreachable("standard output", "write", rc);
	}
	if (status == 0 && rc != 0)
		status = broken(rc);
	ctl_http_close(&h);
	return status;
}

static int
read_or_put(int argc, char **argv)
{
	bool put = strcmp(argv[0], "put") == 0;
	struct ctl_http_params p = { .method = put ? "PUT" : "GET",
		.type = "application/octet-stream",
		.patient = true };
	struct buf rest = BUF_INIT(REST_MAX), in = BUF_INIT(BODY_MAX);
	struct buf out = BUF_INIT(1024 * 1024);
	int status, rc;

	if (argc != 3)
		return usage(argc, argv, "the id of an episode and a path");
	/* as diff prints it, or as a program inside has it */
	rc = put_rest(&rest, argv[1],
	    argv[2][0] == '/' ? "/files?path=" : "/files?path=/workspace/",
	    argv[2]);
	if (rc == SP_OK && put)
		rc = fd_read_all(STDIN_FILENO, &in);
	p.rest = buf_view(&rest).p;
	p.body = buf_view(&in);
	status = rc != SP_OK ? unreachable("standard input", "read", rc)
	    : put            ? ask(&p, &out)
			     : copy_out(&p);
	buf_clear(&rest);
	buf_clear(&in);
	buf_clear(&out);
	return status;
}

/* {"op":OP,"data":JSON} */
static int
put_operation(struct buf *out, const char *op, const char *data)
{
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "op");
	jwrite_cstr(&w, op);
	if (data != NULL) {
		jwrite_key(&w, "data");
		jwrite_span(&w, view_str(data));
	}
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

/* What it answers, or how it is. */
static int
worker(int argc, char **argv)
{
	struct ctl_http_params p = { .method = argc > 2 ? "POST" : "GET",
		.patient = true };
	struct buf rest = BUF_INIT(REST_MAX), in = BUF_INIT(BODY_MAX);
	struct buf out = BUF_INIT(BODY_MAX);
	int status, rc;

	if (argc < 2 || argc > 4)
		return usage(argc, argv,
		    "the id of an episode, and perhaps reset, step, state or "
		    "mcp");
	rc = put_rest(&rest, argv[1], "/worker", NULL);
	if (rc == SP_OK && argc > 2)
		rc = put_operation(&in, argv[2], argc > 3 ? argv[3] : NULL);
	p.rest = buf_view(&rest).p;
	p.body = buf_view(&in);
	status = rc == SP_OK ? ask(&p, &out)
			     : unreachable(argv[1], "expected JSON", rc);
	if (status == 0)
		status = print(buf_view(&out));
	buf_clear(&rest);
	buf_clear(&in);
	buf_clear(&out);
	return status;
}

/* What it wrote, as it wrote it. */
static void
print_output(FILE *to, struct view all, struct view name, struct view name_b64)
{
	struct buf text = BUF_INIT(BODY_MAX), raw = BUF_INIT(BODY_MAX);
	struct view v = ctl_record_get(all, name);
	bool coded = v.n == 0;

	if (coded)
		v = ctl_record_get(all, name_b64);
	if (ctl_record_string(v, &text) == 0 &&
	    (!coded || b64_get(buf_view(&text), &raw) == SP_OK)) {
		v = buf_view(coded ? &raw : &text);
		if (v.n > 0)
			(void)!fwrite(v.p, 1, v.n, to);
	}
	buf_clear(&text);
	buf_clear(&raw);
}

/* What the verdict does not show, and what it was not shown. */
static void
print_lost(struct view all)
{
	struct view n = ctl_record_get(all, VIEW("links_removed"));
	struct view paths = ctl_record_get(all, VIEW("links_removed_paths"));

	if (view_eq(ctl_record_get(all, VIEW("stdout_truncated")),
		VIEW("true")))
		(void)fprintf(stderr,
		    "sallyportctl: of its standard output, the first MiB\n");
	if (view_eq(ctl_record_get(all, VIEW("stderr_truncated")),
		VIEW("true")))
		(void)fprintf(stderr,
		    "sallyportctl: of its standard error, the first MiB\n");
	if (n.n > 0)
		(void)fprintf(stderr,
		    "sallyportctl: links that led out of the workspace and "
		    "were taken out before it was judged: %.*s, first %.*s\n",
		    VIEW_ARG(n), VIEW_ARG(paths));
}

/* Its exit status becomes ours, as a shell's: 128 and the signal. */
static int
print_verdict(struct view all)
{
	struct view v = ctl_record_get(all, VIEW("returncode"));
	bool killed = v.n > 0 && v.p[0] == '-';
	uint64_t n = 0;

	print_output(stdout, all, VIEW("stdout"), VIEW("stdout_b64"));
	print_output(stderr, all, VIEW("stderr"), VIEW("stderr_b64"));
	print_lost(all);
	if (num_u64(view_from(v, killed ? 1 : 0), 0, 255, &n) != SP_OK)
		return EXIT_USAGE;
	if (print(VIEW_NONE) != 0)
		return EXIT_USAGE;
	return (int)(killed ? 128 + n : n);
}

static int
grade_body(const char *process, struct buf *body)
{
	struct jwrite w;

	jwrite_init(&w, body);
	jwrite_object(&w);
	if (process != NULL) {
		jwrite_key(&w, "process");
		jwrite_cstr(&w, process);
	}
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

static int
grade(int argc, char **argv)
{
	bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
	struct ctl_http_params p = { .method = "POST", .patient = true };
	struct buf rest = BUF_INIT(REST_MAX), body = BUF_INIT(REST_MAX);
	struct buf out = BUF_INIT(BODY_MAX);
	int status, rc;

	argc -= json;
	if (json)
		argv[1] = argv[0];
	argv += json;
	if (argc != 2 && argc != 3)
		return usage(argc, argv,
		    "the id of an episode, and perhaps a process");
	rc = put_rest(&rest, argv[1], "/grade", NULL);
	if (rc == SP_OK)
		rc = grade_body(argc == 3 ? argv[2] : NULL, &body);
	p.rest = buf_view(&rest).p;
	p.body = buf_view(&body);
	status = rc == SP_OK ? ask(&p, &out)
			     : unreachable(argv[1], "no request", rc);
	if (status == EXIT_REFUSED)
		status = EXIT_NO_VERDICT;
	if (status == 0)
		status = json ? print(buf_view(&out))
			      : print_verdict(buf_view(&out));
	buf_clear(&rest);
	buf_clear(&body);
	buf_clear(&out);
	return status;
}

int
ctl_episodes(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(int argc, char **argv);
	} rows[] = {
		{ "episodes", episodes },
		{ "reset", change },
		{ "freeze", change },
		{ "thaw", change },
		{ "end", change },
		{ "diff", diff_or_events },
		{ "events", diff_or_events },
		{ "grade", grade },
		{ "logs", logs },
		{ "read", read_or_put },
		{ "put", read_or_put },
		{ "worker", worker },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(argv[0], rows[i].name) == 0)
			return rows[i].run(argc, argv);
	return usage(argc, argv, "a command");
}

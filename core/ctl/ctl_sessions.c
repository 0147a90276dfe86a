#include "config.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl_http.h"
#include "ctl/ctl_record.h"
#include "ctl/ctl_sessions.h"
#include "ctl/ctl_socket.h"
#include "http/h1_parse.h"
#include "recorder/store.h"

enum {
	EXIT_REFUSED = 1,
	EXIT_USAGE = 2,
	BODY_MAX = 1024 * 1024 * 1024,
	REST_MAX = 512,
	PAGES_MAX = 100000,
	STATUS_UNAUTHORIZED = 401,
};

const char ctl_sessions_usage[] =
    "       sallyportctl sessions [OPTION ...] [list]\n"
    "       sallyportctl sessions [OPTION ...] create [JSON]\n"
    "       sallyportctl sessions [OPTION ...] show ID\n"
    "       sallyportctl sessions [OPTION ...] end ID [OUTCOME]\n"
    "       sallyportctl sessions [OPTION ...] trace ID [train]\n"
    "                             --url URL, --location PATH, "
    "--token-env NAME, --json\n";

struct sessions {
	struct ctl_http_params http;
	const char *token_env; /* the variable that holds http.token */
	char rest[REST_MAX]; /* what http.rest points to */
	bool json;
};

static int
usage(void)
{
	(void)fprintf(stderr, "usage:\n%s", ctl_sessions_usage);
	return EXIT_USAGE;
}

/* 0 with the body of a good answer; else the exit status, said why. */
static int
ask(const struct sessions *s, struct buf *out)
{
	const char *why = "";
	struct view text;
	unsigned status = 0;
	int rc = ctl_http_ask(&s->http, out, &status, &why);

	if (rc != 0) {
		(void)fprintf(stderr, "sallyportctl: %s: %s: %s\n", s->http.url,
		    why, err_str(rc));
		return EXIT_USAGE;
	}
	if (status >= 200 && status < 300)
		return 0;
	if (status == STATUS_UNAUTHORIZED) {
		(void)fprintf(stderr,
		    s->http.token == NULL
			? "sallyportctl: 401: %s is not set: export the token "
			  "of the location there, or name its variable with "
			  "--token-env\n"
			: "sallyportctl: 401: wrong token: what %s holds is "
			  "not the token of the location\n",
		    s->token_env);
		return EXIT_REFUSED;
	}
	text = ctl_record_get(buf_view(out), VIEW("error"));
	text = ctl_record_get(text, VIEW("message"));
	(void)fprintf(stderr, "sallyportctl: refused with status %u: %.*s\n",
	    status, VIEW_ARG(text));
	return EXIT_REFUSED;
}

static int
print(struct view v)
{
	if (v.p != NULL && fwrite(v.p, 1, v.n, stdout) != v.n)
		return EXIT_USAGE;
	return fflush(stdout) == 0 ? 0 : EXIT_USAGE;
}

static int
ask_and_print(const struct sessions *s)
{
	struct buf out = BUF_INIT(BODY_MAX);
	int rc = ask(s, &out);

	if (rc == 0)
		rc = print(buf_view(&out));
	buf_clear(&out);
	return rc;
}

/* ---- list ----------------------------------------------------------------- */

/* A string that is not escaped, without its quotes; else as it stands. */
static struct view
plain(struct view v)
{
	if (v.n >= 2 && v.p[0] == '"')
		return view_sub(v, 1, v.n - 2);
	return view_eq(v, VIEW("null")) ? VIEW("-") : v;
}

static void
print_row(struct view one)
{
	static const struct {
		const char *name;
		int width;
	} columns[] = {
		{ "session_id", -32 },
		{ "state", -6 },
		{ "outcome", -13 },
		{ "model_calls", 7 },
		{ "n_turns", 7 },
		{ "completion_tokens", 10 },
		{ "n_trainable", 10 },
	};
	size_t i;

	for (i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
		struct view v =
		    plain(ctl_record_get(one, view_str(columns[i].name)));

		(void)printf("%s%*.*s", i > 0 ? " " : "", columns[i].width,
		    VIEW_ARG(v));
	}
	(void)putchar('\n');
}

static void
print_page(struct view list, bool first)
{
	struct jscan_span v;
	struct jscan s;

	if (first)
		(void)printf("%-32s %-6s %-13s %7s %7s %10s %10s\n", "SESSION",
		    "STATE", "OUTCOME", "CALLS", "TURNS", "TOKENS",
		    "TRAINABLE");
	jscan_init(&s, list, 0);
	if (jscan_enter(&s) != 0)
		return;
	while (jscan_element(&s) == 1 && jscan_skip(&s, &v) == 0)
		print_row(jscan_raw(&s, &v));
}

/* What another location answers is no list, however well it answers. */
static int
take_page(const struct sessions *s, struct view page, bool first)
{
	struct view list = ctl_record_get(page, VIEW("sessions"));

	if (list.n == 0 || list.p[0] != '[') {
		(void)fprintf(stderr,
		    "sallyportctl: %s: the answer is no list of sessions: "
		    "expected the URL of a location with \"sessions\"\n",
		    s->http.url);
		return EXIT_REFUSED;
	}
	if (s->json)
		return print(page);
	print_page(list, first);
	return 0;
}

static int
list(struct sessions *s)
{
	struct buf page = BUF_INIT(BODY_MAX);
	struct view next;
	int rc = 0, i;

	(void)snprintf(s->rest, sizeof(s->rest), "?limit=1000");
	s->http.rest = s->rest;
	for (i = 0; i < PAGES_MAX && rc == 0; i++) {
		buf_reset(&page, 0);
		rc = ask(s, &page);
		if (rc == 0)
			rc = take_page(s, buf_view(&page), i == 0);
		if (rc != 0)
			break;
		next = plain(ctl_record_get(buf_view(&page), VIEW("next")));
		if (!store_session_valid(next) || view_eq(next, VIEW("-")))
			break;
		(void)snprintf(s->rest, sizeof(s->rest),
		    "?limit=1000&after=%.*s", VIEW_ARG(next));
	}
	buf_clear(&page);
	return rc;
}

/* ---- one ------------------------------------------------------------------ */

static int
with_id(struct sessions *s, const char *method, const char *id,
    const char *tail)
{
	if (!store_session_valid(view_str(id))) {
		(void)fprintf(stderr,
		    "sallyportctl: no session can be \"%.140s\": expected 1 to "
		    "128 of A-Z a-z 0-9 _ . -\n",
		    id);
		return EXIT_USAGE;
	}
	(void)snprintf(s->rest, sizeof(s->rest), "/%s%s", id, tail);
	s->http.method = method;
	s->http.rest = s->rest;
	return ask_and_print(s);
}

static int
end(struct sessions *s, const char *id, const char *outcome)
{
	char tail[64] = "";

	if (outcome != NULL) {
		size_t i;

		for (i = 0; outcome[i] != '\0'; i++)
			if (strchr("abcdefghijklmnopqrstuvwxyz_", outcome[i]) ==
			    NULL)
				return usage();
		if (i > 24)
			return usage();
		(void)snprintf(tail, sizeof(tail), "?outcome=%s", outcome);
	}
	return with_id(s, "DELETE", id, tail);
}

static int
run(struct sessions *s, int n, char **args)
{
	const char *what = n > 0 ? args[0] : "list";

	if (strcmp(what, "list") == 0 && n <= 1)
		return list(s);
	if (strcmp(what, "create") == 0 && n <= 2) {
		s->http.method = "POST";
		s->http.body = n == 2 ? view_str(args[1]) : VIEW("{}");
		return ask_and_print(s);
	}
	if (strcmp(what, "show") == 0 && n == 2)
		return with_id(s, "GET", args[1], "");
	if (strcmp(what, "end") == 0 && (n == 2 || n == 3))
		return end(s, args[1], n == 3 ? args[2] : NULL);
	if (strcmp(what, "trace") == 0 && n == 2)
		return with_id(s, "GET", args[1], "/trace");
	if (strcmp(what, "trace") == 0 && n == 3 &&
	    strcmp(args[2], "train") == 0)
		return with_id(s, "GET", args[1], "/trace?view=train");
	return usage();
}

/* A token stands in a field of the head: no byte of it may end that. */
static bool
good_token(const char *token)
{
	size_t i;

	for (i = 0; token[i] != '\0'; i++)
		if (token[i] <= ' ' || token[i] > '~')
			return false;
	return i > 0;
}

int
ctl_sessions(int argc, char **argv)
{
	static const struct option options[] = {
		{ "url", required_argument, NULL, 'u' },
		{ "location", required_argument, NULL, 'l' },
		{ "token-env", required_argument, NULL, 't' },
		{ "json", no_argument, NULL, 'j' },
		{ NULL, 0, NULL, 0 },
	};
	struct sessions s = { .http = { .url = getenv("SALLYPORT_URL"),
				  .location = "/sessions",
				  .method = "GET",
				  .rest = "" },
		.token_env = "SALLYPORT_ADMIN_TOKEN" };
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'u')
			s.http.url = optarg;
		else if (c == 'l')
			s.http.location = optarg;
		else if (c == 't')
			s.token_env = optarg;
		else if (c == 'j')
			s.json = true;
		else
			return usage();
	}
	if (s.http.url == NULL)
		s.http.url = ctl_socket_url();
	if (s.http.url == NULL) {
		(void)fputs("sallyportctl: the control socket's path must "
			    "begin with \"/\"\n",
		    stderr);
		return EXIT_USAGE;
	}
	s.http.token = getenv(s.token_env);
	if (s.http.location == NULL || s.http.location[0] != '/' ||
	    !h1_parse_is_target(view_str(s.http.location)))
		return usage();
	if (s.http.token != NULL && !good_token(s.http.token)) {
		(void)fprintf(stderr,
		    "sallyportctl: %s holds no token: expected visible ASCII\n",
		    s.token_env);
		return EXIT_USAGE;
	}
	return run(&s, argc - optind, argv + optind);
}

#include "config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/ident.h"
#include "ctl/ctl_ask.h"
#include "ctl/ctl_record.h"
#include "ctl/ctl_sessions.h"

enum { PAGES_MAX = 100000 };

const char ctl_sessions_usage[] =
    "       sallyportctl sessions [OPTION ...] [list]\n"
    "       sallyportctl sessions [OPTION ...] create [JSON]\n"
    "       sallyportctl sessions [OPTION ...] show ID\n"
    "       sallyportctl sessions [OPTION ...] end ID [OUTCOME]\n"
    "       sallyportctl sessions [OPTION ...] trace ID [train]\n"
    "                             --url URL, --location PATH, "
    "--token-env NAME, --json\n";

static int
usage(void)
{
	(void)fprintf(stderr, "usage:\n%s", ctl_sessions_usage);
	return CTL_ASK_USAGE;
}

/* ---- list ----------------------------------------------------------------- */

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
		struct view v = ctl_ask_plain(
		    ctl_record_get(one, view_str(columns[i].name)));

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
take_page(const struct ctl_ask *s, struct view page, bool first)
{
	struct view list = ctl_record_get(page, VIEW("sessions"));

	if (list.n == 0 || list.p[0] != '[') {
		(void)fprintf(stderr,
		    "sallyportctl: %s: the answer is no list of sessions: "
		    "expected the URL of a location with \"sessions\"\n",
		    s->http.url);
		return CTL_ASK_REFUSED;
	}
	if (s->json)
		return ctl_ask_print(page);
	print_page(list, first);
	return 0;
}

static int
list(struct ctl_ask *s)
{
	struct buf page = BUF_INIT(CTL_ASK_BODY_MAX);
	struct view next;
	int rc = 0, i;

	(void)snprintf(s->rest, sizeof(s->rest), "?limit=1000");
	s->http.rest = s->rest;
	for (i = 0; i < PAGES_MAX && rc == 0; i++) {
		buf_reset(&page, 0);
		rc = ctl_ask_do(s, &page);
		if (rc == 0)
			rc = take_page(s, buf_view(&page), i == 0);
		if (rc != 0)
			break;
		next = ctl_ask_plain(
		    ctl_record_get(buf_view(&page), VIEW("next")));
		if (!ident_good(next) || view_eq(next, VIEW("-")))
			break;
		(void)snprintf(s->rest, sizeof(s->rest),
		    "?limit=1000&after=%.*s", VIEW_ARG(next));
	}
	buf_clear(&page);
	return rc;
}

/* ---- one ------------------------------------------------------------------ */

static int
with_id(struct ctl_ask *s, const char *method, const char *id, const char *tail)
{
	if (!ident_good(view_str(id))) {
		(void)fprintf(stderr,
		    "sallyportctl: no session can be \"%.140s\": expected 1 to "
		    "128 of A-Z a-z 0-9 _ . -\n",
		    id);
		return CTL_ASK_USAGE;
	}
	(void)snprintf(s->rest, sizeof(s->rest), "/%s%s", id, tail);
	s->http.method = method;
	s->http.rest = s->rest;
	return ctl_ask_do_and_print(s);
}

static int
end(struct ctl_ask *s, const char *id, const char *outcome)
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
run(struct ctl_ask *s, int n, char **args)
{
	const char *what = n > 0 ? args[0] : "list";

	if (strcmp(what, "list") == 0 && n <= 1)
		return list(s);
	if (strcmp(what, "create") == 0 && n <= 2) {
		s->http.method = "POST";
		s->http.body = n == 2 ? view_str(args[1]) : VIEW("{}");
		return ctl_ask_do_and_print(s);
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

int
ctl_sessions(int argc, char **argv)
{
	struct ctl_ask a;
	bool said;
	int rc = ctl_ask_options(&a, argc, argv, "/sessions", &said);

	if (rc != 0)
		return said ? rc : usage();
	return run(&a, argc - optind, argv + optind);
}

#include "config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl/ctl_ask.h"
#include "ctl/ctl_record.h"
#include "ctl/ctl_text.h"
#include "ctl/ctl_upstream.h"
#include "json/jwrite.h"

enum { NAME_MAX_BYTES = 64, URL_BODY_MAX = 64 * 1024 };

const char ctl_upstream_usage[] =
    "       sallyportctl upstream [OPTION ...] [NAME]\n"
    "       sallyportctl upstream [OPTION ...] NAME add | remove | drain URL\n"
    "                             --url URL, --location PATH, "
    "--token-env NAME, --json\n";

static int
usage(void)
{
	(void)fprintf(stderr, "usage:\n%s", ctl_upstream_usage);
	return CTL_ASK_USAGE;
}

/* ---- what is shown -------------------------------------------------------- */

static const struct {
	const char *name, *title;
	int width;
} columns[] = {
	{ "state", "STATE", -8 },
	{ "open_calls", "CALLS", 6 },
	{ "idle_connections", "IDLE", 5 },
	{ "sessions", "SESSIONS", 8 },
	{ "failures", "FAILURES", 8 },
	{ "checks_failed", "CHECKS", 6 },
};
enum { COLUMNS_N = sizeof(columns) / sizeof(columns[0]) };

static void
print_server(struct view upstream, struct view one)
{
	size_t i;

	(void)printf("%-16.*s", VIEW_ARG(upstream));
	for (i = 0; i < COLUMNS_N; i++) {
		struct view v = ctl_ask_plain(
		    ctl_record_get(one, view_str(columns[i].name)));

		(void)printf(" %*.*s", columns[i].width, VIEW_ARG(v));
	}
	(void)putchar(' ');
	ctl_text_print(stdout, ctl_ask_plain(ctl_record_get(one, VIEW("url"))),
	    NULL);
	(void)putchar('\n');
}

/* Calls each for every element of an array. */
static void
walk(struct view list, struct view arg,
    void (*each)(struct view arg, struct view one))
{
	struct jscan_span v;
	struct jscan s;

	jscan_init(&s, list, 0);
	if (jscan_enter(&s) != 0)
		return;
	while (jscan_element(&s) == 1 && jscan_skip(&s, &v) == 0)
		each(arg, jscan_raw(&s, &v));
}

static void
print_upstream(struct view arg, struct view one)
{
	struct view name = ctl_ask_plain(ctl_record_get(one, VIEW("name")));

	(void)arg;
	walk(ctl_record_get(one, VIEW("servers")), name, print_server);
}

static void
print_title(void)
{
	size_t i;

	(void)printf("%-16s", "UPSTREAM");
	for (i = 0; i < COLUMNS_N; i++)
		(void)printf(" %*s", columns[i].width, columns[i].title);
	(void)puts(" URL");
}

static int
show(const struct ctl_ask *a, struct view answer)
{
	struct view all = ctl_record_get(answer, VIEW("upstreams"));

	if (a->json)
		return ctl_ask_print(answer);
	/* what another location answers is none, however well it does */
	if (all.n == 0 && ctl_record_get(answer, VIEW("servers")).n == 0) {
		(void)fprintf(stderr,
		    "sallyportctl: %s: the answer is no upstream: expected "
		    "the URL of a location with \"upstreams\"\n",
		    a->http.url);
		return CTL_ASK_REFUSED;
	}
	print_title();
	if (all.n > 0)
		walk(all, VIEW_NONE, print_upstream);
	else
		print_upstream(VIEW_NONE, answer);
	return fflush(stdout) == 0 ? 0 : CTL_ASK_USAGE;
}

static int
ask_and_show(const struct ctl_ask *a)
{
	struct buf out = BUF_INIT(CTL_ASK_BODY_MAX);
	int rc = ctl_ask_do(a, &out);

	if (rc == 0)
		rc = show(a, buf_view(&out));
	buf_clear(&out);
	return rc;
}

/* ---- what is asked -------------------------------------------------------- */

/* As a block of the configuration may be called. */
static bool
is_name(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && n <= NAME_MAX_BYTES &&
	    strspn(name,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		"0123456789_.-") == n;
}

static int
change(struct ctl_ask *a, const char *name, const char *tail, const char *url)
{
	struct buf body = BUF_INIT(URL_BODY_MAX);
	struct jwrite w;
	int rc;

	(void)snprintf(a->rest, sizeof(a->rest), "/%s%s", name, tail);
	jwrite_init(&w, &body);
	jwrite_object(&w);
	jwrite_key(&w, "url");
	jwrite_cstr(&w, url);
	jwrite_end_object(&w);
	rc = jwrite_finish(&w);
	a->http.rest = a->rest;
	a->http.body = buf_view(&body);
	if (rc == 0) {
		rc = ask_and_show(a);
	} else {
		(void)fprintf(stderr, "sallyportctl: %s: %s\n", name,
		    err_str(rc));
		rc = CTL_ASK_USAGE;
	}
	buf_clear(&body);
	return rc;
}

static int
run(struct ctl_ask *a, int n, char **args)
{
	static const struct {
		const char *word, *method, *tail;
	} words[] = {
		{ "add", "POST", "/servers" },
		{ "remove", "DELETE", "/servers" },
		{ "drain", "POST", "/servers/drain" },
	};
	size_t i;

	if (n == 0)
		return ask_and_show(a);
	if (!is_name(args[0])) {
		(void)fprintf(stderr,
		    "sallyportctl: no upstream can be \"%.140s\": expected at "
		    "most 64 letters, digits, \"_\", \"-\" and \".\"\n",
		    args[0]);
		return CTL_ASK_USAGE;
	}
	if (n == 1) {
		(void)snprintf(a->rest, sizeof(a->rest), "/%s", args[0]);
		a->http.rest = a->rest;
		return ask_and_show(a);
	}
	for (i = 0; n == 3 && i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(args[1], words[i].word) == 0) {
			a->http.method = words[i].method;
			return change(a, args[0], words[i].tail, args[2]);
		}
	return usage();
}

int
ctl_upstream(int argc, char **argv)
{
	struct ctl_ask a;
	bool said;
	int rc = ctl_ask_options(&a, argc, argv, "/upstreams", &said);

	if (rc != 0)
		return said ? rc : usage();
	return run(&a, argc - optind, argv + optind);
}

#include "config.h"

#include <stdio.h>
#include <unistd.h>

#include "ctl/ctl_ask.h"
#include "ctl/ctl_record.h"
#include "ctl/ctl_status.h"
#include "ctl/ctl_text.h"
#include "json/jwrite.h"

enum { NAME_WIDTH_MAX = 72, NAME_BYTES_MAX = 64 * 1024 };

const char ctl_status_usage[] =
    "       sallyportctl status [OPTION ...]\n"
    "       sallyportctl guarantees [OPTION ...]\n"
    "                             --url URL, --location PATH, "
    "--token-env NAME, --json\n";

/* Asks for that, and has the answer shown. */
static int
ask_and(int argc, char **argv, struct ctl_http_params what,
    int (*show)(const struct ctl_ask *a, struct view answer))
{
	struct buf out = BUF_INIT(CTL_ASK_BODY_MAX);
	struct ctl_ask a;
	bool said;
	int rc = ctl_ask_options(&a, argc, argv, what.location, &said);

	if (rc == 0 && optind != argc) {
		(void)fprintf(stderr,
		    "sallyportctl: %s: expected options alone, got \"%s\"\n",
		    argv[0], argv[optind]);
		rc = CTL_ASK_USAGE;
		said = false;
	}
	if (rc != 0) {
		if (!said)
			(void)fprintf(stderr, "usage:\n%s", ctl_status_usage);
		return rc;
	}
	a.http.rest = what.rest;
	a.http.accept = what.accept;
	rc = ctl_ask_do(&a, &out);
	if (rc == 0)
		rc = show(&a, buf_view(&out));
	buf_clear(&out);
	return rc;
}

/* The answer is of something else, however well it was given. */
static int
no_answer(const struct ctl_ask *a, const char *what)
{
	(void)fprintf(stderr, "sallyportctl: %s: the answer is no %s\n",
	    a->http.url, what);
	return CTL_ASK_REFUSED;
}

/* ---- status ---------------------------------------------------------------- */

/* What is done with each series, and the width of its names. */
struct series {
	void (*each)(struct series *s, struct view name, struct view value);
	size_t width;
	size_t own; /* of sallyport: another page has none */
};

/* A histogram's buckets are left out. */
static bool
is_bucket(struct view name)
{
	name = view_sub(name, 0, view_find(name, '{'));
	return view_ends(name, VIEW("_bucket"));
}

/* Every series and its value: 0; SP_E_SYNTAX. */
static int
walk_series(struct view all, struct series *to)
{
	struct view own = VIEW("sallyport_"), name;
	struct buf text = BUF_INIT(NAME_BYTES_MAX);
	struct jscan_span key, v;
	struct jscan s;
	int rc;

	jscan_init(&s, all, 0);
	rc = jscan_enter(&s);
	while (rc == 0 && (rc = jscan_member(&s, &key)) == 1) {
		buf_truncate(&text, 0);
		rc = jscan_skip(&s, &v);
		if (rc == 0)
			rc = jscan_decode(&s, &key, &text, NULL);
		if (rc != 0)
			break;
		name = buf_view(&text);
		if (view_starts(name, own)) {
			name = view_from(name, own.n);
			to->own++;
		}
		if (!is_bucket(name))
			to->each(to, name, jscan_raw(&s, &v));
	}
	buf_clear(&text);
	return rc == 0 && to->own == 0 ? SP_E_SYNTAX : rc;
}

static void
measure(struct series *s, struct view name, struct view value)
{
	(void)value;
	if (name.n > s->width && name.n <= NAME_WIDTH_MAX)
		s->width = name.n;
}

static void
print_series(struct series *s, struct view name, struct view value)
{
	size_t gap = name.n < s->width ? s->width - name.n : 0;

	ctl_text_print(stdout, name, NULL);
	(void)printf("%*s  ", (int)gap, "");
	ctl_text_print(stdout, value, NULL);
	(void)putchar('\n');
}

static int
show_status(const struct ctl_ask *a, struct view answer)
{
	struct series s = { .each = measure };

	if (walk_series(answer, &s) != 0)
		return no_answer(a, "status");
	if (a->json)
		return ctl_ask_print(answer);
	s.each = print_series;
	if (walk_series(answer, &s) != 0)
		return no_answer(a, "status");
	return fflush(stdout) == 0 ? 0 : CTL_ASK_USAGE;
}

int
ctl_status(int argc, char **argv)
{
	return ask_and(argc, argv,
	    (struct ctl_http_params){ .location = "/status",
		.rest = "",
		.accept = "application/json" },
	    show_status);
}

/* ---- guarantees -------------------------------------------------------------- */

static struct view
take_word(struct view *line)
{
	struct view word;

	*line = view_trim(*line);
	word = view_sub(*line, 0, view_find(*line, ' '));
	*line = view_trim(view_from(*line, word.n));
	return word;
}

/* One of an environment's, from its line in the table. */
static void
put_guarantee(struct jwrite *w, struct view line)
{
	jwrite_object(w);
	jwrite_key(w, "guarantee");
	jwrite_string(w, take_word(&line));
	jwrite_key(w, "required");
	jwrite_bool(w, view_eq(take_word(&line), VIEW("yes")));
	jwrite_key(w, "provided");
	jwrite_bool(w, view_eq(take_word(&line), VIEW("yes")));
	/* by what means, or what is missing */
	jwrite_key(w, "means");
	jwrite_string(w, line);
	jwrite_end_object(w);
}

/* The table of each environment: its name, titles, and then the rows. */
static void
put_table(struct jwrite *w, struct view table)
{
	struct view head = VIEW("environment "), line;
	bool open = false, titles = false;

	jwrite_array(w);
	while (view_split(&table, '\n', &line)) {
		if (view_starts(line, head)) {
			if (open) {
				jwrite_end_array(w);
				jwrite_end_object(w);
			}
			open = titles = true;
			jwrite_object(w);
			jwrite_key(w, "environment");
			jwrite_string(w, view_from(line, head.n));
			jwrite_key(w, "guarantees");
			jwrite_array(w);
		} else if (titles) {
			titles = false;
		} else if (open && line.n > 0) {
			put_guarantee(w, line);
		}
	}
	if (open) {
		jwrite_end_array(w);
		jwrite_end_object(w);
	}
	jwrite_end_array(w);
}

static int
show_guarantees(const struct ctl_ask *a, struct view answer)
{
	struct buf out = BUF_INIT(CTL_ASK_BODY_MAX);
	struct jwrite w;
	int rc;

	if (!a->json)
		return ctl_ask_print(answer);
	jwrite_init(&w, &out);
	put_table(&w, answer);
	rc = jwrite_finish(&w);
	if (rc == 0)
		rc = buf_add_char(&out, '\n');
	rc = rc == 0 ? ctl_ask_print(buf_view(&out))
		     : no_answer(a, "table of guarantees");
	buf_clear(&out);
	return rc;
}

int
ctl_status_guarantees(int argc, char **argv)
{
	return ask_and(argc, argv,
	    (struct ctl_http_params){ .location = "/episodes",
		.rest = "/-/guarantees" },
	    show_guarantees);
}

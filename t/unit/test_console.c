/* core/gate/console.c: what an episode's programs say. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "gate/console.h"
#include "json/jscan.h"
#include "tap.h"

static struct episode ep;
static unsigned woken, overs;

static void
on_ready(void *arg)
{
	(void)arg;
	woken++;
}

static void
on_over(void *arg)
{
	(void)arg;
	overs++;
}

static struct console_reader reader = { .ready = on_ready, .over = on_over };

static void
add(const char *source, const char *text)
{
	console_add(&ep, view_str(source), "stderr", view_str(text));
}

/* The texts of what is read, with "|" between them. */
static const char *
texts(size_t max, uint64_t *lost)
{
	static struct buf all = BUF_INIT(1 << 20);
	struct view v, line;
	struct jscan_span at;
	size_t n;

	console_read(&ep, &reader, max, &v, lost);
	buf_reset(&all, 0);
	while (v.n > 0) {
		n = view_find(v, '\n');
		line = view_sub(v, 0, n);
		if (jscan_valid(line, 0) != SP_OK ||
		    jscan_find(line, VIEW("text"), &at) != 1 ||
		    buf_add(&all, line.p + at.start + 1,
			at.end - at.start - 2) != SP_OK ||
		    buf_add_char(&all, '|') != SP_OK)
			return "bad";
		v = view_from(v, n + 1);
	}
	return buf_add_char(&all, '\0') == SP_OK ? buf_view(&all).p : "full";
}

static void
begin(void)
{
	memset(&ep, 0, sizeof(ep));
	woken = overs = 0;
	reader.next = 0;
	if (console_read_start(&ep, &reader) != SP_OK)
		abort();
}

static void
end(void)
{
	console_free(ep.console);
	ep.console = NULL;
}

static void
test_lines(void)
{
	uint64_t lost;

	begin();
	add("a", "one\ntw");
	tap_is_str(texts(1000, &lost), "one|", "whole lines alone");
	add("b", "three\n");
	add("a", "o\n\nfour");
	tap_is_str(texts(1 << 20, &lost), "three|two||",
	    "each program has its own");
	tap_is_int((int)woken, 3, "the reader was woken for each");
	console_end(&ep, VIEW("a"), "stderr");
	tap_is_str(texts(1 << 20, &lost), "four|", "an end ends a line");
	console_end(&ep, VIEW("a"), "stderr");
	console_end(&ep, VIEW("none"), "stdout");
	add("a", "\xff\"\n");
	tap_is_str(texts(1 << 20, &lost), "\xef\xbf\xbd\\\"|",
	    "bytes that are no text");
	add("a", "1\n2\n3\n");
	tap_is_str(texts(1, &lost), "1|", "one at least, whatever the bound");
	tap_is_str(texts(1 << 20, &lost), "2|3|", "and the rest");
	tap_is_int((int)lost, 0, "nothing is lost");
	end();
	tap_is_int((int)overs, 1, "the end is told");
}

static void
test_bounds(void)
{
	static char big[CONSOLE_KEPT_BYTES];
	uint64_t lost;
	struct view v;
	size_t i;

	begin();
	memset(big, 'x', sizeof(big));
	console_add(&ep, VIEW("a"), "stdout", view_of(big, 10000));
	console_read(&ep, &reader, 1 << 20, &v, &lost);
	for (i = 0; v.n > 0; i++)
		v = view_from(v, view_find(v, '\n') + 1);
	tap_is_int((int)i, 2, "a long line is told in parts");
	console_add(&ep, VIEW("a"), "stdout", view_of(big, sizeof(big)));
	console_add(&ep, VIEW("a"), "stdout", VIEW("\n"));
	console_read(&ep, &reader, 1, &v, &lost);
	tap_ok(lost > 0, "what a slow reader missed is told");
	console_read(&ep, &reader, 1 << 20, &v, &lost);
	tap_ok(v.n <= CONSOLE_KEPT_BYTES && lost == 0,
	    "what is kept is bounded");
	for (i = 0; i < CONSOLE_SOURCES_MAX + 10; i++) {
		snprintf(big, sizeof(big), "p%zu", i);
		console_add(&ep, view_str(big), "stdout", VIEW("x\n"));
	}
	console_read(&ep, &reader, 1 << 20, &v, &lost);
	for (i = 0; v.n > 0; i++)
		v = view_from(v, view_find(v, '\n') + 1);
	tap_is_int((int)i, CONSOLE_SOURCES_MAX - 1, "so are its programs");
	console_read_stop(&reader);
	console_read_stop(&reader);
	end();
	tap_is_int((int)overs, 0, "who left is not told");
	console_free(NULL);
}

static void
test_memory(void)
{
	uint64_t lost;
	unsigned n;

	memset(&ep, 0, sizeof(ep));
	mem_fail_after(1, 1);
	add("a", "lost\n");
	tap_is_int(console_read_start(&ep, &reader), SP_E_NOMEM,
	    "no memory to read");
	mem_fail_after(0, 0);
	begin();
	for (n = 1; n < 12; n++) {
		mem_fail_after(n, 1);
		add("a", "one\ntwo");
		add("b", "\n");
		mem_fail_after(0, 0);
		add("a", "\n");
		if (strcmp(texts(1 << 20, &lost), "bad") == 0)
			break;
	}
	tap_is_int((int)n, 12, "without memory lines are lost, and no more");
	end();
}

/* A full one takes a line without moving all that it keeps. */
static void
test_full(void)
{
	static char lines[CONSOLE_KEPT_BYTES];
	struct console_reader r = { .next = 0 };
	unsigned i, moved = 0;
	const char *was = NULL;
	uint64_t lost;
	struct view v;

	begin();
	memset(lines, '\n', sizeof(lines));
	console_add(&ep, VIEW("a"), "stdout", view_of(lines, sizeof(lines)));
	for (i = 0; i < 3000; i++) {
		console_add(&ep, VIEW("a"), "stdout", VIEW("\n"));
		r.next = 0;
		console_read(&ep, &r, CONSOLE_KEPT_BYTES, &v, &lost);
		moved += was != NULL && v.p + v.n < was;
		was = v.p + v.n;
	}
	tap_ok(moved > 0 && moved < 5, "3000 lines move it %u times", moved);
	end();
}

int
main(void)
{
	test_lines();
	test_bounds();
	test_full();
	test_memory();
	return tap_done();
}

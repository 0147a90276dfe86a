/* What the recorder's tests share: fixtures read, records looked into. */
#ifndef SP_T_UNIT_RECORDER_PEER_H
#define SP_T_UNIT_RECORDER_PEER_H

#include <dirent.h>
#include <stdlib.h>

#include "conf/conf.h"
#include "json/jscan.h"
#include "recorder/record.h"
#include "tap.h"

#define PEER_MAX ((size_t)256 * 1024 * 1024)

/* A whole file of the fixtures, with a NUL behind it. */
static inline char *
peer_slurp(const char *name, size_t *n)
{
	char path[600];
	long size;
	char *p;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", FIXTURES, name);
	f = fopen(path, "rb");
	if (f == NULL)
		return NULL;
	if (fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) < 0 ||
	    fseek(f, 0, SEEK_SET) != 0) {
		fclose(f);
		return NULL;
	}
	p = malloc((size_t)size + 1);
	if (p != NULL && fread(p, 1, (size_t)size, f) == (size_t)size) {
		p[size] = '\0';
		*n = (size_t)size;
	} else {
		free(p);
		p = NULL;
	}
	fclose(f);
	return p;
}

/* Feeds the lines of a fixture: data and error fields, LF alone ends one. */
static inline void
peer_feed(struct assemble *a, struct view text, unsigned *flags)
{
	struct view line;

	while (view_split(&text, '\n', &line)) {
		bool error = view_starts(line, VIEW("error:"));

		if (!error && !view_starts(line, VIEW("data:")))
			continue;
		line = view_from(line, error ? 6 : 5);
		if (view_starts(line, VIEW(" ")))
			line = view_from(line, 1);
		if (view_eq(line, VIEW("[DONE]")))
			*flags |= MESSAGE_TURN_DONE_SEEN;
		else if (error)
			assemble_error(a, line);
		else
			assemble_event(a, line);
	}
}

/*
 * The value at a path such as "response.choices.0.message.content", as it
 * stands in the text; an empty view: nothing is there.
 */
static inline struct view
peer_at(struct view text, const char *path)
{
	struct view rest = view_str(path), step;
	struct jscan_span v;
	struct jscan s;
	unsigned long n;

	while (view_split(&rest, '.', &step)) {
		if (text.n == 0)
			return VIEW_NONE;
		jscan_init(&s, text, 0);
		if (text.p[0] == '{') {
			if (jscan_find(text, step, &v) != 1)
				return VIEW_NONE;
			text = jscan_raw(&s, &v);
			continue;
		}
		if (text.p[0] != '[' || jscan_enter(&s) != 0)
			return VIEW_NONE;
		for (n = strtoul(step.p, NULL, 10) + 1; n > 0; n--)
			if (jscan_element(&s) != 1 || jscan_skip(&s, &v) != 0)
				return VIEW_NONE;
		text = jscan_raw(&s, &v);
	}
	return text;
}

static inline bool
peer_has_finding(struct view record, const char *code)
{
	char quoted[80];

	snprintf(quoted, sizeof(quoted), "\"%s\"", code);
	return view_search(peer_at(record, "findings"), view_str(quoted)) <
	    peer_at(record, "findings").n;
}

static inline void
peer_is(struct view record, const char *path, const char *want,
    const char *what)
{
	struct view got = peer_at(record, path);
	char name[600];

	snprintf(name, sizeof(name), "%s: %s", what, path);
	tap_is_mem(got.p, got.n, want, strlen(want), name);
}

#endif

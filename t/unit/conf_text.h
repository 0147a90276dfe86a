/* Shared by the tests of core/conf: text to configuration, files to text. */
#ifndef SP_T_UNIT_CONF_TEXT_H
#define SP_T_UNIT_CONF_TEXT_H

#include <stdio.h>
#include <stdlib.h>

#include "conf/conf.h"
#include "tap.h"

static const struct conf_defaults conf_text_defaults = {
	.state_dir = "/state",
	.run_dir = "/run",
	.conf_dir = "/etc/test",
};

/* Expands and parses; errors go to err. */
static inline int
conf_text_parse(const char *text, struct conf **out, struct buf *err)
{
	struct buf expanded = BUF_INIT(8 << 20);
	int rc;

	*out = NULL;
	rc = conf_expand_text("t", view_str(text), VIEW_NONE, &expanded, err);
	if (rc == 0)
		rc = conf_parse(buf_view(&expanded), &conf_text_defaults, out,
		    err);
	buf_clear(&expanded);
	return rc;
}

/* A file below the source tree, NUL-terminated; NULL: not there. */
static inline char *
conf_text_file(const char *name)
{
	const char *srcdir = getenv("srcdir");
	char path[4096];
	char *text;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "%s/%s",
	    srcdir != NULL ? srcdir : TEST_SRCDIR, name);
	f = fopen(path, "rb");
	if (f == NULL)
		return NULL;
	text = calloc(1, 1 << 18);
	if (text != NULL) {
		n = fread(text, 1, (1 << 18) - 1, f);
		text[n] = '\0';
	}
	fclose(f);
	return text;
}

/* What it is warned of, joined; want may be "". */
static inline void
conf_text_warned(const char *text, const char *want)
{
	struct buf err = BUF_INIT(1 << 16), got = BUF_INIT(1 << 16);
	struct conf *c = NULL;
	size_t i;

	if (conf_text_parse(text, &c, &err) != SP_OK)
		abort();
	for (i = 0; i < c->warnings.n; i++)
		if (buf_printf(&got, "%.*s\n", VIEW_ARG(c->warnings.v[i])) !=
		    SP_OK)
			abort();
	if (buf_add_char(&got, 0) != SP_OK)
		abort();
	tap_is_str(buf_view(&got).p, want, "what it is warned of");
	conf_free(c);
	buf_clear(&got);
	buf_clear(&err);
}

#endif

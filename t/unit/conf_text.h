/* Shared by the tests of core/conf: text to configuration, files to text. */
#ifndef SP_T_UNIT_CONF_TEXT_H
#define SP_T_UNIT_CONF_TEXT_H

#include <stdio.h>
#include <stdlib.h>

#include "conf/conf.h"

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

#endif

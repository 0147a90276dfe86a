/*
 * core/conf: text expanded, parsed and dumped.  What parses must dump to what
 * parses to the same dump.  Input that begins with the magic of expanded text
 * goes to the parser as it is.
 */
#include <stdint.h>

#include "conf/conf.h"
#include "conf/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct conf_defaults defaults = {
	.state_dir = "/state",
	.conf_dir = "/etc",
};

/* An include would read this machine's files. */
static bool
has_include(struct view v)
{
	return view_search(v, VIEW("nclud")) < v.n;
}

static struct conf *
parse(struct view text)
{
	struct buf expanded = BUF_INIT(1 << 20), err = BUF_INIT(1 << 16);
	struct conf *c = NULL;
	int rc;

	rc = conf_expand_text("f", text, VIEW_NONE, &expanded, &err);
	if (rc == 0)
		rc = conf_parse(buf_view(&expanded), &defaults, &c, &err);
	err_assert(rc == 0 || (c == NULL && buf_len(&err) > 0));
	buf_clear(&expanded);
	buf_clear(&err);
	return rc == 0 ? c : NULL;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct buf err = BUF_INIT(1 << 16);
	struct buf a = BUF_INIT(1 << 20), b = BUF_INIT(1 << 20);
	struct view text = view_of(data, n);
	struct conf *c = NULL;

	if (n > 65536 || has_include(text))
		return 0;
	if (view_starts(text, VIEW(CONF_TEXT_MAGIC))) {
		if (conf_parse(text, &defaults, &c, &err) == 0)
			conf_free(c);
		buf_clear(&err);
		return 0;
	}
	c = parse(text);
	if (c == NULL)
		return 0;
	if (conf_dump(c, &a) == 0) {
		struct conf *again = parse(buf_view(&a));

		err_assert(again != NULL);
		err_assert(conf_dump(again, &b) == 0);
		err_assert(view_eq(buf_view(&a), buf_view(&b)));
		conf_free(again);
	}
	conf_free(c);
	buf_clear(&a);
	buf_clear(&b);
	return 0;
}

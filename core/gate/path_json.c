#include "config.h"

#include "gate/path_json.h"

#include "base/utf8.h"
#include "json/jwrite.h"

int
path_json_put(struct view path, struct buf *out)
{
	struct buf part = BUF_INIT(path.n * 6 + 16);
	struct view rest;
	struct jwrite w;
	uint32_t cp;
	size_t i = 0, from = 0;
	unsigned n;
	int rc = buf_add_char(out, '"');

	while (rc == SP_OK && i <= path.n) {
		rest = view_from(path, i);
		n = rest.n > 0 ? utf8_decode(rest, &cp) : 0;
		if (n > 0) {
			i += n;
			continue;
		}
		buf_reset(&part, SIZE_MAX);
		jwrite_init(&w, &part);
		jwrite_string(&w, view_sub(path, from, i - from));
		rc = jwrite_finish(&w);
		if (rc == SP_OK)
			rc = buf_add_view(out,
			    view_sub(buf_view(&part), 1, buf_len(&part) - 2));
		if (rc == SP_OK && rest.n > 0)
			rc = buf_printf(out, "\\udc%02x",
			    (unsigned)(unsigned char)rest.p[0]);
		from = ++i;
	}
	buf_clear(&part);
	return rc == SP_OK ? buf_add_char(out, '"') : rc;
}

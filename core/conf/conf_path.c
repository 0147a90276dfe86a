/* The one place where paths of requests and locations are normalised. */
#include "base/num.h"
#include "conf/conf.h"

/* RFC 3986 s2.3 */
static bool
is_unreserved(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	    (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
	    c == '~';
}

/* RFC 3986 s3.3: what else a segment may hold as it is. */
static bool
is_pchar(char c)
{
	return is_unreserved((unsigned char)c) ||
	    (c != '\0' && strchr("!$&'()*+,;=:@", c) != NULL);
}

/* Adds an escape; "%" was seen at raw.p[i]. */
static int
add_escape(struct view raw, size_t i, struct buf *out)
{
	static const char hex[] = "0123456789ABCDEF";
	uint64_t byte;
	char text[3];

	if (raw.n - i < 3 || num_hex(view_sub(raw, i + 1, 2), 0xff, &byte) != 0)
		return SP_E_SYNTAX;
	/* An encoded separator means one thing here, another upstream. */
	if (byte == 0 || byte == '/' || byte == '\\')
		return SP_E_SYNTAX;
	if (is_unreserved((unsigned char)byte))
		return buf_add_char(out, (char)byte);
	text[0] = '%';
	text[1] = hex[byte >> 4];
	text[2] = hex[byte & 15];
	return buf_add(out, text, sizeof(text));
}

/*
 * Ends the segment that began at `from` (its slash): drops empty ones and
 * ".", and with ".." the one before.
 */
static int
end_segment(struct buf *out, size_t start, size_t from)
{
	struct view all = buf_view(out);
	struct view seg = view_from(all, from + 1);
	size_t to;

	if (seg.n == 0 || view_eq(seg, VIEW("."))) {
		buf_truncate(out, from);
		return 0;
	}
	if (!view_eq(seg, VIEW("..")))
		return 0;
	if (from == start || all.p == NULL)
		return SP_E_SYNTAX; /* would leave the root */
	to = from - 1;
	while (to > start && all.p[to] != '/')
		to--;
	buf_truncate(out, to);
	return 0;
}

static int
normalise(struct view raw, size_t start, struct buf *out)
{
	size_t from = start, i;
	int rc = 0;

	for (i = 0; i < raw.n && rc == 0; i++) {
		char c = raw.p[i];

		if (c == '/') {
			if (i > 0)
				rc = end_segment(out, start, from);
			from = buf_len(out);
			if (rc == 0)
				rc = buf_add_char(out, '/');
		} else if (c == '%') {
			rc = add_escape(raw, i, out);
			i += 2;
		} else if (is_pchar(c)) {
			rc = buf_add_char(out, c);
		} else {
			rc = SP_E_SYNTAX;
		}
	}
	if (rc == 0)
		rc = end_segment(out, start, from);
	if (rc == 0 && buf_len(out) == start)
		rc = buf_add_char(out, '/');
	return rc;
}

int
conf_path_normalise(struct view raw, struct buf *out)
{
	size_t start = buf_len(out);
	int rc;

	raw = view_sub(raw, 0, view_find(raw, '?'));
	if (raw.n == 0 || raw.p[0] != '/')
		return SP_E_SYNTAX;
	rc = normalise(raw, start, out);
	if (rc != 0)
		buf_truncate(out, start);
	return rc;
}

bool
conf_path_beneath(struct view path, struct view root)
{
	if (view_eq(root, VIEW("/")))
		return true;
	return view_starts(path, root) &&
	    (path.n == root.n || path.p[root.n] == '/');
}

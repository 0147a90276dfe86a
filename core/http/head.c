#include "config.h"

#include "http/head.h"

enum { HEAD_FIRST_FIELDS = 8 };

/* RFC 9110 s5.6.2: tchar. */
static bool
head_is_tchar(unsigned char c)
{
	static const unsigned char map[32] = {
		[0x21 / 8] = 0xfa, /* ! # $ % & ' */
		[0x28 / 8] = 0x6c, /* * + - . */
		[0x30 / 8] = 0xff, /* 0 to 7 */
		[0x38 / 8] = 0x03, /* 8 9 */
		[0x40 / 8] = 0xfe, /* A to G */
		[0x48 / 8] = 0xff,
		[0x50 / 8] = 0xff,
		[0x58 / 8] = 0xc7, /* X Y Z ^ _ */
		[0x60 / 8] = 0xff, /* ` a to g */
		[0x68 / 8] = 0xff,
		[0x70 / 8] = 0xff,
		[0x78 / 8] = 0x57, /* x y z | ~ */
	};

	return (map[c >> 3] >> (c & 7) & 1) != 0;
}

bool
head_is_token(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++)
		if (!head_is_tchar((unsigned char)v.p[i]))
			return false;
	return v.n != 0;
}

void
head_fields_init(struct head_fields *f, struct arena *a)
{
	*f = (struct head_fields){ .arena = a };
}

/*
 * The list only ever grows: the arena cannot take memory back, so doubling
 * wastes at most as much as the list holds.
 */
static int
head_room(struct head_fields *f)
{
	size_t cap = f->cap != 0 ? f->cap * 2 : HEAD_FIRST_FIELDS;
	struct head_field *v;

	if (f->n < f->cap)
		return 0;
	if (cap > SIZE_MAX / sizeof(*v) || f->arena == NULL)
		return SP_E_NOMEM;
	v = arena_alloc(f->arena, cap * sizeof(*v));
	if (v == NULL)
		return SP_E_NOMEM;
	if (f->n != 0)
		memcpy(v, f->v, f->n * sizeof(*v));
	f->v = v;
	f->cap = cap;
	return 0;
}

/* What would end the line early or split the message. */
static bool
head_value_ok(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++)
		if (v.p[i] == '\r' || v.p[i] == '\n' || v.p[i] == '\0')
			return false;
	return true;
}

int
head_add_borrowed(struct head_fields *f, struct view name, struct view value)
{
	int rc;

	if (!head_is_token(name) || !head_value_ok(value))
		return SP_E_SYNTAX;
	rc = head_room(f);
	if (rc != 0)
		return rc;
	f->v[f->n++] = (struct head_field){ name, value };
	return 0;
}

int
head_add(struct head_fields *f, struct view name, struct view value)
{
	struct view n, v;
	char *p;

	if (!head_is_token(name) || !head_value_ok(value))
		return SP_E_SYNTAX;
	if (f->arena == NULL || name.n > SIZE_MAX - value.n ||
	    (p = arena_alloc(f->arena, name.n + value.n)) == NULL)
		return SP_E_NOMEM;
	memcpy(p, name.p, name.n);
	if (value.n != 0)
		memcpy(p + name.n, value.p, value.n);
	n = view_of(p, name.n);
	v = view_of(p + name.n, value.n);
	return head_add_borrowed(f, n, v);
}

struct view
head_get(const struct head_fields *f, struct view name)
{
	size_t i;

	for (i = 0; i < f->n; i++)
		if (view_eq_nocase(f->v[i].name, name))
			return f->v[i].value;
	return VIEW_NONE;
}

size_t
head_count(const struct head_fields *f, struct view name)
{
	size_t i, n = 0;

	for (i = 0; i < f->n; i++)
		n += view_eq_nocase(f->v[i].name, name);
	return n;
}

size_t
head_del(struct head_fields *f, struct view name)
{
	size_t i, kept = 0, gone;

	for (i = 0; i < f->n; i++)
		if (!view_eq_nocase(f->v[i].name, name))
			f->v[kept++] = f->v[i];
	gone = f->n - kept;
	f->n = kept;
	return gone;
}

bool
head_list_has(struct view list, struct view token)
{
	struct view piece;

	while (view_split(&list, ',', &piece))
		if (view_eq_nocase(view_trim(piece), token))
			return true;
	return false;
}

bool
head_is_hop(struct view name)
{
	static const struct view hop[] = {
		{ "connection", 10 },
		{ "keep-alive", 10 },
		{ "proxy-connection", 16 },
		{ "te", 2 },
		{ "trailer", 7 },
		{ "transfer-encoding", 17 },
		{ "upgrade", 7 },
		{ "proxy-authenticate", 18 },
		{ "proxy-authorization", 19 },
	};
	size_t i;

	for (i = 0; i < sizeof(hop) / sizeof(hop[0]); i++)
		if (view_eq_nocase(name, hop[i]))
			return true;
	return false;
}

bool
head_is_digest(struct view name)
{
	/* RFC 9530 s2, s3; RFC 3230 s4.3.2; RFC 1864 */
	static const struct view digests[] = {
		{ "content-digest", 14 },
		{ "repr-digest", 11 },
		{ "digest", 6 },
		{ "content-md5", 11 },
	};
	size_t i;

	for (i = 0; i < sizeof(digests) / sizeof(digests[0]); i++)
		if (view_eq_nocase(name, digests[i]))
			return true;
	return false;
}

size_t
head_codings(const struct head_fields *f, struct view *last)
{
	struct view list, one;
	size_t i, n = 0;

	*last = VIEW_NONE;
	for (i = 0; i < f->n; i++) {
		if (!view_eq_nocase(f->v[i].name, VIEW("content-encoding")))
			continue;
		list = f->v[i].value;
		while (view_split(&list, ',', &one)) {
			one = view_trim(one);
			/* RFC 9110 s8.4.1: no coding at all */
			if (one.n == 0 || view_eq_nocase(one, VIEW("identity")))
				continue;
			*last = one;
			n++;
		}
	}
	return n;
}

const char *
head_reason(unsigned status)
{
	static const struct {
		unsigned status;
		const char *reason;
	} table[] = {
		{ 100, "Continue" },
		{ 101, "Switching Protocols" },
		{ 200, "OK" },
		{ 201, "Created" },
		{ 202, "Accepted" },
		{ 204, "No Content" },
		{ 206, "Partial Content" },
		{ 301, "Moved Permanently" },
		{ 302, "Found" },
		{ 303, "See Other" },
		{ 304, "Not Modified" },
		{ 307, "Temporary Redirect" },
		{ 308, "Permanent Redirect" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 402, "Payment Required" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 406, "Not Acceptable" },
		{ 408, "Request Timeout" },
		{ 409, "Conflict" },
		{ 410, "Gone" },
		{ 411, "Length Required" },
		{ 412, "Precondition Failed" },
		{ 413, "Content Too Large" },
		{ 414, "URI Too Long" },
		{ 415, "Unsupported Media Type" },
		{ 416, "Range Not Satisfiable" },
		{ 417, "Expectation Failed" },
		{ 421, "Misdirected Request" },
		{ 422, "Unprocessable Content" },
		{ 426, "Upgrade Required" },
		{ 428, "Precondition Required" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 500, "Internal Server Error" },
		{ 501, "Not Implemented" },
		{ 502, "Bad Gateway" },
		{ 503, "Service Unavailable" },
		{ 504, "Gateway Timeout" },
		{ 505, "HTTP Version Not Supported" },
	};
	size_t i;

	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (table[i].status == status)
			return table[i].reason;
	return "";
}

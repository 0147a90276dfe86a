#include "config.h"

#include "base/num.h"
#include "http/h1_parse.h"

/* Sets the fault and fails. */
static int
parse_fault(struct h1_fault *f, unsigned status, const char *what)
{
	f->status = status;
	f->what = what;
	return SP_E_SYNTAX;
}

/* Visible ASCII, what a request target is made of (RFC 3986 s2). */
static bool
parse_is_visible(struct view v, const char *but_not)
{
	size_t i;

	for (i = 0; i < v.n; i++)
		if (v.p[i] <= 0x20 || v.p[i] == 0x7f ||
		    strchr(but_not, v.p[i]) != NULL)
			return false;
	return true;
}

bool
h1_parse_is_target(struct view v)
{
	return v.n != 0 && parse_is_visible(v, "#\\");
}

/* RFC 9110 s5.5: field values hold no control characters. */
static bool
parse_is_text(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++) {
		unsigned char c = (unsigned char)v.p[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

static bool
parse_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* ---- first lines ----------------------------------------------------------
 */

/*
 * RFC 9112 s2.3: "HTTP/" DIGIT "." DIGIT, case-sensitive.  1.2 to 1.9 are
 * served as 1.1 (RFC 9110 s2.5).
 */
static int
parse_version(struct view v, bool *http10, struct h1_fault *f)
{
	if (!view_starts(v, VIEW("HTTP/")))
		return parse_fault(f, 400, "bad protocol version");
	v = view_from(v, 5);
	if (v.n == 0 || !parse_is_digit(v.p[0]) ||
	    (v.n != 1 &&
		(v.n != 3 || v.p[1] != '.' || !parse_is_digit(v.p[2]))))
		return parse_fault(f, 400, "bad protocol version");
	/* RFC 9113 s3.3, s3.4: HTTP/2 is not begun by a request line */
	if (v.p[0] == '2')
		return parse_fault(f, 505,
		    "HTTP/2 begins with its preface or by ALPN; a first line "
		    "says HTTP/1.1 or HTTP/1.0");
	if (v.n != 3 || v.p[0] != '1')
		return parse_fault(f, 505,
		    "only HTTP/1.1, HTTP/1.0 and HTTP/2 are spoken here");
	*http10 = v.p[2] == '0';
	return 0;
}

/* RFC 9112 s3: method SP request-target SP HTTP-version. */
static int
parse_request_line(struct view line, struct head_request *out,
    struct h1_fault *f)
{
	size_t sp = view_find(line, ' ');
	size_t last;

	out->method = view_sub(line, 0, sp);
	if (!head_is_token(out->method))
		return parse_fault(f, 400, "bad method");
	line = view_from(line, sp + 1);
	last = view_find(line, ' ');
	out->target = view_sub(line, 0, last);
	if (!h1_parse_is_target(out->target))
		return parse_fault(f, 400, "bad request target");
	if (last == line.n)
		return parse_fault(f, 505, "HTTP/0.9 is not spoken here");
	return parse_version(view_from(line, last + 1), &out->http10, f);
}

/* RFC 9112 s4: HTTP-version SP status-code SP [ reason-phrase ]. */
static int
parse_status_line(struct view line, bool *http10, unsigned *status,
    struct h1_fault *f)
{
	uint64_t code;
	int rc = parse_version(view_sub(line, 0, 8), http10, f);

	if (rc != 0)
		return rc;
	line = view_from(line, 8);
	/* the space before an empty reason is often left out */
	if (line.n < 4 || line.p[0] != ' ' ||
	    num_u64(view_sub(line, 1, 3), 100, 599, &code) != 0 ||
	    (line.n > 4 && line.p[4] != ' ') || !parse_is_text(line))
		return parse_fault(f, 502, "bad status line");
	*status = (unsigned)code;
	return 0;
}

static int
parse_first_line(struct view line, bool reply, struct h1_fault *f)
{
	struct head_request rq;
	unsigned status;
	bool http10;

	return reply ? parse_status_line(line, &http10, &status, f)
		     : parse_request_line(line, &rq, f);
}

/* ---- the end of the head --------------------------------------------------
 */

/* Of a reply the limits are ours, and no directive's. */
static int
scan_too_long(const struct h1_scan *s, bool line, struct h1_fault *f)
{
	if (s->reply)
		(void)parse_fault(f, 431, "header fields too large");
	else if (s->lines == 0)
		(void)parse_fault(f, 414, HEAD_LINE_LONG);
	else
		(void)parse_fault(f, 431,
		    line ? HEAD_FIELD_LARGE : HEAD_FIELDS_LARGE);
	return SP_E_LIMIT;
}

/* A request may follow one empty line (RFC 9112 s2.2), never two. */
static int
scan_start(struct h1_scan *s, struct view bytes, struct h1_fault *f)
{
	if (s->reply)
		return bytes.p[0] == 'H'
		    ? 0
		    : parse_fault(f, 502, "bad status line");
	if (bytes.p[0] != '\r') {
		/* TLS or another protocol shows in its first byte */
		if (!head_is_token(view_sub(bytes, 0, 1)))
			return parse_fault(f, 400, "bad method");
		return 0;
	}
	if (bytes.n < 2)
		return SP_E_AGAIN;
	if (bytes.p[1] != '\n')
		return parse_fault(f, 400, "bare CR");
	if (bytes.n < 3)
		return SP_E_AGAIN;
	if (!head_is_token(view_sub(bytes, 2, 1)))
		return parse_fault(f, 400, "bad method");
	s->skip = s->line = 2;
	return 0;
}

/*
 * One line that is whole.  Returns 0 more lines follow; 1 the head ends here.
 */
static int
scan_line(struct h1_scan *s, struct view line,
    const struct h1_scan_limits *limits, struct h1_fault *f)
{
	if (line.n == 0 || line.p[line.n - 1] != '\r')
		return parse_fault(f, 400, "bare LF");
	line.n--;
	if (view_find(line, '\r') != line.n)
		return parse_fault(f, 400, "bare CR");
	if (line.n == 0)
		return 1;
	if (s->lines == 0) {
		int rc = parse_first_line(line, s->reply, f);

		if (rc != 0)
			return rc;
	} else if (s->lines > limits->fields_max) {
		(void)parse_fault(f, 431,
		    s->reply ? "too many header fields" : HEAD_FIELDS_MANY);
		return SP_E_LIMIT;
	}
	s->lines++;
	return 0;
}

int
h1_parse_scan(struct h1_scan *s, struct view bytes,
    const struct h1_scan_limits *limits, size_t *head_n, struct h1_fault *fault)
{
	size_t n, max;
	int rc;

	if (bytes.n == 0)
		return SP_E_AGAIN;
	if (s->line == 0) {
		rc = scan_start(s, bytes, fault);
		if (rc != 0)
			return rc;
	}
	for (;;) {
		struct view rest = view_from(bytes, s->line);

		/* the limits count neither CR LF nor what comes later */
		max = limits->total_max - (s->line - s->skip);
		if (max > limits->line_max)
			max = limits->line_max;
		if (rest.n > max + 2)
			rest.n = max + 2;
		n = view_find(rest, '\n');
		if (n == rest.n)
			return n == max + 2
			    ? scan_too_long(s, max == limits->line_max, fault)
			    : SP_E_AGAIN;
		rc = scan_line(s, view_sub(rest, 0, n), limits, fault);
		s->line += n + 1;
		if (rc < 0)
			return rc;
		if (rc == 1)
			break;
		if (s->line - s->skip > limits->total_max)
			return scan_too_long(s, false, fault);
	}
	*head_n = s->line;
	return 0;
}

/* ---- fields ---------------------------------------------------------------
 */

/* What the fields say that is not handed on. */
struct parse_special {
	struct view host, length;
	struct view upgrade; /* the first */
	size_t hosts, lengths, encodings;
	bool chunked; /* last coding so far */
	bool other_coding;
	bool bad_coding;
	bool length_differs;
	bool close, keep_alive, upgrades;
	bool expect, bad_expect;
	bool nominates; /* Connection names other fields */
};

/* RFC 9112 s5: field-name ":" OWS field-value OWS. */
static int
parse_field(struct view line, struct head_field *out, struct h1_fault *f)
{
	size_t colon = view_find(line, ':');

	if (line.p[0] == ' ' || line.p[0] == '\t')
		return parse_fault(f, 400, "folded header field"); /* s5.2 */
	out->name = view_sub(line, 0, colon);
	if (colon == line.n || !head_is_token(out->name))
		return parse_fault(f, 400, "bad header field name");
	out->value = view_trim(view_from(line, colon + 1));
	if (!parse_is_text(out->value))
		return parse_fault(f, 400, "bad header field value");
	return 0;
}

/* RFC 9112 s7: a list of codings; only chunked is known, once, at the end. */
static void
parse_codings(struct parse_special *sp, struct view value)
{
	struct view piece;

	sp->encodings++;
	if (value.n == 0)
		sp->bad_coding = true;
	while (view_split(&value, ',', &piece)) {
		piece = view_trim(piece);
		if (sp->chunked || !head_is_token(view_sub(piece, 0, 1)))
			sp->bad_coding = true;
		if (view_eq_nocase(piece, VIEW("chunked")))
			sp->chunked = true;
		else
			sp->other_coding = true;
	}
}

static void
parse_connection(struct parse_special *sp, struct view value)
{
	struct view piece;

	while (view_split(&value, ',', &piece)) {
		piece = view_trim(piece);
		if (view_eq_nocase(piece, VIEW("close")))
			sp->close = true;
		else if (view_eq_nocase(piece, VIEW("keep-alive")))
			sp->keep_alive = true;
		else if (view_eq_nocase(piece, VIEW("upgrade")))
			sp->upgrades = true;
		else if (piece.n != 0)
			sp->nominates = true;
	}
}

static void
parse_length(struct parse_special *sp, struct view value)
{
	if (sp->lengths++ == 0)
		sp->length = value;
	else if (!view_eq(sp->length, value))
		sp->length_differs = true;
}

/* True when the field is not one to hand on. */
static bool
parse_is_special(struct parse_special *sp, const struct head_field *h,
    bool reply)
{
	if (view_eq_nocase(h->name, VIEW("content-length"))) {
		parse_length(sp, h->value);
		return true;
	}
	if (view_eq_nocase(h->name, VIEW("transfer-encoding"))) {
		parse_codings(sp, h->value);
		return true;
	}
	if (view_eq_nocase(h->name, VIEW("connection"))) {
		parse_connection(sp, h->value);
		return true;
	}
	if (!reply && view_eq_nocase(h->name, VIEW("host"))) {
		sp->hosts++;
		sp->host = h->value;
		return true;
	}
	if (!reply && view_eq_nocase(h->name, VIEW("expect"))) {
		sp->expect = true;
		if (!view_eq_nocase(h->value, VIEW("100-continue")))
			sp->bad_expect = true;
		return true;
	}
	if (sp->upgrade.n == 0 && view_eq_nocase(h->name, VIEW("upgrade")))
		sp->upgrade = h->value;
	return head_is_hop(h->name);
}

/*
 * RFC 9110 s7.6.1: what Connection names is for this hop alone.  lines: the
 * field lines of the head, read once more for their Connection fields.
 */
static void
parse_drop_nominated(struct view lines, struct head_fields *fields)
{
	struct view line, value, piece;

	while (view_split(&lines, '\n', &line)) {
		size_t colon = view_find(line, ':');

		if (!view_eq_nocase(view_sub(line, 0, colon),
			VIEW("connection")))
			continue;
		if (line.n != 0)
			line.n--; /* CR */
		value = view_from(line, colon + 1);
		while (view_split(&value, ',', &piece))
			(void)head_del(fields, view_trim(piece));
	}
}

/*
 * All fields after the first line.  The list is allocated for as many as there
 * are lines; lines were counted, and are bounded, by h1_parse_scan().
 */
static int
parse_fields(struct view rest, const struct h1_scan *s, struct arena *a,
    struct head_fields *out, struct parse_special *sp, struct h1_fault *f)
{
	struct view lines_all = rest;
	struct head_field h;
	int rc;

	head_fields_init(out, a);
	if (s->lines > 1) {
		out->v = arena_alloc(a, (s->lines - 1) * sizeof(*out->v));
		if (out->v == NULL)
			return SP_E_NOMEM;
		out->cap = s->lines - 1;
	}
	while (rest.n > 2) {
		size_t n = view_find(rest, '\n');

		rc = parse_field(view_sub(rest, 0, n - 1), &h, f);
		if (rc != 0)
			return rc;
		err_assert(out->n < out->cap);
		if (!parse_is_special(sp, &h, s->reply))
			out->v[out->n++] = h;
		rest = view_from(rest, n + 1);
	}
	if (sp->nominates)
		parse_drop_nominated(lines_all, out);
	return 0;
}

/* The first line without CR LF, and all lines after it. */
static struct view
parse_cut_first(struct view head, size_t skip, struct view *rest)
{
	struct view v = view_from(head, skip);
	size_t n = view_find(v, '\n');

	*rest = view_from(v, n + 1);
	return view_sub(v, 0, n - 1);
}

/* ---- requests -------------------------------------------------------------
 */

/* RFC 3986 s3.2.2, s3.2.3: host [ ":" port ], no userinfo. */
bool
h1_parse_is_authority(struct view v)
{
	struct view host = v, port = VIEW_NONE;
	uint64_t number;
	size_t i, end;

	if (v.n != 0 && v.p[0] == '[') {
		end = view_find(v, ']');
		if (end == v.n || end == 1)
			return false;
		for (i = 1; i < end; i++)
			if (strchr("0123456789abcdefABCDEF:.", v.p[i]) ==
				NULL ||
			    v.p[i] == '\0')
				return false;
		host = VIEW_NONE;
		port = view_from(v, end + 1);
		if (port.n != 0 && port.p[0] != ':')
			return false;
		port = view_from(port, 1);
	} else if ((end = view_find(v, ':')) != v.n) {
		host = view_sub(v, 0, end);
		port = view_from(v, end + 1);
	}
	if (port.n != 0 && num_u64(port, 0, 65535, &number) != 0)
		return false;
	/* reg-name, less what some reader takes for a separator */
	return parse_is_visible(host, "\"#,/<>?@[\\]^`{|}");
}

/* RFC 9112 s3.2.2: scheme "://" authority path-abempty [ "?" query ]. */
static int
parse_absolute(struct head_request *out, struct view *path, struct h1_fault *f)
{
	static const struct view schemes[] = { { "http://", 7 },
		{ "https://", 8 } };
	struct view rest = VIEW_NONE;
	size_t i, end;

	for (i = 0; i < 2 && rest.p == NULL; i++)
		if (view_eq_nocase(view_sub(out->target, 0, schemes[i].n),
			schemes[i]))
			rest = view_from(out->target, schemes[i].n);
	if (rest.p == NULL)
		rest.n = 0;
	for (end = 0; end < rest.n; end++)
		if (rest.p[end] == '/' || rest.p[end] == '?')
			break;
	out->authority = view_sub(rest, 0, end);
	if (end == 0 || !h1_parse_is_authority(out->authority))
		return parse_fault(f, 400, "bad request target");
	*path = view_from(rest, end);
	return 0;
}

/* RFC 9112 s3.2: the four forms of a target. */
static int
parse_target(struct head_request *out, struct h1_fault *f)
{
	struct view path = out->target;
	size_t mark;
	int rc;

	if (view_eq(out->method, VIEW("CONNECT")))
		return parse_fault(f, 405, "CONNECT is not served here");
	if (view_eq(path, VIEW("*"))) {
		if (!view_eq(out->method, VIEW("OPTIONS")))
			return parse_fault(f, 400, "bad request target");
		out->path = path;
		return 0;
	}
	if (path.p[0] != '/') {
		rc = parse_absolute(out, &path, f);
		if (rc != 0)
			return rc;
	}
	mark = view_find(path, '?');
	out->path = view_sub(path, 0, mark);
	out->query = view_from(path, mark + 1);
	if (out->path.n == 0)
		out->path = VIEW("/");
	return 0;
}

/*
 * RFC 9112 s6.3, without its leniencies: a message that gives its length in
 * two ways is refused, whatever the two say.
 */
static int
parse_request_body(struct head_request *out, const struct parse_special *sp,
    struct h1_framing *fr, struct h1_fault *f)
{
	if (sp->encodings != 0 && sp->lengths != 0)
		return parse_fault(f, 400,
		    "both Content-Length and Transfer-Encoding");
	if (sp->encodings != 0 && out->http10)
		return parse_fault(f, 400, "Transfer-Encoding in HTTP/1.0");
	if (sp->bad_coding)
		return parse_fault(f, 400, "bad Transfer-Encoding");
	if (sp->other_coding)
		return parse_fault(f, 501, "unknown Transfer-Encoding");
	if (sp->lengths > 1)
		return parse_fault(f, 400, "more than one Content-Length");
	if (sp->lengths == 1 &&
	    num_u64(sp->length, 0, INT64_MAX, &fr->length) != 0)
		return parse_fault(f, 400, "bad Content-Length");
	if (sp->lengths == 1)
		out->content_length = (int64_t)fr->length;
	if (sp->encodings != 0)
		fr->kind = H1_BODY_CHUNKED;
	else if (fr->length != 0)
		fr->kind = H1_BODY_LENGTH;
	out->has_body = fr->kind != H1_BODY_NONE;
	return 0;
}

/* RFC 9112 s3.2: exactly one Host; RFC 9110 s10.1.1: Expect. */
static int
parse_request_special(struct head_request *out, const struct parse_special *sp,
    struct h1_framing *fr, struct h1_fault *f)
{
	if (sp->hosts > 1 || (sp->hosts == 0 && !out->http10))
		return parse_fault(f, 400, "exactly one Host is needed");
	if (!h1_parse_is_authority(sp->host))
		return parse_fault(f, 400, "bad Host");
	/* an absolute target wins over Host (s3.2.2) */
	if (out->authority.n == 0)
		out->authority = sp->host;
	if (sp->bad_expect && !out->http10)
		return parse_fault(f, 417, "unknown expectation");
	fr->expect = sp->expect && !out->http10 && out->has_body;
	/* RFC 9110 s7.8: of this hop only when Connection says so */
	if (sp->upgrades && !out->http10)
		out->upgrade = sp->upgrade;
	fr->keep_alive = !sp->close && (!out->http10 || sp->keep_alive);
	return 0;
}

int
h1_parse_request(struct view head, const struct h1_scan *s, struct arena *a,
    struct head_request *out, struct h1_framing *framing,
    struct h1_fault *fault)
{
	struct parse_special sp = { 0 };
	struct view rest;
	bool tls = out->tls;
	int rc;

	*out = (struct head_request){ .content_length = -1, .tls = tls };
	*framing = (struct h1_framing){ 0 };
	rc = parse_request_line(parse_cut_first(head, s->skip, &rest), out,
	    fault);
	if (rc == 0)
		rc = parse_target(out, fault);
	if (rc == 0)
		rc = parse_fields(rest, s, a, &out->fields, &sp, fault);
	if (rc == 0)
		rc = parse_request_body(out, &sp, framing, fault);
	if (rc == 0)
		rc = parse_request_special(out, &sp, framing, fault);
	return rc;
}

int
h1_parse_connect(struct view head, const struct h1_scan *s, struct arena *a,
    struct head_request *out, struct h1_fault *fault)
{
	struct h1_framing framing = { 0 };
	struct parse_special sp = { 0 };
	struct view rest;
	int rc;

	*out = (struct head_request){ .content_length = -1 };
	rc = parse_request_line(parse_cut_first(head, s->skip, &rest), out,
	    fault);
	if (rc == 0 && !view_eq(out->method, VIEW("CONNECT")))
		rc = parse_fault(fault, 405, "only CONNECT is served here");
	if (rc == 0 && !h1_parse_is_authority(out->target))
		rc = parse_fault(fault, 400, "bad request target");
	out->authority = out->target;
	if (rc == 0)
		rc = parse_fields(rest, s, a, &out->fields, &sp, fault);
	if (rc == 0)
		rc = parse_request_body(out, &sp, &framing, fault);
	if (rc == 0)
		rc = parse_request_special(out, &sp, &framing, fault);
	if (rc == 0 && out->has_body)
		rc = parse_fault(fault, 400, "content in a CONNECT");
	return rc;
}

/* ---- replies --------------------------------------------------------------
 */

/* RFC 9110 s8.6: "5, 5" may be taken for 5, anything that differs not. */
static int
parse_reply_length(const struct parse_special *sp, uint64_t *length)
{
	struct view list = sp->length, piece;
	uint64_t n, first = 0;
	bool any = false;

	if (sp->length_differs)
		return SP_E_SYNTAX;
	while (view_split(&list, ',', &piece)) {
		if (num_u64(view_trim(piece), 0, INT64_MAX, &n) != 0 ||
		    (any && n != first))
			return SP_E_SYNTAX;
		first = n;
		any = true;
	}
	*length = first;
	return any ? 0 : SP_E_SYNTAX;
}

/*
 * RFC 9112 s6.3.  Both Transfer-Encoding and Content-Length: the former wins
 * and the connection is not used again, nor after a chunked HTTP/1.0 reply.
 */
static int
parse_reply_body(struct head_reply *out, bool bodyless,
    const struct parse_special *sp, struct h1_framing *fr, struct h1_fault *f)
{
	if (sp->lengths != 0 && parse_reply_length(sp, &fr->length) != 0)
		return parse_fault(f, 502, "bad Content-Length");
	if (sp->bad_coding || sp->other_coding)
		return parse_fault(f, 502, "unknown Transfer-Encoding");
	if (sp->lengths != 0 && sp->encodings == 0)
		out->content_length = (int64_t)fr->length;
	if (bodyless)
		fr->kind = H1_BODY_NONE;
	else if (sp->encodings != 0)
		fr->kind = H1_BODY_CHUNKED;
	else if (sp->lengths != 0)
		fr->kind = H1_BODY_LENGTH;
	else
		fr->kind = H1_BODY_CLOSE;
	if (fr->kind == H1_BODY_CLOSE ||
	    (sp->encodings != 0 && sp->lengths != 0))
		fr->keep_alive = false;
	return 0;
}

int
h1_parse_reply(struct view head, const struct h1_scan *s, struct arena *a,
    struct head_reply *out, struct h1_framing *framing, struct h1_fault *fault)
{
	struct parse_special sp = { 0 };
	struct view rest;
	bool http10 = false;
	int rc;

	*out = (struct head_reply){ .content_length = -1 };
	*framing = (struct h1_framing){ 0 };
	rc = parse_status_line(parse_cut_first(head, s->skip, &rest), &http10,
	    &out->status, fault);
	if (rc == 0)
		rc = parse_fields(rest, s, a, &out->fields, &sp, fault);
	if (rc != 0)
		return rc;
	if (sp.upgrades && !http10)
		out->upgrade = sp.upgrade;
	framing->keep_alive =
	    !sp.close && (http10 ? sp.keep_alive && sp.encodings == 0 : true);
	/* RFC 9112 s6.3, 1: these never have a body */
	return parse_reply_body(out,
	    s->head_request || out->status < 200 || out->status == 204 ||
		out->status == 304,
	    &sp, framing, fault);
}

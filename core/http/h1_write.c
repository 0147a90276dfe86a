#include "config.h"

#include <stdio.h>
#include <time.h>

#include "base/num.h"
#include "http/h1_write.h"

static int
write_field(struct buf *b, struct view name, struct view value)
{
	int rc = buf_reserve(b, name.n + value.n + 4);

	if (rc != 0)
		return rc;
	/* reserved: none of these can fail */
	rc = buf_add_view(b, name);
	if (rc == 0)
		rc = buf_add(b, ": ", 2);
	if (rc == 0)
		rc = buf_add_view(b, value);
	return rc != 0 ? rc : buf_add(b, "\r\n", 2);
}

static int
write_number(struct buf *b, struct view name, uint64_t n)
{
	char digits[20];

	return write_field(b, name, view_of(digits, num_format_u64(n, digits)));
}

/* Framing is written from what is known, never from a field. */
static bool
write_is_ours(struct view name)
{
	return view_eq_nocase(name, VIEW("content-length")) ||
	    head_is_hop(name);
}

/* RFC 9110 s7.8 */
static int
write_upgrade(struct buf *b, struct view protocol)
{
	int rc = write_field(b, VIEW("Upgrade"), protocol);

	return rc != 0 ? rc
		       : write_field(b, VIEW("Connection"), VIEW("Upgrade"));
}

static int
write_reply(struct buf *b, const struct head_reply *head,
    const struct h1_write_reply *form)
{
	bool dated = false;
	size_t i;
	int rc;

	rc = buf_printf(b, "HTTP/1.1 %u %s\r\n", head->status,
	    head_reason(head->status));
	for (i = 0; rc == 0 && i < head->fields.n; i++) {
		const struct head_field *f = &head->fields.v[i];

		if (write_is_ours(f->name))
			continue;
		dated = dated || view_eq_nocase(f->name, VIEW("date"));
		rc = write_field(b, f->name, f->value);
	}
	/* RFC 9110 s6.6.1: Date, unless the origin's is passed on */
	if (rc == 0 && !dated)
		rc = write_field(b, VIEW("Date"), form->date);
	if (rc == 0 && form->chunked)
		rc = write_field(b, VIEW("Transfer-Encoding"), VIEW("chunked"));
	else if (rc == 0 && head->content_length >= 0 && head->status != 204 &&
	    head->status >= 200)
		rc = write_number(b, VIEW("Content-Length"),
		    (uint64_t)head->content_length);
	if (rc == 0 && form->upgrade.n != 0)
		rc = write_upgrade(b, form->upgrade);
	if (rc == 0 && form->close)
		rc = write_field(b, VIEW("Connection"), VIEW("close"));
	else if (rc == 0 && form->keep_alive)
		rc = write_field(b, VIEW("Connection"), VIEW("keep-alive"));
	return rc != 0 ? rc : buf_add(b, "\r\n", 2);
}

int
h1_write_reply_head(struct buf *b, const struct head_reply *head,
    const struct h1_write_reply *form)
{
	size_t before = buf_len(b);
	int rc = write_reply(b, head, form);

	if (rc != 0)
		buf_truncate(b, before);
	return rc;
}

/* What may stand in a first line: visible ASCII. */
static bool
write_is_visible(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++)
		if (v.p[i] <= 0x20 || v.p[i] == 0x7f)
			return false;
	return true;
}

/* RFC 9110 s8.6: a length for methods that expect a body, even if it is 0. */
static bool
write_wants_length(const struct h1_write_request *rq)
{
	return rq->body_bytes != 0 || view_eq(rq->method, VIEW("POST")) ||
	    view_eq(rq->method, VIEW("PUT")) ||
	    view_eq(rq->method, VIEW("PATCH"));
}

/* RFC 9112 s3.2.1: an origin's target begins with a path. */
static bool
write_wants_slash(const struct h1_write_request *rq)
{
	return rq->base.n == 0 && (rq->target.n == 0 || rq->target.p[0] == '?');
}

static int
write_line(struct buf *b, const struct h1_write_request *rq)
{
	int rc;

	rc = buf_add_view(b, rq->method);
	if (rc == 0)
		rc = buf_add(b, " ", 1);
	if (rc == 0 && write_wants_slash(rq))
		rc = buf_add(b, "/", 1);
	if (rc == 0)
		rc = buf_add_view(b, rq->base);
	if (rc == 0)
		rc = buf_add_view(b, rq->target);
	if (rc == 0)
		rc = buf_add_str(b, " HTTP/1.1\r\n");
	return rc != 0 ? rc : write_field(b, VIEW("Host"), rq->host);
}

static int
write_rest(struct buf *b, const struct h1_write_request *rq)
{
	const struct head_fields *fs = rq->fields;
	bool encodings = false;
	size_t i;
	int rc = 0;

	for (i = 0; rc == 0 && fs != NULL && i < fs->n; i++) {
		const struct head_field *f = &fs->v[i];

		/* RFC 9110 s10.1.1: Expect is answered here, not passed on */
		if (write_is_ours(f->name) ||
		    view_eq_nocase(f->name, VIEW("host")) ||
		    view_eq_nocase(f->name, VIEW("expect")))
			continue;
		encodings = encodings ||
		    view_eq_nocase(f->name, VIEW("accept-encoding"));
		rc = write_field(b, f->name, f->value);
	}
	if (rc == 0 && !encodings)
		rc = write_field(b, VIEW("Accept-Encoding"), VIEW("identity"));
	if (rc == 0 && write_wants_length(rq))
		rc = write_number(b, VIEW("Content-Length"), rq->body_bytes);
	return rc != 0 ? rc : buf_add(b, "\r\n", 2);
}

int
h1_write_request_line(struct buf *b, const struct h1_write_request *rq)
{
	size_t before = buf_len(b);
	int rc;

	if (!head_is_token(rq->method) || !write_is_visible(rq->base) ||
	    !write_is_visible(rq->target) || !write_is_visible(rq->host) ||
	    rq->host.n == 0)
		return SP_E_SYNTAX;
	rc = write_line(b, rq);
	if (rc != 0)
		buf_truncate(b, before);
	return rc;
}

int
h1_write_request_rest(struct buf *b, const struct h1_write_request *rq)
{
	size_t before = buf_len(b);
	int rc = write_rest(b, rq);

	if (rc != 0)
		buf_truncate(b, before);
	return rc;
}

int
h1_write_request_head(struct buf *b, const struct h1_write_request *rq)
{
	size_t before = buf_len(b);
	int rc = h1_write_request_line(b, rq);

	if (rc == 0)
		rc = h1_write_request_rest(b, rq);
	if (rc != 0)
		buf_truncate(b, before);
	return rc;
}

int
h1_write_chunk(struct buf *b, const struct view *v, size_t n)
{
	static const char hex[] = "0123456789abcdef";
	char size[18];
	size_t total = 0, i, at = sizeof(size);
	int rc;

	for (i = 0; i < n; i++)
		total += v[i].n;
	if (total == 0)
		return 0;
	rc = buf_reserve(b, total + sizeof(size) + 2);
	if (rc != 0)
		return rc;
	size[--at] = '\n';
	size[--at] = '\r';
	for (i = total; i != 0; i >>= 4)
		size[--at] = hex[i & 15];
	/* reserved: none of these can fail */
	rc = buf_add(b, size + at, sizeof(size) - at);
	for (i = 0; rc == 0 && i < n; i++)
		rc = buf_add_view(b, v[i]);
	return rc != 0 ? rc : buf_add(b, "\r\n", 2);
}

int
h1_write_last_chunk(struct buf *b)
{
	return buf_add_str(b, "0\r\n\r\n");
}

void
h1_write_date(uint64_t wall_us, char *out)
{
	static const char days[] = "SunMonTueWedThuFriSat";
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	time_t t = (time_t)(wall_us / 1000000);
	struct tm tm;

	/* strftime() speaks the locale's language; HTTP speaks English */
	memset(&tm, 0, sizeof(tm));
	(void)gmtime_r(&t, &tm);
	(void)snprintf(out, H1_WRITE_DATE_BYTES,
	    "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT", days + 3 * tm.tm_wday,
	    (unsigned)tm.tm_mday % 100, months + 3 * tm.tm_mon,
	    (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)tm.tm_hour % 100,
	    (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100);
}

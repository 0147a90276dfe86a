#include "config.h"

#include <string.h>

#include "recorder/chain.h"

static const char prev_key[] = ",\"prev\":\"";
static const char hash_key[] = ",\"hash\":\"";

enum { KEY_BYTES = sizeof(prev_key) - 1 };

void
chain_zero(char hash[DIGEST_HEX + 1])
{
	memset(hash, '0', DIGEST_HEX);
	hash[DIGEST_HEX] = '\0';
}

static int
add_hash(struct buf *line, const char *key, const char *hash, struct view end)
{
	int rc = buf_add(line, key, KEY_BYTES);

	if (rc == 0)
		rc = buf_add(line, hash, DIGEST_HEX);
	return rc != 0 ? rc : buf_add_view(line, end);
}

int
chain_close(struct buf *line, struct chain_link *link)
{
	uint8_t digest[DIGEST_BYTES];
	size_t before = buf_len(line);
	int rc;

	rc = buf_reserve(line, CHAIN_END + 1);
	if (rc != 0)
		return rc;
	rc = add_hash(line, prev_key, link->prev, VIEW("\""));
	if (rc == 0)
		rc = digest_sha256(buf_view(line), digest);
	if (rc == 0) {
		digest_hex(digest, sizeof(digest), link->hash);
		rc = add_hash(line, hash_key, link->hash, VIEW("\"}\n"));
	}
	if (rc != 0)
		buf_truncate(line, before);
	return rc;
}

static bool
read_hex(const char *p, char out[DIGEST_HEX + 1])
{
	uint8_t raw[DIGEST_BYTES];

	if (digest_unhex(view_of(p, DIGEST_HEX), raw, sizeof(raw)) != 0)
		return false;
	digest_hex(raw, sizeof(raw), out);
	return memcmp(p, out, DIGEST_HEX) == 0; /* lower case alone */
}

int
chain_read(struct view line, struct chain_link *link)
{
	const char *p;

	if (line.n < CHAIN_END + 1)
		return SP_E_SYNTAX;
	p = line.p + line.n - CHAIN_END;
	if (memcmp(p, prev_key, KEY_BYTES) != 0 ||
	    !read_hex(p + KEY_BYTES, link->prev))
		return SP_E_SYNTAX;
	p += KEY_BYTES + DIGEST_HEX;
	if (*p++ != '"' || memcmp(p, hash_key, KEY_BYTES) != 0 ||
	    !read_hex(p + KEY_BYTES, link->hash))
		return SP_E_SYNTAX;
	return memcmp(p + KEY_BYTES + DIGEST_HEX, "\"}", 2) == 0 ? 0
								 : SP_E_SYNTAX;
}

int
chain_check(struct view line, struct chain_link *link)
{
	uint8_t digest[DIGEST_BYTES];
	char hex[DIGEST_HEX + 1];
	int rc = chain_read(line, link);

	if (rc == 0)
		rc = digest_sha256(view_sub(line, 0, line.n - CHAIN_HASH_END),
		    digest);
	if (rc != 0)
		return rc;
	digest_hex(digest, sizeof(digest), hex);
	return strcmp(hex, link->hash) == 0 ? 0 : SP_E_DENIED;
}

void
chain_sum_init(struct chain_sum *s)
{
	*s = (struct chain_sum){ .bytes = 0 };
	chain_zero(s->first.prev);
	chain_zero(s->first.hash);
}

/* Keeps the last CHAIN_END bytes of the first line. */
static void
feed_first(struct chain_sum *s, struct view v)
{
	size_t n = view_find(v, '\n');
	bool ends = n < v.n;
	size_t keep;

	v = view_sub(v, 0, n);
	if (v.n >= sizeof(s->tail)) {
		memcpy(s->tail, v.p + v.n - sizeof(s->tail), sizeof(s->tail));
		s->tail_n = sizeof(s->tail);
	} else if (v.n > 0) {
		keep = sizeof(s->tail) - v.n;
		if (keep > s->tail_n)
			keep = s->tail_n;
		memmove(s->tail, s->tail + s->tail_n - keep, keep);
		memcpy(s->tail + keep, v.p, v.n);
		s->tail_n = keep + v.n;
	}
	if (ends) {
		char line[CHAIN_END + 1];

		/* chain_read() wants at least the opening brace before it */
		line[0] = '{';
		memcpy(line + 1, s->tail, s->tail_n);
		s->first_ok =
		    chain_read(view_of(line, s->tail_n + 1), &s->first) == 0;
		if (!s->first_ok) {
			chain_zero(s->first.prev);
			chain_zero(s->first.hash);
		}
	}
}

void
chain_sum_feed(struct chain_sum *s, struct view v)
{
	size_t at;

	if (s->lines == 0)
		feed_first(s, v);
	s->bytes += v.n;
	at = 0;
	while (at < v.n) {
		at += view_find(view_from(v, at), '\n') + 1;
		if (at <= v.n)
			s->lines++;
	}
}

void
chain_sum_line(struct chain_sum *s, const struct chain_link *link, size_t n)
{
	if (s->lines == 0) {
		s->first = *link;
		s->first_ok = true;
	}
	s->bytes += n;
	s->lines++;
}

void
chain_sum_add(struct chain_sum *s, const struct chain_sum *more)
{
	if (s->lines == 0) {
		s->first = more->first;
		s->first_ok = more->first_ok;
	}
	s->bytes += more->bytes;
	s->lines += more->lines;
}

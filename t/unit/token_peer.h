/*
 * Holds jtoken against jscan, which is held against yajl: what jtoken follows
 * is valid JSON that ends there, has those members, and is plain only if jwrite
 * copies it as it stands.
 */
#ifndef SP_T_UNIT_TOKEN_PEER_H
#define SP_T_UNIT_TOKEN_PEER_H

#include "json/jtoken.h"
#include "json/jwrite.h"
#include "json_peer.h"

/* The only member of that name has those bytes; none when they are none. */
static bool
token_member(struct view text, struct view name, struct view want)
{
	struct jscan_span v;
	int rc = jscan_find(text, name, &v);

	if (want.n == 0)
		return rc == 0;
	return rc == 1 &&
	    view_eq(view_sub(text, v.start, v.end - v.start), want);
}

static bool
token_copied(struct view text)
{
	struct buf out = BUF_INIT(8 * text.n + 64);
	struct jwrite w;
	bool same;

	jwrite_init(&w, &out);
	jwrite_span(&w, text);
	same = jwrite_finish(&w) == 0 && view_eq(buf_view(&out), text);
	buf_clear(&out);
	return same;
}

/* NULL, or what is wrong; *followed: jtoken followed a text at p. */
static inline const char *
token_compare(const uint8_t *p, const uint8_t *end, bool *followed)
{
	const uint8_t *q;
	struct jtoken t;
	struct view text;

	*followed = false;
	if (p == end)
		return NULL;
	q = jtoken_end(p, end, &t);
	if (q == NULL)
		return NULL;
	*followed = true;
	text = view_of(p, (size_t)(q - p));
	if (q > end || text.p[0] != '{' || text.p[text.n - 1] != '}')
		return "jtoken: no object";
	if (peer_compare(text) != NULL || jscan_valid(text, 0) != 0)
		return "jtoken: not valid";
	if (!token_member(text, VIEW("token"), t.token) || t.token.n == 0)
		return "jtoken: token";
	if (!token_member(text, VIEW("logprob"), t.logprob))
		return "jtoken: logprob";
	if (!token_member(text, VIEW("id"), t.id))
		return "jtoken: id";
	if (t.plain && !token_copied(text))
		return "jtoken: plain, but not strict";
	return NULL;
}

#endif

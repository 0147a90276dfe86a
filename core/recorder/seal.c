#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "json/jscan.h"
#include "json/jwrite.h"
#include "recorder/seal.h"

static const char signature_key[] = ",\"signature\":\"";

static void
write_member(struct jwrite *w, const char *key, const char *value)
{
	jwrite_key(w, key);
	jwrite_cstr(w, value);
}

static void
write_body(const struct seal *s, const struct signer *k, struct jwrite *w)
{
	char time[32];
	size_t i;

	clock_format(s->wall_us, time);
	jwrite_key(w, "v");
	jwrite_u64(w, 1);
	jwrite_key(w, "session");
	jwrite_string(w, s->session);
	jwrite_key(w, "file");
	jwrite_string(w, s->file);
	write_member(w, "reason", s->reason);
	write_member(w, "time", time);
	jwrite_key(w, "turns");
	jwrite_u64(w, s->turns);
	jwrite_key(w, "bytes");
	jwrite_u64(w, s->bytes);
	write_member(w, "first_prev", s->first.prev);
	write_member(w, "first_hash", s->first.hash);
	write_member(w, "last_hash", s->last.hash);
	jwrite_key(w, "undelivered");
	jwrite_array(w);
	for (i = 0; i < s->undelivered_n; i++)
		jwrite_u64(w, s->undelivered[i]);
	jwrite_end_array(w);
	jwrite_key(w, "undelivered_more");
	jwrite_u64(w, s->undelivered_more);
	jwrite_key(w, "earlier");
	jwrite_raw(w, s->earlier.n > 0 ? s->earlier : VIEW("[]"));
	write_member(w, "key", k->pub_hex);
}

int
seal_write(const struct seal *s, const struct signer *k, struct buf *out)
{
	char sig[SIGNER_HEX + 1];
	struct jwrite w;
	int rc;

	jwrite_init(&w, out);
	jwrite_object(&w);
	write_body(s, k, &w);
	rc = w.err;
	if (rc == 0)
		rc = signer_sign(k, buf_view(out), sig);
	if (rc == 0)
		rc = buf_printf(out, "%s%s\"}\n", signature_key, sig);
	return rc;
}

static bool
get_u64(struct view text, struct view key, uint64_t *out)
{
	struct jscan_span v;
	struct jscan s;
	int64_t i;

	jscan_init(&s, text, 0);
	if (jscan_find(text, key, &v) != 1 || v.kind != JSCAN_NUMBER ||
	    jscan_i64(&s, &v, &i) != 0 || i < 0)
		return false;
	*out = (uint64_t)i;
	return true;
}

/* A string of less than n bytes, without escapes. */
static bool
get_str(struct view text, struct view key, char *out, size_t n)
{
	struct jscan_span v;
	struct jscan s;
	struct view t;

	jscan_init(&s, text, 0);
	if (jscan_find(text, key, &v) != 1 || v.kind != JSCAN_STRING ||
	    v.escaped)
		return false;
	t = jscan_text(&s, &v);
	if (t.n >= n)
		return false;
	memcpy(out, t.p, t.n);
	out[t.n] = '\0';
	return true;
}

int
seal_check(struct view line, struct seal_facts *out)
{
	uint8_t sig[SIGN_BYTES];
	char hex[SIGNER_PUB_HEX + 1];
	struct view end;

	if (line.n > 0 && line.p[line.n - 1] == '\n')
		line.n--;
	if (line.n < SEAL_END || jscan_valid(line, 0) != 0 ||
	    !get_u64(line, VIEW("turns"), &out->turns) ||
	    !get_u64(line, VIEW("bytes"), &out->bytes) ||
	    !get_str(line, VIEW("first_hash"), out->first,
		sizeof(out->first)) ||
	    !get_str(line, VIEW("first_prev"), out->first_prev,
		sizeof(out->first_prev)) ||
	    !get_str(line, VIEW("last_hash"), out->last, sizeof(out->last)) ||
	    !get_str(line, VIEW("file"), out->file, sizeof(out->file)) ||
	    !get_str(line, VIEW("reason"), out->reason, sizeof(out->reason)) ||
	    !get_str(line, VIEW("key"), hex, sizeof(hex)))
		return SP_E_SYNTAX;
	end = view_from(line, line.n - SEAL_END);
	if (!view_starts(end, view_str(signature_key)) ||
	    digest_unhex(view_str(hex), out->key, sizeof(out->key)) != 0 ||
	    digest_unhex(view_sub(end, sizeof(signature_key) - 1, SIGNER_HEX),
		sig, sizeof(sig)) != 0)
		return SP_E_SYNTAX;
	return sign_verify(out->key, view_sub(line, 0, line.n - SEAL_END), sig);
}

int
seal_name(struct view file, char *out, size_t n)
{
	int len;

	if (view_ends(file, VIEW(".jsonl")))
		file.n -= sizeof(".jsonl") - 1;
	len = snprintf(out, n, "%.*s.seal", VIEW_ARG(file));
	return len > 0 && (size_t)len < n ? 0 : SP_E_LIMIT;
}

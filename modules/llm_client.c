/* What the record keeps of the client's head; never a credential. */
#include "config.h"

#include "gate/session.h"
#include "json/jwrite.h"
#include "llm_call.h"

enum {
	CLIENT_FIELD_MAX = 512, /* of a value; the rest is left out */
	CLIENT_WORD_MIN = 8, /* what is shorter is no key */
	CLIENT_WORDS_MAX = 32,
};

static const struct {
	const char *field;
	const char *name;
} kept_fields[] = {
	{ "user-agent", "user_agent" },
	{ "x-session-id", "x_session_id" },
	{ "x-session-affinity", "x_session_affinity" },
	{ "x-parent-session-id", "x_parent_session_id" },
	{ "x-client-request-id", "x_client_request_id" },
	{ "x-stainless-retry-count", "x_stainless_retry_count" },
	{ "idempotency-key", "idempotency_key" },
};

static bool
has(struct view text, struct view key)
{
	return key.n >= CLIENT_WORD_MIN && view_search(text, key) < text.n;
}

static bool
is_word_byte(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
	    (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

/* Of other sessions there are only digests: whole words can be looked up. */
static bool
names_a_key(const struct roster *o, struct view text)
{
	unsigned words = 0;
	size_t i, n;

	for (i = 0; i < text.n; i += n + 1) {
		struct view word = view_from(text, i);

		for (n = 0; n < word.n && is_word_byte(word.p[n]);)
			n++;
		word.n = n;
		if (n < CLIENT_WORD_MIN)
			continue;
		/* so many are no name of anything */
		if (++words > CLIENT_WORDS_MAX || roster_knows(o, word))
			return true;
	}
	return roster_knows(o, text);
}

/* A credential of the request's own: in whatever field it came. */
static bool
quotes_own_key(const struct head_fields *f, struct view text)
{
	static const char *const fields[] = { "authorization", "x-api-key",
		"x-goog-api-key", "api-key" };
	struct view v;
	size_t i, k;

	for (i = 0; i < f->n; i++)
		for (k = 0; k < sizeof(fields) / sizeof(fields[0]); k++) {
			if (!view_eq_nocase(f->v[i].name, view_str(fields[k])))
				continue;
			v = f->v[i].value;
			/* what follows the scheme, if there is one */
			if (k == 0 && view_find(v, ' ') < v.n)
				v = view_trim(view_from(v, view_find(v, ' ')));
			if (has(text, v))
				return true;
		}
	return false;
}

static bool
is_secret(const struct llm_call *c, struct view text)
{
	const struct conf_secret *up = c->upstream->api_key;

	return quotes_own_key(&c->r->x->request.fields, text) ||
	    (up != NULL && has(text, up->value)) ||
	    names_a_key(gate_roster(c->r->gate), text);
}

void
llm_client_fields(const struct llm_call *c, struct jwrite *w)
{
	const struct head_fields *f = &c->r->x->request.fields;
	size_t i;

	for (i = 0; i < sizeof(kept_fields) / sizeof(kept_fields[0]); i++) {
		struct view v = head_get(f, view_str(kept_fields[i].field));

		if (v.p == NULL)
			continue;
		jwrite_key(w, kept_fields[i].name);
		/* the whole of it is looked at: a key cut short is one still */
		if (is_secret(c, v))
			jwrite_cstr(w, "[redacted]");
		else
			jwrite_string(w, view_sub(v, 0, CLIENT_FIELD_MAX));
	}
}

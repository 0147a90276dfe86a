#include "config.h"

#include "gate/session.h"

bool
session_id_valid(struct view id)
{
	size_t i;
	char c;

	if (id.n == 0 || id.n > SESSION_ID_MAX || id.p[0] == '.')
		return false;
	for (i = 0; i < id.n; i++) {
		c = id.p[i];
		if ((c < 'A' || c > 'Z') && (c < 'a' || c > 'z') &&
		    (c < '0' || c > '9') && c != '_' && c != '.' && c != '-')
			return false;
	}
	return true;
}

/* The token of "Bearer TOKEN", or p NULL.  Source: RFC 6750 s2.1. */
static struct view
session_bearer(struct view value)
{
	struct view scheme = view_sub(value, 0, 7);

	if (!view_eq_nocase(scheme, VIEW("bearer ")))
		return VIEW_NONE;
	value = view_trim(view_from(value, 7));
	return value.n > 0 ? value : VIEW_NONE;
}

/* The credential in one field, or p NULL. */
static struct view
session_field_key(const struct head_field *f)
{
	static const char *const plain[] = { "x-api-key", "x-goog-api-key",
		"api-key" };
	size_t i;

	if (view_eq_nocase(f->name, VIEW("authorization")))
		return session_bearer(f->value);
	for (i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		if (view_eq_nocase(f->name, view_str(plain[i])) &&
		    f->value.n > 0)
			return f->value;
	return VIEW_NONE;
}

int
session_key(const struct head_fields *f, struct view *key)
{
	struct view v;
	size_t i;

	*key = VIEW_NONE;
	for (i = 0; i < f->n; i++) {
		v = session_field_key(&f->v[i]);
		if (v.p == NULL)
			continue;
		if (key->p != NULL && !view_eq(*key, v)) {
			*key = VIEW_NONE;
			return SP_E_SYNTAX;
		}
		*key = v;
	}
	return SP_OK;
}

/*
 * The one place that knows which session a key opens.  No session has a key
 * yet, so every key is unknown.
 */
static int
session_lookup(struct gate_request *r, struct view key,
    struct session_found *out)
{
	(void)r;
	(void)key;
	(void)out;
	return SP_E_DENIED;
}

int
session_find(struct gate_request *r, const struct conf_capture *capture,
    bool open, struct session_found *out)
{
	struct view key;
	int rc;

	out->id = VIEW("default");
	out->capture = capture;
	out->open = true;
	/* nobody asked for a key: what clients send of habit is no matter */
	if (open)
		return SP_OK;
	out->open = false;
	rc = session_key(&r->x->request.fields, &key);
	if (rc != SP_OK)
		return rc;
	if (key.p == NULL)
		return SP_E_DENIED;
	return session_lookup(r, key, out);
}

bool
session_token_ok(const struct head_fields *f, const struct conf_secret *token)
{
	struct view given;

	/* a token that never arrived opens nothing */
	if (token == NULL || token->value.p == NULL || token->value.n == 0)
		return false;
	if (head_count(f, VIEW("authorization")) != 1)
		return false;
	given = session_bearer(head_get(f, VIEW("authorization")));
	return given.p != NULL && view_eq_secret(given, token->value);
}

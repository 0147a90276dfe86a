#include "config.h"

#include "base/arena.h"
#include "base/log.h"
#include "crypt/rnd.h"
#include "gate/episode.h"
#include "gate/gate_priv.h"
#include "gate/roster.h"
#include "gate/session.h"
#include "ipc/wire.h"

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

void
session_token(char *out, size_t n)
{
	rnd_token(out, n);
}

const struct conf_upstream *
session_upstream(const struct gate_request *r, struct view name)
{
	const struct conf *c = r->generation->conf;
	size_t i;

	for (i = 0; i < c->upstreams_n; i++)
		if (view_eq(c->upstreams[i]->name, name))
			return c->upstreams[i];
	return NULL;
}

const struct conf_capture *
session_capture(const struct gate_request *r, struct view name)
{
	const struct conf *c = r->generation->conf;
	size_t i;

	for (i = 0; i < c->captures_n; i++)
		if (name.n == 0 || view_eq(c->captures[i]->name, name))
			return c->captures[i];
	return NULL;
}

/* A session's own matters, as far as they are the door's. */
static int
session_take(struct gate_request *r, struct roster_session *s,
    struct session_found *out)
{
	out->session = s;
	out->open = false;
	if (out->capture != NULL &&
	    !view_eq(out->capture->name, s->m.capture)) {
		out->capture = session_capture(r, s->m.capture);
		if (out->capture == NULL)
			return SP_E_CONF;
	}
	return arena_dup(r->x->arena, s->m.id, &out->id);
}

/* Without a key: inside an episode the one of its name, else `default`. */
static int
session_unkeyed(struct gate_request *r, struct session_found *out)
{
	struct roster_session *s;
	struct episode *ep;

	if (r->episode.n == 0 || r->gate == NULL)
		return SP_OK;
	/* whoever made a session of that name has its budget kept */
	s = roster_find(gate_roster(r->gate), r->episode);
	if (s != NULL)
		return session_take(r, s, out);
	out->id = r->episode;
	ep = episode_find(r->gate->episodes, r->episode);
	if (ep != NULL)
		ep->unkeyed = true;
	return SP_OK;
}

static void
session_on_sealed(void *arg, struct roster_answer *a)
{
	(void)arg;
	(void)a;
}

void
session_episode_over(struct gate *g, const struct episode *ep)
{
	static const struct roster_ask_owner nobody = { session_on_sealed,
		NULL };
	struct buf body = BUF_INIT(EPISODE_ID_MAX + 64);
	struct roster_ask *ask;
	int rc;

	if (!ep->unkeyed)
		return;
	rc = wire_put_bytes(&body, view_str(ep->id));
	if (rc == SP_OK)
		rc = wire_put_bytes(&body, VIEW_NONE);
	if (rc == SP_OK)
		rc = roster_ask(gate_roster(g), MESSAGE_SESSION_END,
		    buf_view(&body), &nobody, &ask);
	if (rc != SP_OK)
		log_error("episode %s: its trace is not sealed: %s", ep->id,
		    err_str(rc));
	buf_clear(&body);
}

int
session_find(struct gate_request *r, const struct conf_capture *capture,
    bool open, struct session_found *out)
{
	const struct roster *o = r->gate != NULL ? gate_roster(r->gate) : NULL;
	struct roster_session *s = NULL;
	bool ended = false;
	struct view key;
	int rc;

	*out = (struct session_found){ .id = VIEW("default"),
		.capture = capture,
		.open = open };
	rc = session_key(&r->x->request.fields, &key);
	if (rc != SP_OK)
		/* nobody asked for a key: what clients send of habit is no
		 * matter */
		return open ? session_unkeyed(r, out) : rc;
	if (key.p != NULL && o != NULL)
		s = roster_by_key(o, key, &ended);
	if (s != NULL)
		return session_take(r, s, out);
	if (key.p != NULL && o != NULL && !roster_ready(o) &&
	    (!open || capture != NULL))
		return SP_E_STATE;
	/* what was a session's key is no habit: its budget has not come back */
	if (ended)
		return SP_E_GONE;
	return open ? session_unkeyed(r, out) : SP_E_DENIED;
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

/*
 * An orchestrator at a door without a token.  OpenEnv's client for tools makes
 * a session by openenv/session/create, calls tools by its id, and attaches its
 * WebSocket to it; one token in its headers goes everywhere.
 */
#include "config.h"

#include "gate/mcp_priv.h"

#include "base/arena.h"
#include "gate/gate_priv.h"
#include "http/query.h"

enum { OWNER_WHY_MAX = 512 };

void
mcp_set_owner(struct gate *g, const struct mcp_owner *o)
{
	g->mcp_owner = o;
}

/* There is none for this client: told in the dialect's words. */
static enum gate_verdict
owner_none(struct mcp_client *c, const char *code, const char *why)
{
	(void)gate_deny(c->r, 503, code, why);
	c->r->outcome = code;
	return mcp_http_no_episode(c);
}

/* ---- a new session ---------------------------------------------------------- */

static bool
owner_made(void *arg, struct episode *ep, const char *code, struct view why)
{
	struct mcp_client *c = arg;
	enum gate_verdict v;
	const char *text;
	bool has;

	c->making = NULL;
	/* its end is under way */
	if (c->ended || c->r->x == NULL)
		return false;
	if (ep != NULL) {
		c->made = true;
		v = mcp_episode_serve(c, ep);
	} else {
		text = arena_strdup(c->r->x->arena, why);
		v = owner_none(c, code,
		    text != NULL ? text : "out of memory: try again");
	}
	has = c->owns && v == GATE_DONE;
	if (v != GATE_HOLD)
		gate_resume(c->r, v);
	return has;
}

static enum gate_verdict
owner_make(struct mcp_client *c)
{
	const struct mcp_owner *o = c->r->gate->mcp_owner;

	if (o->make(c->r, c->conf->environment, c->conf->session_timeout_ms,
		owner_made, c, &c->making) == SP_OK)
		return GATE_HOLD;
	return owner_none(c, "no_memory", "out of memory: try again");
}

/* ---- one that is there ------------------------------------------------------ */

static enum gate_verdict
owner_unknown(struct mcp_client *c, const struct jrpc *m)
{
	int rc;

	c->in_hook = true;
	rc = mcp_serve_refuse(c, m, "invalid", JRPC_INVALID_PARAMS,
	    "Invalid parameters");
	c->in_hook = false;
	return rc < 0 ? GATE_FAIL : mcp_http_answered(c);
}

static enum gate_verdict
owner_session(struct mcp_client *c, const struct jrpc *m, struct episode **out)
{
	struct buf id = BUF_INIT(MCP_ID_CHARS + 8);
	struct mcp_episode_ref ref;
	struct jscan_span v;
	bool known;
	struct episode *ep;
	int rc = jrpc_member(m, &m->params, VIEW("session_id"), &v);

	if (rc == 0)
		return GATE_PASS;
	known = rc == 1 && jrpc_string(m, &v, &id) == SP_OK &&
	    mcp_session_here(c, buf_view(&id), &ref);
	buf_clear(&id);
	if (!known)
		return owner_unknown(c, m);
	ep = mcp_episode_of(c->r->gate, &ref);
	if (ep == NULL || !door_serves(ep, c->conf->environment))
		return owner_none(c, "no_episode",
		    "the episode of this session has ended: reset begins "
		    "another");
	*out = ep;
	return GATE_PASS;
}

/* Both are named: which is meant, if not the same, nobody can tell. */
static enum gate_verdict
owner_differ(struct mcp_client *c, const struct episode *session,
    const struct episode *named)
{
	struct buf why = BUF_INIT(OWNER_WHY_MAX);
	enum gate_verdict v = GATE_FAIL;
	const char *text = NULL;

	if (buf_printf(&why,
		"session_id is of the episode \"%s\", and X-Episode-Id or "
		"?episode= names \"%s\": send one of them",
		session->id, named->id) == SP_OK)
		text = arena_strdup(c->r->x->arena, buf_view(&why));
	if (text != NULL)
		v = gate_deny(c->r, 400, "episode_mismatch", text);
	buf_clear(&why);
	return v;
}

/* The session's episode, or NULL. */
static struct episode *
owner_socket_episode(const struct mcp_client *c, struct view id)
{
	struct mcp_episode_ref ref;
	struct episode *ep = NULL;

	if (mcp_session_here(c, id, &ref))
		ep = mcp_episode_of(c->r->gate, &ref);
	return ep != NULL && door_serves(ep, c->conf->environment) ? ep : NULL;
}

/* A WebSocket is one episode's: ?session_id= says whose, as at /ws. */
static enum gate_verdict
owner_socket(struct mcp_client *c, struct episode **out)
{
	struct buf id = BUF_INIT(MCP_ID_CHARS + 8);
	enum gate_verdict v = GATE_PASS;
	struct episode *ep = NULL, *named = NULL;
	int rc = query_get(c->r->x->request.query, VIEW("session_id"), &id);

	if (rc == 1)
		ep = owner_socket_episode(c, buf_view(&id));
	if (rc == SP_E_NOMEM)
		v = GATE_FAIL;
	else if (rc == SP_E_EXISTS)
		v = gate_deny(c->r, 400, "bad_session",
		    "session_id stands there twice: send one");
	else if (rc != 0 && ep == NULL)
		v = gate_deny(c->r, 404, "unknown_session",
		    "no session of this location has that session_id, or its "
		    "episode has ended: make one with openenv/session/create");
	else if (rc != 0 && door_names(c->r))
		v = door_episode(c->r, c->conf->environment, &named);
	if (v == GATE_PASS && named != NULL && named != ep)
		v = owner_differ(c, ep, named);
	if (v == GATE_PASS && ep != NULL) {
		mcp_session_attach(c, buf_view(&id));
		*out = ep;
	}
	buf_clear(&id);
	return v;
}

enum gate_verdict
mcp_owner_episode(struct mcp_client *c, struct episode **out)
{
	const struct mcp_owner *o = c->r->gate->mcp_owner;
	const struct mcp_said *said;
	const struct jrpc *m;

	*out = NULL;
	if (o == NULL || (c->how != MCP_PLAIN && c->how != MCP_SOCKET) ||
	    !o->allows(c->r, c->conf->environment))
		return GATE_PASS;
	c->r->orchestrator = true;
	c->r->principal = gate_principal_name(GATE_ORCHESTRATOR);
	if (c->how == MCP_SOCKET)
		return owner_socket(c, out);
	if (door_names(c->r))
		return GATE_PASS;
	said = mcp_http_said(c);
	m = &said->m;
	if (said->rc != SP_OK || m->kind != JRPC_REQUEST)
		return GATE_PASS;
	if (!jrpc_is(m, VIEW("openenv/session/create")))
		return owner_session(c, m, out);
	/* no episode for what gets no session */
	return m->params.kind == JSCAN_ARRAY ? owner_unknown(c, m)
					     : owner_make(c);
}

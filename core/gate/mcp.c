/* The doors that speak MCP: from a request to its client. */
#include "config.h"

#include "gate/mcp_priv.h"

#include "base/mem.h"
#include "gate/gate_priv.h"
#include "gate/route.h"

/* ---- life ------------------------------------------------------------------- */

int
mcp_setup(struct gate *g)
{
	if (g->mcp == NULL)
		g->mcp = mcp_session_set_new();
	return g->mcp != NULL ? SP_OK : SP_E_NOMEM;
}

void
mcp_stop(struct gate *g)
{
	mcp_session_set_free(g->mcp);
	g->mcp = NULL;
}

struct episode *
mcp_episode_of(const struct gate *g, const struct mcp_episode_ref *ref)
{
	struct episode_set *set = gate_episodes(g);
	struct episode *ep = set != NULL ? episode_first(set) : NULL;

	for (; ep != NULL; ep = LIST_NEXT(ep, link))
		if (ep == ref->ep && ep->created_us == ref->born_us &&
		    ep->state != EPISODE_GONE)
			return ep;
	return NULL;
}

struct episode *
mcp_episode(const struct mcp_client *c)
{
	return mcp_episode_of(c->r->gate, &c->ref);
}

bool
mcp_visible(const struct gate_request *r, struct view tool)
{
	const struct mcp_client *c = r->ctx;

	return !(c->door->agent && conf_mcp_reserved(tool)) &&
	    door_match_any(&c->conf->tools, tool);
}

/* ---- what a client is told -------------------------------------------------- */

void
mcp_client_answer(struct mcp_client *c, struct view json)
{
	if (c->how == MCP_SOCKET)
		mcp_ws_answer(c, json);
	else
		mcp_http_answer(c, json);
}

bool
mcp_client_tell(struct mcp_client *c, struct view json)
{
	if (c->how == MCP_SOCKET)
		return mcp_ws_tell(c, json);
	return c->how != MCP_PLAIN && mcp_http_tell(c, json);
}

bool
mcp_client_full(const struct mcp_client *c)
{
	if (c->how == MCP_SOCKET)
		return c->ws != NULL &&
		    websock_queued(c->ws) > MCP_SOCKET_QUEUE_MAX / 2;
	return c->r->x != NULL &&
	    exchange_queued(c->r->x) > MCP_STREAM_QUEUE_MAX;
}

void
mcp_client_room(struct mcp_client *c)
{
	if (c->held && !mcp_client_full(c))
		mcp_call_hold_all(c, false);
}

void
mcp_client_end(struct mcp_client *c)
{
	if (c->ended)
		return;
	c->ended = true;
	c->given_up = mcp_call_given_up(c);
	mcp_call_forget_all(c);
	if (c->how == MCP_SOCKET)
		mcp_ws_end(c);
	else
		mcp_http_end(c);
}

/* ---- following its episode -------------------------------------------------- */

static void
client_heard(void *arg, struct view json)
{
	struct mcp_client *c = arg;

	/* who does not read misses what concerns everybody */
	if (mcp_client_full(c)) {
		c->lost++;
		return;
	}
	mcp_spec_heard(c, NULL, json);
}

void
mcp_client_watch(struct mcp_client *c)
{
	struct episode *ep = mcp_episode(c);
	struct worker *w = ep != NULL ? worker_of(ep) : NULL;

	if (w == NULL || c->watching)
		return;
	c->watch.message = client_heard;
	c->watch.arg = c;
	c->watching = true;
	worker_watch(w, &c->watch);
}

/* Its worker's calls are over by themselves. */
static void
client_news(void *arg, struct episode *ep, const struct episode_news *n)
{
	struct mcp_client *c = arg;

	(void)ep;
	if (n->what != EPISODE_ENDED)
		return;
	episode_unwatch(&c->life);
	c->living = false;
	if (c->watching)
		worker_unwatch(&c->watch);
	c->watching = false;
	if (c->how == MCP_STREAM || c->how == MCP_SOCKET)
		mcp_client_end(c);
	else
		mcp_spec_over(c);
}

/* ---- hooks ------------------------------------------------------------------ */

/* openenvd's clients POST, and nothing else. */
static enum gate_verdict
client_how(struct mcp_client *c)
{
	struct view method = c->r->x->request.method;
	int asked = websocket_asked(&c->r->x->request);

	if (asked == SP_OK) {
		c->how = MCP_SOCKET;
		c->r->streams = true;
		return GATE_PASS;
	}
	if (asked == SP_E_SYNTAX)
		return gate_deny(c->r, 400, "bad_handshake",
		    "the WebSocket's handshake lacks a field, or has a wrong "
		    "one");
	if (asked == SP_E_UNSUPPORTED)
		return gate_deny(c->r, 426, "bad_version",
		    "Sec-WebSocket-Version must be 13");
	c->spec = mcp_http_is_spec(c);
	if (view_eq(method, VIEW("POST")))
		c->how = c->spec ? MCP_POST : MCP_PLAIN;
	else if (c->spec && view_eq(method, VIEW("GET")))
		c->how = MCP_STREAM;
	else if (c->spec && view_eq(method, VIEW("DELETE")))
		c->how = MCP_DELETE;
	else {
		c->r->allow = "GET, POST, DELETE";
		return gate_deny(c->r, 405, "method_not_allowed",
		    "this path takes POST");
	}
	return door_coding(c->r);
}

/* What lasts is no operation; each of its messages is one. */
static enum gate_verdict
client_admit(struct mcp_client *c)
{
	struct bound *b = gate_bound(c->r->gate);
	bool lasts = c->how == MCP_SOCKET || c->how == MCP_STREAM;
	enum bound_word w = lasts ? bound_socket(b, c->r, &c->place)
				  : bound_call(b, c->r, &c->place);

	if (w == BOUND_TAKEN)
		return GATE_PASS;
	return c->how == MCP_SOCKET ? bound_deny(c->r, w)
				    : mcp_http_limited(c, w);
}

enum gate_verdict
mcp_head(struct gate_request *r, const struct mcp_door *door)
{
	struct mcp_client *c = mem_calloc(1, sizeof(*c));
	enum gate_verdict v;

	if (c == NULL)
		return GATE_FAIL;
	c->r = r;
	c->door = door;
	c->conf = r->conf;
	LIST_INIT(&c->calls);
	LIST_INIT(&c->own.asked);
	buf_init(&c->out, MCP_REPLY_MAX);
	buf_init(&c->where, MCP_PLACE_MAX);
	r->ctx = c;
	if (route_place(r->location, &c->where) != SP_OK)
		return GATE_FAIL;
	c->inside = r->gate->ports[r->x->listener]->inside != NULL;
	v = door_origin(r);
	if (v == GATE_PASS)
		v = client_how(c);
	return v == GATE_PASS ? client_admit(c) : v;
}

enum gate_verdict
mcp_message(struct gate_request *r)
{
	struct mcp_client *c = r->ctx;
	struct episode *ep;
	enum gate_verdict v = mcp_owner_episode(c, &ep);

	if (v == GATE_PASS && ep == NULL)
		v = door_episode(r, c->conf->environment, &ep);
	/* openenvd has an episode always, and HTTP is never at fault */
	if (v == GATE_DENY && r->status == 503 && c->how == MCP_PLAIN)
		return mcp_http_no_episode(c);
	return v == GATE_PASS ? mcp_episode_serve(c, ep) : v;
}

enum gate_verdict
mcp_episode_serve(struct mcp_client *c, struct episode *ep)
{
	enum gate_verdict v;

	memcpy(c->episode, ep->id, sizeof(c->episode));
	c->ref = (struct mcp_episode_ref){ ep, ep->created_us };
	c->in_hook = true;
	v = c->how == MCP_SOCKET ? mcp_ws_message(c) : mcp_http_message(c);
	c->in_hook = false;
	if (v != GATE_HOLD)
		return v;
	if (c->how == MCP_SOCKET && c->r->orchestrator)
		mcp_session_connect(c);
	c->life.news = client_news;
	c->life.arg = c;
	c->living = true;
	episode_watch(ep, &c->life);
	return GATE_HOLD;
}

enum gate_verdict
mcp_finish(struct gate_request *r)
{
	struct mcp_client *c = r->ctx;

	if (c == NULL)
		return GATE_PASS;
	c->ended = true;
	if (c->making != NULL)
		r->gate->mcp_owner->forget(c->making);
	mcp_call_forget_all(c);
	if (c->watching)
		worker_unwatch(&c->watch);
	if (c->living)
		episode_unwatch(&c->life);
	bound_give(&c->place);
	mcp_session_over(c);
	mcp_session_leave(c);
	mcp_session_disconnect(c);
	mcp_session_peer_clear(&c->own);
	loop_timer_free(c->timer);
	buf_clear(&c->out);
	buf_clear(&c->where);
	r->ctx = NULL;
	mem_free(c);
	return GATE_PASS;
}

void
mcp_room(struct gate_request *r)
{
	if (r->ctx != NULL)
		mcp_client_room(r->ctx);
}

void
mcp_expire(struct gate_request *r, enum gate_expiry why)
{
	(void)why;
	mcp_client_end(r->ctx);
}

/* Something is under way that it may hear of. */
static bool
client_works(const struct mcp_client *c)
{
	const struct mcp_client *other;

	if (c->calls_n > 0)
		return true;
	if (c->how == MCP_STREAM && c->session != NULL)
		LIST_FOREACH (other, &c->session->clients, link)
			if (other->calls_n > 0)
				return true;
	return false;
}

void
mcp_client_rest(struct mcp_client *c)
{
	if (!gate_draining(c->r->gate) || c->ended || c->in_hook ||
	    (c->how != MCP_STREAM && c->how != MCP_SOCKET) || client_works(c))
		return;
	c->r->outcome = "stopping";
	mcp_client_end(c);
	gate_told(c->r);
}

void
mcp_drain(struct gate_request *r)
{
	if (r->ctx != NULL)
		mcp_client_rest(r->ctx);
}

size_t
mcp_holds(const struct gate_request *r)
{
	const struct mcp_client *c = r->ctx;
	const struct mcp_call *k;
	size_t n;

	if (c == NULL)
		return 0;
	n = buf_len(&c->out) + (c->ws != NULL ? websock_holds(c->ws) : 0);
	LIST_FOREACH (k, &c->calls, link)
		n += k->text.cap;
	return n;
}

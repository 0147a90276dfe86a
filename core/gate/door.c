#include "config.h"

#include "gate/door.h"

#include "base/num.h"
#include "base/utf8.h"
#include "gate/gate_priv.h"
#include "gate/session.h"
#include "http/query.h"

enum { DOOR_CODING_MAX = 64 }; /* of its name, as it is told */

/* ---- which episode ---------------------------------------------------------- */

/* The header, the query; empty: neither.  0; SP_E_SYNTAX; SP_E_NOMEM. */
static int
door_named(const struct gate_request *r, struct buf *out)
{
	const struct head_fields *f = &r->x->request.fields;
	struct view header = head_get(f, VIEW("X-Episode-Id"));
	int rc = query_get(r->x->request.query, VIEW("episode"), out);

	if (rc < 0)
		return rc == SP_E_NOMEM ? rc : SP_E_SYNTAX;
	if (header.p == NULL)
		return rc == 1 && buf_len(out) == 0 ? SP_E_SYNTAX : SP_OK;
	if (header.n == 0 || head_count(f, VIEW("X-Episode-Id")) > 1)
		return SP_E_SYNTAX;
	if (rc == 1)
		return view_eq(header, buf_view(out)) ? SP_OK : SP_E_SYNTAX;
	rc = buf_add_view(out, header);
	return rc == SP_E_LIMIT ? SP_E_SYNTAX : rc;
}

bool
door_names(const struct gate_request *r)
{
	struct buf id = BUF_INIT(EPISODE_ID_MAX);
	bool named =
	    query_get(r->x->request.query, VIEW("episode"), &id) != SP_OK ||
	    head_get(&r->x->request.fields, VIEW("X-Episode-Id")).p != NULL;

	buf_clear(&id);
	return named;
}

bool
door_serves(const struct episode *ep, const struct conf_environment *env)
{
	return ep->state != EPISODE_GONE && ep->state != EPISODE_ENDING &&
	    (env == NULL || view_eq(view_str(ep->env), env->name));
}

/* How many the environment has, and the last of them. */
static size_t
door_count(struct episode_set *set, const struct conf_environment *env,
    struct episode **one)
{
	struct episode *ep;
	size_t n = 0;

	for (ep = episode_first(set); ep != NULL; ep = LIST_NEXT(ep, link)) {
		if (!door_serves(ep, env))
			continue;
		*one = ep;
		n++;
	}
	return n;
}

/* Who came in by an episode's own listener means that one. */
static enum gate_verdict
door_episode_inside(struct gate_request *r, struct view named,
    struct episode **out)
{
	if (named.n > 0 && !view_eq(named, r->episode))
		return gate_deny(r, 400, "episode_mismatch",
		    "this listener is of another episode than the one that is "
		    "named: name none");
	*out = episode_find(gate_episodes(r->gate), r->episode);
	if (*out == NULL)
		return gate_deny(r, 503, "no_episode",
		    "the episode of this listener is over");
	return GATE_PASS;
}

/*
 * The session's key: whoever has that of a session which is named as an
 * episode is that one's agent.  GATE_PASS with *out, NULL: no such key came.
 */
static enum gate_verdict
door_episode_keyed(struct gate_request *r, const struct conf_environment *env,
    struct view named, struct episode **out)
{
	const struct roster *o = gate_roster(r->gate);
	const struct roster_session *s = NULL;
	struct episode *ep;
	struct view key;

	*out = NULL;
	/* with a token in the location that is what is sent */
	if (r->location->token != NULL || r->orchestrator ||
	    session_key(&r->x->request.fields, &key) != SP_OK || key.p == NULL)
		return GATE_PASS;
	s = roster_by_key(o, key, NULL);
	if (s == NULL && !roster_ready(o) &&
	    door_count(gate_episodes(r->gate), env, &ep) > 1)
		return gate_deny(r, 503, "no_sessions",
		    "it is not known yet which keys there are: try again");
	if (s == NULL)
		return GATE_PASS;
	if (named.n > 0 && !view_eq(named, s->m.id))
		return gate_deny(r, 400, "episode_mismatch",
		    "the key is of another episode than the one that is "
		    "named: name none");
	ep = episode_find(gate_episodes(r->gate), s->m.id);
	if (ep == NULL || !door_serves(ep, env))
		return gate_deny(r, 404, "unknown_episode",
		    "no episode is named as the session of this key");
	if (arena_dup(r->x->arena, s->m.id, &r->session) != SP_OK)
		return GATE_FAIL;
	*out = ep;
	return GATE_PASS;
}

/* Nobody said which. */
static enum gate_verdict
door_episode_only(struct gate_request *r, const struct conf_environment *env,
    struct episode **out)
{
	size_t n = door_count(gate_episodes(r->gate), env, out);
	bool known = r->location->token != NULL || r->orchestrator;
	struct view key;

	if (n == 1)
		return GATE_PASS;
	if (n == 0 && !known &&
	    session_key(&r->x->request.fields, &key) == SP_OK && key.p != NULL)
		return gate_deny(r, 503, "no_episode",
		    "there is no episode: an orchestrator's reset makes one, "
		    "and the key or token that came is not that of an "
		    "orchestrator of this environment");
	if (n == 0)
		return gate_deny(r, 503, "no_episode",
		    "there is no episode: an orchestrator's reset makes one");
	if (known)
		return gate_deny(r, 400, "episode_needed",
		    "there are several episodes: name one with X-Episode-Id or "
		    "?episode=");
	if (session_key(&r->x->request.fields, &key) == SP_OK && key.p != NULL)
		return gate_deny(r, 401, "key_needed",
		    "that key is no session's");
	return gate_deny(r, 400, "episode_needed",
	    "there are several episodes, and a name does not open one here: "
	    "send the key of the session that is named as the episode, or use "
	    "a location with a token and X-Episode-Id");
}

static enum gate_verdict
door_episode_named(struct gate_request *r, const struct conf_environment *env,
    struct view named, struct episode **out)
{
	struct episode_set *set = gate_episodes(r->gate);
	struct episode *one = NULL, *ep = episode_find(set, named);

	/* that there is one of that id is not told to those who may not ask */
	if (r->location->token == NULL && !r->orchestrator &&
	    door_count(set, env, &one) > 1)
		return gate_deny(r, 401, "key_needed",
		    "there are several episodes, and an id does not "
		    "authorise: send the key of the session that is named as "
		    "the episode, or use a location with a token");
	if (ep == NULL || !door_serves(ep, env))
		return gate_deny(r, 404, "unknown_episode",
		    "this location has no episode of that id: see X-Episode-Id "
		    "and ?episode=");
	*out = ep;
	return GATE_PASS;
}

/* By a listener of the host: the key, then the name, then the only one. */
static enum gate_verdict
door_episode_outside(struct gate_request *r, const struct conf_environment *env,
    struct view named, struct episode **out)
{
	enum gate_verdict v = door_episode_keyed(r, env, named, out);

	if (v != GATE_PASS || *out != NULL)
		return v;
	return named.n > 0 ? door_episode_named(r, env, named, out)
			   : door_episode_only(r, env, out);
}

enum gate_verdict
door_episode(struct gate_request *r, const struct conf_environment *env,
    struct episode **out)
{
	struct episode_set *set = gate_episodes(r->gate);
	struct buf named = BUF_INIT(EPISODE_ID_MAX);
	enum gate_verdict v = GATE_FAIL;
	int rc = door_named(r, &named);

	*out = NULL;
	if (rc == SP_E_SYNTAX)
		v = gate_deny(r, 400, "bad_episode",
		    "X-Episode-Id and ?episode= do not name one episode: send "
		    "one of them");
	else if (rc != SP_OK)
		v = GATE_FAIL;
	else if (set == NULL)
		v = gate_deny(r, 503, "helper_gone",
		    "there is no helper to make an episode");
	else if (r->episode.n > 0)
		v = door_episode_inside(r, buf_view(&named), out);
	else
		v = door_episode_outside(r, env, buf_view(&named), out);
	buf_clear(&named);
	if (v != GATE_PASS)
		*out = NULL;
	/* nobody was denied: there is nothing to be had */
	if (v == GATE_DENY && r->status == 503)
		r->outcome = r->code;
	return v;
}

/* ---- rebinding -------------------------------------------------------------- */

/* HOST, HOST:PORT, [V6], [V6]:PORT: the host, without brackets; p NULL. */
static struct view
door_host(struct view authority)
{
	size_t at;

	if (authority.n > 0 && authority.p[0] == '[') {
		at = view_find(authority, ']');
		if (at == authority.n ||
		    (at + 1 < authority.n && authority.p[at + 1] != ':'))
			return VIEW_NONE;
		return view_sub(authority, 1, at - 1);
	}
	return view_sub(authority, 0, view_find(authority, ':'));
}

/* Four numbers, as no name of a host may look (WHATWG URL s3.5). */
static bool
door_is_v4(struct view host)
{
	struct view part;
	uint64_t n;
	int parts = 0;

	while (view_split(&host, '.', &part)) {
		if (++parts > 4 || part.n > 3 || num_u64(part, 0, 255, &n) != 0)
			return false;
	}
	return parts == 4;
}

static bool
door_is_v6(struct view host)
{
	size_t i, colons = 0;

	for (i = 0; i < host.n; i++) {
		if (host.p[i] == ':')
			colons++;
		else if (strchr("0123456789abcdefABCDEF.", host.p[i]) == NULL ||
		    host.p[i] == '\0')
			return false;
	}
	return colons >= 2;
}

static bool
door_is_local(struct view host)
{
	return view_eq_nocase(host, VIEW("localhost")) ||
	    view_eq(host, VIEW("::1")) ||
	    (view_starts(host, VIEW("127.")) && door_is_v4(host));
}

static bool
door_is_ours(const struct conf_server *s, struct view host)
{
	size_t i;

	for (i = 0; i < s->server_names.n; i++)
		if (view_eq_nocase(s->server_names.v[i], host))
			return true;
	return door_is_local(host);
}

/* RFC 6454 s7: SCHEME "://" HOST [":" PORT]; "null" is nobody's. */
static bool
door_origin_ours(const struct conf_server *s, struct view origin,
    struct view authority)
{
	static const struct view mark = VIEW_INIT("://");
	size_t at = view_search(origin, mark);
	struct view from, host;

	if (at == origin.n)
		return false;
	from = view_from(origin, at + mark.n);
	host = door_host(from);
	if (host.n == 0)
		return false;
	/* the same host and port: a page that this server itself gave */
	return door_is_ours(s, host) || view_eq_nocase(from, authority);
}

enum gate_verdict
door_origin(struct gate_request *r)
{
	const struct conf_server *s = r->location->server;
	const struct gate_port *port = r->gate->ports[r->x->listener];
	const struct head_request *q = &r->x->request;
	struct view host = door_host(q->authority);
	struct view origin = head_get(&q->fields, VIEW("Origin"));

	/* no browser speaks to a socket in the file system */
	if (port->door != NULL && port->door->conf->is_unix)
		return GATE_PASS;
	/* an empty one is no name of ours; HTTP/1.0 may have none at all */
	if (q->authority.p != NULL && !door_is_v4(host) && !door_is_v6(host) &&
	    !door_is_ours(s, host))
		return gate_deny(r, 403, "bad_host",
		    "Host is no name of this server: use its address, or add "
		    "the name with server_name");
	if (origin.p != NULL &&
	    (head_count(&q->fields, VIEW("Origin")) > 1 ||
		!door_origin_ours(s, origin, q->authority)))
		return gate_deny(r, 403, "bad_origin",
		    "Origin is another site: only pages of this host may call "
		    "here");
	return GATE_PASS;
}

enum gate_verdict
door_coding(struct gate_request *r)
{
	struct view coding;
	const char *why;

	if (head_codings(&r->x->request.fields, &coding) == 0)
		return GATE_PASS;
	why = arena_printf(r->x->arena,
	    "the body has the content coding %.*s, and is read here: send it "
	    "without Content-Encoding",
	    VIEW_ARG(view_sub(coding, 0, DOOR_CODING_MAX)));
	return gate_deny(r, 415, "unsupported_encoding",
	    why != NULL ? why : "the body has a content coding");
}

/* ---- patterns --------------------------------------------------------------- */

/* The next character of v[*at..], which has one, and steps past it. */
static uint32_t
door_next(struct view v, size_t *at)
{
	uint32_t cp;
	unsigned n = utf8_decode(view_from(v, *at), &cp);

	if (n == 0) {
		/* above all code points, so that it equals itself alone */
		cp = 0x110000U + (unsigned char)v.p[*at];
		n = 1;
	}
	*at += n;
	return cp;
}

/*
 * The end of a set whose `[` is at pat[at - 1], one past its `]`; 0: there is
 * none, and the bracket stands for itself.
 */
static size_t
door_set_end(struct view pat, size_t at)
{
	size_t i = at;

	if (i < pat.n && pat.p[i] == '!')
		i++;
	if (i < pat.n && pat.p[i] == ']')
		i++;
	i += view_find(view_from(pat, i), ']');
	return i < pat.n ? i + 1 : 0;
}

/* Whether c is in the set pat[at..end - 1), without its brackets. */
static bool
door_in_set(struct view pat, size_t at, size_t end, uint32_t c)
{
	struct view set = view_sub(pat, at, end - 1 - at);
	bool negated = set.n > 0 && set.p[0] == '!', in = false;
	size_t i = negated ? 1 : 0;
	uint32_t low, high;

	while (i < set.n) {
		low = high = door_next(set, &i);
		if (i + 1 < set.n && set.p[i] == '-') {
			i++;
			high = door_next(set, &i);
		}
		in |= low <= c && c <= high;
	}
	return in != negated;
}

/* One step: text's character against the pattern's; steps past both. */
static bool
door_step(struct view pat, size_t *p, struct view text, size_t *t)
{
	uint32_t c = door_next(text, t), want = door_next(pat, p);
	size_t end, at = *p;

	if (want == '?')
		return true;
	if (want == '[' && (end = door_set_end(pat, at)) != 0) {
		*p = end;
		return door_in_set(pat, at, end, c);
	}
	return c == want;
}

bool
door_match(struct view pattern, struct view text)
{
	size_t p = 0, t = 0, star_p = SIZE_MAX, star_t = 0;

	while (t < text.n) {
		if (p < pattern.n && pattern.p[p] == '*') {
			star_p = ++p;
			star_t = t;
		} else if (p < pattern.n && door_step(pattern, &p, text, &t)) {
			continue;
		} else if (star_p == SIZE_MAX) {
			return false;
		} else {
			/* the last star takes one more */
			(void)door_next(text, &star_t);
			p = star_p;
			t = star_t;
		}
	}
	while (p < pattern.n && pattern.p[p] == '*')
		p++;
	return p == pattern.n;
}

bool
door_match_any(const struct conf_list *patterns, struct view text)
{
	size_t i;

	for (i = 0; i < patterns->n; i++)
		if (door_match(patterns->v[i], text))
			return true;
	return false;
}

/* ---- what is told ----------------------------------------------------------- */

void
door_log(const struct gate_request *r, const struct door_operation *op)
{
	struct gate *g = r->gate;
	const struct exchange *x = walk_exchange(r);
	const struct view labels[] = { view_str(op->principal),
		view_str(op->operation), view_str(op->outcome) };
	const struct access_operation line = {
		.listener = g->ports[x->listener]->name,
		.peer = x->peer,
		.connection = x->connection,
		.number = r->number,
		.principal = op->principal,
		.door = op->door,
		.operation = op->operation,
		.outcome = op->outcome,
		.episode = op->episode,
		.tool = op->tool,
		.duration_us = op->us,
	};

	metrics_inc(metrics_cell(g->operations, labels));
	access_add_operation(g->access, &line);
}

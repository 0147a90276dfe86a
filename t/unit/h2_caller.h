/* Calls over HTTP/2 to the servers of h2_upstream.h, and what they were told. */
#ifndef SP_T_UNIT_H2_CALLER_H
#define SP_T_UNIT_H2_CALLER_H

#include "base/mem.h"
#include "event/resolver.h"
#include "h2_upstream.h"
#include "http/call.h"
#include "http/h2_client.h"

enum { CALLS = 64 };

/* What the owner of one call was told. */
struct seen {
	struct call *call;
	struct buf text; /* "200 {a=b;}" */
	struct buf body;
	unsigned heads, ends, fails;
	bool delimited;
	enum call_failure why;
	char words[200];
	bool cancel_at_head, cancel_at_body, pause_at_head;
	void (*at_head)(void);
};

static struct resolver *resolver;
static struct pool *pool;
static struct h2_client *client;
static uint16_t port;
static struct seen seen[CALLS];

static inline void
must(int rc)
{
	if (rc != 0)
		abort();
}

static inline void
on_head(void *arg, struct call *c, const struct head_reply *head)
{
	struct seen *s = arg;
	size_t i;

	s->heads++;
	must(buf_printf(&s->text, "%u %lld {", head->status,
	    (long long)head->content_length));
	for (i = 0; i < head->fields.n; i++)
		must(buf_printf(&s->text, "%.*s=%.*s;",
		    VIEW_ARG(head->fields.v[i].name),
		    VIEW_ARG(head->fields.v[i].value)));
	must(buf_add_str(&s->text, "}"));
	if (s->at_head != NULL)
		s->at_head();
	if (s->pause_at_head)
		call_pause(c, true);
	if (s->cancel_at_head) {
		call_cancel(c);
		s->call = NULL;
	}
}

static inline void
on_body(void *arg, struct call *c, struct view data)
{
	struct seen *s = arg;

	must(buf_add_view(&s->body, data));
	if (s->cancel_at_body) {
		call_cancel(c);
		s->call = NULL;
	}
}

static inline void
on_end(void *arg, struct call *c, bool delimited)
{
	struct seen *s = arg;

	(void)c;
	s->ends++;
	s->delimited = delimited;
	s->call = NULL;
}

static inline void
on_fail(void *arg, struct call *c, enum call_failure why, const char *text)
{
	struct seen *s = arg;

	(void)c;
	s->fails++;
	s->why = why;
	(void)snprintf(s->words, sizeof(s->words), "%s", text);
	s->call = NULL;
}

static inline void
seen_reset(struct seen *s)
{
	buf_clear(&s->text);
	buf_clear(&s->body);
	*s = (struct seen){ .text = BUF_INIT(1 << 20),
		.body = BUF_INIT(1 << 26) };
}

/* ---- the pool, and calls --------------------------------------------------
 */

static inline int
pool_try(uint64_t keepalive_timeout_ms)
{
	const struct pool_server server = { .host = VIEW("127.0.0.1"),
		.port = port,
		.authority = VIEW("up:99"),
		.base = VIEW("/base") };
	const struct h2_client_params hp = { .name = VIEW("t"),
		.always = true,
		.keepalive_timeout_ms = keepalive_timeout_ms,
		.header_max = 4000 };
	struct pool_params params = { .name = VIEW("t"),
		.servers = &server,
		.servers_n = 1,
		.connect_timeout_ms = 10000,
		.keepalive = 4,
		.keepalive_timeout_ms = 60000 };
	int rc = h2_client_new(loop, &hp, &client);

	if (rc != 0)
		return rc;
	params.sharer = h2_client_sharer(client);
	rc = pool_new(loop, resolver, &params, &pool);
	if (rc != 0) {
		h2_client_free(client);
		client = NULL;
	}
	return rc;
}

static inline void
start(void)
{
	must(pool_try(60000));
}

static inline struct call_params
params(void)
{
	return (struct call_params){ .pool = pool,
		.affinity = VIEW("k"),
		.method = VIEW("POST"),
		.target = VIEW("/v1/x"),
		.body = VIEW("{}"),
		.send_timeout_ms = 9000,
		.first_byte_timeout_ms = 9000,
		.read_timeout_ms = 9000,
		.header_max = 4000,
		.decoded_max = 1 << 20 };
}

static inline void
begin_with(size_t at, const struct call_params *cp)
{
	struct call_owner owner = { on_head, on_body, on_end, on_fail,
		&seen[at] };

	seen_reset(&seen[at]);
	must(call_start(loop, cp, &owner, &seen[at].call));
}

static inline void
begin(size_t at)
{
	struct call_params cp = params();

	begin_with(at, &cp);
}

static inline void
stop(void)
{
	size_t i;

	for (i = 0; i < CALLS; i++) {
		if (seen[i].call != NULL)
			call_cancel(seen[i].call);
		seen_reset(&seen[i]);
	}
	pool_free(pool);
	h2_client_free(client);
	pool = NULL;
	client = NULL;
	h2s_reset();
}

/* ---- conditions ----------------------------------------------------------- */

static size_t want_requests, want_ends;
static unsigned want_accepted;

static inline bool
is_asked(void)
{
	size_t i, n = 0;

	h2s_pump();
	for (i = 0; i < h2s.rq_n; i++)
		n += h2s.rq[i].end;
	return n >= want_requests;
}

static inline void
wait_asked(size_t n, const char *what)
{
	want_requests = n;
	wait_for(is_asked, what);
}

static inline bool
is_begun(void)
{
	h2s_pump();
	return h2s.rq_n >= want_requests;
}

static inline bool
is_over(void)
{
	size_t i, n = 0;

	h2s_pump();
	for (i = 0; i < CALLS; i++)
		n += seen[i].ends + seen[i].fails;
	return n >= want_ends;
}

static inline void
wait_over(size_t n, const char *what)
{
	want_ends = n;
	wait_for(is_over, what);
}

static inline bool
is_accepted(void)
{
	h2s_pump();
	return h2s.accepted >= want_accepted;
}

static inline bool
is_headed(void)
{
	h2s_pump();
	return seen[0].heads != 0;
}

static inline bool
is_closed(void)
{
	h2s_pump();
	return h2s.rq[0].closed;
}

static inline bool
is_left(void)
{
	h2s_pump();
	return peers[h2s.conn].eof || peers[h2s.conn].reset;
}

static inline bool
is_quiet(void)
{
	struct h2_client_stats st;

	h2s_pump();
	h2_client_stats(client, &st);
	return st.connections == 0;
}

static inline bool
is_pumped(void)
{
	h2s_pump();
	return false;
}

static inline void
turns(int n)
{
	peer_cond = is_pumped;
	peer_ticks = n;
	loop_timer_set(peer_timer, 0);
	if (loop_run(loop) != 0)
		abort();
}

static inline void
caller_init(void)
{
	size_t i;

	peer_init();
	for (i = 0; i < CALLS; i++)
		seen_reset(&seen[i]);
	resolver = resolver_new(loop, NULL, 0);
	if (resolver == NULL)
		abort();
	h2s.lfd = peer_listen(&port);
}

static inline void
caller_clear(void)
{
	close(h2s.lfd);
	resolver_free(resolver);
	peer_clear();
}

#endif

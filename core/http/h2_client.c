#include "config.h"

#include "base/log.h"
#include "base/mem.h"
#include "http/h2_link.h"

static void
client_free_link(struct h2_link *c)
{
	struct h2_client *client = c->client;

	err_assert(TAILQ_EMPTY(&c->calls));
	TAILQ_REMOVE(&client->dead, c, link);
	if (c->dirty)
		TAILQ_REMOVE(&client->dirty, c, dirty_link);
	buf_clear(&c->out);
	mem_free(c);
}

/* Each connection once: one that is marked again waits for the next turn. */
static void
client_turn(void *arg)
{
	struct h2_client *client = arg;
	struct h2_link_list now;
	struct h2_link *c, *next;

	TAILQ_INIT(&now);
	TAILQ_CONCAT(&now, &client->dirty, dirty_link);
	while ((c = TAILQ_FIRST(&now)) != NULL) {
		TAILQ_REMOVE(&now, c, dirty_link);
		c->dirty = false;
		h2_link_turn(c);
	}
	for (c = TAILQ_FIRST(&client->dead); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		if (TAILQ_EMPTY(&c->calls))
			client_free_link(c);
	}
}

void
h2_client_mark(struct h2_link *c)
{
	if (c->dirty)
		return;
	c->dirty = true;
	TAILQ_INSERT_TAIL(&c->client->dirty, c, dirty_link);
	loop_task_post(c->client->task);
}

void
h2_client_bury(struct h2_link *c, bool graceful)
{
	struct h2_client *client = c->client;

	if (c->dead)
		return;
	c->dead = true;
	nghttp2_session_del(c->session);
	stream_free(c->stream, graceful);
	loop_timer_free(c->timer);
	c->session = NULL;
	c->stream = NULL;
	c->timer = NULL;
	TAILQ_REMOVE(&client->links, c, link);
	TAILQ_INSERT_TAIL(&client->dead, c, link);
	client->stats.connections--;
	h2_client_mark(c);
}

/* ---- what the pool asks --------------------------------------------------- */

static void *
client_ask(void *arg, size_t server)
{
	struct h2_client *client = arg;
	struct h2_link *c;

	/* the oldest first: those that are not needed become idle */
	TAILQ_FOREACH (c, &client->links, link)
		if (c->server == server && h2_link_has_room(c))
			return h2_link_reserve(c);
	return NULL;
}

static bool
client_expects(void *arg, size_t server)
{
	const struct h2_client *client = arg;

	return (client->without & (UINT64_C(1) << server)) == 0;
}

static int
client_link(struct h2_client *client, size_t server, struct stream *st,
    struct h2_link **out)
{
	struct stream_owner owner = { .ready = h2_link_ready };
	struct h2_link *c = mem_calloc(1, sizeof(*c));

	if (c == NULL)
		return SP_E_NOMEM;
	c->client = client;
	c->server = server;
	c->tls = stream_is_tls(st);
	TAILQ_INIT(&c->calls);
	TAILQ_INIT(&c->dirty_calls);
	TAILQ_INIT(&c->sending);
	/* filled up to H2_LINK_OUT_MAX; a frame or a head more may come on
	 * top */
	buf_init(&c->out, H2_LINK_OUT_MAX + 2 * H2_LINK_HEADER_BLOCK_MAX);
	c->timer = loop_timer_new(client->loop, h2_link_deadline, c);
	if (c->timer == NULL ||
	    nghttp2_session_client_new3(&c->session, client->callbacks, c,
		client->option, h2_server_mem()) != 0 ||
	    h2_link_start(c) != 0) {
		loop_timer_free(c->timer);
		nghttp2_session_del(c->session);
		mem_free(c);
		return SP_E_NOMEM;
	}
	owner.arg = c;
	c->stream = st;
	stream_set_owner(st, &owner);
	TAILQ_INSERT_TAIL(&client->links, c, link);
	client->stats.connections++;
	h2_client_mark(c);
	*out = c;
	return 0;
}

/* RFC 9113 s3.2, s3.3: what ALPN chose; on plain ones by prior knowledge. */
static int
client_offer(void *arg, size_t server, struct stream *st, void **share)
{
	struct h2_client *client = arg;
	uint64_t bit = UINT64_C(1) << server;
	struct h2_link *c;
	int rc;

	*share = NULL;
	if (stream_is_tls(st) ? !view_eq(stream_alpn(st), VIEW("h2"))
			      : !client->always) {
		client->without |= bit;
		return client->always ? SP_E_TLS : 0;
	}
	client->without &= ~bit;
	rc = client_link(client, server, st, &c);
	if (rc != 0)
		return rc;
	*share = h2_link_reserve(c);
	if (*share != NULL)
		return 0;
	/* the stream stays the pool's on an error */
	c->stream = NULL;
	h2_client_bury(c, true);
	return SP_E_NOMEM;
}

static void
client_close(void *share)
{
	h2_link_leave(share);
}

/* Another server may stand there next. */
static void
client_forget(void *arg, size_t server)
{
	struct h2_client *client = arg;
	struct h2_link *c;

	client->without &= ~(UINT64_C(1) << server);
	TAILQ_FOREACH (c, &client->links, link)
		if (c->server == server) {
			c->going = true;
			h2_client_mark(c);
		}
}

/* ---- exported ------------------------------------------------------------- */

static int
client_init(struct h2_client *c)
{
	c->task = loop_task_new(c->loop, client_turn, c);
	if (c->task == NULL || c->name == NULL ||
	    nghttp2_option_new(&c->option) != 0 ||
	    nghttp2_session_callbacks_new(&c->callbacks) != 0)
		return SP_E_NOMEM;
	/* windows open as the owner takes the bytes */
	nghttp2_option_set_no_auto_window_update(c->option, 1);
	/* no memory of what is over */
	nghttp2_option_set_no_closed_streams(c->option, 1);
	nghttp2_option_set_max_send_header_block_length(c->option,
	    H2_LINK_HEADER_BLOCK_MAX);
	h2_call_callbacks(c->callbacks);
	h2_answer_callbacks(c->callbacks);
	return 0;
}

int
h2_client_new(struct loop *l, const struct h2_client_params *params,
    struct h2_client **out)
{
	struct h2_client *c = mem_calloc(1, sizeof(*c));

	if (c == NULL)
		return SP_E_NOMEM;
	c->sharer = (struct pool_sharer){ client_ask, client_expects,
		client_offer, client_close, client_forget, c };
	c->loop = l;
	c->always = params->always;
	c->keepalive_timeout_ms = params->keepalive_timeout_ms;
	c->header_max = params->header_max;
	c->name =
	    mem_strndup(params->name.n ? params->name.p : "", params->name.n);
	TAILQ_INIT(&c->links);
	TAILQ_INIT(&c->dirty);
	TAILQ_INIT(&c->dead);
	if (client_init(c) != 0) {
		h2_client_free(c);
		return SP_E_NOMEM;
	}
	*out = c;
	return 0;
}

void
h2_client_free(struct h2_client *c)
{
	struct h2_link *k;

	if (c == NULL)
		return;
	while ((k = TAILQ_FIRST(&c->links)) != NULL)
		h2_link_lost(k, "");
	/* whatever is left of calls has no lease any more */
	TAILQ_FOREACH (k, &c->dead, link)
		h2_link_turn(k);
	while ((k = TAILQ_FIRST(&c->dead)) != NULL)
		client_free_link(k);
	loop_task_free(c->task);
	nghttp2_session_callbacks_del(c->callbacks);
	nghttp2_option_del(c->option);
	mem_free(c->name);
	mem_free(c);
}

const struct pool_sharer *
h2_client_sharer(const struct h2_client *c)
{
	return &c->sharer;
}

void
h2_client_stats(const struct h2_client *c, struct h2_client_stats *out)
{
	const struct h2_link *k;

	*out = c->stats;
	TAILQ_FOREACH (k, &c->links, link)
		out->idle += k->calls_n == 0;
}

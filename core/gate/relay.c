#include "config.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "gate/relay_priv.h"
#include "http/head.h"
#include "ipc/sandbox_msg.h"
#include "os/fd.h"

static const char *const relay_verdicts[RELAY_VERDICTS] = {
	[RELAY_DENIED] = "deny",
	[RELAY_FAILED] = "fail",
	[RELAY_ALLOWED] = "allow",
};
static const char *const relay_ways[RELAY_WAYS] = {
	[RELAY_CONNECT] = "connect",
	[RELAY_TURNED] = "relay",
};

uint64_t
relay_ms(uint64_t set, uint64_t usual)
{
	return set != 0 ? set : usual;
}

struct view
relay_conn_name(const struct relay_conn *c)
{
	return view_of(c->name, c->name_n);
}

const struct conf_environment *
relay_conn_rules(const struct relay_conn *c)
{
	const struct relay *r = c->place->relay;

	return r->w.rules(r->w.arg, c->place->ep);
}

/* ---- what is told ------------------------------------------------------------ */

/* A workload may try as often as it likes: its lines are counted. */
static bool
relay_may_log(struct relay_place *p)
{
	uint64_t now = loop_now_ms(p->relay->w.loop) / 1000;

	if (now != p->second) {
		p->second = now;
		p->lines_n = 0;
	}
	if (p->lines_n >= RELAY_LINES) {
		p->skipped++;
		return false;
	}
	p->lines_n++;
	return true;
}

static void
relay_log(struct relay_place *p, const struct relay_decision *d)
{
	char addr[INET_ADDRSTRLEN] = "-";
	struct in_addr in = { .s_addr = htonl(d->addr) };
	struct view name = d->name.n > 0 ? d->name : VIEW("-");

	if (!relay_may_log(p))
		return;
	if (d->addr != 0)
		(void)inet_ntop(AF_INET, &in, addr, sizeof(addr));
	if (p->skipped > 0)
		log_info("egress episode=%s lines=%llu were too many",
		    p->ep->id, (unsigned long long)p->skipped);
	p->skipped = 0;
	log_info("egress episode=%s verdict=%s door=%s protocol=tcp name=%.*s "
		 "address=%s port=%u sent=%llu received=%llu%s%s",
	    p->ep->id, relay_verdicts[d->verdict], relay_ways[d->way],
	    VIEW_ARG(name), addr, d->port, (unsigned long long)d->sent,
	    (unsigned long long)d->received, d->why[0] != '\0' ? " why=" : "",
	    d->why);
}

void
relay_tell(struct relay_conn *c, enum relay_verdict v, const char *why,
    bool ended)
{
	struct relay *r = c->place->relay;
	const struct relay_decision d = {
		.verdict = v,
		.way = c->way,
		.ended = ended,
		.addr = c->addr,
		.port = c->port,
		.name = relay_conn_name(c),
		.why = why,
		.sent = v == RELAY_ALLOWED ? c->up.bytes : 0,
		.received = v == RELAY_ALLOWED ? c->down.bytes : 0,
	};

	if (c->state == RELAY_ST_LINGER)
		return;
	if (!c->told)
		metrics_inc(r->verdicts[v][c->way]);
	c->told = true;
	if (ended) {
		relay_log(c->place, &d);
		*r->bytes[0] += d.sent;
		*r->bytes[1] += d.received;
	}
	if (r->w.decided != NULL)
		r->w.decided(r->w.arg, c->place->ep, &d);
}

/* ---- connections ------------------------------------------------------------- */

void
relay_conn_free(struct relay_conn *c, bool graceful)
{
	struct relay_place *p = c->place;

	LIST_REMOVE(c, link);
	p->conns_n--;
	p->relay->conns_n--;
	*p->relay->open = p->relay->conns_n;
	resolver_cancel(c->query);
	dial_cancel(c->dial);
	loop_timer_free(c->timer);
	stream_free(c->in, graceful);
	stream_free(c->out, graceful);
	buf_clear(&c->up.held);
	buf_clear(&c->down.held);
	mem_free(c);
}

static int
relay_reply(struct relay_conn *c, unsigned status, const char *line)
{
	buf_reset(&c->down.held, RELAY_HELD_MAX);
	return buf_printf(&c->down.held,
	    "HTTP/1.1 %u %s\r\n"
	    "%s"
	    "Content-Type: text/plain\r\n"
	    "Content-Length: %zu\r\n"
	    "Connection: close\r\n"
	    "\r\n"
	    "%s\n",
	    status, head_reason(status),
	    status == 405 ? "Allow: CONNECT\r\n" : "", strlen(line) + 1, line);
}

void
relay_refuse(struct relay_conn *c, enum relay_verdict v, const char *why,
    unsigned status, const char *line)
{
	relay_tell(c, v, why, true);
	if (c->way == RELAY_TURNED || c->replied ||
	    relay_reply(c, status, line) != SP_OK) {
		relay_conn_free(c, false);
		return;
	}
	c->state = RELAY_ST_LINGER;
	buf_clear(&c->up.held);
	loop_timer_set(c->timer, RELAY_LINGER_MS);
	stream_want(c->in, STREAM_READ | STREAM_WRITE);
}

static void
relay_on_timer(void *arg)
{
	struct relay_conn *c = arg;

	switch (c->state) {
	case RELAY_ST_HEAD:
		relay_refuse(c, RELAY_DENIED, "request", 408,
		    "no request came in time");
		return;
	case RELAY_ST_REACH:
		relay_refuse(c, RELAY_FAILED, "timeout", 504,
		    "the host cannot be reached in time");
		return;
	case RELAY_ST_HELLO:
		relay_refuse(c, RELAY_DENIED, "no_tls", 0, "");
		return;
	case RELAY_ST_BYTES:
		relay_tell(c, RELAY_ALLOWED, "idle", true);
		break;
	case RELAY_ST_LINGER:
		break;
	}
	relay_conn_free(c, false);
}

/* The stream's, once there is one. */
static struct relay_conn *
relay_conn_new(struct relay_place *p, enum relay_way way, int fd)
{
	struct relay_conn *c = mem_calloc(1, sizeof(*c));
	const struct stream_owner owner = { relay_connect_ready, c };
	const struct stream_side side = { .server = true };

	if (c == NULL) {
		fd_close(&fd);
		return NULL;
	}
	c->place = p;
	c->way = way;
	buf_init(&c->up.held, RELAY_HELD_MAX);
	buf_init(&c->down.held, RELAY_HELD_MAX);
	c->timer = loop_timer_new(p->relay->w.loop, relay_on_timer, c);
	if (c->timer == NULL) {
		fd_close(&fd);
		mem_free(c);
		return NULL;
	}
	if (stream_new(p->relay->w.loop, fd, &side, &owner, &c->in) != SP_OK) {
		loop_timer_free(c->timer);
		mem_free(c);
		return NULL;
	}
	LIST_INSERT_HEAD(&p->conns, c, link);
	p->conns_n++;
	p->relay->conns_n++;
	*p->relay->open = p->relay->conns_n;
	return c;
}

/* Without a word, and so that it is seen at once. */
static void
relay_reset(int fd)
{
	const struct linger at_once = { 1, 0 };

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	(void)close(fd);
}

static void
relay_come(struct relay_place *p, enum relay_way way, int fd)
{
	const struct conf_environment *e =
	    p->relay->w.rules(p->relay->w.arg, p->ep);
	uint64_t most = e != NULL ? e->connections : 0;
	bool over = p->conns_n >= most;
	struct relay_conn *c;

	if (p->conns_n >= most + RELAY_EXTRA) {
		metrics_inc(p->relay->verdicts[RELAY_DENIED][way]);
		relay_reset(fd);
		return;
	}
	c = relay_conn_new(p, way, fd);
	if (c == NULL)
		log_warn("egress episode=%s: no memory for a connection",
		    p->ep->id);
	else if (over)
		relay_refuse(c, RELAY_DENIED, "connections", 503,
		    "too many connections of this episode");
	else
		relay_connect_begin(c);
}

static void
relay_accept(void *arg, struct listener *from, int fd)
{
	struct relay_place *p = arg;

	relay_come(p,
	    from == p->doors[RELAY_CONNECT] ? RELAY_CONNECT : RELAY_TURNED, fd);
}

/* ---- episodes ---------------------------------------------------------------- */

/* Nobody comes in, then who is in leaves. */
static void
relay_place_free(struct relay_place *p)
{
	struct relay_conn *c;
	size_t i;

	for (i = 0; i < RELAY_WAYS; i++)
		listener_free(p->doors[i]);
	while ((c = LIST_FIRST(&p->conns)) != NULL) {
		if (c->state == RELAY_ST_BYTES)
			relay_tell(c, RELAY_ALLOWED, "closed", true);
		relay_conn_free(c, false);
	}
	episode_unwatch(&p->watch);
	LIST_REMOVE(p, link);
	mem_free(p);
}

static void
relay_news(void *arg, struct episode *ep, const struct episode_news *n)
{
	(void)ep;
	if (n->what == EPISODE_CLOSING || n->what == EPISODE_ENDED)
		relay_place_free(arg);
}

static struct relay_place *
relay_place_of(struct relay *r, struct episode *ep)
{
	struct relay_place *p;

	LIST_FOREACH (p, &r->places, link)
		if (p->ep == ep)
			return p;
	p = mem_calloc(1, sizeof(*p));
	if (p == NULL)
		return NULL;
	p->relay = r;
	p->ep = ep;
	p->watch.news = relay_news;
	p->watch.arg = p;
	LIST_INIT(&p->conns);
	episode_watch(ep, &p->watch);
	LIST_INSERT_HEAD(&r->places, p, link);
	return p;
}

void
relay_door(void *arg, struct episode *ep, uint32_t index, int fd)
{
	enum relay_way way =
	    index == SANDBOX_DOOR_CONNECT ? RELAY_CONNECT : RELAY_TURNED;
	struct relay *r = arg;
	struct relay_place *p = NULL;
	int rc = SP_E_ARG;

	if (index == SANDBOX_DOOR_CONNECT || index == SANDBOX_DOOR_RELAY) {
		p = relay_place_of(r, ep);
		rc = p != NULL ? fd_nonblock(fd) : SP_E_NOMEM;
	}
	if (rc == SP_OK && p->doors[way] != NULL)
		rc = SP_E_EXISTS;
	if (rc == SP_OK)
		rc = listener_new(r->w.loop, fd, relay_accept, p,
		    &p->doors[way]);
	if (rc == SP_OK)
		return;
	/* what it listens for gets no answer; all else works */
	log_error("episode %s: its way out %u is closed: %s", ep->id, index,
	    err_str(rc));
	fd_close(&fd);
}

/* ---- life -------------------------------------------------------------------- */

static int
relay_metrics(struct relay *r)
{
	static const char *const of_verdict[] = { "verdict", "door", NULL };
	static const char *const of_bytes[] = { "direction", NULL };
	const struct view directions[] = { VIEW("sent"), VIEW("received") };
	struct metrics *m = r->w.metrics;
	struct metric *x, *y, *z;
	size_t i, j;

	x = metrics_register(m, METRICS_COUNTER, "egress",
	    "Connections of episodes to the outside, through this process",
	    of_verdict, NULL);
	y = metrics_register(m, METRICS_COUNTER, "egress_bytes",
	    "Bytes carried for episodes, of connections that are over",
	    of_bytes, NULL);
	z = metrics_register(m, METRICS_GAUGE, "egress_connections",
	    "Connections of episodes to the outside that are open", NULL, NULL);
	if (x == NULL || y == NULL || z == NULL)
		return SP_E_NOMEM;
	for (i = 0; i < RELAY_VERDICTS; i++)
		for (j = 0; j < RELAY_WAYS; j++) {
			const struct view values[] = { view_str(
							   relay_verdicts[i]),
				view_str(relay_ways[j]) };

			r->verdicts[i][j] = metrics_cell(x, values);
		}
	for (i = 0; i < 2; i++)
		r->bytes[i] = metrics_cell(y, &directions[i]);
	r->open = metrics_cell(z, NULL);
	return SP_OK;
}

int
relay_new(const struct relay_world *w, struct relay **out)
{
	struct relay *r = mem_calloc(1, sizeof(*r));
	int rc;

	if (r == NULL)
		return SP_E_NOMEM;
	r->w = *w;
	LIST_INIT(&r->places);
	r->probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	rc = r->probe >= 0 ? relay_metrics(r) : SP_E_SYS;
	if (rc != SP_OK) {
		relay_free(r);
		return rc;
	}
	*out = r;
	return SP_OK;
}

void
relay_free(struct relay *r)
{
	struct relay_place *p;

	if (r == NULL)
		return;
	while ((p = LIST_FIRST(&r->places)) != NULL)
		relay_place_free(p);
	fd_close(&r->probe);
	mem_free(r);
}

size_t
relay_count(const struct relay *r)
{
	return r->conns_n;
}

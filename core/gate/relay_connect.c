#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/num.h"
#include "gate/relay_priv.h"
#include "gate/relay_rules.h"

enum {
	CONNECT_HEAD_MAX = 8192,
	CONNECT_LINGER_BYTES = 256 * 1024,
	CONNECT_ARENA = 32 * 1024,
};

static const struct h1_scan_limits connect_limits = {
	.line_max = 4096,
	.total_max = CONNECT_HEAD_MAX,
	.fields_max = 64,
};

/* ---- the name in TLS -------------------------------------------------------- */

/* Turned connections: the name must be one that the rules let out. */
static void
connect_turned_name(struct relay_conn *c, struct view name)
{
	const struct conf_environment *e = relay_conn_rules(c);

	memcpy(c->name, name.p, name.n);
	c->name_n = name.n;
	/* what it was for is not where it goes */
	c->addr = 0;
	if (e != NULL && relay_rules_host(e, name, c->port) != NULL)
		relay_reach_name(c);
	else
		relay_refuse(c, RELAY_DENIED, "server_name", 0, "");
}

static void
connect_hello(struct relay_conn *c)
{
	char mem[RELAY_HELLO_NAME_MAX];
	struct view name;
	size_t n = 0;
	int rc = relay_hello_read(buf_view(&c->up.held), mem, &n);

	if (rc == SP_E_AGAIN)
		return;
	name = view_of(mem, n);
	if (rc != SP_OK)
		relay_refuse(c, RELAY_DENIED, "no_tls", 0, "");
	else if (n == 0)
		relay_refuse(c, RELAY_DENIED, "no_server_name", 0, "");
	else if (c->way == RELAY_TURNED)
		connect_turned_name(c, name);
	else if (!view_eq(name, relay_conn_name(c)))
		relay_refuse(c, RELAY_DENIED, "server_name", 0, "");
	else
		relay_pipe_begin(c);
}

/* ---- the request ------------------------------------------------------------ */

static void
connect_refuse_target(struct relay_conn *c, const char *why, unsigned status,
    const char *line)
{
	relay_refuse(c, RELAY_DENIED, why, status, line);
}

/* RFC 9112 s3.2.3: host and port, neither may be missing. */
static void
connect_target(struct relay_conn *c, struct view authority)
{
	const struct conf_environment *e = relay_conn_rules(c);
	size_t colon = authority.p != NULL ? authority.n : 0;
	struct hosts_ip ip;
	uint64_t port;

	while (colon > 0 && authority.p[colon - 1] != ':')
		colon--;
	if (colon < 2 ||
	    num_u64(view_from(authority, colon), 1, 65535, &port) != SP_OK) {
		connect_refuse_target(c, "target", 400,
		    "bad target; expected HOST:PORT");
		return;
	}
	c->port = (uint16_t)port;
	authority = view_sub(authority, 0, colon - 1);
	if (hosts_literal(authority, &ip) == SP_OK) {
		connect_refuse_target(c, "address", 403,
		    "an address is no name; the rules are for names");
		return;
	}
	c->name_n = hosts_name(authority, c->name);
	if (c->name_n == 0)
		connect_refuse_target(c, "target", 400,
		    "bad host name; expected HOST:PORT");
	else if (e == NULL ||
	    relay_rules_host(e, relay_conn_name(c), c->port) == NULL)
		connect_refuse_target(c, "rules", 403,
		    "no rule of the environment lets this host and port out");
	else
		relay_reach_name(c);
}

static void
connect_head(struct relay_conn *c)
{
	struct view bytes = buf_view(&c->up.held);
	struct h1_fault fault = { 400, "bad request" };
	struct head_request head;
	struct arena *a;
	size_t n;
	int rc = h1_parse_scan(&c->scan, bytes, &connect_limits, &n, &fault);

	if (rc == SP_E_AGAIN)
		return;
	a = rc == SP_OK ? arena_new(CONNECT_ARENA) : NULL;
	if (rc == SP_OK && a == NULL)
		rc = SP_E_NOMEM;
	if (rc == SP_OK)
		rc = h1_parse_connect(view_sub(bytes, 0, n), &c->scan, a, &head,
		    &fault);
	if (rc == SP_OK) {
		/* it is used up before the bytes go */
		struct buf target = BUF_INIT(CONNECT_HEAD_MAX);

		rc = buf_add_view(&target, head.authority);
		buf_consume(&c->up.held, n);
		c->up.bytes = buf_len(&c->up.held);
		if (rc == SP_OK)
			connect_target(c, buf_view(&target));
		buf_clear(&target);
	} else if (rc != SP_E_NOMEM)
		relay_refuse(c, RELAY_DENIED, "request", fault.status,
		    fault.what);
	if (rc == SP_E_NOMEM)
		relay_refuse(c, RELAY_FAILED, "memory", 503, "no memory");
	arena_free(a);
}

/* ---- readiness -------------------------------------------------------------- */

/* Who was refused reads that in peace: a reset would take it away. */
static void
connect_linger(struct relay_conn *c, unsigned what)
{
	char *scratch = loop_scratch(c->place->relay->w.loop);
	size_t n = 0;
	int rc = SP_OK;

	if (what & STREAM_WRITE)
		rc = relay_pipe_flush(c->in, &c->down);
	if (rc == SP_OK && buf_len(&c->down.held) == 0 && !c->down.shut) {
		stream_shutdown(c->in);
		c->down.shut = true;
	}
	if (rc == SP_OK && (what & STREAM_READ))
		rc = stream_read(c->in, scratch, LOOP_SCRATCH_BYTES, &n);
	c->lingered += n;
	if ((rc != SP_OK && rc != SP_E_AGAIN) ||
	    c->lingered > CONNECT_LINGER_BYTES) {
		relay_conn_free(c, rc == SP_E_EOF);
		return;
	}
	stream_want(c->in,
	    STREAM_READ | (buf_len(&c->down.held) > 0 ? STREAM_WRITE : 0));
}

/* More of the head, or of the ClientHello. */
static void
connect_read(struct relay_conn *c)
{
	bool head = c->state == RELAY_ST_HEAD;
	int rc = relay_pipe_fill(c->in, &c->up,
	    head ? CONNECT_HEAD_MAX : RELAY_HELLO_BYTES);

	if (rc == SP_E_AGAIN)
		return;
	if (rc == SP_E_LIMIT && !head)
		relay_refuse(c, RELAY_DENIED, "no_tls", 0, "");
	else if (rc == SP_E_LIMIT)
		relay_refuse(c, RELAY_DENIED, "request", 431,
		    "the request's head is too long");
	else if (rc != SP_OK) {
		/* left before it said what it wanted */
		relay_tell(c, RELAY_FAILED, "left", true);
		relay_conn_free(c, rc == SP_E_EOF);
	} else if (head)
		connect_head(c);
	else
		connect_hello(c);
}

void
relay_connect_ready(void *arg, struct stream *s, unsigned what)
{
	struct relay_conn *c = arg;

	if (what & STREAM_FAIL) {
		relay_tell(c, RELAY_FAILED, s == c->in ? "left" : "reset",
		    true);
		relay_conn_free(c, false);
		return;
	}
	if (c->state == RELAY_ST_LINGER) {
		connect_linger(c, what);
		return;
	}
	/* the rest of "200" */
	if ((what & STREAM_WRITE) && s == c->in) {
		if (relay_pipe_flush(c->in, &c->down) != SP_OK) {
			relay_tell(c, RELAY_FAILED, "left", true);
			relay_conn_free(c, false);
			return;
		}
		if (buf_len(&c->down.held) == 0)
			stream_want(c->in, STREAM_READ);
	}
	if ((what & STREAM_READ) && s == c->in)
		connect_read(c);
}

void
relay_connect_reached(struct relay_conn *c)
{
	static const struct view ok =
	    VIEW_INIT("HTTP/1.1 200 Connection established\r\n\r\n");
	int rc;

	if (c->way == RELAY_TURNED) {
		relay_pipe_begin(c);
		return;
	}
	rc = buf_add_view(&c->down.held, ok);
	c->replied = rc == SP_OK;
	if (rc == SP_OK)
		rc = relay_pipe_flush(c->in, &c->down);
	if (rc != SP_OK) {
		relay_refuse(c, RELAY_FAILED, err_str(rc), 503, "no memory");
		return;
	}
	c->state = RELAY_ST_HELLO;
	loop_timer_set(c->timer,
	    relay_ms(c->place->relay->w.hello_ms, RELAY_HELLO_MS));
	stream_want(c->in,
	    STREAM_READ | (buf_len(&c->down.held) > 0 ? STREAM_WRITE : 0));
	/* what came right behind the request */
	if (buf_len(&c->up.held) > 0)
		connect_hello(c);
}

/* ---- connections that nftables turned here ----------------------------------- */

/* netfilter's: where it was for before it was turned. */
static int
connect_origin(int fd, uint32_t *addr, uint16_t *port)
{
	struct sockaddr_in in = { 0 };
	socklen_t n = sizeof(in);

	if (getsockopt(fd, IPPROTO_IP, SO_ORIGINAL_DST, &in, &n) != 0)
		return err_from_errno(errno);
	if (n < sizeof(in) || in.sin_family != AF_INET)
		return SP_E_PROTO;
	*addr = ntohl(in.sin_addr.s_addr);
	*port = ntohs(in.sin_port);
	return SP_OK;
}

static void
connect_turned(struct relay_conn *c)
{
	const struct conf_environment *e = relay_conn_rules(c);
	const struct relay *r = c->place->relay;
	int fd = stream_fd(c->in);
	int rc = r->w.origin != NULL
	    ? r->w.origin(r->w.arg, fd, &c->addr, &c->port)
	    : connect_origin(fd, &c->addr, &c->port);

	/* somebody who came straight to this port has none, or that one */
	if (rc != SP_OK) {
		relay_refuse(c, RELAY_DENIED, "direct", 0, "");
		return;
	}
	if (e != NULL && relay_rules_addr(e, c->addr, c->port) != NULL) {
		relay_reach_addr(c);
		return;
	}
	if (e == NULL || conf_env_protected(c->addr, 32) ||
	    !relay_rules_hosts(e, c->port)) {
		relay_refuse(c, RELAY_DENIED, "rules", 0, "");
		return;
	}
	c->state = RELAY_ST_HELLO;
	loop_timer_set(c->timer, relay_ms(r->w.hello_ms, RELAY_HELLO_MS));
	stream_want(c->in, STREAM_READ);
}

void
relay_connect_begin(struct relay_conn *c)
{
	if (c->way == RELAY_TURNED) {
		connect_turned(c);
		return;
	}
	c->state = RELAY_ST_HEAD;
	loop_timer_set(c->timer,
	    relay_ms(c->place->relay->w.head_ms, RELAY_HEAD_MS));
	stream_want(c->in, STREAM_READ);
}

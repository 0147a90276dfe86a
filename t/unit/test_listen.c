/* Two servers at one address: certificates by SNI, locations by Host. */
#include "config.h"

#include <arpa/inet.h>
#include <fcntl.h>

#include "base/log.h"
#include "gate/gate.h"
#include "net/stream.h"

#include "net_peer.h"

static enum gate_verdict
on_head(struct gate_request *r)
{
	r->status = 200;
	return exchange_simple(r->x, 200, VIEW("text/plain"),
		   r->location->path) == SP_OK
	    ? GATE_DONE
	    : GATE_FAIL;
}

extern const struct conf_module llm_intercept_conf, status_conf, health_conf;
static const struct gate_module a = { .conf = &llm_intercept_conf };
static const struct gate_module b = { .conf = &status_conf };
static const struct gate_module c = { .conf = &health_conf,
	.hook = { on_head } };
const struct gate_module *const gate_modules[] = { &a, &b, &c, NULL };

static struct peer_cert certs[2];
static struct conf *conf;
static struct gate *gate;
static uint16_t port;

static void
parse(void)
{
	const struct conf_defaults defaults = { "/nowhere", "/nowhere",
		"/nowhere" };
	struct buf expanded = BUF_INIT(1 << 20), err = BUF_INIT(4096);
	char text[1024];
	unsigned i;

	snprintf(text, sizeof(text),
	    "connections 2;\n"
	    "server { listen 127.0.0.1:%u ssl; server_name a.example;\n"
	    " certificate env:A; certificate_key env:B;\n"
	    " location /a { health; } }\n"
	    "server { listen 127.0.0.1:%u ssl; server_name b.example;\n"
	    " certificate env:C; certificate_key env:D;\n"
	    " location /b { health; } }\n",
	    port, port);
	if (conf_expand_text("test", view_str(text), VIEW_NONE, &expanded,
		&err) != SP_OK ||
	    conf_parse(buf_view(&expanded), &defaults, &conf, &err) != SP_OK) {
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
		exit(1);
	}
	for (i = 0; i < 4; i++)
		if (conf_secret_set(conf, i,
			view_str(i % 2 ? certs[i / 2].key
				       : certs[i / 2].chain)) != SP_OK)
			exit(1);
	buf_clear(&expanded);
	buf_clear(&err);
}

/* One request; what came is in got. */
struct ask {
	struct stream *s;
	const char *text;
	char got[2048];
	size_t n;
	bool sent, over;
	int error;
};

static void
on_ready(void *arg, struct stream *s, unsigned what)
{
	struct ask *q = arg;
	struct iovec iov;
	size_t n;

	if (what & STREAM_FAIL) {
		q->error = stream_error(s);
		q->over = true;
		loop_stop(loop);
		return;
	}
	if (!q->sent) {
		iov.iov_base = (void *)(uintptr_t)q->text;
		iov.iov_len = strlen(q->text);
		q->sent = stream_writev(s, &iov, 1, &n) == SP_OK;
		stream_want(s, STREAM_READ);
		return;
	}
	while (stream_read(s, q->got + q->n, sizeof(q->got) - 1 - q->n, &n) ==
	    SP_OK)
		q->n += n;
	q->got[q->n] = '\0';
	q->over =
	    strstr(q->got, "\r\n\r\n/") != NULL || strstr(q->got, "}}") != NULL;
	if (q->over)
		loop_stop(loop);
}

static int
dial(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
	    fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
		exit(1);
	return fd;
}

static void
ask(struct ask *q, const char *ca, const char *name, const char *text)
{
	const struct stream_owner owner = { on_ready, q };
	struct buf err = BUF_INIT(4096);
	struct tls_ctx *tls;

	memset(q, 0, sizeof(*q));
	q->text = text;
	if (tls_client_new(view_str(ca), true, NULL, 0, &tls, &err) != SP_OK ||
	    stream_new(loop, dial(),
		&(struct stream_side){ .tls = tls, .name = view_str(name) },
		&owner, &q->s) != SP_OK)
		exit(1);
	stream_want(q->s, STREAM_WRITE);
	while (!q->over)
		peer_run();
	stream_free(q->s, true);
	tls_unref(tls);
	buf_clear(&err);
}

static void
names(void)
{
	struct ask q;

	ask(&q, certs[0].file, "a.example",
	    "GET /a HTTP/1.1\r\nHost: a.example\r\n\r\n");
	tap_ok(strstr(q.got, "\r\n\r\n/a") != NULL, "the first server");
	ask(&q, certs[1].file, "b.example",
	    "GET /b HTTP/1.1\r\nHost: B.example:443\r\n\r\n");
	tap_ok(strstr(q.got, "\r\n\r\n/b") != NULL,
	    "the second: its certificate and its locations");
	ask(&q, certs[1].file, "b.example",
	    "GET /a HTTP/1.1\r\nHost: b.example\r\n\r\n");
	tap_ok(strstr(q.got, " 404 ") != NULL, "not the first's locations");
	ask(&q, certs[1].file, "b.example",
	    "GET /a HTTP/1.1\r\nHost: c.example\r\n\r\n");
	tap_ok(strstr(q.got, "\r\n\r\n/a") != NULL,
	    "an unknown name goes to the first");
	ask(&q, certs[1].file, "a.example",
	    "GET /a HTTP/1.1\r\nHost: a.example\r\n\r\n");
	tap_is_int(q.error, SP_E_TLS, "another's certificate is refused");
}

static void
no_certificate(void)
{
	struct buf err = BUF_INIT(4096);
	struct gate *g;
	struct view kept = conf->secrets[2]->value;

	conf->secrets[2]->value = VIEW("junk");
	tap_is_int(gate_new(loop, conf, &g, &err), SP_E_TLS,
	    "a certificate that is none");
	tap_ok(view_starts(buf_view(&err),
		   VIEW("test:6: certificate env:C: no readable PEM")),
	    "says where: %.*s", VIEW_ARG(buf_view(&err)));
	buf_reset(&err, SIZE_MAX);
	conf->secrets[2]->value = VIEW_NONE;
	tap_is_int(gate_new(loop, conf, &g, &err), SP_E_CONF,
	    "one that never came");
	conf->secrets[2]->value = kept;
	buf_clear(&err);
}

int
main(void)
{
	struct buf err = BUF_INIT(4096);
	int fd;

	log_set_level(LOG_LEVEL_ERROR);
	peer_init();
	fd = peer_bound(SOCK_STREAM, &port);
	if (!peer_cert_make(&certs[0], "DNS:a.example", 3600) ||
	    !peer_cert_make(&certs[1], "DNS:b.example", 3601))
		return 1;
	parse();
	tap_is_int((long long)conf->listens_n, 1, "one address for both");
	no_certificate();
	tap_is_int(gate_new(loop, conf, &gate, &err), SP_OK, "gate");
	tap_is_int(gate_listen(gate, 0, fd), SP_OK, "listening");
	tap_is_int(gate_start(gate), SP_OK, "started");
	names();
	buf_clear(&err);
	gate_free(gate);
	conf_free(conf);
	unlink(certs[0].file);
	unlink(certs[1].file);
	peer_done();
	return tap_done();
}

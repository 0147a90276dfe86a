/* core/net/stream and tls: plain and TLS, over socket pairs and TCP. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/un.h>

#include "base/mem.h"
#include "net/stream.h"
#include "net_peer.h"

enum { BULK = 300 * 1024, SLOW = 3000 };

/* One end of a connection under test. */
struct end {
	struct stream *s;
	unsigned told; /* everything ready() ever said */
	int err;
	bool eof;
	bool shut; /* after the last byte */
	bool free_on_read;
	size_t got, bad, to_send, sent;
};

static struct end a, b;
static struct peer_cert good, expired, other;
static bool inside; /* a stream_* call is running */
static char payload[BULK];

static void
end_read(struct end *e)
{
	char buf[3000];
	size_t n;
	int rc;

	do {
		inside = true;
		rc = stream_read(e->s, buf, sizeof(buf), &n);
		inside = false;
		for (size_t i = 0; i < n; i++, e->got++)
			e->bad += buf[i] != payload[e->got % BULK];
	} while (rc == 0);
	if (rc == SP_E_AGAIN)
		return;
	if (rc == SP_E_EOF)
		e->eof = true;
	else
		e->err = rc;
	loop_stop(loop);
}

static void
end_write(struct end *e)
{
	struct iovec v[3];
	size_t left, n;
	int rc = 0;

	while (e->sent < e->to_send && rc == 0) {
		left = e->to_send - e->sent;
		/* in pieces: tiny, small, the rest */
		v[0] = (struct iovec){ payload + e->sent, left > 5 ? 5 : left };
		v[1] = (struct iovec){ payload + e->sent + v[0].iov_len,
			left - v[0].iov_len > 700 ? 700 : left - v[0].iov_len };
		v[2].iov_base = payload + e->sent + v[0].iov_len + v[1].iov_len;
		v[2].iov_len = left - v[0].iov_len - v[1].iov_len;
		inside = true;
		rc = stream_writev(e->s, v, 3, &n);
		inside = false;
		e->sent += n;
	}
	if (rc != 0 && rc != SP_E_AGAIN) {
		e->err = rc;
		loop_stop(loop);
	}
	if (e->sent == e->to_send) {
		if (e->shut)
			stream_shutdown(e->s);
		stream_want(e->s, STREAM_READ);
		loop_stop(loop);
	}
}

static void
on_ready(void *arg, struct stream *s, unsigned what)
{
	struct end *e = arg;

	if (inside || s != e->s)
		tap_ok(false, "ready() from within a stream call");
	e->told |= what;
	if ((what & STREAM_FAIL) != 0) {
		e->err = stream_error(s);
		loop_stop(loop);
		return;
	}
	if ((what & STREAM_READ) != 0 && e->free_on_read) {
		stream_free(s, true);
		e->s = NULL;
		loop_stop(loop);
		return;
	}
	if ((what & STREAM_READ) != 0)
		end_read(e);
	if ((what & STREAM_WRITE) != 0 && e->err == 0)
		end_write(e);
}

static int
open_end(struct end *e, int fd, struct tls_ctx *tls, bool server,
    const char *name)
{
	struct stream_owner owner = { on_ready, e };

	memset(e, 0, sizeof(*e));
	return stream_new(loop, fd,
	    &(struct stream_side){ server, tls, view_str(name) }, &owner,
	    &e->s);
}

/* a is the accepted side, b the dialled one. */
static void
open_pair(bool tcp, struct tls_ctx *srv, struct tls_ctx *cli, const char *name,
    int *fds)
{
	int rc;

	fds[0] = fds[1] = -1;
	if (tcp)
		rc = peer_tcp_pair(fds);
	else
		rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds);
	rc |= open_end(&a, fds[0], srv, true, "");
	rc |= open_end(&b, fds[1], cli, false, name);
	if (rc != 0)
		tap_ok(false, "no pair of streams: %d", rc);
}

static void
close_pair(void)
{
	stream_free(a.s, true);
	stream_free(b.s, true);
}

static bool
over(const struct end *e)
{
	return e->eof || e->err != 0;
}

/* Everything both ways, then FIN both ways. */
static void
exchange(const char *what, size_t n)
{
	a.to_send = b.to_send = n;
	a.shut = b.shut = true;
	stream_want(a.s, STREAM_READ | STREAM_WRITE);
	stream_want(b.s, STREAM_READ | STREAM_WRITE);
	while (!over(&a) || !over(&b))
		peer_run();
	tap_ok(a.eof && b.eof && a.err == 0 && b.err == 0,
	    "%s: both end cleanly (%d %d)", what, a.err, b.err);
	tap_ok(a.got == n && b.got == n && a.bad == 0 && b.bad == 0,
	    "%s: every byte as sent (%zu %zu of %zu)", what, a.got, b.got, n);
}

static void
small_buffers(const int *fds)
{
	int size = 4096;

	for (int i = 0; i < 2; i++)
		(void)setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size,
		    sizeof(size));
}

static void
test_plain(void)
{
	struct iovec v = { payload, BULK };
	int fds[2], rc;
	size_t n;

	open_pair(false, NULL, NULL, "", fds);
	small_buffers(fds);
	rc = stream_writev(b.s, &v, 1, &n);
	tap_ok(rc == 0 && n > 0 && n < BULK, "a full socket takes a part");
	while (rc == 0)
		rc = stream_writev(b.s, &v, 1, &n);
	tap_ok(rc == SP_E_AGAIN && n == 0, "then none");
	tap_ok(stream_read(b.s, payload, 1, &n) == SP_E_AGAIN && n == 0,
	    "nothing to read");
	tap_ok(!stream_is_tls(b.s) && stream_fd(b.s) == fds[1] &&
		stream_error(b.s) == 0 && stream_alpn(b.s).n == 0,
	    "what it is");
	tap_is_str(stream_peer(b.s), "unix:", "its peer");
	close_pair();
	open_pair(false, NULL, NULL, "", fds);
	small_buffers(fds);
	exchange("unix", BULK);
	close_pair();
	open_pair(true, NULL, NULL, "", fds);
	tap_ok(strncmp(stream_peer(b.s), "127.0.0.1:", 10) == 0, "TCP peer");
	exchange("tcp", BULK);
	close_pair();
}

static void
test_half_close(void)
{
	int fds[2];

	open_pair(true, NULL, NULL, "", fds);
	stream_shutdown(b.s);
	stream_want(a.s, STREAM_READ);
	peer_run();
	tap_ok(a.eof && a.err == 0, "a FIN is a clean end");
	a.to_send = 1000;
	stream_want(a.s, STREAM_WRITE);
	stream_want(b.s, STREAM_READ);
	while (b.got < 1000) {
		peer_run();
		end_read(&b);
	}
	tap_ok(b.got == 1000 && b.bad == 0, "the other half still carries");
	stream_free(b.s, false);
	b.s = NULL;
	stream_want(a.s, 0);
	peer_run();
	tap_ok(a.err == SP_E_GONE && (a.told & STREAM_FAIL) != 0,
	    "a reset after it is noticed");
	close_pair();
}

static void
test_reset(void)
{
	struct iovec v = { payload, 10 };
	int fds[2], rc;
	size_t n;

	open_pair(true, NULL, NULL, "", fds);
	stream_want(a.s, STREAM_READ);
	stream_free(b.s, false);
	b.s = NULL;
	peer_run();
	tap_is_int(a.err, SP_E_GONE, "a reset is not a clean end");
	rc = stream_writev(a.s, &v, 1, &n);
	tap_is_int(rc, SP_E_GONE, "and sticks");
	tap_is_str(stream_why(a.s), err_str(SP_E_GONE), "in words");
	close_pair();

	/* not reading, unread bytes there: an accepted stream is told */
	open_pair(true, NULL, NULL, "", fds);
	rc = stream_writev(b.s, &v, 1, &n);
	tap_is_int(rc, 0, "bytes that nobody reads");
	stream_free(b.s, false);
	b.s = NULL;
	peer_run();
	tap_ok(a.told == STREAM_FAIL && a.err == SP_E_GONE,
	    "a reset under back-pressure fails an accepted stream");
	close_pair();
}

static void
stop_in_task(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
test_answer_before_hup(void)
{
	struct loop_timer *t = loop_timer_new(loop, stop_in_task, NULL);
	struct iovec v = { payload, 10 };
	int fds[2];
	size_t n;

	open_pair(false, NULL, NULL, "", fds);
	tap_is_int(stream_writev(a.s, &v, 1, &n), 0, "an answer, then close");
	stream_free(a.s, true);
	a.s = NULL;
	loop_timer_set(t, 20);
	peer_run();
	tap_ok(b.told == 0, "a dialled stream with unread bytes is not failed");
	stream_want(b.s, STREAM_READ);
	while (!b.eof)
		peer_run();
	tap_ok(b.got == 10 && b.err == 0, "they are read, then the end");
	stream_free(b.s, true);

	open_pair(false, NULL, NULL, "", fds);
	stream_free(a.s, true);
	peer_run();
	tap_is_int(b.told, STREAM_FAIL, "without any it is");
	stream_free(b.s, true);
	loop_timer_free(t);
}

static void
test_free_in_ready(void)
{
	struct iovec v = { payload, 10 };
	int fds[2];
	size_t n;

	open_pair(false, NULL, NULL, "", fds);
	a.free_on_read = true;
	tap_is_int(stream_writev(b.s, &v, 1, &n), 0, "ten bytes");
	stream_want(a.s, STREAM_READ | STREAM_WRITE);
	peer_run();
	while (a.s != NULL)
		peer_run();
	tap_ok(a.s == NULL, "freed inside ready()");
	stream_free(b.s, true);
}

/* ---- TLS ----------------------------------------------------------------- */

static const struct view alpn[] = { { "h2", 2 }, { "http/1.1", 8 } };

static struct tls_ctx *
server_ctx(const struct peer_cert *c)
{
	struct tls_ctx *t = NULL;
	struct buf err = BUF_INIT(1000);

	if (tls_server_new(view_str(c->chain), view_str(c->key), alpn, 2, &t,
		&err) != 0)
		tap_ok(false, "server context: %.*s", VIEW_ARG(buf_view(&err)));
	buf_clear(&err);
	return t;
}

static struct tls_ctx *
client_ctx(const char *ca, bool verify, size_t skip)
{
	struct tls_ctx *t = NULL;
	struct buf err = BUF_INIT(1000);

	if (tls_client_new(view_str(ca), verify, alpn + skip, 2 - skip, &t,
		&err) != 0)
		tap_ok(false, "client context: %.*s", VIEW_ARG(buf_view(&err)));
	buf_clear(&err);
	return t;
}

struct relay {
	int fds[2];
	struct loop_fd *lf[2];
};

/* One byte a turn each way; the end of one side is passed on. */
static void
relay_ready(struct relay *r, int from)
{
	char c;

	if (read(r->fds[from], &c, 1) == 1) {
		if (write(r->fds[!from], &c, 1) != 1)
			tap_ok(false, "the relay lost a byte");
		return;
	}
	shutdown(r->fds[!from], SHUT_WR);
	if (loop_fd_want(r->lf[from], 0) != 0)
		tap_ok(false, "relay");
}

static void
relay_0(void *arg, unsigned ready)
{
	(void)ready;
	relay_ready(arg, 0);
}

static void
relay_1(void *arg, unsigned ready)
{
	(void)ready;
	relay_ready(arg, 1);
}

static void
test_tls_exchange(void)
{
	struct tls_ctx *srv = server_ctx(&good);
	struct tls_ctx *cli = client_ctx(good.file, true, 0);
	int fds[2];

	for (int i = 0; i < 3; i++) {
		open_pair(i != 0, srv, cli, i == 2 ? "127.0.0.1" : "localhost",
		    fds);
		small_buffers(fds);
		exchange(i == 0  ? "TLS, unix"
			: i == 1 ? "TLS, tcp"
				 : "TLS, by address",
		    BULK);
		tap_ok(view_eq(stream_alpn(a.s), VIEW("h2")) &&
			view_eq(stream_alpn(b.s), VIEW("h2")) &&
			stream_is_tls(a.s),
		    "ALPN chose h2");
		close_pair();
	}
	tls_unref(srv);
	tls_unref(cli);
}

static void
test_tls_slow(void)
{
	struct tls_ctx *srv = server_ctx(&good);
	struct tls_ctx *cli = client_ctx(good.file, true, 1);
	struct relay r;
	int x[2], y[2], rc;

	rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, x);
	rc |= socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, y);
	r.fds[0] = x[1];
	r.fds[1] = y[0];
	r.lf[0] = loop_fd_new(loop, r.fds[0], relay_0, &r);
	r.lf[1] = loop_fd_new(loop, r.fds[1], relay_1, &r);
	rc |= loop_fd_want(r.lf[0], LOOP_READ);
	rc |= loop_fd_want(r.lf[1], LOOP_READ);
	rc |= open_end(&a, x[0], srv, true, "");
	rc |= open_end(&b, y[1], cli, false, "localhost");
	tap_is_int(rc, 0, "a relay that passes one byte at a time");
	exchange("TLS in single bytes", SLOW);
	tap_ok(view_eq(stream_alpn(b.s), VIEW("http/1.1")),
	    "ALPN chose what the client can");
	close_pair();
	for (int i = 0; i < 2; i++) {
		loop_fd_free(r.lf[i]);
		close(r.fds[i]);
	}
	tls_unref(srv);
	tls_unref(cli);
}

static void
test_tls_truncated(void)
{
	struct tls_ctx *srv = server_ctx(&good);
	struct tls_ctx *cli = client_ctx(good.file, true, 0);
	int fds[2];

	open_pair(true, srv, cli, "localhost", fds);
	a.to_send = 1000;
	stream_want(a.s, STREAM_READ | STREAM_WRITE);
	stream_want(b.s, STREAM_READ);
	while (a.sent < 1000)
		peer_run();
	/* a FIN behind TLS's back */
	shutdown(fds[0], SHUT_WR);
	while (!over(&b))
		peer_run();
	tap_ok(!b.eof && b.err == SP_E_GONE && b.got == 1000,
	    "an end without close_notify is no end (%d)", b.err);
	tap_is_str(stream_why(b.s), "closed without close_notify", "in words");
	close_pair();
	tls_unref(srv);
	tls_unref(cli);
}

static void
refused(const char *what, const struct peer_cert *cert, const char *ca,
    const char *name, const char *why)
{
	struct tls_ctx *srv = server_ctx(cert);
	struct tls_ctx *cli = client_ctx(ca, true, 0);
	int fds[2];

	open_pair(true, srv, cli, name, fds);
	stream_want(b.s, STREAM_WRITE);
	while (b.err == 0 && (b.told & STREAM_WRITE) == 0)
		peer_run();
	tap_ok(b.err == SP_E_TLS && b.told == STREAM_FAIL, "%s: refused", what);
	tap_is_str(stream_why(b.s), why, what);
	while (a.err == 0)
		peer_run();
	tap_ok(a.err == SP_E_TLS, "%s: the server hears of it", what);
	close_pair();
	tls_unref(srv);
	tls_unref(cli);
}

static void
test_tls_verify(void)
{
	struct tls_ctx *srv, *cli;
	int fds[2];

	refused("wrong name", &good, good.file, "example.org",
	    "certificate: hostname mismatch");
	refused("wrong address", &good, good.file, "127.0.0.2",
	    "certificate: IP address mismatch");
	refused("expired", &expired, expired.file, "localhost",
	    "certificate: certificate has expired");
	refused("self-signed", &good, other.file, "localhost",
	    "certificate: self-signed certificate");
	srv = server_ctx(&expired);
	cli = client_ctx("", false, 0);
	open_pair(true, srv, cli, "example.org", fds);
	exchange("verification off", 10);
	close_pair();
	tls_unref(srv);
	tls_unref(cli);
}

static void
test_tls_garbage(void)
{
	struct tls_ctx *srv = server_ctx(&good);
	struct tls_ctx *cli = client_ctx(good.file, true, 0);
	int fds[2];

	open_pair(true, srv, NULL, "", fds);
	b.to_send = 100;
	stream_want(b.s, STREAM_WRITE);
	while (a.err == 0)
		peer_run();
	tap_ok(a.err == SP_E_TLS && a.told == STREAM_FAIL,
	    "plain text to a TLS server: %s", stream_why(a.s));
	close_pair();
	open_pair(true, NULL, cli, "localhost", fds);
	stream_shutdown(a.s);
	while (b.err == 0)
		peer_run();
	tap_is_int(b.err, SP_E_GONE, "a server that hangs up at once");
	close_pair();
	tls_unref(srv);
	tls_unref(cli);
}

static void
test_tls_sni(void)
{
	struct tls_ctx *first = server_ctx(&good), *second = server_ctx(&other);
	struct tls_ctx *cli = client_ctx(other.file, true, 0);
	int fds[2];

	tap_ok(tls_server_add_name(first, VIEW("Other.example"), second) == 0 &&
		tls_server_add_name(first, VIEW("*.other.example"), second) ==
		    0,
	    "two names for another certificate");
	tap_ok(tls_server_add_name(first, VIEW("other.example"), second) ==
		    SP_E_EXISTS &&
		tls_server_add_name(first, VIEW("x"), first) == SP_E_ARG &&
		tls_server_add_name(first, VIEW("x"), cli) == SP_E_ARG,
	    "what makes no sense is refused");
	tls_unref(second);
	open_pair(true, first, cli, "other.example", fds);
	exchange("SNI", 10);
	close_pair();
	open_pair(true, first, cli, "a.other.example", fds);
	exchange("SNI, wildcard", 10);
	close_pair();
	tls_unref(first);
	tls_unref(cli);
}

static void
bad_pem(const char *what, const char *chain, const char *key, const char *why)
{
	struct buf err = BUF_INIT(1000);
	struct tls_ctx *t = NULL;
	int rc;

	rc = tls_server_new(view_str(chain), view_str(key), NULL, 0, &t, &err);
	tap_is_int(rc, SP_E_TLS, what);
	tap_ok(view_search(buf_view(&err), view_str(why)) < buf_len(&err),
	    "%s: %.*s", what, VIEW_ARG(buf_view(&err)));
	buf_clear(&err);
}

static void
test_pem(void)
{
	struct buf err = BUF_INIT(1000);
	struct tls_ctx *t = NULL;
	char locked[2048];
	EVP_PKEY *key = EVP_EC_gen("P-256");
	BIO *bio = BIO_new(BIO_s_mem());
	int rc;

	PEM_write_bio_PKCS8PrivateKey(bio, key, EVP_aes_128_cbc(), "x", 1, NULL,
	    NULL);
	peer_pem(bio, locked, sizeof(locked));
	EVP_PKEY_free(key);
	bad_pem("no certificate", "hello", good.key, "certificate");
	bad_pem("empty", "", good.key, "empty");
	bad_pem("no key", good.chain, good.chain, "private key");
	bad_pem("another's key", good.chain, other.key, "does not fit");
	bad_pem("a locked key", good.chain, locked, "pass phrase");
	rc = tls_client_new(view_str("/nonexistent"), true, NULL, 0, &t, &err);
	tap_ok(rc == SP_E_TLS && buf_len(&err) > 0, "no CA file: %.*s",
	    VIEW_ARG(buf_view(&err)));
	buf_reset(&err, 0);
	rc = tls_client_new(VIEW_NONE, true, NULL, 0, &t, &err);
	tap_ok(rc == 0 || rc == SP_E_TLS, "the system's store: %s",
	    rc == 0 ? "read" : "none here");
	if (rc == 0)
		tls_unref(t);
	tls_unref(NULL);
	buf_clear(&err);
}

static void
test_no_memory(void)
{
	struct tls_ctx *srv = server_ctx(&good), *use;
	struct stream_owner owner = { on_ready, &a };
	unsigned long n;
	int fds[2], rc;

	for (int tls = 0; tls < 2; tls++) {
		rc = SP_E_NOMEM;
		use = tls ? srv : NULL;
		for (n = 1; n < 100 && rc != 0; n++) {
			if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0,
				fds) == -1)
				break;
			mem_fail_after(n, 0);
			rc = stream_new(loop, fds[0],
			    &(struct stream_side){ .server = true, .tls = use },
			    &owner, &a.s);
			mem_fail_after(0, 0);
			close(fds[1]);
			if (rc == 0)
				stream_free(a.s, true);
			else if (rc != SP_E_NOMEM)
				tap_ok(false, "error %d", rc);
		}
		tap_ok(rc == 0 && n > 3, "stream_new without memory, %s",
		    tls ? "TLS" : "plain");
	}
	tls_unref(srv);
}

int
main(void)
{
	peer_init();
	for (size_t i = 0; i < sizeof(payload); i++)
		payload[i] = (char)(i * 7 + i / 251);
	tap_ok(peer_cert_make(&good, "DNS:localhost,IP:127.0.0.1", 3600) &&
		peer_cert_make(&expired, "DNS:localhost", -3600) &&
		peer_cert_make(&other, "DNS:other.example,DNS:*.other.example",
		    3600),
	    "certificates");
	test_plain();
	test_half_close();
	test_reset();
	test_answer_before_hup();
	test_free_in_ready();
	test_tls_exchange();
	test_tls_slow();
	test_tls_truncated();
	test_tls_verify();
	test_tls_garbage();
	test_tls_sni();
	test_pem();
	test_no_memory();
	unlink(good.file);
	unlink(expired.file);
	unlink(other.file);
	stream_free(NULL, true);
	peer_done();
	return tap_done();
}

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/stream.h"
#include "net/tlsio.h"

enum { IOV_AT_ONCE = 1024 }; /* the kernel's UIO_MAXIOV */

/* No buffers here: 10,000 of these must be cheap. */
struct stream {
	struct stream_owner owner;
	struct loop *loop;
	struct loop_fd *lf;
	struct loop_task *later; /* what no descriptor tells: tell_later() */
	struct tlsio *tls; /* NULL: plain */
	char *peer; /* made when first asked for */
	void *guest;
	void (*left)(void *guest); /* NULL: no guest */
	int fd;
	int err; /* sticky */
	uint8_t want;
	/* what TLS waits for instead of the obvious; 0 the obvious */
	uint8_t rd_wait, wr_wait, hs_wait, shut_wait;
	bool server : 1;
	bool handshake : 1; /* not over yet */
	bool eof : 1;
	bool ended : 1; /* our side */
	bool starved : 1; /* TLS: what is in memory is no whole record */
	bool told : 1; /* the owner knows of err */
};

static void
tell(struct stream *s, unsigned what)
{
	if (what == STREAM_FAIL)
		s->told = true;
	s->owner.ready(s->owner.arg, s, what); /* may free s */
}

/* Wanting nothing needs no memory. */
static void
disarm(struct stream *s)
{
	err_assert(loop_fd_want(s->lf, 0) == 0);
}

/* ready() is never called from within a stream_* call. */
static void
fail_later(struct stream *s, int err)
{
	if (s->err == 0)
		s->err = err;
	disarm(s);
	if (!s->told)
		loop_task_post(s->later);
}

static unsigned
interest(const struct stream *s)
{
	unsigned m = 0;

	if (s->err != 0)
		return 0;
	if (s->handshake)
		return s->hs_wait;
	if ((s->want & STREAM_READ) != 0 && !s->eof)
		m |= s->rd_wait != 0 ? s->rd_wait : LOOP_READ;
	if ((s->want & STREAM_WRITE) != 0)
		m |= s->wr_wait != 0 ? s->wr_wait : LOOP_WRITE;
	m |= s->shut_wait;
	return m != 0 ? m : LOOP_HUP;
}

static void
arm(struct stream *s)
{
	int rc = loop_fd_want(s->lf, interest(s));

	if (rc != 0)
		fail_later(s, rc);
}

/* An error that the caller is told right now. */
static int
broken(struct stream *s, int err)
{
	s->err = err;
	s->told = true;
	disarm(s);
	return err;
}

static void
on_later(void *arg)
{
	struct stream *s = arg;

	if (s->err != 0) {
		if (!s->told)
			tell(s, STREAM_FAIL);
		return;
	}
	if ((s->want & STREAM_READ) != 0 && stream_pending(s))
		tell(s, STREAM_READ);
}

static void
on_handshake(struct stream *s)
{
	unsigned wait = 0;
	int rc;

	rc = tlsio_handshake(s->tls, &wait);
	if (rc == SP_E_AGAIN) {
		s->hs_wait = (uint8_t)wait;
		arm(s);
		return;
	}
	if (rc != 0) {
		(void)broken(s, rc);
		tell(s, STREAM_FAIL);
		return;
	}
	s->handshake = false;
	arm(s);
	/* the last flight may have carried data along */
	loop_task_post(s->later);
}

/*
 * The peer is gone for good while its bytes are not wanted.  A caller that
 * left is told about at once.  A server may have sent its whole answer before
 * it closed: as long as any of it is unread, that comes first.
 */
static void
on_hup(struct stream *s)
{
	int unread = 0;

	/* both sides ended, each in its way: that is how it should be */
	if (s->eof && s->ended) {
		disarm(s);
		return;
	}
	if (!s->server && !s->eof &&
	    (stream_pending(s) ||
		(ioctl(s->fd, FIONREAD, &unread) == 0 && unread > 0)))
		return;
	(void)broken(s, SP_E_GONE);
	tell(s, STREAM_FAIL);
}

static void
on_shutdown(struct stream *s)
{
	unsigned wait = 0;
	int rc;

	rc = tlsio_shutdown(s->tls, &wait);
	s->shut_wait = rc == SP_E_AGAIN ? (uint8_t)wait : 0;
	if (s->shut_wait == 0)
		(void)shutdown(s->fd, SHUT_WR);
	arm(s);
}

static void
on_ready(void *arg, unsigned ready)
{
	struct stream *s = arg;
	unsigned rd = s->rd_wait != 0 ? s->rd_wait : LOOP_READ;
	unsigned wr = s->wr_wait != 0 ? s->wr_wait : LOOP_WRITE;
	unsigned what = 0;

	if (s->handshake) {
		on_handshake(s);
		return;
	}
	if (ready == LOOP_HUP) {
		on_hup(s);
		return;
	}
	if ((ready & s->shut_wait) != 0)
		on_shutdown(s);
	if ((s->want & STREAM_READ) != 0 && !s->eof && (ready & rd) != 0)
		what |= STREAM_READ;
	if ((s->want & STREAM_WRITE) != 0 && (ready & wr) != 0)
		what |= STREAM_WRITE;
	if (what != 0)
		tell(s, what);
}

static int
stream_init(struct stream *s, struct tls_ctx *tls, struct view name)
{
	int one = 1, rc;

	/* refused by unix sockets, which have no such delay */
	(void)setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	s->lf = loop_fd_new(s->loop, s->fd, on_ready, s);
	s->later = loop_task_new(s->loop, on_later, s);
	if (s->lf == NULL || s->later == NULL)
		return SP_E_NOMEM;
	if (tls != NULL) {
		rc = tlsio_new(tls, s->fd, s->server, name, &s->tls);
		if (rc != 0)
			return rc;
		s->handshake = true;
		s->hs_wait = s->server ? LOOP_READ : LOOP_WRITE;
	}
	return loop_fd_want(s->lf, interest(s));
}

/*
 * Seven parameters: each is known only here, and a struct would be filled and
 * read just once.
 */
int
stream_new(struct loop *l, int fd, const struct stream_side *side,
    const struct stream_owner *owner, struct stream **out)
{
	struct stream *s;
	int rc;

	s = mem_calloc(1, sizeof(*s));
	if (s == NULL) {
		(void)close(fd);
		return SP_E_NOMEM;
	}
	s->loop = l;
	s->fd = fd;
	s->server = side->server;
	s->owner = *owner;
	rc = stream_init(s, side->tls, side->name);
	if (rc != 0) {
		stream_free(s, true);
		return rc;
	}
	*out = s;
	return 0;
}

void
stream_set_owner(struct stream *s, const struct stream_owner *owner)
{
	s->owner = *owner;
	/* what the last one was told, this one was not */
	s->told = false;
}

void
stream_want(struct stream *s, unsigned what)
{
	s->want = what & (STREAM_READ | STREAM_WRITE);
	if (s->err != 0) {
		if (s->want != 0 && !s->told)
			loop_task_post(s->later);
		return;
	}
	if ((what & STREAM_READ) != 0 && stream_pending(s))
		loop_task_post(s->later);
	arm(s);
}

static int
read_tls(struct stream *s, void *p, size_t max, size_t *n)
{
	unsigned wait = 0;
	int rc;

	rc = tlsio_read(s->tls, p, max, n, &wait);
	s->starved = rc != 0;
	wait = rc == SP_E_AGAIN && wait != LOOP_READ ? wait : 0;
	if (s->rd_wait != wait) {
		s->rd_wait = (uint8_t)wait;
		arm(s);
	}
	/* no descriptor will tell of the rest */
	if (rc == 0 && tlsio_pending(s->tls))
		loop_task_post(s->later);
	return rc;
}

static int
read_plain(struct stream *s, void *p, size_t max, size_t *n)
{
	ssize_t r;

	do
		r = read(s->fd, p, max);
	while (r == -1 && errno == EINTR);
	if (r > 0) {
		*n = (size_t)r;
		return 0;
	}
	if (r == 0)
		return SP_E_EOF;
	if (errno == EAGAIN)
		return SP_E_AGAIN;
	return SP_E_GONE;
}

int
stream_read(struct stream *s, void *p, size_t max, size_t *n)
{
	int rc;

	*n = 0;
	if (s->err != 0)
		return broken(s, s->err);
	if (s->eof)
		return SP_E_EOF;
	if (s->handshake || max == 0)
		return SP_E_AGAIN;
	rc = s->tls != NULL ? read_tls(s, p, max, n) : read_plain(s, p, max, n);
	if (rc == 0 || rc == SP_E_AGAIN)
		return rc;
	if (rc != SP_E_EOF)
		return broken(s, rc);
	/* level-triggered, it would be told for ever */
	s->eof = true;
	arm(s);
	return rc;
}

bool
stream_pending(const struct stream *s)
{
	return s->tls != NULL && !s->handshake && !s->eof && !s->starved &&
	    s->err == 0 && tlsio_pending(s->tls);
}

static int
write_tls(struct stream *s, const struct iovec *v, int n, size_t *done)
{
	unsigned wait = 0;
	int rc;

	rc = tlsio_writev(s->tls, v, n, done, &wait);
	/* set with a short count too */
	wait = wait == LOOP_READ ? wait : 0;
	if (s->wr_wait != wait) {
		s->wr_wait = (uint8_t)wait;
		arm(s);
	}
	return rc;
}

static int
write_plain(struct stream *s, const struct iovec *v, int n, size_t *done)
{
	ssize_t r;

	do
		r = writev(s->fd, v, n > IOV_AT_ONCE ? IOV_AT_ONCE : n);
	while (r == -1 && errno == EINTR);
	if (r >= 0) {
		*done = (size_t)r;
		return 0;
	}
	if (errno == EAGAIN)
		return SP_E_AGAIN;
	return SP_E_GONE;
}

int
stream_writev(struct stream *s, const struct iovec *v, int n, size_t *done)
{
	int rc;

	*done = 0;
	if (s->err != 0)
		return broken(s, s->err);
	if (s->handshake)
		return SP_E_AGAIN;
	rc = s->tls != NULL ? write_tls(s, v, n, done)
			    : write_plain(s, v, n, done);
	if (rc == 0 || rc == SP_E_AGAIN)
		return rc;
	return broken(s, rc);
}

void
stream_shutdown(struct stream *s)
{
	if (s->err != 0 || s->ended)
		return;
	s->ended = true;
	if (s->tls != NULL && !s->handshake)
		on_shutdown(s);
	else
		(void)shutdown(s->fd, SHUT_WR);
}

int
stream_error(const struct stream *s)
{
	return s->err;
}

const char *
stream_why(const struct stream *s)
{
	const char *why = s->tls != NULL ? tlsio_why(s->tls) : "";

	if (s->err == 0)
		return "";
	return why[0] != '\0' ? why : err_str(s->err);
}

struct view
stream_alpn(const struct stream *s)
{
	return s->tls != NULL && !s->handshake ? tlsio_alpn(s->tls) : VIEW_NONE;
}

static void
peer_format(const struct sockaddr_storage *sa, char *out, size_t max)
{
	const struct sockaddr_in6 *in6 = (const void *)sa;
	const struct sockaddr_in *in = (const void *)sa;
	char host[INET6_ADDRSTRLEN];

	if (sa->ss_family == AF_UNIX)
		(void)snprintf(out, max, "unix:");
	else if (sa->ss_family == AF_INET &&
	    inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host)) != NULL)
		(void)snprintf(out, max, "%s:%u", host, ntohs(in->sin_port));
	else if (sa->ss_family == AF_INET6 &&
	    inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host)) != NULL)
		(void)snprintf(out, max, "[%s]:%u", host,
		    ntohs(in6->sin6_port));
	else
		(void)snprintf(out, max, "unknown");
}

const char *
stream_peer(struct stream *s)
{
	char text[INET6_ADDRSTRLEN + 16];
	struct sockaddr_storage sa = { 0 };
	socklen_t len = sizeof(sa);

	if (s->peer != NULL)
		return s->peer;
	if (getpeername(s->fd, (struct sockaddr *)&sa, &len) == -1)
		return "unknown";
	peer_format(&sa, text, sizeof(text));
	s->peer = mem_strdup(text);
	return s->peer != NULL ? s->peer : "unknown";
}

void
stream_set_guest(struct stream *s, void *guest, void (*left)(void *guest))
{
	s->guest = guest;
	s->left = left;
}

void *
stream_guest(const struct stream *s)
{
	return s->guest;
}

void
stream_drop_tls(struct stream *s)
{
	tlsio_free(s->tls, false);
	s->tls = NULL;
	s->handshake = false;
	s->err = 0;
	s->told = false;
	s->rd_wait = s->wr_wait = s->hs_wait = s->shut_wait = 0;
	arm(s);
}

int
stream_fd(const struct stream *s)
{
	return s->fd;
}

bool
stream_is_tls(const struct stream *s)
{
	return s->tls != NULL;
}

void
stream_free(struct stream *s, bool graceful)
{
	struct linger now = { .l_onoff = 1, .l_linger = 0 };

	if (s == NULL)
		return;
	loop_fd_free(s->lf);
	loop_task_free(s->later);
	tlsio_free(s->tls, graceful && s->err == 0 && !s->handshake);
	if (!graceful)
		(void)setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &now,
		    sizeof(now));
	(void)close(s->fd);
	if (s->left != NULL)
		s->left(s->guest);
	mem_free(s->peer);
	mem_free(s);
}

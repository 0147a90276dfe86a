#include "config.h"

#include <stdio.h>

#include "base/mem.h"
#include "codec/inflate.h"
#include "http/call.h"
#include "http/h1_parse.h"
#include "http/h1_write.h"
#include "http/h2_call.h"
#include "net/stream.h"

enum {
	CALL_INTERIM_MAX = 64, /* 1xx replies before the final one */
	CALL_FIELDS_MAX = 1000,
	CALL_HEAD_EXTRA = 64 * 1024, /* arena over the head's own bytes */
	CALL_REQUEST_HEAD_MAX = 16 << 20,
	CALL_WHY_BYTES = 512,
	CALL_TEXT_BYTES = 1024, /* with the upstream's name */
	CALL_REFUSED_MAX = 10, /* attempts that no server processed */
};

enum call_phase {
	CALL_LEASING, /* waits for a connection */
	CALL_HEAD, /* sends, and reads the reply's head */
	CALL_BODY,
	CALL_OVER, /* nothing more is told */
};

/*
 * Owned by itself between call_start() and end(), fail() or call_cancel().
 * Freed in one place, call_leave(), when no callback is under way.
 */
struct call {
	struct loop *loop;
	struct call_owner owner;
	struct pool *pool;
	struct pool_lease *lease;
	struct stream *stream; /* HTTP/1.1, else NULL */
	struct h2_call *h2; /* HTTP/2, else NULL */
	struct loop_timer *timer;
	struct arena *arena;
	struct view affinity;
	struct view method, target;
	struct view body; /* the caller's */
	struct buf rest; /* the head but its line, kept for another attempt */
	struct buf head; /* as the server that was picked gets it */
	size_t head_sent, body_sent;
	struct buf in; /* a part of the reply's head */
	struct h1_scan scan;
	struct h1_body decoder;
	struct head_reply reply;
	struct inflate *inflate;
	struct buf plain; /* what one feed of inflate gave */
	struct call_times times;
	uint64_t send_ms, first_ms, read_ms; /* timeouts */
	uint64_t header_max;
	uint64_t deadline_ms; /* 0 none */
	uint64_t give_up_ms; /* no attempt begins later */
	uint64_t tried; /* slots of servers that failed */
	unsigned failed; /* how many */
	size_t slot; /* of the server it is with */
	enum call_phase phase;
	enum call_failure timeout; /* what the deadline means */
	unsigned interims;
	unsigned refused; /* attempts, see call_h2_fail() */
	unsigned busy; /* callbacks and handlers under way */
	bool manual_progress : 1;
	bool head_request : 1;
	bool reused : 1;
	bool retried : 1;
	bool once : 1; /* no other server is asked */
	bool check : 1;
	bool answered : 1; /* a byte of the reply came */
	bool sent : 1; /* the request is whole on its way */
	bool stopped : 1; /* it is not sent any further */
	bool keep_alive : 1;
	bool paused : 1;
	bool decoded_any : 1;
};

/* ---- life -----------------------------------------------------------------
 */

static void
call_destroy(struct call *c)
{
	loop_timer_free(c->timer);
	inflate_free(c->inflate);
	buf_clear(&c->rest);
	buf_clear(&c->head);
	buf_clear(&c->in);
	buf_clear(&c->plain);
	arena_free(c->arena);
	mem_free(c);
}

static void
call_enter(struct call *c)
{
	c->busy++;
}

static void
call_leave(struct call *c)
{
	if (--c->busy == 0 && c->phase == CALL_OVER)
		call_destroy(c);
}

/* The connection, if there is one or one is on the way, is let go. */
static void
call_drop(struct call *c, bool reusable)
{
	struct pool_lease *lease = c->lease;

	c->lease = NULL;
	c->stream = NULL;
	c->h2 = NULL;
	if (lease == NULL)
		return;
	if (c->phase == CALL_LEASING)
		pool_cancel(lease);
	else
		pool_release(lease, reusable);
}

/* Only from a handler (between call_enter() and call_leave()). */
static void
call_fail(struct call *c, enum call_failure why, const char *text)
{
	struct view name = pool_name(c->pool);
	char all[CALL_TEXT_BYTES];

	if (c->phase == CALL_OVER)
		return;
	if (c->phase == CALL_BODY && why != CALL_NOMEM && !c->check)
		pool_lease_broke(c->lease, text);
	if (name.n > 0 && why != CALL_NOMEM) {
		(void)snprintf(all, sizeof(all), "upstream \"%.*s\": %s",
		    VIEW_ARG(name), text);
		text = all;
	}
	c->owner.fail(c->owner.arg, c, why, text);
	if (c->phase != CALL_OVER) {
		call_drop(c, false);
		c->phase = CALL_OVER;
	}
}

static void
call_set_deadline(struct call *c, uint64_t in_ms, enum call_failure means)
{
	c->timeout = means;
	c->deadline_ms = in_ms != 0 ? loop_now_ms(c->loop) + in_ms : 0;
	if (in_ms != 0)
		loop_timer_set(c->timer, in_ms);
	else
		loop_timer_stop(c->timer);
}

static void
call_read_deadline(struct call *c)
{
	if (c->phase == CALL_BODY)
		call_set_deadline(c, c->paused ? 0 : c->read_ms,
		    CALL_READ_TIMEOUT);
}

/* ---- the request ----------------------------------------------------------
 */

static void
call_want(struct call *c)
{
	unsigned want = 0;

	if (c->stream == NULL)
		return;
	if (!c->paused || c->phase == CALL_HEAD)
		want |= STREAM_READ;
	if (!c->stopped && !c->sent)
		want |= STREAM_WRITE;
	stream_want(c->stream, want);
}

static void call_attempt(struct call *c, bool same);

/* What went wrong, and with how many; the server is named where it can be. */
static void
call_fail_at(struct call *c, enum call_failure why, const char *text)
{
	char all[CALL_WHY_BYTES + 64];

	if (c->failed > 1)
		(void)snprintf(all, sizeof(all),
		    "several servers failed, the last: %s", text);
	call_fail(c, why, c->failed > 1 ? all : text);
}

/*
 * The server took the request and then died before a byte of a reply: it
 * rests, and another one is asked.  A completion may be asked for twice: what
 * the first server made of it nobody has seen.
 */
static void
call_next(struct call *c, enum call_failure why, const char *text)
{
	char all[CALL_WHY_BYTES];

	pool_lease_failed(c->lease, text);
	c->failed++;
	c->tried |= UINT64_C(1) << c->slot;
	if (!c->once && pool_has_other(c->pool, c->tried) &&
	    loop_now_ms(c->loop) < c->give_up_ms) {
		c->retried = false;
		call_drop(c, false);
		call_attempt(c, false);
		return;
	}
	/* the lease's words go with it */
	(void)snprintf(all, sizeof(all), "%s", pool_lease_why(c->lease));
	call_fail_at(c, why, all);
}

/*
 * It took the request and gave no head that is one, or none in time: it rests
 * as well, but may have been at work, so no other one is asked.
 */
static void
call_spoilt(struct call *c, enum call_failure why, const char *text)
{
	if (c->phase == CALL_HEAD)
		pool_lease_failed(c->lease, text);
	call_fail(c, why, text);
}

/*
 * The connection broke.  One that had been idle may have been closed by the
 * server just as it was lent: that is no failure of this request, as long as
 * no byte of a reply came, nor of the server (RFC 9112 s9.3.1; retried once
 * there, on a new one).
 */
static void
call_broken(struct call *c, enum call_failure why, const char *text)
{
	if (c->phase != CALL_HEAD || c->answered) {
		call_spoilt(c, why, text);
	} else if (c->reused && !c->retried) {
		c->retried = true;
		call_drop(c, false);
		call_attempt(c, true);
	} else {
		call_next(c, why, text);
	}
}

/* Up to the end of what the socket takes. */
static void
call_send(struct call *c)
{
	struct iovec iov[2];
	size_t done, head_left, body_left;
	int rc = 0;

	while (!c->stopped && !c->sent) {
		head_left = buf_len(&c->head) - c->head_sent;
		body_left = c->body.n - c->body_sent;
		iov[0].iov_base = c->head.mem + c->head.off + c->head_sent;
		iov[0].iov_len = head_left;
		/* writev() only reads; its type cannot say so */
		iov[1].iov_base = (void *)((uintptr_t)c->body.p + c->body_sent);
		iov[1].iov_len = body_left;
		rc = head_left == 0
		    ? stream_writev(c->stream, iov + 1, 1, &done)
		    : stream_writev(c->stream, iov, body_left != 0 ? 2 : 1,
			  &done);
		if (rc != 0 || done == 0)
			break;
		if (done < head_left) {
			c->head_sent += done;
		} else {
			c->head_sent += head_left;
			c->body_sent += done - head_left;
		}
		c->sent = done == head_left + body_left;
		call_set_deadline(c, c->send_ms, CALL_SEND_TIMEOUT);
	}
	if (rc != 0 && rc != SP_E_AGAIN) {
		call_broken(c, CALL_SEND, err_str(rc));
		return;
	}
	if (c->sent && c->times.sent_us == 0) {
		c->times.sent_us = loop_now_us(c->loop);
		call_set_deadline(c, c->first_ms, CALL_FIRST_TIMEOUT);
	}
	call_want(c);
}

/* ---- the reply ------------------------------------------------------------
 */

/* The reply is whole: the connection goes back first, then the owner knows. */
static void
call_finish(struct call *c, bool leftover)
{
	bool delimited = !h1_body_at_close(&c->decoder);

	if (c->inflate != NULL && c->decoded_any && !inflate_done(c->inflate)) {
		call_fail(c, CALL_ENCODING, "content coding ends early");
		return;
	}
	/* bytes that nobody asked for belong to no reply (RFC 9112 s9.2) */
	call_drop(c, c->keep_alive && delimited && !leftover && c->sent);
	call_set_deadline(c, 0, CALL_READ_TIMEOUT);
	c->phase = CALL_OVER;
	c->owner.end(c->owner.arg, c, delimited);
}

static void
call_decode(struct call *c, struct view data)
{
	int rc;

	if (c->inflate == NULL) {
		c->owner.body(c->owner.arg, c, data);
		return;
	}
	c->decoded_any = true;
	rc = inflate_feed(c->inflate, data, &c->plain);
	if (rc == SP_E_NOMEM) {
		call_fail(c, CALL_NOMEM, err_str(rc));
	} else if (rc != 0) {
		call_fail(c, CALL_ENCODING,
		    rc == SP_E_LIMIT ? "content coding expands too far"
				     : "content coding broken");
	} else {
		if (buf_len(&c->plain) != 0)
			c->owner.body(c->owner.arg, c, buf_view(&c->plain));
		buf_reset(&c->plain, 0);
	}
}

/* Bytes of the body; everything that was read is handed on, paused or not. */
static void
call_body(struct call *c, struct view v)
{
	struct view data;
	int rc;

	if (!c->manual_progress && v.n != 0)
		call_read_deadline(c);
	while (c->phase == CALL_BODY) {
		rc = h1_body_next(&c->decoder, &v, UINT64_MAX, &data);
		if (rc == H1_BODY_DATA) {
			call_decode(c, data);
		} else if (rc == H1_BODY_END) {
			call_finish(c, v.n != 0);
		} else if (rc == H1_BODY_MORE) {
			break;
		} else {
			call_fail(c, CALL_MALFORMED, "bad chunked coding");
		}
	}
}

/* Digests and tags are of the bytes as they were coded. */
static void
call_undigest(struct head_fields *f)
{
	size_t i = 0;

	while (i < f->n) {
		struct view name = f->v[i].name;

		if (head_is_digest(name) || view_eq_nocase(name, VIEW("etag")))
			(void)head_del(f, name);
		else
			i++;
	}
}

/*
 * RFC 9110 s8.4: one coding that is known is taken off.  More of them, or an
 * unknown one, go through with their field.
 */
static int
call_content_coding(struct call *c)
{
	struct head_fields *f = &c->reply.fields;
	struct view coding;
	size_t n = head_codings(f, &coding);
	int rc;

	if (n > 1 || (n == 1 && c->decoder.kind == H1_BODY_NONE))
		return 0;
	if (n == 1) {
		rc = inflate_new(coding, &c->inflate);
		if (rc != 0)
			return rc == SP_E_NOMEM ? rc : 0;
		c->reply.content_length = -1;
		call_undigest(f);
	}
	(void)head_del(f, VIEW("content-encoding"));
	return 0;
}

/* The final head is in c->reply. */
static void
call_headed(struct call *c, const struct h1_framing *framing)
{
	pool_lease_good(c->lease);
	h1_body_init(&c->decoder, framing, true);
	c->keep_alive = framing->keep_alive;
	c->times.head_us = loop_now_us(c->loop);
	c->phase = CALL_BODY;
	/* an early reply: the rest of the request is of no use (s7.5) */
	c->stopped = !c->sent;
	buf_clear(&c->head); /* no second attempt any more */
	buf_clear(&c->rest);
	if (call_content_coding(c) != 0) {
		call_fail(c, CALL_NOMEM, err_str(SP_E_NOMEM));
		return;
	}
	call_read_deadline(c);
	c->owner.head(c->owner.arg, c, &c->reply);
}

/* The head is whole: bytes [0, n) of head. */
static void
call_head(struct call *c, struct view head)
{
	struct h1_framing framing;
	struct h1_fault fault = { 0, "" };
	struct view copy;
	int rc = arena_dup(c->arena, head, &copy);

	if (rc == 0)
		rc = h1_parse_reply(copy, &c->scan, c->arena, &c->reply,
		    &framing, &fault);
	c->scan =
	    (struct h1_scan){ .reply = true, .head_request = c->head_request };
	if (rc == SP_E_NOMEM) {
		call_fail(c, CALL_NOMEM, err_str(rc));
		return;
	}
	if (rc != 0) {
		call_spoilt(c, CALL_MALFORMED, fault.what);
		return;
	}
	if (c->reply.status < 200) {
		/* RFC 9110 s15.2: interim; 101 was not asked for */
		if (c->reply.status == 101 || ++c->interims > CALL_INTERIM_MAX)
			call_spoilt(c, CALL_MALFORMED,
			    "unwanted interim reply");
		return;
	}
	call_headed(c, &framing);
}

/* Heads from v, interim ones and the final; what follows goes to the body. */
static void
call_heads(struct call *c, struct view v)
{
	const struct h1_scan_limits limits = { .line_max = c->header_max,
		.total_max = c->header_max,
		.fields_max = CALL_FIELDS_MAX };
	struct h1_fault fault;
	size_t n;
	int rc;

	while (c->phase == CALL_HEAD) {
		rc = h1_parse_scan(&c->scan, v, &limits, &n, &fault);
		if (rc == SP_E_AGAIN)
			break;
		if (rc != 0) {
			call_spoilt(c, CALL_MALFORMED, fault.what);
			return;
		}
		call_head(c, view_sub(v, 0, n));
		v = view_from(v, n);
	}
	if (c->phase == CALL_BODY)
		call_body(c, v);
	if (c->phase == CALL_OVER)
		return;
	/* v may lie in the buffer itself */
	if (buf_len(&c->in) != 0)
		buf_consume(&c->in,
		    c->phase == CALL_HEAD ? buf_len(&c->in) - v.n
					  : buf_len(&c->in));
	else if (c->phase == CALL_HEAD && buf_add_view(&c->in, v) != 0)
		call_fail(c, CALL_NOMEM, err_str(SP_E_NOMEM));
	if (buf_len(&c->in) == 0)
		buf_reset(&c->in, 0);
}

static void
call_input(struct call *c, struct view v)
{
	c->answered = true;
	if (c->phase == CALL_BODY) {
		call_body(c, v);
	} else if (buf_len(&c->in) == 0) {
		call_heads(c, v);
	} else if (buf_add_view(&c->in, v) != 0) {
		call_fail(c, CALL_NOMEM, err_str(SP_E_NOMEM));
	} else {
		call_heads(c, buf_view(&c->in));
	}
}

/* The server has ended its side, or the connection is broken. */
static void
call_input_end(struct call *c, int rc)
{
	if (c->phase == CALL_BODY && rc == SP_E_EOF &&
	    h1_body_at_close(&c->decoder)) {
		call_finish(c, false);
		return;
	}
	call_broken(c, CALL_BROKEN,
	    c->phase == CALL_BODY ? "closed before the reply was whole"
		: c->answered     ? "closed within the head of the reply"
				  : "closed without a reply");
}

static void
call_read(struct call *c)
{
	char *p = loop_scratch(c->loop);
	size_t n;
	int rc;

	if (c->paused && c->phase == CALL_BODY)
		return;
	rc = stream_read(c->stream, p, LOOP_SCRATCH_BYTES, &n);
	if (rc == 0)
		call_input(c, view_of(p, n));
	else if (rc != SP_E_AGAIN)
		call_input_end(c, rc);
}

/* ---- from the loop --------------------------------------------------------
 */

static void
call_ready(void *arg, struct stream *s, unsigned what)
{
	struct call *c = arg;

	call_enter(c);
	if (what & STREAM_FAIL)
		call_input_end(c, stream_error(s));
	/* reading first: a server that refuses early tells why */
	if (what & STREAM_READ && c->stream == s)
		call_read(c);
	if (what & STREAM_WRITE && c->stream == s && c->phase != CALL_OVER)
		call_send(c);
	else if (c->stream != NULL && c->phase != CALL_OVER)
		call_want(c);
	call_leave(c);
}

/* ---- HTTP/2 ---------------------------------------------------------------
 */

static void
call_h2_sent(void *arg, bool whole)
{
	struct call *c = arg;

	if (c->phase != CALL_HEAD)
		return;
	c->sent = whole;
	if (whole)
		c->times.sent_us = loop_now_us(c->loop);
	call_set_deadline(c, whole ? c->first_ms : c->send_ms,
	    whole ? CALL_FIRST_TIMEOUT : CALL_SEND_TIMEOUT);
}

static void
call_h2_head(void *arg, bool last)
{
	struct call *c = arg;
	/* DATA frames know their own end; only coding asks whether any come */
	struct h1_framing framing = { .kind = last || c->head_request
		    ? H1_BODY_NONE
		    : H1_BODY_LENGTH,
		.length = UINT64_MAX,
		.keep_alive = true };

	call_enter(c);
	c->answered = true;
	/* the body may be gone from head() on */
	h2_call_stop(c->h2);
	call_headed(c, &framing);
	call_leave(c);
}

static void
call_h2_body(void *arg, struct view data)
{
	struct call *c = arg;

	call_enter(c);
	if (!c->manual_progress && data.n != 0)
		call_read_deadline(c);
	call_decode(c, data);
	call_leave(c);
}

static void
call_h2_end(void *arg)
{
	struct call *c = arg;

	call_enter(c);
	call_finish(c, false);
	call_leave(c);
}

/*
 * RFC 9113 s8.7: what was refused, or was above the last stream of a GOAWAY,
 * was not processed, and may be sent again; as what met a connection that had
 * been closed while it was idle.
 */
static bool
call_h2_again(struct call *c, enum h2_call_failure why)
{
	if (c->phase != CALL_HEAD)
		return false;
	if (why == H2_CALL_REFUSED)
		return c->refused++ < CALL_REFUSED_MAX;
	if (why != H2_CALL_STALE || c->retried)
		return false;
	c->retried = true;
	return true;
}

static void
call_h2_fail(void *arg, enum h2_call_failure why, const char *text)
{
	struct call *c = arg;

	call_enter(c);
	if (call_h2_again(c, why)) {
		call_drop(c, false);
		call_attempt(c, true);
	} else if (why == H2_CALL_NOMEM) {
		call_fail(c, CALL_NOMEM, text);
	} else if (why == H2_CALL_MALFORMED) {
		call_spoilt(c, CALL_MALFORMED, text);
	} else if (c->phase == CALL_HEAD) {
		call_next(c, CALL_BROKEN, text);
	} else {
		call_fail(c, CALL_BROKEN, text);
	}
	call_leave(c);
}

static int
call_h2_send(struct call *c)
{
	static const struct h2_call_owner owner = { call_h2_sent, call_h2_head,
		call_h2_body, call_h2_end, call_h2_fail };
	const struct h2_call_request rq = { .method = c->method,
		.authority = pool_lease_authority(c->lease),
		.base = c->check ? VIEW_NONE : pool_lease_base(c->lease),
		.target = c->target,
		.lines = buf_view(&c->rest),
		.body = c->body,
		.head_request = c->head_request,
		.reply = &c->reply,
		.arena = c->arena,
		.header_max = c->header_max,
		.fields_max = CALL_FIELDS_MAX };

	c->h2 = pool_lease_share(c->lease);
	c->slot = pool_lease_server(c->lease);
	c->reused = pool_lease_reused(c->lease);
	c->times = (struct call_times){ .connected_us = loop_now_us(c->loop) };
	call_set_deadline(c, c->send_ms, CALL_SEND_TIMEOUT);
	h2_call_pause(c->h2, c->paused);
	return h2_call_send(c->h2, &rq, &owner, c);
}

/* The head for the server that was picked. */
static int
call_write_head(struct call *c)
{
	struct h1_write_request rq = { .method = c->method,
		.host = pool_lease_authority(c->lease),
		.base = c->check ? VIEW_NONE : pool_lease_base(c->lease),
		.target = c->target };
	int rc;

	buf_reset(&c->head, SIZE_MAX);
	rc = h1_write_request_line(&c->head, &rq);
	return rc != 0 ? rc : buf_add_view(&c->head, buf_view(&c->rest));
}

static void
call_leased(void *arg, int err, struct pool_lease *lease)
{
	struct call *c = arg;
	struct stream_owner owner = { .ready = call_ready, .arg = c };

	call_enter(c);
	c->lease = lease;
	c->phase = CALL_HEAD;
	if (err != 0) {
		c->failed += c->failed != 0;
		call_fail_at(c,
		    err == SP_E_TIMEOUT     ? CALL_CONNECT_TIMEOUT
			: err == SP_E_NOMEM ? CALL_NOMEM
					    : CALL_CONNECT,
		    lease != NULL ? pool_lease_why(lease) : err_str(err));
	} else if (pool_lease_share(lease) != NULL) {
		if (call_h2_send(c) != 0)
			call_fail(c, CALL_NOMEM, err_str(SP_E_NOMEM));
	} else if (call_write_head(c) != 0) {
		call_fail(c, CALL_NOMEM, err_str(SP_E_NOMEM));
	} else {
		c->stream = pool_lease_stream(lease);
		c->slot = pool_lease_server(lease);
		c->reused = pool_lease_reused(lease);
		c->times =
		    (struct call_times){ .connected_us = loop_now_us(c->loop) };
		stream_set_owner(c->stream, &owner);
		call_set_deadline(c, c->send_ms, CALL_SEND_TIMEOUT);
		call_send(c);
	}
	call_leave(c);
}

/* same: the server that it was with before all others. */
static int
call_lease(struct call *c, bool fresh, bool same)
{
	const struct pool_ask ask = { .key = c->affinity,
		.fresh = fresh,
		.tried = c->tried,
		.has_slot = same || c->once,
		.only = c->once,
		.slot = c->slot,
		.check = c->check };

	return pool_get(c->pool, &ask, call_leased, c, &c->lease);
}

static void
call_attempt(struct call *c, bool same)
{
	int rc;

	c->phase = CALL_LEASING;
	c->scan =
	    (struct h1_scan){ .reply = true, .head_request = c->head_request };
	c->head_sent = c->body_sent = 0;
	c->sent = c->stopped = false;
	call_set_deadline(c, 0, CALL_SEND_TIMEOUT);
	rc = call_lease(c, same, same);
	if (rc != 0) {
		c->lease = NULL;
		call_fail(c, CALL_NOMEM, err_str(rc));
	}
}

static void
call_deadline(void *arg)
{
	struct call *c = arg;
	const char *text = "silent too long";

	call_enter(c);
	if (c->timeout == CALL_SEND_TIMEOUT)
		text = "no bytes of the request taken in time";
	else if (c->timeout == CALL_FIRST_TIMEOUT)
		text = "no reply in time";
	/* one that took the whole request may be at work on it */
	if (c->deadline_ms != 0 && c->timeout == CALL_SEND_TIMEOUT &&
	    c->phase == CALL_HEAD && !c->answered)
		call_next(c, c->timeout, text);
	else if (c->deadline_ms != 0)
		call_spoilt(c, c->timeout, text);
	call_leave(c);
}

/* ---- exported -------------------------------------------------------------
 */

/* What would break the request line; hosts and bases are the pool's. */
static int
call_check(struct call *c, const struct call_params *p)
{
	const struct h1_write_request rq = { .method = p->method,
		.host = VIEW("host"),
		.target = p->target };

	return h1_write_request_line(&c->head, &rq);
}

static int
call_init(struct call *c, const struct call_params *p)
{
	struct h1_write_request rq = { .method = p->method,
		.fields = p->fields,
		.body_bytes = p->body.n };
	int rc;

	c->arena = arena_new((size_t)p->header_max * 2 +
	    CALL_FIELDS_MAX * sizeof(struct head_field) + p->affinity.n +
	    p->method.n + p->target.n + CALL_HEAD_EXTRA);
	c->timer = loop_timer_new(c->loop, call_deadline, c);
	if (c->arena == NULL || c->timer == NULL)
		return SP_E_NOMEM;
	rc = arena_dup(c->arena, p->affinity, &c->affinity);
	if (rc == 0)
		rc = arena_dup(c->arena, p->method, &c->method);
	if (rc == 0)
		rc = arena_dup(c->arena, p->target, &c->target);
	if (rc == 0)
		rc = call_check(c, p);
	if (rc == 0)
		rc = h1_write_request_rest(&c->rest, &rq);
	return rc;
}

int
call_start(struct loop *l, const struct call_params *p,
    const struct call_owner *owner, struct call **out)
{
	struct call *c = mem_calloc(1, sizeof(*c));
	int rc;

	if (c == NULL)
		return SP_E_NOMEM;
	c->loop = l;
	c->owner = *owner;
	c->pool = p->pool;
	c->once = p->check;
	c->check = p->check;
	c->slot = p->slot;
	c->give_up_ms = loop_now_ms(l) + p->read_timeout_ms;
	c->body = p->body;
	c->send_ms = p->send_timeout_ms;
	c->first_ms = p->first_byte_timeout_ms;
	c->read_ms = p->read_timeout_ms;
	c->header_max = p->header_max;
	c->manual_progress = p->manual_progress;
	c->head_request = view_eq(p->method, VIEW("HEAD"));
	c->scan =
	    (struct h1_scan){ .reply = true, .head_request = c->head_request };
	c->phase = CALL_LEASING;
	buf_init(&c->rest, CALL_REQUEST_HEAD_MAX);
	buf_init(&c->head, 2 * CALL_REQUEST_HEAD_MAX);
	buf_init(&c->in, (size_t)p->header_max + 2 * LOOP_SCRATCH_BYTES);
	buf_init(&c->plain, p->decoded_max);
	rc = call_init(c, p);
	if (rc == 0)
		rc = call_lease(c, p->check, false);
	if (rc != 0) {
		call_destroy(c);
		return rc;
	}
	*out = c;
	return 0;
}

void
call_pause(struct call *c, bool paused)
{
	if (c->phase == CALL_OVER || c->paused == paused)
		return;
	c->paused = paused;
	call_read_deadline(c);
	if (c->h2 != NULL)
		h2_call_pause(c->h2, paused);
	else if (c->busy == 0)
		call_want(c);
}

void
call_progress(struct call *c)
{
	call_read_deadline(c);
}

void
call_cancel(struct call *c)
{
	if (c->phase == CALL_OVER)
		return;
	call_enter(c);
	call_drop(c, false);
	c->phase = CALL_OVER;
	call_leave(c);
}

void
call_times(const struct call *c, struct call_times *out)
{
	*out = c->times;
}

bool
call_reused(const struct call *c)
{
	return c->reused;
}

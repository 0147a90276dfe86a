#include "config.h"

#include "gate/relay_priv.h"

enum { PIPE_READS = 8 }; /* of one side in a turn */

int
relay_pipe_fill(struct stream *from, struct relay_flow *f, size_t max)
{
	size_t have = buf_len(&f->held), n = 0;
	int rc;

	if (have >= max)
		return SP_E_LIMIT;
	rc = buf_reserve(&f->held, max - have);
	if (rc == SP_OK)
		rc = stream_read(from, buf_tail(&f->held), max - have, &n);
	if (rc != SP_OK)
		return rc;
	buf_grow(&f->held, n);
	f->bytes += n;
	return SP_OK;
}

static int
pipe_write(struct stream *to, struct view v, size_t *done)
{
	struct iovec iov;
	int rc;

	/* writev(2) only reads it */
	iov.iov_base = (void *)(uintptr_t)v.p;
	iov.iov_len = v.n;
	*done = 0;
	rc = stream_writev(to, &iov, 1, done);
	return rc == SP_E_AGAIN ? SP_OK : rc;
}

int
relay_pipe_flush(struct stream *to, struct relay_flow *f)
{
	size_t done;
	int rc = SP_OK;

	while (buf_len(&f->held) > 0 && rc == SP_OK) {
		rc = pipe_write(to, buf_view(&f->held), &done);
		if (rc != SP_OK || done == 0)
			return rc;
		buf_consume(&f->held, done);
	}
	/* a connection that does not lag holds nothing */
	if (buf_len(&f->held) == 0)
		buf_clear(&f->held);
	return rc;
}

/* What can be carried now: 0, *any true when bytes were; SP_E_*. */
static int
pipe_carry(struct relay_conn *c, struct relay_flow *f, bool *any)
{
	struct stream *from = f == &c->up ? c->in : c->out;
	struct stream *to = f == &c->up ? c->out : c->in;
	char *scratch = loop_scratch(c->place->relay->w.loop);
	size_t n, done, before = buf_len(&f->held);
	unsigned i;
	int rc = relay_pipe_flush(to, f);

	*any = *any || buf_len(&f->held) < before;
	for (i = 0; i < PIPE_READS && rc == SP_OK; i++) {
		if (buf_len(&f->held) > 0 || f->eof)
			break;
		rc = stream_read(from, scratch, RELAY_HELD_MAX, &n);
		f->eof = rc == SP_E_EOF;
		if (rc == SP_E_EOF || rc == SP_E_AGAIN) {
			rc = SP_OK;
			break;
		}
		if (rc != SP_OK)
			break;
		*any = true;
		f->bytes += n;
		rc = pipe_write(to, view_of(scratch, n), &done);
		if (rc == SP_OK && done < n)
			rc = buf_add(&f->held, scratch + done, n - done);
	}
	if (rc == SP_OK && f->eof && !f->shut && buf_len(&f->held) == 0) {
		stream_shutdown(to);
		f->shut = true;
	}
	return rc;
}

/* What s is wanted for, where `from_s` is what it says and `to_s` hears. */
static void
pipe_want(struct stream *s, const struct relay_flow *from_s,
    const struct relay_flow *to_s)
{
	unsigned want = 0;

	if (!from_s->eof && buf_len(&from_s->held) == 0)
		want |= STREAM_READ;
	if (buf_len(&to_s->held) > 0)
		want |= STREAM_WRITE;
	stream_want(s, want);
}

static void
pipe_turn(struct relay_conn *c)
{
	bool any = false;
	int rc = pipe_carry(c, &c->up, &any);

	if (rc == SP_OK)
		rc = pipe_carry(c, &c->down, &any);
	if (rc != SP_OK || (c->up.shut && c->down.shut)) {
		relay_tell(c, RELAY_ALLOWED, rc == SP_OK ? "" : err_str(rc),
		    true);
		relay_conn_free(c, rc == SP_OK);
		return;
	}
	if (any)
		loop_timer_set(c->timer,
		    relay_ms(c->place->relay->w.idle_ms, RELAY_IDLE_MS));
	pipe_want(c->in, &c->up, &c->down);
	pipe_want(c->out, &c->down, &c->up);
}

static void
pipe_ready(void *arg, struct stream *s, unsigned what)
{
	struct relay_conn *c = arg;

	(void)s;
	if (what & STREAM_FAIL) {
		relay_tell(c, RELAY_ALLOWED, "reset", true);
		relay_conn_free(c, false);
		return;
	}
	pipe_turn(c);
}

void
relay_pipe_begin(struct relay_conn *c)
{
	const struct stream_owner owner = { pipe_ready, c };

	c->state = RELAY_ST_BYTES;
	relay_tell(c, RELAY_ALLOWED, "", false);
	stream_set_owner(c->in, &owner);
	stream_set_owner(c->out, &owner);
	loop_timer_set(c->timer,
	    relay_ms(c->place->relay->w.idle_ms, RELAY_IDLE_MS));
	pipe_turn(c);
}

#include "config.h"

#include "bl_reply.h"

#include "base/num.h"

enum { STAMP_DIGITS = 10 };
static const uint64_t stamp_base = 1000000000, stamp_span = 9000000000;

struct run {
	struct bl_reply *r;
	struct view v; /* not yet looked at */
	void (*event)(void *arg, uint64_t stamp);
	void *arg;
};

uint64_t
bl_reply_stamp(uint64_t monotonic_us)
{
	return stamp_base + monotonic_us % stamp_span;
}

uint64_t
bl_reply_since(uint64_t stamp, uint64_t now)
{
	if (stamp < stamp_base || now < stamp_base)
		return 0;
	now += now < stamp ? stamp_span : 0;
	/* half the span away is no delay, but a clock that was read later */
	return now - stamp < stamp_span / 2 ? now - stamp : 0;
}

/* Takes bytes up to and with the next LF; true when the line is whole. */
static bool
take_line(struct view *v, struct bl_line *l, struct view *line)
{
	size_t n = view_find(*v, '\n'), room = sizeof(l->text) - l->n;
	bool whole = n < v->n;

	if (room > n)
		room = n;
	memcpy(l->text + l->n, v->p, room);
	l->n += (unsigned)room;
	*v = view_from(*v, whole ? n + 1 : n);
	if (!whole)
		return false;
	*line = view_of(l->text, l->n);
	if (line->n > 0 && line->p[line->n - 1] == '\r')
		line->n--;
	l->n = 0;
	return true;
}

static uint64_t
find_stamp(struct view line)
{
	const struct view name = VIEW("\"created\":");
	size_t at = view_search(line, name);
	uint64_t n = 0;

	if (at + name.n + STAMP_DIGITS > line.n)
		return 0;
	if (num_u64(view_sub(line, at + name.n, STAMP_DIGITS), 0, UINT64_MAX,
		&n) != 0)
		return 0;
	return n;
}

static void
read_events(struct run *run, struct view body)
{
	struct bl_reply *r = run->r;
	struct view line;

	r->body_bytes += body.n;
	if (!r->stream)
		return;
	while (body.n > 0) {
		if (!take_line(&body, &r->sse, &line))
			return;
		if (!view_starts(line, VIEW("data:")))
			continue;
		if (view_starts(line, VIEW("data: [DONE]"))) {
			r->done = true;
			continue;
		}
		r->events++;
		run->event(run->arg, find_stamp(line));
	}
}

static int
status_line(struct bl_reply *r, struct view line)
{
	uint64_t status;

	if (!view_starts(line, VIEW("HTTP/1.")) || line.n < 12 ||
	    num_u64(view_sub(line, 9, 3), 100, 599, &status) != 0)
		return SP_E_PROTO;
	r->status = (int)status;
	r->state = BL_REPLY_HEAD;
	return 0;
}

/* The value of the field when it is the one of that name. */
static bool
field(struct view line, struct view name, struct view *value)
{
	size_t colon = view_find(line, ':');

	if (!view_eq_nocase(view_sub(line, 0, colon), name))
		return false;
	*value = view_trim(view_from(line, colon + 1));
	return true;
}

static int
head_line(struct bl_reply *r, struct view line)
{
	struct view value;

	if (line.n > 0) {
		if (field(line, VIEW("content-length"), &value)) {
			r->has_length = true;
			return num_u64(value, 0, UINT64_MAX, &r->left);
		}
		if (field(line, VIEW("transfer-encoding"), &value))
			r->chunked = true;
		else if (field(line, VIEW("content-type"), &value))
			r->stream =
			    view_starts(value, VIEW("text/event-stream"));
		else if (field(line, VIEW("connection"), &value))
			r->close = view_eq_nocase(value, VIEW("close"));
		return 0;
	}
	if (r->status < 200)
		r->state = BL_REPLY_STATUS;
	else if (r->chunked)
		r->state = BL_REPLY_SIZE;
	else if (!r->has_length)
		r->state = BL_REPLY_REST;
	else
		r->state = r->left > 0 ? BL_REPLY_LENGTH : BL_REPLY_WHOLE;
	return 0;
}

static int
size_line(struct bl_reply *r, struct view line)
{
	line = view_trim(view_sub(line, 0, view_find(line, ';')));
	if (num_hex(line, UINT32_MAX, &r->left) != 0)
		return SP_E_PROTO;
	r->state = r->left > 0 ? BL_REPLY_CHUNK : BL_REPLY_TRAILER;
	return 0;
}

static int
one_line(struct run *run)
{
	struct bl_reply *r = run->r;
	struct view line;

	if (!take_line(&run->v, &r->wire, &line))
		return 0;
	if (r->state == BL_REPLY_STATUS)
		return status_line(r, line);
	if (r->state == BL_REPLY_HEAD)
		return head_line(r, line);
	if (r->state == BL_REPLY_SIZE)
		return size_line(r, line);
	if (r->state == BL_REPLY_CHUNK_END) {
		r->state = BL_REPLY_SIZE;
		return line.n == 0 ? 0 : SP_E_PROTO;
	}
	if (line.n == 0) /* else a trailer field */
		r->state = BL_REPLY_WHOLE;
	return 0;
}

static void
some_body(struct run *run)
{
	struct bl_reply *r = run->r;
	size_t n = run->v.n;

	if (r->state != BL_REPLY_REST) {
		if (n > r->left)
			n = (size_t)r->left;
		r->left -= n;
	}
	read_events(run, view_sub(run->v, 0, n));
	run->v = view_from(run->v, n);
	if (r->state == BL_REPLY_REST || r->left > 0)
		return;
	r->state =
	    r->state == BL_REPLY_CHUNK ? BL_REPLY_CHUNK_END : BL_REPLY_WHOLE;
}

int
bl_reply_feed(struct bl_reply *r, struct view v, size_t *used,
    void (*event)(void *arg, uint64_t stamp), void *arg)
{
	struct run run = { r, v, event, arg };
	int rc = 0;

	while (rc == 0 && run.v.n > 0 && r->state != BL_REPLY_WHOLE) {
		if (r->state == BL_REPLY_LENGTH || r->state == BL_REPLY_CHUNK ||
		    r->state == BL_REPLY_REST)
			some_body(&run);
		else
			rc = one_line(&run);
	}
	*used = v.n - run.v.n;
	return rc;
}

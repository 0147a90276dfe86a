#include "sm_wire.h"

#include "base/num.h"

enum { REPEAT_MAX = 64 * 1024 * 1024, WAIT_MAX_MS = 3600 * 1000 };

void
sm_wire_raw(struct sm_out *o, struct view v)
{
	uint64_t byte;
	char c;

	while (v.n > 0 && o->err == 0) {
		size_t n = view_find(v, '\\');

		sm_out_add(o, view_sub(v, 0, n));
		v = view_from(v, n);
		if (v.n >= 4 && v.p[1] == 'x' &&
		    num_hex(view_sub(v, 2, 2), 255, &byte) == 0) {
			c = (char)byte;
			sm_out_add(o, view_of(&c, 1));
			v = view_from(v, 4);
		} else if (v.n > 0) {
			sm_out_add(o, view_sub(v, 0, 1));
			v = view_from(v, 1);
		}
	}
}

/* 't' x N */
static bool
put_repeat(struct sm_out *o, struct view t)
{
	size_t quote = t.n > 1 ? view_find(view_from(t, 1), '\'') : t.n;
	struct view text = view_sub(t, 1, quote);
	struct view rest = view_from(t, quote + 2);
	struct view x = VIEW(" x ");
	uint64_t n;

	if (text.n == 0 || !view_starts(rest, x) ||
	    num_u64(view_from(rest, x.n), 0, REPEAT_MAX / text.n, &n) != 0)
		return false;
	while (n-- > 0 && o->err == 0)
		sm_out_add(o, text);
	return true;
}

/* What stands between < and >; false when it means nothing. */
static bool
put_sign(struct sm_payload *p, struct view t)
{
	struct view wait = VIEW("WAIT ");
	uint64_t n;
	char c;

	if (view_eq(t, VIEW("CR"))) {
		sm_out_str(&p->body, "\r");
	} else if (view_eq(t, VIEW("LF"))) {
		sm_out_str(&p->body, "\n");
	} else if (view_eq(t, VIEW("|"))) {
		sm_reply_mark(p, SM_MARK_EVENT, 0);
		sm_reply_mark(p, SM_MARK_PAUSE, 1);
	} else if (view_eq(t, VIEW("FIN"))) {
		sm_reply_mark(p, SM_MARK_FIN, 0);
	} else if (view_eq(t, VIEW("RST"))) {
		sm_reply_mark(p, SM_MARK_RST, 0);
	} else if (t.n == 3 && t.p[0] == 'x' &&
	    num_hex(view_from(t, 1), 255, &n) == 0) {
		c = (char)n;
		sm_out_add(&p->body, view_of(&c, 1));
	} else if (view_starts(t, wait) &&
	    num_duration_ms(view_from(t, wait.n), &n) == 0 &&
	    n <= WAIT_MAX_MS) {
		sm_reply_mark(p, SM_MARK_EVENT, 0);
		sm_reply_mark(p, SM_MARK_PAUSE, (uint32_t)n);
	} else {
		return t.n > 0 && t.p[0] == '\'' && put_repeat(&p->body, t);
	}
	return true;
}

void
sm_wire_put(struct sm_payload *p, struct view v)
{
	while (v.n > 0 && p->body.err == 0) {
		size_t n = view_find(v, '<');
		size_t end;

		sm_out_add(&p->body, view_sub(v, 0, n));
		v = view_from(v, n);
		if (v.n == 0)
			break;
		end = view_find(view_sub(v, 0, 256), '>');
		if (end < v.n && v.p[end] == '>' &&
		    put_sign(p, view_sub(v, 1, end - 1))) {
			v = view_from(v, end + 1);
			continue;
		}
		sm_out_add(&p->body, view_sub(v, 0, 1));
		v = view_from(v, 1);
	}
	sm_reply_mark(p, SM_MARK_EVENT, 0);
}

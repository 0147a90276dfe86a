#include "config.h"

#include "gate/bound.h"

#include <sys/queue.h>

#include "base/hmap.h"
#include "base/mem.h"
#include "gate/route.h"

enum {
	BOUND_PLACES_MAX = 16 * 1024 * 1024, /* never reached: see sweep() */
	BOUND_NAME_MAX = 64 * 1024,
	BOUND_SWEEP_AT = 64, /* places, before idle ones are looked for */
	BOUND_SECOND = 1000000, /* one operation's worth of credit */
};

/* A location, or one episode's; freed when it is as good as a new one. */
struct bound_place {
	LIST_ENTRY(bound_place) link;
	struct bound *bound;
	const char *principal; /* static */
	uint64_t calls, sockets;
	uint64_t credit; /* in millionths of an operation */
	uint64_t at_us; /* when that was so */
	size_t name_n;
	char name[];
};

struct bound {
	struct loop *loop;
	struct hmap *by_name;
	LIST_HEAD(, bound_place) places;
	size_t places_n, swept_n; /* as many there were after a sweep */
	struct metric *calls, *sockets, *refused; /* NULL: not counted */
};

struct bound *
bound_new(struct loop *l)
{
	struct bound *b = mem_calloc(1, sizeof(*b));

	if (b == NULL)
		return NULL;
	b->loop = l;
	LIST_INIT(&b->places);
	b->by_name = hmap_new(BOUND_PLACES_MAX);
	if (b->by_name != NULL)
		return b;
	mem_free(b);
	return NULL;
}

static void
place_free(struct bound_place *p)
{
	(void)hmap_del(p->bound->by_name, view_of(p->name, p->name_n));
	LIST_REMOVE(p, link);
	p->bound->places_n--;
	mem_free(p);
}

void
bound_free(struct bound *b)
{
	struct bound_place *p;

	if (b == NULL)
		return;
	while ((p = LIST_FIRST(&b->places)) != NULL) {
		err_assert(p->calls == 0 && p->sockets == 0);
		place_free(p);
	}
	hmap_free(b->by_name);
	mem_free(b);
}

int
bound_metrics(struct bound *b, struct metrics *m)
{
	static const char *const who[] = { "principal", NULL };
	static const char *const why[] = { "principal", "reason", NULL };

	b->calls = metrics_register(m, METRICS_GAUGE, "operations_in_flight",
	    "Operations at doors that are under way", who, NULL);
	b->sockets = metrics_register(m, METRICS_GAUGE, "door_sockets",
	    "WebSockets and event streams that are open at doors", who, NULL);
	b->refused = metrics_register(m, METRICS_COUNTER, "operations_refused",
	    "Operations that were over a bound of their door", why, NULL);
	return b->calls != NULL && b->sockets != NULL && b->refused != NULL
	    ? SP_OK
	    : SP_E_NOMEM;
}

static uint64_t *
bound_cell(struct metric *m, const char *principal)
{
	struct view who = view_str(principal);

	return metrics_cell(m, &who);
}

/* ---- places --------------------------------------------------------------- */

/* After a second of rest its credit is whole: a new one is the same. */
static void
sweep(struct bound *b)
{
	uint64_t now = loop_now_us(b->loop);
	struct bound_place *p, *next;

	for (p = LIST_FIRST(&b->places); p != NULL; p = next) {
		next = LIST_NEXT(p, link);
		if (p->calls == 0 && p->sockets == 0 &&
		    now - p->at_us >= BOUND_SECOND)
			place_free(p);
	}
	b->swept_n = b->places_n;
}

/* 0; SP_E_NOMEM. */
static int
place_name(const struct gate_request *r, struct buf *out)
{
	int rc = route_place(r->location, out);

	if (rc == SP_OK)
		rc = buf_add_char(out, '@');
	return rc == SP_OK ? buf_add_view(out, r->episode) : rc;
}

static struct bound_place *
place_new(struct bound *b, const struct gate_request *r, struct view name)
{
	struct bound_place *p;

	/* twice as many as the last time: so the work is spread */
	if (b->places_n >= 2 * b->swept_n + BOUND_SWEEP_AT)
		sweep(b);
	p = mem_calloc(1, sizeof(*p) + name.n);
	if (p == NULL)
		return NULL;
	p->bound = b;
	p->principal = r->principal != NULL ? r->principal : "none";
	p->credit = UINT64_MAX;
	p->at_us = loop_now_us(b->loop);
	p->name_n = name.n;
	if (name.p != NULL)
		memcpy(p->name, name.p, name.n);
	if (hmap_add(b->by_name, view_of(p->name, name.n), p) != SP_OK) {
		mem_free(p);
		return NULL;
	}
	LIST_INSERT_HEAD(&b->places, p, link);
	b->places_n++;
	return p;
}

static struct bound_place *
place_get(struct bound *b, const struct gate_request *r)
{
	struct buf name = BUF_INIT(BOUND_NAME_MAX);
	struct bound_place *p = NULL;

	if (place_name(r, &name) == SP_OK) {
		p = hmap_get(b->by_name, buf_view(&name));
		if (p == NULL)
			p = place_new(b, r, buf_view(&name));
	}
	buf_clear(&name);
	return p;
}

/* A bucket that holds a second's worth. */
static bool
place_rate(struct bound_place *p, uint64_t per_second)
{
	uint64_t now = loop_now_us(p->bound->loop), past = now - p->at_us;
	uint64_t most = per_second * BOUND_SECOND;

	if (per_second == 0)
		return true;
	if (past >= BOUND_SECOND || p->credit >= most ||
	    past * per_second >= most - p->credit)
		p->credit = most;
	else
		p->credit += past * per_second;
	p->at_us = now;
	if (p->credit < BOUND_SECOND)
		return false;
	p->credit -= BOUND_SECOND;
	return true;
}

/* Without a rate there is nothing to remember. */
static void
place_left(struct bound_place *p)
{
	if (p->calls == 0 && p->sockets == 0 && p->credit == UINT64_MAX)
		place_free(p);
}

/* ---- what is asked -------------------------------------------------------- */

static enum bound_word
refuse(struct bound *b, const struct gate_request *r, enum bound_word w)
{
	const struct view labels[] = {
		view_str(r->principal != NULL ? r->principal : "none"),
		view_str(bound_name(w)),
	};

	if (b->refused != NULL)
		metrics_inc(metrics_cell(b->refused, labels));
	return w;
}

static enum bound_word
take(struct bound *b, const struct gate_request *r, struct bound_ticket *t,
    bool socket)
{
	const struct conf_location *l = r->location;
	uint64_t max = l->max_calls > 0 ? l->max_calls : BOUND_CALLS_MAX;
	struct bound_place *p = place_get(b, r);
	enum bound_word w = BOUND_TAKEN;

	if (p == NULL)
		return refuse(b, r, BOUND_NOMEM);
	if (socket && p->sockets >= l->limits.sockets)
		w = BOUND_SOCKETS;
	else if (!socket && p->calls >= max)
		w = BOUND_CALLS;
	else if (!place_rate(p, l->limits.max_calls_per_second))
		w = BOUND_RATE;
	if (w != BOUND_TAKEN)
		return refuse(b, r, w);
	if (socket)
		p->sockets++;
	else
		p->calls++;
	if (b->calls != NULL)
		metrics_inc(
		    bound_cell(socket ? b->sockets : b->calls, p->principal));
	*t = (struct bound_ticket){ p, socket };
	return w;
}

enum bound_word
bound_call(struct bound *b, const struct gate_request *r,
    struct bound_ticket *t)
{
	return take(b, r, t, false);
}

enum bound_word
bound_socket(struct bound *b, const struct gate_request *r,
    struct bound_ticket *t)
{
	return take(b, r, t, true);
}

void
bound_give(struct bound_ticket *t)
{
	struct bound_place *p = t->place;
	struct bound *b;

	if (p == NULL)
		return;
	b = p->bound;
	if (t->socket)
		p->sockets--;
	else
		p->calls--;
	if (b->calls != NULL)
		--*bound_cell(t->socket ? b->sockets : b->calls, p->principal);
	*t = (struct bound_ticket){ NULL, false };
	place_left(p);
}

/* ---- words ---------------------------------------------------------------- */

const char *
bound_name(enum bound_word w)
{
	static const char *const names[] = { "taken", "calls", "rate",
		"sockets", "no_memory" };

	return w < BOUND_WORDS ? names[w] : "unknown";
}

const char *
bound_reason(enum bound_word w)
{
	static const char *const reasons[BOUND_WORDS] = {
		[BOUND_CALLS] = "as many operations are under way at this door "
				"as may be: try again later, or see max_calls",
		[BOUND_RATE] = "this door has had as many operations in this "
			       "second as it may: try again later, or see "
			       "max_calls_per_second",
		[BOUND_SOCKETS] =
		    "as many WebSockets and streams are open at this door as "
		    "may be: close one, or see sockets",
	};

	return w < BOUND_WORDS && reasons[w] != NULL
	    ? reasons[w]
	    : "no memory for it: try again later";
}

enum gate_verdict
bound_deny(struct gate_request *r, enum bound_word w)
{
	r->status = w == BOUND_NOMEM ? 503 : 429;
	r->code = "too_many_calls";
	r->reason = bound_reason(w);
	r->outcome = "limited";
	return GATE_DENY;
}

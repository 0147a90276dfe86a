#include "config.h"

#include "base/mem.h"
#include "gate/checks.h"
#include "http/call.h"
#include "net/pool_servers.h"

enum { CHECKS_HEADER_MAX = 64 * 1024, CHECKS_DECODED_MAX = 64 * 1024 };

/* What is known of the server in a slot. */
struct check {
	struct checks *all;
	struct call *call; /* NULL: none is under way */
	struct loop_timer *timer; /* its deadline; NULL as long */
	uint64_t id; /* of the server that it is about */
	uint64_t passes, fails; /* in a row */
	uint64_t failed; /* in all */
	size_t slot;
};

struct checks {
	struct loop *loop;
	struct pool *pool;
	struct loop_timer *timer;
	char *path;
	uint64_t interval_ms, timeout_ms, rise, fall;
	uint64_t failed; /* in all, of all servers there were */
	struct check by_slot[POOL_SERVERS_MAX];
};

/* ---- what came of one ----------------------------------------------------- */

static void
check_over(struct check *c, bool good)
{
	struct checks *k = c->all;

	c->call = NULL;
	loop_timer_stop(c->timer);
	if (good) {
		c->fails = 0;
		if (++c->passes >= k->rise)
			pool_servers_set_down(k->pool, c->slot, false);
		return;
	}
	c->passes = 0;
	c->failed++;
	k->failed++;
	if (++c->fails >= k->fall)
		pool_servers_set_down(k->pool, c->slot, true);
}

/* The status says it all: the connection is closed. */
static void
check_on_head(void *arg, struct call *call, const struct head_reply *head)
{
	bool good = head->status >= 200 && head->status < 400;

	call_cancel(call);
	check_over(arg, good);
}

static void
check_on_body(void *arg, struct call *call, struct view data)
{
	(void)arg;
	(void)call;
	(void)data;
}

static void
check_on_end(void *arg, struct call *call, bool delimited)
{
	(void)arg;
	(void)call;
	(void)delimited;
}

static void
check_on_fail(void *arg, struct call *call, enum call_failure why,
    const char *text)
{
	(void)call;
	(void)text;
	/* want of memory is our fault */
	if (why == CALL_NOMEM)
		((struct check *)arg)->call = NULL;
	else
		check_over(arg, false);
}

static void
check_on_deadline(void *arg)
{
	struct check *c = arg;

	if (c->call == NULL)
		return;
	call_cancel(c->call);
	check_over(c, false);
}

/* ---- asking --------------------------------------------------------------- */

static void
check_start(struct check *c)
{
	struct checks *k = c->all;
	const struct call_owner owner = { check_on_head, check_on_body,
		check_on_end, check_on_fail, c };
	const struct call_params p = {
		.pool = k->pool,
		.check = true,
		.slot = c->slot,
		.method = VIEW("GET"),
		.target = view_str(k->path),
		.send_timeout_ms = k->timeout_ms,
		.first_byte_timeout_ms = k->timeout_ms,
		.read_timeout_ms = k->timeout_ms,
		.header_max = CHECKS_HEADER_MAX,
		.decoded_max = CHECKS_DECODED_MAX,
	};

	if (c->timer == NULL)
		c->timer = loop_timer_new(k->loop, check_on_deadline, c);
	/* without memory there is another chance at the next interval */
	if (c->timer == NULL ||
	    call_start(k->loop, &p, &owner, &c->call) != SP_OK) {
		c->call = NULL;
		return;
	}
	loop_timer_set(c->timer, k->timeout_ms);
}

static void
check_forget(struct check *c)
{
	if (c->call != NULL)
		call_cancel(c->call);
	c->call = NULL;
	loop_timer_free(c->timer);
	c->timer = NULL;
	c->passes = c->fails = c->failed = 0;
}

static void
checks_on_timer(void *arg)
{
	struct checks *k = arg;
	struct pool_server_info info;
	struct check *c;
	size_t i;

	loop_timer_set(k->timer, k->interval_ms);
	for (i = 0; i < POOL_SERVERS_MAX; i++) {
		c = &k->by_slot[i];
		if (!pool_servers_get(k->pool, i, &info)) {
			check_forget(c);
			continue;
		}
		if (c->id != info.id)
			check_forget(c);
		c->id = info.id;
		if (c->call == NULL)
			check_start(c);
	}
}

/* ---- life ----------------------------------------------------------------- */

int
checks_new(struct loop *l, struct pool *p, const struct conf_upstream *u,
    struct checks **out)
{
	struct checks *k = mem_calloc(1, sizeof(*k));
	size_t i;

	if (k == NULL)
		return SP_E_NOMEM;
	k->loop = l;
	k->pool = p;
	k->interval_ms = u->check_interval_ms;
	k->timeout_ms = u->check_timeout_ms;
	k->rise = u->check_rise;
	k->fall = u->check_fall;
	for (i = 0; i < POOL_SERVERS_MAX; i++) {
		k->by_slot[i].all = k;
		k->by_slot[i].slot = i;
	}
	k->path = mem_strndup(u->check_path.p, u->check_path.n);
	k->timer = loop_timer_new(l, checks_on_timer, k);
	if (k->path == NULL || k->timer == NULL) {
		checks_free(k);
		return SP_E_NOMEM;
	}
	loop_timer_set(k->timer, 0);
	*out = k;
	return SP_OK;
}

void
checks_free(struct checks *k)
{
	size_t i;

	if (k == NULL)
		return;
	for (i = 0; i < POOL_SERVERS_MAX; i++)
		check_forget(&k->by_slot[i]);
	loop_timer_free(k->timer);
	mem_free(k->path);
	mem_free(k);
}

uint64_t
checks_failed(const struct checks *k)
{
	return k->failed;
}

uint64_t
checks_failed_of(const struct checks *k, size_t slot)
{
	return k->by_slot[slot].failed;
}

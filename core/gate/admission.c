#include "config.h"

#include "gate/admission.h"

#include <stdio.h>

#include "base/hmap.h"
#include "base/mem.h"
#include "gate/quota.h"

enum {
	KEYS_MAX = 16 * 1024 * 1024, /* never reached: a key has a call */
	CLASSES = 64, /* of keys by what they have in the queue: powers of 2 */
	PLACE_NAME_MAX = 32,
	BATCH = 256, /* decisions in one turn of the loop */
};

TAILQ_HEAD(ticket_list, admission_ticket);
TAILQ_HEAD(key_list, admission_key);

/* Somebody with a call in, or waiting. */
struct admission_key {
	char *name; /* owned */
	size_t name_n;
	uint64_t in;
	uint64_t waiting_n;
	struct ticket_list waiting;
	TAILQ_ENTRY(admission_key) turn; /* in the ring */
	TAILQ_ENTRY(admission_key) of_class; /* while some wait */
	unsigned class;
	bool in_ring;
};

struct admission {
	struct loop *loop;
	struct hmap *keys;
	struct quota *quota; /* calls of servers and locations */
	struct key_list ring; /* keys whose next call only wants a place */
	struct key_list classes[CLASSES];
	struct ticket_list waiting; /* all, oldest first */
	uint64_t calls_max, key_max, queue_max, wait_ms, body_max;
	struct loop_timer *timer; /* the oldest one's deadline */
	struct loop_task *task; /* places to give */
	bool draining;
	struct admission_stats stats;
	uint64_t *cells[3], *refused[ADMISSION_WORDS];
};

/* ---- keys ----------------------------------------------------------------- */

static void
key_free(struct admission_key *k)
{
	mem_free(k->name);
	mem_free(k);
}

static struct admission_key *
key_new(struct admission *a, struct view name)
{
	struct admission_key *k = mem_calloc(1, sizeof(*k));

	if (k == NULL)
		return NULL;
	TAILQ_INIT(&k->waiting);
	k->class = CLASSES;
	k->name_n = name.n;
	k->name = mem_strndup(name.n > 0 ? name.p : "", name.n);
	if (k->name == NULL || hmap_add(a->keys, name, k) != SP_OK) {
		key_free(k);
		return NULL;
	}
	return k;
}

static struct admission_key *
key_get(struct admission *a, struct view name)
{
	struct admission_key *k = hmap_get(a->keys, name);

	return k != NULL ? k : key_new(a, name);
}

static void
key_drop_unused(struct admission *a, struct admission_key *k)
{
	if (k->in > 0 || k->waiting_n > 0)
		return;
	(void)hmap_del(a->keys, view_of(k->name, k->name_n));
	key_free(k);
}

static bool
key_has_room(const struct admission *a, const struct admission_key *k)
{
	return k->in < a->key_max;
}

/* Puts it where it belongs after its counts, or the limits, have changed. */
static void
key_sort(struct admission *a, struct admission_key *k)
{
	bool due = k->waiting_n > 0 && key_has_room(a, k);
	unsigned class = k->waiting_n > 0
	    ? CLASSES - 1 - (unsigned)__builtin_clzll(k->waiting_n)
	    : CLASSES;

	if (due && !k->in_ring)
		TAILQ_INSERT_TAIL(&a->ring, k, turn);
	if (!due && k->in_ring)
		TAILQ_REMOVE(&a->ring, k, turn);
	k->in_ring = due;
	if (class == k->class)
		return;
	if (k->class < CLASSES)
		TAILQ_REMOVE(&a->classes[k->class], k, of_class);
	if (class < CLASSES)
		TAILQ_INSERT_TAIL(&a->classes[class], k, of_class);
	k->class = class;
}

/* ---- servers and locations ------------------------------------------------ */

/* Servers and locations by what they are called: a reload changes nothing. */
static enum admission_word
enter_place(struct admission *a, struct admission_ticket *t)
{
	const struct conf_location *l = t->location;
	char name[PLACE_NAME_MAX];
	int n, rc;

	if (l == NULL)
		return ADMISSION_NOW;
	n = snprintf(name, sizeof(name), "%u", l->server->index);
	rc = quota_take(a->quota, view_of(name, (size_t)n),
	    l->server->max_calls, &t->of_server);
	if (rc != SP_OK)
		return rc == SP_E_LIMIT ? ADMISSION_SERVER : ADMISSION_NOMEM;
	n = snprintf(name, sizeof(name), "%u/%u", l->server->index, l->index);
	rc = quota_take(a->quota, view_of(name, (size_t)n), l->max_calls,
	    &t->of_location);
	if (rc != SP_OK)
		return rc == SP_E_LIMIT ? ADMISSION_LOCATION : ADMISSION_NOMEM;
	return ADMISSION_NOW;
}

static void
leave_place(struct admission_ticket *t)
{
	quota_give(t->of_server);
	quota_give(t->of_location);
	t->of_server = t->of_location = NULL;
}

/* ---- the queue ------------------------------------------------------------ */

static void
set_deadline(struct admission *a)
{
	const struct admission_ticket *t = TAILQ_FIRST(&a->waiting);
	uint64_t now = loop_now_ms(a->loop), at;

	if (t == NULL) {
		loop_timer_stop(a->timer);
		return;
	}
	at = t->since_ms + a->wait_ms;
	loop_timer_set(a->timer, at > now ? at - now : 0);
}

static void
wake(struct admission *a)
{
	if (!TAILQ_EMPTY(&a->waiting))
		loop_task_post(a->task);
}

static void
enqueue(struct admission *a, struct admission_ticket *t,
    struct admission_key *k)
{
	bool first = TAILQ_EMPTY(&a->waiting);

	t->state = ADMISSION_WAITING;
	t->admission = a;
	t->key = k;
	t->since_ms = loop_now_ms(a->loop);
	TAILQ_INSERT_TAIL(&k->waiting, t, of_key);
	TAILQ_INSERT_TAIL(&a->waiting, t, of_all);
	k->waiting_n++;
	a->stats.waiting++;
	key_sort(a, k);
	if (first)
		set_deadline(a);
}

/* It waits no more; its key may have nothing left, and lives on. */
static struct admission_key *
dequeue(struct admission *a, struct admission_ticket *t)
{
	struct admission_key *k = t->key;
	bool first = TAILQ_FIRST(&a->waiting) == t;

	TAILQ_REMOVE(&k->waiting, t, of_key);
	TAILQ_REMOVE(&a->waiting, t, of_all);
	k->waiting_n--;
	a->stats.waiting--;
	t->state = ADMISSION_OUT;
	t->key = NULL;
	key_sort(a, k);
	if (first)
		set_deadline(a);
	return k;
}

static void
take_place(struct admission *a, struct admission_ticket *t,
    struct admission_key *k)
{
	t->state = ADMISSION_IN;
	t->admission = a;
	t->key = k;
	k->in++;
	a->stats.in++;
	key_sort(a, k);
}

static void
refuse_waiting(struct admission *a, struct admission_ticket *t,
    enum admission_word of_key, enum admission_word of_all)
{
	enum admission_word w = key_has_room(a, t->key) ? of_all : of_key;

	key_drop_unused(a, dequeue(a, t));
	leave_place(t);
	a->stats.refused[w]++;
	t->decided(t->arg, w);
}

/* A call of the key that has most in the queue, if that is unfair; or NULL. */
static struct admission_ticket *
find_greedy(const struct admission *a, const struct admission_key *mine)
{
	const struct admission_key *k = NULL;
	unsigned class = CLASSES;

	while (k == NULL && class -- > 0)
		k = TAILQ_FIRST(&a->classes[class]);
	if (k == NULL || k == mine || k->waiting_n <= mine->waiting_n + 1)
		return NULL;
	return TAILQ_LAST(&k->waiting, ticket_list);
}

static void
on_task(void *arg)
{
	struct admission *a = arg;
	unsigned n;

	for (n = 0; n < BATCH && a->draining; n++) {
		struct admission_ticket *t = TAILQ_FIRST(&a->waiting);

		if (t == NULL)
			return;
		refuse_waiting(a, t, ADMISSION_DRAINING, ADMISSION_DRAINING);
	}
	for (; n < BATCH && a->stats.in < a->calls_max; n++) {
		struct admission_key *k = TAILQ_FIRST(&a->ring);
		struct admission_ticket *t;

		if (k == NULL)
			return;
		t = TAILQ_FIRST(&k->waiting);
		/* its next turn comes after all others' */
		TAILQ_REMOVE(&a->ring, k, turn);
		k->in_ring = false;
		(void)dequeue(a, t);
		take_place(a, t, k);
		t->decided(t->arg, ADMISSION_NOW);
	}
	if (n == BATCH)
		wake(a);
}

static void
on_timer(void *arg)
{
	struct admission *a = arg;
	uint64_t now = loop_now_ms(a->loop);
	struct admission_ticket *t;
	unsigned n;

	for (n = 0; n < BATCH; n++) {
		t = TAILQ_FIRST(&a->waiting);
		if (t == NULL || t->since_ms + a->wait_ms > now)
			break;
		refuse_waiting(a, t, ADMISSION_KEY_TIMEOUT, ADMISSION_TIMEOUT);
	}
	set_deadline(a);
}

/* ---- life ----------------------------------------------------------------- */

struct admission *
admission_new(struct loop *l)
{
	struct admission *a = mem_calloc(1, sizeof(*a));
	size_t i;

	if (a == NULL)
		return NULL;
	a->loop = l;
	a->calls_max = a->key_max = a->body_max = UINT64_MAX;
	TAILQ_INIT(&a->ring);
	TAILQ_INIT(&a->waiting);
	for (i = 0; i < CLASSES; i++)
		TAILQ_INIT(&a->classes[i]);
	a->keys = hmap_new(KEYS_MAX);
	a->quota = quota_new();
	a->timer = loop_timer_new(l, on_timer, a);
	a->task = loop_task_new(l, on_task, a);
	if (a->keys == NULL || a->quota == NULL || a->timer == NULL ||
	    a->task == NULL) {
		admission_free(a);
		return NULL;
	}
	return a;
}

void
admission_free(struct admission *a)
{
	if (a == NULL)
		return;
	err_assert(a->stats.in == 0 && a->stats.waiting == 0);
	hmap_free(a->keys);
	quota_free(a->quota);
	loop_timer_free(a->timer);
	loop_task_free(a->task);
	mem_free(a);
}

static uint64_t
or_none(uint64_t limit)
{
	return limit != 0 ? limit : UINT64_MAX;
}

void
admission_set(struct admission *a, const struct conf_main *c)
{
	struct view name;
	size_t pos = 0;
	void *k;

	a->calls_max = or_none(c->max_calls);
	a->key_max = or_none(c->max_calls_per_key);
	a->body_max = or_none(c->max_body_bytes_in_flight);
	a->queue_max = c->queue_n;
	a->wait_ms = c->queue_ms;
	while (hmap_next(a->keys, &pos, &name, &k))
		key_sort(a, k);
	set_deadline(a);
	wake(a);
}

void
admission_drain(struct admission *a)
{
	a->draining = true;
	wake(a);
}

static enum admission_word
refuse(struct admission *a, struct admission_key *k, enum admission_word w)
{
	a->stats.refused[w]++;
	if (k != NULL)
		key_drop_unused(a, k);
	return w;
}

static enum admission_word
enter_queue(struct admission *a, struct admission_ticket *t, struct view key)
{
	struct admission_key *k = key_get(a, key);
	struct admission_ticket *other;
	bool room;

	if (k == NULL)
		return refuse(a, NULL, ADMISSION_NOMEM);
	room = key_has_room(a, k);
	/* one that could have the place and waits goes before */
	if (room && a->stats.in < a->calls_max && k->waiting_n == 0 &&
	    TAILQ_EMPTY(&a->ring)) {
		take_place(a, t, k);
		return ADMISSION_NOW;
	}
	if (a->draining)
		return refuse(a, k, ADMISSION_DRAINING);
	other = NULL;
	if (a->stats.waiting >= a->queue_max) {
		other = a->queue_max > 0 ? find_greedy(a, k) : NULL;
		if (other == NULL)
			return refuse(a, k,
			    room ? ADMISSION_LIMIT : ADMISSION_KEY_LIMIT);
	}
	enqueue(a, t, k);
	if (other != NULL)
		refuse_waiting(a, other, ADMISSION_KEY_LIMIT, ADMISSION_LIMIT);
	return ADMISSION_HELD;
}

enum admission_word
admission_enter(struct admission *a, struct admission_ticket *t,
    struct view key)
{
	enum admission_word w = enter_place(a, t);

	if (w == ADMISSION_NOW)
		w = enter_queue(a, t, key);
	else
		a->stats.refused[w]++;
	if (w > ADMISSION_HELD)
		leave_place(t);
	return w;
}

void
admission_leave(struct admission_ticket *t)
{
	struct admission *a = t->admission;
	struct admission_key *k = t->key;

	leave_place(t);
	switch (t->state) {
	case ADMISSION_OUT:
		return;
	case ADMISSION_WAITING:
		(void)dequeue(a, t);
		break;
	case ADMISSION_IN:
		t->state = ADMISSION_OUT;
		t->key = NULL;
		k->in--;
		a->stats.in--;
		key_sort(a, k);
		wake(a);
		break;
	}
	key_drop_unused(a, k);
}

/* ---- words ---------------------------------------------------------------- */

unsigned
admission_status(enum admission_word w)
{
	return w == ADMISSION_KEY_LIMIT || w == ADMISSION_KEY_TIMEOUT ||
		w == ADMISSION_ADDRESS || w == ADMISSION_PART
	    ? 429
	    : 503;
}

const char *
admission_name(enum admission_word w)
{
	static const char *const names[] = { "now", "held", "key_limit",
		"key_timeout", "limit", "timeout", "draining", "body_bytes",
		"memory", "episode_bytes", "connections",
		"connections_per_address", "server_limit", "location_limit",
		"no_memory" };

	return w < ADMISSION_WORDS ? names[w] : "unknown";
}

const char *
admission_reason(enum admission_word w)
{
	static const char *const reasons[ADMISSION_WORDS] = {
		[ADMISSION_KEY_LIMIT] =
		    "this key has as many calls in flight as one may: try "
		    "again later, or see max_calls_per_key",
		[ADMISSION_KEY_TIMEOUT] =
		    "the call has waited too long for another of this key to "
		    "end: try again later, or see max_calls_per_key and queue",
		[ADMISSION_LIMIT] =
		    "the gateway has as many calls in flight as it may: try "
		    "again later, or see max_calls and queue",
		[ADMISSION_TIMEOUT] =
		    "the call has waited too long for another to end: try "
		    "again later, or see max_calls and queue",
		[ADMISSION_DRAINING] =
		    "the gateway is shutting down: try again later",
		[ADMISSION_BODY_BYTES] =
		    "the gateway holds as many bytes of bodies as it may: try "
		    "again later, or see max_body_bytes_in_flight",
		[ADMISSION_PART] =
		    "as many bytes of bodies of this episode are held as may "
		    "be: try again when others of it are done, or see "
		    "max_body_bytes_in_flight",
		[ADMISSION_LISTENER] =
		    "as many connections are open here as may be: try again "
		    "later, or see max_connections",
		[ADMISSION_ADDRESS] =
		    "your address has as many connections open here as it "
		    "may: try again later, or see max_connections_per_address",
		[ADMISSION_SERVER] =
		    "this server has as many calls in flight as it may: try "
		    "again later, or see its max_calls",
		[ADMISSION_LOCATION] =
		    "this location has as many calls in flight as it may: try "
		    "again later, or see its max_calls",
		[ADMISSION_MEMORY] =
		    "the gateway holds as much memory as it may: try again "
		    "later, or see memory_max",
	};

	return w < ADMISSION_WORDS && reasons[w] != NULL
	    ? reasons[w]
	    : "no memory for the call: try again later";
}

/* ---- bodies --------------------------------------------------------------- */

bool
admission_body_fits(struct admission *a, uint64_t n)
{
	if (a->stats.body_bytes <= a->body_max &&
	    n <= a->body_max - a->stats.body_bytes)
		return true;
	a->stats.refused[ADMISSION_BODY_BYTES]++;
	return false;
}

bool
admission_body_take(struct admission *a, size_t n)
{
	if (!admission_body_fits(a, n))
		return false;
	a->stats.body_bytes += n;
	return true;
}

void
admission_body_give(struct admission *a, size_t n)
{
	err_assert(n <= a->stats.body_bytes);
	a->stats.body_bytes -= n;
}

void
admission_refused(struct admission *a, enum admission_word w)
{
	a->stats.refused[w]++;
}

uint64_t
admission_body_max(const struct admission *a)
{
	return a->body_max;
}

/* ---- metrics -------------------------------------------------------------- */

static void
on_collect(void *arg)
{
	struct admission *a = arg;
	unsigned w;

	*a->cells[0] = a->stats.in;
	*a->cells[1] = a->stats.waiting;
	*a->cells[2] = a->stats.body_bytes;
	for (w = ADMISSION_KEY_LIMIT; w < ADMISSION_WORDS; w++)
		*a->refused[w] = a->stats.refused[w];
}

int
admission_metrics(struct admission *a, struct metrics *m)
{
	static const char *const labels[] = { "reason", NULL };
	static const char *const rows[][2] = {
		{ "calls_in_flight", "Model calls that have a place" },
		{ "calls_waiting", "Model calls that wait for a place" },
		{ "body_bytes", "Bytes of request bodies that are held" },
	};
	struct metric *refused;
	unsigned i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct metric *g = metrics_register(m, METRICS_GAUGE,
		    rows[i][0], rows[i][1], NULL, NULL);

		if (g == NULL)
			return SP_E_NOMEM;
		a->cells[i] = metrics_cell(g, NULL);
	}
	refused = metrics_register(m, METRICS_COUNTER, "calls_refused",
	    "Calls that found no place, or waited too long", labels, NULL);
	if (refused == NULL)
		return SP_E_NOMEM;
	for (i = ADMISSION_KEY_LIMIT; i < ADMISSION_WORDS; i++) {
		struct view reason = view_str(admission_name(i));

		a->refused[i] = metrics_cell(refused, &reason);
	}
	return metrics_on_collect(m, on_collect, a);
}

void
admission_stats(const struct admission *a, struct admission_stats *out)
{
	*out = a->stats;
	out->keys = hmap_count(a->keys);
}

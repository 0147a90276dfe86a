/* Places, the queue between keys, and what is held of bodies. */
#include "config.h"

#include <stdlib.h>

#include "base/mem.h"
#include "gate/admission.h"
#include "gate/gate.h"

#include "tap.h"

const struct gate_module *const gate_modules[] = { NULL };

enum { CALLS = 1200 };

struct ask {
	struct admission_ticket t;
	const char *key;
	enum admission_word first; /* what entering gave */
	enum admission_word word; /* what was decided later */
	unsigned times; /* how often */
};

static struct loop *loop;
static struct loop_timer *stopper;
static struct admission *adm;
static struct ask asks[CALLS];
static char order[CALLS + 1]; /* first letters of keys, as places came */
static size_t order_n;

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
spin(unsigned turns)
{
	while (turns-- > 0) {
		loop_timer_set(stopper, 0);
		if (loop_run(loop) != SP_OK)
			abort();
	}
}

static void
on_decided(void *arg, enum admission_word w)
{
	struct ask *a = arg;

	a->word = w;
	a->times++;
	if (w == ADMISSION_NOW)
		order[order_n++] = a->key[0];
}

static enum admission_word
enter(struct ask *a, const char *key)
{
	memset(a, 0, sizeof(*a));
	a->key = key;
	a->t.decided = on_decided;
	a->t.arg = a;
	a->first = admission_enter(adm, &a->t, view_str(key));
	return a->first;
}

static void
set(uint64_t calls, uint64_t per_key, uint64_t queue, uint64_t ms)
{
	const struct conf_main c = { .max_calls = calls,
		.max_calls_per_key = per_key,
		.queue_n = queue,
		.queue_ms = ms,
		.max_body_bytes_in_flight = 100 };

	admission_set(adm, &c);
}

static void
begin(uint64_t calls, uint64_t per_key, uint64_t queue)
{
	adm = admission_new(loop);
	if (adm == NULL)
		abort();
	set(calls, per_key, queue, 60000);
	memset(order, 0, sizeof(order));
	order_n = 0;
}

static struct admission_stats
stats(void)
{
	struct admission_stats st;

	admission_stats(adm, &st);
	return st;
}

/* Every ask leaves: nothing may stay. */
static void
end(const char *what)
{
	struct admission_stats st;
	size_t i;

	for (i = 0; i < CALLS; i++)
		admission_leave(&asks[i].t);
	spin(1);
	st = stats();
	tap_ok(st.in == 0 && st.waiting == 0 && st.keys == 0,
	    "%s: nothing stays", what);
	admission_free(adm);
	memset(asks, 0, sizeof(asks));
}

static void
test_limits(void)
{
	begin(2, 0, 0);
	tap_is_int(enter(&asks[0], "a"), ADMISSION_NOW, "the first");
	tap_is_int(enter(&asks[1], "b"), ADMISSION_NOW, "the second");
	tap_is_int(enter(&asks[2], "c"), ADMISSION_LIMIT, "no third");
	tap_is_int(asks[2].t.state, ADMISSION_OUT, "it is out");
	admission_leave(&asks[0].t);
	admission_leave(&asks[0].t);
	tap_is_int(enter(&asks[2], "c"), ADMISSION_NOW,
	    "a place that was left");
	tap_is_int((long long)stats().refused[ADMISSION_LIMIT], 1, "counted");
	end("limit in all");

	begin(0, 1, 0);
	tap_is_int(enter(&asks[0], "a"), ADMISSION_NOW, "a key's first");
	tap_is_int(enter(&asks[1], "a"), ADMISSION_KEY_LIMIT, "not its second");
	tap_is_int(enter(&asks[2], "b"), ADMISSION_NOW, "another's first");
	tap_is_int(enter(&asks[3], ""), ADMISSION_NOW, "a key may be empty");
	end("limit of a key");

	begin(0, 0, 0);
	tap_is_int(enter(&asks[0], "a"), ADMISSION_NOW, "no limits");
	end("no limits");
	tap_is_int(admission_status(ADMISSION_KEY_LIMIT), 429, "a key's: 429");
	tap_is_int(admission_status(ADMISSION_TIMEOUT), 503, "all's: 503");
	tap_is_str(admission_name(ADMISSION_NOMEM), "no_memory", "names");
	tap_is_str(admission_name(ADMISSION_WORDS), "unknown", "no name");
	tap_ok(strstr(admission_reason(ADMISSION_WORDS), "no memory") != NULL &&
		strstr(admission_reason(ADMISSION_LIMIT), "max_calls") != NULL,
	    "reasons");
}

/* A key's many wait before another's few, and do not hold them up. */
static void
test_fair(void)
{
	unsigned i;

	begin(1, 0, CALLS);
	(void)!enter(&asks[0], "x");
	for (i = 1; i <= 6; i++)
		tap_is_int(enter(&asks[i], "a"), ADMISSION_HELD, "a waits");
	(void)!enter(&asks[7], "b");
	(void)!enter(&asks[8], "b");
	(void)!enter(&asks[9], "c");
	tap_is_int((long long)stats().waiting, 9, "nine wait");
	spin(2);
	tap_is_int((long long)order_n, 0, "nobody goes while none leaves");
	admission_leave(&asks[0].t);
	tap_is_int(enter(&asks[10], "d"), ADMISSION_HELD,
	    "nobody slips in before those that wait");
	while (stats().waiting > 0 && order_n < CALLS) {
		size_t was = order_n;

		spin(1);
		for (i = 1; i <= 10; i++)
			if (asks[i].word == ADMISSION_NOW && asks[i].times > 0)
				admission_leave(&asks[i].t);
		if (order_n == was)
			break;
	}
	tap_is_str(order, "abcdabaaaa", "keys in turn");
	tap_ok(asks[1].times == 1 && asks[6].times == 1, "told once each");
	end("fair");

	/* one's thousand, then another's one */
	begin(1, 0, CALLS);
	(void)!enter(&asks[0], "a");
	for (i = 1; i < 1000; i++)
		(void)!enter(&asks[i], "a");
	(void)!enter(&asks[1000], "b");
	admission_leave(&asks[0].t);
	spin(1);
	admission_leave(&asks[1].t);
	spin(1);
	tap_is_str(order, "ab", "the second place is b's");
	end("a thousand");
}

static void
test_key_room(void)
{
	begin(0, 1, 10);
	(void)!enter(&asks[0], "a");
	tap_is_int(enter(&asks[1], "a"), ADMISSION_HELD,
	    "a key's second waits");
	tap_is_int(enter(&asks[2], "b"), ADMISSION_NOW, "another does not");
	admission_leave(&asks[2].t);
	spin(1);
	tap_is_int(asks[1].times, 0, "another's place is none of its own");
	admission_leave(&asks[0].t);
	spin(1);
	tap_ok(asks[1].times == 1 && asks[1].t.state == ADMISSION_IN,
	    "its own is");
	tap_is_int(enter(&asks[3], "a"), ADMISSION_HELD, "a third waits");
	set(0, 2, 10, 60000);
	spin(1);
	tap_is_int(asks[3].t.state, ADMISSION_IN, "a higher limit lets it in");
	(void)!enter(&asks[4], "a");
	set(1, 0, 10, 60000);
	spin(1);
	tap_is_int(asks[4].t.state, ADMISSION_WAITING,
	    "a lower one in all holds the rest");
	admission_leave(&asks[1].t);
	spin(1);
	tap_is_int(asks[4].t.state, ADMISSION_WAITING, "until there is room");
	admission_leave(&asks[3].t);
	spin(1);
	tap_is_int(asks[4].t.state, ADMISSION_IN, "there is");
	end("limit of a key, queue");
}

/* A full queue: those with the most in it make room. */
static void
test_full(void)
{
	unsigned i;

	begin(1, 0, 4);
	(void)!enter(&asks[0], "x");
	for (i = 1; i <= 4; i++)
		(void)!enter(&asks[i], "a");
	tap_is_int(enter(&asks[5], "a"), ADMISSION_LIMIT, "full for a");
	tap_is_int(enter(&asks[6], "b"), ADMISSION_HELD, "not for b");
	tap_ok(asks[4].word == ADMISSION_LIMIT && asks[4].times == 1 &&
		asks[4].t.state == ADMISSION_OUT,
	    "a's newest makes room");
	tap_is_int(enter(&asks[7], "b"), ADMISSION_HELD, "b's second");
	tap_is_int(asks[3].times, 1, "a's next one, too");
	tap_is_int(enter(&asks[8], "b"), ADMISSION_LIMIT, "then they are even");
	tap_is_int(enter(&asks[9], "c"), ADMISSION_HELD, "c's one");
	tap_is_int((long long)stats().waiting, 4, "never more than the bound");
	end("full");
}

static void
test_leave(void)
{
	struct ask zero = { .times = 0 };

	begin(1, 0, 4);
	admission_leave(&zero.t);
	(void)!enter(&asks[0], "a");
	(void)!enter(&asks[1], "b");
	(void)!enter(&asks[2], "b");
	admission_leave(&asks[1].t);
	tap_is_int((long long)stats().waiting, 1, "one that waits leaves");
	admission_leave(&asks[0].t);
	admission_leave(&asks[2].t);
	spin(1);
	tap_ok(asks[1].times == 0 && asks[2].times == 0,
	    "and hears nothing any more");
	tap_is_int((long long)stats().keys, 0, "their keys are forgotten");
	end("leave");
}

static void
test_deadline(void)
{
	begin(1, 0, 4);
	set(1, 1, 4, 1);
	(void)!enter(&asks[0], "a");
	(void)!enter(&asks[1], "a");
	(void)!enter(&asks[2], "b");
	while (asks[2].times == 0)
		spin(1);
	tap_is_int(asks[1].word, ADMISSION_KEY_TIMEOUT, "a's own fault");
	tap_is_int(asks[2].word, ADMISSION_TIMEOUT, "not b's");
	set(1, 0, 4, 60000);
	(void)!enter(&asks[3], "b");
	spin(2);
	tap_is_int(asks[3].times, 0, "another waits on");
	set(1, 0, 0, 0);
	spin(3);
	tap_is_int(asks[3].word, ADMISSION_TIMEOUT, "no queue any more");
	end("deadline");

	begin(1, 0, CALLS);
	(void)!enter(&asks[0], "a");
	(void)!enter(&asks[1], "a");
	(void)!enter(&asks[2], "b");
	admission_drain(adm);
	spin(1);
	tap_ok(asks[1].word == ADMISSION_DRAINING &&
		asks[2].word == ADMISSION_DRAINING,
	    "a drain refuses those that wait");
	tap_is_int(enter(&asks[3], "c"), ADMISSION_DRAINING, "and later ones");
	admission_leave(&asks[0].t);
	tap_is_int(enter(&asks[3], "c"), ADMISSION_NOW, "unless there is room");
	end("drain");
}

static void
test_many(void)
{
	unsigned i, told = 0;

	begin(1, 0, CALLS);
	for (i = 0; i < CALLS; i++)
		(void)!enter(&asks[i], i % 2 == 0 ? "a" : "b");
	set(0, 0, CALLS, 60000);
	spin(20);
	for (i = 1; i < CALLS; i++)
		told += asks[i].times == 1 && asks[i].t.state == ADMISSION_IN;
	tap_is_int(told, CALLS - 1, "all go, some in each turn of the loop");
	end("many");

	begin(1, 0, CALLS);
	for (i = 0; i < CALLS; i++)
		(void)!enter(&asks[i], "a");
	admission_drain(adm);
	spin(20);
	tap_is_int((long long)stats().refused[ADMISSION_DRAINING], CALLS - 1,
	    "all are refused");
	end("many, drained");
}

static void
test_bodies(void)
{
	begin(0, 0, 0);
	tap_ok(admission_body_take(adm, 60) && admission_body_fits(adm, 40) &&
		!admission_body_fits(adm, 41) && !admission_body_take(adm, 41),
	    "bytes up to the limit");
	tap_is_int((long long)admission_body_max(adm), 100, "which is told");
	tap_is_int((long long)stats().refused[ADMISSION_BODY_BYTES], 2,
	    "counted");
	admission_body_give(adm, 60);
	tap_ok(admission_body_take(adm, 100), "and again");
	admission_body_give(adm, 100);
	end("bodies");
}

static void
test_metrics(void)
{
	struct metrics *m = metrics_new();
	struct buf text = BUF_INIT(65536);

	begin(1, 0, 2);
	tap_is_int(m != NULL ? admission_metrics(adm, m) : SP_E_NOMEM, SP_OK,
	    "metrics");
	(void)!enter(&asks[0], "a");
	(void)!enter(&asks[1], "a");
	(void)!admission_body_fits(adm, 101);
	if (m == NULL || metrics_render(m, false, &text) != SP_OK ||
	    buf_add_char(&text, '\0') != SP_OK)
		abort();
	tap_ok(strstr(buf_view(&text).p, "calls_in_flight 1\n") != NULL &&
		strstr(buf_view(&text).p, "calls_waiting 1\n") != NULL &&
		strstr(buf_view(&text).p,
		    "calls_refused_total{reason=\"body_bytes\"} 1\n") != NULL,
	    "are set when they are read");
	buf_clear(&text);
	metrics_free(m);
	end("metrics");
}

static void
test_memory(void)
{
	enum admission_word w = ADMISSION_NOMEM;
	int n;

	for (n = 1; n < 100; n++) {
		mem_fail_after((unsigned)n, 0);
		adm = admission_new(loop);
		mem_fail_after(0, 0);
		if (adm != NULL)
			break;
	}
	tap_ok(n > 1 && n < 100, "admission_new without memory");
	admission_free(adm);
	begin(1, 0, 2);
	for (n = 1; n < 100 && w == ADMISSION_NOMEM; n++) {
		mem_fail_after((unsigned)n, 0);
		w = enter(&asks[0], "a");
		mem_fail_after(0, 0);
		if (w == ADMISSION_NOMEM && asks[0].t.state != ADMISSION_OUT)
			break;
	}
	tap_is_int(w, ADMISSION_NOW, "a key without memory");
	tap_ok(n > 2, "was refused");
	end("memory");
}

static enum admission_word
enter_at(struct ask *a, const char *key, const struct conf_location *l)
{
	memset(a, 0, sizeof(*a));
	a->key = key;
	a->t.decided = on_decided;
	a->t.arg = a;
	a->t.location = l;
	return admission_enter(adm, &a->t, view_str(key));
}

static void
test_locations(void)
{
	struct conf_server s = { .index = 1, .max_calls = 2 };
	struct conf_server other = { .index = 2 };
	const struct conf_location l = { .index = 0,
		.server = &s,
		.max_calls = 1 };
	const struct conf_location m = { .index = 1, .server = &s };
	const struct conf_location n = { .index = 0, .server = &other };
	struct admission_stats st;

	begin(3, 0, 1);
	tap_is_int(enter_at(&asks[0], "a", &l), ADMISSION_NOW, "a location");
	tap_is_int(enter_at(&asks[1], "a", &l), ADMISSION_LOCATION,
	    "it is full");
	tap_is_int(enter_at(&asks[1], "a", &m), ADMISSION_NOW, "another");
	tap_is_int(enter_at(&asks[2], "a", &m), ADMISSION_SERVER,
	    "their server is full");
	tap_is_int(enter_at(&asks[2], "a", &n), ADMISSION_NOW,
	    "another server's");
	tap_is_int(enter_at(&asks[3], "a", &n), ADMISSION_HELD,
	    "all places are taken");
	tap_is_int(enter_at(&asks[4], "a", &n), ADMISSION_LIMIT,
	    "and the queue");
	admission_leave(&asks[0].t);
	spin(2);
	tap_is_int(asks[3].word, ADMISSION_NOW, "the next one");
	tap_is_int(enter_at(&asks[0], "a", &l), ADMISSION_HELD,
	    "one that waits has its place there");
	tap_is_int(enter_at(&asks[4], "b", &l), ADMISSION_SERVER,
	    "and in the server, so that another has none");
	admission_leave(&asks[0].t);
	admission_leave(&asks[1].t);
	admission_leave(&asks[2].t);
	admission_leave(&asks[3].t);
	spin(2);
	tap_is_int(enter_at(&asks[0], "a", &l), ADMISSION_NOW,
	    "all places were given back");
	admission_leave(&asks[0].t);
	admission_stats(adm, &st);
	tap_ok(st.in == 0 && st.refused[ADMISSION_LOCATION] == 1 &&
		st.refused[ADMISSION_SERVER] == 2,
	    "refusals are counted");
	tap_ok(admission_status(ADMISSION_ADDRESS) == 429 &&
		admission_status(ADMISSION_LISTENER) == 503 &&
		admission_status(ADMISSION_LOCATION) == 503 &&
		admission_status(ADMISSION_MEMORY) == 503,
	    "and have their status");
	end("locations");
}

int
main(void)
{
	loop = loop_new();
	stopper = loop != NULL ? loop_timer_new(loop, on_stop, NULL) : NULL;
	if (stopper == NULL)
		abort();
	test_limits();
	test_fair();
	test_key_room();
	test_full();
	test_leave();
	test_deadline();
	test_many();
	test_bodies();
	test_locations();
	test_metrics();
	test_memory();
	loop_timer_free(stopper);
	loop_free(loop);
	return tap_done();
}

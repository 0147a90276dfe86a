/* What a door's location may have at once, and in a second. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "gate/bound.h"

#include "tap.h"

const struct gate_module *const gate_modules[] = { NULL };

enum { MANY = 200 };

static struct loop *loop;
static struct loop_timer *stopper;
static struct metrics *metrics;
static struct bound *bound;
static struct conf_server server = { .index = 1 };
static struct conf_location location = { .path = VIEW_INIT("/a"),
	.index = 2,
	.server = &server };
static struct conf_location other = { .path = VIEW_INIT("/b"),
	.index = 3,
	.server = &server };

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
spin(uint64_t ms)
{
	loop_timer_set(stopper, ms);
	if (loop_run(loop) != SP_OK)
		abort();
}

static struct gate_request
by(const struct conf_location *l, const char *episode)
{
	return (struct gate_request){ .location = l,
		.episode = view_str(episode),
		.principal = "agent" };
}

static void
setup(uint64_t calls, uint64_t rate, uint64_t sockets)
{
	location.max_calls = other.max_calls = calls;
	location.limits.max_calls_per_second = rate;
	other.limits.max_calls_per_second = rate;
	location.limits.sockets = other.limits.sockets = sockets;
	metrics = metrics_new();
	bound = bound_new(loop);
	if (metrics == NULL || bound == NULL ||
	    bound_metrics(bound, metrics) != SP_OK)
		abort();
}

static void
teardown(void)
{
	bound_free(bound);
	metrics_free(metrics);
}

static void
shows(const char *line)
{
	struct buf out = BUF_INIT(1 << 20);

	tap_ok(metrics_render(metrics, false, &out) == SP_OK &&
		view_search(buf_view(&out), view_str(line)) < buf_len(&out),
	    "%s", line);
	buf_clear(&out);
}

static void
test_calls(void)
{
	struct gate_request a = by(&location, ""), b = by(&other, "");
	struct gate_request in = by(&location, "one"), in2 = by(&location, "2");
	struct bound_ticket t[6] = { { NULL, false } };

	setup(2, 0, 1);
	tap_is_int(bound_call(bound, &a, &t[0]), BOUND_TAKEN, "one");
	tap_is_int(bound_call(bound, &a, &t[1]), BOUND_TAKEN, "two");
	tap_is_int(bound_call(bound, &a, &t[2]), BOUND_CALLS, "not three");
	tap_ok(t[2].place == NULL, "which takes nothing");
	tap_is_int(bound_call(bound, &b, &t[2]), BOUND_TAKEN,
	    "another location has its own");
	tap_is_int(bound_call(bound, &in, &t[3]), BOUND_TAKEN,
	    "and so has an episode");
	tap_is_int(bound_call(bound, &in2, &t[4]), BOUND_TAKEN,
	    "and the next one");
	shows("sallyport_operations_in_flight{principal=\"agent\"} 5\n");
	tap_is_int(bound_socket(bound, &a, &t[5]), BOUND_TAKEN, "a socket");
	shows("sallyport_door_sockets{principal=\"agent\"} 1\n");
	bound_give(&t[0]);
	bound_give(&t[0]);
	tap_is_int(bound_call(bound, &a, &t[0]), BOUND_TAKEN, "given back");
	bound_give(&t[0]);
	bound_give(&t[1]);
	bound_give(&t[2]);
	bound_give(&t[3]);
	bound_give(&t[4]);
	bound_give(&t[5]);
	shows("sallyport_operations_in_flight{principal=\"agent\"} 0\n");
	shows("sallyport_door_sockets{principal=\"agent\"} 0\n");
	shows("sallyport_operations_refused_total{principal=\"agent\","
	      "reason=\"calls\"} 1\n");
	teardown();
}

static void
test_sockets(void)
{
	struct gate_request a = by(&location, "");
	struct bound_ticket t[3] = { { NULL, false } };

	setup(0, 0, 2);
	tap_is_int(bound_socket(bound, &a, &t[0]), BOUND_TAKEN, "one");
	tap_is_int(bound_socket(bound, &a, &t[1]), BOUND_TAKEN, "two");
	tap_is_int(bound_socket(bound, &a, &t[2]), BOUND_SOCKETS, "no more");
	tap_is_int(bound_deny(&a, BOUND_SOCKETS), GATE_DENY, "denied");
	tap_is_int(a.status, 429, "with 429");
	tap_is_str(a.outcome, "limited", "and an outcome");
	tap_is_int(bound_call(bound, &a, &t[2]), BOUND_TAKEN,
	    "operations are counted apart");
	bound_give(&t[0]);
	bound_give(&t[1]);
	bound_give(&t[2]);
	teardown();
}

/* A reload may put another in front of it. */
static void
test_reload(void)
{
	struct conf_listen at = { .address = VIEW_INIT("192.0.2.1"),
		.port = 1 };
	struct conf_listen at2 = { .address = VIEW_INIT("192.0.2.1"),
		.port = 2 };
	struct conf_server before = { .index = 1,
		.listens = &at,
		.listens_n = 1 };
	struct conf_server after = { .index = 2,
		.listens = &at,
		.listens_n = 1 };
	struct conf_server beside = { .index = 1,
		.listens = &at2,
		.listens_n = 1 };
	struct conf_location old = other, moved = other, put = other;
	struct gate_request a = by(&old, ""), b = by(&moved, "");
	struct gate_request c = by(&put, "");
	struct bound_ticket t[2] = { { NULL, false } };

	setup(0, 0, 1);
	old.limits.sockets = moved.limits.sockets = put.limits.sockets = 1;
	old.server = &before;
	moved.server = &after;
	moved.index = old.index + 1;
	put.server = &before;
	put.path = VIEW("/new");
	tap_is_int(bound_socket(bound, &a, &t[0]), BOUND_TAKEN, "one");
	tap_is_int(bound_socket(bound, &b, &t[1]), BOUND_SOCKETS,
	    "the location that moved is the same");
	tap_is_int(bound_socket(bound, &c, &t[1]), BOUND_TAKEN,
	    "what stands in its place is another");
	bound_give(&t[1]);
	put.path = old.path;
	put.server = &beside;
	tap_is_int(bound_socket(bound, &c, &t[1]), BOUND_TAKEN,
	    "and so is the same path of another listener");
	bound_give(&t[1]);
	bound_give(&t[0]);
	teardown();
}

static void
test_no_limit(void)
{
	struct gate_request a = by(&location, "");
	static struct bound_ticket t[BOUND_CALLS_MAX];
	struct bound_ticket more = { NULL, false };
	unsigned i, n = 0;

	setup(0, 0, 1);
	for (i = 0; i < BOUND_CALLS_MAX; i++)
		n += bound_call(bound, &a, &t[i]) == BOUND_TAKEN;
	tap_is_int(n, BOUND_CALLS_MAX, "without max_calls 4096");
	tap_is_int(bound_call(bound, &a, &more), BOUND_CALLS, "and no more");
	for (i = 0; i < BOUND_CALLS_MAX; i++)
		bound_give(&t[i]);
	teardown();
}

static void
test_rate(void)
{
	struct gate_request a = by(&location, "");
	struct bound_ticket t = { NULL, false };
	enum bound_word word = BOUND_TAKEN;
	unsigned i;

	setup(0, 3, 9);
	for (i = 0; i < 1000 && word == BOUND_TAKEN; i++) {
		word = i % 2 == 0 ? bound_call(bound, &a, &t)
				  : bound_socket(bound, &a, &t);
		bound_give(&t);
	}
	tap_is_int(word, BOUND_RATE, "more than a second may have");
	tap_ok(i >= 4, "of operations and sockets together");
	for (i = 0; i < 1000 && word == BOUND_RATE; i++) {
		spin(20);
		word = bound_call(bound, &a, &t);
	}
	tap_is_int(word, BOUND_TAKEN, "later it is");
	bound_give(&t);
	location.limits.max_calls_per_second = 0;
	for (i = 0; i < 10 && word == BOUND_TAKEN; i++) {
		word = bound_call(bound, &a, &t);
		bound_give(&t);
	}
	tap_is_int(word, BOUND_TAKEN, "and without a rate always");
	teardown();
}

/* Places of episodes that are gone do not stay. */
static void
test_sweep(void)
{
	struct bound_ticket t = { NULL, false };
	size_t before = mem_live(), after;
	char name[16];
	unsigned i, round;

	setup(0, 100, 9);
	for (round = 0; round < 4; round++) {
		for (i = 0; i < MANY; i++) {
			struct gate_request a;

			(void)snprintf(name, sizeof(name), "%u-%u", round, i);
			a = by(&location, name);
			if (bound_call(bound, &a, &t) != BOUND_TAKEN)
				abort();
			bound_give(&t);
		}
		spin(1100);
	}
	after = mem_live();
	tap_ok(after - before < 3 * MANY * sizeof(char[160]),
	    "what rested for a second is forgotten");
	teardown();
}

static void
test_memory(void)
{
	struct gate_request a = by(&location, "");
	struct bound_ticket t = { NULL, false };
	enum bound_word word;
	unsigned n;

	for (n = 1;; n++) {
		struct bound *b;

		mem_fail_after(n, 0);
		b = bound_new(loop);
		mem_fail_after(0, 0);
		if (b != NULL) {
			bound_free(b);
			break;
		}
	}
	tap_ok(n > 1, "no memory for it");
	setup(0, 0, 1);
	for (n = 1;; n++) {
		mem_fail_after(n, 0);
		word = bound_call(bound, &a, &t);
		mem_fail_after(0, 0);
		if (word == BOUND_TAKEN)
			break;
		if (word != BOUND_NOMEM || t.place != NULL)
			abort();
	}
	tap_ok(n > 1, "nor for a place");
	bound_give(&t);
	tap_is_int(bound_deny(&a, BOUND_NOMEM), GATE_DENY, "denied");
	tap_is_int(a.status, 503, "with 503");
	teardown();
}

int
main(void)
{
	loop = loop_new();
	stopper = loop != NULL ? loop_timer_new(loop, on_stop, NULL) : NULL;
	if (stopper == NULL)
		abort();
	test_calls();
	test_sockets();
	test_reload();
	test_no_limit();
	test_rate();
	test_sweep();
	test_memory();
	loop_timer_free(stopper);
	loop_free(loop);
	return tap_done();
}

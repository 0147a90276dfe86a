/* The link to the recorder, against a recorder in this very process. */
#include "config.h"

#include "base/mem.h"
#include "gate/turn.h"
#include "ipc/channel.h"
#include "ipc/wire.h"
#include "os/fd.h"

#include <stdlib.h>
#include <unistd.h>

#include "tap.h"

static struct loop *loop;
static struct loop_timer *stopper;
static struct recorder *rec;
static struct channel *peer; /* the recorder's end */
static struct conf_capture capture = { .name = { "train", 5 },
	.level = CONF_LEVEL_TOKENS };

/* What one owner heard. */
struct heard {
	int room, done;
	bool ok;
	uint64_t number;
	char text[64];
	struct turn *drop; /* dropped from within done() */
};

static void
on_room(void *arg)
{
	((struct heard *)arg)->room++;
}

static void
on_done(void *arg, bool ok, uint64_t number, const char *text)
{
	struct heard *h = arg;

	h->done++;
	h->ok = ok;
	h->number = number;
	snprintf(h->text, sizeof(h->text), "%s", text);
	if (h->drop != NULL)
		turn_drop(h->drop);
}

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

/* A few turns of the loop. */
static void
spin(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		loop_timer_set(stopper, 0);
		if (loop_run(loop) != SP_OK)
			abort();
	}
}

static int
connect_peer(void)
{
	int fd[2];

	channel_free(peer);
	peer = NULL;
	if (fd_seqpacket_pair(fd) != SP_OK)
		abort();
	peer = channel_new(fd[1], MESSAGE_RECORDER, MESSAGE_REACTOR, 1 << 20);
	if (peer == NULL) {
		close(fd[0]);
		return SP_E_NOMEM;
	}
	channel_set_state(peer, MESSAGE_RUN);
	return turn_recorder_set(rec, fd[0]);
}

static void
say_state(uint8_t ok, const char *why)
{
	struct buf b = BUF_INIT(1024);

	if (wire_put_u8(&b, ok) || wire_put_bytes(&b, view_str(why)) ||
	    channel_send(peer, MESSAGE_REC_STATE, buf_view(&b), -1))
		abort();
	buf_clear(&b);
	spin();
}

static void
say_credit(uint32_t handle, uint32_t n)
{
	struct buf b = BUF_INIT(64);

	if (wire_put_u32(&b, handle) || wire_put_u32(&b, n) ||
	    channel_send(peer, MESSAGE_TURN_CREDIT, buf_view(&b), -1))
		abort();
	buf_clear(&b);
	spin();
}

static void
say_done(uint32_t handle, uint8_t result, uint64_t number)
{
	struct buf b = BUF_INIT(64);

	if (wire_put_u32(&b, handle) || wire_put_u8(&b, result) ||
	    wire_put_u64(&b, number) || wire_put_u32(&b, 12) ||
	    wire_put_u32(&b, 0) || wire_put_u8(&b, 4) ||
	    buf_add(&b, "stop", 4) ||
	    channel_send(peer, MESSAGE_TURN_DONE, buf_view(&b), -1))
		abort();
	buf_clear(&b);
	spin();
}

/* The next message: its type, 0 none; its first u32 into *handle. */
static unsigned
hear(uint32_t *handle, struct view *body)
{
	static struct channel_msg m;
	struct wire w;

	/* what was said goes out at the end of the loop's turn */
	if (channel_recv(peer, &m) != SP_OK) {
		spin();
		if (channel_recv(peer, &m) != SP_OK)
			return 0;
	}
	wire_init(&w, m.body);
	*handle = wire_u32(&w);
	*body = view_of(w.p, w.n);
	return m.type;
}

static void
start(size_t unsent_max)
{
	rec = turn_recorder_new(loop, unsent_max);
	if (rec == NULL || connect_peer() != SP_OK)
		abort();
}

static void
stop(void)
{
	turn_recorder_free(rec);
	channel_free(peer);
	peer = NULL;
	rec = NULL;
}

static const struct turn_params params = { .generation = 2,
	.capture = &capture,
	.session = { "default", 7 },
	.episode = { "ep-1", 4 },
	.wall_us = 99,
	.flags = MESSAGE_TURN_STREAM,
	.meta = { "{\"a\":1}", 7 } };

static struct turn *
open_turn(struct heard *h)
{
	const struct turn_owner owner = { on_room, on_done, h };
	struct turn *t = NULL;

	memset(h, 0, sizeof(*h));
	if (turn_open(rec, &params, &owner, &t) != SP_OK)
		return NULL;
	return t;
}

static const struct turn_end good_end = { .outcome = MESSAGE_OUTCOME_END,
	.upstream_status = 200,
	.latency_us = 5,
	.ttft_us = 3 };

static uint64_t observed;
static uint32_t observed_tokens;

static void
observe(void *arg, const struct turn_facts *facts)
{
	(void)arg;
	observed++;
	observed_tokens = facts->tokens;
	if (!view_eq(facts->finish_reason, VIEW("stop")) || !facts->ok ||
	    facts->level != CONF_LEVEL_TOKENS)
		observed = 1000;
}

/* Turns are taken when the recorder says so, and not before. */
static void
accepting(void)
{
	const struct turn_owner nobody = { on_room, on_done, NULL };
	struct turn *t = NULL;
	const char *why;

	start(1 << 20);
	tap_ok(!turn_recorder_ok(rec, &why), "not before it says so");
	tap_is_str(why, "the recorder is starting", "why");
	tap_is_int(turn_open(rec, &params, &nobody, &t), SP_E_STATE, "refused");
	say_state(0, "disk \x01 full");
	tap_ok(!turn_recorder_ok(rec, &why), "not accepting");
	tap_is_str(why, "disk ? full", "its words, made harmless");
	say_state(1, "");
	tap_ok(turn_recorder_ok(rec, &why), "accepting");
	stop();
}

static void
whole_turn(void)
{
	struct heard h;
	struct turn *t;
	struct view body;
	struct wire w;
	uint32_t handle = 0, first;

	start(1 << 20);
	say_state(1, "");
	turn_recorder_observe(rec, observe, NULL);
	t = open_turn(&h);
	tap_ok(t != NULL, "opened");
	tap_is_int((long long)turn_recorder_open(rec), 1, "one is open");
	tap_is_int((long long)turn_room(t), TURN_WINDOW_BYTES, "whole window");
	tap_is_int(turn_data(t, MESSAGE_DATA_REQUEST, VIEW("{}")), SP_OK,
	    "request");
	tap_is_int(turn_data(t, MESSAGE_DATA_EVENT, VIEW("{1}")), SP_OK,
	    "event");
	tap_is_int(turn_data(t, MESSAGE_DATA_EVENT, VIEW("")), SP_OK, "empty");
	tap_ok(turn_recorder_backlog(rec) > 0, "waits for the turn's end");
	spin();
	tap_is_int((long long)turn_recorder_backlog(rec), 0, "sent");
	tap_is_int((long long)turn_room(t), TURN_WINDOW_BYTES - 5, "window");

	tap_is_int(hear(&first, &body), MESSAGE_TURN_OPEN, "TURN_OPEN");
	wire_init(&w, body);
	tap_is_int(wire_u32(&w), 2, "generation");
	tap_ok(view_eq(wire_bytes(&w), VIEW("train")), "capture");
	tap_ok(view_eq(wire_bytes(&w), VIEW("default")), "session");
	tap_is_int((long long)wire_u64(&w), 99, "clock");
	tap_is_int(wire_u32(&w), MESSAGE_TURN_STREAM, "flags");
	tap_ok(view_eq(wire_bytes(&w), VIEW("{\"a\":1}")), "meta");
	tap_ok(view_eq(wire_bytes(&w), VIEW("ep-1")), "episode");
	tap_is_int(wire_done(&w), SP_OK, "nothing more");
	tap_is_int(hear(&handle, &body), MESSAGE_TURN_DATA, "TURN_DATA");
	tap_is_int(handle, first, "handle");
	wire_init(&w, body);
	tap_is_int(wire_u8(&w), MESSAGE_DATA_REQUEST, "kind");
	tap_is_int(wire_u8(&w), 0, "whole");
	tap_ok(view_eq(wire_bytes(&w), VIEW("{}")), "bytes");
	tap_is_int(wire_u32(&w), first, "the next entry, in one message");
	tap_is_int(hear(&handle, &body), 0, "no other message");

	say_credit(first, 5);
	tap_is_int((long long)turn_room(t), TURN_WINDOW_BYTES, "credit");
	tap_is_int(turn_data(t, MESSAGE_DATA_EVENT, VIEW("x")), SP_OK, "more");
	tap_is_int(turn_end(t, &good_end), SP_OK, "ended");
	tap_is_int(turn_end(t, &good_end), SP_E_STATE, "once");
	tap_is_int(turn_data(t, MESSAGE_DATA_EVENT, VIEW("x")), SP_E_STATE,
	    "no data after the end");
	spin();
	tap_is_int(hear(&handle, &body), MESSAGE_TURN_DATA, "data first");
	tap_is_int(hear(&handle, &body), MESSAGE_TURN_END, "then the end");
	wire_init(&w, body);
	tap_is_int(wire_u8(&w), MESSAGE_OUTCOME_END, "outcome");
	tap_is_int(wire_u16(&w), 200, "status");
	(void)wire_u32(&w);
	tap_is_int((long long)wire_u64(&w), 5, "latency");
	tap_is_int((long long)wire_u64(&w), 3, "first token");
	tap_ok(wire_bytes(&w).n == 0 && wire_bytes(&w).n == 0 &&
		wire_done(&w) == SP_OK,
	    "no error, no meta");
	tap_is_int(h.done, 0, "not done yet");
	say_done(first, MESSAGE_RESULT_OK, 41);
	tap_ok(h.done == 1 && h.ok && h.number == 41, "done, on file");
	tap_ok(observed == 1 && observed_tokens == 12, "observed");
	tap_is_int((long long)turn_recorder_open(rec), 0, "none is open");
	turn_delivered(t, true);
	tap_is_int(hear(&handle, &body), MESSAGE_TURN_DELIVERED, "DELIVERED");
	tap_ok(handle == first && body.n == 1 && body.p[0] == 1, "to it");
	stop();
}

/* Ended well, badly, dropped in each state. */
static void
results(void)
{
	struct heard h;
	struct turn *t;
	struct view body;
	uint32_t handle = 0;

	start(1 << 20);
	say_state(1, "");
	t = open_turn(&h);
	hear(&handle, &body);
	if (turn_end(t, &good_end) != SP_OK)
		abort();
	say_done(handle, MESSAGE_RESULT_FULL, 1);
	tap_ok(h.done == 1 && !h.ok, "disk full");
	tap_is_str(h.text, "the disk is full", "said so");
	hear(&handle, &body);
	turn_drop(t);
	tap_ok(hear(&handle, &body) == MESSAGE_TURN_DELIVERED && body.p[0] == 0,
	    "a drop after done tells that it was not delivered");

	t = open_turn(&h);
	hear(&handle, &body);
	if (turn_data(t, MESSAGE_DATA_EVENT, VIEW("x")) != SP_OK)
		abort();
	turn_drop(t);
	spin();
	tap_is_int(hear(&handle, &body), MESSAGE_TURN_DATA, "dropped: data");
	tap_is_int(hear(&handle, &body), MESSAGE_TURN_END, "dropped: ended");
	tap_is_int(body.p[0], MESSAGE_OUTCOME_CLIENT_GONE, "as client gone");
	say_done(handle, MESSAGE_RESULT_OK, 2);
	tap_ok(hear(&handle, &body) == MESSAGE_TURN_DELIVERED && body.p[0] == 0,
	    "and told not delivered by itself");
	tap_is_int(h.done, 0, "its owner hears nothing");

	t = open_turn(&h);
	hear(&handle, &body);
	if (turn_end(t, &good_end) != SP_OK)
		abort();
	hear(&handle, &body);
	turn_drop(t);
	tap_is_int(hear(&handle, &body), 0, "dropped while it is written");
	say_done(handle, MESSAGE_RESULT_FAILED, 3);
	tap_ok(hear(&handle, &body) == MESSAGE_TURN_DELIVERED && body.p[0] == 0,
	    "not delivered");
	t = open_turn(&h);
	hear(&handle, &body);
	h.done = 0;
	say_done(handle, MESSAGE_RESULT_REFUSED, 0);
	tap_is_int(hear(&handle, &body), 0, "refused while it is open");
	tap_ok(h.done == 1 && !h.ok, "its owner hears of it");
	turn_delivered(t, false);
	tap_is_int(hear(&handle, &body), MESSAGE_TURN_END, "it ends");
	say_done(handle, MESSAGE_RESULT_FAILED, 0);
	tap_ok(hear(&handle, &body) == MESSAGE_TURN_DELIVERED && body.p[0] == 0,
	    "is answered once more, and over");
	tap_is_int(h.done, 1, "its owner heard of it once");
	t = open_turn(&h);
	h.drop = t;
	hear(&handle, &body);
	if (turn_end(t, &good_end) != SP_OK)
		abort();
	say_done(handle, MESSAGE_RESULT_OK, 4);
	tap_is_int(h.done, 1, "dropped from within done()");
	stop();
}

/* A piece that is larger than a message, byte for byte. */
static void
fragments(void)
{
	size_t n = 700 * 1000, i, got = 0, messages = 0;
	char *big = mem_alloc(n);
	struct heard h;
	struct turn *t;
	struct view body;
	struct wire w;
	uint32_t handle = 0;
	bool same = true, last_more = true;

	start(1 << 20);
	say_state(1, "");
	for (i = 0; i < n; i++)
		big[i] = (char)(i * 7 + i / 251);
	t = open_turn(&h);
	hear(&handle, &body);
	tap_is_int(turn_data(t, MESSAGE_DATA_BODY, view_of(big, n)), SP_OK,
	    "a large piece");
	tap_is_int(turn_data(t, MESSAGE_DATA_BODY, view_of(big, n)), SP_OK,
	    "beyond the window, while the bound is kept");
	tap_is_int((long long)turn_room(t), 0, "no room");
	for (;;) {
		struct view piece;
		uint8_t more;

		spin();
		if (hear(&handle, &body) != MESSAGE_TURN_DATA)
			break;
		messages++;
		wire_init(&w, body);
		do {
			(void)wire_u8(&w);
			more = wire_u8(&w);
			piece = wire_bytes(&w);
			same = same && piece.n <= 2 * n - got &&
			    memcmp(piece.p, big + got % n, piece.n) == 0;
			got += piece.n;
			last_more = more;
			same = same && (more == 0) == (got % n == 0);
		} while (wire_more(&w) && (wire_u32(&w), true));
		same = same && wire_done(&w) == SP_OK;
	}
	tap_ok(same && got == 2 * n && !last_more, "arrives whole (%zu)", got);
	tap_is_int((long long)messages, 11, "in full messages");
	say_credit(handle, (uint32_t)n);
	tap_is_int(h.room, 0, "credit, but above half the window");
	say_credit(handle, 400000);
	tap_is_int(h.room, 1, "room again");
	tap_ok(turn_room(t) > 0, "there is some");
	turn_drop(t);
	stop();
	mem_free(big);
}

/* The recorder does not read: the bound on unsent bytes holds. */
static void
bound(void)
{
	static char block[64 * 1024];
	struct heard h[2];
	struct turn *t, *other;
	struct view body;
	uint32_t handle = 0;
	int rc = SP_OK, n = 0;

	start(512 * 1024);
	say_state(1, "");
	t = open_turn(&h[0]);
	other = open_turn(&h[1]);
	while (rc == SP_OK && n < 10000) {
		rc = turn_data(t, MESSAGE_DATA_EVENT,
		    view_of(block, sizeof(block)));
		n += rc == SP_OK;
		spin();
	}
	tap_is_int(rc, SP_E_LIMIT, "refused past the bound (%d)");
	tap_ok(turn_recorder_backlog(rec) <= 512 * 1024, "bound kept");
	tap_is_int((long long)turn_room(other), 0,
	    "others pause, too, while the recorder is far behind");
	tap_is_int(turn_open(rec, &params, &(struct turn_owner){ 0 }, &t),
	    SP_OK, "opens are still taken");
	turn_drop(t);
	while (n > 0) {
		spin();
		if (hear(&handle, &body) == 0)
			break;
	}
	tap_is_int((long long)turn_recorder_backlog(rec), 0, "read at last");
	tap_is_int(h[1].room, 1, "the other hears of room");
	tap_is_int((long long)turn_room(other), TURN_WINDOW_BYTES,
	    "and has it");
	stop();
}

/* Turns open when the recorder dies are lost, and the next one is told. */
static void
death(void)
{
	struct heard h[3];
	struct turn *t[3];
	struct view body;
	uint32_t handle = 0, a = 0;
	const char *why;
	int opens = 0, ends = 0;

	start(1 << 20);
	say_state(1, "");
	t[0] = open_turn(&h[0]);
	t[1] = open_turn(&h[1]);
	hear(&a, &body);
	t[2] = open_turn(&h[2]);
	if (turn_end(t[1], &good_end) != SP_OK ||
	    turn_end(t[0], &good_end) != SP_OK)
		abort();
	say_done(a, MESSAGE_RESULT_OK, 1);
	tap_is_int(h[0].done, 1, "the first was filed before");
	channel_free(peer);
	peer = NULL;
	/* found out by a send: no callback from within it */
	while (turn_data(t[2], MESSAGE_DATA_EVENT, VIEW("x")) == SP_OK &&
	    h[2].done == 0)
		spin();
	tap_is_int(turn_data(t[2], MESSAGE_DATA_EVENT, VIEW("x")), SP_E_STATE,
	    "no data to nobody");
	spin();
	tap_ok(h[1].done == 1 && !h[1].ok, "one being written is lost");
	tap_ok(h[2].done == 1 && !h[2].ok, "one being fed is lost");
	tap_is_str(h[2].text, "the recorder is gone", "why");
	tap_ok(!turn_recorder_ok(rec, &why), "nothing is accepted");
	tap_is_int((long long)turn_recorder_open(rec), 0, "none is open");
	turn_delivered(t[0], true);
	turn_delivered(t[1], false);
	turn_drop(t[2]);

	tap_is_int(connect_peer(), SP_OK, "another recorder");
	spin();
	tap_is_int(hear(&handle, &body), 0, "nothing before it accepts");
	say_state(1, "");
	for (;;) {
		unsigned type = hear(&handle, &body);

		if (type == 0)
			break;
		if (type == MESSAGE_TURN_OPEN)
			opens++;
		if (type == MESSAGE_TURN_END &&
		    body.p[0] == MESSAGE_OUTCOME_LOST) {
			ends++;
			say_done(handle, MESSAGE_RESULT_OK, 9);
		}
	}
	tap_ok(opens == 2 && ends == 2, "hears of the two that were lost");
	tap_is_int((long long)turn_recorder_open(rec), 0, "none is open");
	tap_is_int(turn_recorder_set(rec, -1), SP_OK, "taken away");
	tap_ok(!turn_recorder_ok(rec, &why), "not there");
	stop();
}

/* It is there and does not answer: who waits for it is told. */
static void
silent(void)
{
	struct heard h[4];
	struct turn *t[4];
	struct view body;
	uint32_t handle[2] = { 0 };
	const char *why;
	size_t i;

	start(1 << 20);
	turn_recorder_patience(rec, 20);
	say_state(1, "");
	for (i = 0; i < 3; i++)
		t[i] = open_turn(&h[i]);
	hear(&handle[0], &body);
	hear(&handle[1], &body);
	if (turn_end(t[0], &good_end) != SP_OK ||
	    turn_end(t[1], &good_end) != SP_OK)
		abort();
	for (i = 0; i < 5000 && h[1].done == 0; i++) {
		loop_timer_set(stopper, 1);
		if (loop_run(loop) != SP_OK)
			abort();
	}
	tap_ok(h[0].done == 1 && !h[0].ok && h[1].done == 1,
	    "ends that wait too long are over");
	tap_is_str(h[0].text, "the recorder does not answer", "why");
	tap_is_int(h[2].done, 0, "one that is fed goes on");
	tap_ok(!turn_recorder_ok(rec, &why), "none is accepted");
	tap_is_str(why, "the recorder does not answer", "why");
	tap_ok(open_turn(&h[3]) == NULL, "nor opened");
	tap_is_int(turn_end(t[2], &good_end), SP_OK, "its end");
	spin();
	tap_ok(h[2].done == 1 && !h[2].ok, "need not wait");
	turn_delivered(t[0], false);
	turn_drop(t[2]);
	say_done(handle[0], MESSAGE_RESULT_OK, 1);
	tap_ok(turn_recorder_ok(rec, &why), "it answers again");
	tap_is_int(h[0].done, 1, "an owner is told once");
	say_done(handle[1], MESSAGE_RESULT_OK, 2);
	tap_is_int(h[1].done, 1, "also one that holds its turn still");
	turn_delivered(t[1], false);
	for (i = 0; i < 20; i++)
		if (hear(&handle[0], &body) == MESSAGE_TURN_DELIVERED)
			break;
	tap_ok(body.n == 1 && body.p[0] == 0, "no client got that end");
	/* gone: told already */
	t[0] = open_turn(&h[0]);
	if (t[0] == NULL || turn_end(t[0], &good_end) != SP_OK)
		abort();
	for (i = 0; i < 5000 && h[0].done == 0; i++) {
		loop_timer_set(stopper, 1);
		if (loop_run(loop) != SP_OK)
			abort();
	}
	tap_is_int(turn_recorder_set(rec, -1), SP_OK, "it goes");
	spin();
	tap_is_int(h[0].done, 1, "and says it once");
	turn_delivered(t[0], false);
	stop();
}

/* Whatever a recorder that was taken over says, it only loses its channel. */
static void
hostile(void)
{
	struct buf b = BUF_INIT(4096);
	struct heard h;
	struct turn *t;
	struct view body;
	uint32_t handle;
	int i;

	for (i = 0; i < 8; i++) {
		bool good = true;
		unsigned type = MESSAGE_TURN_CREDIT;

		start(1 << 20);
		say_state(1, "");
		t = open_turn(&h);
		hear(&handle, &body);
		if (turn_data(t, MESSAGE_DATA_EVENT, VIEW("xyz")) != SP_OK)
			abort();
		spin();
		switch (i) {
		case 0: /* more credit than bytes */
			good =
			    !wire_put_u32(&b, handle) && !wire_put_u32(&b, 4);
			break;
		case 1: /* of another turn */
			good = !wire_put_u32(&b, handle + 1) &&
			    !wire_put_u32(&b, 1);
			break;
		case 2: /* a half entry */
			good = !wire_put_u32(&b, handle) &&
			    !wire_put_u32(&b, 1) && !wire_put_u32(&b, handle);
			break;
		case 3: /* filed before it ended */
		case 4: /* with a result that is none */
		case 5: /* a finish_reason beyond the message */
			type = MESSAGE_TURN_DONE;
			if (i > 3 && turn_end(t, &good_end) != SP_OK)
				abort();
			good = !wire_put_u32(&b, handle) &&
			    !wire_put_u8(&b, i == 4 ? 9 : 1) &&
			    !wire_put_u64(&b, 1) && !wire_put_u64(&b, 0) &&
			    !wire_put_u8(&b, i == 5 ? 5 : 0);
			break;
		case 6:
			type = MESSAGE_REC_STATE;
			good = !wire_put_u8(&b, 2) && !wire_put_u32(&b, 0);
			break;
		case 7: /* bytes that are no message at all */
			good = write(channel_fd(peer), "junk", 4) == 4;
			type = 0;
			break;
		}
		if (!good ||
		    (type != 0 &&
			channel_send(peer, type, buf_view(&b), -1) != SP_OK))
			abort();
		buf_reset(&b, SIZE_MAX);
		spin();
		tap_ok(h.done == 1 && !h.ok, "hostile %d: the turn is lost", i);
		tap_ok(!turn_recorder_ok(rec, NULL), "its channel is closed");
		turn_drop(t);
		stop();
	}
	buf_clear(&b);
}

/* Each allocation fails once, all the way through a turn. */
static bool
try(unsigned long n)
{
	struct heard h = { 0 };
	struct turn *t = NULL;
	struct view body;
	uint32_t handle = 0;
	bool good = false;

	start(1 << 20);
	say_state(1, "");
	mem_fail_after(n, 0);
	t = open_turn(&h);
	if (t != NULL) {
		good = turn_data(t, MESSAGE_DATA_EVENT, VIEW("x")) == SP_OK;
		spin();
		good = turn_end(t, &good_end) == SP_OK && good;
	}
	mem_fail_after(0, 0);
	if (good) {
		hear(&handle, &body);
		say_done(handle, MESSAGE_RESULT_OK, 1);
		good = h.done == 1 && h.ok;
		turn_delivered(t, true);
	} else if (t != NULL)
		turn_drop(t);
	stop();
	return good;
}

static void
no_memory(void)
{
	unsigned long n = 1;

	while (n < 200 && !try(n))
		n++;
	tap_ok(n > 3 && n < 100, "failing allocations survived (%lu)", n);
}

/* Some ends go before the loop's turn is over: the recorder has work then. */
static void
ends_early(void)
{
	struct channel_msg m;
	struct heard h[4];
	struct turn *t[4];
	size_t i;
	bool good = true;

	start(1 << 20);
	say_state(1, "");
	for (i = 0; i < 4; i++) {
		t[i] = open_turn(&h[i]);
		good &= t[i] != NULL;
	}
	spin();
	for (i = 0; i < 4; i++)
		good &= channel_recv(peer, &m) == SP_OK;
	tap_ok(good, "openings are there");
	for (i = 0; i < 3; i++)
		good &= turn_end(t[i], &good_end) == SP_OK;
	tap_ok(good && channel_recv(peer, &m) == SP_E_AGAIN, "three ends wait");
	good = turn_end(t[3], &good_end) == SP_OK;
	for (i = 0; i < 4; i++)
		good &= channel_recv(peer, &m) == SP_OK &&
		    m.type == MESSAGE_TURN_END;
	tap_ok(good, "with the fourth all of them go");
	for (i = 0; i < 4; i++)
		turn_drop(t[i]);
	stop();
}

int
main(void)
{
	loop = loop_new();
	stopper = loop_timer_new(loop, on_stop, NULL);
	accepting();
	whole_turn();
	results();
	fragments();
	bound();
	ends_early();
	death();
	silent();
	hostile();
	no_memory();
	loop_timer_free(stopper);
	loop_free(loop);
	return tap_done();
}

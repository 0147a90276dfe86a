/* Open sessions in the reactor, against a recorder in this very process. */
#include "config.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "gate/gate.h"
#include "gate/roster.h"
#include "ipc/channel.h"
#include "os/fd.h"

#include "tap.h"

const struct gate_module *const gate_modules[] = { NULL };

static struct loop *loop;
static struct loop_timer *stopper;
static struct recorder *rec;
static struct roster *ros;
static struct channel *peer; /* the recorder's end */

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

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

static void
connect_peer(void)
{
	int fd[2];

	channel_free(peer);
	if (fd_seqpacket_pair(fd) != SP_OK)
		abort();
	peer = channel_new(fd[1], MESSAGE_RECORDER, MESSAGE_REACTOR, 1 << 20);
	if (peer == NULL)
		abort();
	channel_set_state(peer, MESSAGE_RUN);
	tap_is_int(turn_recorder_set(rec, fd[0]), SP_OK, "a recorder comes");
}

static struct session_msg
session(const char *id, const char *key)
{
	struct session_msg m = { .id = view_str(id),
		.capture = VIEW("c"),
		.sampling = VIEW("{\"top_p\":0.5,\"top_k\":-1}"),
		.metadata = VIEW("{}"),
		.max_calls = 2 };

	if (roster_digest(view_str(key), m.key) != SP_OK)
		abort();
	return m;
}

static void
say(enum message_type type, struct buf *body, int fd)
{
	if (channel_send(peer, type, buf_view(body), fd) != SP_OK)
		abort();
	buf_clear(body);
	spin();
}

static void
say_session(const struct session_msg *m)
{
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);

	if (session_msg_put(&b, m) != SP_OK)
		abort();
	say(MESSAGE_SESSION, &b, -1);
}

static void
say_all(void)
{
	struct buf b = BUF_INIT(16);

	say(MESSAGE_REPLAY_DONE, &b, -1);
}

static void
say_reply(uint32_t seq, uint8_t result, const char *text)
{
	struct buf b = BUF_INIT(1024);

	if (wire_put_u32(&b, seq) || wire_put_u8(&b, result) ||
	    wire_put_bytes(&b, view_str(text)))
		abort();
	say(MESSAGE_SESSION_REPLY, &b, -1);
}

static void
on_closed(void *arg)
{
	++*(int *)arg;
}

static bool
has_ended(struct view key)
{
	bool ended;

	return roster_by_key(ros, key, &ended) == NULL && ended;
}

static void
replayed(void)
{
	struct session_msg m = session("s1", "key-one");
	struct roster_session *s;

	tap_ok(!roster_ready(ros), "nothing is known at first");
	connect_peer();
	say_session(&m);
	tap_ok(!roster_ready(ros), "nor is all, yet");
	say_all();
	tap_ok(roster_ready(ros), "now it is");
	s = roster_by_key(ros, VIEW("key-one"), NULL);
	tap_ok(s != NULL && s == roster_find(ros, VIEW("s1")), "by its key");
	tap_ok(s != NULL && s->sampling_n == 2 &&
		view_eq(s->sampling[1].name, VIEW("top_k")) &&
		view_eq(s->sampling[1].value, VIEW("-1")),
	    "its sampling");
	tap_ok(roster_by_key(ros, VIEW("key-two"), NULL) == NULL &&
		roster_by_key(ros, VIEW("s1"), NULL) == NULL &&
		roster_find(ros, VIEW_NONE) == NULL,
	    "nobody else");
	m = session("s2", "key-one");
	tap_is_int(roster_put(ros, &m), SP_E_EXISTS, "another's key");
	m = session("s2", "key-two");
	m.sampling = VIEW("{\"top_p\":\"x\"}");
	tap_is_int(roster_put(ros, &m), SP_E_SYNTAX, "bad sampling");
	tap_ok(roster_find(ros, VIEW("s2")) == NULL, "leaves nothing");
}

static void
budgets(void)
{
	struct roster_session s = { .m = { .max_calls = 2, .calls = 1 } };

	tap_is_int(roster_spent(&s, 0), ROSTER_LEFT, "one is left");
	s.m.calls = 2;
	tap_is_int(roster_spent(&s, 0), ROSTER_CALLS, "none");
	s.m = (struct session_msg){ .max_tokens = 10, .tokens = 9 };
	tap_is_int(roster_spent(&s, 0), ROSTER_LEFT, "a token is left");
	s.m.tokens = 11;
	tap_is_int(roster_spent(&s, 0), ROSTER_TOKENS, "none");
	s.m = (struct session_msg){ .max_wall_ms = 5, .created_us = 1000 };
	tap_is_int(roster_spent(&s, 5999), ROSTER_LEFT, "time is left");
	tap_is_int(roster_spent(&s, 6000), ROSTER_WALL, "none");
	tap_is_int(roster_spent(&s, 0), ROSTER_LEFT, "a clock that went back");
	roster_used(ros, VIEW("s1"), 7);
	roster_used(ros, VIEW("nobody"), 7);
	tap_is_int((long long)roster_find(ros, VIEW("s1"))->m.tokens, 7,
	    "tokens are counted");
}

/* Its end is on file: its key opens nothing, and its calls end. */
static void
over(void)
{
	struct session_msg m = session("s-over", "key-over");
	struct roster_use use = { .closed = on_closed };
	struct buf b = BUF_INIT(100);
	int closed = 0;

	use.arg = &closed;
	say_session(&m);
	roster_attach(roster_find(ros, VIEW("s-over")), &use);
	if (wire_put_bytes(&b, VIEW("nobody")))
		abort();
	say(MESSAGE_SESSION_OVER, &b, -1);
	tap_ok(closed == 0, "the end of a session that is not known");
	if (wire_put_bytes(&b, VIEW("s-over")))
		abort();
	say(MESSAGE_SESSION_OVER, &b, -1);
	tap_ok(closed == 1 && roster_find(ros, VIEW("s-over")) == NULL &&
		has_ended(VIEW("key-over")),
	    "the end of one ends its calls");
}

static void
another_recorder(void)
{
	struct session_msg m = session("s2", "key-two");
	struct roster_use use = { .closed = on_closed };
	int closed = 0;

	use.arg = &closed;
	say_session(&m);
	roster_attach(roster_find(ros, VIEW("s2")), &use);
	roster_find(ros, VIEW("s1"))->m.calls = 2;
	connect_peer();
	tap_ok(!roster_ready(ros), "another recorder knows all anew");
	tap_ok(roster_by_key(ros, VIEW("key-two"), NULL) != NULL,
	    "sessions live on until then");
	m = session("s1", "key-one");
	m.calls = 1;
	say_session(&m);
	tap_is_int((long long)roster_find(ros, VIEW("s1"))->m.calls, 2,
	    "what was used stays so");
	say_all();
	tap_ok(roster_find(ros, VIEW("s2")) == NULL && closed == 1 &&
		use.session == NULL,
	    "one that it does not know is over, its calls are told");
	tap_ok(has_ended(VIEW("key-two")) && !has_ended(VIEW("key-one")) &&
		!has_ended(VIEW("key-nobody")),
	    "its key is known as that of one which ended");
	tap_ok(roster_knows(ros, VIEW("key-two")) &&
		roster_knows(ros, VIEW("key-one")) &&
		!roster_knows(ros, VIEW("key-nobody")),
	    "as is one that has not, and no other");
}

/* Keys of sessions that ended before this reactor was, by number. */
static void
say_past(int from, int n)
{
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	uint8_t sum[SESSION_MSG_KEY];
	char key[32];
	int i;

	for (i = from; i < from + n; i++) {
		(void)snprintf(key, sizeof(key), "key-past-%d", i);
		if (roster_digest(view_str(key), sum) != SP_OK ||
		    buf_add(&b, sum, sizeof(sum)) != SP_OK)
			abort();
	}
	say(MESSAGE_SESSION_PAST, &b, -1);
}

static void
past_keys(void)
{
	int i;

	say_past(0, 512);
	say_past(0, 3);
	tap_ok(has_ended(VIEW("key-past-0")) &&
		has_ended(VIEW("key-past-511")) &&
		!has_ended(VIEW("key-past-512")),
	    "what ended before is told by its key");
	for (i = 512; i < 100000; i += 512)
		say_past(i, 512);
	tap_ok(!has_ended(VIEW("key-past-0")) && !has_ended(VIEW("key-two")) &&
		has_ended(VIEW("key-past-512")) &&
		has_ended(VIEW("key-past-100351")),
	    "the last 100000 are remembered, no others");
}

/* The keys of sessions that ended are kept. */
static void
ended_keys(void)
{
	char id[32], first[32];
	bool all = true;
	int i;

	(void)snprintf(first, sizeof(first), "key-ended-0");
	for (i = 0; i < 4096; i++) {
		struct session_msg m;

		(void)snprintf(id, sizeof(id), "key-ended-%d", i);
		m = session("s-ended", id);
		all = all && roster_put(ros, &m) == 0;
		roster_end(ros, roster_find(ros, VIEW("s-ended")));
		all = all && has_ended(view_str(id));
	}
	tap_ok(all && has_ended(view_str(first)) && has_ended(VIEW("key-two")),
	    "those that end are remembered");
}

struct heard {
	int n, rc;
	unsigned result;
	char text[32];
	int fd;
	uint64_t size;
};

static void
on_answer(void *arg, struct roster_answer *a)
{
	struct heard *h = arg;

	h->n++;
	h->rc = a->rc;
	h->result = a->result;
	snprintf(h->text, sizeof(h->text), "%.*s", VIEW_ARG(a->text));
	h->fd = a->fd;
	a->fd = -1;
	h->size = a->size;
}

static struct roster_ask *
question(struct heard *h, uint32_t *seq)
{
	const struct roster_ask_owner owner = { on_answer, h };
	struct buf rest = BUF_INIT(64);
	struct roster_ask *a = NULL;
	struct channel_msg m;
	struct wire w;

	memset(h, 0, sizeof(*h));
	h->fd = -1;
	if (wire_put_bytes(&rest, VIEW("s1")) != SP_OK ||
	    roster_ask(ros, MESSAGE_SESSION_GET, buf_view(&rest), &owner, &a) !=
		SP_OK)
		abort();
	buf_clear(&rest);
	spin();
	if (channel_recv(peer, &m) != SP_OK || m.type != MESSAGE_SESSION_GET)
		abort();
	wire_init(&w, m.body);
	*seq = wire_u32(&w);
	tap_ok(view_eq(wire_bytes(&w), VIEW("s1")) && wire_done(&w) == SP_OK,
	    "a question arrives");
	return a;
}

static void
questions(void)
{
	struct roster_ask *a;
	struct heard h;
	struct buf b = BUF_INIT(16);
	uint32_t seq;
	int fd[2];

	(void)question(&h, &seq);
	say_reply(seq, MESSAGE_SESSION_OK, "{}");
	tap_ok(h.n == 1 && h.rc == 0 && h.result == MESSAGE_SESSION_OK &&
		strcmp(h.text, "{}") == 0,
	    "an answer");
	say_reply(seq, MESSAGE_SESSION_OK, "{}");
	tap_is_int(h.n, 1, "is told once");
	a = question(&h, &seq);
	roster_ask_cancel(a);
	say_reply(seq, MESSAGE_SESSION_UNKNOWN, "");
	tap_is_int(h.n, 0, "nor to who does not want it any more");
	(void)question(&h, &seq);
	if (pipe(fd) != 0 || wire_put_u32(&b, seq) || wire_put_u64(&b, 99))
		abort();
	say(MESSAGE_TRACE_FILE, &b, fd[0]);
	tap_ok(h.n == 1 && h.fd >= 0 && h.size == 99, "a file");
	fd_close(&h.fd);
	fd_close(&fd[1]);
	(void)question(&h, &seq);
	connect_peer();
	spin();
	tap_ok(h.n == 1 && h.rc == SP_E_STATE, "a recorder that is gone");
}

/* The channel is closed: the next message does not get through. */
static bool
is_closed(void)
{
	struct channel_msg m;

	spin();
	return channel_recv(peer, &m) == SP_E_GONE;
}

static void
hostile(void)
{
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	struct session_msg m = session("s1", "key-one");
	struct heard h;
	uint32_t seq;
	int i;

	(void)question(&h, &seq);
	say_reply(seq, 99, "{}");
	tap_ok(is_closed(), "a result there is not");
	tap_ok(h.n == 1 && h.rc == SP_E_STATE, "and who asked is told");
	connect_peer();
	say_reply(100000, MESSAGE_SESSION_OK, "{}");
	tap_ok(is_closed(), "an answer to no question");
	connect_peer();
	m.id = VIEW_NONE;
	say_session(&m);
	tap_ok(is_closed(), "a session without an id");
	connect_peer();
	for (i = 0; i < 120; i++)
		if (wire_put_u8(&b, 0xff) != SP_OK)
			abort();
	say(MESSAGE_SESSION, &b, -1);
	tap_ok(is_closed(), "no session at all");
	connect_peer();
	for (i = 0; i < SESSION_MSG_KEY + 1; i++)
		if (wire_put_u8(&b, 0xff) != SP_OK)
			abort();
	say(MESSAGE_SESSION_PAST, &b, -1);
	tap_ok(is_closed(), "a piece of a key");
	channel_free(peer);
	peer = NULL;
	spin();
}

static void
starving(void)
{
	struct session_msg m = session("s9", "key-nine");
	unsigned long n;
	int rc = SP_E_NOMEM;

	for (n = 1; n < 50 && rc != SP_OK; n++) {
		mem_fail_after(n, 0);
		rc = roster_put(ros, &m);
		mem_fail_after(0, 0);
		if (rc != SP_OK && rc != SP_E_NOMEM)
			break;
		if (rc != SP_OK &&
		    (roster_find(ros, m.id) != NULL ||
			roster_by_key(ros, VIEW("key-nine"), NULL) != NULL))
			rc = SP_E_STATE;
	}
	tap_is_int(rc, SP_OK, "a session is there whole, or not at all");
	for (n = 1; n < 50; n++) {
		struct roster *other;

		mem_fail_after(n, 0);
		other = roster_new(loop, rec);
		mem_fail_after(0, 0);
		if (other == NULL)
			continue;
		roster_free(other);
		break;
	}
	tap_ok(n > 1 && n < 50, "so is the roster");
}

int
main(void)
{
	loop = loop_new();
	stopper = loop_timer_new(loop, on_stop, NULL);
	rec = turn_recorder_new(loop, 1 << 20);
	ros = roster_new(loop, rec);
	replayed();
	budgets();
	over();
	another_recorder();
	ended_keys();
	past_keys();
	questions();
	hostile();
	starving();
	roster_free(ros);
	turn_recorder_free(rec);
	loop_timer_free(stopper);
	loop_free(loop);
	return tap_done();
}

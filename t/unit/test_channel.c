#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "ipc/channel.h"
#include "ipc/wire.h"
#include "os/fd.h"
#include "tap.h"

enum { QUEUE = 64 * 1024 };

static struct channel *a; /* the end under test */
static int peer = -1; /* raw, so that it can lie */

static void
start(unsigned me, unsigned from, enum message_state state)
{
	int pair[2] = { -1, -1 };

	channel_free(a);
	fd_close(&peer);
	if (fd_seqpacket_pair(pair) != SP_OK)
		_exit(1);
	a = channel_new(pair[0], me, from, QUEUE);
	peer = pair[1];
	if (a == NULL)
		_exit(1);
	channel_set_state(a, state);
}

/* A message with whatever header, body and descriptors. */
static void
lie(unsigned type, unsigned version, uint32_t seq, size_t body, int fds)
{
	static uint8_t bytes[MESSAGE_BULK_MAX + 64];
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control;
	struct iovec iov = { bytes, 8 + body };
	struct msghdr m;
	struct cmsghdr *cm;
	int list[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };

	bytes[0] = (uint8_t)type;
	bytes[1] = (uint8_t)(type >> 8);
	bytes[2] = (uint8_t)version;
	bytes[3] = (uint8_t)(version >> 8);
	bytes[4] = (uint8_t)seq;
	bytes[5] = (uint8_t)(seq >> 8);
	bytes[6] = bytes[7] = 0;
	memset(&m, 0, sizeof(m));
	m.msg_iov = &iov;
	m.msg_iovlen = 1;
	if (fds > 0) {
		memset(&control, 0, sizeof(control));
		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE((size_t)fds * sizeof(int));
		cm = CMSG_FIRSTHDR(&m);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN((size_t)fds * sizeof(int));
		memcpy(CMSG_DATA(cm), list, (size_t)fds * sizeof(int));
	}
	if (sendmsg(peer, &m, 0) < 0)
		tap_diag("sendmsg failed");
}

/* How many descriptors this process has. */
static int
open_fds(void)
{
	int i, n = 0;

	for (i = 0; i < 256; i++)
		n += fcntl(i, F_GETFD) >= 0;
	return n;
}

static void
refused(const char *what)
{
	struct channel_msg m;
	int before = open_fds();

	tap_is_int(channel_recv(a, &m), SP_E_PROTO, what);
	if (m.fd != -1 || open_fds() != before)
		tap_ok(false, "%s: a descriptor stayed open", what);
	tap_is_int(channel_recv(a, &m), SP_E_PROTO, "and stays broken");
}

static void
test_rules(void)
{
	static const struct {
		const char *what;
		unsigned me, from;
		enum message_state state;
		unsigned type, version;
		uint32_t seq;
		size_t body;
		int fds;
	} t[] = {
		{ "an unknown type", MESSAGE_HELPER, MESSAGE_REACTOR,
		    MESSAGE_BOOT, 999, 1, 0, 0, 0 },
		{ "another version", MESSAGE_HELPER, MESSAGE_REACTOR,
		    MESSAGE_BOOT, MESSAGE_READY, 2, 0, 0, 0 },
		{ "a wrong sequence", MESSAGE_HELPER, MESSAGE_REACTOR,
		    MESSAGE_BOOT, MESSAGE_READY, 1, 7, 0, 0 },
		{ "the wrong direction", MESSAGE_HELPER, MESSAGE_REACTOR,
		    MESSAGE_BOOT, MESSAGE_STOP, 1, 0, 0, 0 },
		{ "the wrong party", MESSAGE_HELPER, MESSAGE_RECORDER,
		    MESSAGE_DRAIN, MESSAGE_DRAINED, 1, 0, 0, 0 },
		{ "the wrong state", MESSAGE_HELPER, MESSAGE_REACTOR,
		    MESSAGE_RUN, MESSAGE_READY, 1, 0, 0, 0 },
		{ "too long a body", MESSAGE_HELPER, MESSAGE_REACTOR,
		    MESSAGE_BOOT, MESSAGE_READY, 1, 0, 1, 0 },
		{ "too short a body", MESSAGE_HELPER, MESSAGE_REACTOR,
		    MESSAGE_BOOT, MESSAGE_FAILED, 1, 0, 3, 0 },
		{ "a body over every maximum", MESSAGE_HELPER, MESSAGE_REACTOR,
		    MESSAGE_BOOT, MESSAGE_FAILED, 1, 0,
		    MESSAGE_CONTROL_MAX + 40, 0 },
		{ "a descriptor where none belongs", MESSAGE_HELPER,
		    MESSAGE_REACTOR, MESSAGE_BOOT, MESSAGE_READY, 1, 0, 0, 1 },
		{ "no descriptor where one belongs", MESSAGE_REACTOR,
		    MESSAGE_HELPER, MESSAGE_BOOT, MESSAGE_PEER, 1, 0, 0, 0 },
		{ "two descriptors", MESSAGE_REACTOR, MESSAGE_HELPER,
		    MESSAGE_BOOT, MESSAGE_PEER, 1, 0, 0, 2 },
		{ "more descriptors than are looked for", MESSAGE_REACTOR,
		    MESSAGE_HELPER, MESSAGE_BOOT, MESSAGE_PEER, 1, 0, 0, 8 },
	};
	size_t i;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		start(t[i].me, t[i].from, t[i].state);
		lie(t[i].type, t[i].version, t[i].seq, t[i].body, t[i].fds);
		refused(t[i].what);
	}
	start(MESSAGE_HELPER, MESSAGE_REACTOR, MESSAGE_BOOT);
	(void)!send(peer, "abc", 3, 0);
	refused("less than a header");
}

static void
test_good(void)
{
	struct buf b = BUF_INIT(64);
	struct channel_msg m;
	struct channel *c;
	int pair[2] = { -1, -1 };

	if (fd_seqpacket_pair(pair) != SP_OK)
		return;
	channel_free(a);
	a = channel_new(pair[0], MESSAGE_HELPER, MESSAGE_REACTOR, QUEUE);
	c = channel_new(pair[1], MESSAGE_REACTOR, MESSAGE_HELPER, QUEUE);
	tap_is_int(channel_recv(c, &m), SP_E_AGAIN, "nothing there");
	if (wire_put_u32(&b, 5) != SP_OK)
		return;
	tap_is_int(channel_send(a, MESSAGE_LISTENER, buf_view(&b), dup(1)),
	    SP_OK, "a descriptor is sent");
	tap_is_int(channel_send(a, MESSAGE_STOP, VIEW_NONE, -1), SP_OK,
	    "empty");
	tap_is_int(channel_recv(c, &m), SP_OK, "and received");
	tap_ok(m.type == MESSAGE_LISTENER && m.seq == 0 && m.body.n == 4 &&
		m.fd >= 0 && (fcntl(m.fd, F_GETFD) & FD_CLOEXEC),
	    "with type, body and a close-on-exec descriptor");
	fd_close(&m.fd);
	tap_is_int(channel_recv(c, &m), SP_OK, "the next");
	tap_ok(m.type == MESSAGE_STOP && m.seq == 1 && m.fd == -1, "in order");
	channel_free(a);
	a = NULL;
	tap_is_int(channel_recv(c, &m), SP_E_GONE, "the other end closed");
	tap_is_int(channel_send(c, MESSAGE_READY, VIEW_NONE, -1), SP_E_GONE,
	    "nor can one send");
	channel_free(c);
	channel_free(NULL);
	buf_clear(&b);
}

/* Fills the socket, then the queue; all of it arrives, in order, once. */
static void
test_queue(void)
{
	static char body[8192];
	struct channel_msg m;
	struct channel *c;
	int pair[2] = { -1, -1 }, rc = SP_OK;
	int small = 32 * 1024;
	long sent = 0, got = 0;

	if (fd_seqpacket_pair(pair) != SP_OK)
		return;
	(void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	c = channel_new(pair[0], MESSAGE_REACTOR, MESSAGE_RECORDER, QUEUE);
	channel_free(a);
	a = channel_new(pair[1], MESSAGE_RECORDER, MESSAGE_REACTOR, QUEUE);
	channel_set_state(a, MESSAGE_RUN);
	while (sent < 100000) {
		rc = channel_send(c, MESSAGE_TURN_DATA,
		    view_of(body, sizeof(body)), -1);
		if (rc != SP_OK)
			break;
		sent++;
	}
	tap_is_int(rc, SP_E_LIMIT, "a full queue says so");
	tap_ok(channel_queued(c) > 0 && channel_queued(c) <= QUEUE + 8,
	    "within its bound");
	tap_is_int(channel_flush(c), SP_E_AGAIN, "and waits");
	while (got < sent && rc != SP_E_PROTO) {
		rc = channel_recv(a, &m);
		if (rc == SP_OK)
			got++;
		else if (rc == SP_E_AGAIN && channel_queued(c) == 0)
			break;
		if (channel_flush(c) == SP_E_GONE)
			break;
	}
	tap_is_int(got, sent, "what was taken arrives, what was refused not");
	tap_is_int((long long)channel_queued(c), 0, "nothing is left");
	tap_is_int(channel_send(c, MESSAGE_TURN_DATA, view_of(body, 10), -1),
	    SP_OK, "and it goes on");
	tap_is_int(channel_recv(a, &m), SP_OK, "with the right sequence");
	channel_free(a);
	a = NULL;
	tap_is_int(channel_send(c, MESSAGE_TURN_DATA, view_of(body, 10), -1),
	    SP_E_GONE, "the peer went");
	channel_free(c);
}

/* Descriptors in the queue are kept, and closed with it. */
static void
test_queue_fds(void)
{
	struct channel *c;
	int pair[2] = { -1, -1 }, i, rc = SP_OK, before, small = 1;

	if (fd_seqpacket_pair(pair) != SP_OK)
		return;
	before = open_fds();
	(void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	c = channel_new(pair[0], MESSAGE_HELPER, MESSAGE_REACTOR, QUEUE);
	for (i = 0; i < 100 && channel_queued(c) == 0 && rc == SP_OK; i++)
		rc = channel_send(c, MESSAGE_PEER, VIEW_NONE, dup(1));
	tap_ok(channel_queued(c) > 0, "one waits with its descriptor");
	channel_free(c);
	tap_is_int(open_fds(), before - 1, "closed with the channel");
	fd_close(&pair[1]);
}

/* A message of a pack as it stands there. */
struct packed {
	unsigned type, version;
	uint32_t seq, length;
	size_t body;
};

static size_t
put_packed(uint8_t *to, const struct packed *m)
{
	memset(to, 0, 12 + m->body);
	to[0] = (uint8_t)m->type;
	to[1] = (uint8_t)(m->type >> 8);
	to[2] = (uint8_t)m->version;
	to[4] = (uint8_t)m->seq;
	to[8] = (uint8_t)m->length;
	to[9] = (uint8_t)(m->length >> 8);
	to[10] = (uint8_t)(m->length >> 16);
	to[11] = (uint8_t)(m->length >> 24);
	return 12 + m->body;
}

/* A good message, then the bad one: the first is taken, the second is not. */
static void
test_bad_packs(void)
{
	static const struct {
		const char *what;
		struct packed m;
		size_t cut; /* bytes that are missing in the end */
	} t[] = {
		{ "less than a header", { MESSAGE_TURN_DELIVERED, 1, 0, 5, 5 },
		    6 },
		{ "a body that is cut", { MESSAGE_TURN_DELIVERED, 1, 0, 5, 5 },
		    1 },
		{ "a length beyond the end",
		    { MESSAGE_TURN_DELIVERED, 1, 0, 6, 5 }, 0 },
		{ "a huge length",
		    { MESSAGE_TURN_DELIVERED, 1, 0, UINT32_MAX, 5 }, 0 },
		{ "bytes behind", { MESSAGE_TURN_DELIVERED, 1, 0, 5, 6 }, 0 },
		{ "an unknown type", { 999, 1, 0, 5, 5 }, 0 },
		{ "another version", { MESSAGE_TURN_DELIVERED, 2, 0, 5, 5 },
		    0 },
		{ "a sequence", { MESSAGE_TURN_DELIVERED, 1, 2, 5, 5 }, 0 },
		{ "too short a body", { MESSAGE_TURN_DELIVERED, 1, 0, 4, 4 },
		    0 },
		{ "too long a body", { MESSAGE_TURN_DELIVERED, 1, 0, 6, 6 },
		    0 },
		{ "the wrong direction", { MESSAGE_TURN_DONE, 1, 0, 22, 22 },
		    0 },
		{ "one that has a descriptor",
		    { MESSAGE_TRACE_FILE, 1, 0, 12, 12 }, 0 },
		{ "the helper's", { MESSAGE_PEER, 1, 0, 0, 0 }, 0 },
		{ "a pack in a pack", { MESSAGE_PACK, 1, 0, 17, 17 }, 0 },
	};
	static const struct packed good = { MESSAGE_TURN_DELIVERED, 1, 0, 5,
		5 };
	uint8_t bytes[256];
	struct channel_msg m;
	size_t i, n;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		bool ends = strcmp(t[i].what, "bytes behind") == 0;

		start(MESSAGE_RECORDER, MESSAGE_REACTOR, MESSAGE_RUN);
		memset(bytes, 0, sizeof(bytes));
		bytes[0] = MESSAGE_PACK;
		bytes[2] = 1;
		n = 8 + put_packed(bytes + 8, &good);
		n += put_packed(bytes + n, &t[i].m) - t[i].cut;
		(void)!send(peer, bytes, n, 0);
		tap_is_int(channel_recv(a, &m), SP_OK, "the one before");
		tap_ok(m.type == MESSAGE_TURN_DELIVERED && m.body.n == 5 &&
			channel_pending(a),
		    "as it was sent");
		if (ends)
			tap_is_int(channel_recv(a, &m), SP_OK, "the next");
		refused(t[i].what);
		tap_ok(!channel_pending(a), "nothing more is taken");
	}
	start(MESSAGE_RECORDER, MESSAGE_REACTOR, MESSAGE_RUN);
	lie(MESSAGE_PACK, 1, 0, 0, 0);
	refused("an empty pack");
	start(MESSAGE_RECORDER, MESSAGE_REACTOR, MESSAGE_RUN);
	lie(MESSAGE_PACK, 1, 0, 17, 1);
	refused("a pack with a descriptor");
	start(MESSAGE_REACTOR, MESSAGE_RECORDER, MESSAGE_RUN);
	lie(MESSAGE_PACK, 1, 0, 17, 0);
	refused("the recorder packs nothing");
}

static struct channel *
packing(void)
{
	int pair[2] = { -1, -1 };
	struct channel *c;

	if (fd_seqpacket_pair(pair) != SP_OK)
		_exit(1);
	c = channel_new(pair[0], MESSAGE_REACTOR, MESSAGE_RECORDER,
	    (size_t)2 * MESSAGE_BULK_MAX);
	channel_free(a);
	a = channel_new(pair[1], MESSAGE_RECORDER, MESSAGE_REACTOR, QUEUE);
	if (a == NULL || c == NULL)
		_exit(1);
	channel_set_state(a, MESSAGE_RUN);
	channel_pack(c);
	return c;
}

static bool
takes(enum message_type type, size_t n, uint8_t first)
{
	struct channel_msg m;

	return channel_recv(a, &m) == SP_OK && m.type == type &&
	    m.body.n == n && (uint8_t)m.body.p[0] == first;
}

/* The last byte that fits, and the first that does not. */
static void
test_full_pack(void)
{
	static char body[MESSAGE_BULK_MAX];
	const size_t room = MESSAGE_BULK_MAX - 12, part = 30000;
	struct channel_msg m;
	struct channel *c = packing();
	size_t size, small = 5;
	int i, less;

	for (less = -1; less <= 1; less++) {
		size = room - 4 * (12 + part) - (12 + small) + (size_t)less;
		body[0] = 9;
		for (i = 0; i < 4; i++)
			tap_is_int(channel_send(c, MESSAGE_TURN_DATA,
				       view_of(body, part), -1),
			    SP_OK, "most of it");
		body[0] = 1;
		tap_is_int(channel_send(c, MESSAGE_TURN_DATA,
			       view_of(body, size), -1),
		    SP_OK, "a large one");
		body[0] = 2;
		tap_is_int(channel_send(c, MESSAGE_TURN_DELIVERED,
			       view_of(body, small), -1),
		    SP_OK, "and a small one");
		tap_is_int(channel_recv(a, &m), less == 1 ? SP_OK : SP_E_AGAIN,
		    "the first goes when the second has no room");
		tap_is_int((long long)channel_queued(c),
		    less == 1 ? 12 + (long long)small
			      : (long long)(4 * (12 + part) + size) + 29,
		    "the rest waits");
		body[0] = 3;
		tap_is_int(channel_send(c, MESSAGE_TURN_DELIVERED,
			       view_of(body, small), -1),
		    SP_OK, "another");
		tap_is_int(channel_flush(c), SP_OK, "all goes");
		tap_is_int((long long)channel_queued(c), 0, "nothing waits");
		for (i = less == 1; i < 4; i++)
			tap_ok(takes(MESSAGE_TURN_DATA, part, 9), "most of it");
		tap_ok(takes(MESSAGE_TURN_DATA, size, 1), "large");
		tap_ok(takes(MESSAGE_TURN_DELIVERED, small, 2), "small");
		tap_ok(takes(MESSAGE_TURN_DELIVERED, small, 3), "last");
		tap_is_int(channel_recv(a, &m), SP_E_AGAIN, "that was all");
	}
	/* alone in a pack, and too large for one: order is kept */
	body[0] = 4;
	tap_is_int(channel_send(c, MESSAGE_TURN_DELIVERED, view_of(body, small),
		       -1),
	    SP_OK, "small");
	body[0] = 5;
	tap_is_int(channel_send(c, MESSAGE_TURN_DATA, view_of(body, room), -1),
	    SP_OK, "as large as a pack");
	body[0] = 6;
	tap_is_int(channel_send(c, MESSAGE_TURN_DATA, view_of(body, room + 1),
		       -1),
	    SP_OK, "larger");
	body[0] = 7;
	tap_is_int(channel_send(c, MESSAGE_TURN_DATA,
		       view_of(body, MESSAGE_BULK_MAX), -1),
	    SP_OK, "as large as may be");
	while (channel_flush(c) == SP_E_AGAIN && channel_pending(a))
		;
	tap_ok(takes(MESSAGE_TURN_DELIVERED, small, 4), "in order");
	tap_ok(takes(MESSAGE_TURN_DATA, room, 5), "in order");
	(void)!channel_flush(c);
	tap_ok(takes(MESSAGE_TURN_DATA, room + 1, 6), "in order");
	(void)!channel_flush(c);
	tap_ok(takes(MESSAGE_TURN_DATA, MESSAGE_BULK_MAX, 7), "in order");
	channel_free(a);
	a = NULL;
	tap_is_int(channel_send(c, MESSAGE_TURN_DELIVERED, view_of(body, 5),
		       -1),
	    SP_OK, "into the pack");
	tap_is_int(channel_flush(c), SP_E_GONE, "of which nobody reads");
	channel_free(c);
}

/* Refused is only what did not go into the pack. */
static void
test_pack_queue(void)
{
	static char body[40000];
	struct channel *c = packing();
	long sent = 0, got = 0, refused_n = 0;
	int i, rc = SP_OK;

	for (i = 0; i < 1000; i++) {
		memcpy(body, &sent, sizeof(sent));
		rc = channel_send(c, MESSAGE_TURN_DATA,
		    view_of(body, 10 + (size_t)i * 37 % (sizeof(body) - 10)),
		    -1);
		sent += rc == SP_OK;
		refused_n += rc == SP_E_LIMIT;
	}
	tap_ok(refused_n > 0 && sent + refused_n == 1000, "a full queue");
	tap_is_int(channel_flush(c), SP_E_AGAIN, "waits");
	for (i = 0; i < 10000; i++) {
		struct channel_msg m;
		long number;

		rc = channel_recv(a, &m);
		if (rc == SP_OK) {
			memcpy(&number, m.body.p, sizeof(number));
			got += number == got;
		} else if (rc != SP_E_AGAIN || channel_queued(c) == 0) {
			break;
		}
		if (!channel_pending(a) && channel_flush(c) == SP_E_GONE)
			break;
	}
	tap_is_int(got, sent, "each that was taken arrives, in order");
	channel_free(c);
}

static void
test_pack_memory(void)
{
	struct channel *c = packing();
	char body[5] = { 1 };
	unsigned long n;
	int rc = SP_E_NOMEM;

	for (n = 1; rc == SP_E_NOMEM && n < 10; n++) {
		mem_fail_after(n, 0);
		rc = channel_send(c, MESSAGE_TURN_DELIVERED, view_of(body, 5),
		    -1);
		mem_fail_after(0, 0);
	}
	tap_ok(rc == SP_OK && n > 2, "without memory it is refused");
	tap_is_int(channel_flush(c), SP_OK, "then it goes");
	tap_ok(takes(MESSAGE_TURN_DELIVERED, 5, 1), "once");
	tap_ok(!channel_pending(a), "alone");
	channel_free(c);
}

static void
test_memory(void)
{
	unsigned long n;
	int pair[2] = { -1, -1 }, before = open_fds();
	struct channel *c = NULL;

	for (n = 1; n < 10 && c == NULL; n++) {
		if (fd_seqpacket_pair(pair) != SP_OK)
			return;
		fd_close(&pair[1]);
		mem_fail_after(n, 0);
		c = channel_new(pair[0], MESSAGE_HELPER, MESSAGE_REACTOR, 1);
		mem_fail_after(0, 0);
	}
	tap_ok(c != NULL && n == 4, "without memory no channel");
	channel_free(c);
	tap_is_int(open_fds(), before, "and no descriptor left");
}

/* What the table forbids to send is our own bug. */
static void
test_bug(void)
{
	int status = 0;
	pid_t pid;

	start(MESSAGE_HELPER, MESSAGE_REACTOR, MESSAGE_BOOT);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		dup2(null, 2);
		(void)!channel_send(a, MESSAGE_READY, VIEW_NONE, -1);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	tap_ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT,
	    "sending what the table forbids aborts");
}

int
main(void)
{
	test_rules();
	test_good();
	test_queue();
	test_queue_fds();
	test_bad_packs();
	test_full_pack();
	test_pack_queue();
	test_pack_memory();
	test_memory();
	test_bug();
	channel_free(a);
	fd_close(&peer);
	return tap_done();
}

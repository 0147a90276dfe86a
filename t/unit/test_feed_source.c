/* core/gate/feed_source.c, feed_nflog.c, feed_files.c: what becomes events. */
#include "config.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>

#include "base/mem.h"
#include "event/loop.h"
#include "gate/feed_files.h"
#include "gate/feed_nflog.h"
#include "gate/feed_source.h"
#include "gate/process.h"
#include "ipc/wire.h"
#include "tap.h"

static struct loop *loop;
static struct feed_set *set;
static struct episode_set *episodes;
static struct episode *ep;
static uint32_t ends;

/* ---- an episode, with a helper that is played here -------------------------- */

static uint32_t request;

static int
send_helper(void *arg, enum message_type type, struct view body, int fd)
{
	struct wire w;

	(void)arg;
	(void)fd;
	wire_init(&w, body);
	request = wire_u32(&w);
	ends += type == MESSAGE_EPISODE_END;
	return SP_OK;
}

static void
on_news(void *arg, struct episode *e, const struct episode_news *n)
{
	(void)arg;
	feed_set_news(set, e, n);
	feed_source_news(e, n);
}

static void
hear(enum message_type type, struct buf *b)
{
	struct channel_msg m = { .type = (uint16_t)type,
		.body = buf_view(b),
		.fd = -1 };

	if (episode_set_heard(episodes, &m) != SP_OK)
		abort();
	buf_clear(b);
}

static void
put_u32s(struct buf *b, uint32_t x, uint32_t y, uint32_t z)
{
	if (wire_put_u32(b, x) != SP_OK || wire_put_u32(b, y) != SP_OK ||
	    wire_put_u32(b, z) != SP_OK)
		abort();
}

static void
begin(void)
{
	const struct episode_world w = { .loop = loop,
		.send = send_helper,
		.news = on_news };
	struct buf b = BUF_INIT(1024);

	episodes = episode_set_new(&w);
	if (episodes == NULL ||
	    episode_create(episodes, VIEW("box"), VIEW("e1"), NULL, NULL,
		&ep) != SP_OK)
		abort();
	put_u32s(&b, 1, 1, request);
	if (wire_put_bytes(&b, VIEW("box")) != SP_OK)
		abort();
	hear(MESSAGE_EPISODE_MADE, &b);
}

/* ---- reading ---------------------------------------------------------------- */

static struct feed_reader reader = { .types = ~0U };

static void
on_ready(void *arg)
{
	(void)arg;
}

static void
on_reset(void *arg, bool over)
{
	(void)arg;
	(void)over;
}

/* "type data" of the next event. */
static const char *
next(void)
{
	static char text[2048];
	struct buf b = BUF_INIT(sizeof(text));
	struct view v, data;
	int rc = feed_read(NULL, &reader, &b);

	v = buf_view(&b);
	v = view_from(v, view_search(v, VIEW("\"type\":\"")) + 8);
	data = view_from(v, view_search(v, VIEW("\"data\":")) + 7);
	if (rc == SP_OK && data.n > 0)
		(void)snprintf(text, sizeof(text), "%.*s %.*s",
		    (int)view_find(v, '"'), v.p, (int)data.n - 1, data.p);
	else
		(void)snprintf(text, sizeof(text), "none: %s", err_str(rc));
	buf_clear(&b);
	return text;
}

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
turn(void)
{
	struct loop_timer *t = loop_timer_new(loop, on_stop, NULL);

	if (t == NULL)
		abort();
	loop_timer_set(t, 1);
	if (loop_run(loop) != SP_OK)
		abort();
	loop_timer_free(t);
}

/* ---- processes, samples ----------------------------------------------------- */

static void
test_process(void)
{
	struct process p = { .pid = 12,
		.name = (char[]){ "/bin/a" },
		.side = SANDBOX_WORKER,
		.exit = { .end = SANDBOX_END_SIGNAL, .status = 15 } };
	struct episode_news n = { .what = EPISODE_PROCESS_STARTED,
		.process = &p };

	feed_source_news(ep, &n);
	tap_is_str(next(),
	    "process {\"kind\":\"spawn\",\"pid\":12,\"process\":\"/bin/a\","
	    "\"side\":\"worker\"}",
	    "process: its start");
	n.what = EPISODE_PROCESS_EXITED;
	feed_source_news(ep, &n);
	tap_is_str(next(),
	    "process {\"kind\":\"exit\",\"pid\":12,\"process\":\"/bin/a\","
	    "\"side\":\"worker\",\"returncode\":-15,\"end\":\"signal\","
	    "\"user_us\":0,\"system_us\":0,\"peak_bytes\":0}",
	    "process: its end by a signal");
	p.exit.end = SANDBOX_END_LOST;
	feed_source_news(ep, &n);
	tap_ok(strstr(next(), "\"returncode\":null,\"end\":\"lost\"") != NULL,
	    "process: one that was lost");
}

static void
sample_of(uint8_t side, const char *text)
{
	const struct episode_news n = { .what = EPISODE_SAMPLE,
		.event = SANDBOX_EVENT_PROCESS,
		.side = side,
		.text = view_str(text) };

	feed_source_news(ep, &n);
}

static void
sample(const char *text)
{
	sample_of(SANDBOX_AGENT, text);
}

static void
test_sampled(void)
{
	sample("{\"processes\":[{\"pid\":5,\"name\":\"a\\u0062\"},"
	       "{\"pid\":6,\"name\":\"c\"}],\"more\":0}");
	tap_is_str(next(),
	    "process {\"pid\":5,\"kind\":\"spawn\",\"name\":\"ab\","
	    "\"side\":\"agent\",\"sampled\":true}",
	    "sampled: one that is new");
	(void)next();
	sample("{\"processes\":[{\"pid\":6,\"name\":\"c\"}],\"more\":3}");
	tap_is_str(next(),
	    "process {\"pid\":5,\"kind\":\"exit\",\"side\":\"agent\","
	    "\"sampled\":true}",
	    "sampled: one that has gone");
	tap_is_str(next(),
	    "gap {\"lost\":3,\"type\":\"process\",\"reason\":\"not sampled\"}",
	    "sampled: more than are looked at");
	sample("{\"processes\":[{\"pid\":6,\"name\":\"c\"}],\"more\":4}");
	tap_is_str(next(), "none: not ready, try again",
	    "sampled: which is told once");
	sample_of(SANDBOX_WORKER,
	    "{\"processes\":[{\"pid\":9,\"name\":\"w\"}],\"more\":0}");
	tap_is_str(next(),
	    "process {\"pid\":9,\"kind\":\"spawn\",\"name\":\"w\","
	    "\"side\":\"worker\",\"sampled\":true}",
	    "sampled: one of the other side");
	sample("{\"processes\":[{\"pid\":6,\"name\":\"c\"}],\"more\":4}");
	tap_is_str(next(), "none: not ready, try again",
	    "sampled: which has not gone when this side is looked at");
	sample("{\"processes\":[{\"pid\":-1}]}");
	tap_is_str(next(),
	    "gap {\"lost\":null,\"type\":\"process\","
	    "\"reason\":\"malformed\"}",
	    "sampled: what is no sample");
}

static void
test_resources(void)
{
	struct buf b = BUF_INIT(256);
	struct episode_news n = { .what = EPISODE_SAMPLE,
		.event = SANDBOX_EVENT_SAMPLE,
		.side = SANDBOX_WORKER };
	int rc = wire_put_u64(&b, 1);

	if (rc == SP_OK)
		rc = wire_put_u64(&b, 20);
	if (rc == SP_OK)
		rc = wire_put_u64(&b, 4096);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, 2);
	if (rc == SP_OK)
		rc = wire_put_u64(&b, 7);
	if (rc == SP_OK)
		rc = wire_put_u64(&b, 15);
	if (rc == SP_OK)
		rc = wire_put_u64(&b, 5);
	n.text = buf_view(&b);
	feed_source_news(ep, &n);
	tap_is_str(next(),
	    "resource {\"memory_bytes\":4096,\"cpu\":{\"usage_usec\":20,"
	    "\"user_usec\":15,\"system_usec\":5},\"disk_bytes\":7,"
	    "\"processes\":2,\"side\":\"worker\"}",
	    "resources");
	n.text.n--;
	feed_source_news(ep, &n);
	tap_is_str(next(), "none: not ready, try again",
	    "resources: one byte too few");
	buf_clear(&b);
}

/* ---- turns, the relay ------------------------------------------------------- */

static void
test_turn(void)
{
	struct turn_facts f = { .ok = true,
		.number = 3,
		.tokens = 42,
		.finish_reason = VIEW_INIT("stop"),
		.session = VIEW_INIT("s"),
		.episode = VIEW_INIT("e1") };

	feed_source_turn(episodes, &f);
	tap_is_str(next(),
	    "model {\"turn\":3,\"session\":\"s\",\"completion_tokens\":42,"
	    "\"finish_reason\":\"stop\",\"recorded\":true}",
	    "model: a turn");
	f.episode = VIEW("e2");
	feed_source_turn(episodes, &f);
	feed_source_turn(NULL, &f);
	tap_is_str(next(), "none: not ready, try again", "model: of nobody");
}

static void
test_relay(void)
{
	struct relay_decision d = { .verdict = RELAY_DENIED,
		.way = RELAY_CONNECT,
		.name = VIEW_INIT("a.example"),
		.port = 443,
		.why = "rule" };
	unsigned i;

	feed_source_relay(ep, &d);
	tap_is_str(next(),
	    "network {\"kind\":\"connection\",\"protocol\":\"tcp\","
	    "\"dest\":null,\"host\":\"a.example\",\"denied\":true,"
	    "\"outcome\":\"deny\",\"reason\":\"rule\",\"source\":\"connect\"}",
	    "relay: a name that no rule has");
	d = (struct relay_decision){ .verdict = RELAY_ALLOWED,
		.way = RELAY_TURNED,
		.ended = true,
		.addr = 0xcb00710a,
		.port = 80,
		.why = "",
		.sent = 1,
		.received = 2 };
	feed_source_relay(ep, &d);
	tap_is_str(next(),
	    "network {\"kind\":\"closed\",\"protocol\":\"tcp\","
	    "\"dest\":\"203.0.113.10:80\",\"denied\":false,"
	    "\"outcome\":\"allow\",\"sent_bytes\":1,\"received_bytes\":2,"
	    "\"source\":\"relay\"}",
	    "relay: one that is over");
	d.verdict = RELAY_DENIED;
	for (i = 0; i < 5 * FEED_DENIES; i++)
		feed_source_relay(ep, &d);
	for (i = 0; strncmp(next(), "none", 4) != 0; i++)
		continue;
	tap_ok(i < 4 * FEED_DENIES, "relay: a flood is not told one by one: %u",
	    i);
}

/* ---- packets ---------------------------------------------------------------- */

static bool
allows(void *arg, const struct episode *e)
{
	(void)e;
	return *(bool *)arg;
}

static size_t
attribute(unsigned char *p, unsigned type, const void *v, size_t n)
{
	struct nlattr a = { (uint16_t)(sizeof(a) + n), (uint16_t)type };

	memset(p, 0, NLA_ALIGN(sizeof(a) + n));
	memcpy(p, &a, sizeof(a));
	memcpy(p + sizeof(a), v, n);
	return NLA_ALIGN(sizeof(a) + n);
}

static void
send_packet(int fd, unsigned char seq)
{
	static const unsigned char ip[20] = { 0x45, 0, 0, 28, 0, 0, 0, 0, 1, 1,
		0, 0, 198, 18, 0, 2, 203, 0, 113, 9 };
	const unsigned char be[4] = { 0, 0, 0, seq };
	unsigned char mem[256];
	struct nlmsghdr h = { .nlmsg_type =
				  (NFNL_SUBSYS_ULOG << 8) | NFULNL_MSG_PACKET };
	size_t n = sizeof(h);

	memset(mem + n, 0, sizeof(struct nfgenmsg));
	n += sizeof(struct nfgenmsg);
	n += attribute(mem + n, NFULA_PREFIX, "deny", 5);
	n += attribute(mem + n, NFULA_SEQ, be, 4);
	n += attribute(mem + n, NFULA_PAYLOAD, ip, sizeof(ip));
	h.nlmsg_len = (uint32_t)n;
	memcpy(mem, &h, sizeof(h));
	if (send(fd, mem, n, 0) != (ssize_t)n)
		abort();
}

static void
test_packets(void)
{
	bool may = false;
	const struct feed_nflog_world w = { .loop = loop,
		.allows = allows,
		.arg = &may };
	const struct episode_news over = { .what = EPISODE_ENDED };
	struct feed_nflogs *s = feed_nflog_new(&w);
	int pair[2];

	if (s == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0)
		abort();
	feed_nflog_open(s, ep, pair[0]);
	send_packet(pair[1], 0);
	turn();
	tap_is_str(next(),
	    "network {\"kind\":\"packet\",\"protocol\":\"icmp\","
	    "\"dest\":\"203.0.113.9\",\"denied\":true,\"outcome\":\"deny\","
	    "\"source\":\"nftables\"}",
	    "packets: one");
	send_packet(pair[1], 4);
	turn();
	tap_is_str(next(),
	    "gap {\"lost\":3,\"type\":\"network\",\"reason\":\"overrun\"}",
	    "packets: numbers that are missing");
	(void)next();
	tap_is_int(ends, 0, "packets: nothing can have been allowed");
	feed_nflog_news(s, ep, &over);
	close(pair[1]);

	may = true;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0)
		abort();
	feed_nflog_open(s, ep, pair[0]);
	send_packet(pair[1], 2);
	turn();
	(void)next();
	tap_is_str(next(),
	    "network {\"kind\":\"failure\",\"reason\":\"network mediation or "
	    "observation failed\"}",
	    "packets: an accept may be lost");
	tap_is_int(ends, 1, "packets: the episode ends");
	(void)next();
	send_packet(pair[1], 3);
	feed_nflog_news(s, ep, &over);
	tap_ok(strncmp(next(), "network ", 8) == 0,
	    "packets: what is left at the end is read");
	close(pair[1]);
	feed_nflog_free(s);
	feed_nflog_free(NULL);
}

/* ---- files ------------------------------------------------------------------ */

static void
send_note(int fd, uint8_t kind, const char *path)
{
	struct buf b = BUF_INIT(1024);
	const struct sandbox_file_note n = { .kind = kind,
		.path = view_str(path) };

	if (sandbox_msg_file_note_put(&b, &n) != SP_OK ||
	    send(fd, buf_view(&b).p, buf_len(&b), 0) < 0)
		abort();
	buf_clear(&b);
}

static void
test_files(void)
{
	const struct episode_news over = { .what = EPISODE_ENDED };
	struct feed_files *s = feed_files_new(loop);
	int pair[2];

	if (s == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0)
		abort();
	feed_files_open(s, ep, pair[0]);
	send_note(pair[1], SANDBOX_CREATED, "a/\xff");
	send_note(pair[1], SANDBOX_NOTE_OVERFLOW, "");
	turn();
	tap_is_str(next(),
	    "fs_change {\"path\":\"a/\xef\xbf\xbd\",\"kind\":\"create\"}",
	    "files: a change");
	tap_is_str(next(),
	    "gap {\"lost\":null,\"type\":\"fs_change\","
	    "\"reason\":\"overflow\"}",
	    "files: an overflow");
	send_note(pair[1], SANDBOX_DELETED, "b");
	feed_files_news(s, ep, &over);
	tap_is_str(next(), "fs_change {\"path\":\"b\",\"kind\":\"delete\"}",
	    "files: what is left at the end is read");
	close(pair[1]);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0)
		abort();
	feed_files_open(s, ep, pair[0]);
	if (send(pair[1], "junk", 4, 0) != 4)
		abort();
	turn();
	tap_is_str(next(), "none: not ready, try again", "files: junk is none");
	close(pair[1]);
	feed_files_free(s);
	feed_files_free(NULL);
}

int
main(void)
{
	loop = loop_new();
	set = loop != NULL ? feed_set_new(loop, NULL) : NULL;
	if (set == NULL)
		abort();
	begin();
	reader.ready = on_ready;
	reader.reset = on_reset;
	feed_read_start(feed_of(ep), &reader);
	test_process();
	test_sampled();
	test_resources();
	test_turn();
	test_relay();
	test_packets();
	test_files();
	feed_read_stop(&reader);
	feed_set_free(set);
	episode_set_free(episodes);
	loop_free(loop);
	return tap_done();
}

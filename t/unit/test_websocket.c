/* RFC 6455, rule by rule, each case cut at every byte as well. */
#include "config.h"

#include <stdlib.h>

#include "base/mem.h"
#include "http/websocket.h"
#include "tap.h"

enum { MAX = 300 }; /* bytes of a message */

/* One end and what came of it, as text. */
struct end {
	struct websocket *w;
	struct buf log; /* "T:hello|B:..|P|C1000:why|" */
	struct buf out; /* written */
	int write_rc;
	bool free_in_message, free_in_closed, pause_in_message;
	unsigned closed_n;
};

static void
must(int rc)
{
	if (rc != 0)
		abort();
}

static void
on_message(void *arg, bool text, struct view data)
{
	struct end *e = arg;

	/* whole ones are compared by a few bytes of each */
	must(buf_printf(&e->log, "%c%zu:%.*s|", text ? 'T' : 'B', data.n,
	    (int)(data.n > 40 ? 40 : data.n), data.n != 0 ? data.p : ""));
	if (e->pause_in_message)
		websocket_pause(e->w, true);
	if (e->free_in_message) {
		websocket_free(e->w);
		e->w = NULL;
	}
}

static int
on_write(void *arg, struct view data)
{
	struct end *e = arg;

	if (e->write_rc != 0)
		return e->write_rc;
	must(buf_add_view(&e->out, data));
	return 0;
}

static void
on_pong(void *arg)
{
	struct end *e = arg;

	must(buf_add_str(&e->log, "P|"));
}

static void
on_closed(void *arg, unsigned code, struct view reason)
{
	struct end *e = arg;

	e->closed_n++;
	must(buf_printf(&e->log, "C%u:%.*s|", code, VIEW_ARG(reason)));
	if (e->free_in_closed) {
		websocket_free(e->w);
		e->w = NULL;
	}
}

static const struct websocket_owner owner = { on_message, on_write, on_pong,
	on_closed };

static int
end_init(struct end *e, enum websocket_role role)
{
	*e = (struct end){ .log = BUF_INIT(1 << 20), .out = BUF_INIT(1 << 20) };
	return websocket_new(role, MAX, &owner, e, &e->w);
}

static void
end_clear(struct end *e)
{
	websocket_free(e->w);
	buf_clear(&e->log);
	buf_clear(&e->out);
}

static void
end_log(struct end *e, const char *want, const char *what)
{
	struct view v = buf_view(&e->log);

	tap_is_mem(v.p, v.n, want, strlen(want), what);
}

/* ---- frames ---------------------------------------------------------------
 */

enum {
	FIN = 0x80,
	CONT = 0,
	TEXT = 1,
	BIN = 2,
	CLOSE = 8,
	PING = 9,
	PONG = 10,
	RAW = 0x100, /* masked where it should not be, and the reverse */
	LEN16 = 0x200, /* length in 16 bits, whatever it is */
	LEN64 = 0x400,
};

static void
frame(struct buf *b, bool mask, unsigned first, struct view v)
{
	static const unsigned char key[4] = { 0x37, 0xfa, 0x21, 0x3d };
	unsigned bit;
	size_t i;

	if ((first & RAW) != 0)
		mask = !mask;
	bit = mask ? 0x80 : 0;
	must(buf_add_char(b, (char)(first & 0xff)));
	if ((first & LEN64) != 0 || v.n > 65535) {
		must(buf_add_char(b, (char)(bit | 127)));
		for (i = 0; i < 8; i++)
			must(buf_add_char(b,
			    (char)((uint64_t)v.n >> (56 - 8 * i))));
	} else if ((first & LEN16) != 0 || v.n > 125) {
		must(buf_add_char(b, (char)(bit | 126)));
		must(buf_add_char(b, (char)(v.n >> 8)));
		must(buf_add_char(b, (char)(v.n & 0xff)));
	} else {
		must(buf_add_char(b, (char)(bit | v.n)));
	}
	if (mask)
		must(buf_add(b, key, 4));
	for (i = 0; i < v.n; i++)
		must(buf_add_char(b,
		    (char)((unsigned char)v.p[i] ^ (mask ? key[i % 4] : 0))));
}

struct piece {
	unsigned first;
	const char *p;
	size_t n;
};

struct rule {
	const char *what;
	struct piece pieces[6]; /* up to one without p */
	const char *log;
	unsigned close; /* code that is sent; 0 none; 1005 an empty one */
	int rc;
};

#define ONE "\x01"
#define S(first, lit) \
	{ \
		(first), "" lit, sizeof(lit) - 1 \
	}
static const char big[MAX + 1] = { 'x' };

static const struct rule rules[] = {
	{ "a text", { S(FIN | TEXT, "hello") }, "T5:hello|", 0, 0 },
	{ "a binary one", { S(FIN | BIN, "\xff\xfe") }, "B2:\xff\xfe|", 0, 0 },
	{ "an empty one", { S(FIN | TEXT, "") }, "T0:|", 0, 0 },
	{ "in pieces",
	    { S(TEXT, "he"), S(CONT, "l"), S(CONT, ""), S(FIN | CONT, "lo") },
	    "T5:hello|", 0, 0 },
	{ "a ping within",
	    { S(TEXT, "he"), S(FIN | PING, ""), S(FIN | CONT, "y"),
		S(FIN | TEXT, "b") },
	    "T3:hey|T1:b|", 0, 0 },
	{ "a pong that nobody asked for", { S(FIN | PONG, "abc") }, "P|", 0,
	    0 },
	{ "UTF-8 cut between frames",
	    { S(TEXT, "\xc3"), S(FIN | CONT, "\xa9") }, "T2:\xc3\xa9|", 0, 0 },
	{ "UTF-8 cut short", { S(FIN | TEXT, "a\xc3") },
	    "C1007:text that is not UTF-8|", 1007, SP_E_PROTO },
	{ "bad UTF-8 over frames",
	    { S(TEXT, "\xc3"), S(FIN | CONT, "\x28"), S(FIN | TEXT, "b") },
	    "C1007:text that is not UTF-8|", 1007, SP_E_PROTO },
	{ "a surrogate", { S(FIN | TEXT, "\xed\xa0\x80") },
	    "C1007:text that is not UTF-8|", 1007, SP_E_PROTO },
	{ "a mask where none may be, or none where one must",
	    { S(FIN | TEXT | RAW, "a") }, "C1002:*", 1002, SP_E_PROTO },
	{ "the same of a close", { S(FIN | CLOSE | RAW, "\x03\xe8") },
	    "C1002:*", 1002, SP_E_PROTO },
	{ "reserved bit 1", { S(FIN | 0x40 | TEXT, "a") },
	    "C1002:a reserved bit is set|", 1002, SP_E_PROTO },
	{ "reserved bit 2 of a ping", { S(FIN | 0x20 | PING, "") },
	    "C1002:a reserved bit is set|", 1002, SP_E_PROTO },
	{ "reserved bit 3 of a continuation",
	    { S(TEXT, "a"), S(FIN | 0x10 | CONT, "a") },
	    "C1002:a reserved bit is set|", 1002, SP_E_PROTO },
	{ "opcode 3", { S(FIN | 3, "a") }, "C1002:an unknown opcode|", 1002,
	    SP_E_PROTO },
	{ "opcode 7", { S(FIN | 7, "") }, "C1002:an unknown opcode|", 1002,
	    SP_E_PROTO },
	{ "opcode 11", { S(FIN | 11, "") }, "C1002:an unknown opcode|", 1002,
	    SP_E_PROTO },
	{ "opcode 15", { S(FIN | 15, "a") }, "C1002:an unknown opcode|", 1002,
	    SP_E_PROTO },
	{ "a continuation of nothing", { S(FIN | CONT, "a") },
	    "C1002:a continuation of no message|", 1002, SP_E_PROTO },
	{ "a continuation after the last", { S(FIN | TEXT, "a"), S(CONT, "a") },
	    "T1:a|C1002:a continuation of no message|", 1002, SP_E_PROTO },
	{ "a message within another", { S(TEXT, "a"), S(FIN | TEXT, "b") },
	    "C1002:a message within another|", 1002, SP_E_PROTO },
	{ "a ping in pieces", { S(PING, "a") }, "C1002:a malformed*", 1002,
	    SP_E_PROTO },
	{ "a close in pieces", { S(CLOSE, "") }, "C1002:a malformed*", 1002,
	    SP_E_PROTO },
	{ "a ping of 126 bytes", { { FIN | PING, big, 126 } },
	    "C1002:a malformed*", 1002, SP_E_PROTO },
	{ "a short length in 16 bits", { S(FIN | TEXT | LEN16, "abc") },
	    "C1002:a malformed*", 1002, SP_E_PROTO },
	{ "a short length in 64 bits", { S(FIN | TEXT | LEN64, "abc") },
	    "C1002:a malformed*", 1002, SP_E_PROTO },
	{ "a 16-bit length in 64 bits", { { FIN | BIN | LEN64, big, 200 } },
	    "C1002:a malformed*", 1002, SP_E_PROTO },
	{ "a ping with a longer form of its length",
	    { S(FIN | PING | LEN16, "a") }, "C1002:a malformed*", 1002,
	    SP_E_PROTO },
	{ "as large as it may be", { { FIN | BIN, big, MAX } }, "B300:x*", 0,
	    0 },
	{ "larger", { { FIN | BIN, big, MAX + 1 } },
	    "C1009:the message is too large|", 1009, SP_E_PROTO },
	{ "larger over frames",
	    { { BIN, big, 200 }, S(FIN | PING, ""), { CONT, big, 100 },
		S(CONT, ""), S(FIN | CONT, ONE) },
	    "C1009:the message is too large|", 1009, SP_E_PROTO },
	{ "as large over frames",
	    { { BIN, big, 200 }, { FIN | CONT, big, 100 } }, "B300:x*", 0, 0 },
	{ "closed", { S(FIN | CLOSE, "\x03\xe8") }, "C1000:|", 1000, 0 },
	{ "closed with a reason", { S(FIN | CLOSE, "\x0f\xa0why") },
	    "C4000:why|", 4000, 0 },
	{ "closed without a code", { S(FIN | CLOSE, "") }, "C1005:|", 1005, 0 },
	{ "1012, of later", { S(FIN | CLOSE, "\x03\xf4") }, "C1012:|", 1012,
	    0 },
	{ "3000", { S(FIN | CLOSE, "\x0b\xb8") }, "C3000:|", 3000, 0 },
	{ "4999", { S(FIN | CLOSE, "\x13\x87") }, "C4999:|", 4999, 0 },
	{ "a close of one byte", { S(FIN | CLOSE, "a") },
	    "C1002:a close frame of one byte|", 1002, SP_E_PROTO },
	{ "999", { S(FIN | CLOSE, "\x03\xe7") }, "C1002:a code*", 1002,
	    SP_E_PROTO },
	{ "1004", { S(FIN | CLOSE, "\x03\xec") }, "C1002:a code*", 1002,
	    SP_E_PROTO },
	{ "1005, never sent", { S(FIN | CLOSE, "\x03\xed") }, "C1002:a code*",
	    1002, SP_E_PROTO },
	{ "1006, never sent", { S(FIN | CLOSE, "\x03\xee") }, "C1002:a code*",
	    1002, SP_E_PROTO },
	{ "1015, never sent", { S(FIN | CLOSE, "\x03\xf7") }, "C1002:a code*",
	    1002, SP_E_PROTO },
	{ "1016", { S(FIN | CLOSE, "\x03\xf8") }, "C1002:a code*", 1002,
	    SP_E_PROTO },
	{ "2999", { S(FIN | CLOSE, "\x0b\xb7") }, "C1002:a code*", 1002,
	    SP_E_PROTO },
	{ "5000", { S(FIN | CLOSE, "\x13\x88") }, "C1002:a code*", 1002,
	    SP_E_PROTO },
	{ "0", { S(FIN | CLOSE, "\x00\x00") }, "C1002:a code*", 1002,
	    SP_E_PROTO },
	{ "a reason that is not UTF-8", { S(FIN | CLOSE, "\x03\xe8\xff") },
	    "C1007:a reason that is not UTF-8|", 1007, SP_E_PROTO },
	{ "frames after a close",
	    { S(FIN | CLOSE, "\x03\xe8"), S(FIN | TEXT, "a"),
		S(FIN | PING, "") },
	    "C1000:|", 1000, 0 },
	{ "a close within a message", { S(TEXT, "a"), S(FIN | CLOSE, "") },
	    "C1005:|", 1005, 0 },
};

static bool
log_is(struct view got, const char *want)
{
	size_t n = strlen(want);

	if (n != 0 && want[n - 1] == '*')
		return view_starts(got, view_of(want, n - 1));
	return view_eq(got, view_of(want, n));
}

/* The frame of a close: its code, 1005 none, 0 there is no such frame. */
static unsigned
sent_close(struct view out, bool masked)
{
	unsigned code = 0;
	size_t n, at, head = masked ? 6 : 2;

	while (out.n >= head) {
		const unsigned char *p = (const unsigned char *)out.p;

		n = p[1] & 0x7f;
		at = head;
		if (n > 125 || ((p[1] & 0x80) != 0) != masked)
			abort();
		if (p[0] == (FIN | CLOSE)) {
			code = 1005;
			if (n >= 2 && masked)
				code = (unsigned)(p[at] ^ p[2]) << 8 |
				    (p[at + 1] ^ p[3]);
			else if (n >= 2)
				code = (unsigned)p[at] << 8 | p[at + 1];
		} else if (code != 0) {
			abort(); /* RFC 6455 s5.5.1: nothing after it */
		}
		out = view_from(out, head + n);
	}
	return code;
}

/* Feeds a copy of its own size, so that nothing is read past it. */
static int
feed(struct end *e, struct view v)
{
	char *own = malloc(v.n + 1);
	int rc;

	if (own == NULL)
		abort();
	if (v.n != 0)
		memcpy(own, v.p, v.n);
	rc = websocket_feed(e->w, view_of(own, v.n));
	free(own);
	return rc;
}

static void
rule_bytes(const struct rule *r, bool mask, struct buf *in)
{
	size_t i;

	for (i = 0; i < 6 && r->pieces[i].p != NULL; i++) {
		const struct piece *p = &r->pieces[i];

		frame(in, mask, p->first, view_of(p->p, p->n));
	}
}

/* step 0: in one piece. */
static bool
run_rule(const struct rule *r, enum websocket_role role, size_t step)
{
	struct buf in = BUF_INIT(1 << 16);
	struct end e;
	struct view v;
	bool good;
	int rc = 0, one;

	must(end_init(&e, role));
	rule_bytes(r, role == WEBSOCKET_SERVER, &in);
	for (v = buf_view(&in); v.n != 0; v = view_from(v, step)) {
		step = step == 0 ? v.n : step;
		one = feed(&e, view_sub(v, 0, step));
		rc = rc != 0 ? rc : one;
	}
	good = rc == r->rc && log_is(buf_view(&e.log), r->log) &&
	    sent_close(buf_view(&e.out), role == WEBSOCKET_CLIENT) == r->close;
	if (!good)
		printf("# rc %d, log %.*s\n", rc, VIEW_ARG(buf_view(&e.log)));
	end_clear(&e);
	buf_clear(&in);
	return good;
}

static void
test_rules(void)
{
	size_t i, step;
	bool server, client;

	for (i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		server = client = true;
		for (step = 0; step < 8; step++) {
			server = run_rule(&rules[i], WEBSOCKET_SERVER, step) &&
			    server;
			client = run_rule(&rules[i], WEBSOCKET_CLIENT, step) &&
			    client;
		}
		tap_ok(server, "server: %s", rules[i].what);
		tap_ok(client, "client: %s", rules[i].what);
	}
}

/* ---- the rest -------------------------------------------------------------
 */

static void
feed_frame(struct end *e, unsigned first, const char *p, int want)
{
	struct buf in = BUF_INIT(1 << 20);

	frame(&in, true, first, view_str(p));
	tap_is_int(feed(e, buf_view(&in)), want, "fed");
	buf_clear(&in);
}

/* The length that no frame can have, before a byte of it came. */
static void
test_lengths(void)
{
	static const char huge[] = "\x82\xff\x40\0\0\0\0\0\0\0abcdX";
	static const char top[] = "\x82\xff\x80\0\0\0\0\0\0\0abcdX";
	struct end e;

	must(end_init(&e, WEBSOCKET_SERVER));
	tap_is_int(feed(&e, view_of(huge, sizeof(huge) - 1)), SP_E_PROTO,
	    "2^62 bytes");
	end_log(&e, "C1009:the message is too large|", "are too many");
	end_clear(&e);
	must(end_init(&e, WEBSOCKET_SERVER));
	feed_frame(&e, 0x81, "before", 0);
	tap_is_int(feed(&e, view_of(huge, 9)), 0, "nine bytes of a header");
	tap_is_int(feed(&e, view_of(huge + 9, 1)), SP_E_PROTO,
	    "2^62 bytes, of which none came");
	end_log(&e, "T6:before|C1009:the message is too large|",
	    "are refused when they are announced");
	end_clear(&e);
	must(end_init(&e, WEBSOCKET_CLIENT));
	tap_is_int(feed(&e, view_of(huge, 10)), SP_E_PROTO,
	    "of a server, and masked");
	tap_is_int(sent_close(buf_view(&e.out), true), 1002,
	    "what is wrong first is told, whether or not more came");
	end_clear(&e);
	must(end_init(&e, WEBSOCKET_SERVER));
	tap_is_int(feed(&e, view_of(top, sizeof(top) - 1)), SP_E_PROTO,
	    "the top bit of a length");
	tap_is_int(sent_close(buf_view(&e.out), false), 1002, "is none");
	end_clear(&e);
}

static void
test_send(void)
{
	struct buf want = BUF_INIT(1 << 20);
	static char data[70000];
	static const size_t sizes[] = { 0, 1, 125, 126, 65535, 65536, 70000 };
	struct end e;
	size_t i;
	bool good = true;

	must(end_init(&e, WEBSOCKET_SERVER));
	memset(data, 'd', sizeof(data));
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct view v = view_of(data, sizes[i]);
		size_t before = buf_len(&e.out);

		frame(&want, false, FIN | TEXT, v);
		good = websocket_send(e.w, true, v) == 0 && good;
		good = buf_len(&e.out) - before ==
			websocket_frame_bytes(WEBSOCKET_SERVER, v.n) &&
		    good;
	}
	tap_ok(good && view_eq(buf_view(&e.out), buf_view(&want)),
	    "messages of each form of length");
	buf_reset(&e.out, 0);
	tap_is_int(websocket_ping(e.w), 0, "a ping");
	tap_ok(view_eq(buf_view(&e.out), view_of("\x89\0", 2)), "is sent");
	tap_is_int(websocket_send(e.w, true, VIEW("\xff")), SP_E_SYNTAX,
	    "no text that is not UTF-8");
	tap_is_int(websocket_send(e.w, false, VIEW("\xff")), 0, "but bytes");
	feed_frame(&e, FIN | PING, "same", 0);
	tap_ok(view_ends(buf_view(&e.out), VIEW("\x8a\4same")),
	    "a pong has the bytes of the ping");
	buf_clear(&want);
	end_clear(&e);
}

static void
relay(struct end *from, struct end *to)
{
	struct buf b = BUF_INIT(1 << 20);

	buf_take(&b, &from->out);
	tap_is_int(feed(to, buf_view(&b)), 0, "fed to the other end");
	buf_clear(&b);
}

/* Two of ours, one of each role. */
static void
test_both(void)
{
	struct end c, s;
	struct view first;

	must(end_init(&c, WEBSOCKET_CLIENT));
	must(end_init(&s, WEBSOCKET_SERVER));
	tap_is_int(websocket_send(c.w, true, VIEW("question")), 0, "sent");
	tap_is_int((int)buf_len(&c.out),
	    (int)websocket_frame_bytes(WEBSOCKET_CLIENT, 8), "masked");
	tap_ok(view_search(buf_view(&c.out), VIEW("question")) ==
		buf_len(&c.out),
	    "so that nothing is to be read");
	must(websocket_send(c.w, true, VIEW("question")));
	first = view_sub(buf_view(&c.out), 0, 14);
	tap_ok(!view_eq(first, view_from(buf_view(&c.out), 14)),
	    "twice the same is not the same");
	must(websocket_ping(c.w));
	relay(&c, &s);
	end_log(&s, "T8:question|T8:question|", "read");
	relay(&s, &c);
	end_log(&c, "P|", "a pong came");
	tap_is_int(websocket_close(s.w, 4001, VIEW("done")), 0, "closes");
	tap_is_int(websocket_close(s.w, 4002, VIEW_NONE), 0, "twice");
	tap_is_int(websocket_send(s.w, true, VIEW("x")), SP_E_STATE,
	    "nothing after it");
	tap_is_int(websocket_ping(s.w), SP_E_STATE, "no ping");
	must(websocket_send(c.w, true, VIEW("late")));
	must(websocket_ping(c.w));
	relay(&c, &s);
	end_log(&s, "T8:question|T8:question|", "what is late is dropped");
	relay(&s, &c);
	end_log(&c, "P|C4001:done|", "the other end is told");
	relay(&c, &s);
	end_log(&s, "T8:question|T8:question|C4001:|", "and answers");
	tap_is_int((int)buf_len(&s.out), 0, "with which all is said");
	tap_is_int(websocket_send(c.w, true, VIEW("x")), SP_E_STATE,
	    "nothing after it");
	end_clear(&c);
	end_clear(&s);
}

/* Messages that come after a close of ours are not kept, however long. */
static void
test_closing(void)
{
	struct buf in = BUF_INIT(1 << 20);
	static char data[5000];
	struct end e;

	must(end_init(&e, WEBSOCKET_SERVER));
	feed_frame(&e, TEXT, "begin", 0);
	must(websocket_close(e.w, WEBSOCKET_NORMAL, VIEW_NONE));
	frame(&in, true, CONT, view_of(data, sizeof(data)));
	frame(&in, true, FIN | CONT, view_of(data, sizeof(data)));
	frame(&in, true, FIN | BIN, view_of(data, sizeof(data)));
	frame(&in, true, FIN | CLOSE, VIEW("\x03\xe8"));
	tap_is_int(feed(&e, buf_view(&in)), 0, "a lot after a close of ours");
	end_log(&e, "C1000:|", "is dropped up to the peer's");
	end_clear(&e);

	/* a code that may not be sent, and a reason that does not fit */
	must(end_init(&e, WEBSOCKET_SERVER));
	memset(data, 'r', 122);
	memcpy(data + 122, "\xc3\xa9", 3);
	must(websocket_close(e.w, WEBSOCKET_ABNORMAL, view_of(data, 124)));
	tap_is_int((int)buf_len(&e.out), 2 + 2 + 122,
	    "a reason is cut where a character ends");
	tap_is_int(sent_close(buf_view(&e.out), false), 1011,
	    "a code that is never sent is not");
	end_clear(&e);
	must(end_init(&e, WEBSOCKET_SERVER));
	must(websocket_close(e.w, WEBSOCKET_NO_CODE, VIEW("why")));
	tap_ok(view_eq(buf_view(&e.out), view_of("\x88\0", 2)), "no code");
	end_clear(&e);
	buf_clear(&in);
}

static void
test_pause(void)
{
	struct buf in = BUF_INIT(1 << 20);
	struct end e;

	must(end_init(&e, WEBSOCKET_SERVER));
	websocket_pause(e.w, true);
	feed_frame(&e, TEXT, "on", 0);
	feed_frame(&e, FIN | PING, "1", 0);
	tap_ok(!websocket_full(e.w) && buf_len(&e.out) == 3,
	    "paused: a ping is answered");
	frame(&in, true, FIN | CONT, VIEW("e"));
	frame(&in, true, FIN | PING, VIEW("2"));
	frame(&in, true, FIN | TEXT, VIEW("two"));
	tap_is_int(feed(&e, buf_view(&in)), 0, "a message");
	end_log(&e, "", "is not told");
	tap_ok(websocket_full(e.w), "it waits, and no more should come");
	feed_frame(&e, FIN | TEXT, "three", 0);
	feed_frame(&e, FIN | CLOSE, "", 0);
	end_log(&e, "", "nothing is told");
	websocket_pause(e.w, false);
	tap_ok(!websocket_full(e.w), "the pause is over");
	e.pause_in_message = true;
	tap_is_int(websocket_feed(e.w, VIEW_NONE), 0, "fed nothing");
	end_log(&e, "T3:one|", "one is told, which pauses again");
	tap_ok(websocket_full(e.w), "and the next waits");
	tap_is_int((int)buf_len(&e.out), 6, "the ping between was answered");
	e.pause_in_message = false;
	websocket_pause(e.w, false);
	tap_is_int(websocket_feed(e.w, VIEW_NONE), 0, "fed nothing");
	end_log(&e, "T3:one|T3:two|T5:three|C1005:|", "the rest is told");
	end_clear(&e);

	/* a close of ours meanwhile */
	must(end_init(&e, WEBSOCKET_SERVER));
	websocket_pause(e.w, true);
	feed_frame(&e, FIN | TEXT, "one", 0);
	must(websocket_close(e.w, WEBSOCKET_NORMAL, VIEW_NONE));
	feed_frame(&e, FIN | TEXT, "two", 0);
	feed_frame(&e, FIN | CLOSE, "", 0);
	websocket_pause(e.w, false);
	tap_is_int(websocket_feed(e.w, VIEW_NONE), 0, "fed nothing");
	end_log(&e, "C1005:|", "what waited when it closed is dropped");
	end_clear(&e);
	buf_clear(&in);
}

static void
test_gone(void)
{
	struct end e;

	must(end_init(&e, WEBSOCKET_SERVER));
	e.write_rc = SP_E_GONE;
	tap_is_int(websocket_send(e.w, true, VIEW("a")), SP_E_GONE,
	    "the stream is gone");
	e.write_rc = 0;
	tap_is_int(websocket_send(e.w, true, VIEW("a")), SP_E_GONE, "for good");
	feed_frame(&e, FIN | TEXT, "a", SP_E_GONE);
	end_log(&e, "", "nothing is told");
	end_clear(&e);
	must(end_init(&e, WEBSOCKET_SERVER));
	e.write_rc = SP_E_NOMEM;
	feed_frame(&e, FIN | PING, "a", SP_E_GONE);
	end_clear(&e);
	must(end_init(&e, WEBSOCKET_SERVER));
	e.write_rc = SP_E_NOMEM;
	feed_frame(&e, FIN | CLOSE, "", SP_E_GONE);
	tap_is_int((int)e.closed_n, 0, "nor an answer to a close");
	end_clear(&e);
	/* freed from within */
	must(end_init(&e, WEBSOCKET_SERVER));
	e.free_in_message = true;
	feed_frame(&e, FIN | TEXT, "a", 0);
	end_log(&e, "T1:a|", "freed by its message");
	end_clear(&e);
	must(end_init(&e, WEBSOCKET_SERVER));
	e.free_in_message = true;
	feed_frame(&e, TEXT, "a", 0);
	feed_frame(&e, FIN | CONT, "b", 0);
	end_clear(&e);
	must(end_init(&e, WEBSOCKET_SERVER));
	e.free_in_closed = true;
	feed_frame(&e, FIN | 0x40 | TEXT, "a", SP_E_PROTO);
	tap_is_int((int)e.closed_n, 1, "freed by its end");
	end_clear(&e);
	websocket_free(NULL);
}

/* Byte by byte: when something is under way, and what takes it further. */
static void
test_unfinished(void)
{
	struct buf in = BUF_INIT(1 << 20);
	uint64_t now, before = 0;
	bool wrong = false;
	struct end e;
	size_t i, parts = 0;

	must(end_init(&e, WEBSOCKET_SERVER));
	tap_ok(!websocket_unfinished(e.w, &before) && before == 0, "nothing");
	frame(&in, true, TEXT, VIEW("abc"));
	frame(&in, true, FIN | PING, VIEW("ping"));
	frame(&in, true, CONT, VIEW_NONE);
	frame(&in, true, FIN | CONT, VIEW("de"));
	frame(&in, true, FIN | TEXT, VIEW("f"));
	for (i = 0; i < buf_len(&in); i++) {
		must(feed(&e, view_sub(buf_view(&in), i, 1)));
		/* the end of the first message, and of the second */
		wrong |= websocket_unfinished(e.w, &now) ==
		    (i == buf_len(&in) - 8 || i == buf_len(&in) - 1);
		parts += now > before;
		before = now;
	}
	tap_ok(!wrong, "under way from its first byte to its last");
	tap_is_int((int)parts, 6, "each byte of messages is a step");
	tap_is_int((int)before, 8, "and their ends are");
	frame(&in, true, FIN | PING, VIEW_NONE);
	buf_consume(&in, buf_len(&in) - 6);
	must(feed(&e, view_sub(buf_view(&in), 0, 5)));
	tap_ok(websocket_unfinished(e.w, &now) && now == before,
	    "half a ping is under way, and no step");
	must(feed(&e, view_sub(buf_view(&in), 5, 1)));
	tap_ok(!websocket_unfinished(e.w, &now), "till it is whole");
	websocket_pause(e.w, true);
	buf_reset(&in, 0);
	frame(&in, true, FIN | TEXT, VIEW("waits"));
	must(feed(&e, buf_view(&in)));
	must(feed(&e, VIEW("\x81")));
	tap_ok(!websocket_unfinished(e.w, &now), "not while one waits");
	end_clear(&e);
	buf_clear(&in);
}

/* Everything that allocates, each allocation failing in turn. */
static void
test_nomem(void)
{
	struct buf in = BUF_INIT(1 << 20);
	char text[WEBSOCKET_ACCEPT_BYTES];
	unsigned long n, failed = 0;
	struct end e;
	bool good = true;
	int rc;

	frame(&in, true, BIN, view_of(big, 100));
	frame(&in, true, CONT, view_of(big, 100));
	frame(&in, true, FIN | CONT, view_of(big, 100));
	for (n = 1; n < 50; n++) {
		mem_fail_after(n, 0);
		rc = end_init(&e, WEBSOCKET_SERVER);
		mem_fail_after(0, 0);
		if (rc != 0) {
			good = rc == SP_E_NOMEM && good;
			failed++;
			continue;
		}
		/* what is told and written is the test's own, made before */
		must(buf_reserve(&e.log, 1000));
		must(buf_reserve(&e.out, 1000));
		mem_fail_after(n, 0);
		rc = websocket_feed(e.w, buf_view(&in));
		mem_fail_after(0, 0);
		if (rc != 0) {
			failed++;
			good = rc == SP_E_NOMEM && e.closed_n == 1 &&
			    sent_close(buf_view(&e.out), false) == 1011 && good;
		}
		end_clear(&e);
		if (rc == 0)
			break;
	}
	tap_ok(good && failed >= 2 && n < 50, "without memory: 1011");
	/* and while paused */
	must(end_init(&e, WEBSOCKET_SERVER));
	must(buf_reserve(&e.log, 1000));
	must(buf_reserve(&e.out, 1000));
	websocket_pause(e.w, true);
	must(feed(&e, buf_view(&in)));
	mem_fail_after(1, 0);
	rc = websocket_feed(e.w, buf_view(&in));
	mem_fail_after(0, 0);
	tap_is_int(rc, SP_E_NOMEM, "no memory for what waits");
	tap_is_int((int)e.closed_n, 1, "ends it");
	end_clear(&e);
	mem_fail_after(1, 0);
	tap_is_int(websocket_key(text), SP_E_NOMEM, "a key");
	mem_fail_after(1, 0);
	tap_ok(websocket_accept(VIEW("dGhlIHNhbXBsZSBub25jZQ=="), text) ==
		SP_E_NOMEM,
	    "an answer to one");
	mem_fail_after(0, 0);
	buf_clear(&in);
}

/* ---- the handshake --------------------------------------------------------
 */

struct asks {
	const char *what;
	const char *method, *upgrade, *version, *key;
	bool http10, body;
	int rc;
};

#define KEY "dGhlIHNhbXBsZSBub25jZQ=="
static const struct asks asks[] = {
	{ "RFC 6455's", "GET", "websocket", "13", KEY, false, false, 0 },
	{ "another case, a list", "GET", "h3, WebSocket", "13", KEY, false,
	    false, 0 },
	{ "RFC 8441's", "CONNECT", "websocket", "13", NULL, false, true, 0 },
	{ "no upgrade", "GET", "", "13", KEY, false, false, SP_E_NOTFOUND },
	{ "another upgrade", "GET", "h2c", "13", KEY, false, false,
	    SP_E_NOTFOUND },
	{ "POST", "POST", "websocket", "13", KEY, false, false, SP_E_SYNTAX },
	{ "HTTP/1.0", "GET", "websocket", "13", KEY, true, false, SP_E_SYNTAX },
	{ "a body", "GET", "websocket", "13", KEY, false, true, SP_E_SYNTAX },
	{ "no version", "GET", "websocket", NULL, KEY, false, false,
	    SP_E_SYNTAX },
	{ "version 8", "GET", "websocket", "8", KEY, false, false,
	    SP_E_UNSUPPORTED },
	{ "version 8 of RFC 8441", "CONNECT", "websocket", "8", NULL, false,
	    true, SP_E_UNSUPPORTED },
	{ "no key", "GET", "websocket", "13", NULL, false, false, SP_E_SYNTAX },
	{ "a short key", "GET", "websocket", "13",
	    "IHNhbXBsZSBub25jZQ==", false, false, SP_E_SYNTAX },
	{ "a key that is not base64", "GET", "websocket", "13",
	    "dGhlIHNhbXBsZSBub25jZ.==", false, false, SP_E_SYNTAX },
	{ "a key that is too long", "GET", "websocket", "13",
	    "dGhlIHNhbXBsZSBub25jZQabcdef====", false, false, SP_E_SYNTAX },
};

static void
test_asked(void)
{
	struct arena *a = arena_new(1 << 16);
	struct head_request rq;
	size_t i;

	for (i = 0; i < sizeof(asks) / sizeof(asks[0]); i++) {
		const struct asks *k = &asks[i];

		rq = (struct head_request){ .method = view_str(k->method),
			.upgrade = view_str(k->upgrade),
			.http10 = k->http10,
			.has_body = k->body };
		head_fields_init(&rq.fields, a);
		if (k->version != NULL)
			must(head_add(&rq.fields, VIEW("Sec-WebSocket-Version"),
			    view_str(k->version)));
		if (k->key != NULL)
			must(head_add(&rq.fields, VIEW("Sec-WebSocket-Key"),
			    view_str(k->key)));
		tap_is_int(websocket_asked(&rq), k->rc, k->what);
		if (k->rc != 0 || k->key == NULL)
			continue;
		must(head_add(&rq.fields, VIEW("sec-websocket-key"),
		    view_str(k->key)));
		tap_is_int(websocket_asked(&rq), SP_E_SYNTAX, "two keys");
	}
	arena_free(a);
}

static void
test_accept(void)
{
	char text[WEBSOCKET_ACCEPT_BYTES], key[2][WEBSOCKET_KEY_BYTES];
	struct end e;

	tap_is_int(websocket_accept(VIEW(KEY), text), 0, "accepted");
	tap_is_mem(text, sizeof(text), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", 28,
	    "as RFC 6455 s1.3 has it");
	tap_is_int(websocket_key(key[0]), 0, "a key");
	tap_is_int(websocket_key(key[1]), 0, "another");
	tap_ok(memcmp(key[0], key[1], sizeof(key[0])) != 0 &&
		memcmp(key[0] + 22, "==", 2) == 0,
	    "they differ");
	must(end_init(&e, WEBSOCKET_SERVER));
	tap_ok(websocket_holds(e.w) > 4096 && websocket_holds(e.w) < 8192,
	    "an idle one is small");
	end_clear(&e);
}

int
main(void)
{
	test_rules();
	test_lengths();
	test_send();
	test_both();
	test_closing();
	test_pause();
	test_gone();
	test_unfinished();
	test_nomem();
	test_asked();
	test_accept();
	return tap_done();
}

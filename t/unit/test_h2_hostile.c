/* What a hostile server of HTTP/2 sends: each ends in a clear failure. */
#include "config.h"

#include "h2_caller.h"

static void
test_bombs(void)
{
	static char big[3000];
	const char *const fields[] = { "a", big, "b", big, NULL };
	const char *const huge[] = { "a", big, "b", big, "c", big, "d", big,
		"e", big, "f", big, NULL };
	size_t i;

	memset(big, 'x', sizeof(big) - 1);
	start();
	begin(0);
	begin(1);
	wait_asked(2, "two calls");
	h2s_head(&h2s.rq[0], "200", false, fields);
	wait_over(1, "a head that is too large");
	tap_ok(seen[0].why == CALL_MALFORMED && seen[1].fails == 0,
	    "fails alone: %s", seen[0].words);
	for (i = 0; i < 80 && seen[1].fails == 0; i++) {
		h2s_head(&h2s.rq[1], "103", false, NULL);
		turns(1);
	}
	tap_ok(seen[1].why == CALL_MALFORMED && i <= 70,
	    "interim replies without end: %s", seen[1].words);
	begin(0);
	wait_asked(3, "on the same connection");
	tap_is_int(h2s.accepted, 1, "which stays");
	h2s_head(&h2s.rq[2], "200", false, huge);
	wait_over(2, "a head that is far too large");
	tap_ok(seen[0].why == CALL_MALFORMED, "fails: %s", seen[0].words);
	wait_for(is_quiet, "with the connection");
	stop();
}

struct flood {
	const char *name;
	unsigned type, flags;
	uint32_t id;
	struct view payload;
};

/* Every frame of one kind, without end: the connection is. */
static void
flood(const struct flood *f)
{
	struct buf b = BUF_INIT(1 << 24);
	struct h2_client_stats st;
	size_t i, at = 0;
	ssize_t n;

	h2s.raw = true;
	start();
	begin(0);
	want_accepted = 1;
	wait_for(is_accepted, "accepted");
	h2_frame(&b, 4, 0, 0, VIEW_NONE);
	h2_frame(&b, 4, 1, 0, VIEW_NONE);
	if (f->id != 0)
		/* :status 200 */
		h2_frame(&b, 1, 4, 1, VIEW("\x88"));
	peer_send(&peers[h2s.conn], buf_view(&b));
	buf_reset(&b, SIZE_MAX);
	for (i = 0; i < 400; i++)
		h2_frame(&b, f->type, f->flags, f->id, f->payload);
	turns(3);
	/* as fast as it reads: no slow machine makes a trickle of it */
	for (i = 0; i < 5000 && seen[0].fails == 0; i++) {
		n = send(peers[h2s.conn].fd, buf_view(&b).p + at,
		    buf_len(&b) - at, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0)
			at = (at + (size_t)n) % buf_len(&b);
		turns(1);
	}
	wait_over(1, f->name);
	h2_client_stats(client, &st);
	tap_ok(seen[0].why == CALL_MALFORMED && st.broken == 1 &&
		st.connections == 0 && i < 5000,
	    "is ended: %s", seen[0].words);
	wait_for(is_left, "the connection is closed");
	buf_clear(&b);
	stop();
}

static void
test_floods(void)
{
	/* these are told by their bytes */
	static const char many[4096];
	static const struct flood v[] = {
		{ "SETTINGS", 4, 0, 0, VIEW_INIT("\0\3\0\0\0\1") },
		{ "PING", 6, 0, 0, VIEW_INIT("12345678") },
		{ "empty DATA", 0, 0, 1, { NULL, 0 } },
		{ "padding", 0, 8, 1, VIEW_INIT("\3\0\0\0") },
		{ "WINDOW_UPDATE", 8, 0, 0, VIEW_INIT("\0\0\0\1") },
		{ "a window that overflows", 8, 0, 0,
		    VIEW_INIT("\x7f\xff\xff\xff") },
		{ "PRIORITY", 2, 0, 1, VIEW_INIT("\0\0\0\0\x10") },
		{ "frames that nobody knows", 0x77, 0, 0,
		    { many, sizeof(many) } },
		{ "PUSH_PROMISE", 5, 4, 1,
		    VIEW_INIT("\0\0\0\2\x82\x86\x84\x41\1h") },
		{ "heads", 1, 0, 1, { NULL, 0 } },
		{ "a stream that nobody opened", 0, 0, 7, VIEW_INIT("x") },
		{ "an even stream", 1, 4, 2, VIEW_INIT("\x88") },
		{ "CONTINUATION of nothing", 9, 0, 1, VIEW_INIT("\x88") },
	};
	size_t i;

	for (i = 0; i < sizeof(v) / sizeof(v[0]); i++)
		flood(&v[i]);
}

/* CONTINUATION without end within one head, and what is no HTTP/2 at all. */
static void
test_raw(void)
{
	static const struct {
		const char *what;
		struct view bytes;
	} v[] = {
		{ "HTTP/1.1", VIEW_INIT("HTTP/1.1 400 Bad Request\r\n\r\n") },
		{ "rubbish", VIEW_INIT("SSH-2.0-OpenSSH_9.2p1 Debian\r\n") },
		{ "DATA first", VIEW_INIT("\0\0\1\0\0\0\0\0\1x") },
		{ "bad HPACK",
		    VIEW_INIT("\0\0\0\4\0\0\0\0\0\0\0\1\1\4\0\0\0\1\xff") },
		{ "a frame that is too large",
		    VIEW_INIT("\0\0\0\4\0\0\0\0\0\xff\xff\xff\0\0\0\0\0\1") },
	};
	struct buf b = BUF_INIT(1 << 24);
	size_t i;

	for (i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		h2s.raw = true;
		start();
		begin(0);
		want_accepted = 1;
		wait_for(is_accepted, "accepted");
		peer_send(&peers[h2s.conn], v[i].bytes);
		wait_over(1, v[i].what);
		tap_ok(seen[0].fails == 1 && seen[0].why == CALL_MALFORMED,
		    "is refused: %s", seen[0].words);
		stop();
	}
	h2s.raw = true;
	start();
	begin(0);
	want_accepted = 1;
	wait_for(is_accepted, "accepted");
	h2_frame(&b, 4, 0, 0, VIEW_NONE);
	h2_frame(&b, 1, 0, 1, VIEW("\x88"));
	peer_send(&peers[h2s.conn], buf_view(&b));
	buf_reset(&b, SIZE_MAX);
	for (i = 0; i < 1000; i++)
		h2_frame(&b, 9, 0, 1, VIEW_NONE);
	for (i = 0; i < 5000 && seen[0].fails == 0; i++) {
		(void)!send(peers[h2s.conn].fd, buf_view(&b).p, buf_len(&b),
		    MSG_NOSIGNAL);
		turns(1);
	}
	tap_ok(seen[0].fails == 1 && seen[0].why == CALL_MALFORMED,
	    "CONTINUATION without end: %s", seen[0].words);
	buf_clear(&b);
	stop();
}

int
main(void)
{
	caller_init();
	test_bombs();
	test_floods();
	test_raw();
	caller_clear();
	return tap_done();
}

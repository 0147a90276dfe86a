/*
 * HTTP/2 from a server: whatever bytes it sends, cut anywhere, the client
 * survives and every call ends once.  The first byte says where they are cut;
 * SETTINGS go before unless it is odd.
 */
#include "config.h"

#include "../unit/h2_caller.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool ready;

static void
give(struct view v)
{
	if (peers[h2s.conn].fd != -1)
		(void)!send(peers[h2s.conn].fd, v.p, v.n, MSG_NOSIGNAL);
	wait_turns(2);
}

static bool
is_there(void)
{
	h2s_take();
	return h2s.accepted != 0;
}

/* The loop until a connection is there; no test of its own. */
static void
connect_all(void)
{
	peer_cond = is_there;
	peer_ticks = PEER_TICKS;
	loop_timer_set(peer_timer, 0);
	if (loop_run(loop) != 0 || h2s.accepted == 0)
		abort();
	wait_turns(2);
}

static void
hang_up(void)
{
	size_t i;

	peer_close(&peers[h2s.conn]);
	for (i = 0; i < 20 && (seen[0].call != NULL || seen[1].call != NULL);
	     i++)
		wait_turns(1);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct view v = view_of(data + 1, n - 1);
	size_t cut, i;

	if (!ready) {
		caller_init();
		ready = true;
	}
	if (n < 1 || n > 60000)
		return 0;
	cut = data[0] * v.n / 256;
	h2s.raw = true;
	start();
	begin(0);
	begin(1);
	connect_all();
	if ((data[0] & 1) == 0)
		give(VIEW("\0\0\0\4\0\0\0\0\0\0\0\0\4\1\0\0\0\0"));
	give(view_sub(v, 0, cut));
	give(view_from(v, cut));
	hang_up();
	for (i = 0; i < 2; i++)
		if (seen[i].call == NULL && seen[i].ends + seen[i].fails != 1)
			abort();
	stop();
	return 0;
}

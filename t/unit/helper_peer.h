/* A helper that is played by a test: what it is sent, and what it says. */
#ifndef SP_T_UNIT_HELPER_PEER_H
#define SP_T_UNIT_HELPER_PEER_H

#include "gate/episode.h"
#include "ipc/wire.h"
#include "os/fd.h"
#include "tap.h"

/* The test's own. */
static struct loop *loop;
static struct episode_set *set;

/* What was sent to the helper last, taken apart by the tests. */
static struct {
	enum message_type type;
	struct buf body;
	int fd;
	unsigned n;
	int rc; /* what sending answers */
} sent = { .body = BUF_INIT(65536), .fd = -1 };

static inline int
send_helper(void *arg, enum message_type type, struct view body, int fd)
{
	(void)arg;
	fd_close(&sent.fd);
	if (sent.rc != SP_OK) {
		fd_close(&fd);
		return sent.rc;
	}
	sent.type = type;
	sent.fd = fd;
	sent.n++;
	buf_reset(&sent.body, 65536);
	return buf_add_view(&sent.body, body);
}

/* The nth u32 of what was sent. */
static inline uint32_t
sent_u32(unsigned nth)
{
	struct wire w;
	uint32_t v = 0;

	wire_init(&w, buf_view(&sent.body));
	do
		v = wire_u32(&w);
	while (nth-- > 0);
	return v;
}

/* ---- messages of the helper ------------------------------------------------- */

static struct buf msg = BUF_INIT(65536);

static inline void
m_begin(void)
{
	buf_reset(&msg, 65536);
}

static inline void
m_u8(unsigned v)
{
	TAP_NEVER(wire_put_u8(&msg, (uint8_t)v) != SP_OK);
}

static inline void
m_u32(uint32_t v)
{
	TAP_NEVER(wire_put_u32(&msg, v) != SP_OK);
}

static inline void
m_u64(uint64_t v)
{
	TAP_NEVER(wire_put_u64(&msg, v) != SP_OK);
}

static inline void
m_bytes(const char *s)
{
	TAP_NEVER(wire_put_bytes(&msg, view_str(s)) != SP_OK);
}

static inline int
m_hear(enum message_type type, int fd)
{
	struct channel_msg m = { .type = (uint16_t)type,
		.body = buf_view(&msg),
		.fd = fd };
	int rc = episode_set_heard(set, &m);

	fd_close(&m.fd);
	return rc;
}

static inline int
hear_made(uint32_t slot, uint32_t generation, uint32_t request)
{
	m_begin();
	m_u32(slot);
	m_u32(generation);
	m_u32(request);
	m_bytes("echo");
	return m_hear(MESSAGE_EPISODE_MADE, -1);
}

static inline int
hear_refused(uint32_t request, unsigned why, const char *what)
{
	m_begin();
	m_u32(request);
	m_u8(why);
	m_bytes(what);
	return m_hear(MESSAGE_EPISODE_REFUSED, -1);
}

static inline int
hear_ended(uint32_t slot, uint32_t generation, uint32_t request,
    const char *what)
{
	m_begin();
	m_u32(slot);
	m_u32(generation);
	m_u32(request);
	m_u8(SANDBOX_END_LOST);
	m_bytes(what);
	return m_hear(MESSAGE_EPISODE_ENDED, -1);
}

static inline int
hear_exited(uint32_t handle, unsigned end, unsigned status)
{
	m_begin();
	m_u32(1);
	m_u32(1);
	m_u32(handle);
	m_u8(end);
	m_u8(status);
	m_u64(10);
	m_u64(20);
	m_u64(30);
	return m_hear(MESSAGE_PROCESS_EXITED, -1);
}

static inline int
hear_started(uint32_t handle)
{
	m_begin();
	m_u32(1);
	m_u32(1);
	m_u32(handle);
	m_u32(2);
	return m_hear(MESSAGE_PROCESS_STARTED, -1);
}

static inline int
hear_stdio(uint32_t handle, unsigned which, int fd)
{
	m_begin();
	m_u32(1);
	m_u32(1);
	m_u32(handle);
	m_u8(which);
	return m_hear(MESSAGE_PROCESS_STDIO, fd);
}

static inline void
peer_clear(void)
{
	fd_close(&sent.fd);
	buf_clear(&sent.body);
	buf_clear(&msg);
}

/* One turn of the loop, or until somebody stops it. */
static inline void
peer_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static inline void
run_for(uint64_t ms)
{
	struct loop_timer *t = loop_timer_new(loop, peer_stop, NULL);

	loop_timer_set(t, ms);
	TAP_NEVER(loop_run(loop) != SP_OK);
	loop_timer_free(t);
}

#endif

#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "ipc/channel.h"
#include "os/fd.h"

enum {
	CHANNEL_HEADER_BYTES = 8, /* u16 type, u16 version, u32 sequence */
	CHANNEL_FDS_SEEN = 4, /* surplus ones that are closed by hand */
	CHANNEL_QUEUE_FDS_MAX = 256, /* kept open by unsent messages */
	CHANNEL_PACK_MAX = 32 * 1024, /* longer ones go alone, uncopied */
	/* of a packed message: its header and u32 bytes of body */
	CHANNEL_PACKED_BYTES = CHANNEL_HEADER_BYTES + 4,
};

/* A message that the socket did not take. */
struct channel_unsent {
	STAILQ_ENTRY(channel_unsent) link;
	int fd;
	size_t n; /* header and body */
	uint8_t bytes[];
};

struct channel {
	int fd;
	unsigned me, peer; /* enum message_party */
	enum message_state state;
	bool broken; /* nothing more is read */
	uint32_t send_seq, recv_seq; /* the next one's */
	STAILQ_HEAD(channel_queue, channel_unsent) queue;
	size_t queued; /* bodies' bytes */
	size_t queued_fds;
	size_t queue_max;
	size_t max; /* greatest body the peer may send me */
	uint8_t *in; /* max + header + 1 */
	struct view packed; /* in `in`: messages not yet taken */
	bool packing;
	struct buf pack; /* messages that go out as one */
};

/* The greatest body in this direction, so that memory follows the table. */
static size_t
channel_max(unsigned from, unsigned to)
{
	const struct message_row *row;
	size_t n, i, max = 0;

	row = message_rows(&n);
	for (i = 0; i < n; i++)
		if ((row[i].from & from) && (row[i].to & to) &&
		    row[i].max > max)
			max = row[i].max;
	return max;
}

struct channel *
channel_new(int fd, unsigned me, unsigned peer, size_t queue_max_bytes)
{
	struct channel *c = mem_calloc(1, sizeof(*c));

	if (c == NULL)
		goto fail;
	c->max = channel_max(peer, me);
	c->in = mem_alloc(CHANNEL_HEADER_BYTES + c->max + 1);
	if (c->in == NULL)
		goto fail;
	c->fd = fd;
	c->me = me;
	c->peer = peer;
	c->state = MESSAGE_BOOT;
	c->queue_max = queue_max_bytes;
	STAILQ_INIT(&c->queue);
	buf_init(&c->pack, MESSAGE_BULK_MAX);
	return c;
fail:
	mem_free(c);
	fd_close(&fd);
	return NULL;
}

static void
channel_drop_first(struct channel *c)
{
	struct channel_unsent *u = STAILQ_FIRST(&c->queue);

	STAILQ_REMOVE_HEAD(&c->queue, link);
	c->queued -= u->n - CHANNEL_HEADER_BYTES;
	if (u->fd >= 0)
		c->queued_fds--;
	fd_close(&u->fd);
	/* may have been a secret */
	mem_free_zero(u, sizeof(*u) + u->n);
}

void
channel_free(struct channel *c)
{
	if (c == NULL)
		return;
	while (!STAILQ_EMPTY(&c->queue))
		channel_drop_first(c);
	buf_clear(&c->pack);
	fd_close(&c->fd);
	mem_free_zero(c->in, CHANNEL_HEADER_BYTES + c->max + 1);
	mem_free(c);
}

int
channel_fd(const struct channel *c)
{
	return c->fd;
}

void
channel_set_state(struct channel *c, enum message_state s)
{
	c->state = s;
}

size_t
channel_queued(const struct channel *c)
{
	/* an empty body waits, too: the header counts */
	return buf_len(&c->pack) +
	    (STAILQ_EMPTY(&c->queue) ? 0 : c->queued + CHANNEL_HEADER_BYTES);
}

/* One datagram, whole or not at all. */
static int
channel_put(struct channel *c, struct iovec *iov, size_t iov_n, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr m;
	struct cmsghdr *cm;
	ssize_t put;

	memset(&m, 0, sizeof(m));
	m.msg_iov = iov;
	m.msg_iovlen = iov_n;
	if (fd >= 0) {
		memset(&control, 0, sizeof(control));
		m.msg_control = control.bytes;
		m.msg_controllen = sizeof(control.bytes);
		cm = CMSG_FIRSTHDR(&m);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cm), &fd, sizeof(fd));
	}
	do
		put = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (put < 0 && errno == EINTR);
	if (put >= 0)
		return SP_OK;
	/* no memory for it now, or too many descriptors under way: later */
	if (errno == ENOBUFS || errno == ENOMEM || errno == ETOOMANYREFS)
		return SP_E_AGAIN;
	return err_from_errno(errno);
}

static void
channel_header(uint8_t out[CHANNEL_HEADER_BYTES], uint16_t type, uint32_t seq)
{
	out[0] = (uint8_t)type;
	out[1] = (uint8_t)(type >> 8);
	out[2] = (uint8_t)MESSAGE_VERSION;
	out[3] = (uint8_t)(MESSAGE_VERSION >> 8);
	out[4] = (uint8_t)seq;
	out[5] = (uint8_t)(seq >> 8);
	out[6] = (uint8_t)(seq >> 16);
	out[7] = (uint8_t)(seq >> 24);
}

static int
channel_enqueue(struct channel *c, const uint8_t *head, struct view body,
    int fd)
{
	struct channel_unsent *u;

	if (body.n > c->queue_max || c->queued > c->queue_max - body.n)
		return SP_E_LIMIT;
	if (fd >= 0 && c->queued_fds >= CHANNEL_QUEUE_FDS_MAX)
		return SP_E_LIMIT;
	u = mem_alloc(sizeof(*u) + CHANNEL_HEADER_BYTES + body.n);
	if (u == NULL)
		return SP_E_NOMEM;
	u->fd = fd;
	u->n = CHANNEL_HEADER_BYTES + body.n;
	memcpy(u->bytes, head, CHANNEL_HEADER_BYTES);
	if (body.p != NULL)
		memcpy(u->bytes + CHANNEL_HEADER_BYTES, body.p, body.n);
	STAILQ_INSERT_TAIL(&c->queue, u, link);
	c->queued += body.n;
	if (fd >= 0)
		c->queued_fds++;
	return SP_OK;
}

static int
channel_send_now(struct channel *c, enum message_type type, struct view body,
    int fd)
{
	const struct message_row *row = message_row((uint16_t)type);
	uint8_t head[CHANNEL_HEADER_BYTES];
	struct iovec iov[2];
	int rc = SP_E_AGAIN;

	err_assert(row != NULL && (row->from & c->me) && (row->to & c->peer));
	err_assert(body.n >= row->min && body.n <= row->max);
	err_assert(
	    row->fds == MESSAGE_FD_MAYBE || (fd >= 0) == (row->fds == 1));
	channel_header(head, (uint16_t)type, c->send_seq);
	if (STAILQ_EMPTY(&c->queue)) {
		iov[0].iov_base = head;
		iov[0].iov_len = sizeof(head);
		/* sendmsg(2) does not write there; the type cannot say so */
		iov[1].iov_base = (void *)(uintptr_t)body.p;
		iov[1].iov_len = body.n;
		rc = channel_put(c, iov, 2, fd);
	}
	if (rc == SP_E_AGAIN) {
		rc = channel_enqueue(c, head, body, fd);
		if (rc == SP_OK)
			fd = -1; /* the queue's now */
	}
	if (rc == SP_OK)
		c->send_seq++;
	fd_close(&fd);
	return rc;
}

/* The packed messages go out as one. */
static int
channel_send_pack(struct channel *c)
{
	int rc = SP_OK;

	if (buf_len(&c->pack) > 0)
		rc = channel_send_now(c, MESSAGE_PACK, buf_view(&c->pack), -1);
	if (rc == SP_OK)
		buf_reset(&c->pack, MESSAGE_BULK_MAX);
	return rc;
}

static int
channel_put_packed(struct channel *c, enum message_type type, struct view body)
{
	const struct message_row *row = message_row((uint16_t)type);
	uint8_t head[CHANNEL_PACKED_BYTES];
	int rc = SP_OK;

	err_assert(row != NULL && (row->from & c->me) && (row->to & c->peer));
	err_assert(body.n >= row->min && body.n <= row->max && row->fds == 0);
	if (sizeof(head) + body.n > MESSAGE_BULK_MAX - buf_len(&c->pack))
		rc = channel_send_pack(c);
	if (rc == SP_OK)
		rc = buf_reserve(&c->pack, sizeof(head) + body.n);
	if (rc != SP_OK)
		return rc;
	channel_header(head, (uint16_t)type, 0); /* the pack is counted */
	head[8] = (uint8_t)body.n;
	head[9] = (uint8_t)(body.n >> 8);
	head[10] = (uint8_t)(body.n >> 16);
	head[11] = (uint8_t)(body.n >> 24);
	memcpy(buf_tail(&c->pack), head, sizeof(head));
	buf_grow(&c->pack, sizeof(head));
	if (body.n > 0)
		memcpy(buf_tail(&c->pack), body.p, body.n);
	buf_grow(&c->pack, body.n);
	return SP_OK;
}

int
channel_send(struct channel *c, enum message_type type, struct view body,
    int fd)
{
	int rc = SP_OK;

	if (c->packing && fd < 0 && body.n <= CHANNEL_PACK_MAX)
		return channel_put_packed(c, type, body);
	rc = channel_send_pack(c);
	if (rc == SP_OK)
		return channel_send_now(c, type, body, fd);
	fd_close(&fd);
	return rc;
}

void
channel_pack(struct channel *c)
{
	c->packing = true;
}

int
channel_flush(struct channel *c)
{
	struct channel_unsent *u;
	struct iovec iov;
	int rc;

	while ((u = STAILQ_FIRST(&c->queue)) != NULL) {
		iov.iov_base = u->bytes;
		iov.iov_len = u->n;
		rc = channel_put(c, &iov, 1, u->fd);
		if (rc != SP_OK)
			return rc;
		channel_drop_first(c);
	}
	rc = channel_send_pack(c);
	/* SP_E_NOMEM, SP_E_LIMIT: it stays, and is tried again */
	if (rc != SP_OK && rc != SP_E_NOMEM && rc != SP_E_LIMIT)
		return rc;
	return channel_queued(c) > 0 ? SP_E_AGAIN : SP_OK;
}

/*
 * The descriptors that came: the only one into *fd.  More than one, or other
 * ancillary data: all are closed, and the message breaks the rules.
 */
static int
channel_take_fds(struct msghdr *m, int *fd)
{
	struct cmsghdr *cm;
	size_t n, i;
	int got, rc = SP_OK;

	*fd = -1;
	for (cm = CMSG_FIRSTHDR(m); cm != NULL; cm = CMSG_NXTHDR(m, cm)) {
		if (cm->cmsg_level != SOL_SOCKET ||
		    cm->cmsg_type != SCM_RIGHTS || cm->cmsg_len < CMSG_LEN(0)) {
			rc = SP_E_PROTO;
			continue;
		}
		n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < n; i++) {
			memcpy(&got, CMSG_DATA(cm) + i * sizeof(int),
			    sizeof(got));
			if (*fd < 0 && rc == SP_OK) {
				*fd = got;
				continue;
			}
			fd_close(&got);
			rc = SP_E_PROTO;
		}
	}
	/* the kernel has closed what did not fit in */
	if (m->msg_flags & MSG_CTRUNC)
		rc = SP_E_PROTO;
	if (rc != SP_OK)
		fd_close(fd);
	return rc;
}

/* Everything the table says, before any handler sees a byte. */
static int
channel_check(struct channel *c, struct view msg, int fd, bool packed,
    struct channel_msg *out)
{
	const uint8_t *h = (const uint8_t *)msg.p;
	size_t n = msg.n;
	const struct message_row *row;
	unsigned version;

	if (n < CHANNEL_HEADER_BYTES)
		return SP_E_PROTO;
	out->type = (uint16_t)(h[0] | h[1] << 8);
	version = (unsigned)(h[2] | h[3] << 8);
	out->seq = (uint32_t)h[4] | (uint32_t)h[5] << 8 | (uint32_t)h[6] << 16 |
	    (uint32_t)h[7] << 24;
	n -= CHANNEL_HEADER_BYTES;
	row = message_row(out->type);
	if (row == NULL || version != MESSAGE_VERSION ||
	    out->seq != (packed ? 0 : c->recv_seq))
		return SP_E_PROTO;
	if (!(row->from & c->peer) || !(row->to & c->me) ||
	    !(row->states & c->state))
		return SP_E_PROTO;
	if (n < row->min || n > row->max ||
	    (row->fds != MESSAGE_FD_MAYBE && (fd >= 0) != (row->fds == 1)))
		return SP_E_PROTO;
	if (!packed)
		c->recv_seq++;
	out->body = view_from(msg, CHANNEL_HEADER_BYTES);
	out->fd = fd;
	return SP_OK;
}

/* The next of the packed messages. */
static int
channel_unpack(struct channel *c, struct channel_msg *out)
{
	const uint8_t *h = (const uint8_t *)c->packed.p;
	uint8_t *head;
	size_t n;

	if (c->packed.n < CHANNEL_PACKED_BYTES)
		return SP_E_PROTO;
	n = (size_t)h[8] | (size_t)h[9] << 8 | (size_t)h[10] << 16 |
	    (size_t)h[11] << 24;
	if (n > c->packed.n - CHANNEL_PACKED_BYTES)
		return SP_E_PROTO;
	/* the header moves up to its body, over the length */
	head =
	    c->in + (h - c->in) + CHANNEL_PACKED_BYTES - CHANNEL_HEADER_BYTES;
	memmove(head, h, CHANNEL_HEADER_BYTES);
	c->packed = view_from(c->packed, CHANNEL_PACKED_BYTES + n);
	if ((head[0] | head[1] << 8) == MESSAGE_PACK)
		return SP_E_PROTO;
	return channel_check(c, view_of(head, CHANNEL_HEADER_BYTES + n), -1,
	    true, out);
}

/* Nothing more is read of a peer that broke the rules. */
static int
channel_broke(struct channel *c, int rc, struct channel_msg *out)
{
	if (rc == SP_OK)
		return SP_OK;
	c->broken = true;
	memset(out, 0, sizeof(*out));
	out->fd = -1;
	return rc;
}

bool
channel_pending(const struct channel *c)
{
	return !c->broken && c->packed.n > 0;
}

int
channel_recv(struct channel *c, struct channel_msg *out)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(CHANNEL_FDS_SEEN * sizeof(int))];
	} control;
	struct iovec iov = { c->in, CHANNEL_HEADER_BYTES + c->max + 1 };
	struct msghdr m;
	ssize_t got;
	int fd, rc;

	memset(out, 0, sizeof(*out));
	out->fd = -1;
	if (c->broken)
		return SP_E_PROTO;
	if (c->packed.n > 0)
		return channel_broke(c, channel_unpack(c, out), out);
	memset(&m, 0, sizeof(m));
	m.msg_iov = &iov;
	m.msg_iovlen = 1;
	m.msg_control = control.bytes;
	m.msg_controllen = sizeof(control.bytes);
	do
		got = recvmsg(c->fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_from_errno(errno);
	rc = channel_take_fds(&m, &fd);
	if (rc == SP_OK && got == 0 && fd < 0)
		return SP_E_GONE;
	if (m.msg_flags & MSG_TRUNC)
		rc = SP_E_PROTO;
	if (rc == SP_OK)
		rc = channel_check(c, view_of(c->in, (size_t)got), fd, false,
		    out);
	if (rc == SP_OK && out->type == MESSAGE_PACK) {
		c->packed = out->body;
		rc = channel_unpack(c, out);
	}
	if (rc != SP_OK)
		fd_close(&fd);
	return channel_broke(c, rc, out);
}

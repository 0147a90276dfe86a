/*
 * What a compromised neighbour can send: the input is a row of datagrams
 * (u16 length, then the bytes; a length with the top bit set carries a
 * descriptor), given to a channel of every kind, and each body that gets
 * through is read by the cursor.
 */
#include "config.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/channel.h"
#include "ipc/wire.h"
#include "os/fd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { FUZZ_MESSAGES = 16 };

static void
fuzz_send(int fd, const uint8_t *p, size_t n, int with_fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { (void *)(uintptr_t)p, n };
	struct msghdr m;
	struct cmsghdr *cm;

	memset(&m, 0, sizeof(m));
	m.msg_iov = &iov;
	m.msg_iovlen = 1;
	if (with_fd) {
		memset(&control, 0, sizeof(control));
		m.msg_control = control.bytes;
		m.msg_controllen = sizeof(control.bytes);
		cm = CMSG_FIRSTHDR(&m);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cm), &fd, sizeof(fd));
	}
	(void)!sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void
fuzz_body(struct view body)
{
	struct wire w;
	int turn = 0;

	wire_init(&w, body);
	while (wire_more(&w)) {
		switch (turn++ % 4) {
		case 0:
			(void)wire_u32(&w);
			break;
		case 1:
			(void)wire_bytes(&w);
			break;
		case 2:
			(void)wire_u8(&w);
			break;
		default:
			(void)wire_u64(&w);
			break;
		}
	}
	if (wire_done(&w) == SP_OK && w.n != 0)
		abort();
}

static void
fuzz_channel(unsigned me, unsigned peer, enum message_state state,
    const uint8_t *data, size_t n)
{
	struct channel_msg m;
	struct channel *c;
	size_t len;
	int pair[2], i, with_fd;

	if (fd_seqpacket_pair(pair) != SP_OK)
		return;
	c = channel_new(pair[0], me, peer, 4096);
	if (c == NULL)
		abort();
	channel_set_state(c, state);
	for (i = 0; i < FUZZ_MESSAGES && n >= 2; i++) {
		len = (size_t)(data[0] | (data[1] & 0x7f) << 8);
		with_fd = data[1] >> 7;
		data += 2;
		n -= 2;
		if (len > n)
			len = n;
		fuzz_send(pair[1], data, len, with_fd);
		data += len;
		n -= len;
	}
	fd_close(&pair[1]);
	while (channel_recv(c, &m) == SP_OK) {
		fuzz_body(m.body);
		fd_close(&m.fd);
	}
	channel_free(c);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	fuzz_channel(MESSAGE_HELPER, MESSAGE_REACTOR, MESSAGE_BOOT, data, n);
	fuzz_channel(MESSAGE_REACTOR, MESSAGE_HELPER, MESSAGE_BOOT, data, n);
	fuzz_channel(MESSAGE_RECORDER, MESSAGE_REACTOR, MESSAGE_RUN, data, n);
	fuzz_channel(MESSAGE_REACTOR, MESSAGE_RECORDER, MESSAGE_RUN, data, n);
	return 0;
}

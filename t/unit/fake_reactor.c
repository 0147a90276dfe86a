/*
 * A reactor that does as it is told, for t/sandbox-helper.t: it stands between
 * a test and the helper's channel.  Over the connection that it accepts:
 *   msg TYPE HEX        sends a message as the table has it
 *   fd TYPE HEX HEX     the same with a sealed memfd of that content
 *   raw HEX N           those very bytes, with N descriptors
 *   in HANDLE HEX       to a process's standard input; no HEX: its end;
 *                       or to a socket, by the request that got it
 *   bye                 this process ends
 * and what comes is told, a line each:
 *   msg TYPE HEX FD     FD 1: a descriptor came with it
 *   out HANDLE N HEX    what a process wrote to its stream N; N 9: a socket
 *   eof HANDLE N
 *   file HEX            content of a FILE_DATA, before its msg
 */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "ipc/role.h"
#include "ipc/wire.h"
#include "os/fd.h"
#include "os/poller.h"

enum { STREAMS = 256, LINE_MAX_BYTES = 8 * 1024 * 1024, SOCKET = 9 };

static struct role role;
static struct poller *loop;
static struct poller_fd *helper_handle, *client_handle;
static int client = -1;
static struct buf line_in = BUF_INIT(LINE_MAX_BYTES);

struct stream {
	int fd;
	uint32_t handle;
	unsigned which;
	struct poller_fd *f;
};
static struct stream streams[STREAMS];

static void
tell(const struct buf *b)
{
	struct view v = buf_view(b);

	if (client >= 0 && fd_write_all(client, v.p, v.n) != SP_OK)
		exit(2);
}

static void
put_hex(struct buf *b, const void *p, size_t n)
{
	const unsigned char *c = p;
	size_t i;

	for (i = 0; i < n; i++)
		if (buf_printf(b, "%02x", c[i]) != SP_OK)
			exit(2);
}

static size_t
get_hex(const char *text, unsigned char *out, size_t max)
{
	size_t n = 0;
	unsigned v;

	while (n < max && sscanf(text + 2 * n, "%2x", &v) == 1)
		out[n++] = (unsigned char)v;
	return n;
}

/* ---- streams of processes --------------------------------------------------- */

static void
on_stream(void *arg, unsigned ready)
{
	struct stream *s = arg;
	struct buf b = BUF_INIT(LINE_MAX_BYTES);
	char data[65536];
	ssize_t n = read(s->fd, data, sizeof(data));

	(void)ready;
	if (n > 0) {
		(void)!buf_printf(&b, "out %u %u ", s->handle, s->which);
		put_hex(&b, data, (size_t)n);
	} else {
		(void)!buf_printf(&b, "eof %u %u", s->handle, s->which);
		poller_remove(s->f);
		fd_close(&s->fd);
		s->f = NULL;
	}
	(void)!buf_add_char(&b, '\n');
	tell(&b);
	buf_clear(&b);
}

static void
take_stream(const struct channel_msg *m, int fd)
{
	struct wire w;
	size_t i;

	for (i = 0; i < STREAMS - 1 && streams[i].fd > 0; i++)
		;
	wire_init(&w, m->body);
	(void)wire_u32(&w);
	(void)wire_u32(&w);
	streams[i].fd = fd;
	streams[i].handle = wire_u32(&w);
	streams[i].which =
	    m->type == MESSAGE_PROCESS_STDIO ? wire_u8(&w) : SOCKET;
	if (streams[i].which != 0)
		streams[i].f =
		    poller_add(loop, fd, POLLER_READ, on_stream, &streams[i]);
}

static void
feed(uint32_t handle, const char *hex)
{
	static unsigned char data[1024 * 1024];
	size_t i, n = get_hex(hex, data, sizeof(data));

	for (i = 0; i < STREAMS; i++) {
		struct stream *s = &streams[i];

		if (s->fd <= 0 || s->handle != handle ||
		    (s->which != 0 && s->which != SOCKET))
			continue;
		if (n == 0 && s->which == SOCKET)
			(void)shutdown(s->fd, SHUT_WR);
		else if (n == 0)
			fd_close(&s->fd);
		else
			(void)!write(s->fd, data, n);
	}
}

/* ---- the helper ------------------------------------------------------------- */

static void
tell_file(int fd)
{
	struct buf b = BUF_INIT(LINE_MAX_BYTES);
	static char data[1024 * 1024];
	ssize_t n = pread(fd, data, sizeof(data), 0);

	(void)!buf_add_str(&b, "file ");
	put_hex(&b, data, n > 0 ? (size_t)n : 0);
	(void)!buf_add_char(&b, '\n');
	tell(&b);
	buf_clear(&b);
}

/* Another configuration is as good as any. */
static void
take_over(const struct channel_msg *m)
{
	struct wire w;
	int rc = SP_OK;

	wire_init(&w, m->body);
	if (m->type == MESSAGE_PREPARE)
		rc = role_prepared(&role, wire_u32(&w), VIEW_NONE);
	else if (m->type == MESSAGE_COMMIT)
		rc = role_committed(&role, wire_u32(&w));
	if (rc != SP_OK)
		exit(3);
}

static void
on_helper(void *arg, unsigned ready)
{
	struct channel_msg m;
	struct buf b = BUF_INIT(LINE_MAX_BYTES);
	int rc;

	(void)arg;
	(void)ready;
	(void)!channel_flush(role.helper);
	while ((rc = channel_recv(role.helper, &m)) == SP_OK) {
		if (m.type == MESSAGE_PING) {
			if (role_alive(&role, true) != SP_OK)
				exit(3);
			continue;
		}
		if (m.type == MESSAGE_EPISODE_FILE_DATA)
			tell_file(m.fd);
		buf_reset(&b, LINE_MAX_BYTES);
		(void)!buf_printf(&b, "msg %u ", m.type);
		put_hex(&b, m.body.p, m.body.n);
		(void)!buf_printf(&b, " %d\n", m.fd >= 0);
		tell(&b);
		if (m.type == MESSAGE_PROCESS_STDIO ||
		    (m.type == MESSAGE_EPISODE_CONNECTED && m.fd >= 0))
			take_stream(&m, m.fd);
		else
			fd_close(&m.fd);
		take_over(&m);
		if (m.type == MESSAGE_STOP)
			poller_stop(loop);
		if (m.type == MESSAGE_DRAIN_REQ &&
		    channel_send(role.helper, MESSAGE_DRAINED, VIEW_NONE, -1) !=
			SP_OK)
			exit(3);
	}
	buf_clear(&b);
	if (rc != SP_E_AGAIN)
		exit(3);
}

static void
send_raw(const char *hex, unsigned fds_n)
{
	static unsigned char data[200000];
	union {
		char room[CMSG_SPACE(64 * sizeof(int))];
		struct cmsghdr align;
	} u;
	struct iovec iov = { data, get_hex(hex, data, sizeof(data)) };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;
	unsigned i;
	int fd = STDIN_FILENO;

	if (fds_n > 64)
		fds_n = 64;
	if (fds_n > 0) {
		memset(&u, 0, sizeof(u));
		h.msg_control = u.room;
		h.msg_controllen = CMSG_SPACE(fds_n * sizeof(int));
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fds_n * sizeof(int));
		for (i = 0; i < fds_n; i++)
			memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof(fd));
	}
	(void)!sendmsg(ROLE_CHANNEL_FD, &h, MSG_NOSIGNAL);
}

static void
send_message(unsigned type, const char *hex, const char *content)
{
	static unsigned char body[MESSAGE_CONTROL_MAX], data[2 * 1024 * 1024];
	size_t n = get_hex(hex, body, sizeof(body));
	int fd = -1;

	if (content != NULL &&
	    fd_sealed("t", data, get_hex(content, data, sizeof(data)), &fd) !=
		SP_OK)
		exit(4);
	if (channel_send(role.helper, (enum message_type)type, view_of(body, n),
		fd) != SP_OK)
		exit(4);
}

/* ---- the test --------------------------------------------------------------- */

static char *
next_word(char **rest)
{
	char *word = *rest, *end;

	if (word == NULL || word[0] == 0)
		return NULL;
	end = strchr(word, ' ');
	*rest = end != NULL ? end + 1 : NULL;
	if (end != NULL)
		*end = 0;
	return word;
}

static void
obey(char *line)
{
	char *word = next_word(&line);
	char *a = next_word(&line), *b = next_word(&line);
	char *c = next_word(&line);

	if (word == NULL)
		return;
	if (strcmp(word, "msg") == 0 && a != NULL)
		send_message((unsigned)strtoul(a, NULL, 10), b ? b : "", NULL);
	else if (strcmp(word, "fd") == 0 && c != NULL)
		send_message((unsigned)strtoul(a, NULL, 10),
		    strcmp(b, "-") == 0 ? "" : b, c);
	else if (strcmp(word, "raw") == 0 && b != NULL)
		send_raw(a, (unsigned)strtoul(b, NULL, 10));
	else if (strcmp(word, "in") == 0 && a != NULL)
		feed((uint32_t)strtoul(a, NULL, 10), b ? b : "");
	else if (strcmp(word, "bye") == 0)
		exit(0);
}

static void
on_client(void *arg, unsigned ready)
{
	static char chunk[65536];
	ssize_t n = read(client, chunk, sizeof(chunk));
	struct view all;
	char *line;
	size_t at;

	(void)arg;
	(void)ready;
	if (n <= 0) {
		poller_remove(client_handle);
		client_handle = NULL;
		fd_close(&client);
		return;
	}
	if (buf_add(&line_in, chunk, (size_t)n) != SP_OK)
		exit(5);
	for (;;) {
		all = buf_view(&line_in);
		at = view_find(all, '\n');
		if (at >= all.n)
			return;
		line = mem_strndup(all.p, at);
		if (line == NULL)
			exit(5);
		obey(line);
		mem_free(line);
		buf_consume(&line_in, at + 1);
	}
}

static void
on_listener(void *arg, unsigned ready)
{
	int fd = accept4(*(int *)arg, NULL, NULL, SOCK_CLOEXEC);

	(void)ready;
	if (fd < 0)
		return;
	poller_remove(client_handle);
	fd_close(&client);
	client = fd;
	buf_reset(&line_in, LINE_MAX_BYTES);
	client_handle = poller_add(loop, fd, POLLER_READ, on_client, NULL);
}

int
main(void)
{
	int fd;

	if (role_boot(&role, MESSAGE_REACTOR) != SP_OK || role.listeners_n == 0)
		return 1;
	loop = poller_new();
	fd = role.listeners[0].fd;
	if (loop == NULL || fd_nonblock(fd) != SP_OK ||
	    poller_add(loop, fd, POLLER_READ, on_listener,
		&role.listeners[0].fd) == NULL)
		return 1;
	helper_handle = poller_add(loop, channel_fd(role.helper), POLLER_READ,
	    on_helper, NULL);
	if (helper_handle == NULL || role_ready(&role) != SP_OK)
		return 1;
	return poller_run(loop) == SP_OK ? 0 : 1;
}

#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "init/fdmsg.h"
#include "init/keeper_connect.h"
#include "init/sbox_local.h"
#include "os/fd.h"

enum { CONNECT_CHILD_MS = 2000 }; /* it takes less than one */

/*
 * Begins, and looks once: on loopback what answers has answered by then.  One
 * whose queue is full is still on its way, and whoever gets the socket waits.
 * Returns: 0 or an errno; *out is open with 0.
 */
static int
begin(uint16_t port, int *out)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd, en = 0;
	socklen_t n = sizeof(en);

	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	if ((connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0 &&
		errno != EINPROGRESS) ||
	    getsockopt(fd, SOL_SOCKET, SO_ERROR, &en, &n) != 0)
		en = errno;
	if (en == 0)
		*out = fd;
	else
		fd_close(&fd);
	return en;
}

/*
 * A network namespace is where a socket is made, whoever holds it later: the
 * reactor needs to be in none.  Why a child may go there with all that the
 * keeper can: it changes its network namespace and nothing else, so that no
 * name, path or file of the sandbox's is looked up; the namespace is pid 1's,
 * by a descriptor that nobody inside can exchange; it makes a socket of a kind
 * and to an address that are fixed here, reads nothing that comes over it, and
 * ends.  A child, and not the keeper there and back: in a user namespace the
 * way back is not open, and a keeper that stayed would make what it starts
 * next in the wrong place.
 */
static void __attribute__((noreturn))
child(const struct keeper *k, uint16_t port, int sock)
{
	int fd = -1, en = 0;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	/* a local one has the host's network */
	if (!sbox_local(&k->box) && setns(k->box.init_pidfd, CLONE_NEWNET) != 0)
		en = errno;
	if (en == 0)
		en = begin(port, &fd);
	(void)!fdmsg_send(sock, &en, sizeof(en), fd);
	_exit(0);
}

/* 0 with *out; else an errno. */
static int
await(int sock, int *out)
{
	struct pollfd p = { sock, POLLIN, 0 };
	int n, en = 0;

	do
		n = poll(&p, 1, CONNECT_CHILD_MS);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n == 0 ? ETIMEDOUT : errno;
	if (fdmsg_recv(sock, &en, sizeof(en), out) != SP_OK)
		return ECHILD;
	if (en == 0 && *out < 0)
		return EPROTO;
	return en;
}

static int
connect_inside(const struct keeper *k, uint16_t port, int *out)
{
	int pair[2], en;
	pid_t pid;

	*out = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return errno;
	pid = fork();
	if (pid == 0) {
		fd_close(&pair[0]);
		child(k, port, pair[1]);
	}
	en = pid < 0 ? errno : 0;
	fd_close(&pair[1]);
	if (pid > 0) {
		en = await(pair[0], out);
		/* it has said all, or is never going to */
		(void)kill(pid, SIGKILL);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			continue;
	}
	fd_close(&pair[0]);
	return en;
}

int
keeper_connect_take(struct keeper *k, struct channel_msg *m, struct wire *w)
{
	uint32_t request = wire_u32(w);
	uint16_t port = wire_u16(w);
	struct buf *b;
	int fd = -1, en;

	(void)m;
	if (wire_done(w) != SP_OK || port == 0)
		return SP_E_PROTO;
	en = connect_inside(k, port, &fd);
	b = keeper_body(k);
	if (wire_put_u32(b, request) != SP_OK ||
	    wire_put_u32(b, (uint32_t)en) != SP_OK) {
		fd_close(&fd);
		return SP_E_NOMEM;
	}
	keeper_send(k, MESSAGE_KEEPER_CONNECTED, b, fd);
	return SP_OK;
}

#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <libmnl/libmnl.h>

#include "helper/nl_sock.h"

enum {
	NL_SOCK_ANSWER_MAX = 32 * 1024, /* one datagram of a list */
	NL_SOCK_DATAGRAMS_MAX = 100000, /* of one list */
};

int
nl_sock_fail(struct nl_sock *n, int en)
{
	n->error = en;
	if (en == EAGAIN) /* SO_RCVTIMEO */
		return SP_E_TIMEOUT;
	return en != 0 ? err_from_errno(en) : SP_E_SYS;
}

const char *
nl_sock_why(const struct nl_sock *n, int rc)
{
	return n->error != 0 ? strerror(n->error) : err_str(rc);
}

int
nl_sock_open(struct nl_sock *n, int bus)
{
	struct timeval tv = { NL_SOCK_WAIT_MS / 1000, 0 };
	int on = 1, fd;

	n->seq = 0;
	n->error = 0;
	n->s = mnl_socket_open2(bus, SOCK_CLOEXEC);
	if (n->s == NULL)
		return nl_sock_fail(n, errno);
	fd = mnl_socket_get_fd(n->s);
	if (mnl_socket_bind(n->s, 0, MNL_SOCKET_AUTOPID) != 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) != 0)
		return nl_sock_fail(n, errno);
	/* an error comes back without the request that it is about */
	(void)setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof(on));
	return SP_OK;
}

void
nl_sock_close(struct nl_sock *n)
{
	if (n->s != NULL)
		(void)mnl_socket_close(n->s);
	n->s = NULL;
}

static int
nl_sock_send(struct nl_sock *n, struct nlmsghdr *h, uint16_t flags)
{
	h->nlmsg_flags |= NLM_F_REQUEST | flags;
	h->nlmsg_seq = ++n->seq;
	if (mnl_socket_sendto(n->s, h, h->nlmsg_len) < 0)
		return nl_sock_fail(n, errno);
	return SP_OK;
}

struct nl_sock_walk {
	int (*each)(const struct nlmsghdr *h, void *arg);
	void *arg;
	int rc;
};

static int
nl_sock_on_message(const struct nlmsghdr *h, void *arg)
{
	struct nl_sock_walk *w = arg;

	/* what comes after an error is read, so that the socket is clean */
	if (w->rc == SP_OK && w->each != NULL)
		w->rc = w->each(h, w->arg);
	return MNL_CB_OK;
}

/* Not what came late, for a request that was given up. */
static bool
nl_sock_mine(const struct nl_sock *n, const struct nlmsghdr *h, ssize_t got)
{
	return got >= (ssize_t)sizeof(*h) && mnl_nlmsg_seq_ok(h, n->seq) &&
	    mnl_nlmsg_portid_ok(h, mnl_socket_get_portid(n->s));
}

/* Reads until the acknowledgement, the end of the list, or an error. */
static int
nl_sock_answer(struct nl_sock *n, struct nl_sock_walk *w)
{
	_Alignas(struct nlmsghdr) char mem[NL_SOCK_ANSWER_MAX];
	unsigned port = mnl_socket_get_portid(n->s);
	ssize_t got;
	int i, state;

	for (i = 0; i < NL_SOCK_DATAGRAMS_MAX; i++) {
		got = mnl_socket_recvfrom(n->s, mem, sizeof(mem));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return nl_sock_fail(n, errno);
		if (!nl_sock_mine(n, (const struct nlmsghdr *)mem, got))
			continue;
		state = mnl_cb_run(mem, (size_t)got, n->seq, port,
		    nl_sock_on_message, w);
		if (state < 0)
			return nl_sock_fail(n, errno);
		if (state == MNL_CB_STOP)
			return w->rc;
	}
	return nl_sock_fail(n, EOVERFLOW);
}

int
nl_sock_ask(struct nl_sock *n, struct nlmsghdr *h)
{
	return nl_sock_get(n, h, NULL, NULL);
}

int
nl_sock_get(struct nl_sock *n, struct nlmsghdr *h,
    int (*each)(const struct nlmsghdr *h, void *arg), void *arg)
{
	struct nl_sock_walk w = { each, arg, SP_OK };
	int rc = nl_sock_send(n, h, NLM_F_ACK);

	return rc != SP_OK ? rc : nl_sock_answer(n, &w);
}

int
nl_sock_list(struct nl_sock *n, struct nlmsghdr *h,
    int (*each)(const struct nlmsghdr *h, void *arg), void *arg)
{
	struct nl_sock_walk w = { each, arg, SP_OK };
	int rc = nl_sock_send(n, h, NLM_F_DUMP);

	return rc != SP_OK ? rc : nl_sock_answer(n, &w);
}

#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <libmnl/libmnl.h>
#include <libnetfilter_log/libnetfilter_log.h>

#include "helper/nl_log.h"
#include "os/fd.h"

struct nl_log_msg {
	_Alignas(struct nlmsghdr) char mem[256];
};

static struct nlmsghdr *
nl_log_begin(struct nl_log_msg *m, uint16_t group)
{
	return nflog_nlmsg_put_header(m->mem, NFULNL_MSG_CONFIG, AF_UNSPEC,
	    group);
}

/*
 * A group with an owner is EPERM here, as is a lack of the capability; but
 * whoever lacks it could not have made a namespace.
 */
static int
nl_log_bind(struct nl_sock *n, uint16_t group)
{
	struct nl_log_msg m;
	struct nlmsghdr *h = nl_log_begin(&m, group);
	int rc;

	if (nflog_attr_put_cfg_cmd(h, NFULNL_CFG_CMD_BIND) != 0)
		return SP_E_LIMIT;
	rc = nl_sock_ask(n, h);
	if (rc == SP_E_STATE || rc == SP_E_DENIED)
		return SP_E_EXISTS;
	/* nobody listens to this subsystem */
	return n->error == EINVAL ? SP_E_UNSUPPORTED : rc;
}

static int
nl_log_configure(struct nl_sock *n, uint16_t group)
{
	struct nl_log_msg m;
	struct nlmsghdr *h = nl_log_begin(&m, group);

	if (nflog_attr_put_cfg_mode(h, NFULNL_COPY_PACKET, NL_LOG_COPY_BYTES) !=
	    0)
		return SP_E_LIMIT;
	mnl_attr_put_u32(h, NFULA_CFG_QTHRESH, htonl(1));
	mnl_attr_put_u16(h, NFULA_CFG_FLAGS, htons(NFULNL_CFG_F_SEQ));
	return nl_sock_ask(n, h);
}

/* Without SO_RCVTIMEO's help from here on: the reader polls. */
static int
nl_log_finish(struct nl_sock *n, int *fd)
{
	int size = NL_LOG_BUFFER_BYTES, mine = mnl_socket_get_fd(n->s);

	if (setsockopt(mine, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) !=
		0 &&
	    setsockopt(mine, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) != 0)
		return nl_sock_fail(n, errno);
	*fd = fcntl(mine, F_DUPFD_CLOEXEC, 3);
	if (*fd < 0)
		return nl_sock_fail(n, errno);
	if (fd_nonblock(*fd) != SP_OK) {
		fd_close(fd);
		return SP_E_SYS;
	}
	return SP_OK;
}

int
nl_log_open(uint16_t group, int *fd, int *error)
{
	struct nl_sock n;
	int rc;

	*fd = -1;
	rc = nl_sock_open(&n, NETLINK_NETFILTER);
	if (rc == SP_OK)
		rc = nl_log_bind(&n, group);
	if (rc == SP_OK)
		rc = nl_log_configure(&n, group);
	if (rc == SP_OK)
		rc = nl_log_finish(&n, fd);
	*error = n.error;
	nl_sock_close(&n);
	return rc;
}

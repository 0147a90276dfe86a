#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "init/fdmsg.h"
#include "os/fd.h"

union fdmsg_control {
	struct cmsghdr head;
	char space[CMSG_SPACE(sizeof(int))];
};

int
fdmsg_send(int sock, const void *p, size_t n, int fd)
{
	struct iovec v = { (void *)(uintptr_t)p, n };
	union fdmsg_control control;
	struct msghdr m;
	ssize_t sent;

	memset(&m, 0, sizeof(m));
	m.msg_iov = &v;
	m.msg_iovlen = 1;
	if (fd >= 0) {
		memset(&control, 0, sizeof(control));
		m.msg_control = &control;
		m.msg_controllen = sizeof(control.space);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	}
	do
		sent = sendmsg(sock, &m, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? err_from_errno(errno) : SP_OK;
}

int
fdmsg_recv(int sock, void *p, size_t n, int *fd)
{
	struct iovec v = { p, n };
	union fdmsg_control control;
	struct msghdr m;
	ssize_t got;

	*fd = -1;
	memset(&m, 0, sizeof(m));
	m.msg_iov = &v;
	m.msg_iovlen = 1;
	m.msg_control = &control;
	m.msg_controllen = sizeof(control.space);
	do
		got = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_from_errno(errno);
	if (got == 0)
		return SP_E_EOF;
	if (m.msg_controllen >= CMSG_LEN(sizeof(int)) &&
	    control.head.cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(&control.head), sizeof(*fd));
	if ((size_t)got != n || (m.msg_flags & MSG_TRUNC)) {
		fd_close(fd);
		return SP_E_PROTO;
	}
	return SP_OK;
}

#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/num.h"
#include "helper/activate.h"
#include "helper/complain.h"
#include "os/fd.h"
#include "os/sock.h"

static struct {
	int fd;
	bool taken;
} passed[ACTIVATE_MAX];
static size_t passed_n;

/* How many; 0 when they are not for this process. */
static int
activate_count(size_t *n)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
	uint64_t v;

	*n = 0;
	if (pid == NULL || fds == NULL ||
	    num_u64(view_str(pid), 1, INT32_MAX, &v) != SP_OK ||
	    v != (uint64_t)getpid())
		return SP_OK;
	if (num_u64(view_str(fds), 0, ACTIVATE_MAX, &v) != SP_OK)
		return SP_E_ARG;
	*n = (size_t)v;
	return SP_OK;
}

int
activate_begin(void)
{
	size_t i, n;
	int fd, rc;

	rc = activate_count(&n);
	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
	if (rc == SP_OK)
		rc = fd_close_from(ACTIVATE_FIRST_FD + (int)n);
	for (i = 0; i < n && rc == SP_OK; i++) {
		fd = fcntl(ACTIVATE_FIRST_FD + (int)i, F_DUPFD_CLOEXEC,
		    ACTIVATE_FIRST_FD + (int)n + 1);
		if (fd < 0)
			return errno == EBADF ? SP_E_ARG : SP_E_SYS;
		passed[passed_n++].fd = fd;
	}
	for (i = 0; i < n && rc == SP_OK; i++) {
		fd = ACTIVATE_FIRST_FD + (int)i;
		fd_close(&fd);
	}
	return rc;
}

static bool
activate_is_ip(const struct conf_listen *l, const struct sockaddr_storage *sa)
{
	const struct sockaddr_in *in = (const void *)sa;
	const struct sockaddr_in6 *in6 = (const void *)sa;
	struct view a =
	    view_eq(l->address, VIEW("*")) ? VIEW("0.0.0.0") : l->address;
	char text[INET6_ADDRSTRLEN];
	unsigned char want[16];

	if (l->is_unix || a.n >= sizeof(text))
		return false;
	if (a.n > 2 && a.p[0] == '[')
		a = view_sub(a, 1, a.n - 2);
	memcpy(text, a.p, a.n);
	text[a.n] = '\0';
	if (sa->ss_family == AF_INET)
		return ntohs(in->sin_port) == l->port &&
		    inet_pton(AF_INET, text, want) == 1 &&
		    memcmp(&in->sin_addr, want, 4) == 0;
	return sa->ss_family == AF_INET6 && ntohs(in6->sin6_port) == l->port &&
	    inet_pton(AF_INET6, text, want) == 1 &&
	    memcmp(&in6->sin6_addr, want, 16) == 0;
}

static bool
activate_is(const struct conf_listen *l, int fd)
{
	struct sockaddr_storage sa;
	socklen_t n = sizeof(sa);
	struct buf name = BUF_INIT(256);
	bool same = false;

	memset(&sa, 0, sizeof(sa));
	if (getsockname(fd, (struct sockaddr *)&sa, &n) != 0)
		return false;
	if (sa.ss_family != AF_UNIX)
		return activate_is_ip(l, &sa);
	if (l->is_unix && sock_name(fd, &name) == SP_OK &&
	    view_starts(buf_view(&name), VIEW("unix:")))
		same = view_eq(view_from(buf_view(&name), 5), l->address);
	buf_clear(&name);
	return same;
}

int
activate_take(const struct conf_listen *l)
{
	size_t i;
	int fd;

	for (i = 0; i < passed_n; i++) {
		if (!activate_is(l, passed[i].fd))
			continue;
		fd = fcntl(passed[i].fd, F_DUPFD_CLOEXEC, ACTIVATE_FIRST_FD);
		if (fd >= 0 && fd_nonblock(fd) != SP_OK)
			fd_close(&fd);
		passed[i].taken = fd >= 0;
		return fd;
	}
	return -1;
}

static bool
activate_listens(int fd)
{
	int on = 0, type = 0;
	socklen_t n = sizeof(on);

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &n) != 0 || !on)
		return false;
	n = sizeof(type);
	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 &&
	    type == SOCK_STREAM;
}

int
activate_check(void)
{
	struct buf name = BUF_INIT(256);
	int rc = SP_OK;
	size_t i;

	for (i = 0; i < passed_n; i++) {
		buf_reset(&name, SIZE_MAX);
		if (sock_name(passed[i].fd, &name) != SP_OK &&
		    buf_printf(&name, "number %zu", i) != SP_OK)
			break;
		if (!activate_listens(passed[i].fd)) {
			complain("sallyport: the socket that was passed "
				 "(LISTEN_FDS) as %.*s does not listen for "
				 "streams; expected ListenStream= and "
				 "Accept=no",
			    VIEW_ARG(buf_view(&name)));
			rc = SP_E_CONF;
		} else if (!passed[i].taken) {
			complain("sallyport: a socket was passed (LISTEN_FDS) "
				 "for %.*s, where no server listens; expected "
				 "a \"listen\" of that address, or no such "
				 "ListenStream=",
			    VIEW_ARG(buf_view(&name)));
			rc = SP_E_CONF;
		}
	}
	buf_clear(&name);
	return rc;
}

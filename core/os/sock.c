#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/fd.h"
#include "os/sock.h"

union sock_addr {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_un un;
};

/* How one is opened. */
struct sock_listen {
	int backlog;
	gid_t group; /* of a path */
	const char **step; /* the call that failed */
};

static int
sock_parse(struct view address, uint16_t port, union sock_addr *a, socklen_t *n)
{
	char text[INET6_ADDRSTRLEN + 1];

	memset(a, 0, sizeof(*a));
	if (view_eq(address, VIEW("*")))
		address = VIEW("0.0.0.0");
	if (address.n >= 2 && address.p[0] == '[' &&
	    address.p[address.n - 1] == ']')
		address = view_sub(address, 1, address.n - 2);
	if (address.n == 0 || address.n >= sizeof(text))
		return SP_E_ARG;
	memcpy(text, address.p, address.n);
	text[address.n] = 0;
	if (inet_pton(AF_INET, text, &a->v4.sin_addr) == 1) {
		a->v4.sin_family = AF_INET;
		a->v4.sin_port = htons(port);
		*n = sizeof(a->v4);
		return SP_OK;
	}
	if (inet_pton(AF_INET6, text, &a->v6.sin6_addr) == 1) {
		a->v6.sin6_family = AF_INET6;
		a->v6.sin6_port = htons(port);
		*n = sizeof(a->v6);
		return SP_OK;
	}
	return SP_E_ARG;
}

/*
 * Gives the socket at that path to a group, before anybody can connect.  Safe:
 * what is changed is a socket of this user, looked at through a descriptor
 * that follows no symlink, so what else is put there meanwhile stays as it is.
 */
static int
sock_give(const char *path, gid_t group)
{
	struct stat st;
	int fd, rc = SP_OK;

	fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_from_errno(errno);
	if (fstat(fd, &st) != 0)
		rc = err_from_errno(errno);
	else if (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid())
		rc = SP_E_EXISTS;
	if (rc == SP_OK &&
	    fchownat(fd, "", (uid_t)-1, group, AT_EMPTY_PATH) != 0)
		rc = err_from_errno(errno);
	fd_close(&fd);
	return rc;
}

static int
sock_start(int fd, const union sock_addr *a, socklen_t n,
    const struct sock_listen *how)
{
	int on = 1, rc = SP_OK;

	*how->step = "setsockopt";
	if (a->any.sa_family != AF_UNIX &&
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0)
		return err_from_errno(errno);
	if (a->any.sa_family == AF_INET6 &&
	    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) != 0)
		return err_from_errno(errno);
	*how->step = "bind";
	if (bind(fd, &a->any, n) != 0)
		return err_from_errno(errno);
	*how->step = "chown";
	if (how->group != SOCK_NO_GROUP)
		rc = sock_give(a->un.sun_path, how->group);
	if (rc != SP_OK)
		return rc;
	*how->step = "listen";
	return listen(fd, how->backlog) == 0 ? SP_OK : err_from_errno(errno);
}

static int
sock_open(const union sock_addr *a, socklen_t n, const struct sock_listen *how,
    int *out)
{
	int fd, rc;

	*how->step = "socket";
	fd = socket(a->any.sa_family,
	    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_from_errno(errno);
	rc = sock_start(fd, a, n, how);
	if (rc == SP_OK)
		*out = fd;
	else
		fd_close(&fd);
	return rc;
}

int
sock_listen_tcp(struct view address, uint16_t port, int backlog, int *out,
    const char **step)
{
	const struct sock_listen how = { backlog, SOCK_NO_GROUP, step };
	union sock_addr a;
	socklen_t n;
	int rc;

	*step = "address";
	rc = sock_parse(address, port, &a, &n);
	if (rc != SP_OK)
		return rc;
	return sock_open(&a, n, &how, out);
}

/*
 * Makes room for a socket at that path.  Safe against whoever can write the
 * directory: the path is the operator's; only a socket that this user made
 * and on which nobody listens is removed, and unlink(2) follows no symlink,
 * so a swap between look and removal costs at most another entry of that same
 * directory, which its writer could remove anyway.
 */
static int
sock_clear_stale(const union sock_addr *a, socklen_t n)
{
	struct stat st;
	int fd, rc;

	if (lstat(a->un.sun_path, &st) != 0)
		return errno == ENOENT ? SP_OK : err_from_errno(errno);
	if (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid())
		return SP_E_EXISTS;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_from_errno(errno);
	rc = SP_E_EXISTS; /* taken, or busy */
	if (connect(fd, &a->any, n) != 0 && errno == ECONNREFUSED)
		rc = SP_OK;
	fd_close(&fd);
	if (rc == SP_OK && unlink(a->un.sun_path) != 0 && errno != ENOENT)
		rc = err_from_errno(errno);
	return rc;
}

/* The permissions come by umask: a chmod(2) would follow what is put there. */
static int
sock_listen_path(struct view path, mode_t mask, const struct sock_listen *how,
    int *out)
{
	union sock_addr a;
	socklen_t n;
	mode_t old;
	int rc;

	memset(&a, 0, sizeof(a));
	*how->step = "path";
	if (path.n == 0 || path.n >= sizeof(a.un.sun_path) ||
	    path.p[0] != '/' || memchr(path.p, 0, path.n) != NULL)
		return SP_E_ARG;
	a.un.sun_family = AF_UNIX;
	memcpy(a.un.sun_path, path.p, path.n);
	n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path.n + 1);
	*how->step = "path in use";
	rc = sock_clear_stale(&a, n);
	if (rc != SP_OK)
		return rc;
	old = umask(mask);
	rc = sock_open(&a, n, how, out);
	umask(old);
	return rc;
}

int
sock_listen_unix(struct view path, int backlog, int *out, const char **step)
{
	const struct sock_listen how = { backlog, SOCK_NO_GROUP, step };

	return sock_listen_path(path, 0111, &how, out);
}

int
sock_listen_private(struct view path, gid_t group, int backlog, int *out,
    const char **step)
{
	const struct sock_listen how = { backlog, group, step };

	return sock_listen_path(path, group != SOCK_NO_GROUP ? 0117 : 0177,
	    &how, out);
}

static int
sock_local(int fd, union sock_addr *a)
{
	socklen_t n = sizeof(*a);

	memset(a, 0, sizeof(*a));
	if (getsockname(fd, &a->any, &n) != 0)
		return err_from_errno(errno);
	return SP_OK;
}

void
sock_unlink(int fd)
{
	union sock_addr a;
	struct stat st;

	if (sock_local(fd, &a) != SP_OK || a.any.sa_family != AF_UNIX ||
	    a.un.sun_path[0] != '/')
		return;
	if (lstat(a.un.sun_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
	    st.st_uid == geteuid())
		(void)unlink(a.un.sun_path);
}

int
sock_name(int fd, struct buf *out)
{
	char text[INET6_ADDRSTRLEN];
	union sock_addr a;
	int rc;

	rc = sock_local(fd, &a);
	if (rc != SP_OK)
		return rc;
	switch (a.any.sa_family) {
	case AF_INET:
		if (inet_ntop(AF_INET, &a.v4.sin_addr, text, sizeof(text)) ==
		    NULL)
			return SP_E_SYS;
		return buf_printf(out, "%s:%u", text, ntohs(a.v4.sin_port));
	case AF_INET6:
		if (inet_ntop(AF_INET6, &a.v6.sin6_addr, text, sizeof(text)) ==
		    NULL)
			return SP_E_SYS;
		return buf_printf(out, "[%s]:%u", text, ntohs(a.v6.sin6_port));
	case AF_UNIX:
		return buf_printf(out, "unix:%s", a.un.sun_path);
	default:
		return SP_E_ARG;
	}
}

int
sock_peer_ip(int fd, uint8_t out[16], size_t *n)
{
	union sock_addr a;
	socklen_t len = sizeof(a);

	memset(&a, 0, sizeof(a));
	if (getpeername(fd, &a.any, &len) == -1)
		return SP_E_SYS;
	switch (a.any.sa_family) {
	case AF_INET:
		*n = sizeof(a.v4.sin_addr);
		memcpy(out, &a.v4.sin_addr, *n);
		return SP_OK;
	case AF_INET6:
		*n = sizeof(a.v6.sin6_addr);
		memcpy(out, &a.v6.sin6_addr, *n);
		return SP_OK;
	default:
		return SP_E_UNSUPPORTED;
	}
}

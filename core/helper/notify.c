#include "config.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"
#include "helper/notify.h"
#include "os/fd.h"

void
notify_send(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un a;
	socklen_t n;
	int fd;

	if (path == NULL || (path[0] != '/' && path[0] != '@') ||
	    strlen(path) >= sizeof(a.sun_path))
		return;
	memset(&a, 0, sizeof(a));
	a.sun_family = AF_UNIX;
	memcpy(a.sun_path, path, strlen(path));
	if (path[0] == '@')
		a.sun_path[0] = 0;
	n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	(void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL,
	    (struct sockaddr *)&a, n);
	fd_close(&fd);
}

void
notify_reloading(void)
{
	char text[80];

	(void)snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
	    (unsigned long long)clock_us());
	notify_send(text);
}

uint64_t
notify_watchdog_ms(void)
{
	const char *usec = getenv("WATCHDOG_USEC"),
		   *pid = getenv("WATCHDOG_PID");
	uint64_t v;

	if (pid != NULL &&
	    (num_u64(view_str(pid), 1, INT32_MAX, &v) != SP_OK ||
		v != (uint64_t)getpid()))
		return 0;
	if (usec == NULL ||
	    num_u64(view_str(usec), 1, UINT64_MAX / 2, &v) != SP_OK)
		return 0;
	return v / 1000;
}

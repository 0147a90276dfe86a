#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl/ctl_start.h"

enum { EXIT_USAGE = 2 };

static const char program[] = "sallyport-trace";

static void
start_in(const char *dir, char **argv)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/%s", dir, program);

	if (n > 0 && (size_t)n < sizeof(path))
		(void)execv(path, argv);
}

int
ctl_start_trace(int argc, char **argv)
{
	char exe[PATH_MAX];
	char *slash;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	(void)argc;
	if (n > 0) {
		exe[n] = 0;
		slash = strrchr(exe, '/');
		if (slash != NULL) {
			*slash = 0;
			start_in(exe, argv);
		}
	}
	start_in(SP_LIBEXECDIR, argv);
	(void)fprintf(stderr,
	    "sallyportctl: %s is neither in %s nor beside sallyportctl, or "
	    "cannot be started: %s; expected a complete installation\n",
	    program, SP_LIBEXECDIR, strerror(errno));
	return EXIT_USAGE;
}

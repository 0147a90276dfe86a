/* sallyportctl: the command line beside the daemon. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "ctl/ctl_env.h"
#include "ctl/ctl_episodes.h"
#include "ctl/ctl_exec.h"
#include "ctl/ctl_sessions.h"
#include "ctl/ctl_socket.h"
#include "ctl/ctl_start.h"
#include "ctl/ctl_status.h"
#include "ctl/ctl_trace_usage.h"
#include "ctl/ctl_upstream.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *usage; /* NULL: told with the one before */
} commands[] = {
	{ "trace", ctl_start_trace, ctl_trace_usage },
	{ "sessions", ctl_sessions, ctl_sessions_usage },
	{ "upstream", ctl_upstream, ctl_upstream_usage },
	{ "exec", ctl_exec, ctl_exec_usage },
	{ "episodes", ctl_episodes, ctl_episodes_usage },
	{ "reset", ctl_episodes, NULL },
	{ "freeze", ctl_episodes, NULL },
	{ "thaw", ctl_episodes, NULL },
	{ "end", ctl_episodes, NULL },
	{ "diff", ctl_episodes, NULL },
	{ "grade", ctl_episodes, NULL },
	{ "read", ctl_episodes, NULL },
	{ "put", ctl_episodes, NULL },
	{ "events", ctl_episodes, NULL },
	{ "worker", ctl_episodes, NULL },
	{ "logs", ctl_episodes, NULL },
	{ "env", ctl_env, ctl_env_usage },
	{ "status", ctl_status, ctl_status_usage },
	{ "guarantees", ctl_status_guarantees, NULL },
};

enum { EXIT_USAGE = 2 };

static void
usage(FILE *out)
{
	size_t i;

	(void)fputs("usage: sallyportctl [-S SOCKET] COMMAND ...\n"
		    "       sallyportctl -V\n",
	    out);
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (commands[i].usage != NULL)
			(void)fputs(commands[i].usage, out);
}

int
main(int argc, char **argv)
{
	size_t i;

	if (argc > 2 && strcmp(argv[1], "-S") == 0) {
		ctl_socket_set(argv[2]);
		argc -= 2;
		argv += 2;
	}
	if (argc < 2) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "-V") == 0) {
		(void)printf("sallyportctl %s\n", PACKAGE_VERSION);
		return 0;
	}
	if (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0) {
		usage(stdout);
		return 0;
	}
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	(void)fprintf(stderr,
	    "sallyportctl: no command \"%s\"; expected one of:\n", argv[1]);
	usage(stderr);
	return EXIT_USAGE;
}

/* The command line of sallyport(8). */
#ifndef SP_HELPER_CLI_H
#define SP_HELPER_CLI_H

#include <stdbool.h>

#include "base/err.h"
#include "helper/manifestcmd.h"
#include "helper/proxycmd.h"

enum cli_action {
	CLI_RUN,
	CLI_CHECK, /* -t */
	CLI_DUMP, /* -T */
	CLI_MODULES, /* -M */
	CLI_VERSION, /* -V */
	CLI_SIGNAL, /* -s */
	CLI_HELP, /* -h, already printed */
	CLI_MANIFEST, /* -m */
};

struct cli {
	enum cli_action action;
	const char *conf_path; /* -c */
	const char *extra; /* -g */
	int signo; /* of -s */
	const char *signal_name;
	bool is_proxy;
	struct proxycmd proxy;
	bool is_manifest;
	struct manifestcmd manifest;
};

/*
 * Context: first thing; complaints go to standard error.
 * Parameters: privileged, started as root.
 * Owner:   cli_clear(), also after a failure.
 * Returns: 0; SP_E_ARG after a complaint; SP_E_NOMEM.
 */
int cli_parse(struct cli *cli, int argc, char **argv,
    bool privileged) must_check;
void cli_clear(struct cli *cli);

#endif

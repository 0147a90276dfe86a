#include "config.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "helper/cli.h"

static void
cli_usage(FILE *to)
{
	fputs("usage: sallyport [-hMTtV] [-c file] [-g directives]\n"
	      "                 [-s stop | drain | reload | reopen]\n"
	      "       sallyport [-Tt] [-g directives] proxy URL [flags]\n"
	      "       sallyport [-Tt] [-g directives] --manifest FILE [flags]\n"
	      "       sallyport -m FILE [flags]\n"
	      "See sallyport(8); \"sallyport proxy --help\" and \"sallyport "
	      "--manifest FILE\n--help\" list their flags.\n",
	    to);
}

static int
cli_signal(struct cli *cli, const char *name)
{
	static const struct {
		const char *name;
		int signo;
	} signals[] = {
		{ "stop", SIGQUIT },
		{ "drain", SIGTERM },
		{ "reload", SIGHUP },
		{ "reopen", SIGUSR1 },
	};
	size_t i;

	for (i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		if (strcmp(name, signals[i].name) != 0)
			continue;
		cli->signo = signals[i].signo;
		cli->signal_name = signals[i].name;
		return SP_OK;
	}
	fprintf(stderr,
	    "sallyport: bad value \"%.100s\" for -s; expected stop, drain, "
	    "reload or reopen\n",
	    name);
	return SP_E_ARG;
}

static int
cli_action(struct cli *cli, enum cli_action action)
{
	if (cli->action != CLI_RUN && cli->action != action) {
		fputs("sallyport: one of -h, -M, -s, -T, -t and -V at a "
		      "time\n",
		    stderr);
		return SP_E_ARG;
	}
	cli->action = action;
	return SP_OK;
}

static int
cli_option(struct cli *cli, int opt)
{
	int rc;

	switch (opt) {
	case 'c':
		cli->conf_path = optarg;
		return SP_OK;
	case 'g':
		cli->extra = optarg;
		return SP_OK;
	case 'h':
		cli_usage(stdout);
		return cli_action(cli, CLI_HELP);
	case 'M':
		return cli_action(cli, CLI_MODULES);
	case 's':
		rc = cli_signal(cli, optarg);
		return rc == SP_OK ? cli_action(cli, CLI_SIGNAL) : rc;
	case 'T':
		return cli_action(cli, CLI_DUMP);
	case 't':
		return cli_action(cli, CLI_CHECK);
	case 'V':
		return cli_action(cli, CLI_VERSION);
	default:
		cli_usage(stderr);
		return SP_E_ARG;
	}
}

static int
cli_proxy(struct cli *cli, int argc, char **argv, bool privileged)
{
	int rc;

	if (cli->conf_path != NULL) {
		fputs("sallyport: proxy makes its own configuration; expected "
		      "no -c with it\n",
		    stderr);
		return SP_E_ARG;
	}
	cli->is_proxy = true;
	rc = proxycmd_parse(&cli->proxy, argc, argv, privileged);
	if (rc == SP_E_NOTFOUND)
		return cli_action(cli, CLI_HELP);
	return rc;
}

static int
cli_manifest(struct cli *cli, int argc, char **argv)
{
	static const enum cli_action actions[] = {
		[MANIFESTCMD_RUN] = CLI_RUN,
		[MANIFESTCMD_PRINT] = CLI_MANIFEST,
		[MANIFESTCMD_CHECK] = CLI_CHECK,
		[MANIFESTCMD_DUMP] = CLI_DUMP,
	};
	int rc = manifestcmd_parse(&cli->manifest, argc, argv);

	cli->is_manifest = true;
	if (rc == SP_E_NOTFOUND)
		return cli_action(cli, CLI_HELP);
	if (rc != SP_OK)
		return rc;
	cli->extra = cli->manifest.extra;
	return cli_action(cli, actions[cli->manifest.what]);
}

int
cli_parse(struct cli *cli, int argc, char **argv, bool privileged)
{
	static const struct option longs[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	int opt, rc = SP_OK;

	memset(cli, 0, sizeof(*cli));
	if (manifestcmd_asked(argc, argv))
		return cli_manifest(cli, argc, argv);
	/* "+": what follows `proxy` is proxy's */
	while (rc == SP_OK &&
	    (opt = getopt_long(argc, argv, "+c:g:hMs:TtV", longs, NULL)) != -1)
		rc = cli_option(cli, opt);
	if (rc != SP_OK || optind >= argc)
		return rc;
	if (strcmp(argv[optind], "proxy") == 0)
		return cli_proxy(cli, argc - optind, argv + optind, privileged);
	fprintf(stderr,
	    "sallyport: unknown command \"%.100s\"; expected proxy\n",
	    argv[optind]);
	cli_usage(stderr);
	return SP_E_ARG;
}

void
cli_clear(struct cli *cli)
{
	proxycmd_clear(&cli->proxy);
	manifestcmd_clear(&cli->manifest);
}

/*
 * sallyport-init: keeper of one sandbox, and, forked from it, pid 1 in it.
 * It parses the helper's messages, and nothing that a workload wrote.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "init/keeper.h"
#include "init/sbox_filter_rows.h"
#include "ipc/role.h"

/* As role_boot() does it for the others, whose messages are not the keeper's. */
static int
begin(void)
{
	(void)signal(SIGTERM, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	(void)signal(SIGPIPE, SIG_IGN);
	/* what it makes is the sandbox's to enter and to read */
	umask(022);
	/*
	 * Before anything is made: when the helper died before this line, the
	 * channel is at its end.
	 */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
		return SP_E_SYS;
	/*
	 * Secrets of the spec's environment.  Not as an ordinary user, who
	 * could then not write the maps of a user namespace.
	 */
	if (geteuid() == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
		return SP_E_SYS;
	return SP_OK;
}

int
main(int argc, char **argv)
{
	int rc;

	log_init("keeper");
	if (argc == 2 && strcmp(argv[1], "-F") == 0)
		return sbox_filter_rows_print(stdout) == SP_OK ? 0 : 1;
	if (argc > 1) {
		(void)fprintf(stderr,
		    "usage: sallyport-init -F (prints the system calls that a "
		    "sandbox refuses)\nsallyport starts it for itself.\n");
		return 2;
	}
	rc = begin();
	if (rc == SP_OK)
		rc = keeper_main(ROLE_CHANNEL_FD);
	if (rc != SP_OK)
		log_error("keeper: %s", err_str(rc));
	return rc == SP_OK ? 0 : 1;
}

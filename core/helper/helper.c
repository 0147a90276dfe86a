/* sallyport(8): the helper and parent of the other programs. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/mem.h"
#include "helper/activate.h"
#include "helper/check.h"
#include "helper/cli.h"
#include "helper/complain.h"
#include "helper/episodes.h"
#include "helper/ids.h"
#include "helper/load.h"
#include "helper/outcome.h"
#include "helper/reload.h"
#include "helper/rolerun.h"
#include "helper/secrets.h"
#include "helper/show.h"
#include "helper/site.h"
#include "helper/supervisor.h"
#include "os/fd.h"
#include "os/spawn.h"

/*
 * Descriptors 0 to 3 are taken before anything else is opened: what a caller
 * left closed must not become a log or a listener, and 3 is where a role
 * finds its channel.
 */
static int
helper_reserve_fds(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return -1;
	} while (fd <= SPAWN_CHANNEL_FD);
	fd_close(&fd);
	return 0;
}

/* As a child that was ignored, or a blocked signal, would never be heard of. */
static void
helper_signals(void)
{
	sigset_t none;
	int i;

	for (i = 1; i < NSIG; i++)
		if (i != SIGKILL && i != SIGSTOP)
			(void)signal(i, SIG_DFL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
}

/*
 * What a caller may have left behind: descriptors, an open umask, ignored or
 * blocked signals.  The helper's memory holds every secret: no core file, and
 * no other process of the same user may trace it.
 */
static int
helper_begin(void)
{
	/* a workload's is 1: core(5), of a core_pattern that is a pipe */
	struct rlimit none = { 1, 1 };

	if (activate_begin() != SP_OK || helper_reserve_fds() != 0)
		return -1;
	helper_signals();
	umask(022);
	(void)setrlimit(RLIMIT_CORE, &none);
#if SP_CONFINEMENT
	(void)prctl(PR_SET_DUMPABLE, 0);
#endif
	return 0;
}

static void
helper_log(const struct conf *conf, const struct site *site)
{
	log_set_level((enum log_level)conf->main.error_level);
	if (view_eq(conf->main.error_log, VIEW("syslog")))
		log_set_syslog(true);
	else if (site != NULL && site->error_fd >= 0)
		log_set_fd(site->error_fd);
}

enum { HELPER_FILES = 65536 };

/*
 * Of an ordinary user descriptors that are under way in sockets count for all
 * its processes together, and who is over its own bound sends none.  The
 * workload is such a process, too, with a bound well below this.
 */
static void
helper_take_files(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) != 0 || rl.rlim_cur >= HELPER_FILES)
		return;
	rl.rlim_cur = rl.rlim_max < HELPER_FILES ? rl.rlim_max : HELPER_FILES;
	(void)setrlimit(RLIMIT_NOFILE, &rl);
}

static void
helper_notice_files(const struct conf *conf)
{
	uint64_t wanted = rolerun_files(conf, MESSAGE_REACTOR);
	uint64_t got = spawn_files(wanted);

	if (got < wanted)
		log_notice("the hard limit of open files is %llu, %llu are "
			   "wanted for %llu connections: fewer will fit",
		    (unsigned long long)got, (unsigned long long)wanted,
		    (unsigned long long)conf->main.connections);
}

static int
helper_serve(struct rolerun_world *w, struct reload *r)
{
	const struct conf *conf = r->now.load.conf;

	ids_notice(w->ids, conf);
	helper_take_files();
	helper_notice_files(conf);
	r->last = 1;
	w->now = (struct rolerun_generation){
		.number = r->last,
		.conf = conf,
		.secrets = &r->now.secrets,
		.cas = &r->now.cas,
		.set = &w->site->set,
		.conf_fd = r->now.conf_fd,
	};
	return supervisor_run(w, r);
}

/* What stands between episodes and this host; blocks. */
static int
helper_episodes(struct rolerun_world *w, const struct reload_state *st,
    const struct site *site, const struct ids *ids)
{
	struct episodes_world ew = {
		.conf = st->load.conf,
		.program_dir = w->dir,
		.state_fd = site->state_fd,
		.privileged = ids->change,
		.ids = ids,
	};

	return episodes_open(&w->episodes, &ew);
}

/* l is taken. */
static int
helper_run(struct load *l, const struct load_source *src, struct cli *cli)
{
	struct rolerun_world w;
	struct reload r;
	struct site site;
	struct ids ids;
	int status = 1, rc;

	memset(&w, 0, sizeof(w));
	memset(&r, 0, sizeof(r));
	memset(&site, 0, sizeof(site));
	site.state_fd = site.lock_fd = site.key_fd = site.root_fd = -1;
	site.error_fd = site.access_fd = -1;
	r.source = src;
	r.now.load = *l;
	r.now.conf_fd = r.next.conf_fd = -1;
	memset(l, 0, sizeof(*l));
	if (cli->is_proxy)
		proxycmd_begin(&cli->proxy);
	rc = rolerun_find(&w);
	if (rc == SP_OK)
		rc = ids_resolve(&ids, r.now.load.conf);
	if (rc == SP_OK)
		rc = reload_state_read(&r.now, NULL);
	if (rc == SP_OK)
		rc = site_open(&site, r.now.load.conf, &ids);
	if (rc == SP_OK) {
		helper_log(r.now.load.conf, &site);
		load_warn(&r.now.load);
	}
	if (rc == SP_OK)
		rc = helper_episodes(&w, &r.now, &site, &ids);
	if (rc == SP_OK) {
		w.fleetlog = fleetlog_new();
		rc = w.fleetlog != NULL ? SP_OK : SP_E_NOMEM;
	}
	if (rc == SP_OK) {
		w.ids = &ids;
		w.site = &site;
		if (ids.change)
			w.flags |= ROLE_CONFINE;
		if (cli->is_proxy) {
			w.flags |= ROLE_PROXY;
			w.proxy = &cli->proxy;
		}
		status = helper_serve(&w, &r);
	}
	log_set_fd(STDERR_FILENO);
	episodes_free(w.episodes);
	fleetlog_free(w.fleetlog);
	reload_drop(&r);
	site_clear(&site);
	reload_state_clear(&r.now);
	mem_free(w.dir);
	if (status != 0 && cli->is_proxy)
		proxycmd_failed(&cli->proxy);
	return status;
}

/* l is taken. */
static int
helper_check(struct load *l)
{
	struct reload_state st = { .conf_fd = -1 };
	struct buf table = BUF_INIT(1024 * 1024);
	char *path;
	int worst;

	st.load = *l;
	memset(l, 0, sizeof(*l));
	worst = check_run(&st);
	if (worst == SP_OK)
		worst = check_episodes(&st, &table);
	load_warn(&st.load);
	path = st.load.path;
	st.load.path = NULL;
	reload_state_clear(&st);
	l->path = path;
	if (worst != SP_OK) {
		fprintf(stderr, "configuration %s is not usable\n", l->path);
		buf_clear(&table);
		return 1;
	}
	printf("configuration %s is ok\n%.*s", l->path, (int)buf_len(&table),
	    buf_len(&table) > 0 ? buf_view(&table).p : "");
	buf_clear(&table);
	return 0;
}

/* What became of the first attempt after that one. */
static int
helper_reloaded(const struct load *l, int state, uint64_t number)
{
	struct buf why = BUF_INIT(OUTCOME_MAX);
	struct view v;
	int rc;

	rc = outcome_wait(state, number, site_lock_name, &why);
	v = buf_view(&why);
	if (rc == SP_E_CONF)
		fprintf(stderr,
		    "%.*ssallyport: the configuration is not reloaded; nothing "
		    "has changed\n",
		    VIEW_ARG(v));
	else if (rc != SP_OK)
		fprintf(stderr,
		    "sallyport: -s reload: %s: no outcome to be had: %s\n",
		    l->path, err_str(rc));
	buf_clear(&why);
	return rc == SP_OK ? 0 : 1;
}

static int
helper_signal_on(const struct load *l, const struct cli *cli, int state)
{
	uint64_t number = outcome_number(state);
	pid_t pid;

	if (site_holder(l->conf, &pid) != SP_OK)
		return 1;
	/*
	 * The lock was held a moment ago by that process, and its file is
	 * writable by its owner alone: no one else chooses who is signalled.
	 */
	if (kill(pid, cli->signo) != 0) {
		fprintf(stderr, "sallyport: -s %s: process %ld: %s\n",
		    cli->signal_name, (long)pid, strerror(errno));
		return 1;
	}
	return cli->signo == SIGHUP ? helper_reloaded(l, state, number) : 0;
}

static int
helper_signal(const struct load *l, const struct cli *cli)
{
	struct view path = l->conf->main.state_dir;
	char *text = mem_strndup(path.p, path.n);
	int state = -1, status;

	if (text != NULL)
		state = open(text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	status = helper_signal_on(l, cli, state);
	fd_close(&state);
	mem_free(text);
	return status;
}

static int
helper_with_conf(struct cli *cli, bool privileged)
{
	struct load_source src;
	struct load l;
	int status = 1;

	memset(&src, 0, sizeof(src));
	src.path = cli->conf_path;
	src.extra = cli->extra;
	src.proxy = cli->is_proxy ? &cli->proxy : NULL;
	src.manifest = cli->is_manifest ? &cli->manifest : NULL;
	src.privileged = privileged;
	if (cli->is_proxy)
		complain_about_proxy(&cli->proxy);
	if (cli->is_manifest &&
	    (cli->action == CLI_RUN || cli->action == CLI_CHECK) &&
	    manifestcmd_app(&cli->manifest) != SP_OK)
		return 1;
	if (load_conf(&l, &src) == SP_OK) {
		switch (cli->action) {
		case CLI_CHECK:
			status = helper_check(&l);
			break;
		case CLI_DUMP:
			status = show_dump(l.conf) == SP_OK ? 0 : 1;
			break;
		case CLI_SIGNAL:
			status = helper_signal(&l, cli);
			break;
		case CLI_RUN:
		case CLI_MODULES:
		case CLI_VERSION:
		case CLI_HELP:
		case CLI_MANIFEST:
		default:
			status = helper_run(&l, &src, cli);
			break;
		}
	}
	load_clear(&l);
	return status;
}

/* What it stands for, and whether it would be taken. */
static int
helper_manifest(const struct cli *cli, bool privileged)
{
	const struct load_source src = { .extra = cli->extra,
		.manifest = &cli->manifest,
		.privileged = privileged };
	int status = manifestcmd_print(&cli->manifest);
	struct load l;

	if (status != 0)
		return status;
	if (load_conf(&l, &src) != SP_OK)
		status = 1;
	load_clear(&l);
	return status;
}

int
main(int argc, char **argv)
{
	bool privileged = geteuid() == 0;
	struct cli cli;
	int status = 0, rc;

	if (helper_begin() != 0) {
		fputs("sallyport: no descriptors to be had\n", stderr);
		return 1;
	}
	log_init("helper");
	failpoint_init();
	rc = cli_parse(&cli, argc, argv, privileged);
	if (rc != SP_OK && rc != SP_E_ARG) /* which has complained */
		fprintf(stderr, "sallyport: arguments: %s\n", err_str(rc));
	if (rc != SP_OK)
		status = 2;
	else if (cli.action == CLI_VERSION)
		show_version();
	else if (cli.action == CLI_MODULES)
		show_modules();
	else if (cli.action == CLI_MANIFEST)
		status = helper_manifest(&cli, privileged);
	else if (cli.action != CLI_HELP)
		status = helper_with_conf(&cli, privileged);
	cli_clear(&cli);
	if (fflush(stdout) != 0 && status == 0)
		status = 1;
	return status;
}

#include "config.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/mem.h"
#include "helper/check.h"
#include "helper/complain.h"
#include "helper/episodes.h"
#include "ipc/wire.h"

enum { CHECK_MS = 60 * 1000 };

struct check {
	pid_t pid;
	struct channel *c;
	uint64_t until_ms;
};

/* Until the channel can be read, or written when something is queued. */
static int
check_wait(const struct check *k)
{
	struct pollfd p = { .fd = channel_fd(k->c), .events = POLLIN };
	uint64_t now = clock_ms();
	int n;

	if (channel_queued(k->c) > 0)
		p.events |= POLLOUT;
	if (now >= k->until_ms)
		return SP_E_TIMEOUT;
	n = poll(&p, 1, (int)(k->until_ms - now));
	if (n < 0 && errno != EINTR)
		return err_from_errno(errno);
	return SP_OK;
}

static int
check_answer(const struct channel_msg *m)
{
	struct view why;
	struct wire w;

	if (m->type == MESSAGE_READY)
		return SP_OK;
	if (m->type != MESSAGE_FAILED)
		return SP_E_PROTO;
	wire_init(&w, m->body);
	why = wire_bytes(&w);
	if (wire_done(&w) != SP_OK)
		return SP_E_PROTO;
	complain("%.*s", VIEW_ARG(why));
	return SP_E_CONF;
}

static int
check_talk(struct check *k)
{
	struct channel_msg m;
	int rc;

	/* bounded by the deadline: there is one message, or an end */
	for (;;) {
		rc = channel_flush(k->c);
		if (rc == SP_OK || rc == SP_E_AGAIN || rc == SP_E_GONE)
			rc = channel_recv(k->c, &m);
		if (rc == SP_OK)
			return check_answer(&m);
		if (rc == SP_E_AGAIN)
			rc = check_wait(k);
		if (rc != SP_OK)
			return rc;
	}
}

/* It may be hostile by now: what it has to say was said. */
static void
check_end(struct check *k)
{
	channel_free(k->c);
	(void)kill(k->pid, SIGKILL);
	while (waitpid(k->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
}

static int
check_certificates(struct reload_state *st, struct rolerun_world *w)
{
	struct check k = { .until_ms = clock_ms() + CHECK_MS };
	int rc;

	rc = rolerun_find(w);
	if (rc == SP_OK)
		rc = rolerun_start(w, MESSAGE_REACTOR, -1, &k.pid, &k.c);
	else if (rc == SP_E_NOTFOUND)
		return rc; /* which has complained */
	if (rc == SP_OK) {
		rc = check_talk(&k);
		check_end(&k);
	}
	if (rc != SP_OK && rc != SP_E_CONF)
		complain("%s: the reactor cannot check it: %s", st->load.path,
		    err_str(rc));
	return rc;
}

/* The world of a role that gets nothing but the configuration. */
static int
check_reactor(struct reload_state *st, const struct ids *ids)
{
	struct rolerun_world w = { .ids = ids, .flags = ROLE_CHECK };
	struct site *site = mem_calloc(1, sizeof(*site));
	int rc;

	if (site == NULL)
		return SP_E_NOMEM;
	site->conf = st->load.conf;
	site->error_fd = site->access_fd = -1;
	site->key_fd = site->root_fd = -1;
	w.site = site;
	w.now = (struct rolerun_generation){
		.number = 1,
		.conf = st->load.conf,
		.secrets = &st->secrets,
		.cas = &st->cas,
		.set = &site->set,
		.conf_fd = st->conf_fd,
	};
	rc = check_certificates(st, &w);
	mem_free(w.dir);
	mem_free(site);
	return rc;
}

int
check_run(struct reload_state *st)
{
	struct ids ids;
	int rc, worst;

	worst = reload_state_read(st, NULL);
	rc = ids_resolve(&ids, st->load.conf);
	if (worst == SP_OK)
		worst = rc;
	return worst == SP_OK ? check_reactor(st, &ids) : worst;
}

int
check_episodes(const struct reload_state *st, struct buf *out)
{
	struct rolerun_world w = { 0 };
	struct episodes *e = NULL;
	struct ids ids;
	int rc;

	if (st->load.conf->environments_n == 0)
		return SP_OK;
	rc = ids_resolve(&ids, st->load.conf);
	if (rc == SP_OK)
		rc = rolerun_find(&w);
	if (rc == SP_OK) {
		struct episodes_world ew = {
			.conf = st->load.conf,
			.program_dir = w.dir,
			.state_fd = -1,
			.privileged = ids.change,
			.ids = &ids,
		};

		rc = episodes_open(&e, &ew);
	}
	if (rc == SP_OK)
		rc = episodes_guarantees(e, out);
	episodes_free(e);
	mem_free(w.dir);
	return rc;
}

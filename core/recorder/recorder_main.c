/*
 * sallyport-recorder: assembles turns, appends them to the traces, seals
 * those.  It holds the directories of the traces and its key, and no network.
 */
#include "config.h"

#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "conf/conf.h"
#include "crypt/cryptmem.h"
#include "crypt/cryptmem.h"
#include "ipc/role.h"
#include "ipc/wire.h"
#include "os/confine.h"
#include "os/fd.h"
#include "os/poller.h"
#include "recorder/journal.h"
#include "recorder/peer.h"

enum { CONF_ERRORS_MAX = 16 * 1024, ALIVE_MS = 5 * 1000 };

struct recorder {
	struct role role;
	struct conf *conf; /* of the start: the first generation's */
	struct signer signer;
	struct store store;
	struct recgens generations;
	struct role next; /* of a generation to come, as far as it is here */
	struct registry registry;
	struct poller *poller;
	struct poller_fd *helper_ready;
	struct peer peer;
	bool stopped;
	bool telling; /* what the helper did not take at once */
	uint64_t alive_at_ms; /* when it was last told unasked */
};

static void
take_log(struct recorder *r, struct channel_msg *m, struct wire *w)
{
	unsigned which = wire_u8(w);

	if (wire_done(w) != 0 || which != MESSAGE_LOG_ERROR)
		return;
	log_set_fd(m->fd);
	fd_close(&r->role.error_log_fd);
	r->role.error_log_fd = m->fd;
	m->fd = -1;
}

static void
take_peer(struct recorder *r, struct channel_msg *m, struct wire *w)
{
	int fd = m->fd, rc;

	if (wire_done(w) != 0)
		return;
	m->fd = -1;
	rc = peer_attach(&r->peer, fd);
	if (rc != 0)
		log_error("cannot take the reactor's channel: %s", err_str(rc));
}

static void
stop(struct recorder *r)
{
	r->stopped = true;
	poller_stop(r->poller);
}

/* Answers; a helper that does not take it is found out by the channel. */
static int
prepare(struct recorder *r)
{
	struct buf err = BUF_INIT(CONF_ERRORS_MAX);
	uint32_t number = r->next.generation;
	int rc = recgen_prepare(&r->generations, &r->next, &err);
	struct view why = VIEW_NONE;

	role_clear(&r->next);
	if (rc != 0)
		why =
		    buf_len(&err) > 0 ? buf_view(&err) : view_str(err_str(rc));
	rc = role_prepared(&r->role, number, why);
	buf_clear(&err);
	return rc;
}

static int
take_generation(struct recorder *r, struct channel_msg *m, struct wire *w)
{
	uint32_t number;
	bool whole;
	int rc;

	if (m->type != MESSAGE_COMMIT && m->type != MESSAGE_ABANDON) {
		rc = role_next_take(&r->next, m, &whole);
		return rc == 0 && whole ? prepare(r) : rc;
	}
	number = wire_u32(w);
	rc = wire_done(w);
	if (rc == 0 && m->type == MESSAGE_COMMIT) {
		rc = recgen_commit(&r->generations, number);
		return rc == 0 ? role_committed(&r->role, number) : rc;
	}
	role_clear(&r->next);
	recgen_abandon(&r->generations);
	return rc;
}

static void
on_helper(void *arg, unsigned ready)
{
	struct recorder *r = arg;
	struct channel_msg m;
	struct wire w;
	int rc;

	/* what is left is tried again, and an end is told by the reading */
	if (ready & POLLER_WRITE)
		(void)!channel_flush(r->role.helper);
	while (!r->stopped && (rc = channel_recv(r->role.helper, &m)) == 0) {
		wire_init(&w, m.body);
		if (m.type == MESSAGE_LOG)
			take_log(r, &m, &w);
		else if (m.type == MESSAGE_PEER)
			take_peer(r, &m, &w);
		else if (m.type == MESSAGE_STOP)
			stop(r);
		else if (m.type == MESSAGE_PING)
			rc = role_alive(&r->role, true);
		else if (m.type != MESSAGE_RESTARTS)
			rc = take_generation(r, &m, &w);
		fd_close(&m.fd);
		if (rc != 0)
			break;
	}
	if (r->stopped || rc == SP_E_AGAIN)
		return;
	/* without the helper there is nobody to go on for */
	log_warn("the helper's channel ended: %s", err_str(rc));
	stop(r);
}

static void
after(void *arg)
{
	struct recorder *r = arg;
	bool telling = channel_queued(r->role.helper) > 0;

	peer_after(&r->peer);
	if (telling == r->telling)
		return;
	if (poller_want(r->helper_ready,
		telling ? POLLER_READ | POLLER_WRITE : POLLER_READ) == 0)
		r->telling = telling;
}

/* Reading a large file to seal it is no reason to be taken for hung. */
static void
on_work(void *arg)
{
	struct recorder *r = arg;
	uint64_t now = clock_ms();

	if (now - r->alive_at_ms < ALIVE_MS ||
	    channel_queued(r->role.helper) > 0)
		return;
	r->alive_at_ms = now;
	if (role_alive(&r->role, false) != 0)
		log_debug("the helper is not told of long work");
}

static void
read_conf(struct recorder *r)
{
	struct buf err = BUF_INIT(CONF_ERRORS_MAX);
	const struct conf_defaults defaults = { "/", "/", "/" };
	int rc;

	rc = conf_parse(buf_view(&r->role.conf), &defaults, &r->conf, &err);
	if (rc != 0)
		role_fail(&r->role, "%.*s", VIEW_ARG(buf_view(&err)));
	buf_clear(&err);
	log_set_level((enum log_level)r->conf->main.error_level);
}

/* Everything that needs a directory by descriptor; then the walls. */
static void
open_dirs(struct recorder *r)
{
	int dirs[STORE_DIRS_MAX + 3];
	const char *what = NULL;
	size_t i, n = 0;
	int rc;

	rc = signer_open(&r->signer, r->role.key_dir_fd);
	if (rc != 0)
		role_fail(&r->role, "the recorder's key (%s): %s",
		    SIGNER_KEY_FILE, err_str(rc));
	if (r->role.key_dir_fd < 0)
		log_notice("no key directory: seals are signed with a key of "
			   "this run");
	rc = store_init(&r->store, r->conf, &r->signer);
	recgens_init(&r->generations, &r->store);
	if (rc == 0)
		rc = recgen_first(&r->generations, r->role.generation, r->conf);
	for (i = 0; i < r->role.trace_dirs_n && rc == 0; i++) {
		struct role_fd *d = &r->role.trace_dirs[i];

		dirs[n] = d->fd;
		d->fd = -1;
		if (d->index >= r->conf->captures_n)
			role_fail(&r->role, "a directory for no capture");
		rc = store_add_dir(&r->store, r->conf->captures[d->index],
		    &dirs[n]);
		if (rc == 0)
			rc = signer_publish(&r->signer, dirs[n],
			    store_mode(&r->store));
		n++;
	}
	if (rc != 0)
		role_fail(&r->role, "the directories of the traces: %s",
		    err_str(rc));
	/* the registry's journal stands beside the key */
	rc = registry_init(&r->registry, &r->store, r->role.key_dir_fd);
	if (rc != 0)
		role_fail(&r->role, "the registry of sessions (%s): %s",
		    JOURNAL_FILE, err_str(rc));
	if (r->role.key_dir_fd >= 0)
		dirs[n++] = r->role.key_dir_fd;
	/* where traces may come to be with a reload */
	if (r->role.trace_root_fd >= 0)
		dirs[n++] = r->role.trace_root_fd;
	rc = confine_enter(CONFINE_RECORDER, dirs, n, &what);
	if (rc == SP_E_UNSUPPORTED && (r->role.flags & ROLE_CONFINE) == 0)
		log_notice("recorder runs without %s", what);
	else if (rc != 0)
		role_fail(&r->role, "cannot confine the recorder: %s: %s", what,
		    err_str(rc));
}

static void
serve(struct recorder *r)
{
	int rc;

	r->poller = poller_new();
	rc = r->poller != NULL
	    ? peer_init(&r->peer, r->poller, &r->store, &r->registry)
	    : SP_E_NOMEM;
	if (rc == 0)
		r->helper_ready = poller_add(r->poller,
		    channel_fd(r->role.helper), POLLER_READ, on_helper, r);
	r->peer.turns.generations = &r->generations;
	r->peer.turns.memory_max = r->conf->main.recorder_memory_max_bytes;
	if (rc != 0 || r->helper_ready == NULL)
		role_fail(&r->role, "recorder: %s", err_str(SP_E_NOMEM));
	poller_after(r->poller, after, r);
	if (r->role.peer_fd >= 0) {
		rc = peer_attach(&r->peer, r->role.peer_fd);
		r->role.peer_fd = -1;
	}
	/* ready means that the reactor has heard so: calls come at once */
	peer_after(&r->peer);
	if (rc == 0)
		rc = role_ready(&r->role);
	if (rc != 0)
		role_fail(&r->role, "recorder: %s", err_str(rc));
	rc = poller_run(r->poller);
	if (rc != 0)
		log_error("waiting for events: %s", err_str(rc));
	peer_shutdown(&r->peer);
}

int
main(int argc, char **argv)
{
	static struct recorder r;
	int rc;

	(void)argc;
	(void)argv;
	log_init("recorder");
	mem_keep();
	(void)!cryptmem_count();
	role_next_init(&r.next);
	(void)umask(0); /* modes are what is asked for */
	rc = role_boot(&r.role, MESSAGE_RECORDER);
	if (r.role.error_log_fd >= 0)
		log_set_fd(r.role.error_log_fd);
	if (rc != 0)
		role_fail(&r.role, "recorder: start: %s", err_str(rc));
	read_conf(&r);
	r.alive_at_ms = clock_ms();
	trace_on_work(on_work, &r);
	open_dirs(&r);
	serve(&r);
	trace_on_work(NULL, NULL);
	peer_clear(&r.peer);
	registry_clear(&r.registry);
	recgens_clear(&r.generations);
	store_clear(&r.store);
	signer_clear(&r.signer);
	poller_remove(r.helper_ready);
	poller_free(r.poller);
	role_clear(&r.next);
	role_clear(&r.role);
	return 0;
}

#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/log.h"
#include "init/keeper.h"
#include "init/keeper_connect.h"
#include "init/keeper_end.h"
#include "init/keeper_file.h"
#include "init/keeper_run.h"
#include "init/keeper_watch.h"
#include "init/sbox_idmap.h"
#include "init/sbox_local.h"
#include "init/sbox_workspace.h"
#include "os/fd.h"

enum {
	KEEPER_QUEUE_MAX = 1024 * 1024, /* unsent bytes */
	KEEPER_SPEC_ARENA = 8 * 1024 * 1024,
	KEEPER_WHAT_MAX = 900, /* fits a log line */
};

/* ---- saying ---------------------------------------------------------------- */

struct buf *
keeper_body(struct keeper *k)
{
	buf_reset(&k->body, SIZE_MAX);
	return &k->body;
}

void
keeper_send(struct keeper *k, enum message_type type, const struct buf *b,
    int fd)
{
	struct view body = b != NULL ? buf_view(b) : VIEW_NONE;
	int rc;

	if (k->helper_gone) {
		fd_close(&fd);
	} else {
		rc = channel_send(k->helper, type, body, fd);
		if (rc != SP_OK) {
			log_warn("helper cannot be told: %s", err_str(rc));
			keeper_end_gone(k);
		}
	}
}

void
keeper_put_why(struct buf *b, const struct sbox_why *why)
{
	size_t n = strnlen(why->what, sizeof(why->what));

	/* fits whatever came before: the message's maximum is far above */
	if (wire_put_u8(b, (uint8_t)why->stage) != SP_OK ||
	    wire_put_u32(b, (uint32_t)why->en) != SP_OK ||
	    wire_put_bytes(b, view_of(why->what, n)) != SP_OK)
		log_error("no memory to say why");
}

/* ---- before it is built ---------------------------------------------------- */

static int
take_spec(struct keeper *k, struct channel_msg *m, struct wire *w)
{
	int rc;

	if (wire_done(w) != SP_OK || k->has_spec)
		return SP_E_PROTO;
	buf_init(&k->spec_text, SANDBOX_MSG_SPEC_MAX);
	k->arena = arena_new(KEEPER_SPEC_ARENA);
	if (k->arena == NULL)
		return SP_E_NOMEM;
	rc = fd_read_sealed(m->fd, &k->spec_text);
	if (rc == SP_OK)
		rc = sandbox_msg_spec_get(buf_view(&k->spec_text), k->arena,
		    &k->spec);
	if (rc != SP_OK)
		return rc == SP_E_NOMEM ? rc : SP_E_PROTO;
	k->has_spec = true;
	(void)prctl(PR_SET_NAME, "sallyport-init", 0, 0, 0);
	k->box.spec = &k->spec;
	k->box.arena = k->arena;
	return SP_OK;
}

static int
give_cgroup(struct keeper *k, struct channel_msg *m, uint32_t index)
{
	bool v1 = (index & SANDBOX_FD_CGROUP_V1) != 0;

	index &= ~SANDBOX_FD_CGROUP_V1;
	if (index >= CGROUP_HIERARCHIES || k->box.parents[index] >= 0)
		return SP_E_PROTO;
	k->box.parents_v1[index] = v1;
	k->box.parents[index] = m->fd;
	m->fd = -1;
	return SP_OK;
}

static int
take_give(struct keeper *k, struct channel_msg *m, struct wire *w)
{
	uint8_t kind = wire_u8(w);
	uint32_t index = wire_u32(w);

	if (wire_done(w) != SP_OK || kind == 0 || kind >= SANDBOX_FD_KINDS)
		return SP_E_PROTO;
	if (kind == SANDBOX_FD_CGROUP)
		return give_cgroup(k, m, index);
	if (index != 0 || k->box.give[kind] >= 0)
		return SP_E_PROTO;
	k->box.give[kind] = m->fd;
	m->fd = -1;
	return SP_OK;
}

static void
say_failed(struct keeper *k, const struct sbox_why *why)
{
	struct buf *b = keeper_body(k);

	keeper_put_why(b, why);
	keeper_send(k, MESSAGE_KEEPER_FAILED, b, -1);
}

/* pid 1 leaves when it is told to, or dies with all the others (memory). */
static void
on_init(void *arg, unsigned ready)
{
	struct keeper *k = arg;

	(void)ready;
	poller_remove(k->init_at);
	k->init_at = NULL;
	/* of what it died is told before its end is */
	(void)keeper_watch_oom_kills(k);
	keeper_end_begin(k);
}

static int
watch_init(struct keeper *k, struct sbox_why *why)
{
	if (sbox_local(&k->box))
		return SP_OK;
	k->init_at =
	    poller_add(k->po, k->box.init_pidfd, POLLER_READ, on_init, k);
	if (k->init_at == NULL)
		return sbox_why_errno(why, ENOMEM, "loop");
	return SP_OK;
}

/* Told by its name, too: it keeps nothing. */
static int
take_spare(struct keeper *k, struct channel_msg *m, struct wire *w)
{
	(void)m;
	if (wire_done(w) != SP_OK || k->has_spec)
		return SP_E_PROTO;
	(void)prctl(PR_SET_NAME, "sallyport-spare", 0, 0, 0);
	sbox_idmap_ahead(&k->box);
	return SP_OK;
}

/* Before BUILD, which brings the network: what can be done without it. */
static int
take_prepare(struct keeper *k, struct channel_msg *m, struct wire *w)
{
	struct sbox_why why;
	int rc;

	(void)m;
	if (wire_done(w) != SP_OK || !k->has_spec || sbox_local(&k->box) ||
	    (k->spec.flags & SANDBOX_USERNS) || k->box.init_pid != 0 ||
	    k->box.give[SANDBOX_FD_NETNS] >= 0)
		return SP_E_PROTO;
	memset(&why, 0, sizeof(why));
	k->box.channel = channel_fd(k->helper);
	rc = sbox_prepare(&k->box, &why);
	if (rc != SP_OK && rc != SP_E_AGAIN) {
		say_failed(k, &why);
		keeper_end_begin(k);
	}
	return SP_OK;
}

static int
take_build(struct keeper *k, struct channel_msg *m, struct wire *w)
{
	struct buf *b;
	struct sbox_why why;
	int rc;

	(void)m;
	if (wire_done(w) != SP_OK || !k->has_spec ||
	    (k->box.net_later && k->box.give[SANDBOX_FD_NETNS] < 0))
		return SP_E_PROTO;
	memset(&why, 0, sizeof(why));
	k->box.channel = channel_fd(k->helper);
	rc = sbox_build(&k->box, &why);
	if (rc == SP_E_AGAIN)
		return SP_OK; /* what came in says what to do: END, or gone */
	if (rc == SP_OK)
		rc = keeper_file_open(k, &why);
	if (rc == SP_OK)
		rc = keeper_watch_start(k, &why);
	if (rc == SP_OK)
		rc = watch_init(k, &why);
	if (rc != SP_OK) {
		say_failed(k, &why);
		keeper_end_begin(k);
		return SP_OK;
	}
	b = keeper_body(k);
	if (wire_put_u32(b, (uint32_t)k->box.init_pid) != SP_OK)
		return SP_E_NOMEM;
	k->state = KEEPER_SERVE;
	channel_set_state(k->helper, MESSAGE_RUN);
	keeper_send(k, MESSAGE_KEEPER_READY, b, -1);
	return SP_OK;
}

/* ---- while it lives -------------------------------------------------------- */

static int
take_freeze(struct keeper *k, struct channel_msg *m, struct wire *w)
{
	enum { FREEZE_MS = 2000 };
	uint32_t request = wire_u32(w);
	uint8_t on = wire_u8(w);
	struct buf *b = keeper_body(k);
	int rc = SP_E_UNSUPPORTED;

	(void)m;
	if (wire_done(w) != SP_OK || on > 1)
		return SP_E_PROTO;
	if (k->box.cgroup_made)
		rc = cgroup_freeze(&k->box.cgroup, on == 1, FREEZE_MS);
	/* half frozen is neither: it runs on */
	if (rc != SP_OK && on == 1 && k->box.cgroup_made)
		(void)!cgroup_freeze(&k->box.cgroup, false, FREEZE_MS);
	k->frozen = on == 1 && rc == SP_OK;
	if (wire_put_u32(b, request) != SP_OK ||
	    wire_put_u8(b, k->frozen ? 1 : 0) != SP_OK ||
	    wire_put_u32(b,
		rc == SP_OK                  ? 0
		    : rc == SP_E_UNSUPPORTED ? EOPNOTSUPP
		    : rc == SP_E_TIMEOUT     ? ETIMEDOUT
					     : EIO) != SP_OK)
		return SP_E_NOMEM;
	keeper_send(k, MESSAGE_KEEPER_FROZEN, b, -1);
	return SP_OK;
}

static int
take_share(struct keeper *k, struct channel_msg *m, struct wire *w)
{
	uint32_t request = wire_u32(w);
	struct buf *b = keeper_body(k);
	struct sbox_why why;
	int fd = -1;

	(void)m;
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	memset(&why, 0, sizeof(why));
	if (sbox_local(&k->box))
		fd = fcntl(k->box.merged, F_DUPFD_CLOEXEC, 0);
	else if (sbox_workspace_share(&k->box, &why, &fd) != SP_OK)
		fd = -1;
	if (fd < 0) {
		/* the helper waits for it: without it nothing goes on */
		log_error("workspace cannot be shared: %s: %s", why.what,
		    strerror(why.en));
		return SP_E_SYS;
	}
	if (wire_put_u32(b, request) != SP_OK) {
		fd_close(&fd);
		return SP_E_NOMEM;
	}
	keeper_send(k, MESSAGE_KEEPER_SHARED, b, fd);
	return SP_OK;
}

static int
take_end(struct keeper *k, struct channel_msg *m, struct wire *w)
{
	(void)m;
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	keeper_end_begin(k);
	return SP_OK;
}

/* ---- the channel ----------------------------------------------------------- */

static const struct {
	enum message_type type;
	int (*take)(struct keeper *k, struct channel_msg *m, struct wire *w);
} rows[] = {
	{ MESSAGE_KEEPER_SPEC, take_spec },
	{ MESSAGE_KEEPER_GIVE, take_give },
	{ MESSAGE_KEEPER_PREPARE, take_prepare },
	{ MESSAGE_KEEPER_SPARE, take_spare },
	{ MESSAGE_KEEPER_BUILD, take_build },
	{ MESSAGE_KEEPER_RUN, keeper_run_take },
	{ MESSAGE_KEEPER_SIGNAL, keeper_run_signal },
	{ MESSAGE_KEEPER_FREEZE, take_freeze },
	{ MESSAGE_KEEPER_FILE, keeper_file_take },
	{ MESSAGE_KEEPER_FILE_PUT, keeper_file_take },
	{ MESSAGE_KEEPER_SHARE, take_share },
	{ MESSAGE_KEEPER_CONNECT, keeper_connect_take },
	{ MESSAGE_KEEPER_END, take_end },
};

static void
take(struct keeper *k, struct channel_msg *m)
{
	int rc = SP_E_PROTO;
	struct wire w;
	size_t i;

	wire_init(&w, m->body);
	/* what was sent before the helper knew of the end comes to nothing */
	if (k->state >= KEEPER_ENDING)
		rc = SP_OK;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].type == m->type && k->state < KEEPER_ENDING)
			rc = rows[i].take(k, m, &w);
	fd_close(&m->fd);
	if (rc == SP_OK)
		return;
	log_error("message %u: %s", m->type, err_str(rc));
	keeper_end_gone(k);
}

/* As many as there are; bounded by what one end does to it. */
static void
on_helper(void *arg, unsigned ready)
{
	struct keeper *k = arg;
	struct channel_msg m;
	int rc = SP_OK;

	(void)ready;
	while (!k->helper_gone && (rc = channel_recv(k->helper, &m)) == SP_OK)
		take(k, &m);
	if (k->helper_gone || rc == SP_E_AGAIN)
		return;
	if (rc != SP_E_GONE)
		log_error("helper's channel: %s", err_str(rc));
	keeper_end_gone(k);
}

/* What the socket did not take waits until it does. */
static void
after(void *arg)
{
	struct keeper *k = arg;
	int rc;

	if (k->helper_gone)
		return;
	rc = channel_flush(k->helper);
	if (rc == SP_E_GONE) {
		keeper_end_gone(k);
		return;
	}
	if (poller_want(k->helper_at,
		POLLER_READ |
		    (channel_queued(k->helper) > 0 ? POLLER_WRITE : 0)) !=
	    SP_OK)
		keeper_end_gone(k);
}

static int
open_up(struct keeper *k, int fd)
{
	int rc = fd_nonblock(fd);

	sbox_init(&k->box);
	LIST_INIT(&k->procs);
	LIST_INIT(&k->jobs);
	buf_init(&k->body, MESSAGE_CONTROL_MAX);
	if (rc == SP_OK)
		rc = buf_reserve(&k->body, MESSAGE_CONTROL_MAX);
	if (rc != SP_OK)
		return rc;
	k->helper =
	    channel_new(fd, MESSAGE_KEEPER, MESSAGE_HELPER, KEEPER_QUEUE_MAX);
	k->po = poller_new();
	if (k->helper == NULL || k->po == NULL)
		return SP_E_NOMEM;
	k->helper_at = poller_add(k->po, fd, POLLER_READ, on_helper, k);
	k->end = poller_timer_new(k->po, keeper_end_look, k);
	k->sample = poller_timer_new(k->po, keeper_watch_sample, k);
	if (k->helper_at == NULL || k->end == NULL || k->sample == NULL)
		return SP_E_NOMEM;
	poller_after(k->po, after, k);
	return SP_OK;
}

int
keeper_main(int fd)
{
	struct keeper *k, space;
	int rc;

	k = &space;
	memset(k, 0, sizeof(*k));
	rc = open_up(k, fd);
	if (rc == SP_OK)
		rc = poller_run(k->po);
	/* GONE may still wait for a helper that is slow to read */
	if (k->helper != NULL && !k->helper_gone)
		(void)!channel_flush(k->helper);
	if (rc == SP_OK && k->box.cgroup_made)
		rc = SP_E_STATE;
	/* who ended it may have reaped it too: no signal to that number */
	if (k->state < KEEPER_ENDING)
		keeper_watch_stop(k);
	keeper_watch_reap(k);
	poller_remove(k->helper_at);
	poller_remove(k->init_at);
	poller_timer_free(k->end);
	poller_timer_free(k->sample);
	channel_free(k->helper);
	poller_free(k->po);
	arena_free(k->arena);
	buf_clear(&k->spec_text);
	buf_clear(&k->body);
	return rc;
}

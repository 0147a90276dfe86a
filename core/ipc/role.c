#include "config.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "ipc/role.h"
#include "ipc/wire.h"
#include "os/fd.h"

enum {
	ROLE_BOOT_TIMEOUT_MS = 30 * 1000, /* between two messages */
	ROLE_CONF_MAX_BYTES = 4 * 1024 * 1024 + 256 * 1024,
	ROLE_QUEUE_MAX_BYTES = 256 * 1024,
	ROLE_WHY_MAX_BYTES = 900, /* fits a log line */
	ROLE_FLUSH_MS = 1000,
};

static int
role_take_conf(struct role *r, struct channel_msg *m, struct wire *w)
{
	int rc;

	if (r->conf.max != 0) /* a second one */
		return SP_E_PROTO;
	r->generation = wire_u32(w);
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	buf_init(&r->conf, ROLE_CONF_MAX_BYTES);
	rc = fd_read_sealed(m->fd, &r->conf);
	return rc == SP_OK || rc == SP_E_NOMEM ? rc : SP_E_PROTO;
}

static int
role_take_secret(struct role *r, struct channel_msg *m, struct wire *w)
{
	struct role_secret *s = &r->secrets[r->secrets_n];
	uint32_t id = wire_u32(w);
	struct view v = wire_bytes(w);

	(void)m;
	if (wire_done(w) != SP_OK || r->secrets_n == ROLE_SECRETS_MAX)
		return SP_E_PROTO;
	s->value = mem_strndup(v.p != NULL ? v.p : "", v.n);
	if (s->value == NULL)
		return SP_E_NOMEM;
	s->id = id;
	s->n = v.n;
	r->secrets_n++;
	return SP_OK;
}

static int
role_take_fd(struct role_fd *list, size_t *n, size_t max, int *fd,
    struct wire *w)
{
	uint32_t index = wire_u32(w);

	if (wire_done(w) != SP_OK || *n == max)
		return SP_E_PROTO;
	list[*n].index = index;
	list[*n].fd = *fd;
	*fd = -1;
	(*n)++;
	return SP_OK;
}

static int
role_take_listener(struct role *r, struct channel_msg *m, struct wire *w)
{
	return role_take_fd(r->listeners, &r->listeners_n, ROLE_LISTENERS_MAX,
	    &m->fd, w);
}

static int
role_take_trace_dir(struct role *r, struct channel_msg *m, struct wire *w)
{
	return role_take_fd(r->trace_dirs, &r->trace_dirs_n, ROLE_DIRS_MAX,
	    &m->fd, w);
}

static int
role_take_ca(struct role *r, struct channel_msg *m, struct wire *w)
{
	struct role_ca *ca = &r->cas[r->cas_n];
	int rc;

	if (r->cas_n == ROLE_CAS_MAX)
		return SP_E_PROTO;
	ca->index = wire_u32(w);
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	buf_init(&ca->pem, ROLE_CA_MAX_BYTES);
	rc = fd_read_sealed(m->fd, &ca->pem);
	if (rc == SP_OK)
		r->cas_n++;
	else
		buf_clear(&ca->pem);
	return rc == SP_OK || rc == SP_E_NOMEM ? rc : SP_E_PROTO;
}

static int
role_take_keep(struct role *r, struct channel_msg *m, struct wire *w)
{
	struct role_keep *k = &r->keeps[r->keeps_n];

	(void)m;
	if (r->keeps_n == ROLE_LISTENERS_MAX)
		return SP_E_PROTO;
	k->index = wire_u32(w);
	k->was = wire_u32(w);
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	r->keeps_n++;
	return SP_OK;
}

/* Keeps the latest; *slot is the role's, closed by role_clear(). */
static int
role_keep(int *slot, struct channel_msg *m, const struct wire *w)
{
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	fd_close(slot);
	*slot = m->fd;
	m->fd = -1;
	return SP_OK;
}

static int
role_take_log(struct role *r, struct channel_msg *m, struct wire *w)
{
	switch (wire_u8(w)) {
	case MESSAGE_LOG_ERROR:
		return role_keep(&r->error_log_fd, m, w);
	case MESSAGE_LOG_ACCESS:
		return role_keep(&r->access_log_fd, m, w);
	default:
		return SP_E_PROTO;
	}
}

static int
role_take_peer(struct role *r, struct channel_msg *m, struct wire *w)
{
	return role_keep(&r->peer_fd, m, w);
}

static int
role_take_key_dir(struct role *r, struct channel_msg *m, struct wire *w)
{
	return role_keep(&r->key_dir_fd, m, w);
}

static int
role_take_trace_root(struct role *r, struct channel_msg *m, struct wire *w)
{
	return role_keep(&r->trace_root_fd, m, w);
}

static int
role_take_start(struct role *r, struct channel_msg *m, struct wire *w)
{
	(void)m;
	r->flags = wire_u32(w);
	r->reactor_restarts = wire_u32(w);
	r->recorder_restarts = wire_u32(w);
	r->control_gid = wire_u32(w);
	/* without a configuration there is nothing to start */
	if (wire_done(w) != SP_OK || r->conf.max == 0)
		return SP_E_PROTO;
	return SP_OK;
}

static const struct {
	enum message_type type;
	bool next; /* a later generation has it, too */
	int (*take)(struct role *r, struct channel_msg *m, struct wire *w);
} role_rows[] = {
	{ MESSAGE_CONF, true, role_take_conf },
	{ MESSAGE_SECRET, true, role_take_secret },
	{ MESSAGE_CA, true, role_take_ca },
	{ MESSAGE_LISTENER, true, role_take_listener },
	{ MESSAGE_LISTEN_KEEP, true, role_take_keep },
	{ MESSAGE_TRACE_DIR, true, role_take_trace_dir },
	{ MESSAGE_TRACE_ROOT, false, role_take_trace_root },
	{ MESSAGE_LOG, false, role_take_log },
	{ MESSAGE_PEER, false, role_take_peer },
	{ MESSAGE_KEY_DIR, false, role_take_key_dir },
	{ MESSAGE_START, false, role_take_start },
};

static int
role_take(struct role *r, struct channel_msg *m)
{
	struct wire w;
	size_t i;
	int rc = SP_E_PROTO;

	wire_init(&w, m->body);
	for (i = 0; i < sizeof(role_rows) / sizeof(role_rows[0]); i++)
		if (role_rows[i].type == m->type)
			rc = role_rows[i].take(r, m, &w);
	if (m->type == MESSAGE_STOP)
		rc = SP_E_GONE; /* stopped before it began */
	fd_close(&m->fd);
	return rc;
}

void
role_next_init(struct role *next)
{
	memset(next, 0, sizeof(*next));
	next->key_dir_fd = next->peer_fd = next->trace_root_fd = -1;
	next->error_log_fd = next->access_log_fd = -1;
}

bool
role_next_begun(const struct role *next)
{
	return next->conf.max != 0;
}

int
role_next_take(struct role *next, struct channel_msg *m, bool *whole)
{
	struct wire w;
	size_t i;

	*whole = false;
	wire_init(&w, m->body);
	/* CONF begins, and there is one: role_take_conf() refuses another */
	if (m->type != MESSAGE_CONF && !role_next_begun(next))
		return SP_E_PROTO;
	if (m->type == MESSAGE_PREPARE) {
		*whole = true;
		if (wire_u32(&w) != next->generation)
			return SP_E_PROTO;
		return wire_done(&w);
	}
	for (i = 0; i < sizeof(role_rows) / sizeof(role_rows[0]); i++)
		if (role_rows[i].type == m->type && role_rows[i].next)
			return role_rows[i].take(next, m, &w);
	return SP_E_PROTO;
}

static int
role_wait(int fd, short events, int timeout_ms)
{
	struct pollfd p = { fd, events, 0 };
	int n;

	do
		n = poll(&p, 1, timeout_ms);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_from_errno(errno);
	return n == 0 ? SP_E_TIMEOUT : SP_OK;
}

int
role_boot(struct role *r, unsigned me)
{
	struct channel_msg m;
	int rc;

	role_next_init(r);
	/* only the helper acts on signals; a stop of the group loses nothing */
	(void)signal(SIGTERM, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	(void)signal(SIGPIPE, SIG_IGN);
	/*
	 * Again, as the change of uid and the exec may have cleared it.  When
	 * the helper died before this line, the channel is at its end.
	 */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		return err_from_errno(errno);
	rc = fd_nonblock(ROLE_CHANNEL_FD);
	if (rc != SP_OK)
		return rc;
	r->helper = channel_new(ROLE_CHANNEL_FD, me, MESSAGE_HELPER,
	    ROLE_QUEUE_MAX_BYTES);
	if (r->helper == NULL)
		return SP_E_NOMEM;
	/* bounded: every list it fills is, and each wait has its deadline */
	do {
		rc = channel_recv(r->helper, &m);
		if (rc == SP_E_AGAIN)
			rc = role_wait(ROLE_CHANNEL_FD, POLLIN,
			    ROLE_BOOT_TIMEOUT_MS);
		else if (rc == SP_OK)
			rc = role_take(r, &m);
	} while (rc == SP_OK && m.type != MESSAGE_START);
	return rc;
}

void
role_clear(struct role *r)
{
	size_t i;

	for (i = 0; i < r->secrets_n; i++) {
		if (r->secrets[i].value != NULL)
			mem_free_zero(r->secrets[i].value, r->secrets[i].n);
		r->secrets[i].value = NULL;
	}
	for (i = 0; i < r->listeners_n; i++)
		fd_close(&r->listeners[i].fd);
	for (i = 0; i < r->trace_dirs_n; i++)
		fd_close(&r->trace_dirs[i].fd);
	for (i = 0; i < r->cas_n; i++)
		buf_clear(&r->cas[i].pem);
	r->secrets_n = r->listeners_n = r->trace_dirs_n = 0;
	r->cas_n = r->keeps_n = 0;
	fd_close(&r->trace_root_fd);
	fd_close(&r->key_dir_fd);
	fd_close(&r->peer_fd);
	fd_close(&r->error_log_fd);
	fd_close(&r->access_log_fd);
	buf_clear(&r->conf);
	r->conf.max = 0;
	channel_free(r->helper);
	r->helper = NULL;
}

void
role_fail(struct role *r, const char *fmt, ...)
{
	struct buf why = BUF_INIT(ROLE_WHY_MAX_BYTES);
	struct buf body = BUF_INIT(ROLE_WHY_MAX_BYTES + 16);
	va_list ap;
	int rc = SP_E_GONE;

	va_start(ap, fmt);
	if (buf_vprintf(&why, fmt, ap) != SP_OK &&
	    buf_add_str(&why, "cannot start") != SP_OK)
		buf_reset(&why, 0);
	va_end(ap);
	if (r->helper != NULL && wire_put_bytes(&body, buf_view(&why)) == SP_OK)
		rc = channel_send(r->helper, MESSAGE_FAILED, buf_view(&body),
		    -1);
	if (rc == SP_OK && channel_flush(r->helper) == SP_E_AGAIN &&
	    role_wait(channel_fd(r->helper), POLLOUT, ROLE_FLUSH_MS) == SP_OK)
		rc = channel_flush(r->helper);
	if (rc != SP_OK)
		log_error("%.*s", VIEW_ARG(buf_view(&why)));
	buf_clear(&why);
	buf_clear(&body);
	role_clear(r);
	exit(1);
}

int
role_ready(struct role *r)
{
	int rc = channel_send(r->helper, MESSAGE_READY, VIEW_NONE, -1);

	if (rc == SP_OK)
		channel_set_state(r->helper, MESSAGE_RUN);
	return rc;
}

int
role_prepared(struct role *r, uint32_t generation, struct view why)
{
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	int rc = wire_put_u32(&b, generation);

	if (rc == SP_OK)
		rc = wire_put_bytes(&b, view_sub(why, 0, ROLE_WHY_MAX_BYTES));
	if (rc == SP_OK)
		rc =
		    channel_send(r->helper, MESSAGE_PREPARED, buf_view(&b), -1);
	buf_clear(&b);
	return rc;
}

int
role_committed(struct role *r, uint32_t generation)
{
	struct buf b = BUF_INIT(16);
	int rc = wire_put_u32(&b, generation);

	if (rc == SP_OK)
		rc = channel_send(r->helper, MESSAGE_COMMITTED, buf_view(&b),
		    -1);
	buf_clear(&b);
	return rc;
}

int
role_alive(struct role *r, bool asked)
{
	uint8_t body = asked;

	return channel_send(r->helper, MESSAGE_ALIVE, view_of(&body, 1), -1);
}

#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "helper/rolerun.h"
#include "ipc/wire.h"
#include "os/cred.h"
#include "os/fd.h"
#include "os/spawn.h"

enum {
	ROLERUN_QUEUE_MAX = 8 * 1024 * 1024, /* every secret, once */
	ROLERUN_FILES_SPARE = 256,
};

const char *
rolerun_name(unsigned who)
{
	return who == MESSAGE_REACTOR ? "reactor" : "recorder";
}

uint64_t
rolerun_files(const struct conf *conf, unsigned who)
{
	uint64_t n = conf->main.connections;

	if (n > 1024UL * 1024)
		n = 1024UL * 1024;
	/* a client and its upstream each; the recorder: a file a session */
	return (who == MESSAGE_REACTOR ? 2 * n : n) + ROLERUN_FILES_SPARE;
}

static bool
rolerun_has(const char *dir, const char *program)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/%s", dir, program);

	return n > 0 && (size_t)n < sizeof(path) && access(path, X_OK) == 0;
}

/*
 * No variable, argument or configuration has a say in which programs root
 * starts: they stand beside this very executable, whose folder's owner could
 * as well replace the helper itself, or where the build put them.
 */
int
rolerun_find(struct rolerun_world *w)
{
	static const char *const programs[] = { "sallyport-reactor",
		"sallyport-recorder" };
	char exe[PATH_MAX];
	char *slash;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n > 0) {
		exe[n] = 0;
		slash = strrchr(exe, '/');
		if (slash != NULL && slash > exe) {
			*slash = 0;
			if (rolerun_has(exe, programs[0]) &&
			    rolerun_has(exe, programs[1])) {
				w->dir = mem_strdup(exe);
				return w->dir != NULL ? SP_OK : SP_E_NOMEM;
			}
		}
	}
	if (!rolerun_has(SP_LIBEXECDIR, programs[0]) ||
	    !rolerun_has(SP_LIBEXECDIR, programs[1])) {
		fprintf(stderr,
		    "sallyport: %s and %s are neither in %s nor beside "
		    "sallyport; expected a complete installation\n",
		    programs[0], programs[1], SP_LIBEXECDIR);
		return SP_E_NOTFOUND;
	}
	w->dir = mem_strdup(SP_LIBEXECDIR);
	return w->dir != NULL ? SP_OK : SP_E_NOMEM;
}

/* Sends with a copy of the descriptor, as channel_send() takes it. */
static int
rolerun_send_dup(struct channel *c, enum message_type type, struct view body,
    int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 4);

	if (copy < 0)
		return err_from_errno(errno);
	return channel_send(c, type, body, copy);
}

static int
rolerun_send_indexed(struct channel *c, enum message_type type, uint32_t index,
    int fd)
{
	struct buf b = BUF_INIT(16);
	int rc = wire_put_u32(&b, index);

	if (rc == SP_OK)
		rc = rolerun_send_dup(c, type, buf_view(&b), fd);
	buf_clear(&b);
	return rc;
}

static int
rolerun_send_log(struct channel *c, enum message_log which, int fd)
{
	uint8_t body = (uint8_t)which;

	if (fd < 0)
		return SP_OK;
	return rolerun_send_dup(c, MESSAGE_LOG, view_of(&body, 1), fd);
}

/* Only those that concern this role. */
static int
rolerun_send_secrets(const struct rolerun_generation *g, unsigned who,
    struct channel *c)
{
	unsigned to =
	    who == MESSAGE_REACTOR ? CONF_TO_REACTOR : CONF_TO_RECORDER;
	const struct secrets_value *v;
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	size_t i;
	int rc = SP_OK;

	for (i = 0; rc == SP_OK && i < g->conf->secrets_n; i++) {
		if (!(g->conf->secrets[i]->roles & to))
			continue;
		v = &g->secrets->values[g->conf->secrets[i]->id];
		buf_truncate(&b, 0);
		rc = wire_put_u32(&b, g->conf->secrets[i]->id);
		if (rc == SP_OK)
			rc = wire_put_bytes(&b, view_of(v->p, v->n));
		if (rc == SP_OK)
			rc = channel_send(c, MESSAGE_SECRET, buf_view(&b), -1);
	}
	if (b.mem != NULL)
		mem_zero(b.mem, b.cap);
	buf_clear(&b);
	return rc;
}

static int
rolerun_send_start(const struct rolerun_world *w, struct channel *c)
{
	struct buf b = BUF_INIT(16);
	int rc = wire_put_u32(&b, w->flags);

	if (rc == SP_OK)
		rc = wire_put_u32(&b, w->reactor_restarts);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, w->recorder_restarts);
	if (rc == SP_OK)
		rc = wire_put_u32(&b,
		    w->ids->has_control_group ? w->ids->control_gid
					      : CRED_NO_GROUP);
	if (rc == SP_OK)
		rc = channel_send(c, MESSAGE_START, buf_view(&b), -1);
	buf_clear(&b);
	return rc;
}

/* A listener that stays is no descriptor: the reactor has it. */
static int
rolerun_send_listener(struct channel *c, const struct site_listen *l, bool next)
{
	struct buf b = BUF_INIT(16);
	int rc;

	if (!next || !l->kept)
		return rolerun_send_indexed(c, MESSAGE_LISTENER, l->index,
		    l->fd);
	rc = wire_put_u32(&b, l->index);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, l->was);
	if (rc == SP_OK)
		rc = channel_send(c, MESSAGE_LISTEN_KEEP, buf_view(&b), -1);
	buf_clear(&b);
	return rc;
}

/*
 * The sockets and certificates are the reactor's, the directories the
 * recorder's.  next: for a role that serves another generation.
 */
static int
rolerun_send_generation(const struct rolerun_generation *g, unsigned who,
    struct channel *c, bool next)
{
	const struct site_set *s = g->set;
	size_t i;
	int rc;

	rc = rolerun_send_indexed(c, MESSAGE_CONF, g->number, g->conf_fd);
	if (rc == SP_OK)
		rc = rolerun_send_secrets(g, who, c);
	if (who == MESSAGE_RECORDER) {
		for (i = 0; rc == SP_OK && i < s->traces_n; i++)
			rc = rolerun_send_indexed(c, MESSAGE_TRACE_DIR,
			    s->traces[i].index, s->traces[i].fd);
		return rc;
	}
	for (i = 0; rc == SP_OK && i < g->cas->n; i++)
		rc = rolerun_send_indexed(c, MESSAGE_CA, g->cas->v[i].index,
		    g->cas->v[i].fd);
	for (i = 0; rc == SP_OK && i < s->listens_n; i++)
		rc = rolerun_send_listener(c, &s->listens[i], next);
	return rc;
}

int
rolerun_prepare(const struct rolerun_generation *g, unsigned who,
    struct channel *c)
{
	struct buf b = BUF_INIT(16);
	int rc;

	rc = rolerun_send_generation(g, who, c, true);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, g->number);
	if (rc == SP_OK)
		rc = channel_send(c, MESSAGE_PREPARE, buf_view(&b), -1);
	buf_clear(&b);
	return rc;
}

static int
rolerun_send_own(const struct rolerun_world *w, unsigned who, struct channel *c)
{
	const struct site *s = w->site;
	int rc;

	if (who == MESSAGE_REACTOR)
		return rolerun_send_log(c, MESSAGE_LOG_ACCESS, s->access_fd);
	rc = rolerun_send_dup(c, MESSAGE_KEY_DIR, VIEW_NONE, s->key_fd);
	if (rc == SP_OK && s->root_fd >= 0)
		rc = rolerun_send_dup(c, MESSAGE_TRACE_ROOT, VIEW_NONE,
		    s->root_fd);
	return rc;
}

static int
rolerun_hand_over(const struct rolerun_world *w, unsigned who,
    struct channel *c, int *peer_fd)
{
	int rc, fd;

	rc = rolerun_send_log(c, MESSAGE_LOG_ERROR, w->site->error_fd);
	if (rc == SP_OK)
		rc = rolerun_send_generation(&w->now, who, c, false);
	if (rc == SP_OK)
		rc = rolerun_send_own(w, who, c);
	if (rc == SP_OK && *peer_fd >= 0) {
		fd = *peer_fd;
		*peer_fd = -1;
		rc = channel_send(c, MESSAGE_PEER, VIEW_NONE, fd);
	}
	if (rc == SP_OK)
		rc = rolerun_send_start(w, c);
	return rc;
}

static int
rolerun_spawn(const struct rolerun_world *w, unsigned who, int channel_fd,
    pid_t *pid)
{
	char path[PATH_MAX];
	struct spawn s;
	bool reactor = who == MESSAGE_REACTOR;
	int n;

	n = snprintf(path, sizeof(path), "%s/sallyport-%s", w->dir,
	    rolerun_name(who));
	if (n < 0 || (size_t)n >= sizeof(path))
		return SP_E_LIMIT;
	memset(&s, 0, sizeof(s));
	s.path = path;
	s.name = strrchr(path, '/') + 1;
	s.change_ids = w->ids->change;
	s.uid = reactor ? w->ids->reactor_uid : w->ids->recorder_uid;
	s.gid = reactor ? w->ids->reactor_gid : w->ids->recorder_gid;
	s.files = rolerun_files(w->now.conf, who);
	s.channel_fd = channel_fd;
	return spawn_role(&s, pid);
}

int
rolerun_start(const struct rolerun_world *w, unsigned who, int peer_fd,
    pid_t *pid, struct channel **channel)
{
	struct channel *c = NULL;
	int pair[2] = { -1, -1 }, rc;

	*pid = -1;
	rc = fd_seqpacket_pair(pair);
	if (rc != SP_OK)
		goto out;
	c = channel_new(pair[0], MESSAGE_HELPER, who, ROLERUN_QUEUE_MAX);
	if (c == NULL) {
		rc = SP_E_NOMEM;
		goto out;
	}
	rc = rolerun_spawn(w, who, pair[1], pid);
	if (rc != SP_OK)
		goto out;
	rc = rolerun_hand_over(w, who, c, &peer_fd);
	/*
	 * It may be dead already: then its end says why, and SIGCHLD comes.
	 * Anything else leaves a role that waits for more: away with it.
	 */
	if (rc == SP_E_GONE)
		rc = SP_OK;
	if (rc != SP_OK)
		(void)kill(*pid, SIGKILL); /* reaped with the others */
out:
	fd_close(&pair[1]);
	fd_close(&peer_fd);
	if (rc != SP_OK)
		channel_free(c);
	else
		*channel = c;
	return rc;
}

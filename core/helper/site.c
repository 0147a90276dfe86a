#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "helper/site.h"
#include "os/dir.h"
#include "os/fd.h"
#include "os/sock.h"

static const char site_lock[] = "lock";

static int
site_bad(const char *what, struct view path, int rc, const char *why)
{
	if (rc == SP_E_NOMEM)
		return rc;
	fprintf(stderr, "sallyport: %s \"%.*s\": %s\n", what, VIEW_ARG(path),
	    why != NULL && why[0] != 0 ? why : err_str(rc));
	return SP_E_CONF;
}

static int
site_open_dir(struct view path, const struct dir_want *want, int *out,
    const char **why)
{
	char *text = mem_strndup(path.p, path.n);
	int rc;

	if (text == NULL)
		return SP_E_NOMEM;
	rc = dir_open(text, want, out, why);
	mem_free(text);
	return rc;
}

/*
 * state_dir: ours alone, or, with trace_group, open for that group to pass
 * through on its way to the traces.  Safe: the modes change on a descriptor
 * that was checked to be a directory of ours that no one else can write.
 */
static int
site_open_state(struct site *s)
{
	struct dir_want want = { geteuid(), getegid(), 0700, false,
		s->ids->change ? 0755 : 0700, false };
	struct view path = s->conf->main.state_dir;
	const char *why = NULL;
	pid_t holder;
	int rc;

	rc = site_open_dir(path, &want, &s->state_fd, &why);
	if (rc != SP_OK)
		return site_bad("state_dir", path, rc, why);
	if (s->ids->has_trace_group) {
		if (fchown(s->state_fd, (uid_t)-1, s->ids->trace_gid) != 0 ||
		    fchmod(s->state_fd, 0710) != 0)
			return site_bad("state_dir", path,
			    err_from_errno(errno),
			    "cannot be opened to trace_group");
	}
	if (dir_is_overlay(s->state_fd))
		log_notice("state_dir %.*s is on overlayfs: it lives as long "
			   "as its container; better a volume",
		    VIEW_ARG(path));
	rc = dir_lock(s->state_fd, site_lock, &s->lock_fd, &holder);
	if (rc != SP_E_EXISTS)
		return rc == SP_OK ? rc : site_bad("state_dir", path, rc, NULL);
	fprintf(stderr,
	    "sallyport: state_dir \"%.*s\" is in use by another sallyport, "
	    "process %ld; expected one on each state_dir\n",
	    VIEW_ARG(path), (long)holder);
	return SP_E_CONF;
}

/*
 * The directory of the keys, the recorder's alone.  Safe: its parent is ours
 * alone, and dir_open() gives away only what it made itself.
 */
static int
site_open_keys(struct site *s)
{
	const struct ids *ids = s->ids;
	struct dir_want want = { ids->recorder_uid, ids->recorder_gid, 0700,
		ids->change, 0, false };
	struct buf path = BUF_INIT(8192);
	const char *why = NULL;
	int rc;

	rc = buf_printf(&path, "%.*s/keys", VIEW_ARG(s->conf->main.state_dir));
	if (rc == SP_OK)
		rc = site_open_dir(buf_view(&path), &want, &s->key_fd, &why);
	if (rc != SP_OK)
		rc = site_bad("key directory", buf_view(&path), rc, why);
	buf_clear(&path);
	return rc;
}

static int
site_open_trace(struct site *s, const struct conf_capture *c)
{
	const struct ids *ids = s->ids;
	struct dir_want want = { ids->recorder_uid, ids->recorder_gid, 0700,
		ids->change, ids->change ? 0755 : 0700, !ids->change };
	const char *why = NULL;
	int fd = -1, rc;

	if (s->traces_n == ROLE_DIRS_MAX)
		return site_bad("capture", c->name, SP_E_LIMIT,
		    "is one too many; expected at most 32");
	if (ids->has_trace_group) {
		want.gid = ids->trace_gid;
		want.mode = 02750;
		want.set_ids = true;
	}
	rc = site_open_dir(c->trace_dir, &want, &fd, &why);
	if (rc == SP_E_DENIED && ids->change && why[0] != 0) {
		fprintf(stderr,
		    "%s:%u: trace directory \"%.*s\" %s; expected one that "
		    "does not exist yet, or that the recorder owns: chown "
		    "%u:%u\n",
		    c->pos.file, c->pos.line, VIEW_ARG(c->trace_dir), why,
		    (unsigned)want.uid, (unsigned)want.gid);
		return SP_E_CONF;
	}
	if (rc != SP_OK)
		return site_bad("trace directory", c->trace_dir, rc, why);
	/* taken as it is for an ordinary user: but it must be of use */
	if (!ids->change && faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) != 0) {
		fd_close(&fd);
		return site_bad("trace directory", c->trace_dir, SP_E_DENIED,
		    "cannot be written by this user");
	}
	s->traces[s->traces_n].index = c->index;
	s->traces[s->traces_n].fd = fd;
	s->traces_n++;
	return SP_OK;
}

static int
site_open_log(struct view path, int *fd, const char **why)
{
	char *text;
	int rc, opened = -1;

	if (path.n == 0 || view_eq(path, VIEW("off")) ||
	    view_eq(path, VIEW("syslog")))
		return SP_OK;
	if (view_eq(path, VIEW("stderr"))) {
		if (*fd < 0)
			*fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 4);
		return *fd < 0 ? err_from_errno(errno) : SP_OK;
	}
	text = mem_strndup(path.p, path.n);
	if (text == NULL)
		return SP_E_NOMEM;
	rc = dir_open_log(text, &opened, why);
	mem_free(text);
	if (rc != SP_OK)
		return rc;
	if (*fd < 0) {
		*fd = opened;
		return SP_OK;
	}
	/* the same number, as the log writes to it */
	if (dup3(opened, *fd, O_CLOEXEC) < 0)
		rc = err_from_errno(errno);
	fd_close(&opened);
	return rc;
}

static int
site_open_logs(struct site *s)
{
	const struct conf_main *m = &s->conf->main;
	const char *why = NULL;
	int rc;

	rc = site_open_log(m->error_log, &s->error_fd, &why);
	if (rc != SP_OK)
		return site_bad("error_log", m->error_log, rc, why);
	rc = site_open_log(m->access_log, &s->access_fd, &why);
	if (rc != SP_OK)
		return site_bad("access_log", m->access_log, rc, why);
	return SP_OK;
}

/*
 * Binding is what root is for here: ports below 1024.  Safe: addresses come
 * from the operator's configuration alone, and for paths see sock.c.
 */
static int
site_listen(struct site *s, const struct conf_listen *l)
{
	const char *step = "";
	int backlog = l->backlog > 65535 ? 65535 : (int)l->backlog;
	int fd = -1, rc;

	if (l->shared) /* another server's `listen` opens the address */
		return SP_OK;
	if (s->listens_n == ROLE_LISTENERS_MAX) {
		fprintf(stderr,
		    "%s:%u: one listen too many; expected at most %d\n",
		    l->pos.file, l->pos.line, ROLE_LISTENERS_MAX);
		return SP_E_CONF;
	}
	rc = l->is_unix
	    ? sock_listen_unix(l->address, backlog, &fd, &step)
	    : sock_listen_tcp(l->address, l->port, backlog, &fd, &step);
	if (rc != SP_OK) {
		fprintf(stderr,
		    "%s:%u: cannot listen on %.*s port %u: %s: %s\n",
		    l->pos.file, l->pos.line, VIEW_ARG(l->address),
		    (unsigned)l->port, step,
		    rc == SP_E_EXISTS ? "in use by another process"
				      : err_str(rc));
		return SP_E_CONF;
	}
	s->listens[s->listens_n].index = l->index;
	s->listens[s->listens_n].fd = fd;
	s->listens_n++;
	return SP_OK;
}

int
site_open(struct site *s, const struct conf *conf, const struct ids *ids)
{
	const struct conf_server *server;
	size_t i, j;
	int rc;

	memset(s, 0, sizeof(*s));
	s->conf = conf;
	s->ids = ids;
	s->state_fd = s->lock_fd = s->key_fd = -1;
	s->error_fd = s->access_fd = -1;
	rc = site_open_logs(s);
	if (rc == SP_OK)
		rc = site_open_state(s);
	if (rc == SP_OK)
		rc = site_open_keys(s);
	for (i = 0; rc == SP_OK && i < conf->captures_n; i++)
		if (!conf->captures[i]->off)
			rc = site_open_trace(s, conf->captures[i]);
	for (i = 0; rc == SP_OK && i < conf->servers_n; i++) {
		server = conf->servers[i];
		for (j = 0; rc == SP_OK && j < server->listens_n; j++)
			rc = site_listen(s, &server->listens[j]);
	}
	return rc;
}

int
site_reopen_logs(struct site *s)
{
	const struct conf_main *m = &s->conf->main;
	const char *why = NULL;
	int rc, worst;

	worst = site_open_log(m->error_log, &s->error_fd, &why);
	if (worst != SP_OK)
		log_error("error_log %.*s cannot be opened again: %s",
		    VIEW_ARG(m->error_log),
		    why != NULL && why[0] ? why : err_str(worst));
	why = NULL;
	rc = site_open_log(m->access_log, &s->access_fd, &why);
	if (rc != SP_OK)
		log_error("access_log %.*s cannot be opened again: %s",
		    VIEW_ARG(m->access_log),
		    why != NULL && why[0] ? why : err_str(rc));
	return worst != SP_OK ? worst : rc;
}

int
site_addresses(const struct site *s, struct buf *out)
{
	size_t i;
	int rc = SP_OK;

	for (i = 0; rc == SP_OK && i < s->listens_n; i++) {
		if (i > 0)
			rc = buf_add_char(out, ' ');
		if (rc == SP_OK)
			rc = sock_name(s->listens[i].fd, out);
	}
	return rc;
}

void
site_close_listeners(struct site *s)
{
	size_t i;

	for (i = 0; i < s->listens_n; i++) {
		sock_unlink(s->listens[i].fd);
		fd_close(&s->listens[i].fd);
	}
	s->listens_n = 0;
}

int
site_holder(const struct conf *conf, pid_t *pid)
{
	struct view path = conf->main.state_dir;
	char *text = mem_strndup(path.p, path.n);
	int dir, rc;

	if (text == NULL)
		return SP_E_NOMEM;
	dir = open(text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = dir < 0 ? err_from_errno(errno)
		     : dir_lock_holder(dir, site_lock, pid);
	fd_close(&dir);
	mem_free(text);
	if (rc == SP_OK)
		return rc;
	fprintf(stderr, "sallyport: nothing runs on state_dir \"%.*s\"%s%s\n",
	    VIEW_ARG(path), rc == SP_E_NOTFOUND ? "" : ": ",
	    rc == SP_E_NOTFOUND ? "" : err_str(rc));
	return SP_E_NOTFOUND;
}

void
site_clear(struct site *s)
{
	size_t i;

	site_close_listeners(s);
	for (i = 0; i < s->traces_n; i++)
		fd_close(&s->traces[i].fd);
	s->traces_n = 0;
	fd_close(&s->key_fd);
	fd_close(&s->access_fd);
	fd_close(&s->error_fd);
	fd_close(&s->lock_fd);
	fd_close(&s->state_fd);
}

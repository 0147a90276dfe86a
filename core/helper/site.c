#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "helper/activate.h"
#include "helper/complain.h"
#include "helper/site.h"
#include "os/dir.h"
#include "os/fd.h"
#include "os/sock.h"

const char site_lock_name[] = "lock";

static int
site_bad(const char *what, struct view path, int rc, const char *why)
{
	if (rc == SP_E_NOMEM)
		return rc;
	complain("sallyport: %s \"%.*s\": %s", what, VIEW_ARG(path),
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
	rc = dir_lock(s->state_fd, site_lock_name, &s->lock_fd, &holder);
	if (rc != SP_E_EXISTS)
		return rc == SP_OK ? rc : site_bad("state_dir", path, rc, NULL);
	complain("sallyport: state_dir \"%.*s\" is in use by another "
		 "sallyport, "
		 "process %ld; expected one on each state_dir, and one proxy "
		 "on each --trace",
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

/*
 * The folder of the traces as they are named by default: the recorder may get
 * others beneath it later.  What is in the way there is no reason not to start.
 */
static void
site_open_root(struct site *s)
{
	const struct ids *ids = s->ids;
	struct dir_want want = { ids->recorder_uid, ids->recorder_gid, 0700,
		ids->change, ids->change ? 0755 : 0700, !ids->change };
	struct buf path = BUF_INIT(8192);
	const char *why = NULL;
	int rc;

	if (ids->has_trace_group) {
		want.gid = ids->trace_gid;
		want.mode = 02750;
		want.set_ids = true;
	}
	rc =
	    buf_printf(&path, "%.*s/traces", VIEW_ARG(s->conf->main.state_dir));
	if (rc == SP_OK)
		rc = site_open_dir(buf_view(&path), &want, &s->root_fd, &why);
	if (rc != SP_OK)
		log_info("%.*s: %s: a reload can add no directory of traces",
		    VIEW_ARG(buf_view(&path)),
		    why != NULL && why[0] ? why : err_str(rc));
	buf_clear(&path);
}

static int
site_open_trace(const struct ids *ids, const struct conf_capture *c,
    struct site_set *s)
{
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
		complain("%s:%u: trace directory \"%.*s\" %s; expected one "
			 "that "
			 "does not exist yet, or that the recorder owns: chown "
			 "%u:%u",
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
		/* whoever reads it may stop doing so */
		return *fd < 0 ? fd_own_writer(STDERR_FILENO, fd) : SP_OK;
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
site_bind(const struct conf_listen *l, struct site_listen *out)
{
	const char *step = "";
	int backlog = l->backlog > 65535 ? 65535 : (int)l->backlog;
	int rc;

	out->fd = activate_take(l);
	out->passed = out->fd >= 0;
	if (out->passed)
		return SP_OK;
	rc = l->is_unix
	    ? sock_listen_unix(l->address, backlog, &out->fd, &step)
	    : sock_listen_tcp(l->address, l->port, backlog, &out->fd, &step);
	if (rc == SP_OK)
		return rc;
	complain("%s:%u: cannot listen on %.*s port %u: %s: %s", l->pos.file,
	    l->pos.line, VIEW_ARG(l->address), (unsigned)l->port, step,
	    rc == SP_E_EXISTS ? "in use by another process" : err_str(rc));
	return SP_E_CONF;
}

/* The nth different address of a configuration. */
static const struct conf_listen *
site_address(const struct conf *conf, uint32_t index)
{
	size_t i, j;

	for (i = 0; i < conf->servers_n; i++)
		for (j = 0; j < conf->servers[i]->listens_n; j++)
			if (conf->servers[i]->listens[j].index == index)
				return &conf->servers[i]->listens[j];
	if (conf->control != NULL && index == conf->listens_n)
		return &conf->control->listens[0];
	return NULL;
}

static bool
site_taken(const struct site_set *set, uint32_t was)
{
	size_t i;

	for (i = 0; i < set->listens_n; i++)
		if (set->listens[i].kept && set->listens[i].was == was)
			return true;
	return false;
}

/*
 * The socket that is there for this address, if there is one.  Several with
 * port 0 are taken in the order of the text.
 */
static bool
site_keep(const struct site *s, const struct site_set *set,
    const struct conf_listen *l, struct site_listen *out)
{
	const struct conf_listen *o;
	const struct site_listen *have;
	size_t i;

	for (i = 0; s != NULL && i < s->set.listens_n; i++) {
		have = &s->set.listens[i];
		o = site_address(s->conf, have->index);
		if (o == NULL || o->control != l->control ||
		    o->is_unix != l->is_unix || o->port != l->port ||
		    !view_eq(o->address, l->address) ||
		    site_taken(set, have->index))
			continue;
		*out = *have;
		out->kept = true;
		out->was = have->index;
		/* listen(2) again sets the backlog alone */
		if (o->backlog != l->backlog && !out->passed)
			(void)listen(out->fd,
			    l->backlog > 65535 ? 65535 : (int)l->backlog);
		return true;
	}
	return false;
}

/*
 * Binding is what root is for here: ports below 1024.  Safe: addresses come
 * from the operator's configuration alone, and for paths see sock.c.
 */
static int
site_listen(const struct site *before, const struct conf_listen *l,
    struct site_set *set)
{
	struct site_listen *out = &set->listens[set->listens_n];
	int rc = SP_OK;

	if (l->shared) /* another server's `listen` opens the address */
		return SP_OK;
	if (set->listens_n == ROLE_LISTENERS_MAX) {
		complain("%s:%u: one listen too many; expected at most %d",
		    l->pos.file, l->pos.line, ROLE_LISTENERS_MAX);
		return SP_E_CONF;
	}
	memset(out, 0, sizeof(*out));
	if (!site_keep(before, set, l, out))
		rc = site_bind(l, out);
	if (rc == SP_OK) {
		out->index = l->index;
		set->listens_n++;
	}
	return rc;
}

/*
 * The control socket is open to whom its mode names.  A path that nobody asked
 * for may be another sallyport's, or have no folder: then there is none.
 */
static int
site_bind_control(const struct ids *ids, const struct conf *conf,
    struct site_listen *out)
{
	const struct conf_main *m = &conf->main;
	gid_t group = ids->has_control_group ? ids->control_gid : SOCK_NO_GROUP;
	const struct conf_listen *l = &conf->control->listens[0];
	const char *step = "", *why;
	int rc;

	out->fd = activate_take(l);
	out->passed = out->fd >= 0;
	if (out->passed)
		return SP_OK;
	if (!m->control_given && ids->change)
		(void)mkdir(SP_RUNDIR, 0755);
	rc = sock_listen_private(m->control, group, (int)l->backlog, &out->fd,
	    &step);
	if (rc == SP_OK)
		return rc;
	why = rc == SP_E_EXISTS ? "another process, or file, has that path"
				: err_str(rc);
	if (m->control_given) {
		complain("sallyport: control \"%.*s\": %s: %s; expected a path "
			 "of its own for each sallyport, or \"control off\"",
		    VIEW_ARG(m->control), step, why);
		return SP_E_CONF;
	}
	log_notice("no control socket: %.*s: %s: %s; see \"control\"",
	    VIEW_ARG(m->control), step, why);
	return rc == SP_E_NOMEM ? rc : SP_OK;
}

static int
site_control(const struct site *before, const struct ids *ids,
    const struct conf *conf, struct site_set *set)
{
	struct site_listen *out = &set->listens[set->listens_n];
	const struct conf_listen *l;
	int rc = SP_OK;

	if (conf->control == NULL)
		return SP_OK;
	l = &conf->control->listens[0];
	if (set->listens_n == ROLE_LISTENERS_MAX) {
		complain("sallyport: one listen too many; expected at most %d "
			 "with the control socket",
		    ROLE_LISTENERS_MAX);
		return SP_E_CONF;
	}
	memset(out, 0, sizeof(*out));
	out->fd = -1;
	/* a change needs a restart, so there is nothing to open later */
	if (before == NULL)
		rc = site_bind_control(ids, conf, out);
	else
		(void)site_keep(before, set, l, out);
	if (rc == SP_OK && out->fd >= 0) {
		out->index = l->index;
		out->control = true;
		set->listens_n++;
	}
	return rc;
}

static int
site_open_set(const struct site *before, const struct ids *ids,
    const struct conf *conf, struct site_set *set)
{
	const struct conf_server *server;
	size_t i, j;
	int rc = SP_OK;

	for (i = 0; rc == SP_OK && i < conf->captures_n; i++)
		if (!conf->captures[i]->off)
			rc = site_open_trace(ids, conf->captures[i], set);
	for (i = 0; rc == SP_OK && i < conf->servers_n; i++) {
		server = conf->servers[i];
		for (j = 0; rc == SP_OK && j < server->listens_n; j++)
			rc = site_listen(before, &server->listens[j], set);
	}
	return rc == SP_OK ? site_control(before, ids, conf, set) : rc;
}

int
site_open(struct site *s, const struct conf *conf, const struct ids *ids)
{
	int rc;

	memset(s, 0, sizeof(*s));
	s->conf = conf;
	s->ids = ids;
	s->state_fd = s->lock_fd = s->key_fd = s->root_fd = -1;
	s->error_fd = s->access_fd = -1;
	s->set.error_fd = s->set.access_fd = -1;
	rc = site_open_logs(s);
	if (rc == SP_OK)
		rc = site_open_state(s);
	if (rc == SP_OK)
		rc = site_open_keys(s);
	if (rc == SP_OK) {
		site_open_root(s);
		rc = site_open_set(NULL, ids, conf, &s->set);
	}
	return rc == SP_OK ? activate_check() : rc;
}

/* ---- another configuration ------------------------------------------------ */

static int
site_next_log(const char *what, struct view before, struct view path, int *fd)
{
	static const struct view syslog = { "syslog", 6 };
	const char *why = NULL;
	int rc;

	if (view_eq(before, path))
		return SP_OK;
	/* a role has no way to the system's logger once it is confined */
	if (view_eq(before, syslog) || view_eq(path, syslog)) {
		complain("sallyport: %s: from or to \"syslog\" needs a restart",
		    what);
		return SP_E_CONF;
	}
	rc = site_open_log(path, fd, &why);
	return rc == SP_OK ? rc : site_bad(what, path, rc, why);
}

int
site_next(const struct site *s, const struct conf *conf, struct site_set *set)
{
	const struct conf_main *old = &s->conf->main, *now = &conf->main;
	int rc;

	memset(set, 0, sizeof(*set));
	set->error_fd = set->access_fd = -1;
	rc = site_next_log("error_log", old->error_log, now->error_log,
	    &set->error_fd);
	if (rc == SP_OK)
		rc = site_next_log("access_log", old->access_log,
		    now->access_log, &set->access_fd);
	return rc == SP_OK ? site_open_set(s, s->ids, conf, set) : rc;
}

static void
site_close_listen(struct site_listen *l)
{
	if (!l->passed)
		sock_unlink(l->fd);
	fd_close(&l->fd);
}

static void
site_close_traces(struct site_set *set)
{
	size_t i;

	for (i = 0; i < set->traces_n; i++)
		fd_close(&set->traces[i].fd);
	set->traces_n = 0;
}

void
site_take(struct site *s, const struct conf *conf, struct site_set *set)
{
	size_t i;

	for (i = 0; i < s->set.listens_n; i++)
		if (!site_taken(set, s->set.listens[i].index))
			site_close_listen(&s->set.listens[i]);
	site_close_traces(&s->set);
	/* the log's number stays, as it is written to */
	if (set->error_fd >= 0 && s->error_fd >= 0) {
		if (dup3(set->error_fd, s->error_fd, O_CLOEXEC) < 0)
			log_error("error_log: %s", strerror(errno));
		fd_close(&set->error_fd);
	}
	if (set->access_fd >= 0 ||
	    view_eq(conf->main.access_log, VIEW("off"))) {
		fd_close(&s->access_fd);
		s->access_fd = set->access_fd;
	}
	s->conf = conf;
	s->set = *set;
	s->set.error_fd = s->set.access_fd = -1;
	for (i = 0; i < s->set.listens_n; i++)
		s->set.listens[i].kept = false;
	memset(set, 0, sizeof(*set));
	set->error_fd = set->access_fd = -1;
}

void
site_give_up(struct site_set *set)
{
	size_t i;

	for (i = 0; i < set->listens_n; i++)
		if (!set->listens[i].kept)
			site_close_listen(&set->listens[i]);
	set->listens_n = 0;
	site_close_traces(set);
	fd_close(&set->error_fd);
	fd_close(&set->access_fd);
}

/* ---- as it is ------------------------------------------------------------- */

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

	for (i = 0; rc == SP_OK && i < s->set.listens_n; i++) {
		if (s->set.listens[i].control)
			continue;
		if (i > 0)
			rc = buf_add_char(out, ' ');
		if (rc == SP_OK)
			rc = sock_name(s->set.listens[i].fd, out);
	}
	return rc;
}

void
site_close_listeners(struct site *s)
{
	size_t i;

	for (i = 0; i < s->set.listens_n; i++)
		site_close_listen(&s->set.listens[i]);
	s->set.listens_n = 0;
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
		     : dir_lock_holder(dir, site_lock_name, pid);
	fd_close(&dir);
	mem_free(text);
	if (rc == SP_OK)
		return rc;
	complain("sallyport: nothing runs on state_dir \"%.*s\"%s%s",
	    VIEW_ARG(path), rc == SP_E_NOTFOUND ? "" : ": ",
	    rc == SP_E_NOTFOUND ? "" : err_str(rc));
	return SP_E_NOTFOUND;
}

void
site_clear(struct site *s)
{
	site_close_listeners(s);
	site_close_traces(&s->set);
	fd_close(&s->key_fd);
	fd_close(&s->root_fd);
	fd_close(&s->access_fd);
	fd_close(&s->error_fd);
	fd_close(&s->lock_fd);
	fd_close(&s->state_fd);
}

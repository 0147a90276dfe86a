#include "config.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "helper/complain.h"
#include "helper/load.h"
#include "os/xdg.h"

enum {
	LOAD_TEXT_MAX = 4 * 1024 * 1024 + 256 * 1024,
	LOAD_ERRORS_MAX = 64 * 1024,
	LOAD_PATH_MAX = 2 * PATH_MAX,
	LOAD_MADE_MAX = MANIFEST_TEXT_MAX,
};

static int
load_file_name(struct load *l, const struct load_source *src)
{
	struct buf b = BUF_INIT(LOAD_PATH_MAX);
	int rc = SP_E_NOTFOUND;

	if (src->proxy != NULL || src->path != NULL || src->manifest != NULL) {
		l->path = mem_strdup(src->proxy != NULL ? "proxy"
			: src->path != NULL             ? src->path
							: src->manifest->path);
		return l->path != NULL ? SP_OK : SP_E_NOMEM;
	}
	if (!src->privileged && xdg_dir(XDG_CONFIG, &b) == SP_OK) {
		rc = buf_add_str(&b, "/sallyport/sallyport.conf");
		if (rc == SP_OK)
			l->path = mem_strndup(buf_view(&b).p, buf_len(&b));
		if (l->path != NULL && access(l->path, R_OK) != 0) {
			mem_free(l->path);
			l->path = NULL;
		}
	}
	buf_clear(&b);
	if (l->path == NULL)
		l->path = mem_strdup(SP_SYSCONFDIR "/sallyport.conf");
	if (l->path == NULL)
		return SP_E_NOMEM;
	if (access(l->path, F_OK) == 0 || errno != ENOENT)
		return SP_OK;
	complain("sallyport: there is no %s; expected one, or -c FILE (to "
		 "start from: " SP_DOCDIR "/examples/minimal.conf), or "
		 "\"sallyport proxy URL\", which needs none",
	    l->path);
	return SP_E_NOTFOUND;
}

static int
load_defaults(struct load *l, bool privileged)
{
	int rc;

	if (privileged) {
		rc = buf_add_str(&l->state_dir, SP_STATEDIR);
		if (rc == SP_OK)
			rc = buf_add_str(&l->run_dir, SP_RUNDIR);
	} else {
		rc = xdg_dir(XDG_STATE, &l->state_dir);
		if (rc == SP_OK)
			rc = buf_add_str(&l->state_dir, "/sallyport");
		else if (rc == SP_E_NOTFOUND) /* then state_dir must be set */
			rc = buf_add_str(&l->state_dir, SP_STATEDIR);
		if (rc == SP_OK)
			rc = xdg_dir(XDG_RUNTIME, &l->run_dir);
		if (rc == SP_E_NOTFOUND)
			rc = buf_add_view(&l->run_dir, buf_view(&l->state_dir));
	}
	if (rc == SP_OK)
		rc = buf_add_char(&l->state_dir, 0);
	if (rc == SP_OK)
		rc = buf_add_char(&l->run_dir, 0);
	return rc;
}

static int
load_expand(struct load *l, const struct load_source *src, struct buf *err)
{
	struct buf text = BUF_INIT(LOAD_MADE_MAX);
	struct view extra = view_str(src->extra);
	int rc;

	if (src->proxy == NULL && src->manifest == NULL)
		return conf_expand(l->path, extra, manifestcmd_inner, &l->text,
		    err);
	rc = src->proxy != NULL ? proxycmd_text(src->proxy, &text)
				: manifestcmd_text(src->manifest, &text, err);
	if (rc == SP_OK)
		rc = conf_expand_text(src->proxy != NULL ? "proxy" : "manifest",
		    buf_view(&text), extra, &l->text, err);
	buf_clear(&text);
	return rc;
}

static void
load_complain(const struct load *l, int rc, const struct buf *err)
{
	struct view v = buf_view(err), line;
	size_t n;

	if (v.p == NULL || v.n == 0)
		complain("sallyport: %s: %s",
		    l->path != NULL ? l->path : "configuration", err_str(rc));
	while (v.n > 0) {
		n = view_find(v, '\n');
		line = view_sub(v, 0, n);
		if (line.n > 0)
			complain("%.*s", VIEW_ARG(line));
		v = view_from(v, n < v.n ? n + 1 : n);
	}
}

int
load_conf(struct load *l, const struct load_source *src)
{
	struct buf err = BUF_INIT(LOAD_ERRORS_MAX);
	struct conf_defaults d;
	char cwd[PATH_MAX];
	int rc;

	memset(l, 0, sizeof(*l));
	buf_init(&l->text, LOAD_TEXT_MAX);
	buf_init(&l->state_dir, LOAD_PATH_MAX);
	buf_init(&l->run_dir, LOAD_PATH_MAX);
	rc = load_file_name(l, src);
	if (rc == SP_OK)
		rc = load_defaults(l, src->privileged);
	if (rc == SP_OK)
		rc = load_expand(l, src, &err);
	if (rc == SP_OK) {
		d.state_dir = buf_view(&l->state_dir).p;
		d.run_dir = buf_view(&l->run_dir).p;
		d.conf_dir = getcwd(cwd, sizeof(cwd)) != NULL ? cwd : "/";
		rc = conf_parse(buf_view(&l->text), &d, &l->conf, &err);
	}
	if (rc != SP_OK && rc != SP_E_NOTFOUND)
		load_complain(l, rc, &err);
	buf_clear(&err);
	return rc;
}

void
load_warn(const struct load *l)
{
	size_t i;

	for (i = 0; i < l->conf->warnings.n; i++)
		log_warn("%.*s", VIEW_ARG(l->conf->warnings.v[i]));
}

void
load_clear(struct load *l)
{
	conf_free(l->conf);
	l->conf = NULL;
	mem_free(l->path);
	l->path = NULL;
	buf_clear(&l->text);
	buf_clear(&l->state_dir);
	buf_clear(&l->run_dir);
}

#include "config.h"

#include <string.h>

#include "base/log.h"
#include "helper/complain.h"
#include "helper/episodes.h"
#include "helper/reload.h"
#include "os/fd.h"

enum { RELOAD_NAMES_MAX = 4096 };

int
reload_state_read(struct reload_state *st, const struct reload_state *before)
{
	struct view text = buf_view(&st->load.text);
	int rc;

	memset(&st->cas, 0, sizeof(st->cas));
	st->conf_fd = -1;
	rc = secrets_read(&st->secrets, st->load.conf,
	    before != NULL ? &before->secrets : NULL);
	if (rc == SP_OK)
		rc = cas_read(&st->cas, st->load.conf);
	if (rc != SP_OK)
		return rc;
	rc = fd_sealed("sallyport.conf", text.p, text.n, &st->conf_fd);
	if (rc != SP_OK)
		complain("sallyport: sealed memory for the configuration: %s",
		    err_str(rc));
	return rc;
}

void
reload_state_clear(struct reload_state *st)
{
	fd_close(&st->conf_fd);
	cas_clear(&st->cas);
	secrets_clear(&st->secrets);
	load_clear(&st->load);
	memset(st, 0, sizeof(*st));
	st->conf_fd = -1;
}

/* By name, so that one knows what to take back, or why to restart. */
static int
reload_refuse_changes(const struct conf *was, const struct conf *is)
{
	struct buf names = BUF_INIT(RELOAD_NAMES_MAX);
	int rc = conf_restart_changes(was, is, &names);

	if (rc == SP_OK && buf_len(&names) > 0) {
		complain("sallyport: a change of %.*s needs a restart",
		    VIEW_ARG(buf_view(&names)));
		rc = SP_E_CONF;
	}
	buf_clear(&names);
	return rc;
}

int
reload_make(struct reload *r, const struct rolerun_world *w)
{
	struct reload_state *n = &r->next;
	int rc;

	memset(n, 0, sizeof(*n));
	n->conf_fd = -1;
	memset(&r->set, 0, sizeof(r->set));
	r->set.error_fd = r->set.access_fd = -1;
	r->open = true;
	rc = load_conf(&n->load, r->source);
	if (rc == SP_OK)
		rc = reload_refuse_changes(r->now.load.conf, n->load.conf);
	if (rc == SP_OK)
		rc = episodes_reload_check(w->episodes, n->load.conf);
	if (rc == SP_OK)
		rc = reload_state_read(n, &r->now);
	if (rc == SP_OK)
		rc = site_next(w->site, n->load.conf, &r->set);
	if (rc != SP_OK) {
		reload_drop(r);
		return rc;
	}
	r->generation = (struct rolerun_generation){
		.number = ++r->last,
		.conf = n->load.conf,
		.secrets = &n->secrets,
		.cas = &n->cas,
		.set = &r->set,
		.conf_fd = n->conf_fd,
	};
	return SP_OK;
}

void
reload_take(struct reload *r, struct rolerun_world *w)
{
	struct reload_state before = r->now;

	load_warn(&r->next.load);
	site_take(w->site, r->next.load.conf, &r->set);
	if (w->fleetlog != NULL)
		fleetlog_reload(w->fleetlog, r->now.load.conf,
		    r->next.load.conf);
	r->now = r->next;
	memset(&r->next, 0, sizeof(r->next));
	r->next.conf_fd = -1;
	w->now = (struct rolerun_generation){
		.number = r->generation.number,
		.conf = r->now.load.conf,
		.secrets = &r->now.secrets,
		.cas = &r->now.cas,
		.set = &w->site->set,
		.conf_fd = r->now.conf_fd,
	};
	log_set_level((enum log_level)w->now.conf->main.error_level);
	r->open = false;
	episodes_reload(w->episodes, w->now.conf);
	reload_state_clear(&before);
}

void
reload_drop(struct reload *r)
{
	if (!r->open)
		return;
	site_give_up(&r->set);
	reload_state_clear(&r->next);
	r->open = false;
}

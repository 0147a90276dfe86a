#include "config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "helper/ids.h"
#include "os/cred.h"

/* A named user must exist; without a name the account, else the number. */
static int
ids_user(struct view name, const char *account, uid_t reserved, uid_t *uid,
    gid_t *gid)
{
	if (name.n > 0) {
		if (cred_user(name, uid, gid) == SP_OK)
			return SP_OK;
		fprintf(stderr,
		    "sallyport: user \"%.*s\" does not exist; expected an "
		    "account of this host, or no \"user\" directive\n",
		    VIEW_ARG(name));
		return SP_E_CONF;
	}
	if (cred_user(view_str(account), uid, gid) == SP_OK)
		return SP_OK;
	*uid = reserved;
	*gid = (gid_t)reserved;
	return SP_OK;
}

/* No name: no group. */
static int
ids_group(const char *directive, struct view name, bool *has, gid_t *gid)
{
	*has = name.n > 0;
	if (!*has || cred_group(name, gid) == SP_OK)
		return SP_OK;
	fprintf(stderr,
	    "sallyport: %s: the group \"%.*s\" does not exist; expected a "
	    "group of this host\n",
	    directive, VIEW_ARG(name));
	return SP_E_CONF;
}

static int
ids_check(const struct ids *ids)
{
	/* root's own group opens as much as its number does */
	if (ids->reactor_uid == 0 || ids->recorder_uid == 0 ||
	    ids->reactor_gid == 0 || ids->recorder_gid == 0) {
		fprintf(stderr,
		    "sallyport: reactor and recorder never run as root; "
		    "expected another \"user\"\n");
		return SP_E_CONF;
	}
	if (ids->reactor_uid == ids->recorder_uid) {
		fprintf(stderr,
		    "sallyport: reactor and recorder would share uid %u; "
		    "expected two users, so that the one cannot touch the "
		    "other's traces\n",
		    (unsigned)ids->reactor_uid);
		return SP_E_CONF;
	}
	return SP_OK;
}

int
ids_resolve(struct ids *ids, const struct conf *conf)
{
	const struct conf_main *m = &conf->main;
	int rc;

	memset(ids, 0, sizeof(*ids));
	ids->change = geteuid() == 0;
	rc = ids_user(m->user, "sallyport", CRED_REACTOR_ID, &ids->reactor_uid,
	    &ids->reactor_gid);
	/* with one name the recorder has a number of its own */
	if (rc == SP_OK && m->user.n > 0 && m->rec_user.n == 0) {
		ids->recorder_uid = CRED_RECORDER_ID;
		ids->recorder_gid = CRED_RECORDER_ID;
	} else if (rc == SP_OK) {
		rc = ids_user(m->rec_user, "sallyport-rec", CRED_RECORDER_ID,
		    &ids->recorder_uid, &ids->recorder_gid);
	}
	if (rc == SP_OK)
		rc = ids_group("trace_group", m->trace_group,
		    &ids->has_trace_group, &ids->trace_gid);
	if (rc == SP_OK)
		rc = ids_group("control", m->control_group,
		    &ids->has_control_group, &ids->control_gid);
	if (rc == SP_OK)
		rc = ids_check(ids);
	if (rc == SP_OK && !ids->change) {
		ids->reactor_uid = ids->recorder_uid = geteuid();
		ids->reactor_gid = ids->recorder_gid = getegid();
	}
	return rc;
}

void
ids_notice(const struct ids *ids, const struct conf *conf)
{
	if (!ids->change) {
		log_notice("started as uid %u, not as root: reactor and "
			   "recorder run as the same user, so nothing but "
			   "their own confinement separates them%s",
		    (unsigned)geteuid(),
		    conf->main.user.n > 0 ? "; \"user\" has no effect" : "");
		return;
	}
	log_notice("reactor runs as uid %u gid %u, recorder as uid %u gid %u",
	    (unsigned)ids->reactor_uid, (unsigned)ids->reactor_gid,
	    (unsigned)ids->recorder_uid, (unsigned)ids->recorder_gid);
	if (ids->recorder_uid == CRED_RECORDER_ID &&
	    conf->main.rec_user.n == 0 &&
	    cred_uid_named(CRED_RECORDER_ID, NULL))
		log_warn("uid %u is an account of this host; better name the "
			 "recorder's user: \"user NAME NAME;\"",
		    (unsigned)CRED_RECORDER_ID);
}

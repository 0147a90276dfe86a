#include "config.h"

#include <grp.h>
#include <pwd.h>
#include <string.h>

#include "base/num.h"
#include "os/cred.h"

enum { CRED_NAME_MAX = 255 };

static int
cred_name(struct view v, char out[CRED_NAME_MAX + 1])
{
	if (v.n == 0 || v.n > CRED_NAME_MAX || memchr(v.p, 0, v.n) != NULL)
		return SP_E_ARG;
	memcpy(out, v.p, v.n);
	out[v.n] = 0;
	return SP_OK;
}

int
cred_user(struct view name, uid_t *uid, gid_t *gid)
{
	char text[CRED_NAME_MAX + 1];
	const struct passwd *pw;
	uint64_t n;
	int rc;

	rc = cred_name(name, text);
	if (rc != SP_OK)
		return rc;
	pw = getpwnam(text);
	if (pw == NULL && num_u64(name, 0, UINT32_MAX - 1, &n) == SP_OK) {
		pw = getpwuid((uid_t)n);
		if (pw == NULL) {
			*uid = (uid_t)n;
			*gid = (gid_t)n;
			return SP_OK;
		}
	}
	if (pw == NULL)
		return SP_E_NOTFOUND;
	*uid = pw->pw_uid;
	*gid = pw->pw_gid;
	return SP_OK;
}

int
cred_group(struct view name, gid_t *gid)
{
	char text[CRED_NAME_MAX + 1];
	const struct group *gr;
	uint64_t n;
	int rc;

	rc = cred_name(name, text);
	if (rc != SP_OK)
		return rc;
	gr = getgrnam(text);
	if (gr != NULL) {
		*gid = gr->gr_gid;
		return SP_OK;
	}
	if (num_u64(name, 0, UINT32_MAX - 1, &n) != SP_OK)
		return SP_E_NOTFOUND;
	*gid = (gid_t)n;
	return SP_OK;
}

bool
cred_uid_named(uid_t uid, struct buf *out)
{
	const struct passwd *pw = getpwuid(uid);

	if (pw == NULL)
		return false;
	if (out != NULL && buf_add_str(out, pw->pw_name) != SP_OK)
		buf_reset(out, 0);
	return true;
}

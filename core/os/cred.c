#include "config.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/num.h"
#include "os/cred.h"

enum { CRED_NAME_MAX = 255, CRED_GROUPS_MAX = 65536 };

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

/* The groups beside the first; the kernel says how many there are. */
static int
cred_peer_groups(int fd, gid_t group)
{
	socklen_t n = 0;
	gid_t *all;
	size_t i;
	int rc = SP_E_DENIED;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &n) == 0 ||
	    errno != ERANGE || n > CRED_GROUPS_MAX * sizeof(gid_t))
		return SP_E_DENIED;
	all = mem_alloc(n);
	if (all == NULL)
		return SP_E_DENIED;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, all, &n) == 0)
		for (i = 0; i < n / sizeof(gid_t); i++)
			if (all[i] == group)
				rc = SP_OK;
	mem_free(all);
	return rc;
}

int
cred_peer(int fd, gid_t group)
{
	struct ucred peer = { 0 };
	socklen_t n = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) != 0 ||
	    n != sizeof(peer) || peer.uid == (uid_t)-1)
		return SP_E_DENIED;
	/* its pid is 0 when it lives outside of our pid namespace, as the host's
	 * root does for a container */
	if (peer.uid == 0 || peer.uid == geteuid())
		return SP_OK;
	if (group == CRED_NO_GROUP)
		return SP_E_DENIED;
	return peer.gid == group ? SP_OK : cred_peer_groups(fd, group);
}

#include "config.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/privs.h"

static int
drop_bounding(struct sbox_why *w)
{
	unsigned long cap;

	/* as many as the kernel knows: it says EINVAL behind the last */
	for (cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0)
			return sbox_why_errno(w, errno, "bounding set");
	return SP_OK;
}

static int
clear_caps(struct sbox_why *w)
{
	struct __user_cap_header_struct head;
	struct __user_cap_data_struct data[2];

	memset(&head, 0, sizeof(head));
	head.version = _LINUX_CAPABILITY_VERSION_3;
	memset(data, 0, sizeof(data));
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 ||
	    syscall(SYS_capset, &head, data) != 0)
		return sbox_why_errno(w, errno, "capabilities");
	return SP_OK;
}

/*
 * Groups before users, real, effective and saved ids in one call each.  The
 * ids come from the helper's configuration and are not root's; that there is
 * no way back is tried, not assumed.
 */
static int
change_ids(struct sbox_why *w, uid_t uid, gid_t gid, bool userns)
{
	if (setgroups(0, NULL) != 0 && !userns)
		return sbox_why_errno(w, errno, "supplementary groups");
	if (setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0)
		return sbox_why_errno(w, errno, "uid %u gid %u", (unsigned)uid,
		    (unsigned)gid);
	return SP_OK;
}

static int
check_no_return(struct sbox_why *w)
{
	if ((getuid() != 0 && setuid(0) == 0) ||
	    (getgid() != 0 && setgid(0) == 0))
		return sbox_why_errno(w, EPERM, "root could be had again");
	return SP_OK;
}

int
privs_drop(struct sbox_why *w, uid_t uid, gid_t gid, bool userns)
{
	int rc;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return sbox_why_errno(w, errno, "no_new_privs");
	rc = drop_bounding(w); /* needs CAP_SETPCAP: before the uid goes */
	if (rc == SP_OK)
		rc = change_ids(w, uid, gid, userns);
	if (rc == SP_OK)
		rc = clear_caps(w);
	if (rc == SP_OK)
		rc = check_no_return(w);
	/* after the change of uid, which clears it */
	if (rc == SP_OK && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
		rc = sbox_why_errno(w, errno, "parent's death signal");
	return rc;
}

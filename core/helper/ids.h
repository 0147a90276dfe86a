/* Which users the roles run as. */
#ifndef SP_HELPER_IDS_H
#define SP_HELPER_IDS_H

#include <stdbool.h>
#include <sys/types.h>

#include "conf/conf.h"

struct ids {
	bool change; /* started as root */
	uid_t reactor_uid, recorder_uid;
	gid_t reactor_gid, recorder_gid;
	bool has_trace_group;
	gid_t trace_gid;
	bool has_control_group;
	gid_t control_gid;
};

/*
 * Source:  the directives user, trace_group and control; as root and without them the
 *          users sallyport and sallyport-rec where they exist, else the uids
 *          64801 and 64802.
 * Context: start-up; asks the name service.  Complaints go to standard error.
 * Returns: 0; SP_E_CONF.
 */
int ids_resolve(struct ids *ids, const struct conf *conf) must_check;
/* One notice line: who runs as whom, or that nothing is separated. */
void ids_notice(const struct ids *ids, const struct conf *conf);

#endif

#include "config.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/ws_place.h"

void
ws_snapshot(const struct ws *w, int to, const struct tree_bounds *bounds,
    struct ws_answer *a)
{
	struct tree_copied n;
	struct stat st;
	int rc;

	ws_place_begin(a);
	if (w->upper < 0) {
		(void)!ws_place_fail(a, SP_E_ARG, "no upper layer");
		return;
	}
	rc = tree_copy(w->upper, to, bounds, true, &n, NULL);
	a->size = n.bytes;
	/* the root of the workspace is the root of the layer */
	if (rc == SP_OK && fstat(w->upper, &st) != 0)
		rc = err_from_errno(errno);
	if (rc == SP_OK && fchown(to, st.st_uid, st.st_gid) != 0 &&
	    geteuid() == 0)
		rc = err_from_errno(errno);
	if (rc == SP_OK && fchmod(to, st.st_mode & 07777) != 0)
		rc = err_from_errno(errno);
	if (rc == SP_E_STATE)
		rc = SP_E_AGAIN;
	if (rc != SP_OK)
		(void)!ws_place_fail(a, rc, "snapshot");
}

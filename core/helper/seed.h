/* What workspaces begin with: a copy that nobody changes any more. */
#ifndef SP_HELPER_SEED_H
#define SP_HELPER_SEED_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

/*
 * Copies a workspace to state_dir/seeds/NAME (a directory that only its owner
 * can enter), with owners, modes, times, attributes and links; an overlay's
 * lower layer must not change while it is mounted.  The copy takes its place
 * whole or not at all; one of an earlier start is kept when the workspace has
 * not changed since, by the fingerprint of all its entries' metadata.
 * Source:  the kernel's overlayfs document.
 * Context: helper, at start, before any sandbox has that seed; blocks on the
 *          disk, as long as the workspace is large.
 * Parameters: state, directory; name, of the environment; workspace, absolute
 *          path; why: on a failure, what is wrong, for people.
 * Owner:   *out, the directory, is the caller's; *copied (may be NULL): it was
 *          copied anew.
 * Returns: 0; SP_E_DENIED others could replace the workspace, or it cannot be
 *          read; SP_E_UNSUPPORTED it holds a socket, a device, a FIFO or a
 *          mount; SP_E_NOTFOUND; SP_E_NOSPC; SP_E_ARG a name that is none;
 *          SP_E_*.
 */
int seed_capture(int state, struct view name, const char *workspace, int *out,
    bool *copied, struct buf *why) must_check;
/*
 * Opens what was captured under that name.
 * Context: helper; does not wait for the workspace.
 * Returns: 0 with *out, the caller's; SP_E_NOTFOUND; SP_E_*.
 */
int seed_open(int state, struct view name, int *out) must_check;

#endif

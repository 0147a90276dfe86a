/* sallyport -t: everything that can be known without starting. */
#ifndef SP_HELPER_CHECK_H
#define SP_HELPER_CHECK_H

#include "helper/reload.h"

/*
 * What this host can promise of the environments, appended as a table.
 * Context: helper; blocks, builds a sandbox of each and takes it down.
 * Returns: 0, also without environments; SP_E_CONF after complaints; SP_E_*.
 */
int check_episodes(const struct reload_state *st, struct buf *out) must_check;

/*
 * Secrets, trusted certificates and users; then a reactor of its own, with no
 * listener, looks at what the helper does not parse: keys and certificates.
 * Context: helper; blocks, at most a minute.
 * Parameters: st, its load is there; the rest is read here.
 * Owner:   st, until reload_state_clear().
 * Returns: 0; SP_E_CONF and others after complaints; SP_E_NOMEM.
 */
int check_run(struct reload_state *st) must_check;

#endif

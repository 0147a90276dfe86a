/* sallyport -t: everything that can be known without starting. */
#ifndef SP_HELPER_CHECK_H
#define SP_HELPER_CHECK_H

#include "helper/reload.h"

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

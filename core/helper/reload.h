/* Another configuration while the roles serve: what the helper does itself. */
#ifndef SP_HELPER_RELOAD_H
#define SP_HELPER_RELOAD_H

#include "helper/cas.h"
#include "helper/load.h"
#include "helper/rolerun.h"
#include "helper/secrets.h"

/* A configuration and what the helper read and opened for it. */
struct reload_state {
	struct load load;
	struct secrets secrets;
	struct cas cas;
	int conf_fd; /* sealed; -1 none */
};

struct reload {
	const struct load_source *source; /* borrowed: read again from there */
	struct reload_state now; /* what rolerun_world.now borrows */
	struct reload_state next;
	struct site_set set; /* opened for next */
	struct rolerun_generation generation; /* next, as it is handed over */
	uint32_t last; /* number given out */
	bool open; /* there is a next one */
};

/*
 * Reads what a configuration that was parsed needs and seals its text.
 * Context: helper; blocks on files; complains.
 * Parameters: before, the configuration before, or NULL.
 * Owner:   reload_state_clear(), also after a failure; st->load is filled in
 *          by the caller, with load_conf().
 * Returns: 0; SP_E_CONF; SP_E_NOMEM; SP_E_SYS.
 */
int reload_state_read(struct reload_state *st,
    const struct reload_state *before) must_check;
void reload_state_clear(struct reload_state *st);

/*
 * Makes the next one: nothing changes yet.
 * Context: helper's loop; blocks on files, as the operator asked for.
 * Returns: 0, then r->generation is to be handed over; SP_E_CONF after
 *          complaints: also a change that needs a restart; SP_E_NOMEM, SP_E_SYS.
 */
int reload_make(struct reload *r, const struct rolerun_world *w) must_check;
/* The next one is the current one; logs that changed are open. */
void reload_take(struct reload *r, struct rolerun_world *w);
/* There is no next one; NULL-safe in the sense that none may be there. */
void reload_drop(struct reload *r);

#endif

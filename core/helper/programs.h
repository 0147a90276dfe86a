/* Whether the programs of an environment are there, in a sandbox of it. */
#ifndef SP_HELPER_PROGRAMS_H
#define SP_HELPER_PROGRAMS_H

#include "helper/assets.h"
#include "helper/slot.h"

struct programs {
	struct slot *slot; /* borrowed; READY, and only for a try */
	const struct conf_environment *env;
	size_t at; /* 0 the worker, then the processes, then the assets */
	char head[ASSETS_HEAD]; /* of the asset */
	struct view script; /* in it: the interpreter that is looked for */
	int rc; /* SP_OK, or SP_E_CONF after a complaint */
};

/*
 * Looks at the worker's program, those of all processes, and what the assets
 * that are run name as their interpreters, one by one.
 * Context: helper, with a loop; does not block.
 * Returns: 0: programs_heard() goes on; SP_E_NOTFOUND none is left to look
 *          at, and rc tells; SP_E_*.
 */
int programs_begin(struct programs *t, struct slot *s,
    const struct conf_environment *env) must_check;
/* An answer of that slot: as above; SP_E_AGAIN it is about something else. */
int programs_heard(struct programs *t, const struct channel_msg *m,
    struct view rest) must_check;

#endif

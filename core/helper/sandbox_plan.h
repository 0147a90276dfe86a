/* From a block of the configuration to what a keeper builds. */
#ifndef SP_HELPER_SANDBOX_PLAN_H
#define SP_HELPER_SANDBOX_PLAN_H

#include "conf/conf_env.h"
#include "ipc/sandbox_msg.h"

struct sandbox_plan {
	uint32_t slot, generation;
	uint32_t env_place; /* which of the environment's uids */
	uint8_t side; /* enum sandbox_side */
	bool privileged;
	bool first; /* it owns the workspace, and has the network */
	struct view assets; /* of an oracle's: what their folder is called */
};

/*
 * The encoded spec, sealed.
 * Context: helper; does not block.
 * Owner:   *out is the caller's.
 * Returns: 0; SP_E_LIMIT; SP_E_NOMEM; SP_E_*.
 */
int sandbox_plan_seal(const struct sandbox_plan *p,
    const struct conf_environment *env, int *out) must_check;
/* How many places an environment's range of uids has. */
uint32_t sandbox_plan_places(const struct conf_environment *env);

#endif

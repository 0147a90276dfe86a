/* Plays a turn of the script into the payload of one reply. */
#ifndef SP_SM_RENDER_H
#define SP_SM_RENDER_H

#include "sm_ask.h"
#include "sm_reply.h"
#include "sm_token.h"

struct sm_render {
	const struct sm_ask *ask;
	const struct sm_json *turn;
	enum sm_shape shape;
	struct view model;
	uint64_t serial; /* for the id */
	bool honour_max; /* stop at max_tokens */
};

/*
 * Context: any, does not block.
 * Owner:   p, the caller; nothing of turn or ask is kept.
 * Returns: 0; SP_E_NOMEM; SP_E_LIMIT.
 */
int sm_render_turn(const struct sm_render *r, struct sm_payload *p) must_check;
/* The turn answers with a stream of events, whatever was asked. */
bool sm_render_streams(const struct sm_ask *ask, const struct sm_json *turn);
/*
 * Checks a turn of a script: NULL, or what is wrong with it, static text.
 */
const char *sm_render_check(const struct sm_json *turn);

#endif

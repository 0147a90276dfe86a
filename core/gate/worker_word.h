/* What of JSON-RPC those may ask a worker who have operations of their own. */
#ifndef SP_GATE_WORKER_WORD_H
#define SP_GATE_WORKER_WORD_H

#include "base/view.h"

enum worker_word {
	WORKER_WORD_ASKS, /* it is answered, with id null if it has none */
	/* without an id, notifications/...: the worker is not told */
	WORKER_WORD_NOTES,
	WORKER_WORD_BAD, /* no request: JSON-RPC -32600 */
	WORKER_WORD_NO_METHOD, /* -32601 */
};

/*
 * Source:  JSON-RPC 2.0 s4; OpenEnv's /ws, where what has no id is answered,
 *          too.  initialize and notifications are the gateway's own, who is
 *          the worker's client; env/reset and its like have operations.
 * Context: any; may allocate.
 * Parameters: why, of BAD and NO_METHOD: static words.
 */
enum worker_word worker_word(struct view text, const char **why);

#endif

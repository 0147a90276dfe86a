/*
 * The envelope of a JSON-RPC message, and its ids replaced in the bytes that
 * came.
 */
#ifndef SP_GATE_WORKER_RPC_H
#define SP_GATE_WORKER_RPC_H

#include "base/buf.h"
#include "json/jscan.h"

enum { WORKER_RPC_SAME = 4 }; /* members of one name that are followed */

/* One kind of member, each time it stands there; the last one counts. */
struct worker_rpc_spans {
	struct jscan_span v[WORKER_RPC_SAME];
	unsigned n;
};

struct worker_rpc {
	struct jscan s; /* of the text, for jscan_is() and the like */
	bool known; /* that it is JSON: what is of no use is passed over */
	size_t open; /* after the brace */
	bool empty; /* {} */
	bool version; /* "jsonrpc":"2.0" */
	bool has_method, has_result, has_error, has_params;
	struct jscan_span method, result, error, params;
	struct worker_rpc_spans id;
	struct worker_rpc_spans meta_token; /* params._meta.progressToken */
	struct worker_rpc_spans token; /* params.progressToken */
	struct jscan_span request_id; /* params.requestId; kind NONE: none */
};

/*
 * Source:  JSON-RPC 2.0 s4, s5; MCP 2025-11-25, progress and cancellation.
 * Context: any; no allocation.
 * Returns: 0; SP_E_SYNTAX no JSON, no object, not UTF-8, or the same member
 *          more often than is followed.
 */
int worker_rpc_read(struct view text, struct worker_rpc *r) must_check;
/*
 * The same of what one has read already, or jrpc_read() has: a text that is
 * none is not found out.
 */
int worker_rpc_reread(struct view text, struct worker_rpc *r) must_check;
/* The last of them as it is written; empty: there is none. */
struct view worker_rpc_raw(const struct worker_rpc *r,
    const struct worker_rpc_spans *v);
/*
 * The text with other ids and progress tokens, appended to out.
 * Parameters: id, meta_token, token: raw JSON; NULL: as they are.  An id is
 *          added where there is none.
 * Returns: 0; SP_E_NOMEM; SP_E_LIMIT.
 */
int worker_rpc_put(const struct worker_rpc *r, const struct view *id,
    const struct view *meta_token, const struct view *token,
    struct buf *out) must_check;
/* One value and nothing else, an object: 0; SP_E_SYNTAX. */
int worker_rpc_object(struct view text) must_check;

#endif

/*
 * The envelope of JSON-RPC 2.0: where the parts of a message stand, so that
 * its bytes pass on unchanged.
 */
#ifndef SP_JSON_JRPC_H
#define SP_JSON_JRPC_H

#include "json/jscan.h"

enum jrpc_kind {
	JRPC_INVALID = 0,
	JRPC_REQUEST,
	JRPC_NOTIFICATION, /* a method and no id */
	JRPC_RESPONSE, /* a result or an error */
};

/* Source: JSON-RPC 2.0 s5.1. */
enum jrpc_code {
	JRPC_PARSE_ERROR = -32700,
	JRPC_INVALID_REQUEST = -32600,
	JRPC_METHOD_NOT_FOUND = -32601,
	JRPC_INVALID_PARAMS = -32602,
	JRPC_INTERNAL_ERROR = -32603,
	JRPC_SERVER_ERROR = -32000, /* and below, of the implementation */
	JRPC_NO_SESSION = -32001, /* MCP: servers of the SDK */
};

/* A member of the parameters. */
struct jrpc_param {
	struct jscan_span key, val;
};

enum { JRPC_PARAMS_MAX = 8 }; /* of them that are remembered */

/* Spans in text; of kind JSCAN_NONE: it is not there. */
struct jrpc {
	enum jrpc_kind kind;
	struct view text;
	struct jscan_span id; /* a string, a number or null */
	struct jscan_span method; /* a string */
	struct jscan_span params; /* an object or an array */
	struct jscan_span result, error;
	/* those of params, when it is an object */
	struct jrpc_param param[JRPC_PARAMS_MAX];
	unsigned param_n;
	bool more; /* than that */
};

/*
 * Reads one message.  So that whoever reads it after us finds the same: no
 * member may stand twice, none may be another but for the case of its name,
 * and there may be no others.
 * Source:  JSON-RPC 2.0 s4, s5; RFC 8259 s4, s8.1.
 * Context: any role, no allocation, no blocking; linear in the text.
 * Parameters: text, borrowed as long as out is used.
 * Returns: 0; SP_E_SYNTAX it is no JSON text in UTF-8; SP_E_LIMIT it is nested
 *          too deep; SP_E_PROTO it is JSON, and no message: kind is
 *          JRPC_INVALID, and the members that were good are in their place
 *          (an id to answer with).
 */
int jrpc_read(struct view text, struct jrpc *out) must_check;
/* The bytes of a span as written; p NULL when it is not there. */
static inline struct view
jrpc_raw(const struct jrpc *m, const struct jscan_span *s)
{
	return s->kind == JSCAN_NONE
	    ? VIEW_NONE
	    : view_of(m->text.p + s->start, s->end - s->start);
}
/* The decoded method is that one. */
bool jrpc_is(const struct jrpc *m, struct view method);
/*
 * A member of an object in m->text (params, or one in it), which was found to
 * be JSON: what is in the others is passed over.
 * Returns: 1 with *out; 0 it is not there, or `in` is no object; SP_E_PROTO it
 *          stands twice, or beside one whose name differs in case alone.
 */
int jrpc_member(const struct jrpc *m, const struct jscan_span *in,
    struct view name, struct jscan_span *out) must_check;
/* False: params has no member of that name, nor one but for its case. */
bool jrpc_has_param(const struct jrpc *m, struct view name);
/*
 * The decoded string, appended: 0; SP_E_SYNTAX no string, or one that is not
 * all Unicode; SP_E_LIMIT; SP_E_NOMEM.
 */
int jrpc_string(const struct jrpc *m, const struct jscan_span *s,
    struct buf *out) must_check;

/*
 * Two ids as written are one: strings by what they say, however that is
 * escaped, all else by its bytes.  False also without memory.
 */
bool jrpc_same_id(struct view a, struct view b);

/*
 * A batch: an array of messages.
 * jrpc_batch_open: 0; SP_E_STATE the text is no array (nothing else was looked
 *          at); SP_E_SYNTAX; SP_E_LIMIT.
 * jrpc_batch_next: 1 with the next one's text; 0 there are no more.
 */
struct jrpc_batch {
	struct jscan s;
	size_t n; /* messages in all */
};
int jrpc_batch_open(struct jrpc_batch *b, struct view text) must_check;
int jrpc_batch_next(struct jrpc_batch *b, struct view *item) must_check;

/*
 * Appends a response.  Members are in the order jsonrpc, id, result or error.
 * Parameters: id, raw JSON, empty: null; result, data: raw JSON; data empty:
 *          there is no such member.
 * Returns: 0; SP_E_LIMIT; SP_E_NOMEM (out is then unchanged).
 */
int jrpc_put_result(struct buf *out, struct view id,
    struct view result) must_check;
int jrpc_put_error(struct buf *out, struct view id, int code,
    struct view message, struct view data) must_check;

#endif

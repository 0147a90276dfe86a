#include "config.h"

#include "gate/worker_word.h"

#include "base/buf.h"
#include "json/jrpc.h"

enum { WORD_METHOD_MAX = 1024 };

static enum worker_word
word_of_method(struct view method, bool notes, const char **why)
{
	if (view_starts(method, VIEW("notifications/"))) {
		*why = "what begins with notifications/ has no id: with one it "
		       "is a request";
		return notes ? WORKER_WORD_NOTES : WORKER_WORD_NO_METHOD;
	}
	if (view_starts(method, VIEW("env/"))) {
		*why = "what begins with env/ is an operation of its own: "
		       "reset, step or state";
		return WORKER_WORD_NO_METHOD;
	}
	if (view_eq(method, VIEW("initialize"))) {
		*why = "the worker was initialized when it began";
		return WORKER_WORD_NO_METHOD;
	}
	return WORKER_WORD_ASKS;
}

enum worker_word
worker_word(struct view text, const char **why)
{
	struct buf method = BUF_INIT(WORD_METHOD_MAX);
	enum worker_word w = WORKER_WORD_BAD;
	struct jrpc m;
	int rc = jrpc_read(text, &m);

	*why = "it is no request of JSON-RPC: {\"jsonrpc\": \"2.0\", \"id\": "
	       "..., \"method\": ..., \"params\": {...}}";
	if (rc != SP_OK || m.kind == JRPC_RESPONSE)
		return w;
	rc = jrpc_string(&m, &m.method, &method);
	if (rc == SP_OK) {
		w = word_of_method(buf_view(&method),
		    m.kind == JRPC_NOTIFICATION, why);
	} else if (rc == SP_E_LIMIT) {
		*why = "no method has a name of more than 1024 bytes";
		w = WORKER_WORD_NO_METHOD;
	} else if (rc == SP_E_NOMEM) {
		*why = "there is no memory to look at it";
	}
	buf_clear(&method);
	return w;
}

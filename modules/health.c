#include "config.h"

#include "health.h"
#include "health_conf.h"

static enum gate_verdict
health_head(struct gate_request *r)
{
	struct view method = r->x->request.method;
	bool ok = gate_healthy(r->gate, NULL);
	int rc;

	if (!view_eq(method, VIEW("GET")) && !view_eq(method, VIEW("HEAD"))) {
		r->status = 405;
		r->allow = "GET, HEAD";
		r->code = "method_not_allowed";
		r->reason = "the health of the gateway is read with GET";
		return GATE_DENY;
	}
	r->status = ok ? 200 : 503;
	rc = exchange_simple(r->x, r->status, VIEW("application/json"),
	    ok ? VIEW("{\"status\":\"ok\"}\n")
	       : VIEW("{\"status\":\"unavailable\"}\n"));
	return rc == SP_OK ? GATE_DONE : GATE_FAIL;
}

const struct gate_module health_module = {
	.conf = &health_conf,
	.principals = GATE_OPERATOR,
	.hook = { [GATE_HEAD] = health_head },
};

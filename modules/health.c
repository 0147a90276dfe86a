#include "config.h"

#include "health.h"
#include "health_conf.h"

#include "json/jwrite.h"

enum { HEALTH_BODY_MAX = 4096 };

static int
health_answer(struct gate_request *r, bool ok, const char *why)
{
	struct buf body = BUF_INIT(HEALTH_BODY_MAX);
	struct jwrite w;
	int rc;

	jwrite_init(&w, &body);
	jwrite_object(&w);
	jwrite_key(&w, "status");
	jwrite_cstr(&w, ok ? "ok" : "unavailable");
	if (!ok) {
		jwrite_key(&w, "reason");
		jwrite_cstr(&w, why);
	}
	jwrite_end_object(&w);
	rc = jwrite_finish(&w);
	if (rc == SP_OK)
		rc = buf_add_str(&body, "\n");
	r->status = ok ? 200 : 503;
	if (rc == SP_OK)
		rc = exchange_simple(r->x, r->status, VIEW("application/json"),
		    buf_view(&body));
	buf_clear(&body);
	return rc;
}

static enum gate_verdict
health_head(struct gate_request *r)
{
	struct view method = r->x->request.method;
	const char *why;
	bool ok;

	if (!view_eq(method, VIEW("GET")) && !view_eq(method, VIEW("HEAD"))) {
		r->status = 405;
		r->allow = "GET, HEAD";
		r->code = "method_not_allowed";
		r->reason = "the health of the gateway is read with GET";
		return GATE_DENY;
	}
	ok = gate_healthy(r->gate, &why);
	return health_answer(r, ok, why) == SP_OK ? GATE_DONE : GATE_FAIL;
}

const struct gate_module health_module = {
	.conf = &health_conf,
	.principals = GATE_OPERATOR,
	.hook = { [GATE_HEAD] = health_head },
};

/* OpenEnv's routes without state: an episode for each request. */
#include "config.h"

#include "lifecycle.h"

#include "base/mem.h"
#include "gate/bound.h"
#include "gate/door.h"
#include "json/jscan.h"
#include "json/jwrite.h"
#include "lifecycle_call.h"
#include "lifecycle_plain_conf.h"

enum { PLAIN_ERROR_MAX = 256 * 1024 };

struct plain {
	struct gate_request *r;
	const struct lifecycle_plain_conf *conf;
	enum lifecycle_op op;
	struct view data; /* within r->body */
	struct lifecycle_lease *lease;
	struct lifecycle_run *run;
	uint64_t since_us;
	struct bound_ticket place;
};

static void
plain_log(const struct plain *p, const char *outcome)
{
	const struct door_operation op = {
		.principal = "orchestrator",
		.door = "lifecycle_plain",
		.operation = lifecycle_call_op(p->op),
		.episode =
		    p->lease != NULL ? view_str(p->lease->id) : VIEW_NONE,
		.outcome = outcome,
		.us = loop_now_us(gate_loop(p->r->gate)) - p->since_us,
	};

	door_log(p->r, &op);
}

/* ---- answers -------------------------------------------------------------- */

static void
plain_send(struct plain *p, unsigned status, int rc, struct view body)
{
	struct gate_request *r = p->r;

	r->status = status;
	if (rc == SP_OK)
		rc = exchange_simple(r->x, status, VIEW("application/json"),
		    body);
	if (rc != SP_OK && rc != SP_E_GONE)
		exchange_abort(r->x);
	if (rc != SP_E_GONE)
		gate_finish(r);
}

static unsigned
plain_status(enum lifecycle_outcome o)
{
	static const unsigned short statuses[LIFECYCLE_OUTCOMES] = {
		[LIFECYCLE_CAPACITY] = 503,
		[LIFECYCLE_BUSY] = 503,
		[LIFECYCLE_NO_MEMORY] = 503,
		[LIFECYCLE_NO_HELPER] = 503,
		[LIFECYCLE_EXISTS] = 409,
		[LIFECYCLE_TIMEOUT] = 504,
	};

	return statuses[o] != 0 ? statuses[o] : 500;
}

/* {"detail":"Environment operation failed","error":{..}} */
static void
plain_fault(struct plain *p, enum lifecycle_outcome o, struct view cause,
    struct view tail)
{
	const struct lifecycle_fault f = {
		.reason = lifecycle_call_outcome(o),
		.cause = cause,
		.tail = tail,
	};
	struct buf out = BUF_INIT(PLAIN_ERROR_MAX);
	int rc =
	    buf_add_str(&out, "{\"detail\":\"" DOOR_FAILED "\",\"error\":");

	if (rc == SP_OK)
		rc = lifecycle_frame_fault(&out, &f);
	if (rc == SP_OK)
		rc = buf_add_char(&out, '}');
	plain_send(p, plain_status(o), rc, buf_view(&out));
	buf_clear(&out);
}

/* In FastAPI's words: 422 {"detail":[{"type","loc","msg"}]}. */
static enum gate_verdict
plain_invalid(struct plain *p, const char *type, const char *field,
    const char *msg)
{
	struct buf out = BUF_INIT(1024);
	struct jwrite w;
	int rc;

	jwrite_init(&w, &out);
	jwrite_object(&w);
	jwrite_key(&w, "detail");
	jwrite_array(&w);
	jwrite_object(&w);
	jwrite_key(&w, "type");
	jwrite_cstr(&w, type);
	jwrite_key(&w, "loc");
	jwrite_array(&w);
	jwrite_cstr(&w, "body");
	if (field != NULL)
		jwrite_cstr(&w, field);
	jwrite_end_array(&w);
	jwrite_key(&w, "msg");
	jwrite_cstr(&w, msg);
	jwrite_end_object(&w);
	jwrite_end_array(&w);
	jwrite_end_object(&w);
	rc = jwrite_finish(&w);
	p->r->outcome = "malformed";
	plain_log(p, "malformed");
	plain_send(p, 422, rc, buf_view(&out));
	buf_clear(&out);
	return GATE_HOLD;
}

/* ---- the work ------------------------------------------------------------- */

static void
plain_leave(struct plain *p)
{
	struct lifecycle_lease *l = p->lease;

	if (l == NULL)
		return;
	if (p->run != NULL) {
		plain_log(p, "client_gone");
		lifecycle_run_forget(p->run);
	}
	p->lease = NULL;
	p->run = NULL;
	lifecycle_lease_detach(l, 0);
}

static void
plain_on_answer(void *arg, struct lifecycle_run *run, enum lifecycle_outcome o,
    struct view body, struct view tail)
{
	struct plain *p = arg;

	(void)run;
	p->run = NULL;
	plain_log(p, lifecycle_call_outcome(o));
	if (o == LIFECYCLE_OK)
		plain_send(p, 200, SP_OK, body);
	else
		plain_fault(p, o, body, tail);
	plain_leave(p);
}

static int
plain_ask(struct plain *p)
{
	return lifecycle_run_start(p->lease, p->op, p->data, plain_on_answer, p,
	    &p->run);
}

static void
plain_on_open(void *arg, struct lifecycle_run *run, enum lifecycle_outcome o,
    struct view body, struct view tail)
{
	struct plain *p = arg;

	p->run = NULL;
	if (o == LIFECYCLE_OK && plain_ask(p) == SP_OK)
		return;
	if (o == LIFECYCLE_OK)
		o = LIFECYCLE_NO_MEMORY;
	plain_on_answer(p, run, o, body, tail);
}

/* ---- what is asked -------------------------------------------------------- */

/* {"action":{..}, ..}: the action is what is asked. */
static enum gate_verdict
read_action(struct plain *p, struct view body)
{
	struct jscan_span action;
	struct jscan s;

	jscan_init(&s, body, 0);
	if (jscan_find(body, VIEW("action"), &action) != 1)
		return plain_invalid(p, "missing", "action", "Field required");
	if (action.kind != JSCAN_OBJECT)
		return plain_invalid(p, "dict_type", "action",
		    "Input should be a valid dictionary");
	p->data = jscan_raw(&s, &action);
	return GATE_PASS;
}

static enum gate_verdict
read_body(struct plain *p)
{
	struct view body = view_trim(buf_view(&p->r->body));
	struct jscan s;

	if (p->op == LIFECYCLE_STATE)
		return GATE_PASS;
	if (body.n == 0 && p->op == LIFECYCLE_RESET)
		return GATE_PASS;
	if (body.n == 0)
		return plain_invalid(p, "missing", NULL, "Field required");
	if (jscan_valid(body, 0) != SP_OK)
		return plain_invalid(p, "json_invalid", NULL,
		    "JSON decode error");
	jscan_init(&s, body, 0);
	if (jscan_peek(&s) != JSCAN_OBJECT)
		return plain_invalid(p, "model_attributes_type", NULL,
		    "Input should be a valid dictionary");
	if (p->op == LIFECYCLE_STEP)
		return read_action(p, body);
	p->data = body;
	return GATE_PASS;
}

static enum gate_verdict
on_head(struct gate_request *r)
{
	const struct lifecycle_plain_conf *conf = r->conf;
	struct view path = r->location->path;
	bool state = view_ends(path, VIEW("/state"));
	enum bound_word word;
	enum gate_verdict v;
	struct plain *p;

	r->allow = state ? "GET" : "POST";
	if (!view_eq(r->x->request.method, view_str(r->allow)))
		return gate_deny(r, 405, "method_not_allowed",
		    "this path does not take that method");
	v = lifecycle_lease_admit(r, conf->allow_lifecycle);
	if (v == GATE_PASS)
		v = door_coding(r);
	if (v != GATE_PASS)
		return v;
	p = mem_calloc(1, sizeof(*p));
	if (p == NULL)
		return GATE_FAIL;
	p->r = r;
	p->conf = conf;
	p->since_us = loop_now_us(gate_loop(r->gate));
	p->op = state                        ? LIFECYCLE_STATE
	    : view_ends(path, VIEW("/step")) ? LIFECYCLE_STEP
					     : LIFECYCLE_RESET;
	r->ctx = p;
	word = bound_call(gate_bound(r->gate), r, &p->place);
	return word == BOUND_TAKEN ? GATE_PASS : bound_deny(r, word);
}

static enum gate_verdict
on_message(struct gate_request *r)
{
	struct plain *p = r->ctx;
	enum gate_verdict v = read_body(p);

	if (v != GATE_PASS)
		return v;
	if (lifecycle_lease_new(r->gate, p->conf->environment->name, false,
		&p->lease) != SP_OK)
		return GATE_FAIL;
	lifecycle_lease_attach(p->lease);
	if (lifecycle_run_start(p->lease, LIFECYCLE_OPEN, VIEW_NONE,
		plain_on_open, p, &p->run) != SP_OK) {
		plain_leave(p);
		return GATE_FAIL;
	}
	return GATE_HOLD;
}

static enum gate_verdict
on_finish(struct gate_request *r)
{
	struct plain *p = r->ctx;

	r->ctx = NULL;
	if (p == NULL)
		return GATE_PASS;
	plain_leave(p);
	bound_give(&p->place);
	mem_free(p);
	return GATE_PASS;
}

const struct gate_module lifecycle_plain_module = {
	.conf = &lifecycle_plain_conf,
	.principals = GATE_ORCHESTRATOR,
	.door = true,
	.wants_body = true,
	.body_max = WORKER_MESSAGE_MAX,
	.hook = {
	    [GATE_HEAD] = on_head,
	    [GATE_MESSAGE] = on_message,
	    [GATE_FINISH] = on_finish,
	},
};

#include "config.h"

#include "gate/door.h"
#include "json/jrpc.h"
#include "json/jscan.h"
#include "json/jwrite.h"
#include "lifecycle_call.h"

/* Fixed: a client may compare it. */

static const struct frame_row {
	const char *type;
	enum lifecycle_op op;
	bool may, must; /* have data */
} frame_rows[] = {
	{ "reset", LIFECYCLE_RESET, true, false },
	{ "step", LIFECYCLE_STEP, true, true },
	{ "state", LIFECYCLE_STATE, false, false },
	{ "close", LIFECYCLE_CLOSE, false, false },
	{ "mcp", LIFECYCLE_MCP, true, true },
};

enum { FRAME_ROWS = sizeof(frame_rows) / sizeof(frame_rows[0]) };

const char *
lifecycle_call_op(enum lifecycle_op op)
{
	static const char *const names[] = {
		[LIFECYCLE_OPEN] = "open",
		[LIFECYCLE_RESET] = "reset",
		[LIFECYCLE_STEP] = "step",
		[LIFECYCLE_STATE] = "state",
		[LIFECYCLE_MCP] = "mcp",
		[LIFECYCLE_CLOSE] = "close",
		[LIFECYCLE_FRAME] = "frame",
	};

	return names[op];
}

const char *
lifecycle_call_outcome(enum lifecycle_outcome o)
{
	static const char *const names[LIFECYCLE_OUTCOMES] = {
		[LIFECYCLE_OK] = "ok",
		[LIFECYCLE_ERROR] = "error",
		[LIFECYCLE_GONE] = "worker_gone",
		[LIFECYCLE_TIMEOUT] = "timeout",
		[LIFECYCLE_BUSY] = "busy",
		[LIFECYCLE_NO_WORKER] = "no_worker",
		[LIFECYCLE_ENDED] = "episode_ended",
		[LIFECYCLE_CAPACITY] = "at_capacity",
		[LIFECYCLE_UNBUILT] = "sandbox_failed",
		[LIFECYCLE_UNCLEAN] = "teardown_incomplete",
		[LIFECYCLE_EXISTS] = "episode_exists",
		[LIFECYCLE_MALFORMED] = "malformed",
		[LIFECYCLE_NO_METHOD] = "no_method",
		[LIFECYCLE_NO_MEMORY] = "no_memory",
		[LIFECYCLE_NO_HELPER] = "helper_gone",
		[LIFECYCLE_TOO_LARGE] = "reply_too_large",
	};

	return names[o];
}

/* ---- what comes ----------------------------------------------------------- */

static int
malformed(struct lifecycle_frame *out, const char *code, const char *why)
{
	out->code = code;
	out->why = why;
	return SP_E_SYNTAX;
}

static int
frame_type(const struct jscan *s, const struct jscan_span *type,
    struct lifecycle_frame *out, const struct frame_row **row)
{
	size_t i;

	if (type->kind == JSCAN_NONE)
		return malformed(out, "unknown_type",
		    "a frame needs a member \"type\"");
	for (i = 0; i < FRAME_ROWS; i++)
		if (jscan_is(s, type, view_str(frame_rows[i].type))) {
			*row = &frame_rows[i];
			return SP_OK;
		}
	return malformed(out, "unknown_type",
	    "the type of a frame is reset, step, state, close or mcp");
}

static int
frame_check(const struct frame_row *row, const struct jscan_span *data,
    bool extra, struct lifecycle_frame *out)
{
	bool has = data->kind != JSCAN_NONE;

	if (extra)
		return malformed(out, "validation_error",
		    "a frame has the members type and data, no more");
	if (has && !row->may)
		return malformed(out, "validation_error",
		    "a frame of that type has no data");
	if (!has && row->must)
		return malformed(out, "validation_error",
		    "a frame of that type needs data");
	if (has && data->kind != JSCAN_OBJECT)
		return malformed(out, "validation_error",
		    "data of a frame is an object");
	return SP_OK;
}

int
lifecycle_frame_read(struct view text, struct lifecycle_frame *out)
{
	struct jscan_span key, value, type = { .kind = JSCAN_NONE };
	struct jscan_span data = { .kind = JSCAN_NONE };
	const struct frame_row *row = NULL;
	bool extra = false;
	struct jscan s;
	int rc;

	*out = (struct lifecycle_frame){ .data = VIEW_NONE };
	jscan_init(&s, text, 0);
	if (jscan_peek(&s) != JSCAN_OBJECT)
		return malformed(out, "invalid_json",
		    "a frame is one JSON object");
	rc = jscan_enter(&s);
	while (rc == SP_OK && (rc = jscan_member(&s, &key)) == 1) {
		rc = jscan_skip(&s, &value);
		if (jscan_is(&s, &key, VIEW("type")))
			type = value;
		else if (jscan_is(&s, &key, VIEW("data")))
			data = value;
		else
			extra = true;
	}
	if (rc == SP_OK)
		rc = jscan_finish(&s);
	if (rc != SP_OK)
		return malformed(out, "invalid_json",
		    rc == SP_E_LIMIT ? "the JSON is nested too deeply"
				     : "the frame is no JSON");
	rc = frame_type(&s, &type, out, &row);
	if (rc == SP_OK)
		rc = frame_check(row, &data, extra, out);
	if (rc != SP_OK)
		return rc;
	out->op = row->op;
	if (data.kind != JSCAN_NONE)
		out->data = jscan_raw(&s, &data);
	return SP_OK;
}

/* ---- what leaves ---------------------------------------------------------- */

static void
put_fault(struct jwrite *w, const struct lifecycle_fault *f)
{
	jwrite_object(w);
	jwrite_key(w, "message");
	jwrite_cstr(w, f->message != NULL ? f->message : DOOR_FAILED);
	jwrite_key(w, "code");
	jwrite_cstr(w, f->code != NULL ? f->code : "execution_error");
	if (f->counts) {
		jwrite_key(w, "active_sessions");
		jwrite_u64(w, f->active);
		jwrite_key(w, "max_sessions");
		jwrite_u64(w, f->max);
	}
	if (f->factory.n > 0) {
		jwrite_key(w, "factory_name");
		jwrite_string(w, f->factory);
	}
	jwrite_key(w, "detail");
	jwrite_object(w);
	jwrite_key(w, "reason");
	jwrite_cstr(w, f->reason);
	jwrite_key(w, "cause");
	jwrite_string(w, f->cause);
	if (f->tail.n > 0) {
		jwrite_key(w, "stderr");
		jwrite_string(w, f->tail);
	}
	jwrite_end_object(w);
	jwrite_end_object(w);
}

int
lifecycle_frame_fault(struct buf *out, const struct lifecycle_fault *f)
{
	struct jwrite w;

	jwrite_init(&w, out);
	put_fault(&w, f);
	return jwrite_finish(&w);
}

int
lifecycle_frame_error(struct buf *out, const struct lifecycle_fault *f)
{
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "type");
	jwrite_cstr(&w, "error");
	jwrite_key(&w, "data");
	put_fault(&w, f);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

int
lifecycle_frame_reply(struct buf *out, const char *type, struct view data,
    const char *session)
{
	int rc = buf_printf(out, "{\"type\":\"%s\",\"data\":", type);

	if (rc == SP_OK)
		rc = buf_add_view(out, data);
	if (rc == SP_OK && session != NULL)
		rc = buf_printf(out, ",\"session_id\":\"%s\"", session);
	return rc == SP_OK ? buf_add_char(out, '}') : rc;
}

int
lifecycle_frame_rpc_error(struct buf *out, struct view request, int code,
    const struct lifecycle_fault *f)
{
	struct buf data = BUF_INIT(out->max), error = BUF_INIT(out->max);
	struct jscan_span id;
	struct jscan s;
	bool has;
	int rc;

	jscan_init(&s, request, 0);
	has = jscan_find(request, VIEW("id"), &id) == 1;
	rc = lifecycle_frame_fault(&data, f);
	if (rc == SP_OK)
		rc = jrpc_put_error(&error,
		    has ? jscan_raw(&s, &id) : VIEW_NONE, code,
		    view_str(f->message != NULL ? f->message : DOOR_FAILED),
		    buf_view(&data));
	if (rc == SP_OK)
		rc = lifecycle_frame_reply(out, "mcp", buf_view(&error), NULL);
	buf_clear(&error);
	buf_clear(&data);
	return rc;
}

/* Errors, in the shape that the surface's clients know. */
#include "config.h"

#include <string.h>

#include "gate/gate.h"
#include "json/jwrite.h"

enum { GATE_ERROR_MAX = 64 * 1024 };

/* OpenAI's types of errors, by status. */
static const char *
gate_error_type(unsigned status)
{
	switch (status) {
	case 401:
		return "authentication_error";
	case 403:
		return "permission_error";
	case 404:
		return "not_found_error";
	case 408:
	case 504:
		return "timeout_error";
	case 429:
		return "rate_limit_error";
	case 502:
		return "upstream_error";
	default:
		return status >= 500 ? "server_error" : "invalid_request_error";
	}
}

int
gate_error_body(unsigned status, const char *code, struct view message,
    struct buf *out)
{
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "error");
	jwrite_object(&w);
	jwrite_key(&w, "message");
	jwrite_string(&w, message);
	jwrite_key(&w, "type");
	jwrite_cstr(&w, gate_error_type(status));
	jwrite_key(&w, "param");
	jwrite_null(&w);
	jwrite_key(&w, "code");
	jwrite_cstr(&w, code);
	jwrite_end_object(&w);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

/*
 * {"detail":..}: what clients of openenvd look for has its words, the rest
 * says what is wrong.
 */
static int
gate_door_body(unsigned status, const char *code, struct view message,
    struct buf *out)
{
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "detail");
	if (status == 401)
		jwrite_cstr(&w, "Unauthorized");
	else if (status == 404)
		jwrite_cstr(&w, "Not Found");
	else if (status == 405)
		jwrite_cstr(&w, "Method Not Allowed");
	else
		jwrite_string(&w, message);
	/* of a path that is none nothing is said */
	if (status == 401 ||
	    (status == 404 && strcmp(code, GATE_UNKNOWN_URL) != 0)) {
		jwrite_key(&w, "reason");
		jwrite_string(&w, message);
	}
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

/*
 * A WebSocket that is not to be is refused as openenvd does it: before it is
 * accepted, with 403, whatever the reason.  RFC 6455 s4.2.1: version 13 and
 * others come in this field, in HTTP/2 as well (RFC 8441 s5).
 */
static bool
gate_is_handshake(const struct exchange *x)
{
	return head_count(&x->request.fields, VIEW("Sec-WebSocket-Version")) >
	    0;
}

static int
gate_send_error(const struct gate_request *r, unsigned status, struct view body)
{
	struct exchange *x = r->x;
	struct head_field fields[2] = { { VIEW("Content-Type"),
	    VIEW("application/json") } };
	struct head_reply head = {
		.status = status,
		.content_length = (int64_t)body.n,
		.fields = { .v = fields, .n = 1, .cap = 2 },
	};
	int rc;

	/* RFC 6750 s3, RFC 9110 s10.2.3, s15.5.6, RFC 6585 s4, RFC 6455 s4.4 */
	if (status == 426)
		fields[head.fields.n++] =
		    (struct head_field){ VIEW("Sec-WebSocket-Version"),
			    VIEW("13") };
	if (status == 401)
		fields[head.fields.n++] =
		    (struct head_field){ VIEW("WWW-Authenticate"),
			    VIEW("Bearer") };
	if (status == 503 || status == 429)
		fields[head.fields.n++] =
		    (struct head_field){ VIEW("Retry-After"), VIEW("1") };
	if (status == 405 && r->allow != NULL)
		fields[head.fields.n++] =
		    (struct head_field){ VIEW("Allow"), view_str(r->allow) };
	rc = exchange_head(x, &head);
	if (rc == SP_OK && !x->reply_bodyless)
		rc = exchange_data(x, body);
	return rc == SP_OK ? exchange_end(x) : rc;
}

int
gate_error(struct gate_request *r, unsigned status, const char *code,
    const char *fmt, ...)
{
	struct buf text = BUF_INIT(4096);
	struct buf body = BUF_INIT(GATE_ERROR_MAX);
	va_list ap;
	int rc;

	if (r->x == NULL)
		return SP_E_GONE;
	if (r->x->state != EXCHANGE_REQUEST)
		return SP_E_STATE;
	if (r->door && status >= 401 && status <= 404 &&
	    gate_is_handshake(r->x))
		status = 403;
	r->status = status;
	va_start(ap, fmt);
	rc = buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (rc == SP_OK && r->door)
		rc = gate_door_body(status, code, buf_view(&text), &body);
	else if (rc == SP_OK)
		rc = gate_error_body(status, code, buf_view(&text), &body);
	if (rc == SP_OK)
		rc = gate_send_error(r, status, buf_view(&body));
	buf_clear(&text);
	buf_clear(&body);
	return rc;
}

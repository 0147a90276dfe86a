#include "config.h"

#include "gate/metrics.h"
#include "gate/session.h"
#include "status.h"
#include "status_conf.h"

enum { STATUS_PAGE_MAX = 16 * 1024 * 1024 };

enum status_format { STATUS_TEXT, STATUS_OPENMETRICS, STATUS_JSON };

/* On this machine, and not through a proxy that stands here. */
static bool
status_is_local(const struct exchange *x)
{
	struct view peer = view_str(x->peer);

	if (head_count(&x->request.fields, VIEW("x-forwarded-for")) > 0 ||
	    head_count(&x->request.fields, VIEW("forwarded")) > 0)
		return false;
	return view_starts(peer, VIEW("127.")) ||
	    view_starts(peer, VIEW("[::1]")) ||
	    view_starts(peer, VIEW("unix:"));
}

/*
 * The first format that the client takes; weights are left out, as scrapers
 * name what they like best first.  Source: RFC 9110 s12.5.1.
 */
static enum status_format
status_format(const struct head_fields *f)
{
	struct view rest, item, type;
	size_t i;

	for (i = 0; i < f->n; i++) {
		if (!view_eq_nocase(f->v[i].name, VIEW("accept")))
			continue;
		rest = f->v[i].value;
		while (view_split(&rest, ',', &item)) {
			type =
			    view_trim(view_sub(item, 0, view_find(item, ';')));
			if (view_eq_nocase(type,
				VIEW("application/openmetrics-text")))
				return STATUS_OPENMETRICS;
			if (view_eq_nocase(type, VIEW("application/json")))
				return STATUS_JSON;
			if (view_eq_nocase(type, VIEW("text/plain")))
				return STATUS_TEXT;
		}
	}
	return STATUS_TEXT;
}

static int
status_page(struct gate_request *r)
{
	static const char openmetrics[] =
	    "application/openmetrics-text; version=1.0.0; charset=utf-8";
	static const char *const types[] = {
		[STATUS_TEXT] = "text/plain; version=0.0.4; charset=utf-8",
		[STATUS_OPENMETRICS] = openmetrics,
		[STATUS_JSON] = "application/json",
	};
	enum status_format format = status_format(&r->x->request.fields);
	struct metrics *m = gate_metrics(r->gate);
	struct buf page = BUF_INIT(STATUS_PAGE_MAX);
	int rc;

	if (format == STATUS_JSON)
		rc = metrics_render_json(m, &page);
	else
		rc = metrics_render(m, format == STATUS_OPENMETRICS, &page);
	r->status = 200;
	if (rc == SP_OK)
		rc = exchange_simple(r->x, 200, view_str(types[format]),
		    buf_view(&page));
	buf_clear(&page);
	return rc;
}

static enum gate_verdict
status_head(struct gate_request *r)
{
	const struct conf_secret *token = r->location->token;
	struct view method = r->x->request.method;

	r->principal = "operator";
	if (!status_is_local(r->x) && token == NULL)
		return gate_deny(r, 403, "local_only",
		    "the status is open to this machine alone: configure a "
		    "token for its location");
	if (!status_is_local(r->x) &&
	    !session_token_ok(&r->x->request.fields, token))
		return gate_deny(r, 401, "invalid_token",
		    "a bearer token is needed here: send Authorization: "
		    "Bearer TOKEN");
	if (!view_eq(method, VIEW("GET")) && !view_eq(method, VIEW("HEAD"))) {
		r->allow = "GET, HEAD";
		return gate_deny(r, 405, "method_not_allowed",
		    "the status is read with GET");
	}
	return status_page(r) == SP_OK ? GATE_DONE : GATE_FAIL;
}

const struct gate_module status_module = {
	.conf = &status_conf,
	.principals = GATE_OPERATOR | GATE_ADMIN,
	.checks_token = true,
	.hook = { [GATE_HEAD] = status_head },
};

/* What is changed of a worker's own words: tools/list and initialize. */
#include "config.h"

#include "gate/mcp_priv.h"

#include "json/jsplice.h"
#include "json/jwrite.h"

enum {
	TEXT_EDITS_MAX = 64,
	TEXT_DETAIL_MAX = 1024, /* of a fault's detail */
	TEXT_FAULT_MAX = 8 * 1024, /* of its data */
};

/* Newest first.  Source: Model Context Protocol, versioning. */
static const char *const versions[] = { "2025-11-25", "2025-06-18",
	"2025-03-26", "2024-11-05", "2024-10-07" };
#define VERSIONS (sizeof(versions) / sizeof(versions[0]))
const char mcp_text_versions[] =
    "2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05, 2024-10-07";

/* The whole text as a span of a message; NONE: it is no object. */
static struct jscan_span
whole(struct view text, struct jrpc *m)
{
	struct jscan_span v = { .kind = JSCAN_NONE };
	struct jscan s;

	*m = (struct jrpc){ .text = text };
	jscan_init(&s, text, 0);
	if (jscan_peek(&s) != JSCAN_OBJECT || jscan_skip(&s, &v) != SP_OK ||
	    jscan_finish(&s) != SP_OK)
		v.kind = JSCAN_NONE;
	return v;
}

/* ---- tools/list ------------------------------------------------------------- */

/* A tool is seen when it has one name, which may be. */
static int
is_visible(const struct mcp_client *c, const struct jrpc *m,
    const struct jscan_span *tool, bool *visible)
{
	struct buf name = BUF_INIT(MCP_TOOL_MAX);
	struct jscan_span v;
	int rc = jrpc_member(m, tool, VIEW("name"), &v) == 1
	    ? jrpc_string(m, &v, &name)
	    : SP_E_SYNTAX;
	struct view text = buf_view(&name);

	*visible = rc == SP_OK && !view_starts(text, VIEW("grader.")) &&
	    mcp_visible(c->r, text);
	buf_clear(&name);
	return rc == SP_E_NOMEM ? rc : SP_OK;
}

/* The place of the tools; false: there are none, and it is no list. */
static bool
find_tools(const struct jrpc *m, const struct jscan_span *all,
    struct jscan_span *tools, bool *last)
{
	struct jscan_span result, cursor;

	if (jrpc_member(m, all, VIEW("result"), &result) != 1 ||
	    jrpc_member(m, &result, VIEW("tools"), tools) != 1 ||
	    tools->kind != JSCAN_ARRAY)
		return false;
	*last = jrpc_member(m, &result, VIEW("nextCursor"), &cursor) != 1 ||
	    cursor.kind == JSCAN_NULL;
	return true;
}

/* What is between elements stays with the one that follows. */
static int
put_tools(const struct mcp_client *c, const struct jrpc *m,
    const struct jscan_span *tools, struct buf *out, bool *any)
{
	size_t end = tools->start + 1, first = 0, n = 0;
	struct view gap, lead = VIEW_NONE;
	struct jscan_span v;
	struct jscan s;
	bool visible;
	int rc = SP_OK;

	*any = false;
	jscan_init(&s, view_sub(m->text, 0, tools->end), 0);
	s.pos = tools->start;
	if (jscan_enter(&s) != SP_OK)
		return SP_E_PROTO;
	while (rc == SP_OK && jscan_element(&s) == 1 &&
	    jscan_skip(&s, &v) == SP_OK) {
		gap = view_sub(m->text, end, v.start - end);
		lead = n++ == 0 ? gap : lead;
		end = v.end;
		rc = is_visible(c, m, &v, &visible);
		if (rc != SP_OK || !visible)
			continue;
		rc = buf_add_view(out, first++ == 0 ? lead : gap);
		if (rc == SP_OK)
			rc = buf_add_view(out, jscan_raw(&s, &v));
		*any = true;
	}
	if (rc == SP_OK && s.err != SP_OK)
		rc = SP_E_PROTO;
	return rc == SP_OK
	    ? buf_add_view(out, view_sub(m->text, end, tools->end - 1 - end))
	    : rc;
}

static int
put_own(const struct mcp_client *c, bool any, struct buf *out)
{
	struct buf own = BUF_INIT(64 * 1024);
	int rc = c->door->own->list(c->r, &own);

	if (rc == SP_OK && any && buf_len(&own) > 0)
		rc = buf_add_char(out, ',');
	if (rc == SP_OK)
		rc = buf_add_view(out, buf_view(&own));
	buf_clear(&own);
	return rc;
}

int
mcp_text_list(const struct mcp_client *c, struct view answer, struct buf *out)
{
	struct jrpc m;
	struct jscan_span all = whole(answer, &m), error, tools;
	bool last, any;
	int rc;

	if (all.kind == JSCAN_NONE)
		return SP_E_PROTO;
	if (jrpc_member(&m, &all, VIEW("error"), &error) == 1 &&
	    error.kind != JSCAN_NULL)
		return buf_add_view(out, answer);
	if (!find_tools(&m, &all, &tools, &last))
		return SP_E_PROTO;
	rc = buf_add_view(out, view_sub(answer, 0, tools.start + 1));
	if (rc == SP_OK)
		rc = put_tools(c, &m, &tools, out, &any);
	if (rc == SP_OK && last && c->door->own != NULL)
		rc = put_own(c, any, out);
	return rc == SP_OK ? buf_add_view(out, view_from(answer, tools.end - 1))
			   : rc;
}

/* ---- initialize ------------------------------------------------------------- */

/* Its place, the more the older; VERSIONS: it is not known. */
static size_t
version_place(struct view version)
{
	size_t i;

	for (i = 0; i < VERSIONS; i++)
		if (view_eq(version, view_str(versions[i])))
			break;
	return i;
}

bool
mcp_text_version_known(struct view version)
{
	return version_place(version) < VERSIONS;
}

/*
 * The client's, where the worker has it too: a server that speaks a newer one
 * speaks the older.  Else the worker's.
 */
static struct view
negotiate(struct view client, struct view worker)
{
	size_t theirs = version_place(client), its = version_place(worker);

	if (theirs == VERSIONS)
		return worker.n > 0 ? worker : view_str(versions[0]);
	return its < VERSIONS && its > theirs ? worker : client;
}

/* The string's value where no escape is in it; versions have none. */
static struct view
plain_member(struct view object, struct view name)
{
	struct jrpc m;
	struct jscan_span all = whole(object, &m), v;

	if (all.kind == JSCAN_NONE || jrpc_member(&m, &all, name, &v) != 1 ||
	    v.kind != JSCAN_STRING || v.escaped)
		return VIEW_NONE;
	return view_of(object.p + v.start + 1, v.end - v.start - 2);
}

unsigned
mcp_text_features(struct view params)
{
	static const struct {
		struct view name;
		unsigned bit;
	} rows[] = {
		{ VIEW_INIT("sampling"), CONF_MCP_SAMPLING },
		{ VIEW_INIT("elicitation"), CONF_MCP_ELICITATION },
		{ VIEW_INIT("roots"), CONF_MCP_ROOTS },
	};
	struct jrpc m;
	struct jscan_span all = whole(params, &m), caps, v;
	unsigned bits = 0;
	size_t i;

	if (all.kind == JSCAN_NONE ||
	    jrpc_member(&m, &all, VIEW("capabilities"), &caps) != 1)
		return 0;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (jrpc_member(&m, &caps, rows[i].name, &v) == 1 &&
		    v.kind == JSCAN_OBJECT)
			bits |= rows[i].bit;
	return bits;
}

/* A capability that the location does not let through. */
static bool
is_withheld(const struct mcp_client *c, const struct jscan *s,
    const struct jscan_span *key)
{
	static const struct {
		struct view name;
		unsigned bit;
	} rows[] = {
		{ VIEW_INIT("resources"), CONF_MCP_RESOURCES },
		{ VIEW_INIT("prompts"), CONF_MCP_PROMPTS },
		{ VIEW_INIT("completions"), CONF_MCP_COMPLETIONS },
		{ VIEW_INIT("logging"), CONF_MCP_LOGGING },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (jscan_is(s, key, rows[i].name))
			return (c->conf->features & rows[i].bit) == 0;
	return false;
}

static int
edit_capabilities(const struct mcp_client *c, struct jscan *s,
    struct jsplice *edits)
{
	struct jsplice_object o;
	struct jscan_span key, val;
	bool tools = false;
	int rc;

	if (jscan_peek(s) != JSCAN_OBJECT)
		return jscan_skip(s, NULL);
	rc = jscan_enter(s);
	if (rc != SP_OK)
		return rc;
	jsplice_object_begin(&o, edits, s);
	while ((rc = jscan_member(s, &key)) == 1) {
		rc = jscan_skip(s, &val);
		tools |= jscan_is(s, &key, VIEW("tools"));
		if (rc == SP_OK)
			rc = jsplice_object_member(&o, &key, &val,
			    is_withheld(c, s, &key));
		if (rc != SP_OK)
			return rc;
	}
	return rc == 0
	    ? jsplice_object_end(&o, s,
		  c->door->own != NULL && !tools ? VIEW("\"tools\":{}")
						 : VIEW_NONE)
	    : rc;
}

/* version: in its quotes. */
static int
edit_initialize(const struct mcp_client *c, struct view text,
    struct view version, struct jsplice *edits)
{
	struct jscan_span key, val;
	struct jscan s;
	int rc;

	jscan_init(&s, text, 0);
	rc = jscan_enter(&s);
	while (rc == SP_OK && (rc = jscan_member(&s, &key)) == 1) {
		if (jscan_is(&s, &key, VIEW("capabilities"))) {
			rc = edit_capabilities(c, &s, edits);
			continue;
		}
		rc = jscan_skip(&s, &val);
		if (rc == SP_OK && jscan_is(&s, &key, VIEW("protocolVersion")))
			rc = jsplice_add(edits, val.start, val.end - val.start,
			    version);
	}
	return rc;
}

static int
put_minimal(struct view version, struct buf *out)
{
	return buf_printf(out,
	    "{\"protocolVersion\":\"%.*s\",\"capabilities\":{\"tools\":{}},"
	    "\"serverInfo\":{\"name\":\"sallyport\",\"version\":\"%s\"}}",
	    VIEW_ARG(version), PACKAGE_VERSION);
}

int
mcp_text_initialize(const struct mcp_client *c, struct view worker,
    struct view params, struct buf *out)
{
	struct view client = plain_member(params, VIEW("protocolVersion"));
	struct view version =
	    negotiate(client, plain_member(worker, VIEW("protocolVersion")));
	struct buf quoted = BUF_INIT(64);
	struct jsplice edits;
	int rc;

	if (worker.n == 0)
		return put_minimal(version, out);
	jsplice_init(&edits, TEXT_EDITS_MAX);
	rc = buf_printf(&quoted, "\"%.*s\"", VIEW_ARG(version));
	if (rc == SP_OK)
		rc = edit_initialize(c, worker, buf_view(&quoted), &edits);
	if (rc == SP_OK)
		rc = jsplice_apply(&edits, worker, out);
	jsplice_clear(&edits);
	buf_clear(&quoted);
	return rc;
}

/* ---- the text for the worker ------------------------------------------------ */

/* Without params.session_id, which is a handle of ours. */
static int
text_cut_session(const struct jrpc *m, struct jsplice *edits)
{
	struct jscan_span key, val;
	struct jsplice_object o;
	struct jscan s;
	int rc;

	if (!jrpc_has_param(m, VIEW("session_id")))
		return SP_OK;
	jscan_init(&s, view_sub(m->text, 0, m->params.end), 0);
	s.pos = m->params.start;
	rc = jscan_enter(&s);
	if (rc != SP_OK)
		return rc;
	jsplice_object_begin(&o, edits, &s);
	while ((rc = jscan_member(&s, &key)) == 1) {
		/* it was read, and the grammar seen to */
		rc = jscan_hop(&s, &val);
		if (rc == SP_OK)
			rc = jsplice_object_member(&o, &key, &val,
			    jscan_is(&s, &key, VIEW("session_id")));
		if (rc != SP_OK)
			return rc;
	}
	return rc == 0 ? jsplice_object_end(&o, &s, VIEW_NONE) : rc;
}

/* A message without an id is answered in the plain dialect: with null. */
int
mcp_text_plain(const struct jrpc *m, struct buf *out)
{
	struct jsplice edits;
	int rc;

	jsplice_init(&edits, TEXT_EDITS_MAX);
	rc = text_cut_session(m, &edits);
	if (rc == SP_OK && m->id.kind == JSCAN_NONE)
		rc = jsplice_add(&edits, view_find(m->text, '{') + 1, 0,
		    VIEW("\"id\":null,"));
	if (rc == SP_OK)
		rc = jsplice_apply(&edits, m->text, out);
	jsplice_clear(&edits);
	return rc;
}

/* ---- errors ----------------------------------------------------------------- */

int
mcp_text_fault(const struct mcp_fault *f, struct view id, struct buf *out)
{
	struct buf data = BUF_INIT(TEXT_FAULT_MAX);
	struct jwrite w;
	int rc;

	jwrite_init(&w, &data);
	jwrite_object(&w);
	jwrite_key(&w, "reason");
	jwrite_cstr(&w, f->reason);
	if (f->detail.n > 0) {
		jwrite_key(&w, "detail");
		jwrite_string(&w, view_sub(f->detail, 0, TEXT_DETAIL_MAX));
	}
	if (f->remedy != NULL) {
		jwrite_key(&w, "remedy");
		jwrite_cstr(&w, f->remedy);
	}
	jwrite_end_object(&w);
	rc = jwrite_finish(&w);
	if (rc == SP_OK)
		rc = jrpc_put_error(out, id, f->code, view_str(f->message),
		    buf_view(&data));
	buf_clear(&data);
	return rc;
}

/* From a name to its row, or to a helpful error. */
#include "conf/core_conf.h"
#include "conf/parse.h"

const struct conf_owner conf_lookup_owners[] = {
	{ "Main", core_conf_main },
	{ "Limits", core_conf_limits },
	{ "Upstreams", core_conf_upstream },
	{ "Capture", core_conf_capture },
	{ "Servers", core_conf_server },
	{ "Locations", core_conf_location },
	{ "Environments", core_conf_env },
	{ "Workers", core_conf_env_run_worker },
	{ "Sandboxes", core_conf_env_sandbox },
	{ "Egress", core_conf_env_egress },
	{ "Processes", core_conf_env_run_process },
	{ NULL, NULL },
};

static const struct {
	enum conf_scope scope;
	const char *name;
} scope_names[] = {
	{ CONF_MAIN, "main" },
	{ CONF_UPSTREAM, "upstream" },
	{ CONF_CAPTURE, "capture" },
	{ CONF_SERVER, "server" },
	{ CONF_INSIDE, "inside" },
	{ CONF_LOCATION, "location" },
	{ CONF_ENVIRONMENT, "environment" },
	{ CONF_WORKER, "worker" },
	{ CONF_SANDBOX, "sandbox" },
	{ CONF_EGRESS, "egress" },
	{ CONF_ASSETS, "assets" },
	{ CONF_PROCESS, "process" },
};

enum { NAME_MAX_BYTES = 40 };

void
conf_lookup_scopes(unsigned scopes, struct buf *out)
{
	size_t i;
	bool first = true;
	int rc = 0;

	for (i = 0; i < sizeof(scope_names) / sizeof(*scope_names); i++) {
		if ((scopes & scope_names[i].scope) == 0 || rc != 0)
			continue;
		rc = buf_printf(out, "%s%s", first ? "" : ", ",
		    scope_names[i].name);
		first = false;
	}
}

static const struct conf_directive *
find_row(const struct conf_directive *rows, struct view name, unsigned scopes)
{
	for (; rows->name != NULL; rows++) {
		if ((rows->scopes & scopes) != 0 &&
		    view_eq(view_str(rows->name), name))
			return rows;
	}
	return NULL;
}

const struct conf_directive *
conf_lookup(struct conf_block *b, struct view name, struct conf_table **table)
{
	const struct conf_directive *row;
	size_t i;

	for (i = 0; i < b->tables_n; i++) {
		row = find_row(b->tables[i].rows, name, b->scope);
		if (row != NULL) {
			*table = &b->tables[i];
			return row;
		}
	}
	return NULL;
}

/* The ith table of all, of the core and of the modules; NULL at the end. */
static const struct conf_directive *
nth_rows(size_t i, const struct conf_module **module)
{
	size_t n;

	*module = NULL;
	for (n = 0; conf_lookup_owners[n].rows != NULL; n++) {
		if (n == i)
			return conf_lookup_owners[n].rows;
	}
	if (i - n >= CONF_MODULES_MAX || conf_modules[i - n] == NULL)
		return NULL;
	*module = conf_modules[i - n];
	return (*module)->directives;
}

static size_t
min3(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

/* Edit distance; more than max when a name is too long to compare. */
static size_t
distance(struct view a, struct view b)
{
	size_t row[NAME_MAX_BYTES + 1];
	size_t i, j, diagonal, up;

	if (a.n > NAME_MAX_BYTES || b.n > NAME_MAX_BYTES)
		return NAME_MAX_BYTES;
	for (j = 0; j <= b.n; j++)
		row[j] = j;
	for (i = 1; i <= a.n; i++) {
		diagonal = row[0];
		row[0] = i;
		for (j = 1; j <= b.n; j++) {
			up = row[j];
			row[j] = min3(up + 1, row[j - 1] + 1,
			    diagonal + (a.p[i - 1] != b.p[j - 1]));
			diagonal = up;
		}
	}
	return row[b.n];
}

/* The nearest name that may stand in scopes; NULL: none is near. */
static const char *
nearest(struct view name, unsigned scopes)
{
	const struct conf_directive *rows;
	const struct conf_module *module;
	const char *best = NULL;
	size_t best_d = name.n / 3 < 2 ? name.n / 3 + 1 : 3;
	size_t i, d;

	if (distance(name, VIEW("include")) < best_d)
		return "include";
	for (i = 0; (rows = nth_rows(i, &module)) != NULL; i++) {
		for (; rows->name != NULL; rows++) {
			if ((rows->scopes & scopes) == 0)
				continue;
			d = distance(name, view_str(rows->name));
			if (d < best_d) {
				best_d = d;
				best = rows->name;
			}
		}
	}
	return best;
}

/* A row of a module that is not the location's. */
static int
foreign_error(struct conf_parse *p, const struct conf_block *b,
    struct view name)
{
	struct buf owners = BUF_INIT(1024);
	const struct conf_directive *rows, *row;
	const struct conf_module *module;
	size_t i;
	int rc = 0;

	for (i = 0; rc == 0 && (rows = nth_rows(i, &module)) != NULL; i++) {
		row =
		    module == NULL ? NULL : find_row(rows, name, CONF_LOCATION);
		if (row != NULL && row->type == CONF_HANDLER) {
			rc = SP_E_EXISTS;
			break;
		}
		if (row != NULL)
			rc = buf_printf(&owners, "%s%s",
			    buf_len(&owners) > 0 ? ", " : "", module->name);
	}
	if (rc == SP_E_EXISTS)
		rc = conf_error(p,
		    "second handler \"%.*s\"; expected one in a location, "
		    "it has \"%s\"",
		    VIEW_ARG(name), b->handler->name);
	else if (rc == 0)
		rc = conf_error(p,
		    "directive \"%.*s\" belongs to %.*s; not in a location "
		    "of %s",
		    VIEW_ARG(name), VIEW_ARG(buf_view(&owners)),
		    b->handler->name);
	else
		rc = conf_nomem(p);
	buf_clear(&owners);
	return rc;
}

/* A row of another block. */
static int
scope_error(struct conf_parse *p, const struct conf_block *b, struct view name,
    unsigned scopes)
{
	struct buf where = BUF_INIT(1024);
	char here[32];
	struct buf text = BUF_INIT(sizeof(here));
	int rc;

	conf_lookup_scopes(scopes, &where);
	conf_lookup_scopes(b->scope, &text);
	if (buf_len(&where) == 0 || buf_len(&text) == 0)
		rc = conf_nomem(p);
	else
		rc = conf_error(p,
		    "directive \"%.*s\" belongs in %.*s; not in %.*s",
		    VIEW_ARG(name), VIEW_ARG(buf_view(&where)),
		    VIEW_ARG(buf_view(&text)));
	buf_clear(&where);
	buf_clear(&text);
	return rc;
}

int
conf_lookup_error(struct conf_parse *p, const struct conf_block *b,
    struct view name)
{
	const struct conf_directive *rows, *row;
	const struct conf_module *module;
	const char *near;
	unsigned scopes = 0;
	size_t i;

	for (i = 0; (rows = nth_rows(i, &module)) != NULL; i++) {
		for (row = rows; row->name != NULL; row++) {
			if (view_eq(view_str(row->name), name))
				scopes |= row->scopes;
		}
	}
	if ((scopes & b->scope) != 0 && b->handler != NULL)
		return foreign_error(p, b, name);
	if ((scopes & b->scope) != 0)
		return 0; /* the location lacks a handler: said elsewhere */
	if (scopes != 0)
		return scope_error(p, b, name, scopes);
	near = nearest(name, b->scope);
	if (near == NULL)
		near = nearest(name, ~0U);
	if (near != NULL)
		return conf_error(p,
		    "unknown directive \"%.*s\"; did you mean \"%s\"?",
		    VIEW_ARG(name), near);
	return conf_error(p,
	    "unknown directive \"%.*s\"; expected one of sallyport.conf(5)",
	    VIEW_ARG(name));
}

/* Blocks: every directive by its row, defaults, inheritance, references. */
#include "conf/conf_env.h"
#include "conf/parse.h"

int
conf_block_add(struct conf_parse *p, struct conf_block *b,
    const struct conf_directive *rows, void *base)
{
	struct conf_table *t;
	size_t n = 0;

	err_assert(b->tables_n < CONF_TABLES_MAX);
	while (rows[n].name != NULL)
		n++;
	t = &b->tables[b->tables_n++];
	t->rows = rows;
	t->base = base;
	t->set = conf_alloc(p, n * sizeof(const struct conf_node *));
	return t->set == NULL ? SP_E_NOMEM : 0;
}

const struct conf_node *
conf_block_set(const struct conf_block *b, const char *name)
{
	size_t i, j;

	for (i = 0; i < b->tables_n; i++) {
		const struct conf_table *t = &b->tables[i];

		for (j = 0; t->rows[j].name != NULL; j++) {
			if (t->set[j] != NULL &&
			    strcmp(t->rows[j].name, name) == 0)
				return t->set[j];
		}
	}
	return NULL;
}

static void
args_bounds(const struct conf_directive *row, size_t *min, size_t *max)
{
	*min = *max = 1;
	if (row->type == CONF_MARK || row->type == CONF_HANDLER) {
		*min = *max = 0;
	} else if (row->type == CONF_LIST) {
		*max = CONF_ARGS_MAX;
	} else if (row->type == CONF_CUSTOM || row->type == CONF_BLOCK) {
		*min = row->args_min;
		*max = row->args_max;
	}
}

/* Form: number of arguments, block or not. */
static int
check_form(struct conf_parse *p, const struct conf_directive *row,
    const struct conf_node *node)
{
	bool block = row->type == CONF_BLOCK;
	size_t min, max;

	if (node->block != block &&
	    (node->block || (row->flags & CONF_PLAIN_TOO) == 0))
		return conf_error(p,
		    block ? "directive \"%s\" opens a block; expected \"{\""
			  : "directive \"%s\" takes no block; expected \";\"",
		    row->name);
	args_bounds(row, &min, &max);
	if (node->n - 1 >= min && node->n - 1 <= max)
		return 0;
	return conf_error(p,
	    "directive \"%s\" has %zu argument%s; expected %s%s", row->name,
	    node->n - 1, node->n == 2 ? "" : "s",
	    max == 0                ? "none"
		: row->args != NULL ? row->args
				    : "one",
	    node->last_line != node->line ? " (is a \";\" missing?)" : "");
}

/* Once in a block, unless the row repeats. */
static int
check_once(struct conf_parse *p, const struct conf_directive *row,
    const struct conf_node *first)
{
	if (first == NULL || first == p->node ||
	    (row->flags & CONF_REPEATS) != 0)
		return 0;
	return conf_error(p,
	    "duplicate directive \"%s\"; expected once, it stands at %s:%u",
	    row->name, first->file->name, first->line);
}

static int
read_node(struct conf_parse *p, struct conf_block *b,
    const struct conf_node *node, bool blocks)
{
	const struct conf_directive *row;
	struct conf_table *t = NULL;
	const struct conf_node **set;
	int rc;

	p->node = node;
	row = conf_lookup(b, node->args[0], &t);
	if (row == NULL)
		return blocks ? 0 : conf_lookup_error(p, b, node->args[0]);
	set = &t->set[row - t->rows];
	if (!blocks && row->type == CONF_BLOCK && *set == NULL)
		*set = node; /* it is there, and is read later */
	if ((row->type == CONF_BLOCK) != blocks)
		return 0;
	rc = check_form(p, row, node);
	if (rc != 0)
		return rc;
	rc = check_once(p, row, *set);
	if (*set == NULL)
		*set = node;
	if (rc != 0)
		return rc;
	return conf_type_set(p, row, t->base, node->args, node->n);
}

static void
copy_value(const struct conf_directive *row, void *to, const void *from)
{
	memcpy((char *)to + row->offset, (const char *)from + row->offset,
	    conf_type_size(row->type));
}

/* The outer block's struct that the same rows fill, or NULL. */
static const void *
outer_base(const struct conf_block *b, const struct conf_directive *rows)
{
	size_t i;

	if (b->parent == NULL)
		return NULL;
	for (i = 0; i < b->parent->tables_n; i++) {
		if (b->parent->tables[i].rows == rows)
			return b->parent->tables[i].base;
	}
	return NULL;
}

/* A default is read like what a user writes. */
static int
set_default(struct conf_parse *p, const struct conf_directive *row, void *base)
{
	struct view args[CONF_DEFAULT_ARGS];
	struct view rest = view_str(row->def);
	size_t n = 0;

	args[n++] = view_str(row->name);
	while (n < CONF_DEFAULT_ARGS && view_split(&rest, ' ', &args[n]))
		n++;
	return conf_type_set(p, row, base, args, n);
}

/* What was not set: inherited, by default, or missing. */
static int
fill_row(struct conf_parse *p, const struct conf_block *b,
    const struct conf_table *t, const struct conf_directive *row)
{
	const void *outer;

	if (t->set[row - t->rows] != NULL)
		return 0;
	outer = (row->flags & CONF_INHERITS) ? outer_base(b, t->rows) : NULL;
	if (outer != NULL) {
		copy_value(row, t->base, outer);
		return 0;
	}
	if ((row->scopes & b->scope) == 0)
		return 0;
	if ((row->flags & CONF_REQUIRED) != 0)
		return conf_error(p, "%s lacks \"%s\"; expected \"%s %s\"",
		    b->what, row->name, row->name,
		    row->type == CONF_BLOCK ? "{ ... }" : row->args);
	if (row->def != NULL)
		return set_default(p, row, t->base);
	return 0;
}

int
conf_block_plain(struct conf_parse *p, struct conf_block *b,
    const struct conf_node *nodes)
{
	const struct conf_directive *row;
	size_t i;
	int rc;

	for (; nodes != NULL; nodes = nodes->next) {
		rc = read_node(p, b, nodes, false);
		if (rc != 0 && rc != SP_E_CONF)
			return rc;
	}
	p->node = b->node != NULL ? b->node : &p->root;
	for (i = 0; i < b->tables_n; i++) {
		for (row = b->tables[i].rows; row->name != NULL; row++) {
			rc = fill_row(p, b, &b->tables[i], row);
			if (rc != 0 && rc != SP_E_CONF)
				return rc;
		}
	}
	return p->nomem ? SP_E_NOMEM : 0;
}

int
conf_block_nested(struct conf_parse *p, struct conf_block *b,
    const struct conf_node *nodes)
{
	const struct conf_block *outer = p->block;
	int rc = 0;

	for (; nodes != NULL; nodes = nodes->next) {
		p->block = b;
		rc = read_node(p, b, nodes, true);
		if (rc != 0 && rc != SP_E_CONF)
			break;
	}
	p->block = outer;
	p->node = b->node != NULL ? b->node : &p->root;
	return p->nomem ? SP_E_NOMEM : rc == SP_E_CONF ? 0 : rc;
}

int
conf_block_name(struct conf_parse *p, struct view name)
{
	size_t i;

	for (i = 0; i < name.n; i++) {
		char c = name.p[i];

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		    (c >= '0' && c <= '9') || c == '_')
			continue;
		if (i == 0 || (c != '-' && c != '.'))
			break;
	}
	if (name.n == 0 || i < name.n || name.n > CONF_NAME_MAX)
		return conf_error(p,
		    "\"%.*s\" is no name; expected at most %d letters, "
		    "digits, \"_\", \"-\" and \".\"",
		    VIEW_ARG(name), CONF_NAME_MAX);
	if (view_eq(name, VIEW("off")))
		return conf_error(p,
		    "\"off\" is no name; expected one that means nothing");
	return 0;
}

/* The struct of a named block; its name is its first member. */
static void *
find_block(const struct conf *c, enum conf_scope scope, struct view name)
{
	size_t i;

	if (scope == CONF_ENVIRONMENT)
		return conf_env_find(c, name);
	for (i = 0; scope == CONF_UPSTREAM && i < c->upstreams_n; i++) {
		if (view_eq(c->upstreams[i]->name, name))
			return c->upstreams[i];
	}
	for (i = 0; scope == CONF_CAPTURE && i < c->captures_n; i++) {
		if (view_eq(c->captures[i]->name, name))
			return c->captures[i];
	}
	return NULL;
}

static const char *
scope_name(enum conf_scope scope)
{
	return scope == CONF_UPSTREAM ? "upstream"
	    : scope == CONF_CAPTURE   ? "capture"
				      : "environment";
}

int
conf_block_refs(struct conf_parse *p)
{
	struct conf_ref *r;
	void *found;
	int rc;

	for (r = p->refs; r != NULL; r = r->next) {
		found = find_block(p->conf, r->row->ref, r->name);
		if (found != NULL) {
			memcpy(r->slot, &found, sizeof(found));
			if (r->row->ref == CONF_UPSTREAM)
				((struct conf_upstream *)found)->used = true;
			continue;
		}
		rc = conf_error_at(p, r->node,
		    "no %s \"%.*s\"; expected the name of a block \"%s NAME "
		    "{ ... }\"",
		    scope_name(r->row->ref), VIEW_ARG(r->name),
		    scope_name(r->row->ref));
		if (rc != SP_E_CONF)
			return rc;
	}
	return 0;
}

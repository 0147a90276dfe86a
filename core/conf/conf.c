/* Expanded text to a configuration: errors, memory, and the order of it. */
#include "base/mem.h"
#include "conf/conf.h"
#include "conf/core_conf.h"
#include "conf/parse.h"

int
conf_nomem(struct conf_parse *p)
{
	p->nomem = true;
	return SP_E_NOMEM;
}

static int conf_error_va(struct conf_parse *p, const struct conf_node *node,
    const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

static int
conf_error_va(struct conf_parse *p, const struct conf_node *node,
    const char *fmt, va_list ap)
{
	struct buf text = BUF_INIT(32768);
	char *copy;
	int rc;

	p->failed = true;
	if (p->problems_n == CONF_ERRORS_MAX)
		return SP_E_CONF;
	rc = node->line > 0
	    ? buf_printf(&text, "%s:%u: ", node->file->name, node->line)
	    : buf_printf(&text, "%s: ", node->file->name);
	if (rc == 0)
		rc = buf_vprintf(&text, fmt, ap);
	copy =
	    rc == SP_E_NOMEM ? NULL : arena_strdup(p->arena, buf_view(&text));
	buf_clear(&text);
	if (copy == NULL)
		return conf_nomem(p);
	p->problems[p->problems_n++] =
	    (struct conf_problem){ .seq = node->seq, .text = copy };
	return SP_E_CONF;
}

int
conf_error_at(struct conf_parse *p, const struct conf_node *node,
    const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = conf_error_va(p, node, fmt, ap);
	va_end(ap);
	return rc;
}

int
conf_error(struct conf_parse *p, const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = conf_error_va(p, p->node, fmt, ap);
	va_end(ap);
	return rc;
}

int
conf_warn(struct conf_parse *p, struct conf_pos pos, const char *fmt, ...)
{
	struct conf_list *l = &p->conf->warnings;
	struct buf text = BUF_INIT(32768);
	const char *copy = NULL;
	va_list ap;
	int rc;

	if (l->n == CONF_ERRORS_MAX)
		return 0;
	rc = buf_printf(&text, "%s:%u: ", pos.file, pos.line);
	va_start(ap, fmt);
	if (rc == 0)
		rc = buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (rc != SP_E_NOMEM)
		copy = arena_strdup(p->arena, buf_view(&text));
	buf_clear(&text);
	if (copy == NULL)
		return conf_nomem(p);
	return conf_type_list_add(p, l, view_str(copy));
}

void *
conf_alloc(struct conf_parse *p, size_t n)
{
	void *mem = arena_zalloc(p->arena, n > 0 ? n : 1);

	if (mem == NULL)
		conf_nomem(p);
	return mem;
}

const char *
conf_text(struct conf_parse *p, const char *fmt, ...)
{
	struct buf text = BUF_INIT(32768);
	const char *copy = NULL;
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (rc == 0)
		copy = arena_strdup(p->arena, buf_view(&text));
	buf_clear(&text);
	if (copy == NULL)
		conf_nomem(p);
	return copy;
}

void *
conf_more(struct conf_parse *p, void *arr, size_t n, size_t size,
    const char *what)
{
	void *grown;

	if (n >= CONF_BLOCKS_MAX) {
		conf_error(p, "too many of \"%s\"; expected at most %d", what,
		    CONF_BLOCKS_MAX);
		return NULL;
	}
	if ((n & (n - 1)) != 0)
		return arr; /* room up to the next power of two */
	grown = conf_alloc(p, (n == 0 ? 1 : n * 2) * size);
	if (grown != NULL && n > 0)
		memcpy(grown, arr, n * size);
	return grown;
}

struct conf_pos
conf_node_pos(const struct conf_node *node)
{
	return (
	    struct conf_pos){ .file = node->file->name, .line = node->line };
}

const struct conf_location *
conf_current_location(const struct conf_parse *p)
{
	return p->location;
}

const struct conf *
conf_current(const struct conf_parse *p)
{
	return p->conf;
}

static int
problem_cmp(const void *a, const void *b)
{
	const struct conf_problem *x = a, *y = b;

	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* All errors in the order of the text: a stable sort of at most 20. */
static int
put_problems(struct conf_parse *p, struct buf *err)
{
	size_t i, j;
	int rc = 0;

	for (i = 1; i < p->problems_n; i++) {
		struct conf_problem x = p->problems[i];

		for (j = i; j > 0 && problem_cmp(&p->problems[j - 1], &x) > 0;
		     j--)
			p->problems[j] = p->problems[j - 1];
		p->problems[j] = x;
	}
	for (i = 0; i < p->problems_n && rc == 0; i++)
		rc = buf_printf(err, "%s\n", p->problems[i].text);
	return rc == SP_E_LIMIT ? 0 : rc;
}

static int
read_main(struct conf_parse *p, const struct conf_node *nodes)
{
	struct conf_block b = { .scope = CONF_MAIN, .what = "main" };
	int rc;

	rc = conf_block_add(p, &b, core_conf_main, &p->conf->main);
	if (rc == 0)
		rc = conf_block_add(p, &b, core_conf_limits,
		    &p->conf->main.limits);
	if (rc == 0)
		rc = conf_block_plain(p, &b, nodes);
	if (rc == 0)
		rc = core_conf_main_finish(p, &b);
	if (rc == 0)
		rc = conf_block_nested(p, &b, nodes);
	if (rc == 0)
		rc = conf_block_refs(p);
	if (rc == 0)
		rc = core_conf_main_check(p);
	return rc;
}

/* Everything but the memory. */
static int
read_all(struct conf_parse *p, struct view expanded)
{
	struct conf_node *nodes;
	struct view text;
	int rc;

	if (expanded.n > (size_t)2 * CONF_TEXT_MAX)
		return conf_error(p,
		    "configuration is too large; expected at most %d bytes",
		    CONF_TEXT_MAX);
	if (arena_dup(p->arena, expanded, &text) != 0)
		return conf_nomem(p);
	rc = conf_tree_build(p, text, &nodes);
	if (p->broken || p->nomem || (rc != 0 && rc != SP_E_CONF))
		return rc;
	return read_main(p, nodes);
}

int
conf_parse(struct view expanded, const struct conf_defaults *defaults,
    struct conf **out, struct buf *err)
{
	static const struct conf_file whole = { .name = "configuration" };
	struct arena *arena;
	struct conf_parse *p;
	struct conf *c = NULL;
	int rc = SP_E_NOMEM;

	*out = NULL;
	arena = arena_new(CONF_ARENA_MAX);
	if (arena == NULL)
		return SP_E_NOMEM;
	p = arena_zalloc(arena, sizeof(*p));
	c = arena_zalloc(arena, sizeof(*c));
	if (p == NULL || c == NULL)
		goto out;
	c->arena = arena;
	p->arena = arena;
	p->conf = c;
	p->defaults = defaults;
	p->root.file = &whole;
	p->node = &p->root;
	rc = read_all(p, expanded);
	if (p->nomem)
		rc = SP_E_NOMEM;
	else if (p->failed)
		rc = put_problems(p, err) != 0 ? SP_E_NOMEM : SP_E_CONF;
	if (rc == 0) {
		*out = c;
		return 0;
	}
out:
	arena_free(arena);
	return rc;
}

void
conf_free(struct conf *c)
{
	size_t i;

	if (c == NULL)
		return;
	for (i = 0; i < c->secrets_n; i++)
		conf_secret_clear(c->secrets[i]);
	arena_free(c->arena);
}

int
conf_module_index(const char *name)
{
	int i;

	for (i = 0; i < CONF_MODULES_MAX && conf_modules[i] != NULL; i++) {
		if (strcmp(conf_modules[i]->name, name) == 0)
			return i;
	}
	return -1;
}

void *
conf_module_conf(const struct conf_location *loc, const char *name)
{
	int i = conf_module_index(name);

	return i < 0 ? NULL : loc->module_conf[i];
}

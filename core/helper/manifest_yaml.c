#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "base/mem.h"
#include "base/num.h"
#include "helper/manifest_yaml.h"
#include "os/fd.h"

enum { KEY_SHOWN_MAX = 100 };

struct manifest_yaml {
	yaml_document_t doc;
	bool has_doc;
	char *path;
};

/* ---- reading ---------------------------------------------------------------- */

static int
yaml_fail(struct buf *err, const char *path, size_t line, const char *what)
{
	int rc = buf_printf(err, "%s:%zu: %s\n", path, line, what);

	return rc == SP_E_NOMEM ? rc : SP_E_CONF;
}

static int
yaml_file(const char *path, struct buf *text, struct buf *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	int rc = fd >= 0 ? SP_OK : err_from_errno(errno);
	ssize_t n = 1;

	while (rc == SP_OK && n > 0) {
		rc = buf_reserve(text, 4096);
		if (rc != SP_OK)
			break;
		do
			n = read(fd, buf_tail(text), 4096);
		while (n < 0 && errno == EINTR);
		if (n < 0)
			rc = err_from_errno(errno);
		else
			buf_grow(text, (size_t)n);
	}
	if (fd >= 0)
		close(fd);
	if (rc == SP_OK || rc == SP_E_NOMEM)
		return rc;
	if (rc == SP_E_LIMIT)
		return yaml_fail(err, path, 1,
		    "the manifest is too large; expected at most 256 KiB");
	rc = buf_printf(err, "%s: cannot read the manifest: %s\n", path,
	    err_str(rc));
	return rc == SP_E_NOMEM ? rc : SP_E_CONF;
}

static int
yaml_twice(struct buf *err, const char *path, size_t line, struct view key)
{
	int rc = buf_printf(err,
	    "%s:%zu: the key \"%.*s\" stands twice in one mapping; expected "
	    "each once\n",
	    path, line, VIEW_ARG(view_sub(key, 0, KEY_SHOWN_MAX)));

	return rc == SP_E_NOMEM ? rc : SP_E_CONF;
}

static const yaml_node_t *
yaml_node(const struct manifest_yaml *y, int n)
{
	const yaml_node_t *from = y->doc.nodes.start;

	if (n <= 0 || n > y->doc.nodes.top - y->doc.nodes.start)
		return NULL;
	return from + n - 1;
}

static int yaml_check(const struct manifest_yaml *y, int n, unsigned depth,
    struct buf *err);

static int
yaml_check_map(const struct manifest_yaml *y, const yaml_node_t *node,
    unsigned depth, struct buf *err)
{
	const yaml_node_pair_t *p, *q;
	int self = (int)(node - y->doc.nodes.start) + 1;
	int rc = SP_OK;

	for (p = node->data.mapping.pairs.start;
	     rc == SP_OK && p < node->data.mapping.pairs.top; p++) {
		const yaml_node_t *key = yaml_node(y, p->key);

		if (key == NULL || key->type != YAML_SCALAR_NODE)
			return yaml_fail(err, y->path,
			    manifest_yaml_line(y, p->key),
			    "a key is no word; expected NAME: VALUE");
		for (q = node->data.mapping.pairs.start; q < p; q++)
			if (view_eq(manifest_yaml_text(y, p->key),
				manifest_yaml_text(y, q->key)))
				return yaml_twice(err, y->path,
				    manifest_yaml_line(y, p->key),
				    manifest_yaml_text(y, p->key));
		rc = p->value == self ? SP_E_LIMIT
				      : yaml_check(y, p->value, depth + 1, err);
	}
	return rc;
}

/* Depth is bounded, so an alias that leads into itself ends as too deep. */
static int
yaml_check(const struct manifest_yaml *y, int n, unsigned depth,
    struct buf *err)
{
	const yaml_node_t *node = yaml_node(y, n);
	const yaml_node_item_t *i;
	int rc = SP_OK;

	if (depth > MANIFEST_YAML_DEPTH_MAX)
		return yaml_fail(err, y->path, manifest_yaml_line(y, n),
		    "the manifest is nested too deep; expected at most 32 "
		    "levels");
	if (node == NULL || node->type == YAML_SCALAR_NODE)
		return SP_OK;
	if (node->type == YAML_MAPPING_NODE)
		return yaml_check_map(y, node, depth, err);
	for (i = node->data.sequence.items.start;
	     rc == SP_OK && i < node->data.sequence.items.top; i++)
		rc = yaml_check(y, *i, depth + 1, err);
	return rc;
}

/*
 * Aliases: one node may be had many times, and a few lines would be walked for
 * ages; nothing in a manifest needs them.
 */
static int
yaml_no_alias(const char *path, struct view text, struct buf *err)
{
	yaml_parser_t parser;
	yaml_event_t ev;
	bool over = false;
	int rc = SP_OK;

	if (!yaml_parser_initialize(&parser))
		return SP_E_NOMEM;
	yaml_parser_set_input_string(&parser, (const unsigned char *)text.p,
	    text.n);
	while (!over && rc == SP_OK) {
		if (!yaml_parser_parse(&parser, &ev))
			break; /* the loader says it */
		over = ev.type == YAML_STREAM_END_EVENT;
		if (ev.type == YAML_ALIAS_EVENT)
			rc = yaml_fail(err, path, ev.start_mark.line + 1,
			    "an alias; expected the value itself");
		yaml_event_delete(&ev);
	}
	yaml_parser_delete(&parser);
	return rc;
}

static int
yaml_load(struct manifest_yaml *y, struct view text, struct buf *err)
{
	yaml_parser_t parser;
	yaml_document_t more;
	const char *what = NULL;
	int rc = SP_OK;

	if (!yaml_parser_initialize(&parser))
		return SP_E_NOMEM;
	yaml_parser_set_input_string(&parser, (const unsigned char *)text.p,
	    text.n);
	if (!yaml_parser_load(&parser, &y->doc)) {
		if (parser.error == YAML_MEMORY_ERROR)
			rc = SP_E_NOMEM;
		else
			what = parser.problem != NULL ? parser.problem
						      : "bad YAML";
	} else {
		y->has_doc = true;
		if (!yaml_parser_load(&parser, &more))
			what = parser.problem != NULL ? parser.problem
						      : "bad YAML";
		else {
			if (yaml_document_get_root_node(&more) != NULL)
				what = "a second document; expected one";
			yaml_document_delete(&more);
		}
	}
	if (rc == SP_OK && what != NULL)
		rc =
		    yaml_fail(err, y->path, parser.problem_mark.line + 1, what);
	yaml_parser_delete(&parser);
	return rc;
}

int
manifest_yaml_read(const char *path, struct manifest_yaml **out,
    struct buf *err)
{
	struct buf text = BUF_INIT(MANIFEST_YAML_BYTES_MAX);
	struct manifest_yaml *y = mem_calloc(1, sizeof(*y));
	int rc = SP_E_NOMEM;

	*out = NULL;
	if (y != NULL)
		y->path = mem_strdup(path);
	if (y != NULL && y->path != NULL)
		rc = yaml_file(path, &text, err);
	if (rc == SP_OK && buf_len(&text) == 0)
		rc = yaml_fail(err, path, 1,
		    "the manifest is empty; expected a mapping");
	if (rc == SP_OK)
		rc = yaml_no_alias(path, buf_view(&text), err);
	if (rc == SP_OK)
		rc = yaml_load(y, buf_view(&text), err);
	if (rc == SP_OK && manifest_yaml_kind(y, 1) != MANIFEST_MAP)
		rc = yaml_fail(err, path, 1,
		    "the manifest is no mapping; expected NAME: VALUE lines");
	if (rc == SP_OK)
		rc = yaml_check(y, 1, 1, err);
	buf_clear(&text);
	if (rc == SP_OK)
		*out = y;
	else
		manifest_yaml_free(y);
	return rc;
}

void
manifest_yaml_free(struct manifest_yaml *y)
{
	if (y == NULL)
		return;
	if (y->has_doc)
		yaml_document_delete(&y->doc);
	mem_free(y->path);
	mem_free(y);
}

/* ---- looking ---------------------------------------------------------------- */

const char *
manifest_yaml_path(const struct manifest_yaml *y)
{
	return y->path;
}

int
manifest_yaml_root(const struct manifest_yaml *y)
{
	(void)y;
	return 1;
}

static bool
yaml_is_one_of(struct view v, const char *const *words)
{
	for (; *words != NULL; words++)
		if (view_eq_nocase(v, view_str(*words)))
			return true;
	return false;
}

static const char *const yaml_trues[] = { "true", "yes", "on", NULL };
static const char *const yaml_falses[] = { "false", "no", "off", NULL };
static const char *const yaml_nulls[] = { "null", "~", "", NULL };

static enum manifest_kind
yaml_scalar_kind(const yaml_node_t *node, struct view v)
{
	int64_t n;

	if (node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return MANIFEST_TEXT;
	if (yaml_is_one_of(v, yaml_nulls))
		return MANIFEST_NULL;
	if (yaml_is_one_of(v, yaml_trues) || yaml_is_one_of(v, yaml_falses))
		return MANIFEST_BOOL;
	return num_i64(v, INT64_MIN, INT64_MAX, &n) == SP_OK ? MANIFEST_INT
							     : MANIFEST_TEXT;
}

enum manifest_kind
manifest_yaml_kind(const struct manifest_yaml *y, int n)
{
	const yaml_node_t *node = yaml_node(y, n);

	if (node == NULL)
		return MANIFEST_NONE;
	switch (node->type) {
	case YAML_SCALAR_NODE:
		return yaml_scalar_kind(node, manifest_yaml_text(y, n));
	case YAML_SEQUENCE_NODE:
		return MANIFEST_LIST;
	case YAML_MAPPING_NODE:
		return MANIFEST_MAP;
	case YAML_NO_NODE:
		break;
	}
	return MANIFEST_NONE;
}

unsigned
manifest_yaml_line(const struct manifest_yaml *y, int n)
{
	const yaml_node_t *node = yaml_node(y, n);

	return node == NULL ? 1 : (unsigned)node->start_mark.line + 1;
}

struct view
manifest_yaml_text(const struct manifest_yaml *y, int n)
{
	const yaml_node_t *node = yaml_node(y, n);

	if (node == NULL || node->type != YAML_SCALAR_NODE)
		return VIEW_NONE;
	return view_of(node->data.scalar.value, node->data.scalar.length);
}

bool
manifest_yaml_true(const struct manifest_yaml *y, int n)
{
	return yaml_is_one_of(manifest_yaml_text(y, n), yaml_trues);
}

int
manifest_yaml_get(const struct manifest_yaml *y, int n, const char *key)
{
	struct view name;
	size_t i;

	for (i = 0; i < manifest_yaml_count(y, n); i++) {
		int value = manifest_yaml_at(y, n, i, &name);

		if (view_eq(name, view_str(key)))
			return value;
	}
	return 0;
}

size_t
manifest_yaml_count(const struct manifest_yaml *y, int n)
{
	const yaml_node_t *node = yaml_node(y, n);

	if (node == NULL)
		return 0;
	if (node->type == YAML_SEQUENCE_NODE)
		return (size_t)(node->data.sequence.items.top -
		    node->data.sequence.items.start);
	if (node->type == YAML_MAPPING_NODE)
		return (size_t)(node->data.mapping.pairs.top -
		    node->data.mapping.pairs.start);
	return 0;
}

int
manifest_yaml_at(const struct manifest_yaml *y, int n, size_t i,
    struct view *key)
{
	const yaml_node_t *node = yaml_node(y, n);
	const yaml_node_pair_t *pair;

	*key = VIEW_NONE;
	if (node == NULL || i >= manifest_yaml_count(y, n))
		return 0;
	if (node->type == YAML_SEQUENCE_NODE)
		return node->data.sequence.items.start[i];
	pair = &node->data.mapping.pairs.start[i];
	*key = manifest_yaml_text(y, pair->key);
	return pair->value;
}

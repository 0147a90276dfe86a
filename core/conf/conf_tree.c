/*
 * Expanded text to a tree of directives.  The text comes from the helper, but
 * is read as if it could be anything.
 */
#include "base/num.h"
#include "base/utf8.h"
#include "conf/lexer.h"
#include "conf/parse.h"

struct level {
	struct conf_node *node; /* the block */
	struct conf_node **tail; /* where its next directive goes */
	bool made; /* it is written, and some of it is a manifest's */
};

struct frame {
	const struct conf_file *file;
	size_t depth; /* of blocks where it began */
};

struct tree {
	struct conf_parse *p;
	struct view rest;
	struct level levels[CONF_DEPTH_MAX + 1];
	size_t depth;
	struct frame frames[CONF_INCLUDE_MAX + 2];
	size_t frames_n;
	unsigned nodes_n;
	/* The directive being read; args_n 0: none is. */
	struct view args[CONF_ARGS_MAX];
	size_t args_n;
	unsigned line, last_line;
};

/* The place of an error where no directive is complete. */
static const struct conf_node *
place(struct tree *t, unsigned line)
{
	static const struct conf_file nowhere = { .name = "configuration" };
	struct conf_node *n = arena_zalloc(t->p->arena, sizeof(*n));

	if (n == NULL) {
		conf_nomem(t->p);
		return &t->p->root;
	}
	n->file = t->frames_n > 0 ? t->frames[t->frames_n - 1].file : &nowhere;
	n->line = line;
	n->seq = t->nodes_n;
	return n;
}

static int
damaged(struct tree *t)
{
	t->p->broken = true;
	return conf_error_at(t->p, place(t, 0),
	    "expanded text is damaged; expected what conf_expand wrote");
}

/* A number up to the byte `end`. */
static int
take_number(struct tree *t, char end, uint64_t max, uint64_t *out)
{
	struct view v = view_sub(t->rest, 0, 20);
	size_t n = view_find(v, end);

	if (n == v.n || num_u64(view_sub(v, 0, n), 0, max, out) != 0)
		return SP_E_SYNTAX;
	t->rest = view_from(t->rest, n + 1);
	return 0;
}

/* n bytes, UTF-8 and without NUL. */
static int
take_bytes(struct tree *t, uint64_t n, struct view *out)
{
	if (n > t->rest.n)
		return SP_E_SYNTAX;
	*out = view_sub(t->rest, 0, n);
	t->rest = view_from(t->rest, n);
	if (!utf8_valid(*out) || view_find(*out, '\0') != out->n)
		return SP_E_SYNTAX;
	return 0;
}

static int
take_newline(struct tree *t)
{
	if (t->rest.n == 0 || t->rest.p[0] != '\n')
		return SP_E_SYNTAX;
	t->rest = view_from(t->rest, 1);
	return 0;
}

static int
open_file(struct tree *t, bool made)
{
	uint64_t name_n, dir_n;
	struct conf_file *f;
	struct view name, dir;

	if (t->frames_n == CONF_INCLUDE_MAX + 2 || t->args_n != 0 ||
	    take_number(t, ' ', CONF_FILE_NAME_MAX, &name_n) != 0 ||
	    take_number(t, '\n', 4096, &dir_n) != 0 ||
	    take_bytes(t, name_n, &name) != 0 ||
	    take_bytes(t, dir_n, &dir) != 0 || take_newline(t) != 0)
		return damaged(t);
	if (dir.n > 0 && dir.p[0] != '/')
		return damaged(t);
	f = arena_zalloc(t->p->arena, sizeof(*f));
	if (f == NULL)
		return conf_nomem(t->p);
	f->name = arena_strdup(t->p->arena, name);
	if (f->name == NULL)
		return conf_nomem(t->p);
	f->dir = dir;
	f->made = made;
	if (t->p->root.seq++ == 0)
		t->p->root.file = f; /* the first stands for the whole */
	t->frames[t->frames_n++] =
	    (struct frame){ .file = f, .depth = t->depth };
	return 0;
}

/* Every block and directive ends in the file where it began. */
static int
close_file(struct tree *t)
{
	struct frame *f;
	int rc = 0;

	if (t->frames_n == 0)
		return damaged(t);
	f = &t->frames[t->frames_n - 1];
	if (t->args_n > 0) {
		t->p->broken = true;
		rc = conf_error_at(t->p, place(t, t->line),
		    "directive \"%.*s\" does not end; expected \";\"",
		    VIEW_ARG(t->args[0]));
		t->args_n = 0;
	}
	while (t->depth > f->depth) {
		struct conf_node *open = t->levels[t->depth].node;

		if (rc == 0)
			rc = conf_error_at(t->p, open,
			    "block \"%.*s\" does not end in its file; "
			    "expected \"}\"",
			    VIEW_ARG(open->args[0]));
		t->p->broken = true;
		t->depth--;
	}
	t->frames_n--;
	return rc == SP_E_NOMEM ? rc : 0;
}

/* Puts the directive that was read into the tree. */
static int
finish_node(struct tree *t, bool block)
{
	struct conf_node *n;

	if (++t->nodes_n > CONF_NODES_MAX) {
		t->p->broken = true;
		return conf_error_at(t->p, place(t, t->line),
		    "too many directives; expected at most %d", CONF_NODES_MAX);
	}
	n = arena_zalloc(t->p->arena, sizeof(*n));
	if (n == NULL)
		return conf_nomem(t->p);
	n->args = arena_alloc(t->p->arena, t->args_n * sizeof(*n->args));
	if (n->args == NULL)
		return conf_nomem(t->p);
	memcpy(n->args, t->args, t->args_n * sizeof(*n->args));
	n->n = t->args_n;
	n->file = t->frames[t->frames_n - 1].file;
	n->line = t->line;
	n->last_line = t->last_line;
	n->seq = t->nodes_n;
	n->block = block;
	*t->levels[t->depth].tail = n;
	t->levels[t->depth].tail = &n->next;
	t->levels[t->depth].made |= n->file->made && t->depth > 0 &&
	    !t->levels[t->depth].node->file->made;
	t->args_n = 0;
	if (!block)
		return 0;
	if (t->depth == CONF_DEPTH_MAX) {
		t->p->broken = true;
		return conf_error_at(t->p, n,
		    "blocks nest too deep; expected at most %d levels",
		    CONF_DEPTH_MAX);
	}
	t->depth++;
	t->levels[t->depth] = (struct level){ .node = n, .tail = &n->child };
	return 0;
}

static int
add_word(struct tree *t, const struct lexer_token *tok)
{
	struct view v = tok->raw;

	if (t->args_n == CONF_ARGS_MAX) {
		t->p->broken = true;
		return conf_error_at(t->p, place(t, t->line),
		    "directive \"%.*s\" has too many arguments; expected at "
		    "most %d (is a \";\" missing?)",
		    VIEW_ARG(t->args[0]), CONF_ARGS_MAX - 1);
	}
	if (tok->escaped) {
		char *mem = arena_alloc(t->p->arena, v.n + 1);

		if (mem == NULL)
			return conf_nomem(t->p);
		v = view_of(mem, lexer_unescape(tok->raw, mem));
	}
	if (t->args_n == 0)
		t->line = tok->line;
	t->last_line = tok->line;
	t->args[t->args_n++] = v;
	return 0;
}

static int
close_block(struct tree *t, unsigned line)
{
	int rc = 0;

	if (t->args_n > 0) {
		rc = conf_error_at(t->p, place(t, t->line),
		    "directive \"%.*s\" does not end before \"}\"; expected "
		    "\";\"",
		    VIEW_ARG(t->args[0]));
		t->args_n = 0;
	}
	if (t->depth > t->frames[t->frames_n - 1].depth) {
		if (t->levels[t->depth].made)
			conf_made_join(&t->levels[t->depth].node->child);
		t->depth--;
		return rc;
	}
	t->p->broken = true;
	return conf_error_at(t->p, place(t, line),
	    "\"}\" closes no block of this file; expected a directive");
}

/* One token; SP_E_CONF is an error that the rest can be read after. */
static int
add_token(struct tree *t, const struct lexer_token *tok)
{
	switch (tok->type) {
	case LEXER_WORD:
		return add_word(t, tok);
	case LEXER_SEMI:
		if (t->args_n > 0)
			return finish_node(t, false);
		return conf_error_at(t->p, place(t, tok->line),
		    "\";\" ends no directive; expected a directive");
	case LEXER_OPEN:
		if (t->args_n > 0)
			return finish_node(t, true);
		t->p->broken = true;
		return conf_error_at(t->p, place(t, tok->line),
		    "\"{\" without a name; expected a directive");
	case LEXER_CLOSE:
		return close_block(t, tok->line);
	case LEXER_END:
	case LEXER_ERROR:
		break;
	}
	return 0;
}

static int
read_text(struct tree *t)
{
	uint64_t line, n;
	struct view text;
	struct lexer lx;
	struct lexer_token tok;
	int rc;

	if (t->frames_n == 0 || take_number(t, ' ', 1 << 30, &line) != 0 ||
	    take_number(t, '\n', CONF_TEXT_MAX, &n) != 0 ||
	    take_bytes(t, n, &text) != 0 || take_newline(t) != 0)
		return damaged(t);
	lexer_init(&lx, text, (unsigned)line);
	while (lexer_next(&lx, &tok) != LEXER_END) {
		if (tok.type == LEXER_ERROR) {
			t->p->broken = true;
			return conf_error_at(t->p, place(t, tok.line), "%s",
			    lx.error);
		}
		rc = add_token(t, &tok);
		if (rc != 0 && (rc != SP_E_CONF || t->p->broken))
			return rc;
	}
	return 0;
}

static int
read_record(struct tree *t)
{
	char kind = t->rest.p[0];

	if (view_starts(t->rest, VIEW("E\n"))) {
		t->rest = view_from(t->rest, 2);
		return close_file(t);
	}
	if (t->rest.n < 2 || t->rest.p[1] != ' ')
		return damaged(t);
	t->rest = view_from(t->rest, 2);
	if (kind == 'F' || kind == 'M')
		return open_file(t, kind == 'M');
	if (kind == 'T')
		return read_text(t);
	return damaged(t);
}

int
conf_tree_build(struct conf_parse *p, struct view expanded,
    struct conf_node **out)
{
	struct tree *t;
	int rc = 0;

	*out = NULL;
	t = arena_zalloc(p->arena, sizeof(*t));
	if (t == NULL)
		return conf_nomem(p);
	t->p = p;
	t->levels[0] = (struct level){ .node = NULL, .tail = out };
	if (!view_starts(expanded, VIEW(CONF_TEXT_MAGIC)))
		return damaged(t);
	t->rest = view_from(expanded, sizeof(CONF_TEXT_MAGIC) - 1);
	while (t->rest.n > 0 && rc == 0)
		rc = read_record(t);
	if (rc == 0 && t->frames_n > 0)
		rc = damaged(t);
	return rc;
}

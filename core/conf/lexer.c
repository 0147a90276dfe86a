#include "conf/lexer.h"

void
lexer_init(struct lexer *lx, struct view text, unsigned line)
{
	lx->text = text;
	lx->pos = 0;
	lx->line = line;
	lx->error = NULL;
}

static bool
is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* What may not stand in a value, nor in a comment. */
static bool
is_control(char c)
{
	return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f;
}

/* Ends a bare word. */
static bool
is_delimiter(char c)
{
	return is_space(c) || c == ';' || c == '{' || c == '}';
}

static enum lexer_type
fail(struct lexer *lx, struct lexer_token *t, const char *why)
{
	lx->error = why;
	t->type = LEXER_ERROR;
	t->line = lx->line;
	t->end = lx->pos;
	return LEXER_ERROR;
}

/* Spaces, line ends and comments; false on a byte that may not be there. */
static bool
skip_space(struct lexer *lx)
{
	bool comment = false;

	for (; lx->pos < lx->text.n; lx->pos++) {
		char c = lx->text.p[lx->pos];

		if (c == '\n') {
			lx->line++;
			comment = false;
		} else if (!comment && c == '#') {
			comment = true;
		} else if (!is_space(c)) {
			if (is_control(c))
				return false;
			if (!comment)
				return true;
		}
	}
	return true;
}

static enum lexer_type
read_quoted(struct lexer *lx, struct lexer_token *t)
{
	const char *p = lx->text.p;
	char quote = p[lx->pos];
	size_t from = lx->pos + 1, i;

	for (i = from; i < lx->text.n && p[i] != quote; i++) {
		if (p[i] == '\n')
			break;
		if (is_control(p[i]))
			return fail(lx, t,
			    "control character in a value; expected "
			    "printable text");
		if (p[i] != '\\')
			continue;
		t->escaped = true;
		if (i + 1 < lx->text.n && p[i + 1] != '\n')
			i++;
		if (p[i] == 'n' || p[i] == 'r')
			return fail(lx, t,
			    "\\n or \\r in a value; expected a value of one "
			    "line (\\\\ is a backslash)");
	}
	if (i >= lx->text.n || p[i] != quote)
		return fail(lx, t,
		    "quoted value does not end on its line; expected a "
		    "closing quote");
	t->raw = view_of(p + from, i - from);
	lx->pos = i + 1;
	if (lx->pos < lx->text.n && !is_delimiter(p[lx->pos]))
		return fail(lx, t,
		    "text right after a closing quote; expected a space, "
		    "\";\" or \"{\"");
	t->type = LEXER_WORD;
	return LEXER_WORD;
}

static enum lexer_type
read_word(struct lexer *lx, struct lexer_token *t)
{
	const char *p = lx->text.p;
	size_t from = lx->pos, i;

	for (i = from; i < lx->text.n && !is_delimiter(p[i]); i++) {
		if (is_control(p[i]))
			return fail(lx, t,
			    "control character in a value; expected "
			    "printable text");
		if (p[i] != '\\')
			continue;
		t->escaped = true;
		if (i + 1 < lx->text.n && p[i + 1] != '\n' && p[i + 1] != '\r')
			i++;
		if (p[i] == 'n' || p[i] == 'r')
			return fail(lx, t,
			    "\\n or \\r in a value; expected a value of one "
			    "line (\\\\ is a backslash)");
	}
	if (i > from && i < lx->text.n && p[i] == '{' && p[i - 1] == '$')
		return fail(lx, t,
		    "\"${\" in a value: variables stand without braces; write "
		    "$session");
	t->raw = view_of(p + from, i - from);
	lx->pos = i;
	t->type = LEXER_WORD;
	return LEXER_WORD;
}

enum lexer_type
lexer_next(struct lexer *lx, struct lexer_token *t)
{
	static const char marks[] = ";{}";
	static const enum lexer_type types[] = { LEXER_SEMI, LEXER_OPEN,
		LEXER_CLOSE };
	const char *mark;
	char c;

	*t = (struct lexer_token){ .type = LEXER_END };
	if (lx->error != NULL)
		return fail(lx, t, lx->error);
	if (!skip_space(lx))
		return fail(lx, t,
		    "control character; expected printable text");
	t->line = lx->line;
	t->end = lx->pos;
	if (lx->pos >= lx->text.n)
		return LEXER_END;
	c = lx->text.p[lx->pos];
	mark = strchr(marks, c);
	if (mark != NULL) {
		t->type = types[mark - marks];
		t->raw = view_of(lx->text.p + lx->pos, 1);
		lx->pos++;
	} else if (c == '"' || c == '\'') {
		read_quoted(lx, t);
	} else {
		read_word(lx, t);
	}
	t->end = lx->pos;
	return t->type;
}

size_t
lexer_unescape(struct view raw, char *out)
{
	size_t i, n = 0;

	for (i = 0; i < raw.n; i++) {
		char c = raw.p[i];

		if (c == '\\' && i + 1 < raw.n) {
			char next = raw.p[i + 1];

			if (next == 't') {
				c = '\t';
				i++;
			} else if (strchr("\\\"';{}# ", next) != NULL) {
				c = next;
				i++;
			}
		}
		out[n++] = c;
	}
	return n;
}

bool
lexer_is_bare(struct view value)
{
	size_t i;

	if (value.n == 0 || strchr("\"'#", value.p[0]) != NULL)
		return false;
	for (i = 0; i < value.n; i++) {
		if (is_delimiter(value.p[i]) || is_control(value.p[i]) ||
		    value.p[i] == '\\')
			return false;
	}
	return true;
}

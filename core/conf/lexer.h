/* Tokens of the configuration language; no allocation. */
#ifndef SP_CONF_LEXER_H
#define SP_CONF_LEXER_H

#include <stdbool.h>

#include "base/view.h"

enum lexer_type {
	LEXER_END, /* no more text */
	LEXER_WORD,
	LEXER_SEMI, /* ; */
	LEXER_OPEN, /* { */
	LEXER_CLOSE, /* } */
	LEXER_ERROR /* lexer.error says why; the text is of no more use */
};

struct lexer {
	struct view text; /* borrowed */
	size_t pos;
	unsigned line;
	const char *error; /* static: "what; expected what" */
};

struct lexer_token {
	enum lexer_type type;
	struct view raw; /* a word without its quotes, escapes as written */
	bool escaped; /* raw holds a backslash: see lexer_unescape() */
	unsigned line;
	size_t end; /* offset in the text, one past the token */
};

/*
 * Source:  the grammar of nginx, see sallyport.conf(5).
 * Context: any, does not block.
 * Parameters: text, borrowed while the lexer is used; line, of its first
 *          byte.
 */
void lexer_init(struct lexer *lx, struct view text, unsigned line);

/*
 * Reads one token.
 * Source:  sallyport.conf(5).
 * Context: any, does not block.
 * Owner:   t->raw borrows from the text.
 * Returns: t->type.
 */
enum lexer_type lexer_next(struct lexer *lx, struct lexer_token *t);

/*
 * The value of a word: \\ \" \' \; \{ \} \# and "\ " lose the backslash, \t
 * is a tab, any other backslash stays.
 * Source:  sallyport.conf(5).
 * Context: any, does not block.
 * Parameters: out, at least raw.n bytes.
 * Returns: the length of the value.
 */
size_t lexer_unescape(struct view raw, char *out);

/*
 * Whether a value, written as a bare word, reads back as the same value.
 * Context: any, does not block.
 */
bool lexer_is_bare(struct view value);

#endif

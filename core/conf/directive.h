/* Directive rows: what the configuration language consists of, as data. */
#ifndef SP_CONF_DIRECTIVE_H
#define SP_CONF_DIRECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/view.h"

/* Where a directive may stand. */
enum conf_scope {
	CONF_MAIN = 1 << 0,
	CONF_UPSTREAM = 1 << 1,
	CONF_CAPTURE = 1 << 2,
	CONF_SERVER = 1 << 3,
	CONF_LOCATION = 1 << 4,
	CONF_ENVIRONMENT = 1 << 5,
	CONF_SANDBOX = 1 << 6,
	CONF_EGRESS = 1 << 7,
	CONF_ASSETS = 1 << 8, /* lines of KIND FILE, no rows */
	CONF_PROCESS = 1 << 9,
	CONF_INSIDE = 1 << 10, /* the rows of servers that may stand there */
	CONF_WORKER = 1 << 11,
};

/* What its arguments are, and the C type at its offset. */
enum conf_type {
	CONF_MARK, /* none; bool, true where it stands */
	CONF_HANDLER, /* none; makes the location its module's */
	CONF_ONOFF, /* on | off; bool */
	CONF_NUMBER, /* one number in [min, max]; uint64_t */
	CONF_SIZE, /* one size in [min, max]; uint64_t bytes */
	CONF_DURATION, /* one time in [min, max]; uint64_t ms; "off" is 0 when
			  min is 0 */
	CONF_DOUBLE, /* one decimal; double */
	CONF_CHOICE, /* one of choices; unsigned, the index */
	CONF_STRING, /* one argument; struct view */
	CONF_PATH, /* one path, made absolute; struct view */
	CONF_LIST, /* one or more arguments; struct conf_list; repeats */
	CONF_SECRET, /* env:NAME or file:PATH; struct conf_secret * */
	CONF_REF, /* name of a block of scope `ref`; pointer to its struct,
			  resolved after the whole text was read */
	CONF_CUSTOM, /* parse() does it */
	CONF_BLOCK, /* { }: opens scope `opens`, with its own arguments */
};

enum conf_row_flags {
	CONF_REPEATS = 1 << 0, /* may stand more than once in a block */
	CONF_INHERITS = 1 << 1, /* where not set, the outer block's value */
	CONF_REQUIRED = 1 << 2, /* the block is an error without it */
	CONF_RESTART = 1 << 3, /* a change needs a restart, not a reload */
	CONF_PEM = 1 << 4, /* CONF_SECRET: PEM text, not one word */
	CONF_OPEN = 1 << 5, /* CONF_SECRET: anybody may know it */
	CONF_PLAIN_TOO = 1 << 6, /* CONF_BLOCK: may end with ";" instead */
};

struct conf_list {
	struct view *v;
	size_t n;
};

struct buf;
struct conf;
struct conf_location;
struct conf_parse; /* the parser's state: parse.h */

struct conf_directive {
	const char *name;
	unsigned scopes; /* conf_scope bits */
	enum conf_type type;
	unsigned flags;
	size_t offset; /* in the owner's struct: the scope's, or the module's */
	uint64_t min, max; /* max 0: none; CONF_SECRET: least bytes */
	const char *def; /* parsed like user input; NULL: zero */
	const char *const *choices; /* NULL-terminated */
	enum conf_scope ref, opens;
	unsigned args_min, args_max; /* CONF_CUSTOM and CONF_BLOCK */
	/*
	 * Reads args (args[0] is the name) into the owner's struct at base.
	 * Pure: no file, no system call.  On an error it has called
	 * conf_error() and returns SP_E_CONF.
	 */
	int (*parse)(struct conf_parse *p, const struct conf_directive *row,
	    void *base, const struct view *args, size_t n);
	const char *args; /* "off | TIME": for messages and the manual */
	const char *doc; /* one sentence or more, a line of 80 bytes each */
	/*
	 * CONF_CUSTOM: writes the directives that set base so, each
	 * "name args;\n" after indent; NULL: nothing to write.  0;
	 * SP_E_LIMIT; SP_E_NOMEM.
	 */
	int (*dump)(const struct conf_directive *row, const void *base,
	    const char *indent, struct buf *out);
	const char *def_doc; /* default that is no constant, for the manual */
};

/*
 * The rows of one owner (a scope of the core, or a module), linked into every
 * program; a module's code need not be.
 */
struct conf_module {
	const char *name;
	const struct conf_directive *directives; /* ends with name NULL */
	size_t conf_size; /* of its struct, one for each location */
	bool inside; /* meant for agents too: may stand in an `inside` */
	/*
	 * Whose door it is: its token may be nobody else's.  NULL: of no
	 * principal, tokens are not compared.
	 */
	const char *principal;
	/*
	 * Checks one location's finished struct, references resolved; NULL
	 * none.  0, or SP_E_CONF after conf_error().
	 */
	int (*check)(struct conf_parse *p, void *conf);
	/*
	 * Its path at the control socket, where it is served with every
	 * directive at its default and asks for no token; NULL: not there.
	 */
	const char *control;
};

/* The ordered list (modules/modules_conf.c), ends with NULL. */
extern const struct conf_module *const conf_modules[];

/*
 * Reports an error at the directive being read:
 *   FILE:LINE: text
 * Context: a row's parse() or a module's check().
 * Returns: SP_E_CONF, to be returned on.
 */
int conf_error(struct conf_parse *p, const char *fmt, ...) printf_like(2, 3);

/* The location being read or checked; NULL in other blocks. */
const struct conf_location *conf_current_location(const struct conf_parse *p);
/* What is being read; whole in a module's check(). */
const struct conf *conf_current(const struct conf_parse *p);

/* Memory that lives as long as the configuration; zeroed; NULL: none left. */
void *conf_alloc(struct conf_parse *p, size_t n) must_check;

#endif

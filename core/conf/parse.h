/* The parser's inside: shared by core/conf only. */
#ifndef SP_CONF_PARSE_H
#define SP_CONF_PARSE_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/view.h"
#include "conf/conf.h"
#include "conf/directive.h"

enum {
	CONF_ERRORS_MAX = 20,
	CONF_TEXT_MAX = 4 << 20, /* bytes of all files */
	CONF_FILES_MAX = 1000,
	CONF_INCLUDE_MAX = 16, /* levels */
	CONF_DEPTH_MAX = 16, /* blocks in blocks */
	CONF_FILE_NAME_MAX = 4096 + 16, /* a path, in "manifest(PATH)" */
	CONF_ARGS_MAX = 1024, /* of one directive, with its name */
	CONF_NODES_MAX = 20000, /* directives */
	CONF_BLOCKS_MAX = 1000, /* upstreams; captures; servers; locations of
				   one server; and what a block may repeat */
	CONF_TABLES_MAX = CONF_MODULES_MAX + 2,
	CONF_ARENA_MAX = 64 << 20,
	CONF_DEFAULT_ARGS = 8
};

#define CONF_TEXT_MAGIC "sallyport-conf 1\n"

/* A file of the expanded text. */
struct conf_file {
	const char *name; /* for messages */
	struct view dir; /* absolute; empty: conf_defaults.conf_dir */
	bool made; /* what a manifest says, in the words of ours */
};

/* One directive as it was written. */
struct conf_node {
	struct conf_node *next;
	struct conf_node *child; /* first of a block's */
	const struct conf_file *file;
	struct view *args; /* args[0] is the name */
	size_t n;
	unsigned line;
	unsigned last_line; /* of the last argument */
	unsigned seq; /* order in the text */
	bool block;
};

/* The rows of one owner and the struct that they fill. */
struct conf_table {
	const struct conf_directive *rows;
	void *base;
	const struct conf_node **set; /* by row: where it was set here */
};

/* A block being read. */
struct conf_block {
	enum conf_scope scope;
	const char *what; /* "upstream \"a\"", for messages */
	struct conf_table tables[CONF_TABLES_MAX];
	size_t tables_n;
	const struct conf_block *parent;
	const struct conf_node *node; /* that opened it; NULL main */
	const struct conf_module *handler; /* of a location */
};

/* A name to be resolved when everything was read. */
struct conf_ref {
	struct conf_ref *next;
	const struct conf_node *node;
	const struct conf_directive *row;
	struct view name;
	void *slot;
};

struct conf_problem {
	unsigned seq;
	const char *text;
};

struct conf_parse {
	struct arena *arena;
	struct conf *conf;
	const struct conf_defaults *defaults; /* may be NULL */
	struct conf_problem problems[CONF_ERRORS_MAX];
	size_t problems_n;
	bool failed; /* an error was reported, kept or not */
	bool nomem;
	bool broken; /* the text's blocks make no sense */
	const struct conf_node *node; /* being read: place of errors */
	const struct conf_block *block; /* being read */
	struct conf_location *location; /* being read or checked */
	struct conf_ref *refs;
	struct conf_node root; /* place of errors about the whole */
};

/* Rows of the core, one table for each owner; ends with rows NULL. */
struct conf_owner {
	const char *title; /* of the manual's section */
	const struct conf_directive *rows;
};
extern const struct conf_owner conf_lookup_owners[];

/*
 * The whole of core/conf below: Context: every role, does not block.
 * Returns (where int): 0; SP_E_CONF after conf_error(); SP_E_NOMEM.
 */

/* Expanded text to a tree: conf_tree.c. */
int conf_tree_build(struct conf_parse *p, struct view expanded,
    struct conf_node **out) must_check;

/*
 * In a block's list, of which some is a manifest's: what is written goes before
 * that, as sallyport.conf(5) says under Includes: conf_made.c.
 */
void conf_made_join(struct conf_node **list);

/* An error at a directive other than the one being read. */
int conf_error_at(struct conf_parse *p, const struct conf_node *node,
    const char *fmt, ...) printf_like(3, 4);
/*
 * What is no error, for whoever looks at conf->warnings, at most
 * CONF_ERRORS_MAX of them.  0; SP_E_NOMEM.
 */
int conf_warn(struct conf_parse *p, struct conf_pos pos, const char *fmt, ...)
    printf_like(3, 4) must_check;
/* No memory: remembers it. */
int conf_nomem(struct conf_parse *p);

/*
 * An array with room for one more: arr itself, or a copy.  NULL: no memory
 * (remembered) or over CONF_BLOCKS_MAX (reported as `what`).
 */
void *conf_more(struct conf_parse *p, void *arr, size_t n, size_t size,
    const char *what) must_check;
/* A printf in the configuration's memory; NULL: none (remembered). */
const char *conf_text(struct conf_parse *p, const char *fmt, ...)
    printf_like(2, 3) must_check;
struct conf_pos conf_node_pos(const struct conf_node *node);
/* Where the row of this name was set in the block being read, or NULL. */
const struct conf_node *conf_block_set(const struct conf_block *b,
    const char *name);

/* Blocks: conf_block.c. */
int conf_block_add(struct conf_parse *p, struct conf_block *b,
    const struct conf_directive *rows, void *base) must_check;
/* The plain directives of a block, then its defaults. */
int conf_block_plain(struct conf_parse *p, struct conf_block *b,
    const struct conf_node *nodes) must_check;
/* The blocks in a block. */
int conf_block_nested(struct conf_parse *p, struct conf_block *b,
    const struct conf_node *nodes) must_check;
/* The name of a block: letters, digits, "_", "-" and ".". */
int conf_block_name(struct conf_parse *p, struct view name) must_check;
/* Resolves all references. */
int conf_block_refs(struct conf_parse *p) must_check;

/* Values: conf_type.c. */
int conf_type_set(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n) must_check;
/* Bytes of the field at the row's offset; 0: not a plain value. */
size_t conf_type_size(enum conf_type type);
/* A path made absolute, from the directory of the directive being read. */
int conf_type_path(struct conf_parse *p, struct view path,
    struct view *out) must_check;
int conf_type_list_add(struct conf_parse *p, struct conf_list *list,
    struct view v) must_check;
/* "90s", "64k" into out (32 bytes), in the largest unit that is exact. */
void conf_type_duration(uint64_t ms, char *out);
void conf_type_size_text(uint64_t bytes, char *out);

/* Secrets: conf_secret.c. */
int conf_secret_parse(struct conf_parse *p, const struct conf_directive *row,
    struct view arg, struct conf_secret **out) must_check;
void conf_secret_clear(struct conf_secret *s);
/* Letters, digits and "_", at most 256. */
bool conf_secret_is_env_name(struct view v);

/* Finding rows: conf_lookup.c. */
const struct conf_directive *conf_lookup(struct conf_block *b, struct view name,
    struct conf_table **table);
/* Says why no row was found. */
int conf_lookup_error(struct conf_parse *p, const struct conf_block *b,
    struct view name);
/* "upstream, capture" */
void conf_lookup_scopes(unsigned scopes, struct buf *out);

/* Addresses: conf_url.c. */
int conf_url_parse(struct conf_parse *p, struct view url,
    struct conf_upstream_server *out) must_check;
bool conf_url_is_ip(struct view v, int *family);
/* A name of a host, or an address without brackets. */
bool conf_url_is_host(struct view v);
/* "HOST:PORT" or "HOST", "[V6]:PORT": takes the parts; SP_E_SYNTAX. */
int conf_url_host_port(struct view v, struct view *host,
    struct view *port) must_check;

/*
 * Text of a value, quoted where needed: conf_dump.c.  These return 0;
 * SP_E_LIMIT; SP_E_NOMEM.
 */
int conf_dump_word(struct buf *out, struct view v) must_check;
/* "name word word;" for several words of one directive. */
int conf_dump_words(struct buf *out, const char *indent, const char *name,
    const struct conf_list *words) must_check;
/* All plain rows that may stand in the scope. */
int conf_dump_rows(const struct conf_directive *rows, enum conf_scope scope,
    const void *base, const char *indent, struct buf *out) must_check;
/* "what name {" */
int conf_dump_open(struct buf *out, const char *indent, const char *what,
    struct view name) must_check;
int conf_dump_location(const struct conf_location *loc, const char *indent,
    struct buf *out) must_check;

#endif

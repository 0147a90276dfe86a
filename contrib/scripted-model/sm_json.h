/* A parsed JSON text: what requests and scripts are read as. */
#ifndef SP_SM_JSON_H
#define SP_SM_JSON_H

#include <stdint.h>

#include "base/arena.h"
#include "sm_out.h"

enum sm_json_type {
	SM_JSON_NULL,
	SM_JSON_BOOL,
	SM_JSON_NUMBER,
	SM_JSON_STRING,
	SM_JSON_ARRAY,
	SM_JSON_OBJECT
};

struct sm_json {
	enum sm_json_type type;
	struct view key; /* in an object */
	struct view text; /* string decoded; number, true, null as written */
	struct sm_json *child; /* first of an array or object */
	struct sm_json *last;
	struct sm_json *next; /* sibling */
	struct sm_json *up;
};

/*
 * Source:  RFC 8259 by yajl; at most 128 levels deep.
 * Context: any, does not block.
 * Parameters: why, NULL or where one line on a syntax error goes (why_n
 *          bytes).
 * Owner:   everything lies in a.
 * Returns: 0; SP_E_SYNTAX; SP_E_NOMEM.
 */
int sm_json_parse(struct arena *a, struct view text, struct sm_json **out,
    char *why, size_t why_n) must_check;
/* The last member of that name, NULL when there is none or o no object. */
const struct sm_json *sm_json_get(const struct sm_json *o, const char *key);
/* A member's text if it is a string, else VIEW_NONE. */
struct view sm_json_string(const struct sm_json *o, const char *key);
bool sm_json_true(const struct sm_json *o, const char *key, bool otherwise);
int64_t sm_json_int(const struct sm_json *o, const char *key,
    int64_t otherwise);
double sm_json_double(const struct sm_json *o, const char *key,
    double otherwise);
bool sm_json_is(const struct sm_json *v, enum sm_json_type type);
/* Compact; numbers as they were written. */
void sm_json_write(struct sm_out *o, const struct sm_json *v);

#endif

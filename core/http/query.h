/* The query of a URL: NAME=VALUE pairs. */
#ifndef SP_HTTP_QUERY_H
#define SP_HTTP_QUERY_H

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

/*
 * The member of that name, decoded into text (max bytes); p NULL: there is
 * none that is.
 * Source:  RFC 3986 s2.1, of names and values; "+" is no space.
 * Parameters: name, at most 64 bytes.
 * Returns: 1 found; 0 not; SP_E_SYNTAX a malformed escape, or it is longer;
 *          SP_E_EXISTS it stands there twice.
 */
int query_short(struct view query, struct view name, char *text, size_t max,
    struct view *out) must_check;
/*
 * A member that is 0 or 1; *out stays as it is where there is none.
 * Returns: 0; SP_E_SYNTAX it is something else; SP_E_EXISTS.
 */
int query_flag(struct view query, struct view name, bool *out) must_check;
/*
 * Decodes its value: appended to out.
 * Source:  RFC 3986 s2.1; "+" is no space.
 * Returns: 1 found; 0 not; SP_E_SYNTAX a malformed escape; SP_E_EXISTS it
 *          stands there twice; SP_E_LIMIT; SP_E_NOMEM.
 */
int query_get(struct view query, struct view name, struct buf *out) must_check;
/*
 * The name of a pair NAME=VALUE, decoded into out (max bytes); p NULL: it is
 * longer, or has a malformed escape.
 */
struct view query_name(struct view pair, char *out, size_t max);

#endif

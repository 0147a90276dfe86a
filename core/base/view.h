/* Borrowed bytes: a pointer and a length, never NUL-terminated. */
#ifndef SP_BASE_VIEW_H
#define SP_BASE_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct view {
	const char *p;
	size_t n;
};

/* From a string literal, or from pointer and length. */
#define VIEW(lit) ((struct view){ "" lit, sizeof(lit) - 1 })
/* The same in the initialiser of a static. */
#define VIEW_INIT(lit) \
	{ \
		"" lit, sizeof(lit) - 1 \
	}
#define VIEW_NONE ((struct view){ NULL, 0 })
static inline struct view
view_of(const void *p, size_t n)
{
	return (struct view){ p, n };
}
static inline struct view
view_str(const char *s)
{
	return (struct view){ s, s != NULL ? strlen(s) : 0 };
}
/* For printf("%.*s", VIEW_ARG(v)); at most 4,096 bytes of it. */
#define VIEW_ARG(v) (int)((v).n > 4096 ? 4096 : (v).n), ((v).p ? (v).p : "")

/* All: any context, no blocking, no allocation, borrowed results. */
bool view_eq(struct view a, struct view b);
/* ASCII letters compare without case. */
bool view_eq_nocase(struct view a, struct view b);
bool view_starts(struct view v, struct view prefix);
bool view_ends(struct view v, struct view suffix);
/* Without leading and trailing space and tab (RFC 9110 OWS). */
struct view view_trim(struct view v);
/* Offset of the first c, or v.n. */
size_t view_find(struct view v, char c);
/* Offset of the first occurrence of needle, or v.n. */
size_t view_search(struct view v, struct view needle);
/* v[from..), empty when from is past the end. */
struct view view_from(struct view v, size_t from);
/* v[from..from+n), clipped. */
struct view view_sub(struct view v, size_t from, size_t n);
/*
 * Cuts the next piece up to sep from *rest and steps past it; false at the
 * end.  "a,,b" gives "a", "", "b".
 */
bool view_split(struct view *rest, char sep, struct view *piece);
/* Equal, in a time that depends on the lengths alone (secrets). */
bool view_eq_secret(struct view a, struct view b);
/* FNV-free keyed hash (SipHash-1-3) under the process's random key. */
unsigned long view_hash(struct view v);

#endif

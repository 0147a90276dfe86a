/* A hash table from byte strings to pointers; keyed hash, grows and shrinks. */
#ifndef SP_BASE_HMAP_H
#define SP_BASE_HMAP_H

#include "base/err.h"
#include "base/view.h"

struct hmap;

/*
 * Context: any, does not block.
 * Owner:   hmap_new()'s caller.  Keys are copied; values are borrowed and
 *          never touched.
 */
struct hmap *hmap_new(size_t max_entries) must_check; /* NULL: no memory */
void hmap_free(struct hmap *m); /* NULL allowed */
size_t hmap_count(const struct hmap *m);
/* The value, or NULL when the key is not there. */
void *hmap_get(const struct hmap *m, struct view key);
/* 0; SP_E_EXISTS; SP_E_LIMIT (max_entries); SP_E_NOMEM.  val not NULL. */
int hmap_add(struct hmap *m, struct view key, void *val) must_check;
/* Adds or replaces: 0; SP_E_LIMIT; SP_E_NOMEM. */
int hmap_set(struct hmap *m, struct view key, void *val) must_check;
/* The value that was removed, or NULL. */
void *hmap_del(struct hmap *m, struct view key);
/*
 * Steps through all entries: *pos starts at 0; false at the end.  Removing
 * the entry just returned is allowed, adding is not.
 */
bool hmap_next(const struct hmap *m, size_t *pos, struct view *key, void **val);

#endif

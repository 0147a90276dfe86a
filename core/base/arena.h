/* Memory per exchange: allocated piece by piece, freed in one go. */
#ifndef SP_BASE_ARENA_H
#define SP_BASE_ARENA_H

#include "base/err.h"
#include "base/view.h"

struct arena;

/*
 * Context: any, does not block.
 * Parameters: max_bytes, the cap on everything allocated from it.
 * Owner:   arena_new()'s caller; arena_free(NULL) is allowed.
 * Returns: NULL when memory or cap is exhausted.
 */
struct arena *arena_new(size_t max_bytes) must_check;
void arena_free(struct arena *a);
/* Aligned for any type; zeroed for arena_zalloc. */
void *arena_alloc(struct arena *a, size_t n) must_check;
void *arena_zalloc(struct arena *a, size_t n) must_check;
/* Copies; arena_strdup adds a NUL. */
char *arena_strdup(struct arena *a, struct view v) must_check;
/* *out has p NULL only on failure; returns 0 or SP_E_NOMEM. */
int arena_dup(struct arena *a, struct view v, struct view *out) must_check;
char *arena_printf(struct arena *a, const char *fmt, ...)
    printf_like(2, 3) must_check;
/* Bytes handed out so far. */
size_t arena_used(const struct arena *a);

#endif

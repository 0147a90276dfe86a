/* The only place that calls malloc. */
#ifndef SP_BASE_MEM_H
#define SP_BASE_MEM_H

#include <stddef.h>

#include "base/err.h"

/*
 * Context: any, does not block.
 * Owner:   the caller; release with mem_free().
 * Returns: memory (mem_calloc: zeroed; array forms check n * size), or NULL
 *          when there is none or a failure is injected.
 */
void *mem_alloc(size_t n) must_check;
void *mem_calloc(size_t n, size_t size) must_check;
void *mem_realloc(void *p, size_t n) must_check;
void *mem_reallocarray(void *p, size_t n, size_t size) must_check;
/* A NUL-terminated copy of s[0..n). */
char *mem_strndup(const char *s, size_t n) must_check;
char *mem_strdup(const char *s) must_check;
void mem_free(void *p);

/*
 * Who asked for it.  The others are libraries that are handed these functions;
 * what was allocated for one is freed for the same one.
 */
enum mem_part { MEM_OWN, MEM_HTTP2, MEM_TLS, MEM_PARTS };
void *mem_alloc_for(enum mem_part part, size_t n) must_check;
/* n 0: frees p and returns NULL, as the C library's does. */
void *mem_realloc_for(enum mem_part part, void *p, size_t n) must_check;
void mem_free_for(enum mem_part part, void *p);

/*
 * Bytes that are allocated now, as the allocator rounds them: of all, or of
 * one part.  What the allocator keeps for later is not among them.
 */
size_t mem_live(void);
size_t mem_live_for(enum mem_part part);
/* Gives back to the kernel what is kept for later; takes milliseconds. */
void mem_trim(void);

/*
 * For processes that serve: memory up to some MiB that was freed is kept for
 * the next call instead of given back and faulted in again.
 */
void mem_keep(void);

/* Clears before freeing; for secrets. */
void mem_free_zero(void *p, size_t n);
/* Not removed by the optimiser. */
void mem_zero(void *p, size_t n);

/*
 * Failure injection, for tests: the nth allocation from now (1 is the next)
 * returns NULL, and, when sticky, every one after it; 0 turns it off.  Those
 * for MEM_TLS are left alone.  The environment variable SP_FAIL_ALLOC=N sets
 * it at start in builds without confinement.
 */
void mem_fail_after(unsigned long n, int sticky);
/* Allocations since the start, for loops that fail each one in turn. */
unsigned long mem_count(void);

#endif

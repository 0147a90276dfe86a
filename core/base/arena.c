#include "config.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"

/*
 * Sanitized builds give each piece its own block, so that a write past a
 * piece is found.
 */
#ifdef SP_SANITIZED
enum { ARENA_CHUNK_BYTES = 0 };
#else
enum { ARENA_CHUNK_BYTES = 4000 };
#endif

struct arena_chunk {
	struct arena_chunk *next;
	alignas(max_align_t) char mem[];
};

struct arena {
	struct arena_chunk *chunks; /* the newest first; owned */
	char *at; /* next free byte of the chunk in use */
	size_t room; /* free bytes there */
	size_t used;
	size_t max;
};

struct arena *
arena_new(size_t max_bytes)
{
	struct arena *a = mem_calloc(1, sizeof(*a));

	if (a != NULL)
		a->max = max_bytes;
	return a;
}

void
arena_free(struct arena *a)
{
	struct arena_chunk *c, *next;

	if (a == NULL)
		return;
	for (c = a->chunks; c != NULL; c = next) {
		next = c->next;
		mem_free(c);
	}
	mem_free(a);
}

/* A block of its own for n bytes, or the next chunk to cut pieces from. */
static void *
arena_more(struct arena *a, size_t n)
{
	size_t bytes = ARENA_CHUNK_BYTES;
	struct arena_chunk *c;

	/* the first is small: most arenas, and there are many, need no more */
	if (a->at == NULL)
		bytes /= 4;
	if (n > ARENA_CHUNK_BYTES / 8)
		bytes = n;
	if (bytes > SIZE_MAX - sizeof(*c) ||
	    (c = mem_alloc(sizeof(*c) + bytes)) == NULL)
		return NULL;
	c->next = a->chunks;
	a->chunks = c;
	if (bytes != n) {
		a->at = c->mem + n;
		a->room = bytes - n;
	}
	return c->mem;
}

void *
arena_alloc(struct arena *a, size_t n)
{
	size_t step = alignof(max_align_t);
	size_t bytes;
	char *p;

	if (n == 0)
		n = 1;
	if (n > SIZE_MAX - step)
		return NULL;
	bytes = (n + step - 1) / step * step;
	/* the cap counts what the pieces really take, padding included */
	if (bytes > a->max || a->used > a->max - bytes)
		return NULL;
	if (bytes <= a->room) {
		p = a->at;
		a->at += bytes;
		a->room -= bytes;
	} else {
		p = arena_more(a, ARENA_CHUNK_BYTES != 0 ? bytes : n);
		if (p == NULL)
			return NULL;
	}
	a->used += bytes;
	return p;
}

void *
arena_zalloc(struct arena *a, size_t n)
{
	void *p = arena_alloc(a, n);

	if (p != NULL)
		memset(p, 0, n);
	return p;
}

char *
arena_strdup(struct arena *a, struct view v)
{
	char *p;

	if (v.n == SIZE_MAX || (p = arena_alloc(a, v.n + 1)) == NULL)
		return NULL;
	if (v.n != 0)
		memcpy(p, v.p, v.n);
	p[v.n] = '\0';
	return p;
}

int
arena_dup(struct arena *a, struct view v, struct view *out)
{
	char *p = arena_alloc(a, v.n);

	*out = VIEW_NONE;
	if (p == NULL)
		return SP_E_NOMEM;
	if (v.n != 0)
		memcpy(p, v.p, v.n);
	*out = view_of(p, v.n);
	return 0;
}

char *
arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list ap;
	char *p;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || (p = arena_alloc(a, (size_t)n + 1)) == NULL)
		return NULL;
	va_start(ap, fmt);
	(void)vsnprintf(p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return p;
}

size_t
arena_used(const struct arena *a)
{
	return a->used;
}

#include "config.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"

static unsigned long mem_n; /* allocations since the start */
static unsigned long mem_fail_at; /* value of mem_n that fails; 0 none */
static int mem_fail_sticky;
static size_t mem_bytes[MEM_PARTS]; /* allocated now */

#if !SP_CONFINEMENT
/*
 * Before main, so that a program's very first allocation can be chosen too.
 * Never in a build that confines itself: there the environment is no input.
 */
static void __attribute__((constructor)) mem_start(void)
{
	const char *s = secure_getenv("SP_FAIL_ALLOC");
	uint64_t n;

	if (s != NULL && num_u64(view_str(s), 1, INT32_MAX, &n) == 0)
		mem_fail_after((unsigned long)n, 0);
}
#endif

/*
 * The defaults trim the heap's top above 128 KiB, which every reply of some
 * size passes: a fifth of the time went into page faults.
 */
void
mem_keep(void)
{
#ifdef __GLIBC__
	(void)mallopt(M_TRIM_THRESHOLD, 6 * 1024 * 1024);
	(void)mallopt(M_TOP_PAD, 512 * 1024);
	(void)mallopt(M_MMAP_THRESHOLD, 2 * 1024 * 1024);
#endif
}

void
mem_fail_after(unsigned long n, int sticky)
{
	mem_fail_at = n != 0 ? mem_n + n : 0;
	mem_fail_sticky = sticky;
}

unsigned long
mem_count(void)
{
	return mem_n;
}

/* Counts one allocation; true when this is the one to refuse. */
static int
mem_refuse(void)
{
	mem_n++;
	if (mem_fail_at == 0 || mem_n < mem_fail_at)
		return 0;
	if (!mem_fail_sticky)
		mem_fail_at = 0;
	return 1;
}

/* ---- what is live --------------------------------------------------------- */

/* A library that frees what it did not get here must not turn the count. */
static void
mem_gone(enum mem_part part, size_t n)
{
	mem_bytes[part] = n < mem_bytes[part] ? mem_bytes[part] - n : 0;
}

/* Counts a new piece; NULL allowed. */
static void *
mem_came(enum mem_part part, void *p)
{
	if (p != NULL)
		mem_bytes[part] += malloc_usable_size(p);
	return p;
}

size_t
mem_live_for(enum mem_part part)
{
	return mem_bytes[part];
}

size_t
mem_live(void)
{
	size_t n = 0;
	int i;

	for (i = 0; i < MEM_PARTS; i++)
		n += mem_bytes[i];
	return n;
}

void
mem_trim(void)
{
#ifdef __GLIBC__
	(void)malloc_trim(0);
#endif
}

/* ---- allocation ----------------------------------------------------------- */

/* The TLS library does not live through each of its failures. */
static int
mem_injects(enum mem_part part)
{
	return part != MEM_TLS;
}

/* malloc(0) may be NULL, which here means failure: ask for at least a byte. */
void *
mem_alloc_for(enum mem_part part, size_t n)
{
	if ((mem_injects(part) && mem_refuse()) || n > PTRDIFF_MAX)
		return NULL;
	return mem_came(part, malloc(n != 0 ? n : 1));
}

static void *
mem_resize(enum mem_part part, void *p, size_t n)
{
	size_t before = p != NULL ? malloc_usable_size(p) : 0;
	void *q = realloc(p, n != 0 ? n : 1);

	if (q == NULL)
		return NULL;
	mem_gone(part, before);
	return mem_came(part, q);
}

void *
mem_realloc_for(enum mem_part part, void *p, size_t n)
{
	if (n == 0) {
		mem_free_for(part, p);
		return NULL;
	}
	if ((mem_injects(part) && mem_refuse()) || n > PTRDIFF_MAX)
		return NULL;
	return mem_resize(part, p, n);
}

void
mem_free_for(enum mem_part part, void *p)
{
	if (p == NULL)
		return;
	mem_gone(part, malloc_usable_size(p));
	free(p);
}

void *
mem_alloc(size_t n)
{
	return mem_alloc_for(MEM_OWN, n);
}

void *
mem_calloc(size_t n, size_t size)
{
	size_t bytes;

	if (mem_refuse() || __builtin_mul_overflow(n, size, &bytes) ||
	    bytes > PTRDIFF_MAX)
		return NULL;
	return mem_came(MEM_OWN, calloc(1, bytes != 0 ? bytes : 1));
}

void *
mem_realloc(void *p, size_t n)
{
	if (mem_refuse() || n > PTRDIFF_MAX)
		return NULL;
	return mem_resize(MEM_OWN, p, n);
}

void *
mem_reallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes))
		bytes = SIZE_MAX;
	return mem_realloc(p, bytes);
}

char *
mem_strndup(const char *s, size_t n)
{
	char *p;

	if (n == SIZE_MAX || (p = mem_alloc(n + 1)) == NULL)
		return NULL;
	if (n != 0)
		memcpy(p, s, n);
	p[n] = '\0';
	return p;
}

char *
mem_strdup(const char *s)
{
	return mem_strndup(s, strlen(s));
}

void
mem_free(void *p)
{
	mem_free_for(MEM_OWN, p);
}

void
mem_free_zero(void *p, size_t n)
{
	if (p != NULL)
		mem_zero(p, n);
	mem_free(p);
}

void
mem_zero(void *p, size_t n)
{
	if (n != 0)
		explicit_bzero(p, n);
}

#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

enum { BUF_FIRST_BYTES = 256 };

void
buf_init(struct buf *b, size_t max_bytes)
{
	*b = (struct buf)BUF_INIT(max_bytes);
}

void
buf_clear(struct buf *b)
{
	mem_free(b->mem);
	buf_init(b, b->max);
}

void
buf_reset(struct buf *b, size_t keep)
{
	if (b->cap > keep)
		buf_clear(b);
	b->off = b->end = 0;
}

/* Moves the unread bytes to the front. */
static void
buf_pack(struct buf *b)
{
	size_t len = buf_len(b);

	if (b->off == 0)
		return;
	if (len != 0)
		memmove(b->mem, b->mem + b->off, len);
	b->off = 0;
	b->end = len;
}

/*
 * Memory for cap bytes, and one more that is not counted: vsnprintf() writes
 * its NUL there when the text ends where the buffer does.
 */
static int
buf_enlarge(struct buf *b, size_t cap)
{
	char *mem;

	if (cap == SIZE_MAX)
		return SP_E_LIMIT;
	if (b->off == 0) {
		mem = mem_realloc(b->mem, cap + 1);
		if (mem == NULL)
			return SP_E_NOMEM;
	} else {
		/* what was consumed already is not worth copying */
		mem = mem_alloc(cap + 1);
		if (mem == NULL)
			return SP_E_NOMEM;
		memcpy(mem, b->mem + b->off, buf_len(b));
		mem_free(b->mem);
		b->end -= b->off;
		b->off = 0;
	}
	b->mem = mem;
	b->cap = cap;
	return 0;
}

int
buf_reserve(struct buf *b, size_t n)
{
	size_t len = buf_len(b);
	size_t cap;

	if (n > b->max || len > b->max - n)
		return SP_E_LIMIT;
	if (n <= b->cap - b->end)
		return 0;
	/*
	 * Packing is worth it when at least half of the memory was consumed:
	 * every byte is then moved about once for each byte consumed.
	 */
	if (len + n <= b->cap && (b->off >= b->cap / 2 || b->cap >= b->max)) {
		buf_pack(b);
		return 0;
	}
	cap = b->cap > b->max / 2 ? b->max : b->cap * 2;
	if (cap < BUF_FIRST_BYTES)
		cap = BUF_FIRST_BYTES;
	if (cap < len + n)
		cap = len + n;
	if (cap > b->max)
		cap = b->max;
	return buf_enlarge(b, cap);
}

char *
buf_tail(struct buf *b)
{
	return b->mem != NULL ? b->mem + b->end : NULL;
}

size_t
buf_room(const struct buf *b)
{
	size_t mem = b->cap - b->end;
	size_t allowed = b->max - buf_len(b);

	return mem < allowed ? mem : allowed;
}

void
buf_grow(struct buf *b, size_t n)
{
	err_assert(n <= buf_room(b));
	b->end += n;
}

int
buf_add(struct buf *b, const void *p, size_t n)
{
	int rc;

	if (n == 0)
		return 0;
	rc = buf_reserve(b, n);
	if (rc != 0)
		return rc;
	memcpy(b->mem + b->end, p, n);
	b->end += n;
	return 0;
}

int
buf_add_view(struct buf *b, struct view v)
{
	return buf_add(b, v.p, v.n);
}

int
buf_add_str(struct buf *b, const char *s)
{
	return buf_add(b, s, strlen(s));
}

int
buf_add_char(struct buf *b, char c)
{
	return buf_add(b, &c, 1);
}

int
buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	int n, rc;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0)
		return SP_E_LIMIT; /* the text is longer than INT_MAX */
	if (n == 0)
		return 0;
	rc = buf_reserve(b, (size_t)n);
	if (rc != 0)
		return rc;
	(void)vsnprintf(b->mem + b->end, (size_t)n + 1, fmt, ap);
	b->end += (size_t)n;
	return 0;
}

int
buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = buf_vprintf(b, fmt, ap);
	va_end(ap);
	return rc;
}

void
buf_consume(struct buf *b, size_t n)
{
	err_assert(n <= buf_len(b));
	b->off += n;
	if (b->off == b->end)
		b->off = b->end = 0;
}

void
buf_truncate(struct buf *b, size_t n)
{
	err_assert(n <= buf_len(b));
	b->end = b->off + n;
	if (n == 0)
		b->off = b->end = 0;
}

void
buf_take(struct buf *to, struct buf *from)
{
	size_t max = to->max;

	err_assert(buf_len(to) == 0 && to != from);
	mem_free(to->mem);
	*to = *from;
	/* what from was allowed to hold, to must be allowed to hold as well */
	if (to->max < max)
		to->max = max;
	buf_init(from, from->max);
}

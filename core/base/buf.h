/* A byte buffer that cannot exist without a maximum. */
#ifndef SP_BASE_BUF_H
#define SP_BASE_BUF_H

#include <stdarg.h>
#include <stdint.h>

#include "base/err.h"
#include "base/view.h"

struct buf {
	char *mem; /* NULL until first used */
	size_t off; /* first unread byte */
	size_t end; /* one past the last byte */
	size_t cap; /* allocated */
	size_t max; /* unread bytes never exceed this */
};

/* Static initialiser. */
#define BUF_INIT(max_bytes) \
	{ \
		NULL, 0, 0, 0, (max_bytes) \
	}

/*
 * Context: any, does not block.
 * Owner:   the struct is the caller's; buf_clear() releases the memory.
 * Returns (where int): 0; SP_E_LIMIT when max would be passed; SP_E_NOMEM.
 *          On an error the buffer is unchanged.
 */
void buf_init(struct buf *b, size_t max_bytes);
void buf_clear(struct buf *b);
/* Forgets the content, keeps the memory when at most keep bytes. */
void buf_reset(struct buf *b, size_t keep);
static inline size_t
buf_len(const struct buf *b)
{
	return b->end - b->off;
}
static inline struct view
buf_view(const struct buf *b)
{
	/* mem is NULL while nothing was stored: no arithmetic on NULL */
	return view_of(b->mem != NULL ? b->mem + b->off : NULL,
	    b->end - b->off);
}
/*
 * Room for n more bytes; buf_tail() is where they go, buf_grow() counts them
 * in after they were written (n at most what was reserved).
 */
int buf_reserve(struct buf *b, size_t n) must_check;
char *buf_tail(struct buf *b);
size_t buf_room(const struct buf *b); /* allocated and unused at the tail */
void buf_grow(struct buf *b, size_t n);
int buf_add(struct buf *b, const void *p, size_t n) must_check;
int buf_add_view(struct buf *b, struct view v) must_check;
int buf_add_str(struct buf *b, const char *s) must_check;
int buf_add_char(struct buf *b, char c) must_check;
int buf_printf(struct buf *b, const char *fmt, ...)
    printf_like(2, 3) must_check;
int buf_vprintf(struct buf *b, const char *fmt, va_list ap) must_check;
/* Drops n unread bytes from the front (n <= buf_len). */
void buf_consume(struct buf *b, size_t n);
/* Cuts the unread bytes to n (n <= buf_len). */
void buf_truncate(struct buf *b, size_t n);
/*
 * Moves the memory of *from into *to, which must be empty; to's max becomes
 * from's if that is larger.
 */
void buf_take(struct buf *to, struct buf *from);

#endif

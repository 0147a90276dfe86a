/* Fixed-width little-endian fields in a message body. */
#ifndef SP_IPC_WIRE_H
#define SP_IPC_WIRE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

/* Writing, into a buffer with a maximum: 0, SP_E_LIMIT, SP_E_NOMEM. */
int wire_put_u8(struct buf *b, uint8_t v) must_check;
int wire_put_u16(struct buf *b, uint16_t v) must_check;
int wire_put_u32(struct buf *b, uint32_t v) must_check;
int wire_put_u64(struct buf *b, uint64_t v) must_check;
/* A u32 length, then the bytes. */
int wire_put_bytes(struct buf *b, struct view v) must_check;

/*
 * Reading by a cursor that must be used up.  The first field that is not
 * there makes every later one fail: getters return zero or an empty view, and
 * wire_done() tells: 0, or SP_E_PROTO when a field was missing or bytes are
 * left over.  Views are borrowed from the message.
 */
struct wire {
	const uint8_t *p;
	size_t n;
	int bad;
};
void wire_init(struct wire *w, struct view body);
uint8_t wire_u8(struct wire *w);
uint16_t wire_u16(struct wire *w);
uint32_t wire_u32(struct wire *w);
uint64_t wire_u64(struct wire *w);
struct view wire_bytes(struct wire *w);
static inline bool
wire_more(const struct wire *w)
{
	return !w->bad && w->n > 0;
}
int wire_done(const struct wire *w) must_check;

#endif

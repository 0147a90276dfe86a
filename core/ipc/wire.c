#include "config.h"

#include "ipc/wire.h"

static int
wire_put(struct buf *b, uint64_t v, unsigned bytes)
{
	uint8_t out[8];
	unsigned i;

	for (i = 0; i < bytes; i++)
		out[i] = (uint8_t)(v >> (8 * i));
	return buf_add(b, out, bytes);
}

int
wire_put_u8(struct buf *b, uint8_t v)
{
	return wire_put(b, v, 1);
}

int
wire_put_u16(struct buf *b, uint16_t v)
{
	return wire_put(b, v, 2);
}

int
wire_put_u32(struct buf *b, uint32_t v)
{
	return wire_put(b, v, 4);
}

int
wire_put_u64(struct buf *b, uint64_t v)
{
	return wire_put(b, v, 8);
}

int
wire_put_bytes(struct buf *b, struct view v)
{
	int rc;

	if (v.n > UINT32_MAX)
		return SP_E_LIMIT;
	/* room for both first: on an error the buffer is as it was */
	rc = buf_reserve(b, v.n + 4);
	if (rc != SP_OK)
		return rc;
	rc = wire_put_u32(b, (uint32_t)v.n);
	if (rc != SP_OK)
		return rc;
	return buf_add_view(b, v);
}

void
wire_init(struct wire *w, struct view body)
{
	w->p = (const uint8_t *)body.p;
	w->n = body.n;
	w->bad = 0;
}

/* The next n bytes, or NULL, and every later field fails, too. */
static const uint8_t *
wire_take(struct wire *w, size_t n)
{
	const uint8_t *p = w->p;

	if (w->bad || n > w->n) {
		w->bad = 1;
		return NULL;
	}
	/* n may be 0 with p NULL: no arithmetic on that */
	if (n > 0)
		w->p += n;
	w->n -= n;
	return p;
}

static uint64_t
wire_get(struct wire *w, unsigned bytes)
{
	const uint8_t *p = wire_take(w, bytes);
	uint64_t v = 0;
	unsigned i;

	if (p == NULL)
		return 0;
	for (i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

uint8_t
wire_u8(struct wire *w)
{
	return (uint8_t)wire_get(w, 1);
}

uint16_t
wire_u16(struct wire *w)
{
	return (uint16_t)wire_get(w, 2);
}

uint32_t
wire_u32(struct wire *w)
{
	return (uint32_t)wire_get(w, 4);
}

uint64_t
wire_u64(struct wire *w)
{
	return wire_get(w, 8);
}

struct view
wire_bytes(struct wire *w)
{
	uint32_t n = wire_u32(w);
	const uint8_t *p = wire_take(w, n);

	if (p == NULL)
		return VIEW_NONE;
	return view_of(p, n);
}

int
wire_done(const struct wire *w)
{
	return w->bad || w->n > 0 ? SP_E_PROTO : SP_OK;
}

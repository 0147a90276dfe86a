/* UTF-8 (RFC 3629). */
#ifndef SP_BASE_UTF8_H
#define SP_BASE_UTF8_H

#include <stdint.h>

#include "base/view.h"

/* Context: any, no allocation. */
bool utf8_valid(struct view v);
/*
 * Decodes the code point at v.p: its length in bytes (1 to 4) with *cp set,
 * or 0 when the bytes there are not UTF-8 (overlong, surrogate, above
 * U+10FFFF, cut short).  v.n > 0.
 */
unsigned utf8_decode(struct view v, uint32_t *cp);
/* Writes cp to out (at least 4 bytes); returns the length, 1 to 4. */
unsigned utf8_encode(uint32_t cp, char *out);

#endif

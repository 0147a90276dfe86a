/* Text that grows and remembers its first failure. */
#ifndef SP_SM_OUT_H
#define SP_SM_OUT_H

#include "base/buf.h"

struct sm_out {
	struct buf b;
	int err; /* first SP_E_*; nothing is added once set */
};

/*
 * Context: any, does not block.
 * Owner:   the caller; sm_out_clear() releases the memory.
 */
void sm_out_init(struct sm_out *o, size_t max_bytes);
void sm_out_clear(struct sm_out *o);
void sm_out_add(struct sm_out *o, struct view v);
void sm_out_str(struct sm_out *o, const char *s);
void sm_out_fmt(struct sm_out *o, const char *fmt, ...) printf_like(2, 3);
/* A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void sm_out_quoted(struct sm_out *o, struct view v);
/* Standard base64 with padding. */
void sm_out_base64(struct sm_out *o, struct view v);
/* Adds the bytes of base64 text; SP_E_SYNTAX when it is not such text. */
int sm_out_unbase64(struct sm_out *o, struct view v) must_check;

#endif

/* base64 (RFC 4648 s4), with padding. */
#ifndef SP_BASE_B64_H
#define SP_BASE_B64_H

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

/*
 * Context: any, does not block.
 * Returns: 0; SP_E_LIMIT; SP_E_NOMEM: out is unchanged.
 */
int b64_add(struct buf *out, struct view v) must_check;
/* Back: 0; SP_E_SYNTAX, SP_E_LIMIT, SP_E_NOMEM: out has some of it. */
int b64_get(struct view v, struct buf *out) must_check;

#endif

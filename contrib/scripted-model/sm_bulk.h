/* Replies made once and sent to everybody: for measuring. */
#ifndef SP_SM_BULK_H
#define SP_SM_BULK_H

#include "sm_answer.h"

/*
 * Context: any, does not block.  Looks at the request's bytes without parsing
 * them: who asks for a bulk answer sends the usual fields in the usual form.
 * Returns: 0 with a reference in *out; SP_E_NOTFOUND when this kind of call
 *          is not to be answered in bulk; SP_E_NOMEM; SP_E_LIMIT.
 */
int sm_bulk_answer(struct sm_answer *s, const struct sm_http *h,
    struct sm_reply **out) must_check;

#endif

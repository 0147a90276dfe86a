/* Bytes written down as text: \xNN escapes, and the notation of wire cases. */
#ifndef SP_SM_WIRE_H
#define SP_SM_WIRE_H

#include "sm_reply.h"

/*
 * Context: any, does not block.
 * Returns: nothing; failures show in the output's err.
 */
/* Copies v, each \xNN as that byte; all else as it is. */
void sm_wire_raw(struct sm_out *o, struct view v);
/*
 * Copies v with <CR> <LF> <xHH> as bytes, <'t' x N> as N times t, <|> as the
 * end of a write, <WAIT 200ms> as a pause, <FIN> and <RST> as cuts.  Any
 * other "<" stands for itself.
 */
void sm_wire_put(struct sm_payload *p, struct view v);

#endif

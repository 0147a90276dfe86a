/* The end of a JSON container whose inside is of no interest. */
#ifndef SP_JSON_JHOP_H
#define SP_JSON_JHOP_H

#include <stdint.h>

enum { JHOP_MAX_DEPTH = 64 };

/*
 * Follows brackets outside of strings, 64 bytes at a step with SSE2; what
 * stands between them is not held against the grammar.
 * Source:  RFC 8259 s2, s7.
 * Context: any, no allocation; linear.
 * Parameters: p < end, at an opening bracket.
 * Returns: the byte after its closing one, or NULL: there is none, a bracket
 *          is closed as the other kind, a backslash is outside of a string,
 *          or it is nested too deep.
 *          jhop_end_portable() is the same without SSE2.
 */
const uint8_t *jhop_end(const uint8_t *p, const uint8_t *end);
const uint8_t *jhop_end_portable(const uint8_t *p, const uint8_t *end);

#endif

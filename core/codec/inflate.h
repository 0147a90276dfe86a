/* Content decoders: gzip, deflate, brotli, zstd, as streams. */
#ifndef SP_CODEC_INFLATE_H
#define SP_CODEC_INFLATE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

struct inflate;

/*
 * Source:  RFC 9110 s8.4.1 (gzip, x-gzip, deflate), RFC 7932 (br), RFC 8878
 *          (zstd).
 * Context: reactor, does not block.
 * Parameters: coding, one content coding name, any case.
 * Owner:   the caller; inflate_free(NULL) is allowed.
 * Returns: 0; SP_E_UNSUPPORTED when the coding is unknown or its library was
 *          not there at build time; SP_E_NOMEM.
 */
int inflate_new(struct view coding, struct inflate **out) must_check;
void inflate_free(struct inflate *z);

/*
 * Decodes all of in, appending to out; what is decoded so far is there after
 * each call (a sync-flushed event is not held back).  One state serves the
 * whole body; several gzip members and zstd frames in a row are one body.
 * Returns: 0; SP_E_SYNTAX broken data; SP_E_LIMIT when out's max would be
 *          passed (a bomb) or zstd asks for a window over 8 MiB; SP_E_NOMEM.  After an error only inflate_free().
 */
int inflate_feed(struct inflate *z, struct view in, struct buf *out) must_check;
/*
 * True when the data so far is a whole body (the end may be here); so is no
 * data at all.  False after an error.
 */
bool inflate_done(const struct inflate *z);

#endif

/* The member "metadata" of a trace record. */
#ifndef SP_RECORDER_RECORD_META_H
#define SP_RECORDER_RECORD_META_H

#include "recorder/record.h"
#include "recorder/reqinfo.h"

/*
 * Context: recorder, does not block.
 * Parameters: partial, what was assembled stands here and not in "response";
 *          errors stay in w.
 */
void record_meta_write(struct record *r, const struct reqinfo *q, bool partial,
    struct jwrite *w);

#endif

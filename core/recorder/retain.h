/* Retention: the oldest finished trace files go first (trace_keep). */
#ifndef SP_RECORDER_RETAIN_H
#define SP_RECORDER_RETAIN_H

#include "recorder/store.h"

/*
 * Removes what trace_keep says of every capture: files older than the age,
 * then the oldest until the rest fits the size.  Only files that are finished
 * (sealed) and not open; each with its seal.
 * Context: recorder; blocks on the disk.
 */
void retain_run(struct store *s, uint64_t now_wall_us);

#endif

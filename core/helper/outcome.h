/* What became of a reload: a small file in state_dir that -s reload reads. */
#ifndef SP_HELPER_OUTCOME_H
#define SP_HELPER_OUTCOME_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum { OUTCOME_MAX = 16 * 1024 };
enum outcome { OUTCOME_PENDING, OUTCOME_TAKEN, OUTCOME_REFUSED };

/*
 * The file of an earlier run goes: attempts count from 1.
 * Context: helper, at its start.
 */
void outcome_begin(int state_fd);
/* A failure is logged. */
void outcome_write(int state_fd, uint64_t number, enum outcome outcome,
    struct view why);
/*
 * The latest attempt that was begun, 0 none.
 * Context: another process, before it asks for the next one.
 */
uint64_t outcome_number(int state_fd);
/*
 * Waits for the outcome of the first attempt after that number, or of a later
 * one: whatever begins after the number was read sees the same files.
 * Parameters: lock, the file that the running process holds; why, appended to
 *          when it was refused, lines.
 * Returns: 0 taken; SP_E_CONF refused; SP_E_GONE nobody runs any more;
 *          SP_E_TIMEOUT; SP_E_*.
 */
int outcome_wait(int state_fd, uint64_t number, const char *lock,
    struct buf *why) must_check;

#endif

/* What graders read: changes of an episode that stands still, and assets. */
#ifndef SP_HELPER_GRADE_FILE_H
#define SP_HELPER_GRADE_FILE_H

#include <stdint.h>

#include "base/err.h"
#include "base/view.h"

struct ep;
struct grade_file;

enum { GRADE_FILES_MAX = 16 }; /* of one episode at once */

/*
 * EPISODE_FILE with SANDBOX_FILE_DIFF_FROZEN, or READ beneath the assets.
 * Context: helper's loop; nothing blocks; EPISODE_FILE_DONE answers it, and
 *          EPISODE_REFUSED.
 * Parameters: rest, the message behind slot and generation.
 * Returns: 0; SP_E_NOTFOUND it is neither of these: a keeper does it.
 */
int grade_file(struct ep *p, uint32_t request, struct view rest) must_check;
/* Nobody listens any more. */
void grade_file_reactor_lost(struct ep *p);
/* The slot ends, and with it all of these. */
void grade_file_drop(struct ep *p);

#endif

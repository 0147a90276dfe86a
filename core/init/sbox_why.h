/* Where building or starting failed, and why. */
#ifndef SP_INIT_SBOX_WHY_H
#define SP_INIT_SBOX_WHY_H

#include "base/err.h"
#include "ipc/sandbox_msg.h"

enum { SBOX_WHY_MAX = 256 };

/* Crosses from a child to its keeper as it is: both are this program. */
struct sbox_why {
	enum sandbox_stage stage; /* what is being done */
	int en; /* errno; 0 none */
	char what[SBOX_WHY_MAX];
};

/*
 * Enters a stage: what fails from here on, fails in it.
 * Returns: 0; in builds without confinement SP_E_SYS when a test wants this
 *          stage to fail (the environment's SP_FAIL_STAGE names it).
 */
int sbox_why_stage(struct sbox_why *w, enum sandbox_stage stage) must_check;

/*
 * Notes a failure in the present stage.
 * Parameters: en, errno of the call that failed.
 * Returns: the SP_E_* of en, never 0.
 */
int sbox_why_errno(struct sbox_why *w, int en, const char *fmt, ...)
    printf_like(3, 4);
/* The same for an SP_E_* of one of our own functions. */
int sbox_why_rc(struct sbox_why *w, int rc, const char *fmt, ...)
    printf_like(3, 4);

#endif

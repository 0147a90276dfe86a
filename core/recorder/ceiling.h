/*
 * The recorder's bound on memory: credit stays away, then new turns are not
 * accepted, and the largest open ones are cut short.
 */
#ifndef SP_RECORDER_CEILING_H
#define SP_RECORDER_CEILING_H

#include "recorder/turns.h"

/*
 * Context: recorder, does not block.
 * Returns (bool): three quarters, nine tenths of it are in use.  Without a
 *          ceiling neither ever is.
 */
bool ceiling_high(const struct turns *t);
bool ceiling_hard(const struct turns *t);
/*
 * Whether a turn may be sent more now: when memory is short only the oldest,
 * so that it comes to its end, and those that keep nothing any more.
 */
bool ceiling_may_grow(const struct turns *t, const struct turn *u);
/* Over nine tenths: the largest open turns keep no more, and less. */
void ceiling_press(struct turns *t);

#endif

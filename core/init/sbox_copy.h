/* An upper layer to start with: copied where it does not hold up the keeper. */
#ifndef SP_INIT_SBOX_COPY_H
#define SP_INIT_SBOX_COPY_H

#include "init/sbox.h"

/*
 * Copies what the given upper layer holds into the new one, bounded by the
 * workspace's size.
 * Context: keeper; forks, waits for the child, and kills it when the channel
 *          has something to say.
 * Returns: 0; SP_E_AGAIN the channel wants attention; SP_E_* with *w.
 */
int sbox_copy_upper(struct sbox *b, struct sbox_why *w) must_check;

#endif

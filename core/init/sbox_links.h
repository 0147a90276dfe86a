/* Links of the graded that would lead an oracle to what is only its own. */
#ifndef SP_INIT_SBOX_LINKS_H
#define SP_INIT_SBOX_LINKS_H

#include "init/sbox_why.h"

struct sbox;

/* What was taken out. */
struct sbox_links {
	uint32_t n;
	uint32_t used; /* bytes of text */
	char text[SANDBOX_LINKS_TEXT]; /* see KEEPER_STARTED */
};

/*
 * Takes out of an oracle's copy of the workspace every symbolic link that
 * leads, also through others, to the assets, to /proc, to a directory of the
 * oracle's own, or to one above these; and each of which nobody can say where
 * it leads.  Links that the seed brought stay.
 * Source:  openat2(2), statx(2).
 * Context: pid 1 on its finished root, before anything else runs there and
 *          while it is still root; blocks on the file system.  Of any other
 *          sandbox nothing is looked at.
 * Returns: 0, with what there was in b->links; SP_E_* with *w.
 */
int sbox_links_remove(struct sbox *b, struct sbox_why *w) must_check;

#endif

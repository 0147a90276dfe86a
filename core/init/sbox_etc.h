/* /etc: generated files, and a few of the host's. */
#ifndef SP_INIT_SBOX_ETC_H
#define SP_INIT_SBOX_ETC_H

#include "init/sbox.h"

/*
 * Context: the child that becomes pid 1, while the root is being built.
 * Parameters: root, the new root's descriptor.
 */
int sbox_etc_make(const struct sbox *b, struct sbox_why *w,
    int root) must_check;

#endif

/* /dev: a few devices that harm nobody. */
#ifndef SP_INIT_SBOX_DEV_H
#define SP_INIT_SBOX_DEV_H

#include "init/sbox.h"

/* Context: the child that becomes pid 1, while the root is being built. */
int sbox_dev_make(const struct sbox *b, struct sbox_why *w,
    int root) must_check;

#endif

/* The end of a sandbox: kill, wait, tell, delete. */
#ifndef SP_INIT_KEEPER_END_H
#define SP_INIT_KEEPER_END_H

#include "init/keeper.h"

/* END, or a failure to build: kills, and looks from now on if it is empty. */
void keeper_end_begin(struct keeper *k);
/* The same without anybody to answer to: the helper is gone or broken. */
void keeper_end_gone(struct keeper *k);
/* The timer's turn. */
void keeper_end_look(void *arg);

#endif

/* The embedded default: a tiny agent that writes a program and runs it. */
#ifndef SP_SM_BRAIN_H
#define SP_SM_BRAIN_H

#include "sm_ask.h"

/*
 * Context: any, does not block.
 * Owner:   *turn lies in the call's arena.
 * Returns: 0; SP_E_NOMEM.
 */
int sm_brain_turn(const struct sm_ask *ask,
    const struct sm_json **turn) must_check;

#endif

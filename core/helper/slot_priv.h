/* What slot.c and slot_keeper.c share; nobody else includes it. */
#ifndef SP_HELPER_SLOT_PRIV_H
#define SP_HELPER_SLOT_PRIV_H

#include "helper/slot.h"

/* ---- slot.c ---------------------------------------------------------------- */

/* It cannot be built, or did not stay: its end begins, for that reason. */
void slot_lost(struct slot *s, uint8_t end, const char *fmt, ...)
    printf_like(3, 4);
/* A keeper has become ready, empty, gone, or is dead. */
void slot_advance(struct slot *s);

/* The same for what one keeper says: the oracle's takes nobody along. */
void slot_keeper_lost(struct slot_keeper *k, uint8_t end, const char *fmt, ...)
    printf_like(3, 4);
static inline bool
slot_keeper_is_oracle(const struct slot_keeper *k)
{
	return k->side == SANDBOX_ORACLE;
}

/* ---- slot_oracle.c ---------------------------------------------------------- */

/* It ends unasked, if it has not begun to. */
void slot_oracle_lost(struct slot *s, struct view why);
/* Its keeper has become ready, empty, gone, or is dead. */
void slot_oracle_advance(struct slot *s);
void slot_oracle_stuck(struct slot *s);
/* The slot's own end takes over from here. */
void slot_oracle_yield(struct slot *s);
/* With the slot. */
void slot_oracle_free(struct slot *s);

/* ---- slot_keeper.c ---------------------------------------------------------- */

/* Starts it and hands it its spec: 0; SP_E_*. */
int slot_keeper_start(struct slot_keeper *k) must_check;
/* Has it build what needs no network, while that is made. */
void slot_keeper_prepare(struct slot_keeper *k);
/* What else it needs, and BUILD; net_fd and workspace_fd, borrowed or -1. */
int slot_keeper_build(struct slot_keeper *k, int net_fd,
    int workspace_fd) must_check;
/* Asks for the workspace's mount: its SHARED builds the other one. */
int slot_keeper_share(struct slot_keeper *k) must_check;
void slot_keeper_end(struct slot_keeper *k);
/* Kills the process, if it lives; the channel stays until it is reaped. */
void slot_keeper_kill(struct slot_keeper *k);
/* Its process has ended: what it said last is heard first. */
void slot_keeper_reaped(struct slot_keeper *k);
void slot_keeper_clear(struct slot_keeper *k);
/* Hands it one more descriptor, borrowed: 0; SP_E_*. */
int slot_keeper_give(struct slot_keeper *k, enum sandbox_fd what,
    uint32_t index, int fd) must_check;
/* What was asked of it and is not answered never will be. */
void slot_keeper_drop_calls(struct slot_keeper *k);
static inline bool
slot_keeper_dead(const struct slot_keeper *k)
{
	return k->side == 0 || (k->pid < 0 && k->c == NULL);
}

#endif

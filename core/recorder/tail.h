/* The end of a trace file: its last whole line, and what is torn. */
#ifndef SP_RECORDER_TAIL_H
#define SP_RECORDER_TAIL_H

#include "base/buf.h"
#include "recorder/chain.h"

struct tail {
	uint64_t whole; /* bytes up to and with the last LF */
	bool chained; /* the last line ends in a chain's members, which fit */
	struct chain_link link;
	uint64_t turn_high; /* that it tells; 0 none */
};

/*
 * Context: recorder; blocks on the disk.  Reads backwards, so that its cost
 * is that of the last line.
 * Returns: 0; SP_E_NOMEM; the call's error.
 */
int tail_read(int fd, uint64_t size, struct tail *out) must_check;
/* Appends what lies behind `whole` to the file torn, and cuts it off. */
int tail_cut(int fd, uint64_t size, uint64_t whole, int torn) must_check;

#endif

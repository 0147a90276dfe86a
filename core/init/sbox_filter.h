/* Which system calls a workload may make. */
#ifndef SP_INIT_SBOX_FILTER_H
#define SP_INIT_SBOX_FILTER_H

#include "base/buf.h"
#include "init/sbox_why.h"

/*
 * Compiles the table, or the short list of what pid 1 calls, or of what
 * fs_watch.c calls, to what seccomp(2) loads.  Of the latter two any other
 * call, and any other use of one, kills.
 * Source:  seccomp(2), the kernel's seccomp_filter document.
 * Context: keeper, once for each sandbox; does not block.
 * Owner:   out is the caller's, who clears it.
 */
int sbox_filter_compile(struct sbox_why *w, struct buf *out) must_check;
int sbox_filter_compile_init(struct sbox_why *w, struct buf *out) must_check;
int sbox_filter_compile_watch(struct sbox_why *w, struct buf *out) must_check;

/*
 * Loads it, for good, on the calling process, which has no_new_privs.
 * Context: a child; allocates nothing.
 */
int sbox_filter_load(struct sbox_why *w, struct view program) must_check;

#endif

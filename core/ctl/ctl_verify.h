/* Verifies a trace file: its chain, and the seal beside it. */
#ifndef SP_CTL_VERIFY_H
#define SP_CTL_VERIFY_H

#include "ctl/ctl_missing.h"
#include "recorder/seal.h"

enum ctl_seal {
	CTL_SEAL_NONE, /* there is none */
	CTL_SEAL_GOOD,
	CTL_SEAL_BAD, /* not a seal, or another file's */
	CTL_SEAL_FORGED, /* the signature is not good */
	CTL_SEAL_KEY, /* signed by a key that does not lie beside it */
};

struct ctl_verify {
	uint64_t lines;
	uint64_t broken_line; /* 0: the chain holds */
	const char *why; /* of the broken line; static */
	uint64_t torn; /* bytes of a last line without its end */
	struct chain_link first, last;
	bool continues; /* the first record names one before it */
	bool before_found; /* and the file with it is there, and fits */
	uint64_t before_high; /* the highest turn given out up to there */
	struct ctl_missing missing; /* of a chain that holds */
	enum ctl_seal seal;
	struct seal_facts facts; /* of a seal that is not NONE or BAD */
	bool any_tools; /* a turn of it had tools */
};

/*
 * Context: sallyportctl.
 * Owner:   ctl_verify_clear(v), in every case.
 * Returns: 0 with the findings in v; the error of reading the file.
 */
int ctl_verify(int dir, const char *name, struct ctl_verify *v) must_check;
void ctl_verify_clear(struct ctl_verify *v);
static inline bool
ctl_verify_good(const struct ctl_verify *v)
{
	return v->broken_line == 0 && v->seal <= CTL_SEAL_GOOD;
}

#endif

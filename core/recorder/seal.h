/*
 * The signed statement about a trace file, one line of JSON:
 *
 *	{"v":1,...,"key":"<64 hex>","signature":"<128 hex>"}
 *
 * The signature (Ed25519, RFC 8032) is over the line's bytes before
 * `,"signature":"`, that is all but the last 144 (and the LF).
 */
#ifndef SP_RECORDER_SEAL_H
#define SP_RECORDER_SEAL_H

#include "recorder/chain.h"
#include "recorder/signer.h"

enum {
	SEAL_END = 14 + SIGNER_HEX + 2,
	SEAL_FILE_MAX = 255,
};

struct seal {
	struct view session, file;
	const char *reason; /* roll, end, shutdown */
	uint64_t wall_us;
	uint64_t turns, bytes;
	struct chain_link first, last; /* these bind the bytes between */
	/* turns whose end the client is not known to have got, ascending */
	const uint64_t *undelivered;
	size_t undelivered_n;
	uint64_t undelivered_more; /* not listed */
	struct view earlier; /* JSON array of the seals before, or empty */
};

/*
 * Context: recorder, does not block.
 * Returns: 0 with the line in out; SP_E_NOMEM; SP_E_LIMIT.
 */
int seal_write(const struct seal *s, const struct signer *k,
    struct buf *out) must_check;
/*
 * What a seal says that a reader compares.
 * Returns: 0; SP_E_SYNTAX no seal; SP_E_DENIED the signature is not good (by
 *          the key that it names, in key).
 */
struct seal_facts {
	uint64_t turns, bytes;
	char first[DIGEST_HEX + 1], last[DIGEST_HEX + 1];
	char first_prev[DIGEST_HEX + 1];
	char file[SEAL_FILE_MAX + 1];
	uint8_t key[SIGN_KEY_BYTES];
	char reason[16];
};
int seal_check(struct view line, struct seal_facts *out) must_check;
/* "a.jsonl" gives "a.seal"; any other name NAME gives NAME.seal. */
int seal_name(struct view file, char *out, size_t n) must_check;

#endif

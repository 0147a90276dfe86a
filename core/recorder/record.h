/* One turn as one JSON line: the trace record. */
#ifndef SP_RECORDER_RECORD_H
#define SP_RECORDER_RECORD_H

#include "ipc/message.h"
#include "crypt/digest.h"
#include "recorder/assemble.h"
#include "recorder/reqinfo.h"

enum { RECORD_SYSTEM_MAX = 256 * 1024 };

/* The system prompt of the turn before, which most turns have as well. */
struct record_system {
	struct buf text; /* at most RECORD_SYSTEM_MAX; owned */
	uint8_t sha256[DIGEST_BYTES];
};

struct record {
	/* given */
	struct view session; /* a checked id */
	struct view episode; /* likewise; empty: none */
	uint64_t turn;
	uint64_t turn_high; /* the highest number given out so far */
	uint64_t wall_us;
	unsigned level; /* enum conf_level */
	unsigned flags; /* enum message_turn_flag */
	unsigned outcome; /* enum message_outcome */
	unsigned status; /* 0 none */
	uint64_t latency_us, ttft_us;
	struct view request; /* the forwarded body; empty: none */
	bool request_cut; /* it did not fit the turn's memory */
	struct digest *digest; /* of record_ask(), borrowed; NULL: none */
	struct record_system *system; /* borrowed; NULL: none is kept */
	uint64_t retry_of; /* the undelivered turn that it repeats; 0 none */
	struct view body; /* of an error status */
	struct view error; /* the reactor's word: JSON, or empty */
	struct view meta_open, meta_end; /* JSON objects, or empty */
	struct assemble *assemble; /* finished by record_write() */
	/* results of record_ask() */
	bool read;
	struct reqinfo asked; /* its views lie in request */
	bool hashed;
	uint8_t body_sha256[DIGEST_BYTES];
	uint8_t prefix_sha256[DIGEST_BYTES]; /* zeros: no such part */
	/* results of record_write() */
	uint64_t findings; /* enum finding */
	uint64_t completion_tokens;
	bool complete, aborted, trainable;
	bool has_tools; /* of the request, as in the record */
	char finish_reason[64]; /* "" none */
};

/*
 * Reads and hashes the request; record_write() does it where it was not done.
 * Context: recorder, does not block.
 */
void record_ask(struct record *r);

/*
 * Writes the record but for its end: everything up to the members that chain
 * it to the one before (chain_close() writes those), without a closing brace.
 * Source:  the record's contract: sallyportctl(1), TRACE RECORDS.
 * Context: recorder, does not block.
 * Parameters: out, appended to.
 * Returns: 0; SP_E_NOMEM; SP_E_LIMIT (out's max).
 */
int record_write(struct record *r, struct buf *out) must_check;

#endif

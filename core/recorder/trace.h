/* One trace file: opening with recovery, appending, rolling, sealing. */
#ifndef SP_RECORDER_TRACE_H
#define SP_RECORDER_TRACE_H

#include <sys/queue.h>
#include <sys/types.h>

#include "recorder/chain.h"
#include "recorder/seal.h"

enum {
	TRACE_NAME_MAX = 220, /* leaves room for .N, .seal and the like */
	TRACE_UNDELIVERED_MAX = 4096,
	TRACE_GROUP_BYTES = 64 * 1024, /* that wait for one write */
	TRACE_RETRIES = 16, /* undelivered turns that a retry may repeat */
};

/* A turn whose end did not reach the client, by its request. */
struct trace_request {
	uint64_t turn; /* 0: none */
	uint8_t sha256[DIGEST_BYTES];
};

struct trace {
	TAILQ_ENTRY(trace) link; /* the store's, least recently used first */
	unsigned refs; /* turns that name it */
	int dir; /* borrowed */
	char *key; /* owned; the store's */
	char *session; /* owned; of the first turn */
	char *name; /* owned */
	mode_t mode;
	int fd; /* -1: closed for the time being */
	uint64_t roll_bytes; /* 0: never rolls */
	uint64_t size;
	char head[DIGEST_HEX + 1]; /* hash of the last record */
	bool sync; /* fdatasync before a turn counts as recorded */
	bool dirty; /* written since the last fdatasync */
	int sync_rc; /* of that fdatasync */
	uint64_t turn_high; /* highest turn number given out */
	bool sealed; /* nothing was written since the last seal */
	bool sum_ok; /* sum has seen all of the file */
	unsigned retries_at; /* in retries */
	struct chain_sum sum;
	/* lines that wait for trace_flush(), chained on to head */
	struct buf group; /* owned */
	char group_head[DIGEST_HEX + 1];
	struct chain_sum group_sum;
	size_t group_most; /* bytes of its longest line */
	uint64_t group_id; /* from 1 */
	uint64_t failed_id; /* a group that was not written; 0 none */
	int failed_rc; /* then why */
	size_t failed_bytes; /* of its longest line */
	uint64_t *undelivered; /* owned; ascending */
	size_t undelivered_n, undelivered_cap;
	uint64_t undelivered_more;
	struct trace_request retries[TRACE_RETRIES]; /* a ring */
};

/*
 * Context: recorder; blocks on the disk.
 * Owner:   the caller; trace_free() closes the file.
 * Returns: NULL without memory.
 */
struct trace *trace_new(int dir, struct view key, struct view session,
    struct view name) must_check;
void trace_free(struct trace *t);

/*
 * Opens the file if it is closed.  A last line without its end is appended to
 * NAME.torn and cut off; turn number and chain go on from the last record.
 * Of an empty file that rolls, they go on from the newest roll.
 * Returns: 0; SP_E_DENIED not a regular file, or another process has it;
 *          SP_E_NOSPC; the call's error.
 */
int trace_open(struct trace *t) must_check;
void trace_close(struct trace *t);
/*
 * Ends the record with the chain's members and appends it by one write.  What
 * a short write left is cut off again.  A file that was removed, renamed,
 * replaced or written to by another is opened anew before.
 * Parameters: line, as record_write() made it; k, signs the file that is
 *          rolled to make room.
 * Returns: 0; SP_E_NOSPC disk or quota full; SP_E_LIMIT; SP_E_NOMEM; the
 *          call's error.
 */
int trace_append(struct trace *t, struct buf *line,
    const struct signer *k) must_check;
/*
 * The same, but a line that is not large waits for trace_flush(), so that
 * lines that come together are one write.
 * Returns: as trace_append(), with *id 0 when the line is in the file, else
 *          its group's.  While a group has failed, that group's error.
 */
int trace_hold(struct trace *t, struct buf *line, const struct signer *k,
    uint64_t *id) must_check;
/*
 * Writes what waits, all of it or nothing: if not, failed_id, failed_rc and
 * failed_bytes tell of the group until trace_forgive().
 */
void trace_flush(struct trace *t, const struct signer *k);
void trace_forgive(struct trace *t);
/*
 * cb is called again and again while a file is read to be sealed, and at each
 * fdatasync: work that may take long.
 */
void trace_on_work(void (*cb)(void *arg), void *arg);
/* fdatasync when dirty; the result stays in sync_rc until the next append. */
void trace_sync(struct trace *t);
void trace_undelivered(struct trace *t, uint64_t turn);
/* Remembers the request of an undelivered turn; finds it: 0 there is none. */
void trace_keep_request(struct trace *t, uint64_t turn,
    const uint8_t sha256[DIGEST_BYTES]);
uint64_t trace_find_request(const struct trace *t,
    const uint8_t sha256[DIGEST_BYTES]);
/* Whether a seal is there that holds for the open file as it is. */
bool trace_sealed(struct trace *t);
/*
 * Writes the seal of the file as it is.  One that is there of another file is
 * renamed to NAME.of-<first hash>.seal.
 * Returns: 0, also when there is nothing new to seal; SP_E_NOTFOUND the file
 *          has its name no more; the call's error.
 */
int trace_seal(struct trace *t, const struct signer *k,
    const char *reason) must_check;

/*
 * The number N of a file NAME.N; 0: it is none such.
 */
uint64_t trace_roll_number(struct view file, struct view name);

#endif

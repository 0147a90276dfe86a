/*
 * The hash chain of a trace file.  A record is one line:
 *
 *	{"turn":1,...,"prev":"<64 hex>","hash":"<64 hex>"}
 *
 * hash is the SHA-256 of the line's bytes before `,"hash":"` (the last 75
 * bytes of the line, its line end apart); prev is the hash of the record
 * before, 64 zeros in the first.
 */
#ifndef SP_RECORDER_CHAIN_H
#define SP_RECORDER_CHAIN_H

#include "base/buf.h"
#include "base/view.h"
#include "crypt/digest.h"

enum {
	CHAIN_HASH_END = 9 + DIGEST_HEX + 2, /* `,"hash":"`..`"}` */
	CHAIN_END = 9 + DIGEST_HEX + 1 + CHAIN_HASH_END, /* with prev */
};

struct chain_link {
	char prev[DIGEST_HEX + 1];
	char hash[DIGEST_HEX + 1];
};

/* 64 zeros: what the first record names. */
void chain_zero(char hash[DIGEST_HEX + 1]);
/*
 * Ends a record: adds prev, hash, the closing brace and LF to the line, which
 * is an object but for its end.
 * Context: any, does not block.
 * Returns: 0 with the record's own hash in link (prev is given there);
 *          SP_E_LIMIT; SP_E_NOMEM.
 */
int chain_close(struct buf *line, struct chain_link *link) must_check;
/*
 * Reads prev and hash from the end of a line (without LF).
 * Returns: 0; SP_E_SYNTAX: it does not end in a chain's members.
 */
int chain_read(struct view line, struct chain_link *link) must_check;
/* Also computes the hash: SP_E_DENIED when it is another. */
int chain_check(struct view line, struct chain_link *link) must_check;

/*
 * What a file holds, counted in pieces of any size.  Its bytes are bound by
 * the lines' own hashes.
 */
struct chain_sum {
	uint64_t bytes, lines;
	struct chain_link first; /* of the first line, once it ended */
	bool first_ok;
	char tail[CHAIN_END]; /* last bytes of the first line so far */
	size_t tail_n;
};

void chain_sum_init(struct chain_sum *s);
void chain_sum_feed(struct chain_sum *s, struct view v);
/* A line of n bytes, its end included, by the link that it ends in. */
void chain_sum_line(struct chain_sum *s, const struct chain_link *link,
    size_t n);
/* What comes behind. */
void chain_sum_add(struct chain_sum *s, const struct chain_sum *more);

#endif

/* A token's log-probabilities in the one form in which most servers send it. */
#ifndef SP_JSON_JTOKEN_H
#define SP_JSON_JTOKEN_H

#include <stdint.h>
#include <string.h>

#include "base/view.h"

enum {
	JTOKEN_DEPTH = 4, /* of the containers in it */
	JTOKEN_OPEN_BYTES = 8, /* of jtoken_begins() */
};

struct jtoken {
	struct view token; /* the string, in its quotes */
	struct view logprob; /* the number as written; empty: none */
	struct view id; /* likewise */
	/* jwrite_scanned() would copy all of it as it stands */
	bool plain;
};

/*
 * Follows an object like
 *
 *   {"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":...}]}
 *
 * without white space, whose members are among id, token, logprob, bytes and
 * top_logprobs (of objects without the last), in any order, each at most once,
 * "token" one of them.
 * Source:  RFC 8259; the chat completions API.
 * Context: any, no allocation; linear.
 * Parameters: p < end, at the opening brace.
 * Returns: the byte after its closing brace with *out set, or NULL: it is of
 *          another form, valid or not.
 */
const uint8_t *jtoken_end(const uint8_t *p, const uint8_t *end,
    struct jtoken *out);

/* False: jtoken_end() is not worth a try. */
static inline bool
jtoken_begins(const uint8_t *p, const uint8_t *end)
{
	return end - p >= JTOKEN_OPEN_BYTES &&
	    memcmp(p, "{\"token\"", JTOKEN_OPEN_BYTES) == 0;
}

#endif

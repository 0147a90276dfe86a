/*
 * HTTP/1.1 on the wire, read: heads of requests and replies, message framing
 * and the chunked coding.  Pure: bytes in, views out; strict throughout, since
 * whatever two parsers can read in two ways is how requests are smuggled.
 * Source: RFC 9112.
 */
#ifndef SP_HTTP_H1_PARSE_H
#define SP_HTTP_H1_PARSE_H

#include "http/head.h"

/* What a message is refused for: the status a server answers, and words. */
struct h1_fault {
	unsigned status;
	const char *what; /* static */
};

struct h1_scan_limits {
	size_t line_max; /* of one line, without its CR LF */
	size_t total_max; /* of the whole head */
	size_t fields_max; /* field lines */
};

/* Looks for the end of a head; kept between two pieces. */
struct h1_scan {
	size_t skip; /* bytes of an empty line before the head, 0 or 2 */
	size_t line; /* offset of the line that is not whole yet */
	size_t lines; /* whole lines, without the empty ones */
	bool reply; /* status line instead of request line */
	bool head_request; /* replies: to HEAD, so without a body */
};

/*
 * Context: any, no allocation.
 * Parameters: bytes, everything of the head so far, the same bytes as at the
 *          last call and more behind them.
 * Returns: 0 with *head_n, bytes up to and with the empty line; SP_E_AGAIN more
 *          is needed; SP_E_SYNTAX or SP_E_LIMIT with *fault filled.
 */
int h1_parse_scan(struct h1_scan *s, struct view bytes,
    const struct h1_scan_limits *limits, size_t *head_n,
    struct h1_fault *fault) must_check;

enum h1_body_kind {
	H1_BODY_NONE,
	H1_BODY_LENGTH,
	H1_BODY_CHUNKED,
	H1_BODY_CLOSE, /* replies: up to the end of the connection */
};

/* What a head says about the message and the connection. */
struct h1_framing {
	enum h1_body_kind kind;
	uint64_t length; /* H1_BODY_LENGTH */
	bool keep_alive; /* the sender lets the connection live */
	bool expect; /* Expect: 100-continue with a body */
};

/*
 * Parses a whole request head (what h1_parse_scan() measured, its lines
 * counted by it).  Views point into head; the list of fields is put into the
 * arena, in one piece.  out->tls is left alone.
 * Returns: 0; SP_E_SYNTAX with *fault filled (400, 405, 417, 501, 505);
 *          SP_E_NOMEM.
 */
int h1_parse_request(struct view head, const struct h1_scan *s, struct arena *a,
    struct head_request *out, struct h1_framing *framing,
    struct h1_fault *fault) must_check;

/*
 * The same for a proxy that takes nothing but CONNECT: the target is
 * out->authority, there is no content.  h1_parse_request() refuses it.
 * Source: RFC 9110 s9.3.6, RFC 9112 s3.2.3.
 */
int h1_parse_connect(struct view head, const struct h1_scan *s, struct arena *a,
    struct head_request *out, struct h1_fault *fault) must_check;

/*
 * Parses a whole reply head.  Fields without framing and hop-by-hop.
 * Returns: 0; SP_E_SYNTAX with fault->what; SP_E_NOMEM.
 */
int h1_parse_reply(struct view head, const struct h1_scan *s, struct arena *a,
    struct head_reply *out, struct h1_framing *framing,
    struct h1_fault *fault) must_check;

/* What HTTP/2 checks in the same way: host [ ":" port ], and target bytes. */
bool h1_parse_is_authority(struct view v);
bool h1_parse_is_target(struct view v);

/* ---- bodies -------------------------------------------------------------- */

enum {
	H1_EXTENSION_MAX = 4096, /* chunk extensions of a body, or of a chunk */
	H1_TRAILER_MAX = 8192, /* trailer section */
	H1_CHUNK_DIGITS = 16,
};

enum h1_body_got {
	H1_BODY_DATA = 1, /* *out has bytes */
	H1_BODY_MORE, /* everything in *in was used */
	H1_BODY_FULL, /* data is next, and max is 0 */
	H1_BODY_END, /* the body is whole; *in is what follows it */
};

struct h1_body {
	enum h1_body_kind kind;
	int state;
	uint64_t left; /* data bytes of the length or of this chunk */
	size_t digits;
	size_t extension; /* bytes of extensions so far */
	size_t trailer; /* bytes of trailers so far */
	bool per_chunk; /* H1_EXTENSION_MAX holds for each chunk (replies) */
};

void h1_body_init(struct h1_body *b, const struct h1_framing *framing,
    bool per_chunk);
/*
 * Next piece of the body.
 * Parameters: in, stepped past what was used; max, the most bytes of data
 *          wanted now; out, borrowed from in.
 * Returns: an enum h1_body_got; SP_E_SYNTAX not framed as RFC 9112 s7.1 says;
 *          SP_E_LIMIT extensions or trailers are too long.
 */
int h1_body_next(struct h1_body *b, struct view *in, uint64_t max,
    struct view *out) must_check;
/* H1_BODY_CLOSE: the end of the connection is the end of the body. */
bool h1_body_at_close(const struct h1_body *b);

#endif

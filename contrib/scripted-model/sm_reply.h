/*
 * A reply made ready: the bytes of the wire, and marks that say where to
 * pause, to keep pace or to cut.  Shared by reference between streams.
 */
#ifndef SP_SM_REPLY_H
#define SP_SM_REPLY_H

#include <stdint.h>

#include "sm_out.h"

enum sm_mark_kind {
	SM_MARK_EVENT, /* an event ends here */
	SM_MARK_PACE, /* val tokens were said */
	SM_MARK_PAUSE, /* val ms of silence */
	SM_MARK_FIN, /* close */
	SM_MARK_RST /* reset */
};

struct sm_mark {
	size_t off;
	enum sm_mark_kind kind;
	uint32_t val;
};

struct sm_marks {
	struct sm_mark *v;
	size_t n;
	size_t cap;
};

/* The body before it is framed. */
struct sm_payload {
	struct sm_out body;
	struct sm_marks marks;
};

enum sm_framing {
	SM_FRAMING_CHUNKED,
	SM_FRAMING_LENGTH,
	SM_FRAMING_CLOSE, /* the end of the connection ends the body */
	SM_FRAMING_HTTP10, /* the same, under HTTP/1.0 */
	SM_FRAMING_NONE /* no head either: the body is the whole response */
};

enum {
	SM_PER_EVENT = -1, /* of chunk_n and write_n */
	SM_WHOLE = 0
};

struct sm_frame {
	int status;
	enum sm_framing framing;
	struct view type; /* Content-Type */
	struct view headers; /* further lines, each with CRLF */
	bool own_framing; /* which say length or coding themselves */
	unsigned delay_ms; /* before the first byte */
	long chunk_n; /* body bytes a chunk, or SM_PER_EVENT, SM_WHOLE */
	long write_n; /* bytes a write, or SM_PER_EVENT, SM_WHOLE */
	unsigned write_gap_ms;
	double pace; /* tokens a second, 0 unpaced */
	long long cut_body; /* cut after so many bytes of the body; -1 */
	long long cut_wire; /* the same, of all bytes sent; -1 */
	bool cut_reset;
	bool close; /* say Connection: close, and do */
	bool head_only; /* answer to HEAD */
	bool gzip; /* one member, flushed after each event */
};

struct sm_reply {
	unsigned refs;
	struct buf bytes;
	struct sm_marks marks;
	long write_n;
	unsigned write_gap_ms;
	double pace;
	bool close;
	bool stamp; /* each write says in "created" when it went */
};

/*
 * Context: any, does not block.
 * Owner:   payload: the caller, sm_reply_payload_clear(); reply: counted,
 *          made with one reference.
 * Returns: 0; SP_E_NOMEM; SP_E_LIMIT.
 */
void sm_reply_payload_init(struct sm_payload *p);
void sm_reply_payload_clear(struct sm_payload *p);
/* A mark at the present end; failures show in body.err. */
void sm_reply_mark(struct sm_payload *p, enum sm_mark_kind kind, uint32_t val);
int sm_reply_make(struct sm_payload *p, const struct sm_frame *f,
    struct sm_reply **out) must_check;
struct sm_reply *sm_reply_ref(struct sm_reply *r);
void sm_reply_unref(struct sm_reply *r); /* NULL allowed */
/* The reason phrase of a status code. */
const char *sm_reply_reason(int status);

#endif

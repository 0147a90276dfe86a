/* One request to a sallyport that runs: blocking, HTTP/1.1, no TLS. */
#ifndef SP_CTL_HTTP_H
#define SP_CTL_HTTP_H

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"
#include "http/h1_parse.h"

struct ctl_http_params {
	const char *url; /* http://HOST[:PORT][/PATH] or unix:/PATH */
	const char *location; /* path when the URL has none: "/sessions" */
	const char *token; /* NULL: none is sent */
	const char *method;
	const char *rest; /* beneath the location: "" or "/ID..." */
	struct view body; /* empty: none */
	const char *type; /* of the body; NULL: JSON */
	const char *accept; /* of the reply; NULL: any */
	bool chunked; /* the body is sent later, with ctl_http_chunk() */
	bool patient; /* silence may last */
};

/* A request whose reply is read piece by piece. */
struct ctl_http {
	int fd; /* -1: closed */
	struct buf in;
	bool has_head;
	struct h1_framing framing;
	struct h1_body body;
	size_t used; /* of in, by the piece that was handed out */
};

/*
 * Source:  RFC 9112.
 * Context: sallyportctl; blocks, at most 60 s without a byte.
 * Parameters: out, the body is appended to; status, the reply's; why, words
 *          for an error, static.
 * Returns: 0; SP_E_ARG no such URL; SP_E_SYNTAX the reply is no HTTP;
 *          SP_E_LIMIT; SP_E_NOMEM; the call's error.
 */
int ctl_http_ask(const struct ctl_http_params *p, struct buf *out,
    unsigned *status, const char **why) must_check;

/*
 * Connects, and sends the request, its body included unless it is chunked.
 * Owner:   ctl_http_close(), also after an error.
 * Returns: as ctl_http_ask().
 */
int ctl_http_open(const struct ctl_http_params *p, struct ctl_http *h,
    const char **why) must_check;
void ctl_http_close(struct ctl_http *h);
/* A piece of a chunked body: appended to out, to be written to h->fd. */
int ctl_http_chunk(struct buf *out, const struct view *v, size_t n) must_check;
/* One read(2): 0; SP_E_EOF; SP_E_TIMEOUT nothing is there; SP_E_*. */
int ctl_http_read(struct ctl_http *h) must_check;
/*
 * What was read so far: the head, then pieces of the body, borrowed until the
 * next call.
 * Returns: SP_E_AGAIN more has to be read.  Head: 0.  Body: 1 a piece; 0 its
 *          end; SP_E_SYNTAX.
 */
int ctl_http_take_head(struct ctl_http *h, unsigned *status) must_check;
int ctl_http_take(struct ctl_http *h, struct view *data) must_check;
/* Both, waiting for what is missing; SP_E_GONE: it ended too early. */
int ctl_http_head(struct ctl_http *h, unsigned *status) must_check;
int ctl_http_next(struct ctl_http *h, struct view *data) must_check;
/* The rest of the body. */
int ctl_http_rest(struct ctl_http *h, struct buf *out) must_check;

#endif

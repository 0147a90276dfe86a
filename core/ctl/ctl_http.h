/* One request to a sallyport that runs: blocking, HTTP/1.1, no TLS. */
#ifndef SP_CTL_HTTP_H
#define SP_CTL_HTTP_H

#include "base/buf.h"
#include "base/view.h"

struct ctl_http_params {
	const char *url; /* http://HOST[:PORT][/PATH] or unix:/PATH */
	const char *location; /* path when the URL has none: "/sessions" */
	const char *token; /* NULL: none is sent */
	const char *method;
	const char *rest; /* beneath the location: "" or "/ID..." */
	struct view body; /* JSON; empty: none */
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

#endif

/* What commands that ask a running sallyport share: options, errors. */
#ifndef SP_CTL_ASK_H
#define SP_CTL_ASK_H

#include <stdbool.h>

#include "ctl/ctl_http.h"

enum {
	CTL_ASK_REFUSED = 1, /* exit statuses */
	CTL_ASK_USAGE = 2,
	CTL_ASK_REST_MAX = 512,
	CTL_ASK_BODY_MAX = 1024 * 1024 * 1024,
};

struct ctl_ask {
	struct ctl_http_params http;
	const char *token_env; /* the variable that holds http.token */
	char rest[CTL_ASK_REST_MAX]; /* what http.rest may point to */
	bool json;
};

/*
 * Fills *a from --url, --location, --token-env and --json; optind is behind
 * them.  Without a URL it is the control socket.
 * Parameters: location, the default.
 * Context: sallyportctl.
 * Returns: 0; CTL_ASK_USAGE after a message, or for the caller's own usage
 *          when *said is false.
 */
int ctl_ask_options(struct ctl_ask *a, int argc, char **argv,
    const char *location, bool *said) must_check;
/*
 * One request; blocks.
 * Returns: 0 with the body of a good answer in out; else the exit status,
 *          after a message.
 */
int ctl_ask_do(const struct ctl_ask *a, struct buf *out) must_check;
/* To standard output: 0; CTL_ASK_USAGE it is closed. */
int ctl_ask_print(struct view v) must_check;
int ctl_ask_do_and_print(const struct ctl_ask *a) must_check;
/* A string that is not escaped, without its quotes; null is "-". */
struct view ctl_ask_plain(struct view v);

#endif

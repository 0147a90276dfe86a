/* `sallyport proxy URL`: flags in, configuration text out. */
#ifndef SP_HELPER_PROXYCMD_H
#define SP_HELPER_PROXYCMD_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

struct proxycmd {
	const char *url;
	const char *host; /* without brackets */
	unsigned port;
	char *trace; /* absolute; what the user sees */
	char *trace_real; /* absolute; what is written */
	char *state_dir; /* absolute */
	const char *model; /* NULL: the client's */
	const char *key_env; /* the variable that holds the key, or NULL */
	unsigned top_logprobs;
	unsigned long max_tokens_cap; /* 0 none */
	unsigned long long timeout_ms; /* 0: the default */
	int thinking_off;
	bool folder_was; /* the trace's own folder, before the start */
};

/*
 * Reads the words after `proxy`; complaints go to standard error.
 * Context: helper, before anything else.
 * Parameters: argv[0] is "proxy"; privileged, started as root.
 * Owner:   strings of argv are borrowed; proxycmd_clear() frees the rest.
 * Returns: 0; SP_E_ARG after a complaint; SP_E_NOTFOUND help was asked for
 *          and printed; SP_E_NOMEM.
 */
int proxycmd_parse(struct proxycmd *p, int argc, char **argv,
    int privileged) must_check;
void proxycmd_clear(struct proxycmd *p);
/* The configuration that it stands for: 0; SP_E_LIMIT; SP_E_NOMEM. */
int proxycmd_text(const struct proxycmd *p, struct buf *out) must_check;
/* Whether nobody but this host can reach it; then it has /status. */
bool proxycmd_is_local(const struct proxycmd *p);
/* The argument that became this line of the text, or NULL. */
const char *proxycmd_argument(const struct proxycmd *p, unsigned line);
/*
 * Before anything is opened; when both roles serve, with what is listened on;
 * after a start that came to nothing.
 */
void proxycmd_begin(struct proxycmd *p);
void proxycmd_ready(const struct proxycmd *p, struct view address);
void proxycmd_failed(const struct proxycmd *p);

#endif

#include "config.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl_ask.h"
#include "ctl/ctl_record.h"
#include "ctl/ctl_socket.h"
#include "http/h1_parse.h"

enum { STATUS_UNAUTHORIZED = 401, STATUS_NOT_FOUND = 404 };

int
ctl_ask_do(const struct ctl_ask *a, struct buf *out)
{
	const char *why = "";
	struct view text;
	unsigned status = 0;
	int rc = ctl_http_ask(&a->http, out, &status, &why);

	if (rc != 0) {
		(void)fprintf(stderr, "sallyportctl: %s: %s: %s\n", a->http.url,
		    why, err_str(rc));
		return CTL_ASK_USAGE;
	}
	if (status >= 200 && status < 300)
		return 0;
	if (status == STATUS_UNAUTHORIZED) {
		(void)fprintf(stderr,
		    a->http.token == NULL
			? "sallyportctl: 401: %s is not set: export the token "
			  "of the location there, or name its variable with "
			  "--token-env\n"
			: "sallyportctl: 401: wrong token: what %s holds is "
			  "not the token of the location\n",
		    a->token_env);
		return CTL_ASK_REFUSED;
	}
	text = ctl_record_get(buf_view(out), VIEW("error"));
	text = ctl_record_get(text, VIEW("message"));
	if (status == STATUS_NOT_FOUND && text.n == 0) {
		(void)fprintf(stderr,
		    "sallyportctl: 404: %s has nothing at %s: name the "
		    "location that its configuration has for this with "
		    "--location\n",
		    a->http.url, a->http.location);
		return CTL_ASK_REFUSED;
	}
	/* as doors say it */
	if (text.n == 0)
		text = ctl_record_get(buf_view(out), VIEW("detail"));
	(void)fprintf(stderr, "sallyportctl: refused with status %u: %.*s\n",
	    status, VIEW_ARG(text));
	return CTL_ASK_REFUSED;
}

int
ctl_ask_print(struct view v)
{
	if (v.p != NULL && fwrite(v.p, 1, v.n, stdout) != v.n)
		return CTL_ASK_USAGE;
	return fflush(stdout) == 0 ? 0 : CTL_ASK_USAGE;
}

int
ctl_ask_do_and_print(const struct ctl_ask *a)
{
	struct buf out = BUF_INIT(CTL_ASK_BODY_MAX);
	int rc = ctl_ask_do(a, &out);

	if (rc == 0)
		rc = ctl_ask_print(buf_view(&out));
	buf_clear(&out);
	return rc;
}

struct view
ctl_ask_plain(struct view v)
{
	if (v.n >= 2 && v.p[0] == '"')
		return view_sub(v, 1, v.n - 2);
	return view_eq(v, VIEW("null")) ? VIEW("-") : v;
}

/* A token stands in a field of the head: no byte of it may end that. */
static bool
good_token(const char *token)
{
	size_t i;

	for (i = 0; token[i] != '\0'; i++)
		if (token[i] <= ' ' || token[i] > '~')
			return false;
	return i > 0;
}

int
ctl_ask_options(struct ctl_ask *a, int argc, char **argv, const char *location,
    bool *said)
{
	static const struct option options[] = {
		{ "url", required_argument, NULL, 'u' },
		{ "location", required_argument, NULL, 'l' },
		{ "token-env", required_argument, NULL, 't' },
		{ "json", no_argument, NULL, 'j' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	*a = (struct ctl_ask){ .http = { .url = getenv("SALLYPORT_URL"),
				   .location = location,
				   .method = "GET",
				   .rest = "" },
		.token_env = "SALLYPORT_ADMIN_TOKEN" };
	*said = false;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'u')
			a->http.url = optarg;
		else if (c == 'l')
			a->http.location = optarg;
		else if (c == 't')
			a->token_env = optarg;
		else if (c == 'j')
			a->json = true;
		else
			return CTL_ASK_USAGE;
	}
	if (a->http.location[0] != '/' ||
	    !h1_parse_is_target(view_str(a->http.location)))
		return CTL_ASK_USAGE;
	*said = true;
	if (a->http.url == NULL)
		a->http.url = ctl_socket_url();
	if (a->http.url == NULL) {
		(void)fputs("sallyportctl: the control socket's path is empty "
			    "or too long\n",
		    stderr);
		return CTL_ASK_USAGE;
	}
	a->http.token = getenv(a->token_env);
	if (a->http.token != NULL && !good_token(a->http.token)) {
		(void)fprintf(stderr,
		    "sallyportctl: %s holds no token: expected visible ASCII\n",
		    a->token_env);
		return CTL_ASK_USAGE;
	}
	return 0;
}

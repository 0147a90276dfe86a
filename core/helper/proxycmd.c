#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "helper/proxycmd.h"
#include "os/xdg.h"

enum {
	PROXY_PORT = 7000,
	PROXY_TOP_LOGPROBS = 5,
	PROXY_TOP_LOGPROBS_MAX = 20,
	PROXY_PATH_MAX = 2 * PATH_MAX,
	PROXY_TEXT_MAX = 64 * 1024,
};

enum proxy_option {
	OPT_URL = 256,
	OPT_HOST,
	OPT_PORT,
	OPT_TRACE,
	OPT_TOP,
	OPT_CAP,
	OPT_NO_THINKING,
	OPT_MODEL,
	OPT_TIMEOUT,
	OPT_KEY,
	OPT_HELP,
};

static const struct option options[] = {
	{ "upstream-url", required_argument, NULL, OPT_URL },
	{ "host", required_argument, NULL, OPT_HOST },
	{ "port", required_argument, NULL, OPT_PORT },
	{ "trace", required_argument, NULL, OPT_TRACE },
	{ "top-logprobs", required_argument, NULL, OPT_TOP },
	{ "max-tokens-cap", required_argument, NULL, OPT_CAP },
	{ "disable-thinking", no_argument, NULL, OPT_NO_THINKING },
	{ "model-override", required_argument, NULL, OPT_MODEL },
	{ "request-timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "upstream-api-key", optional_argument, NULL, OPT_KEY },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 },
};

static void
proxy_usage(FILE *to)
{
	fputs("usage: sallyport proxy URL [flags]\n"
	      "  URL                         the model's server, with or "
	      "without "
	      "/v1\n"
	      "  --host ADDRESS              where to listen; 127.0.0.1\n"
	      "  --port PORT                 7000; 0: the kernel chooses\n"
	      "  --trace FILE                proxy_trace.jsonl\n"
	      "  --top-logprobs N            alternatives for each token; 5\n"
	      "  --max-tokens-cap N          most tokens of an answer; no cap\n"
	      "  --disable-thinking          whatever the client says\n"
	      "  --model-override MODEL      whatever the client says\n"
	      "  --request-timeout SECONDS   how long the model may be silent\n"
	      "The upstream's key is read from OPENCODE_UPSTREAM_API_KEY or\n"
	      "UPSTREAM_API_KEY.\n",
	    to);
}

static int
proxy_bad(const char *flag, const char *value, const char *expected)
{
	fprintf(stderr,
	    "sallyport: proxy: bad value \"%.100s\" for %s; expected %s\n",
	    value, flag, expected);
	return SP_E_ARG;
}

static int
proxy_number(const char *flag, uint64_t min, uint64_t max, uint64_t *out)
{
	char expected[80];

	if (num_u64(view_str(optarg), min, max, out) == SP_OK)
		return SP_OK;
	snprintf(expected, sizeof(expected), "a whole number from %llu to %llu",
	    (unsigned long long)min, (unsigned long long)max);
	return proxy_bad(flag, optarg, expected);
}

static int
proxy_timeout(struct proxycmd *p)
{
	double seconds;

	/* the reference takes a float of seconds */
	if (num_double(view_str(optarg), &seconds) != SP_OK ||
	    seconds < 0.001 || seconds > 7.0 * 24 * 3600)
		return proxy_bad("--request-timeout", optarg,
		    "seconds, more than 0 and at most 604800");
	p->timeout_ms = (unsigned long long)(seconds * 1000 + 0.5);
	return SP_OK;
}

static int
proxy_url(struct proxycmd *p, const char *url)
{
	if (p->url != NULL) {
		fputs("sallyport: proxy: the upstream's URL was given twice; "
		      "expected it once\n",
		    stderr);
		return SP_E_ARG;
	}
	p->url = url;
	return SP_OK;
}

static int
proxy_option(struct proxycmd *p, int opt, const char **trace)
{
	uint64_t n = 0;
	int rc = SP_OK;

	switch (opt) {
	case OPT_URL:
		return proxy_url(p, optarg);
	case OPT_HOST:
		p->host =
		    strcmp(optarg, "localhost") == 0 ? "127.0.0.1" : optarg;
		break;
	case OPT_PORT:
		rc = proxy_number("--port", 0, 65535, &n);
		p->port = (unsigned)n;
		break;
	case OPT_TRACE:
		*trace = optarg;
		break;
	case OPT_TOP:
		rc = proxy_number("--top-logprobs", 0, PROXY_TOP_LOGPROBS_MAX,
		    &n);
		p->top_logprobs = (unsigned)n;
		break;
	case OPT_CAP:
		rc = proxy_number("--max-tokens-cap", 1, 100000000, &n);
		p->max_tokens_cap = (unsigned long)n;
		break;
	case OPT_NO_THINKING:
		p->thinking_off = 1;
		break;
	case OPT_MODEL:
		p->model = optarg;
		break;
	case OPT_TIMEOUT:
		return proxy_timeout(p);
	case OPT_KEY:
		fputs("sallyport: proxy: --upstream-api-key is refused: every "
		      "user of this host can read arguments. Put the key into "
		      "the environment variable OPENCODE_UPSTREAM_API_KEY or "
		      "UPSTREAM_API_KEY instead\n",
		    stderr);
		return SP_E_ARG;
	case OPT_HELP:
		proxy_usage(stdout);
		return SP_E_NOTFOUND;
	default:
		proxy_usage(stderr);
		return SP_E_ARG;
	}
	return rc;
}

static int
proxy_absolute(const char *path, char **out)
{
	char cwd[PATH_MAX];
	struct buf b = BUF_INIT(PROXY_PATH_MAX);
	int rc;

	*out = NULL;
	if (path[0] == 0 || path[strlen(path) - 1] == '/')
		return proxy_bad("--trace", path, "the path of a file");
	if (path[0] == '/')
		cwd[0] = 0;
	else if (getcwd(cwd, sizeof(cwd)) == NULL)
		return proxy_bad("--trace", path,
		    "an absolute path, as there is no current directory");
	while (path[0] == '.' && path[1] == '/')
		path += 2;
	rc = buf_printf(&b, "%s%s%s", cwd, path[0] == '/' ? "" : "/", path);
	if (rc == SP_OK)
		*out = mem_strndup(buf_view(&b).p, buf_len(&b));
	buf_clear(&b);
	return *out != NULL ? SP_OK : SP_E_NOMEM;
}

/* FNV-1a: the same trace has the same state wherever it is started from. */
static unsigned long long
proxy_hash(const char *s)
{
	unsigned long long h = 0xcbf29ce484222325ULL;

	for (; *s != 0; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ULL;
	return h;
}

/*
 * Several proxies run side by side, so each trace has a state directory of
 * its own, whose lock keeps a second writer off the trace.
 */
static int
proxy_state_dir(struct proxycmd *p)
{
	struct buf b = BUF_INIT(PROXY_PATH_MAX);
	int rc;

	rc = xdg_dir(XDG_STATE, &b);
	if (rc == SP_OK)
		rc = buf_printf(&b, "/sallyport/proxy-%016llx",
		    proxy_hash(p->trace));
	else if (rc == SP_E_NOTFOUND)
		rc = buf_printf(&b, "%s.state", p->trace);
	if (rc == SP_OK)
		p->state_dir = mem_strndup(buf_view(&b).p, buf_len(&b));
	buf_clear(&b);
	if (rc == SP_OK && p->state_dir == NULL)
		rc = SP_E_NOMEM;
	return rc;
}

/*
 * As root the recorder is another user, and the current directory is not
 * its: the trace stands in a folder of the recorder's own beside the name
 * that was asked for, which becomes a link to it.
 */
static int
proxy_real_trace(struct proxycmd *p, int privileged)
{
	const char *name = strrchr(p->trace, '/') + 1;
	struct buf b = BUF_INIT(PROXY_PATH_MAX);
	int rc;

	if (privileged)
		rc = buf_printf(&b, "%s.d/%s", p->trace, name);
	else
		rc = buf_add_str(&b, p->trace);
	if (rc == SP_OK)
		p->trace_real = mem_strndup(buf_view(&b).p, buf_len(&b));
	buf_clear(&b);
	if (rc == SP_OK && p->trace_real == NULL)
		rc = SP_E_NOMEM;
	return rc;
}

static const char *
proxy_key_env(void)
{
	static const char *const names[] = { "OPENCODE_UPSTREAM_API_KEY",
		"UPSTREAM_API_KEY" };
	const char *value;
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		value = getenv(names[i]);
		if (value != NULL && value[0] != 0)
			return names[i];
	}
	return NULL;
}

int
proxycmd_parse(struct proxycmd *p, int argc, char **argv, int privileged)
{
	static char program[] = "sallyport: proxy"; /* in getopt's errors */
	const char *trace = "proxy_trace.jsonl";
	int opt, rc = SP_OK;

	memset(p, 0, sizeof(*p));
	p->host = "127.0.0.1";
	p->port = PROXY_PORT;
	p->top_logprobs = PROXY_TOP_LOGPROBS;
	argv[0] = program;
	optind = 0; /* another vector than the one before */
	while (rc == SP_OK &&
	    (opt = getopt_long(argc, argv, "h", options, NULL)) != -1)
		rc = proxy_option(p, opt == 'h' ? OPT_HELP : opt, &trace);
	for (; rc == SP_OK && optind < argc; optind++)
		rc = proxy_url(p, argv[optind]);
	if (rc == SP_OK && p->url == NULL) {
		fputs("sallyport: proxy: no upstream; expected its URL, like "
		      "http://127.0.0.1:8000/v1\n",
		    stderr);
		rc = SP_E_ARG;
	}
	if (rc == SP_OK)
		rc = proxy_absolute(trace, &p->trace);
	if (rc == SP_OK)
		rc = proxy_real_trace(p, privileged);
	if (rc == SP_OK)
		rc = proxy_state_dir(p);
	p->key_env = proxy_key_env();
	return rc;
}

void
proxycmd_clear(struct proxycmd *p)
{
	mem_free(p->trace);
	mem_free(p->trace_real);
	mem_free(p->state_dir);
	p->trace = p->trace_real = p->state_dir = NULL;
}

/* One argument in quotes, so that no flag can become a directive. */
static int
proxy_quote(struct buf *out, const char *s)
{
	int rc = buf_add_char(out, '"');

	for (; rc == SP_OK && *s != 0; s++) {
		if (*s == '"' || *s == '\\')
			rc = buf_add_char(out, '\\');
		if (rc == SP_OK)
			rc = buf_add_char(out, *s);
	}
	return rc == SP_OK ? buf_add_char(out, '"') : rc;
}

static int
proxy_arg(struct buf *out, const char *directive, const char *value)
{
	int rc = buf_printf(out, "\t%s ", directive);

	if (rc == SP_OK)
		rc = proxy_quote(out, value);
	return rc == SP_OK ? buf_add_str(out, ";\n") : rc;
}

static int
proxy_text_upstream(const struct proxycmd *p, struct buf *out)
{
	int rc = buf_add_str(out, "upstream proxy {\n");

	if (rc == SP_OK)
		rc = proxy_arg(out, "server", p->url);
	if (rc == SP_OK && p->model != NULL)
		rc = proxy_arg(out, "model", p->model);
	if (rc == SP_OK && p->key_env != NULL)
		rc = buf_printf(out, "\tapi_key env:%s;\n", p->key_env);
	if (rc == SP_OK && p->timeout_ms != 0)
		rc = buf_printf(out,
		    "\tfirst_byte_timeout %llums;\n\tread_timeout %llums;\n",
		    p->timeout_ms, p->timeout_ms);
	return rc == SP_OK ? buf_add_str(out, "}\n") : rc;
}

static int
proxy_text_capture(const struct proxycmd *p, struct buf *out)
{
	int rc;

	rc = buf_printf(out,
	    "capture proxy {\n\tlevel tokens;\n\ttoken_ids auto;\n"
	    "\tlogprobs_refused retry;\n\ttop_logprobs %u;\n",
	    p->top_logprobs);
	if (rc == SP_OK && p->max_tokens_cap != 0)
		rc = buf_printf(out, "\tmax_tokens_cap %lu;\n",
		    p->max_tokens_cap);
	if (rc == SP_OK && p->thinking_off)
		rc = buf_add_str(out, "\tthinking off;\n");
	if (rc == SP_OK)
		rc = proxy_arg(out, "trace", p->trace_real);
	return rc == SP_OK ? buf_add_str(out, "}\n") : rc;
}

bool
proxycmd_is_local(const struct proxycmd *p)
{
	return strncmp(p->host, "127.", 4) == 0 ||
	    strcmp(p->host, "::1") == 0 || strcmp(p->host, "[::1]") == 0;
}

static int
proxy_text_server(const struct proxycmd *p, struct buf *out)
{
	static const char *const doors[] = { "/v1", "/chat/completions" };
	char listen[300];
	size_t i;
	int rc = buf_add_str(out, "server {\n");

	snprintf(listen, sizeof(listen),
	    strchr(p->host, ':') != NULL && p->host[0] != '[' ? "[%.255s]:%u"
							      : "%.255s:%u",
	    p->host, p->port);
	if (rc == SP_OK)
		rc = proxy_arg(out, "listen", listen);
	for (i = 0; rc == SP_OK && i < sizeof(doors) / sizeof(doors[0]); i++)
		rc = buf_printf(out,
		    "\tlocation %s { llm_intercept; upstream proxy; "
		    "capture proxy; keys open; }\n",
		    doors[i]);
	if (rc == SP_OK)
		rc = buf_add_str(out,
		    "\tlocation /healthz { health; }\n"
		    "\tlocation /health { health; }\n");
	/* to others than this host it would need a token */
	if (rc == SP_OK && proxycmd_is_local(p))
		rc = buf_add_str(out, "\tlocation /status { status; }\n");
	return rc == SP_OK ? buf_add_str(out, "}\n") : rc;
}

int
proxycmd_text(const struct proxycmd *p, struct buf *out)
{
	int rc;

	rc = proxy_arg(out, "state_dir", p->state_dir);
	/* many may run, and there is nothing to control */
	if (rc == SP_OK)
		rc = buf_add_str(out, "control off;\n");
	if (rc == SP_OK)
		rc = proxy_text_upstream(p, out);
	if (rc == SP_OK)
		rc = proxy_text_capture(p, out);
	if (rc == SP_OK)
		rc = proxy_text_server(p, out);
	return rc;
}

const char *
proxycmd_argument(const struct proxycmd *p, unsigned line)
{
	static const struct {
		const char *directive, *argument;
	} names[] = {
		{ "\tserver ", "URL" },
		{ "\tmodel ", "--model-override" },
		{ "\tfirst_byte_timeout ", "--request-timeout" },
		{ "\tread_timeout ", "--request-timeout" },
		{ "\ttop_logprobs ", "--top-logprobs" },
		{ "\tmax_tokens_cap ", "--max-tokens-cap" },
		{ "\ttrace ", "--trace" },
		{ "\tlisten ", "--host and --port" },
		{ "\tapi_key ", "the upstream's key" },
	};
	struct buf text = BUF_INIT(PROXY_TEXT_MAX);
	const char *found = NULL;
	struct view v;
	size_t i;

	if (proxycmd_text(p, &text) != SP_OK)
		line = 0;
	v = buf_view(&text);
	for (; line > 1 && v.n > 0; line--) {
		i = view_find(v, '\n');
		v = view_from(v, i < v.n ? i + 1 : i);
	}
	for (i = 0; line == 1 && i < sizeof(names) / sizeof(names[0]); i++)
		if (view_starts(v, view_str(names[i].directive)))
			found = names[i].argument;
	buf_clear(&text);
	return found;
}

/*
 * The name that the user gave for the trace, when the file itself stands in
 * the recorder's folder.  Safe: symlink(2) never follows and never replaces.
 */
static void
proxy_link_trace(const struct proxycmd *p)
{
	struct stat st;

	if (strcmp(p->trace, p->trace_real) == 0)
		return;
	if (symlink(p->trace_real, p->trace) == 0 ||
	    (lstat(p->trace, &st) == 0 && S_ISLNK(st.st_mode)))
		return;
	log_notice("the trace is %s, as %s is there already", p->trace_real,
	    p->trace);
}

void
proxycmd_ready(const struct proxycmd *p, struct view address)
{
	proxy_link_trace(p);
	log_notice("base URL http://%.*s/v1, trace %s", VIEW_ARG(address),
	    p->trace);
	if (!proxycmd_is_local(p))
		log_notice("no /status, as others than this host can reach "
			   "%.*s",
		    VIEW_ARG(address));
}

/* Of the trace's own folder; false: there is none. */
static bool
proxy_folder(const struct proxycmd *p, char *out, size_t max)
{
	int n;

	if (p->trace_real == NULL || strcmp(p->trace, p->trace_real) == 0)
		return false;
	n = snprintf(out, max, "%s.d", p->trace);
	return n > 0 && (size_t)n < max;
}

void
proxycmd_begin(struct proxycmd *p)
{
	char path[PROXY_PATH_MAX];
	struct stat st;

	p->folder_was =
	    !proxy_folder(p, path, sizeof(path)) || lstat(path, &st) == 0;
}

/* Safe: rmdir(2) takes an empty folder alone, and follows no link. */
void
proxycmd_failed(const struct proxycmd *p)
{
	char path[PROXY_PATH_MAX];

	if (!p->folder_was && proxy_folder(p, path, sizeof(path)))
		(void)rmdir(path);
}

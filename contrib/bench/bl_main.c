/* bench-load: puts load on an OpenAI-compatible endpoint and measures it. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/num.h"
#include "bl_load.h"

enum {
	CONNS_MAX = 50000,
	BODY_MAX = 64 * 1024 * 1024,
	MESSAGE_BYTES = 600, /* of a conversation's messages */
	TIME_MAX_MS = 600000
};

static const char usage_text[] =
    "usage: bench-load --to PORT --mode unary|bulk|paced [options]\n"
    "  --to PORT           of 127.0.0.1\n"
    "  --path PATH         /v1/chat/completions\n"
    "  --mode MODE         unary: requests in a closed loop; bulk: streams in\n"
    "                      a closed loop; paced: streams that stay open\n"
    "  --conns N           connections; 16\n"
    "  --request SIZE      bytes of each request's body; 7k\n"
    "  --no-logprobs       do not ask for log-probabilities\n"
    "  --stamps            events come from scripted-model --bulk-stamp\n"
    "  --events N          events that a whole stream has at least\n"
    "  --ramp MS           over which connections are begun; 0\n"
    "  --settle MS         from there to the window; 300\n"
    "  --window MS         in which is counted; 2000\n"
    "  --deadline MS       in all; 60000\n"
    "  --max N             requests in all; 10000000\n"
    "  --pid N             whose CPU time is read over the window; repeatable\n"
    "Prints one JSON line when the window begins, and one at the end.\n";

struct options {
	struct bl_load_plan plan;
	const char *path;
	uint64_t body_bytes;
	uint64_t to;
	bool unary;
	bool mode_given;
	bool plain; /* no log-probabilities asked for */
};

enum {
	O_TO = 256,
	O_PATH,
	O_MODE,
	O_CONNS,
	O_REQUEST,
	O_PLAIN,
	O_EVENTS,
	O_STAMPS,
	O_RAMP,
	O_SETTLE,
	O_WINDOW,
	O_DEADLINE,
	O_MAX,
	O_PID,
	O_HELP
};

static const struct option longopts[] = {
	{ "to", required_argument, NULL, O_TO },
	{ "path", required_argument, NULL, O_PATH },
	{ "mode", required_argument, NULL, O_MODE },
	{ "conns", required_argument, NULL, O_CONNS },
	{ "request", required_argument, NULL, O_REQUEST },
	{ "no-logprobs", no_argument, NULL, O_PLAIN },
	{ "stamps", no_argument, NULL, O_STAMPS },
	{ "events", required_argument, NULL, O_EVENTS },
	{ "ramp", required_argument, NULL, O_RAMP },
	{ "settle", required_argument, NULL, O_SETTLE },
	{ "window", required_argument, NULL, O_WINDOW },
	{ "deadline", required_argument, NULL, O_DEADLINE },
	{ "max", required_argument, NULL, O_MAX },
	{ "pid", required_argument, NULL, O_PID },
	{ "help", no_argument, NULL, O_HELP },
	{ NULL, 0, NULL, 0 },
};

static bool
set_mode(struct options *o, const char *arg)
{
	struct view v = view_str(arg);

	o->mode_given = true;
	o->unary = view_eq(v, VIEW("unary"));
	o->plan.paced = view_eq(v, VIEW("paced"));
	return o->unary || o->plan.paced || view_eq(v, VIEW("bulk"));
}

static bool
set_ms(const char *arg, uint64_t *us)
{
	if (num_u64(view_str(arg), 0, TIME_MAX_MS, us) != 0)
		return false;
	*us *= 1000;
	return true;
}

static bool
set_count(struct options *o, int opt, const char *arg)
{
	struct view v = view_str(arg);
	struct bl_load_plan *p = &o->plan;
	uint64_t n;

	switch (opt) {
	case O_TO:
		return num_u64(v, 1, UINT16_MAX, &o->to) == 0;
	case O_REQUEST:
		return num_size(v, &o->body_bytes) == 0 &&
		    o->body_bytes <= BODY_MAX;
	case O_EVENTS:
		return num_u64(v, 0, UINT32_MAX, &p->events) == 0;
	case O_MAX:
		return num_u64(v, 1, UINT32_MAX, &p->requests_max) == 0;
	case O_CONNS:
		if (num_u64(v, 1, CONNS_MAX, &n) != 0)
			return false;
		p->conns = (unsigned)n;
		return true;
	case O_PID:
		if (p->pids_n == BL_LOAD_PIDS ||
		    num_u64(v, 1, INT32_MAX, &n) != 0)
			return false;
		p->pids[p->pids_n++] = (int)n;
		return true;
	default:
		return false;
	}
}

static bool
set_option(struct options *o, int opt, const char *arg)
{
	switch (opt) {
	case O_PATH:
		o->path = arg;
		return arg[0] == '/';
	case O_MODE:
		return set_mode(o, arg);
	case O_PLAIN:
		o->plain = true;
		return true;
	case O_STAMPS:
		o->plan.stamps = true;
		return true;
	case O_RAMP:
		return set_ms(arg, &o->plan.ramp_us);
	case O_SETTLE:
		return set_ms(arg, &o->plan.settle_us);
	case O_WINDOW:
		return set_ms(arg, &o->plan.window_us);
	case O_DEADLINE:
		return set_ms(arg, &o->plan.deadline_us);
	default:
		return set_count(o, opt, arg);
	}
}

/* 0: go on; else the exit status plus one. */
static int
read_options(struct options *o, int argc, char **argv)
{
	int opt, which = 0;

	while ((opt = getopt_long(argc, argv, "", longopts, &which)) != -1) {
		if (opt == O_HELP) {
			fputs(usage_text, stdout);
			return 1;
		}
		if (opt == '?') {
			fputs("try bench-load --help\n", stderr);
			return 3;
		}
		if (!set_option(o, opt, optarg)) {
			fprintf(stderr,
			    "bench-load: --%s does not take \"%s\"; "
			    "try --help\n",
			    longopts[which].name, optarg);
			return 3;
		}
	}
	if (optind == argc && o->to != 0 && o->mode_given)
		return 0;
	fputs("bench-load: --to and --mode are needed; try --help\n", stderr);
	return 3;
}

/* A conversation of about the size asked for, as agents send it. */
static int
make_body(const struct options *o, struct buf *b)
{
	static const char text[] = "The quick brown fox jumps over the lazy "
				   "dog, and says \\\"hello\\\".\\n";
	const char *role = "system";
	int rc;

	rc = buf_printf(b, "{\"model\":\"scripted-model\",%s%s\"messages\":[",
	    o->unary ? ""
		     : "\"stream\":true,"
		       "\"stream_options\":{\"include_usage\":true},",
	    o->plain ? "" : "\"logprobs\":true,\"top_logprobs\":5,");
	do {
		size_t to = buf_len(b) + MESSAGE_BYTES;

		if (to > o->body_bytes)
			to = (size_t)o->body_bytes;
		if (rc == 0)
			rc = buf_printf(b, "{\"role\":\"%s\",\"content\":\"",
			    role);
		do {
			if (rc == 0)
				rc = buf_add_str(b, text);
		} while (rc == 0 && buf_len(b) < to);
		if (rc == 0)
			rc = buf_add_str(b, "\"},");
		role = role[0] == 'u' ? "assistant" : "user";
	} while (rc == 0 && buf_len(b) < o->body_bytes);
	if (rc != 0)
		return rc;
	buf_truncate(b, buf_len(b) - 1);
	return buf_add_str(b, "]}");
}

static int
make_request(const struct options *o, struct buf *b)
{
	struct buf body = BUF_INIT((size_t)BODY_MAX * 2);
	int rc = make_body(o, &body);

	if (rc == 0)
		rc = buf_printf(b,
		    "POST %s HTTP/1.1\r\n"
		    "Host: 127.0.0.1:%" PRIu64 "\r\n"
		    "User-Agent: bench-load\r\n"
		    "Accept: application/json\r\n"
		    "Authorization: Bearer none\r\n"
		    "Content-Type: application/json\r\n"
		    "Content-Length: %zu\r\n\r\n",
		    o->path, o->to, buf_len(&body));
	if (rc == 0)
		rc = buf_add_view(b, buf_view(&body));
	buf_clear(&body);
	return rc;
}

static void
print_result(const struct bl_load_plan *p, const struct bl_load_result *r)
{
	unsigned i;

	printf("{\"at\":\"end\",\"wall_us\":%" PRIu64 ",\"replies\":%" PRIu64
	       ",\"events\":%" PRIu64 ",\"body_bytes\":%" PRIu64
	       ",\"all_replies\":%" PRIu64 ",\"open_max\":%" PRIu64,
	    r->wall_us, r->replies, r->events, r->body_bytes, r->all_replies,
	    r->open_max);
	printf(",\"rate\":%.1f,\"failed\":{\"refused\":%" PRIu64
	       ",\"status\":%" PRIu64 ",\"malformed\":%" PRIu64
	       ",\"lost\":%" PRIu64 ",\"short\":%" PRIu64 ",\"late\":%" PRIu64
	       ",\"last_status\":%d},",
	    r->wall_us > 0 ? (double)r->replies * 1e6 / (double)r->wall_us : 0,
	    r->refused, r->bad_status, r->malformed, r->lost, r->short_streams,
	    r->late, r->last_status);
	bl_hist_print(stdout, "reply_us", &r->reply_us);
	printf(",");
	bl_hist_print(stdout, "first_us", &r->first_us);
	printf(",");
	bl_hist_print(stdout, "event_us", &r->event_us);
	printf(",\"cpu_us\":{");
	for (i = 0; i < p->pids_n; i++)
		printf("%s\"%d\":%.1f", i > 0 ? "," : "", p->pids[i],
		    (double)r->cpu_ns[i] / 1000);
	printf("}}\n");
}

static void
raise_files(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) != 0)
		return;
	rl.rlim_cur = rl.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &rl) != 0)
		fprintf(stderr, "bench-load: open files: %s\n",
		    strerror(errno));
}

int
main(int argc, char **argv)
{
	struct options o = { .path = "/v1/chat/completions",
		.body_bytes = 7168,
		.plan = { .conns = 16,
		    .settle_us = 300000,
		    .window_us = 2000000,
		    .deadline_us = 60000000,
		    .requests_max = 10000000 } };
	struct bl_load_result *res = mem_calloc(1, sizeof(*res));
	struct buf request = BUF_INIT((size_t)BODY_MAX * 3);
	int rc = read_options(&o, argc, argv);

	if (rc == 0 && res != NULL) {
		signal(SIGPIPE, SIG_IGN);
		raise_files();
		o.plan.to.sin_family = AF_INET;
		o.plan.to.sin_port = htons((uint16_t)o.to);
		o.plan.to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		rc = make_request(&o, &request);
		o.plan.request = buf_view(&request);
		if (rc == 0)
			rc = bl_load_run(&o.plan, res);
		if (rc == 0)
			print_result(&o.plan, res);
		else
			fprintf(stderr, "bench-load: %s\n", err_str(rc));
		rc = rc != 0 ? 2 : 1;
	}
	buf_clear(&request);
	mem_free(res);
	return rc > 0 ? rc - 1 : 1;
}

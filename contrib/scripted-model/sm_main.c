/* scripted-model: an OpenAI-compatible server that plays a script. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "base/mem.h"
#include "base/num.h"
#include "sm_conn.h"

enum { BACKLOG = 4096, EVENTS_MAX = 1000000 };

struct options {
	const char *listen;
	const char *port_file;
	const char *script;
	const char *log;
	size_t body_max;
	struct sm_answer answer;
	bool shape_given; /* flags win over what the script says */
	bool model_given;
	bool pace_given;
};

static const char usage_text[] =
    "usage: scripted-model [options]\n"
    "  --listen ADDR        127.0.0.1:0 (the default), [::1]:0, unix:PATH\n"
    "  --port-file FILE     write the port there once ready\n"
    "  --script FILE        turns to play (see README.md); else a small agent\n"
    "  --shape SHAPE        vllm (the default), llamacpp, openai, sglang\n"
    "  --model NAME         id in /v1/models; scripted-model\n"
    "  --max-model-len N    told in /v1/models; 32768\n"
    "  --pace N             tokens a second on each stream; as fast as it "
    "goes\n"
    "  --delay-ms N         before the first byte of each completion\n"
    "  --write HOW          event (one write for each), all, or N bytes\n"
    "  --refuse WHAT        400 to requests with logprobs, return_token_ids,\n"
    "                       max_tokens, or tool_logprobs (logprobs with tools\n"
    "                       and stream); may be repeated\n"
    "  --api-key-env NAME   the key that calls must bring, in that variable\n"
    "  --log FILE           one JSON line for each request and each end\n"
    "  --max-body SIZE      64m\n"
    "  --bulk N             every stream is the same N tokens, made once\n"
    "  --bulk-top N         top_logprobs of bulk replies; 5\n"
    "  --bulk-stamp         each write of a bulk stream has the monotonic "
    "clock\n"
    "                       in its first \"created\"\n"
    "  --unary-bytes SIZE   every unary reply is that long, made once\n"
    "  --help\n";

enum {
	O_LISTEN = 256,
	O_PORT_FILE,
	O_SCRIPT,
	O_SHAPE,
	O_MODEL,
	O_MAX_MODEL_LEN,
	O_PACE,
	O_DELAY,
	O_WRITE,
	O_REFUSE,
	O_KEY,
	O_LOG,
	O_MAX_BODY,
	O_BULK,
	O_BULK_TOP,
	O_BULK_STAMP,
	O_UNARY,
	O_HELP
};

static const struct option longopts[] = {
	{ "listen", required_argument, NULL, O_LISTEN },
	{ "port-file", required_argument, NULL, O_PORT_FILE },
	{ "script", required_argument, NULL, O_SCRIPT },
	{ "shape", required_argument, NULL, O_SHAPE },
	{ "model", required_argument, NULL, O_MODEL },
	{ "max-model-len", required_argument, NULL, O_MAX_MODEL_LEN },
	{ "pace", required_argument, NULL, O_PACE },
	{ "delay-ms", required_argument, NULL, O_DELAY },
	{ "write", required_argument, NULL, O_WRITE },
	{ "refuse", required_argument, NULL, O_REFUSE },
	{ "api-key-env", required_argument, NULL, O_KEY },
	{ "log", required_argument, NULL, O_LOG },
	{ "max-body", required_argument, NULL, O_MAX_BODY },
	{ "bulk", required_argument, NULL, O_BULK },
	{ "bulk-top", required_argument, NULL, O_BULK_TOP },
	{ "bulk-stamp", no_argument, NULL, O_BULK_STAMP },
	{ "unary-bytes", required_argument, NULL, O_UNARY },
	{ "help", no_argument, NULL, O_HELP },
	{ NULL, 0, NULL, 0 },
};

static bool
number(const char *arg, uint64_t max, uint64_t *out)
{
	return num_u64(view_str(arg), 0, max, out) == 0;
}

static bool
set_write(struct options *o, const char *arg)
{
	uint64_t n;

	if (strcmp(arg, "event") == 0)
		o->answer.write_n = SM_PER_EVENT;
	else if (strcmp(arg, "all") == 0)
		o->answer.write_n = SM_WHOLE;
	else if (number(arg, 1 << 30, &n) && n > 0)
		o->answer.write_n = (long)n;
	else
		return false;
	return true;
}

static bool
set_key(struct options *o, const char *arg)
{
	const char *key = getenv(arg);

	if (key == NULL || *key == '\0') {
		fprintf(stderr, "scripted-model: the environment has no %s\n",
		    arg);
		return false;
	}
	o->answer.key = view_str(key);
	return true;
}

/* Options with a number. */
static bool
set_number(struct options *o, int opt, const char *arg)
{
	uint64_t n;

	if (opt == O_MAX_BODY || opt == O_UNARY) {
		if (num_size(view_str(arg), &n) != 0 || n > (1u << 30))
			return false;
		if (opt == O_MAX_BODY)
			o->body_max = (size_t)n;
		else
			o->answer.unary_bytes = n;
		return true;
	}
	if (!number(arg, opt == O_BULK_TOP ? 20 : INT32_MAX, &n))
		return false;
	if (opt == O_MAX_MODEL_LEN)
		o->answer.max_model_len = (int64_t)n;
	else if (opt == O_DELAY)
		o->answer.delay_ms = (unsigned)n;
	else if (opt == O_BULK_TOP)
		o->answer.bulk_top = (int)n;
	else if (opt == O_BULK && n <= EVENTS_MAX)
		o->answer.bulk_events = n;
	else
		return false;
	return true;
}

static bool
set_option(struct options *o, int opt, const char *arg)
{
	unsigned bit;

	switch (opt) {
	case O_LISTEN:
		o->listen = arg;
		return true;
	case O_PORT_FILE:
		o->port_file = arg;
		return true;
	case O_SCRIPT:
		o->script = arg;
		return true;
	case O_LOG:
		o->log = arg;
		return true;
	case O_MODEL:
		o->model_given = true;
		o->answer.model = view_str(arg);
		return true;
	case O_SHAPE:
		o->shape_given = true;
		return sm_answer_shape(view_str(arg), &o->answer.shape);
	case O_PACE:
		o->pace_given = true;
		return num_double(view_str(arg), &o->answer.pace) == 0 &&
		    o->answer.pace >= 0;
	case O_WRITE:
		return set_write(o, arg);
	case O_REFUSE:
		bit = sm_answer_refuse_bit(view_str(arg));
		o->answer.refuse |= bit;
		return bit != 0;
	case O_BULK_STAMP:
		o->answer.bulk_stamp = true;
		return true;
	case O_KEY:
		return set_key(o, arg);
	default:
		return set_number(o, opt, arg);
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
			fputs("try scripted-model --help\n", stderr);
			return 3;
		}
		if (!set_option(o, opt, optarg)) {
			fprintf(stderr,
			    "scripted-model: --%s does not take \"%s\"; "
			    "try --help\n",
			    longopts[which].name, optarg);
			return 3;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "scripted-model: \"%s\" is not an option\n",
		    argv[optind]);
		return 3;
	}
	return 0;
}

static int
apply_script(struct options *o)
{
	const struct sm_json *root, *r;
	struct sm_answer *a = &o->answer;
	struct view v;
	int rc;

	if (o->script == NULL)
		return 0;
	rc = sm_script_load(o->script, &a->script);
	if (rc != 0)
		return rc;
	root = sm_script_root(a->script);
	v = sm_json_string(root, "shape");
	if (!o->shape_given && v.n > 0 && !sm_answer_shape(v, &a->shape)) {
		fprintf(stderr, "scripted-model: %s: no such shape\n",
		    o->script);
		return SP_E_SYNTAX;
	}
	v = sm_json_string(root, "model");
	if (!o->model_given && v.n > 0)
		a->model = v;
	if (!o->pace_given)
		a->pace = sm_json_double(root, "pace", 0);
	a->max_model_len = sm_json_int(root, "max_model_len", a->max_model_len);
	r = sm_json_get(root, "refuse");
	for (r = r != NULL ? r->child : NULL; r != NULL; r = r->next)
		a->refuse |= sm_answer_refuse_bit(r->text);
	return 0;
}

static int
listen_unix(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct stat st;
	int fd;

	if (strlen(path) >= sizeof(sa.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(sa.sun_path, path, strlen(path));
	if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
		unlink(path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0 &&
	    (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
		listen(fd, BACKLOG) != 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int
listen_tcp(const char *text)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV };
	struct addrinfo *ai = NULL;
	char host[128];
	const char *colon = strrchr(text, ':');
	size_t n = colon != NULL ? (size_t)(colon - text) : 0;
	int fd, on = 1;

	if (n == 0 || n >= sizeof(host)) {
		errno = EINVAL;
		return -1;
	}
	if (text[0] == '[' && text[n - 1] == ']')
		snprintf(host, sizeof(host), "%.*s", (int)n - 2, text + 1);
	else
		snprintf(host, sizeof(host), "%.*s", (int)n, text);
	if (getaddrinfo(host, colon + 1, &hints, &ai) != 0) {
		errno = EINVAL;
		return -1;
	}
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
	    0);
	if (fd >= 0 &&
	    (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
		bind(fd, ai->ai_addr, ai->ai_addrlen) != 0 ||
		listen(fd, BACKLOG) != 0)) {
		close(fd);
		fd = -1;
	}
	freeaddrinfo(ai);
	return fd;
}

static int
write_port(const char *path, const char *port)
{
	char tmp[4096];
	FILE *f;
	bool good;

	if ((size_t)snprintf(tmp, sizeof(tmp), "%s.tmp", path) >= sizeof(tmp))
		return SP_E_LIMIT;
	f = fopen(tmp, "we");
	good = f != NULL && fprintf(f, "%s\n", port) > 0;
	if (f != NULL && fclose(f) != 0)
		good = false;
	if (!good || rename(tmp, path) != 0) {
		fprintf(stderr, "scripted-model: %s: %s\n", path,
		    strerror(errno));
		return SP_E_SYS;
	}
	return 0;
}

/* Tells where it listens, once connections will be taken. */
static int
announce(const struct options *o, int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	char host[128], port[16];

	if (strncmp(o->listen, "unix:", 5) == 0) {
		printf("listening on %s\n", o->listen);
		return 0;
	}
	if (getsockname(fd, (struct sockaddr *)&ss, &len) != 0 ||
	    getnameinfo((struct sockaddr *)&ss, len, host, sizeof(host), port,
		sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return SP_E_SYS;
	if (o->port_file != NULL && write_port(o->port_file, port) != 0)
		return SP_E_SYS;
	printf(ss.ss_family == AF_INET6 ? "listening on [%s]:%s\n"
					: "listening on %s:%s\n",
	    host, port);
	return 0;
}

static void
on_signal(evutil_socket_t sig, short what, void *arg)
{
	(void)sig;
	(void)what;
	event_base_loopbreak(arg);
}

static void
raise_files(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) != 0)
		return;
	rl.rlim_cur = rl.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &rl) != 0)
		fprintf(stderr, "scripted-model: open files: %s\n",
		    strerror(errno));
}

static struct event_base *
new_base(void)
{
	struct event_config *cfg = event_config_new();
	struct event_base *base;

	if (cfg == NULL)
		return NULL;
	event_config_set_flag(cfg, EVENT_BASE_FLAG_PRECISE_TIMER);
	base = event_base_new_with_config(cfg);
	event_config_free(cfg);
	return base;
}

static int
run(struct options *o, int listener, int log_fd)
{
	struct event_base *base = new_base();
	struct event term, intr;
	struct sm_server *s;
	int rc = 1;

	if (base == NULL) {
		close(listener);
		return 1;
	}
	s = sm_conn_server_new(base, &o->answer, listener, log_fd, o->body_max);
	if (s == NULL)
		close(listener);
	event_assign(&term, base, SIGTERM, EV_SIGNAL | EV_PERSIST, on_signal,
	    base);
	event_assign(&intr, base, SIGINT, EV_SIGNAL | EV_PERSIST, on_signal,
	    base);
	event_add(&term, NULL);
	event_add(&intr, NULL);
	if (s != NULL && announce(o, listener) == 0)
		rc = event_base_dispatch(base) < 0;
	sm_conn_server_free(s);
	event_del(&term);
	event_del(&intr);
	event_base_free(base);
	return rc;
}

int
main(int argc, char **argv)
{
	struct options o = { .listen = "127.0.0.1:0",
		.body_max = 64 * 1024 * 1024,
		.answer = { .model = VIEW("scripted-model"),
		    .max_model_len = 32768,
		    .write_n = SM_PER_EVENT,
		    .bulk_top = 5 } };
	int fd = -1, log_fd = -1, rc;

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	rc = read_options(&o, argc, argv);
	if (rc != 0)
		return rc - 1;
	raise_files();
	rc = 1;
	if (apply_script(&o) != 0)
		goto out;
	if (o.log != NULL) {
		log_fd = open(o.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
		    0600);
		if (log_fd < 0) {
			fprintf(stderr, "scripted-model: %s: %s\n", o.log,
			    strerror(errno));
			goto out;
		}
	}
	fd = strncmp(o.listen, "unix:", 5) == 0 ? listen_unix(o.listen + 5)
						: listen_tcp(o.listen);
	if (fd < 0) {
		fprintf(stderr, "scripted-model: cannot listen on %s: %s\n",
		    o.listen, strerror(errno));
		goto out;
	}
	rc = run(&o, fd, log_fd);
out:
	if (log_fd >= 0)
		close(log_fd);
	sm_answer_clear(&o.answer);
	return rc;
}

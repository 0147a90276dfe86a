#include "config.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/num.h"
#include "base/utf8.h"
#include "ctl/ctl_episodes.h"
#include "ctl/ctl_exec.h"
#include "ctl/ctl_http.h"
#include "ctl/ctl_record.h"
#include "ctl/ctl_socket.h"
#include "ctl/ctl_text.h"
#include "json/jwrite.h"
#include "os/fd.h"

enum {
	EXIT_TIMEOUT = 124,
	EXIT_SANDBOX = 125,
	EXIT_CANNOT = 126,
	EXIT_NONE = 127,
	EXIT_SIGNAL = 128,
	ENV_MAX = 256,
	READ_BYTES = 64 * 1024,
	SEND_MAX = 256 * 1024, /* then standard input waits */
	OUT_MAX = 64 * 1024 * 1024,
	WORD_MAX = 1024 * 1024,
	FRAME_HEAD = 5,
	/* what a pipe that polls writable takes without blocking */
	PIPE_BYTES = 4096,
	TIMEOUT_MAX_S = 30 * 24 * 3600,
};

enum frame_in { FRAME_STDIN, FRAME_STDIN_END, FRAME_SIGNAL };
enum frame_out {
	FRAME_STDOUT = 1,
	FRAME_STDERR,
	FRAME_EXIT,
	FRAME_NOT_STARTED,
};

const char ctl_exec_usage[] =
    "       sallyportctl exec [OPTION ...] ENVIRONMENT -- COMMAND [ARG ...]\n"
    "       sallyportctl exec [OPTION ...] --in ID -- COMMAND [ARG ...]\n"
    "                             --env NAME=VALUE, --cwd DIR, --timeout "
    "SECONDS,\n"
    "                             --worker, --keep\n";

struct exec {
	/* what was asked */
	const char *environment, *in, *cwd;
	const char *env[ENV_MAX];
	size_t env_n;
	uint64_t timeout_s;
	bool worker, keep;
	char **argv;
	/* on its way */
	struct ctl_http http;
	struct buf send; /* to the gateway */
	bool in_open; /* standard input may still say something */
	unsigned status; /* of HTTP; 0 not there yet */
	char head[FRAME_HEAD];
	size_t head_n;
	uint8_t kind;
	uint32_t left;
	struct buf out[2]; /* to standard output and error */
	bool direct[2]; /* writing never waits: a file */
	struct buf word; /* the last one, JSON */
	bool has_word;
	int signal_fd;
};

static int
usage(void)
{
	(void)fprintf(stderr, "usage:\n%s", ctl_exec_usage);
	return EXIT_SANDBOX;
}

static int
fail(const char *what, int rc)
{
	(void)fprintf(stderr, "sallyportctl: exec: %s: %s\n", what,
	    err_str(rc));
	return EXIT_SANDBOX;
}

/* ---- what is asked -------------------------------------------------------- */

static bool
id_is_plain(const char *id)
{
	return id[strspn(id,
		   "abcdefghijklmnopqrstuvwxyz"
		   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] == '\0' &&
	    id[0] != '\0' && strcmp(id, "-") != 0;
}

static int
wrong(const char *what, const char *got, const char *expected)
{
	(void)fprintf(stderr, "sallyportctl: exec: %s \"%s\": expected %s\n",
	    what, got, expected);
	return SP_E_ARG;
}

static int
take_env(struct exec *x, const char *v)
{
	static const char plain[] =
	    "NAME=VALUE or NAME, the name without spaces, quotes, backslashes";
	const char *p;

	if (x->env_n == ENV_MAX)
		return wrong("--env", v, "fewer of them");
	if (v[0] == '\0' || v[0] == '=')
		return wrong("--env", v, plain);
	for (p = v; *p != '\0' && *p != '='; p++)
		if (*p <= ' ' || *p > '~' || *p == '"' || *p == '\\')
			return wrong("--env", v, plain);
	if (strchr(v, '=') == NULL && getenv(v) == NULL)
		return SP_OK; /* as it is here: not set */
	x->env[x->env_n++] = v;
	return SP_OK;
}

static int
take_timeout(struct exec *x, const char *v)
{
	if (num_u64(view_str(v), 1, TIMEOUT_MAX_S, &x->timeout_s) == SP_OK)
		return SP_OK;
	(void)fprintf(stderr,
	    "sallyportctl: exec: --timeout \"%s\": expected whole seconds, 1 "
	    "to %d\n",
	    v, TIMEOUT_MAX_S);
	return SP_E_ARG;
}

/* An option that takes a value: 0; SP_E_ARG. */
static int
take_option(struct exec *x, const char *name, const char *v)
{
	if (v == NULL)
		return wrong("option", name, "a value after it");
	if (strcmp(name, "--env") == 0)
		return take_env(x, v);
	if (strcmp(name, "--cwd") == 0)
		x->cwd = v;
	else if (strcmp(name, "--in") == 0)
		x->in = v;
	else if (strcmp(name, "--timeout") == 0)
		return take_timeout(x, v);
	else
		return wrong("option", name,
		    "--keep, --worker, --env, --cwd, --in or --timeout");
	return SP_OK;
}

static int
read_options(struct exec *x, char **argv)
{
	int i = 1;

	for (; argv[i] != NULL; i++) {
		if (strcmp(argv[i], "--") == 0) {
			i++;
			break;
		}
		if (strcmp(argv[i], "--keep") == 0) {
			x->keep = true;
		} else if (strcmp(argv[i], "--worker") == 0) {
			x->worker = true;
		} else if (argv[i][0] == '-') {
			if (take_option(x, argv[i], argv[i + 1]) != SP_OK)
				return SP_E_ARG;
			i++;
		} else if (x->environment == NULL && x->in == NULL) {
			x->environment = argv[i];
		} else {
			break; /* the command, without a -- before it */
		}
	}
	x->argv = &argv[i];
	if (x->environment != NULL && x->in != NULL)
		return wrong("environment", x->environment,
		    "none beside --in, which names an episode");
	if (x->environment == NULL && x->in == NULL)
		return wrong("environment", "", "one, or --in ID");
	if (argv[i] == NULL)
		return wrong("command", "", "a program and its arguments");
	if (x->in != NULL && !id_is_plain(x->in))
		return wrong("--in", x->in, "the id of an episode");
	return SP_OK;
}

static int
put_word(struct jwrite *w, const char *s)
{
	if (!utf8_valid(view_str(s)))
		return SP_E_SYNTAX;
	jwrite_cstr(w, s);
	return SP_OK;
}

/* "NAME": "VALUE"; a name that stands alone has its value from here. */
static int
put_env(const struct exec *x, struct jwrite *w)
{
	struct buf name = BUF_INIT(64 * 1024);
	const char *v;
	size_t i;
	int rc = SP_OK;

	jwrite_key(w, "env");
	jwrite_object(w);
	for (i = 0; i < x->env_n && rc == SP_OK; i++) {
		v = strchr(x->env[i], '=');
		buf_reset(&name, 0);
		rc = buf_add(&name, x->env[i],
		    v != NULL ? (size_t)(v - x->env[i]) : strlen(x->env[i]));
		if (rc == SP_OK)
			rc = buf_add_char(&name, '\0');
		if (rc != SP_OK)
			break;
		v = v != NULL ? v + 1 : getenv(x->env[i]);
		jwrite_key(w, buf_view(&name).p);
		rc = put_word(w, v != NULL ? v : "");
	}
	jwrite_end_object(w);
	buf_clear(&name);
	return rc;
}

/* The line that begins the body. */
static int
put_line(const struct exec *x, bool fresh, struct buf *out)
{
	struct jwrite w;
	char **arg;
	int rc = SP_OK;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "argv");
	jwrite_array(&w);
	for (arg = x->argv; *arg != NULL && rc == SP_OK; arg++)
		rc = put_word(&w, *arg);
	jwrite_end_array(&w);
	if (rc == SP_OK)
		rc = put_env(x, &w);
	if (rc == SP_OK && x->cwd != NULL) {
		jwrite_key(&w, "cwd");
		rc = put_word(&w, x->cwd);
	}
	jwrite_key(&w, "side");
	jwrite_cstr(&w, x->worker ? "worker" : "agent");
	jwrite_key(&w, "timeout_ms");
	jwrite_u64(&w, x->timeout_s * 1000);
	if (fresh) {
		jwrite_key(&w, "environment");
		jwrite_cstr(&w, x->environment);
	}
	jwrite_end_object(&w);
	if (rc == SP_OK)
		rc = jwrite_finish(&w);
	return rc == SP_OK ? buf_add_char(out, '\n') : rc;
}

/* ---- frames --------------------------------------------------------------- */

static int
send_frame(struct exec *x, enum frame_in kind, struct view data)
{
	const unsigned char head[FRAME_HEAD] = { (unsigned char)kind,
		(unsigned char)(data.n >> 24), (unsigned char)(data.n >> 16),
		(unsigned char)(data.n >> 8), (unsigned char)data.n };
	const struct view parts[] = { view_of(head, FRAME_HEAD), data };

	return ctl_http_chunk(&x->send, parts, 2);
}

static int
take_piece(struct exec *x, struct view data)
{
	switch (x->kind) {
	case FRAME_STDOUT:
	case FRAME_STDERR:
		return buf_add_view(&x->out[x->kind - FRAME_STDOUT], data);
	default:
		return buf_add_view(&x->word, data);
	}
}

static int
take_frames(struct exec *x, struct view data)
{
	const unsigned char *h = (const unsigned char *)x->head;
	size_t n;
	int rc = SP_OK;

	for (; data.n > 0 && rc == SP_OK; data = view_from(data, n)) {
		if (x->left > 0) {
			n = data.n < x->left ? data.n : x->left;
			rc = take_piece(x, view_sub(data, 0, n));
			x->left -= (uint32_t)n;
			continue;
		}
		n = 1;
		x->head[x->head_n++] = data.p[0];
		if (x->head_n < FRAME_HEAD)
			continue;
		x->head_n = 0;
		x->kind = h[0];
		x->left = (uint32_t)h[1] << 24 | (uint32_t)h[2] << 16 |
		    (uint32_t)h[3] << 8 | h[4];
		if (x->kind < FRAME_STDOUT || x->kind > FRAME_NOT_STARTED)
			rc = SP_E_PROTO;
		x->has_word = x->kind >= FRAME_EXIT;
	}
	return rc;
}

/* What was read of the reply; SP_E_EOF at its end. */
static int
take_reply(struct exec *x)
{
	struct view data;
	int rc;

	if (x->status == 0) {
		rc = ctl_http_take_head(&x->http, &x->status);
		if (rc != 0)
			return rc == SP_E_AGAIN ? SP_OK : rc;
	}
	while ((rc = ctl_http_take(&x->http, &data)) == 1) {
		rc = x->status == 200 ? take_frames(x, data)
				      : buf_add_view(&x->word, data);
		if (rc != SP_OK)
			return rc;
	}
	return rc == SP_E_AGAIN ? SP_OK : rc == 0 ? SP_E_EOF : rc;
}

/* ---- moving bytes --------------------------------------------------------- */

static int
from_gateway(struct exec *x)
{
	int rc = ctl_http_read(&x->http);

	if (rc == SP_E_EOF)
		return SP_E_GONE;
	if (rc == SP_E_TIMEOUT)
		return SP_OK;
	return rc == SP_OK ? take_reply(x) : rc;
}

static int
to_gateway(struct exec *x)
{
	struct view v = buf_view(&x->send);
	ssize_t n = send(x->http.fd, v.p, v.n, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n > 0)
		buf_consume(&x->send, (size_t)n);
	/* it may have answered and closed: what it said is read first */
	if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
		buf_reset(&x->send, 0);
		x->in_open = false;
	}
	return SP_OK;
}

static int
from_stdin(struct exec *x)
{
	static char data[READ_BYTES];
	ssize_t n = read(STDIN_FILENO, data, sizeof(data));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return SP_OK;
	if (n > 0)
		return send_frame(x, FRAME_STDIN, view_of(data, (size_t)n));
	x->in_open = false;
	return send_frame(x, FRAME_STDIN_END, VIEW_NONE);
}

static int
from_signal(struct exec *x)
{
	struct signalfd_siginfo info;
	char signo;

	if (read(x->signal_fd, &info, sizeof(info)) != sizeof(info))
		return SP_OK;
	signo = (char)info.ssi_signo;
	return send_frame(x, FRAME_SIGNAL, view_of(&signo, 1));
}

static int
to_output(struct exec *x, unsigned which)
{
	struct view v = buf_view(&x->out[which]);
	ssize_t n;

	if (!x->direct[which])
		v = view_sub(v, 0, PIPE_BYTES);
	n = write(which == 0 ? STDOUT_FILENO : STDERR_FILENO, v.p, v.n);
	if (n > 0)
		buf_consume(&x->out[which], (size_t)n);
	else if (errno != EINTR && errno != EAGAIN)
		return errno == EPIPE ? SP_E_REFUSED : SP_E_SYS;
	return SP_OK;
}

enum { AT_GATEWAY, AT_SIGNAL, AT_STDIN, AT_STDOUT, AT_STDERR, AT_N };

static void
wanted(const struct exec *x, struct pollfd p[AT_N])
{
	bool busy = buf_len(&x->out[0]) + buf_len(&x->out[1]) > 0;

	p[AT_GATEWAY] = (struct pollfd){ .fd = x->http.fd };
	/* as fast as the other end of our output takes it */
	if (!busy)
		p[AT_GATEWAY].events |= POLLIN;
	if (buf_len(&x->send) > 0)
		p[AT_GATEWAY].events |= POLLOUT;
	if (p[AT_GATEWAY].events == 0)
		p[AT_GATEWAY].fd = -1;
	p[AT_SIGNAL] = (struct pollfd){ x->signal_fd, POLLIN, 0 };
	p[AT_STDIN] = (struct pollfd){
		x->in_open && buf_len(&x->send) < SEND_MAX ? STDIN_FILENO : -1,
		POLLIN, 0
	};
	p[AT_STDOUT] =
	    (struct pollfd){ buf_len(&x->out[0]) > 0 ? STDOUT_FILENO : -1,
		    POLLOUT, 0 };
	p[AT_STDERR] =
	    (struct pollfd){ buf_len(&x->out[1]) > 0 ? STDERR_FILENO : -1,
		    POLLOUT, 0 };
}

static int
turn(struct exec *x)
{
	struct pollfd p[AT_N];
	int rc = SP_OK;

	wanted(x, p);
	if (poll(p, AT_N, -1) < 0)
		return errno == EINTR ? SP_OK : SP_E_SYS;
	if (p[AT_SIGNAL].revents != 0)
		rc = from_signal(x);
	if (rc == SP_OK && p[AT_STDIN].revents != 0)
		rc = from_stdin(x);
	if (rc == SP_OK && (p[AT_GATEWAY].revents & POLLOUT) != 0)
		rc = to_gateway(x);
	if (rc == SP_OK && p[AT_STDOUT].revents != 0)
		rc = to_output(x, 0);
	if (rc == SP_OK && p[AT_STDERR].revents != 0)
		rc = to_output(x, 1);
	if (rc == SP_OK &&
	    (p[AT_GATEWAY].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
		rc = from_gateway(x);
	return rc;
}

static int
drain(struct exec *x)
{
	unsigned i;
	int rc = SP_OK;

	for (i = 0; i < 2; i++)
		while (rc == SP_OK && buf_len(&x->out[i]) > 0)
			rc = to_output(x, i);
	return rc;
}

/* ---- the end -------------------------------------------------------------- */

static void
say(const char *before, struct view json)
{
	struct buf text = BUF_INIT(WORD_MAX);

	(void)fprintf(stderr, "sallyportctl: exec: %s", before);
	if (ctl_record_string(json, &text) == SP_OK)
		ctl_text_print(stderr, buf_view(&text), NULL);
	(void)fputc('\n', stderr);
	buf_clear(&text);
}

static int
not_started(const struct exec *x)
{
	struct view word = buf_view(&x->word);
	struct view stage = ctl_record_get(word, VIEW("stage"));
	uint64_t number =
	    ctl_record_number(ctl_record_get(word, VIEW("errno")));

	say("not started: ", ctl_record_get(word, VIEW("error")));
	if (!view_eq(stage, VIEW("\"exec\""))) {
		/* "spec": before any, and the words are all there is */
		if (!view_eq(stage, VIEW("\"spec\"")))
			say("at the stage ", stage);
		return EXIT_SANDBOX;
	}
	return number == ENOENT ? EXIT_NONE : EXIT_CANNOT;
}

static int
exit_status(const struct exec *x)
{
	struct view word = buf_view(&x->word), v;
	struct view end = ctl_record_get(word, VIEW("end"));

	v = ctl_record_get(word, VIEW("unclean"));
	if (v.n > 0) {
		say("the episode has not ended: ", v);
		return EXIT_SANDBOX;
	}
	if (view_eq(end, VIEW("\"exit\"")))
		return (int)ctl_record_number(
		    ctl_record_get(word, VIEW("exit_code")));
	v = ctl_record_get(word, VIEW("because"));
	if (v.n > 0)
		say("killed: ", v);
	if (v.n > 0 && view_eq(end, VIEW("\"lost\"")))
		return EXIT_SANDBOX;
	if (view_eq(end, VIEW("\"signal\"")))
		return EXIT_SIGNAL +
		    (int)ctl_record_number(
			ctl_record_get(word, VIEW("signal")));
	say("ended by ", end);
	if (view_eq(end, VIEW("\"timeout\"")))
		return EXIT_TIMEOUT;
	return view_eq(end, VIEW("\"oom\"")) ? EXIT_SIGNAL + SIGKILL
					     : EXIT_SANDBOX;
}

static int
verdict(struct exec *x, int rc)
{
	if (rc == SP_E_REFUSED)
		return EXIT_SIGNAL + SIGPIPE; /* nobody reads our output */
	if (rc != SP_E_EOF)
		return fail("the gateway went away", rc);
	if (drain(x) != SP_OK)
		return EXIT_SIGNAL + SIGPIPE;
	if (x->status != 200) {
		ctl_episodes_complain(x->status, buf_view(&x->word));
		return EXIT_SANDBOX;
	}
	if (!x->has_word)
		return fail("the answer broke off", SP_E_GONE);
	return x->kind == FRAME_NOT_STARTED ? not_started(x) : exit_status(x);
}

/* ---- the whole ------------------------------------------------------------ */

static int
catch_signals(struct exec *x)
{
	static const int forwarded[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT,
		SIGUSR1, SIGUSR2 };
	sigset_t set;
	size_t i;

	(void)sigemptyset(&set);
	for (i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
		(void)sigaddset(&set, forwarded[i]);
	if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
		return SP_E_SYS;
	(void)signal(SIGPIPE, SIG_IGN);
	x->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return x->signal_fd >= 0 ? SP_OK : SP_E_SYS;
}

static bool
is_file(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static int
talk(struct exec *x, const char *id)
{
	struct buf line = BUF_INIT(WORD_MAX * 4), rest = BUF_INIT(1024);
	struct ctl_http_params p = { .url = ctl_socket_url(),
		.location = "/episodes",
		.method = "POST",
		.type = "application/x-sallyport-exec",
		.chunked = true,
		.patient = true };
	const char *why = "the command";
	struct view v;
	int rc;

	rc = put_line(x, id == NULL, &line);
	if (rc == SP_OK)
		rc = buf_printf(&rest, "/%s/exec", id != NULL ? id : "-");
	if (rc == SP_OK)
		rc = buf_add_char(&rest, '\0');
	v = buf_view(&line);
	if (rc == SP_OK)
		rc = ctl_http_chunk(&x->send, &v, 1);
	p.rest = buf_view(&rest).p;
	if (rc == SP_OK)
		rc = p.url != NULL ? ctl_http_open(&p, &x->http, &why)
				   : SP_E_ARG;
	buf_clear(&line);
	buf_clear(&rest);
	if (rc != SP_OK)
		return fail(why, rc);
	while (rc == SP_OK)
		rc = turn(x);
	return verdict(x, rc);
}

/* One that stays: made first, and named. */
static int
keep(const struct exec *x, struct buf *id)
{
	struct buf out = BUF_INIT(WORD_MAX);
	int status = ctl_episodes_create(x->environment, NULL, &out);

	if (status != 0) {
		buf_clear(&out);
		return EXIT_SANDBOX;
	}
	if (ctl_record_string(ctl_record_get(buf_view(&out), VIEW("id")), id) !=
		SP_OK ||
	    buf_add_char(id, '\0') != SP_OK)
		status = fail("the episode's id", SP_E_SYNTAX);
	else
		(void)fprintf(stderr, "sallyportctl: episode %s\n",
		    buf_view(id).p);
	buf_clear(&out);
	return status;
}

int
ctl_exec(int argc, char **argv)
{
	struct exec x = { .in_open = true,
		.http = { .fd = -1 },
		.send = BUF_INIT(SEND_MAX * 32),
		.out = { BUF_INIT(OUT_MAX), BUF_INIT(OUT_MAX) },
		.word = BUF_INIT(WORD_MAX),
		.signal_fd = -1 };
	struct buf id = BUF_INIT(1024);
	int status = 0;

	(void)argc;
	if (read_options(&x, argv) != SP_OK)
		return usage();
	if (catch_signals(&x) != SP_OK)
		return fail("signals", SP_E_SYS);
	x.direct[0] = is_file(STDOUT_FILENO);
	x.direct[1] = is_file(STDERR_FILENO);
	if (x.keep && x.in == NULL)
		status = keep(&x, &id);
	if (status == 0)
		status = talk(&x,
		    x.in != NULL ? x.in
			: x.keep ? buf_view(&id).p
				 : NULL);
	ctl_http_close(&x.http);
	fd_close(&x.signal_fd);
	buf_clear(&x.send);
	buf_clear(&x.out[0]);
	buf_clear(&x.out[1]);
	buf_clear(&x.word);
	buf_clear(&id);
	return status;
}

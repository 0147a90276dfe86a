/* Outside of all blocks. */
#include "base/log.h"
#include "base/num.h"
#include "conf/conf_env.h"
#include "conf/core_conf.h"

#define MAIN(field) offsetof(struct conf_main, field)

#define MIB ((uint64_t)1 << 20)
#define MS_DAY 86400000

enum { CALLS_MAX = 1000000 };

static int
parse_user(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	struct conf_main *m = base;
	size_t i;

	for (i = 1; i < n; i++) {
		if (args[i].n == 0 || args[i].n > 256)
			return conf_error(p,
			    "bad name for \"%s\"; expected the name of a user",
			    row->name);
	}
	if (n > 2 && view_eq(args[1], args[2]))
		return conf_error(p,
		    "reactor and recorder have one user; expected two, or "
		    "one name alone");
	m->user = args[1];
	if (n > 2)
		m->rec_user = args[2];
	return 0;
}

static int
dump_user(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_main *m = base;
	int rc;

	if (m->user.n == 0)
		return 0;
	rc = buf_printf(out, "%s%s ", indent, row->name);
	if (rc == 0)
		rc = conf_dump_word(out, m->user);
	if (rc == 0 && m->rec_user.n > 0)
		rc = buf_add_char(out, ' ');
	if (rc == 0 && m->rec_user.n > 0)
		rc = conf_dump_word(out, m->rec_user);
	return rc == 0 ? buf_add_str(out, ";\n") : rc;
}

static int
parse_error_log(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct conf_main *m = base;
	unsigned i;

	if (args[1].n == 0)
		return conf_error(p, "empty value for \"%s\"; expected %s",
		    row->name, row->args);
	m->error_level = LOG_LEVEL_NOTICE;
	if (n > 2) {
		for (i = 0; i < LOG_LEVEL_N; i++) {
			if (view_eq(args[2], view_str(log_level_name(i))))
				break;
		}
		if (i == LOG_LEVEL_N)
			return conf_error(p,
			    "bad level \"%.*s\" for \"%s\"; expected error, "
			    "warn, notice, info or debug",
			    VIEW_ARG(args[2]), row->name);
		m->error_level = i;
	}
	m->error_log = args[1];
	if (view_eq(args[1], VIEW("stderr")) ||
	    view_eq(args[1], VIEW("syslog")))
		return 0;
	return conf_type_path(p, args[1], &m->error_log);
}

static int
dump_error_log(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_main *m = base;
	int rc;

	rc = buf_printf(out, "%s%s ", indent, row->name);
	if (rc == 0)
		rc = conf_dump_word(out, m->error_log);
	if (rc == 0)
		rc = buf_printf(out, " %s;\n", log_level_name(m->error_level));
	return rc;
}

/* A path, or a word of row->choices instead. */
static int
parse_path_or(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct view *out = (void *)((char *)base + row->offset);
	size_t i;

	(void)n;
	if (args[1].n == 0)
		return conf_error(p, "empty value for \"%s\"; expected %s",
		    row->name, row->args);
	for (i = 0; row->choices[i] != NULL; i++) {
		if (view_eq(args[1], view_str(row->choices[i]))) {
			*out = args[1];
			return 0;
		}
	}
	return conf_type_path(p, args[1], out);
}

static int
dump_path_or(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct view *v = (const void *)((const char *)base + row->offset);
	int rc;

	rc = buf_printf(out, "%s%s ", indent, row->name);
	if (rc == 0)
		rc = conf_dump_word(out, *v);
	return rc == 0 ? buf_add_str(out, ";\n") : rc;
}

static int
parse_resolver(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct conf_main *m = base;
	struct view host, port;
	uint64_t number;
	int family, rc = 0;
	size_t i;

	for (i = 1; i < n && rc == 0; i++) {
		bool good = conf_url_is_ip(args[i], &family);

		if (!good && conf_url_host_port(args[i], &host, &port) == 0)
			good = conf_url_is_ip(host, &family) &&
			    (port.n == 0 ||
				num_u64(port, 1, 65535, &number) == 0);
		if (!good && n == 2)
			good = view_eq(args[i], VIEW("system"));
		if (!good)
			return conf_error(p,
			    "bad value \"%.*s\" for \"%s\"; expected system, "
			    "or addresses with or without a port",
			    VIEW_ARG(args[i]), row->name);
		rc = conf_type_list_add(p, &m->resolver, args[i]);
	}
	return rc;
}

static int
dump_resolver(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_main *m = base;
	size_t i;
	int rc;

	rc = buf_printf(out, "%s%s", indent, row->name);
	for (i = 0; i < m->resolver.n && rc == 0; i++)
		rc = buf_printf(out, " %.*s", VIEW_ARG(m->resolver.v[i]));
	return rc == 0 ? buf_add_str(out, ";\n") : rc;
}

static int
parse_queue(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	struct conf_main *m = base;
	uint64_t calls = 0, ms = 0;

	if (n == 2 && view_eq(args[1], VIEW("off"))) {
		m->queue_n = m->queue_ms = 0;
		return 0;
	}
	if (n != 3 || num_u64(args[1], 1, CALLS_MAX, &calls) != 0 ||
	    num_duration_ms(args[2], &ms) != 0 || ms == 0 || ms > MS_DAY)
		return conf_error(p,
		    "bad value \"%.*s%s%.*s\" for \"%s\"; expected off, or "
		    "a number from 1 to %d and a time from 1ms to 1d",
		    VIEW_ARG(args[1]), n == 3 ? " " : "",
		    VIEW_ARG(n == 3 ? args[2] : VIEW_NONE), row->name,
		    CALLS_MAX);
	m->queue_n = calls;
	m->queue_ms = ms;
	return 0;
}

static int
dump_queue(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_main *m = base;

	if (m->queue_n == 0)
		return buf_printf(out, "%s%s off;\n", indent, row->name);
	return buf_printf(out, "%s%s %llu %llums;\n", indent, row->name,
	    (unsigned long long)m->queue_n, (unsigned long long)m->queue_ms);
}

static const char *const log_words[] = { "off", "stderr", NULL };

const struct conf_directive core_conf_main[] = {
	{ .name = "user",
	    .scopes = CONF_MAIN,
	    .type = CONF_CUSTOM,
	    .flags = CONF_RESTART,
	    .args_min = 1,
	    .args_max = 2,
	    .parse = parse_user,
	    .dump = dump_user,
	    .args = "NAME [ NAME ]",
	    .doc = "The users that reactor and recorder run as when started "
		   "by root.\nWith one name the recorder takes a reserved uid "
		   "of its own.",
	    .def_doc = "sallyport sallyport-rec" },
	{ .name = "trace_group",
	    .scopes = CONF_MAIN,
	    .type = CONF_STRING,
	    .flags = CONF_RESTART,
	    .offset = MAIN(trace_group),
	    .args = "GROUP",
	    .doc = "The group that may read traces.\nWithout one, nobody but "
		   "the recorder may." },
	{ .name = "state_dir",
	    .scopes = CONF_MAIN,
	    .type = CONF_PATH,
	    .flags = CONF_RESTART,
	    .offset = MAIN(state_dir),
	    .args = "PATH",
	    .doc = "The directory of traces and keys.\nIt is made with mode "
		   "0700, and must not lie on an overlay.",
	    .def_doc = "/var/lib/sallyport; for an ordinary user after XDG" },
	{ .name = "error_log",
	    .scopes = CONF_MAIN,
	    .type = CONF_CUSTOM,
	    .args_min = 1,
	    .args_max = 2,
	    .parse = parse_error_log,
	    .dump = dump_error_log,
	    .def = "stderr notice",
	    .args = "stderr | syslog | PATH [ LEVEL ]",
	    .doc = "Where errors are told, and from which level on: error, "
		   "warn, notice, info\nor debug.\nA path lies in a directory "
		   "that root owns." },
	{ .name = "access_log",
	    .scopes = CONF_MAIN,
	    .type = CONF_CUSTOM,
	    .offset = MAIN(access_log),
	    .args_min = 1,
	    .args_max = 1,
	    .choices = log_words,
	    .parse = parse_path_or,
	    .dump = dump_path_or,
	    .def = "off",
	    .args = "PATH | stderr | off",
	    .doc = "Where each request is logged, as one line of JSON." },
	{ .name = "control",
	    .scopes = CONF_MAIN,
	    .type = CONF_CUSTOM,
	    .flags = CONF_RESTART,
	    .args_min = 1,
	    .args_max = 2,
	    .parse = core_conf_control_parse,
	    .dump = core_conf_control_dump,
	    .args = "off | PATH [ GROUP ]",
	    .doc = "A socket for sallyportctl: whoever may open it is asked "
		   "for no token.\nIt is open to root, to sallyport's own "
		   "user, and to the group that is named.\nA default path "
		   "that another sallyport uses is left to that.",
	    .def_doc = "/run/sallyport.sock; for an ordinary user in "
		       "XDG_RUNTIME_DIR, else in state_dir" },
	{ .name = "resolver",
	    .scopes = CONF_MAIN,
	    .type = CONF_CUSTOM,
	    .flags = CONF_RESTART,
	    .args_min = 1,
	    .args_max = 16,
	    .parse = parse_resolver,
	    .dump = dump_resolver,
	    .def = "system",
	    .args = "system | ADDRESS ...",
	    .doc = "Who resolves the names of upstreams." },
	{ .name = "pid_file",
	    .scopes = CONF_MAIN,
	    .type = CONF_PATH,
	    .flags = CONF_RESTART,
	    .offset = MAIN(pid_file),
	    .args = "PATH",
	    .doc = "A file that holds the process id of sallyport." },
	{ .name = "connections",
	    .scopes = CONF_MAIN,
	    .type = CONF_NUMBER,
	    .flags = CONF_RESTART,
	    .offset = MAIN(connections),
	    .min = 1,
	    .max = 1000000,
	    .def = "10240",
	    .args = "NUMBER",
	    .doc = "Most connections of clients at once." },
	{ .name = "max_calls",
	    .scopes = CONF_MAIN,
	    .type = CONF_NUMBER,
	    .offset = MAIN(max_calls),
	    .max = CALLS_MAX,
	    .def = "0",
	    .args = "NUMBER",
	    .doc = "Most model calls in flight, over all doors; 0 sets no "
		   "limit.\nPast it calls wait as queue says, or get 503." },
	{ .name = "max_calls_per_key",
	    .scopes = CONF_MAIN,
	    .type = CONF_NUMBER,
	    .offset = MAIN(max_calls_per_key),
	    .max = CALLS_MAX,
	    .def = "0",
	    .args = "NUMBER",
	    .doc = "The same of one session, or of one address without a "
		   "session's key.\nPast it calls wait as queue says, or get "
		   "429." },
	{ .name = "queue",
	    .scopes = CONF_MAIN,
	    .type = CONF_CUSTOM,
	    .args_min = 1,
	    .args_max = 2,
	    .parse = parse_queue,
	    .dump = dump_queue,
	    .args = "off | NUMBER TIME",
	    .def_doc = "off",
	    .doc = "How many calls wait for a place at most, and for how "
		   "long.\nSessions and addresses get places in turn, each "
		   "its oldest call first.\nIt needs max_calls or "
		   "max_calls_per_key." },
	{ .name = "max_body_bytes_in_flight",
	    .scopes = CONF_MAIN,
	    .type = CONF_SIZE,
	    .offset = MAIN(max_body_bytes_in_flight),
	    .min = 1024,
	    .max = 1024 * 1024 * MIB,
	    .def = "1g",
	    .args = "SIZE",
	    .doc =
		"Most bytes of request bodies that are held at once; past "
		"it requests get 503.\nA body that is larger by itself gets "
		"413.\nListeners of inside have a sixteenth of it, or of "
		"memory_max where that is less, for\neach episode, but a "
		"body always: past it a request gets 429, a WebSocket is "
		"closed\nwith 1013, and other episodes go on.\nAt listeners "
		"of the host nothing is set apart: clients of a location "
		"without a token\nmay hold all of it, and others get 503. "
		"client_body_rate and\nmax_connections_per_address bound what "
		"one of them holds, and for how long." },
	{ .name = "memory_max",
	    .scopes = CONF_MAIN,
	    .type = CONF_SIZE,
	    .offset = MAIN(memory_max_bytes),
	    .min = 16 * MIB,
	    .max = 1024 * 1024 * MIB,
	    .def = "1g",
	    .args = "SIZE",
	    .doc = "Most memory of the process that serves clients.\nFrom "
		   "three quarters of it on new requests get 503, and so does "
		   "/health, from nine\ntenths on nothing is read, and what "
		   "holds most is ended." },
	{ .name = "recorder_memory_max",
	    .scopes = CONF_MAIN,
	    .type = CONF_SIZE,
	    .flags = CONF_RESTART,
	    .offset = MAIN(recorder_memory_max_bytes),
	    .min = 16 * MIB,
	    .max = 1024 * 1024 * MIB,
	    .def = "1g",
	    .args = "SIZE",
	    .doc = "Most memory of the recorder.\nFrom three quarters of it "
		   "on upstreams are paused, from nine tenths on new calls get"
		   "\n503, and the largest turns are cut short and marked as "
		   "truncated." },
	{ .name = "drain_timeout",
	    .scopes = CONF_MAIN,
	    .type = CONF_DURATION,
	    .offset = MAIN(drain_timeout_ms),
	    .min = 0,
	    .max = MS_DAY,
	    .def = "30s",
	    .args = "TIME | off",
	    .doc = "How long a stop waits for calls in flight; with off it "
		   "does not wait.\n"
		   "It does not wait for observers, nor for streams and "
		   "WebSockets without a call." },
	{ .name = "recorder_buffer",
	    .scopes = CONF_MAIN,
	    .type = CONF_SIZE,
	    .flags = CONF_RESTART,
	    .offset = MAIN(recorder_buffer_bytes),
	    .min = MIB,
	    .max = 65536 * MIB,
	    .def = "64m",
	    .args = "SIZE",
	    .doc = "Memory for what the recorder has not yet taken, over all "
		   "turns." },
	{ .name = "upstream",
	    .scopes = CONF_MAIN,
	    .type = CONF_BLOCK,
	    .flags = CONF_REPEATS,
	    .opens = CONF_UPSTREAM,
	    .args_min = 1,
	    .args_max = 1,
	    .parse = core_conf_upstream_block,
	    .args = "NAME",
	    .doc = "A model's servers, under a name that locations use." },
	{ .name = "capture",
	    .scopes = CONF_MAIN,
	    .type = CONF_BLOCK,
	    .flags = CONF_REPEATS,
	    .opens = CONF_CAPTURE,
	    .args_min = 1,
	    .args_max = 1,
	    .parse = core_conf_capture_block,
	    .args = "NAME",
	    .doc = "What is recorded of model calls, and where, under a name "
		   "that locations use." },
	{ .name = "environment",
	    .scopes = CONF_MAIN,
	    .type = CONF_BLOCK,
	    .flags = CONF_REPEATS,
	    .opens = CONF_ENVIRONMENT,
	    .args_min = 1,
	    .args_max = 1,
	    .parse = core_conf_env_block,
	    .args = "NAME",
	    .doc = "What episodes run in: files, sandbox, network and "
		   "programs, under a name that\nlocations use." },
	{ .name = "server",
	    .scopes = CONF_MAIN,
	    .type = CONF_BLOCK,
	    .flags = CONF_REPEATS | CONF_REQUIRED,
	    .opens = CONF_SERVER,
	    .parse = core_conf_server_block,
	    .doc = "Doors at one or more addresses." },
	{ .name = NULL },
};

static int
default_path(struct conf_parse *p, const char *given, const char *built,
    struct view *v)
{
	if (v->n > 0)
		return 0;
	if (arena_dup(p->arena, view_str(given != NULL ? given : built), v) !=
	    0)
		return conf_nomem(p);
	return 0;
}

/* The limits of servers and locations refuse at once. */
static int
check_queue(struct conf_parse *p, const struct conf_block *b)
{
	const struct conf_main *m = &p->conf->main;

	if (m->queue_n == 0 || m->max_calls > 0 || m->max_calls_per_key > 0)
		return 0;
	return conf_error_at(p, conf_block_set(b, "queue"),
	    "\"queue\" without a limit past which calls wait; expected "
	    "max_calls or max_calls_per_key beside it, or queue off");
}

/* What depends on who runs it. */
int
core_conf_main_finish(struct conf_parse *p, const struct conf_block *b)
{
	static const struct conf_defaults none = { .state_dir = NULL };
	const struct conf_defaults *d =
	    p->defaults != NULL ? p->defaults : &none;
	struct conf_main *m = &p->conf->main;
	int rc = check_queue(p, b);

	if (rc != 0 && rc != SP_E_CONF)
		return rc;
	rc = default_path(p, d->state_dir, SP_STATEDIR, &m->state_dir);
	while (rc == 0 && m->state_dir.n > 1 &&
	    m->state_dir.p[m->state_dir.n - 1] == '/')
		m->state_dir.n--;
	return rc == 0 ? core_conf_control_default(p) : rc;
}

/* A module's check() of a location, at the place of its handler. */
static int
check_location(struct conf_parse *p, struct conf_location *loc)
{
	const struct conf_file file = { .name = loc->pos.file };
	const struct conf_node at = { .file = &file,
		.line = loc->pos.line,
		.seq = ~0U };
	int i, rc;

	if (loc->handler == NULL || loc->handler->check == NULL)
		return 0;
	i = conf_module_index(loc->handler->name);
	p->node = &at;
	p->location = loc;
	rc = loc->handler->check(p, loc->module_conf[i]);
	p->node = &p->root;
	p->location = NULL;
	return rc;
}

static int
check_servers(struct conf_parse *p, struct conf_server *const *servers,
    size_t n)
{
	size_t i, j;
	int rc;

	for (i = 0; i < n; i++) {
		for (j = 0; j < servers[i]->locations_n; j++) {
			rc = check_location(p, servers[i]->locations[j]);
			if (rc != 0 && rc != SP_E_CONF)
				return rc;
		}
	}
	return 0;
}

int
core_conf_main_check(struct conf_parse *p)
{
	const struct conf *c = p->conf;
	size_t i;
	int rc;

	rc = core_conf_server_check(p);
	if (rc == 0)
		rc = core_conf_env_check(p);
	/* Modules may trust what they see: only a whole configuration. */
	if (rc == 0 && !p->failed)
		rc = core_conf_control_build(p);
	if (rc != 0 || p->failed)
		return rc;
	rc = check_servers(p, c->servers, c->servers_n);
	for (i = 0; i < c->environments_n && rc == 0; i++)
		rc = check_servers(p, c->environments[i]->insides,
		    c->environments[i]->insides_n);
	if (rc == 0 && c->control != NULL)
		rc = check_servers(p, &c->control, 1);
	return rc;
}

#include "config.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gate/gate_priv.h"
#include "json/jwrite.h"
#include "net/tls.h"
#include "os/confine.h"
#include "os/fd.h"
#include "os/sock.h"

enum {
	GATE_FULL_MS = 20, /* how often a full gate looks for room */
	GATE_DRAIN_MS = 20, /* the same for what is still to leave */
	GATE_LAST_MS = 500, /* what the deadline leaves for goodbyes */
	GATE_ERROR_MAX = 64 * 1024,
	GATE_SCRATCH_MAX = 1024 * 1024,
	GATE_BODY_WINDOW = 256 * 1024,
};

/* ---- errors --------------------------------------------------------------- */

/* OpenAI's types of errors, by status. */
static const char *
gate_error_type(unsigned status)
{
	switch (status) {
	case 401:
		return "authentication_error";
	case 403:
		return "permission_error";
	case 404:
		return "not_found_error";
	case 408:
	case 504:
		return "timeout_error";
	case 429:
		return "rate_limit_error";
	case 502:
		return "upstream_error";
	default:
		return status >= 500 ? "server_error" : "invalid_request_error";
	}
}

int
gate_error_body(unsigned status, const char *code, struct view message,
    struct buf *out)
{
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "error");
	jwrite_object(&w);
	jwrite_key(&w, "message");
	jwrite_string(&w, message);
	jwrite_key(&w, "type");
	jwrite_cstr(&w, gate_error_type(status));
	jwrite_key(&w, "param");
	jwrite_null(&w);
	jwrite_key(&w, "code");
	jwrite_cstr(&w, code);
	jwrite_end_object(&w);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

static int
gate_send_error(const struct gate_request *r, unsigned status, struct view body)
{
	struct exchange *x = r->x;
	struct head_field fields[2] = { { VIEW("Content-Type"),
	    VIEW("application/json") } };
	struct head_reply head = {
		.status = status,
		.content_length = (int64_t)body.n,
		.fields = { .v = fields, .n = 1, .cap = 2 },
	};
	int rc;

	/* RFC 6750 s3, RFC 9110 s10.2.3, s15.5.6 */
	if (status == 401)
		fields[head.fields.n++] =
		    (struct head_field){ VIEW("WWW-Authenticate"),
			    VIEW("Bearer") };
	if (status == 503)
		fields[head.fields.n++] =
		    (struct head_field){ VIEW("Retry-After"), VIEW("1") };
	if (status == 405 && r->allow != NULL)
		fields[head.fields.n++] =
		    (struct head_field){ VIEW("Allow"), view_str(r->allow) };
	rc = exchange_head(x, &head);
	if (rc == SP_OK && !x->reply_bodyless)
		rc = exchange_data(x, body);
	return rc == SP_OK ? exchange_end(x) : rc;
}

int
gate_error(struct gate_request *r, unsigned status, const char *code,
    const char *fmt, ...)
{
	struct buf text = BUF_INIT(4096);
	struct buf body = BUF_INIT(GATE_ERROR_MAX);
	va_list ap;
	int rc;

	if (r->x == NULL)
		return SP_E_GONE;
	if (r->x->state != EXCHANGE_REQUEST)
		return SP_E_STATE;
	r->status = status;
	va_start(ap, fmt);
	rc = buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (rc == SP_OK)
		rc = gate_error_body(status, code, buf_view(&text), &body);
	if (rc == SP_OK)
		rc = gate_send_error(r, status, buf_view(&body));
	buf_clear(&text);
	buf_clear(&body);
	return rc;
}

/* What the codec refuses is answered in the same shape. */
static struct view
gate_codec_error(void *server, unsigned status, const char *what,
    struct view *type)
{
	struct gate *g = server;

	buf_reset(&g->scratch, SIZE_MAX);
	*type = VIEW("application/json");
	if (gate_error_body(status, "bad_request", view_str(what),
		&g->scratch) != SP_OK) {
		*type = VIEW("text/plain");
		return view_str(what);
	}
	return buf_view(&g->scratch);
}

/* ---- metrics -------------------------------------------------------------- */

static void
gate_collect(void *arg)
{
	struct gate *g = arg;
	struct h1_server_stats st;

	h1_server_stats(g->h1, &st);
	*g->connections = st.connections;
	*g->accepted = st.accepted;
	*g->streams = g->walks_n;
	*g->malformed = st.malformed;
	*g->lost_lines = access_lost(g->access);
	*g->turns_open = turn_recorder_open(g->recorder);
	*g->backlog = turn_recorder_backlog(g->recorder);
	*g->recorder_up = turn_recorder_ok(g->recorder, NULL);
}

static void
gate_observe(void *arg, const struct turn_facts *facts)
{
	static const char *const levels[] = {
		[CONF_LEVEL_TEXT] = "text",
		[CONF_LEVEL_LOGPROBS] = "logprobs",
		[CONF_LEVEL_TOKENS] = "tokens",
	};
	struct gate *g = arg;
	const struct view labels[] = {
		facts->finish_reason.n > 0 ? facts->finish_reason
					   : VIEW("none"),
		facts->capture != NULL ? view_str(levels[facts->capture->level])
				       : VIEW("lost"),
	};

	metrics_observe_us(g->ack, NULL, facts->ack_us);
	if (!facts->ok) {
		++*g->turns_failed;
		return;
	}
	metrics_inc(metrics_cell(g->turns, labels));
	*g->tokens += facts->tokens;
}

static int
gate_labelled_metrics(struct gate *g)
{
	static const char *const requests[] = { "module", "code", NULL };
	static const char *const turns[] = { "finish_reason", "level", NULL };
	static const char *const role[] = { "role", NULL };
	static const char *const build[] = { "version", "confinement", NULL };
	static const double ack[] = { 0.0001, 0.00025, 0.0005, 0.001, 0.0025,
		0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 0 };
	const struct view roles[2] = { VIEW("reactor"), VIEW("recorder") };
	const struct view built[2] = { VIEW(PACKAGE_VERSION),
		confine_built() ? VIEW("on") : VIEW("off") };
	struct metric *restarts, *info;

	g->requests = metrics_register(g->metrics, METRICS_COUNTER, "requests",
	    "Requests that are over, by module and status", requests, NULL);
	g->turns = metrics_register(g->metrics, METRICS_COUNTER, "turns",
	    "Turns on file, by finish_reason and level of capture", turns,
	    NULL);
	g->ack = metrics_register(g->metrics, METRICS_HISTOGRAM,
	    "recorder_ack_seconds",
	    "From the end of a turn to the word that it is on file", NULL, ack);
	restarts = metrics_register(g->metrics, METRICS_COUNTER, "restarts",
	    "Restarts of a role since the start", role, NULL);
	info = metrics_register(g->metrics, METRICS_GAUGE, "build_info",
	    "Always 1; what this is", build, NULL);
	if (g->requests == NULL || g->turns == NULL || g->ack == NULL ||
	    restarts == NULL || info == NULL)
		return SP_E_NOMEM;
	g->restarts[0] = metrics_cell(restarts, &roles[0]);
	g->restarts[1] = metrics_cell(restarts, &roles[1]);
	*metrics_cell(info, built) = 1;
	return SP_OK;
}

static int
gate_plain_metrics(struct gate *g)
{
	uint64_t *start;
	const struct {
		uint64_t **cell;
		enum metrics_kind kind;
		const char *name, *help;
	} rows[] = {
		{ &g->connections, METRICS_GAUGE, "connections_open",
		    "Client connections" },
		{ &g->accepted, METRICS_COUNTER, "connections",
		    "Client connections accepted" },
		{ &g->streams, METRICS_GAUGE, "exchanges_open",
		    "Requests that are being served" },
		{ &g->malformed, METRICS_COUNTER, "malformed_requests",
		    "Requests that were not HTTP as it must be" },
		{ &g->lost_lines, METRICS_COUNTER, "access_log_lost",
		    "Writes to the access log that failed" },
		{ &g->tokens, METRICS_COUNTER, "completion_tokens",
		    "Completion tokens of turns on file" },
		{ &g->turns_failed, METRICS_COUNTER, "turns_failed",
		    "Turns that the recorder could not write" },
		{ &g->turns_open, METRICS_GAUGE, "turns_open",
		    "Turns that the recorder has not filed yet" },
		{ &g->backlog, METRICS_GAUGE, "recorder_backlog_bytes",
		    "Bytes that the recorder has not taken yet" },
		{ &g->recorder_up, METRICS_GAUGE, "recorder_up",
		    "1 while the recorder accepts turns" },
		{ &start, METRICS_GAUGE, "process_start_time_seconds",
		    "Start of the process since 1970" },
	};
	struct metric *m;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		m = metrics_register(g->metrics, rows[i].kind, rows[i].name,
		    rows[i].help, NULL, NULL);
		if (m == NULL)
			return SP_E_NOMEM;
		*rows[i].cell = metrics_cell(m, NULL);
	}
	*start = clock_wall_us() / 1000000;
	return metrics_on_collect(g->metrics, gate_collect, g);
}

static int
gate_metrics_init(struct gate *g)
{
	int rc;

	g->metrics = metrics_new();
	if (g->metrics == NULL)
		return SP_E_NOMEM;
	rc = gate_labelled_metrics(g);
	return rc == SP_OK ? gate_plain_metrics(g) : rc;
}

/* ---- listeners ------------------------------------------------------------ */

static int
gate_tls_server(const struct conf_server *s, struct tls_ctx **out,
    struct buf *err)
{
	static const struct view alpn[] = { { "http/1.1", 8 } };
	int rc;

	if (s->certificate == NULL || s->certificate->value.p == NULL ||
	    s->certificate_key == NULL || s->certificate_key->value.p == NULL) {
		rc = buf_printf(err,
		    "%s:%u: server listens with ssl and has no certificate; "
		    "expected certificate and certificate_key",
		    s->pos.file, s->pos.line);
		return rc == SP_OK ? SP_E_CONF : rc;
	}
	rc = buf_printf(err, "%s:%u: ", s->pos.file, s->pos.line);
	if (rc == SP_OK)
		rc = tls_server_new(s->certificate->value,
		    s->certificate_key->value, alpn, 1, out, err);
	if (rc == SP_OK)
		buf_reset(err, SIZE_MAX);
	return rc;
}

/* The first server's certificate, the others' by SNI. */
static int
gate_listener_tls(struct gate_listener *l, struct buf *err)
{
	struct tls_ctx *other;
	size_t i, j;
	int rc;

	if (!l->conf->ssl)
		return SP_OK;
	rc = gate_tls_server(l->servers[0], &l->tls, err);
	for (i = 1; i < l->servers_n && rc == SP_OK; i++) {
		const struct conf_list *names = &l->servers[i]->server_names;

		rc = gate_tls_server(l->servers[i], &other, err);
		if (rc != SP_OK)
			break;
		for (j = 0; j < names->n && rc == SP_OK; j++) {
			rc = tls_server_add_name(l->tls, names->v[j], other);
			/* no name of a certificate: it is never chosen by it */
			if (rc == SP_E_ARG || rc == SP_E_EXISTS)
				rc = SP_OK;
		}
		tls_unref(other);
	}
	return rc;
}

static void
gate_listener_limits(struct gate_listener *l)
{
	const struct conf_limits *c = &l->servers[0]->limits;

	l->limits = (struct h1_limits){
		.header_timeout_ms = c->client_header_timeout_ms,
		.body_timeout_ms = c->client_body_timeout_ms,
		.send_timeout_ms = c->send_timeout_ms,
		.keepalive_timeout_ms = c->keepalive_timeout_ms,
		.keepalive_requests = c->keepalive_requests,
		.header_line_max = c->header_line_max_bytes,
		.header_max = c->header_max_bytes,
		.header_max_n = c->header_max_n,
		.output_buffer = c->output_buffer_bytes,
		.body_window = GATE_BODY_WINDOW,
	};
}

static int
gate_listener_name(struct gate_listener *l)
{
	const struct conf_listen *c = l->conf;
	bool v6 = !c->is_unix && view_find(c->address, ':') < c->address.n;
	struct buf b = BUF_INIT(1024);
	int rc;

	if (c->is_unix)
		rc = buf_printf(&b, "unix:%.*s", VIEW_ARG(c->address));
	else
		rc = buf_printf(&b, "%s%.*s%s:%u", v6 ? "[" : "",
		    VIEW_ARG(c->address), v6 ? "]" : "", c->port);
	if (rc == SP_OK) {
		l->name = mem_strndup(buf_view(&b).p, buf_len(&b));
		rc = l->name == NULL ? SP_E_NOMEM : SP_OK;
	}
	buf_clear(&b);
	return rc;
}

/* Each server stands at each of its addresses. */
static int
gate_listeners_fill(struct gate *g)
{
	size_t i, j;

	for (i = 0; i < g->conf->servers_n; i++) {
		const struct conf_server *s = g->conf->servers[i];

		for (j = 0; j < s->listens_n; j++) {
			struct gate_listener *l =
			    &g->listeners[s->listens[j].index];

			if (l->servers == NULL)
				l->servers = mem_calloc(g->conf->servers_n,
				    sizeof(const struct conf_server *));
			if (l->servers == NULL)
				return SP_E_NOMEM;
			if (l->servers_n == 0)
				l->conf = &s->listens[j];
			l->servers[l->servers_n++] = s;
		}
	}
	return SP_OK;
}

static int
gate_listeners_init(struct gate *g, struct buf *err)
{
	size_t i;
	int rc;

	g->listeners =
	    mem_calloc(g->conf->listens_n + 1, sizeof(*g->listeners));
	if (g->listeners == NULL)
		return SP_E_NOMEM;
	g->listeners_n = g->conf->listens_n;
	rc = gate_listeners_fill(g);
	for (i = 0; i < g->listeners_n && rc == SP_OK; i++) {
		g->listeners[i].gate = g;
		err_assert(g->listeners[i].servers_n > 0);
		gate_listener_limits(&g->listeners[i]);
		rc = gate_listener_name(&g->listeners[i]);
		if (rc == SP_OK)
			rc = gate_listener_tls(&g->listeners[i], err);
	}
	return rc;
}

static void
gate_listeners_pause(struct gate *g, bool paused)
{
	size_t i;

	for (i = 0; i < g->listeners_n; i++)
		if (g->listeners[i].listener != NULL)
			listener_pause(g->listeners[i].listener, paused);
}

static void
gate_listeners_close(struct gate *g)
{
	size_t i;

	for (i = 0; i < g->listeners_n; i++) {
		if (g->listeners[i].listener != NULL)
			listener_free(g->listeners[i].listener);
		g->listeners[i].listener = NULL;
	}
}

static bool
gate_is_full(const struct gate *g)
{
	struct h1_server_stats st;

	h1_server_stats(g->h1, &st);
	return st.connections >= g->conf->main.connections;
}

static void
gate_accept(void *arg, struct listener *from, int fd)
{
	struct gate_listener *l = arg;
	struct gate *g = l->gate;
	int rc;

	(void)from;
	rc = h1_server_accept(g->h1, fd, l->tls, l->conf->index, &l->limits);
	if (rc != SP_OK)
		log_warn("%s: a connection was dropped: %s", l->name,
		    err_str(rc));
	if (!g->full && gate_is_full(g)) {
		g->full = true;
		log_warn("%llu connections are open, the most that are "
			 "allowed: no more until one closes; see connections",
		    (unsigned long long)g->conf->main.connections);
		gate_listeners_pause(g, true);
		loop_timer_set(g->timer, GATE_FULL_MS);
	}
}

/* The port that the kernel chose, for the log. */
static void
gate_listener_bound(struct gate_listener *l, int fd)
{
	struct buf b = BUF_INIT(1024);
	char *name = NULL;

	if (!l->conf->is_unix && l->conf->port == 0 &&
	    sock_name(fd, &b) == SP_OK)
		name = mem_strndup(buf_view(&b).p, buf_len(&b));
	buf_clear(&b);
	if (name != NULL) {
		mem_free(l->name);
		l->name = name;
	}
}

int
gate_listen(struct gate *g, unsigned index, int fd)
{
	struct gate_listener *l;
	int rc;

	if (index >= g->listeners_n || g->listeners[index].listener != NULL) {
		fd_close(&fd);
		return SP_E_ARG;
	}
	l = &g->listeners[index];
	gate_listener_bound(l, fd);
	rc = listener_new(g->loop, fd, gate_accept, l, &l->listener);
	if (rc == SP_OK)
		listener_pause(l->listener, !g->started);
	return rc;
}

/* ---- life ----------------------------------------------------------------- */

const struct gate_module *
gate_module_of(const struct conf_module *conf)
{
	size_t i;

	for (i = 0; gate_modules[i] != NULL; i++)
		if (gate_modules[i]->conf == conf)
			return gate_modules[i];
	return NULL;
}

/* Every location has its module linked here. */
static int
gate_check_modules(const struct conf *conf, struct buf *err)
{
	size_t i, j;

	for (i = 0; i < conf->servers_n; i++)
		for (j = 0; j < conf->servers[i]->locations_n; j++) {
			const struct conf_location *l =
			    conf->servers[i]->locations[j];

			if (gate_module_of(l->handler) != NULL)
				continue;
			if (buf_printf(err, "%s:%u: no module \"%s\" here",
				l->pos.file, l->pos.line,
				l->handler->name) != SP_OK)
				return SP_E_NOMEM;
			return SP_E_CONF;
		}
	return SP_OK;
}

static int
gate_setup_modules(struct gate *g)
{
	const struct gate_module *m;
	int rc = SP_OK;

	while (rc == SP_OK && (m = gate_modules[g->modules_set_up]) != NULL) {
		if (m->setup != NULL)
			rc = m->setup(g);
		/* one that failed half way is stopped, too */
		g->modules_set_up++;
	}
	return rc;
}

static bool
gate_drained_now(const struct gate *g)
{
	return g->walks_n == 0 && turn_recorder_backlog(g->recorder) == 0;
}

static void
gate_tell_drained(struct gate *g)
{
	if (g->drained_told)
		return;
	g->drained_told = true;
	loop_timer_stop(g->timer);
	g->drained(g->drained_arg);
}

static void
gate_on_drain_task(void *arg)
{
	struct gate *g = arg;

	if (!g->draining || g->drained_told)
		return;
	if (gate_drained_now(g))
		gate_tell_drained(g);
	else if (!g->deadline)
		loop_timer_set(g->timer, GATE_DRAIN_MS);
}

static void
gate_on_timer(void *arg)
{
	struct gate *g = arg;

	if (g->draining) {
		if (g->deadline)
			gate_tell_drained(g);
		else
			gate_on_drain_task(g);
		return;
	}
	if (!g->full)
		return;
	if (gate_is_full(g)) {
		loop_timer_set(g->timer, GATE_FULL_MS);
		return;
	}
	g->full = false;
	gate_listeners_pause(g, false);
}

void
gate_walk_over(struct gate *g)
{
	if (g->draining && g->walks_n == 0)
		loop_task_post(g->drain_task);
}

static int
gate_init(struct gate *g, struct buf *err)
{
	int rc;

	buf_init(&g->scratch, GATE_SCRATCH_MAX);
	LIST_INIT(&g->walks);
	rc = gate_check_modules(g->conf, err);
	if (rc != SP_OK)
		return rc;
	g->timer = loop_timer_new(g->loop, gate_on_timer, g);
	g->drain_task = loop_task_new(g->loop, gate_on_drain_task, g);
	g->access = access_new(g->loop);
	g->recorder = turn_recorder_new(g->loop,
	    (size_t)g->conf->main.recorder_buffer_bytes);
	g->h1 = h1_server_new(g->loop, &walk_consumer, g, gate_codec_error);
	if (g->timer == NULL || g->drain_task == NULL || g->access == NULL ||
	    g->recorder == NULL || g->h1 == NULL)
		return SP_E_NOMEM;
	rc = gate_metrics_init(g);
	if (rc == SP_OK)
		rc =
		    forward_new(g->loop, g->conf, g->metrics, &g->forward, err);
	if (rc == SP_OK)
		rc = gate_listeners_init(g, err);
	if (rc == SP_OK)
		rc = gate_setup_modules(g);
	turn_recorder_observe(g->recorder, gate_observe, g);
	return rc;
}

int
gate_new(struct loop *l, const struct conf *conf, struct gate **out,
    struct buf *err)
{
	struct gate *g = mem_calloc(1, sizeof(*g));
	int rc;

	if (g == NULL)
		return SP_E_NOMEM;
	g->loop = l;
	g->conf = conf;
	rc = gate_init(g, err);
	if (rc != SP_OK) {
		gate_free(g);
		return rc;
	}
	*out = g;
	return SP_OK;
}

void
gate_free(struct gate *g)
{
	size_t i;

	if (g == NULL)
		return;
	gate_listeners_close(g);
	/* the open requests end here: FINISH runs for each */
	h1_server_free(g->h1);
	for (i = g->modules_set_up; i-- > 0;)
		if (gate_modules[i]->stop != NULL)
			gate_modules[i]->stop(g);
	for (i = 0; i < g->listeners_n; i++) {
		tls_unref(g->listeners[i].tls);
		mem_free(g->listeners[i].servers);
		mem_free(g->listeners[i].name);
	}
	mem_free(g->listeners);
	forward_free(g->forward);
	turn_recorder_free(g->recorder);
	access_free(g->access);
	metrics_free(g->metrics);
	loop_timer_free(g->timer);
	loop_task_free(g->drain_task);
	buf_clear(&g->scratch);
	mem_free(g);
}

int
gate_start(struct gate *g)
{
	size_t i;
	int rc = SP_OK;

	for (i = 0; gate_modules[i] != NULL && rc == SP_OK; i++)
		if (gate_modules[i]->start != NULL)
			rc = gate_modules[i]->start(g);
	if (rc != SP_OK)
		return rc;
	g->started = true;
	gate_listeners_pause(g, false);
	return SP_OK;
}

void
gate_drain(struct gate *g, void (*drained)(void *arg), void *arg)
{
	if (g->draining)
		return;
	g->draining = true;
	g->drained = drained;
	g->drained_arg = arg;
	gate_listeners_close(g);
	h1_server_drain(g->h1);
	loop_task_post(g->drain_task);
}

void
gate_drain_deadline(struct gate *g)
{
	if (!g->draining || g->drained_told || g->deadline)
		return;
	log_warn("the drain's deadline has passed: %llu requests are cut",
	    (unsigned long long)g->walks_n);
	walk_abort_all(g);
	g->deadline = true;
	loop_timer_set(g->timer, GATE_LAST_MS);
	loop_task_post(g->drain_task);
}

bool
gate_healthy(const struct gate *g, const char **why)
{
	const char *ignored;

	if (why == NULL)
		why = &ignored;
	if (g->draining) {
		*why = "draining";
		return false;
	}
	/* without a capture there is nothing to record */
	if (g->conf->captures_n == 0) {
		*why = "";
		return true;
	}
	return turn_recorder_ok(g->recorder, why);
}

bool
gate_draining(const struct gate *g)
{
	return g->draining;
}

struct loop *
gate_loop(const struct gate *g)
{
	return g->loop;
}

const struct conf *
gate_conf(const struct gate *g)
{
	return g->conf;
}

struct metrics *
gate_metrics(const struct gate *g)
{
	return g->metrics;
}

struct recorder *
gate_recorder(const struct gate *g)
{
	return g->recorder;
}

struct forward *
gate_forward(const struct gate *g)
{
	return g->forward;
}

void
gate_set_restarts(struct gate *g, uint32_t reactor, uint32_t recorder)
{
	*g->restarts[0] = reactor;
	*g->restarts[1] = recorder;
}

void
gate_set_access_log(struct gate *g, int fd)
{
	access_set_fd(g->access, fd);
}

void
gate_resume(struct gate_request *r, enum gate_verdict v)
{
	walk_resume(r, v);
}

void
gate_finish(struct gate_request *r)
{
	walk_finish(r);
}

/* capture NAME { ... } */
#include "base/num.h"
#include "conf/core_conf.h"

#define CAP(field) offsetof(struct conf_capture, field)

static const char *const levels[] = { "text", "logprobs", "tokens", NULL };
static const char *const thinkings[] = { "client", "off", NULL };
static const char *const refusals[] = { "fail", "retry", NULL };
static const char *const token_ids[] = { "auto", "on", "off", NULL };

/* Set by directives of their own, or no sampling parameter at all. */
static const char *const reserved[] = { "logprobs", "top_logprobs",
	"max_tokens", "max_completion_tokens", "model", "stream", "messages",
	"prompt", "stream_options", "return_token_ids", "n_probs",
	"chat_template_kwargs", "tools", "api_key", "api_base", NULL };

/* RFC 8259 s6 */
static bool
is_json_number(struct view v)
{
	size_t i = 0, from;
	double d;

	if (i < v.n && v.p[i] == '-')
		i++;
	for (from = i; i < v.n && v.p[i] >= '0' && v.p[i] <= '9'; i++)
		continue;
	if (i == from || (v.p[from] == '0' && i - from > 1))
		return false;
	if (i < v.n && v.p[i] == '.') {
		for (from = ++i; i < v.n && v.p[i] >= '0' && v.p[i] <= '9'; i++)
			continue;
		if (i == from)
			return false;
	}
	if (i < v.n && (v.p[i] == 'e' || v.p[i] == 'E')) {
		i++;
		if (i < v.n && (v.p[i] == '+' || v.p[i] == '-'))
			i++;
		for (from = i; i < v.n && v.p[i] >= '0' && v.p[i] <= '9'; i++)
			continue;
		if (i == from)
			return false;
	}
	return i == v.n && num_double(v, &d) == 0;
}

static bool
is_parameter(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++) {
		char c = v.p[i];

		if ((c >= 'a' && c <= 'z') || c == '_' ||
		    (i > 0 && c >= '0' && c <= '9'))
			continue;
		return false;
	}
	return v.n > 0 && v.n <= CONF_NAME_MAX;
}

bool
conf_sampling_reserved(struct view name)
{
	size_t i;

	for (i = 0; reserved[i] != NULL; i++)
		if (view_eq(name, view_str(reserved[i])))
			return true;
	return false;
}

static int
sampling_one(struct conf_parse *p, const struct conf_capture *c,
    struct view arg, struct conf_sampling *out)
{
	size_t eq = view_find(arg, '='), i;

	out->name = view_sub(arg, 0, eq);
	out->value = view_from(arg, eq + 1);
	if (!is_parameter(out->name) || !is_json_number(out->value))
		return conf_error(p,
		    "bad sampling parameter \"%.*s\"; expected NAME=NUMBER "
		    "like temperature=1.0",
		    VIEW_ARG(arg));
	if (conf_sampling_reserved(out->name))
		return conf_error(p,
		    "\"%.*s\" is not for sampling to set; expected "
		    "parameters like temperature, top_p or top_k",
		    VIEW_ARG(out->name));
	for (i = 0; i < c->sampling_n; i++) {
		if (view_eq(out->name, c->sampling[i].name))
			return conf_error(p,
			    "duplicate sampling parameter \"%.*s\"; expected "
			    "each once",
			    VIEW_ARG(out->name));
	}
	return 0;
}

static int
parse_sampling(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct conf_capture *c = base;
	size_t i;
	int rc;

	(void)row;
	c->sampling = conf_alloc(p, (n - 1) * sizeof(*c->sampling));
	if (c->sampling == NULL)
		return SP_E_NOMEM;
	for (i = 1; i < n; i++) {
		rc = sampling_one(p, c, args[i], &c->sampling[c->sampling_n]);
		if (rc != 0)
			return rc;
		c->sampling_n++;
	}
	return 0;
}

static int
dump_sampling(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_capture *c = base;
	size_t i;
	int rc;

	if (c->sampling_n == 0)
		return 0;
	rc = buf_printf(out, "%s%s", indent, row->name);
	for (i = 0; i < c->sampling_n && rc == 0; i++)
		rc =
		    buf_printf(out, " %.*s=%.*s", VIEW_ARG(c->sampling[i].name),
			VIEW_ARG(c->sampling[i].value));
	return rc == 0 ? buf_add_str(out, ";\n") : rc;
}

/* Only $session, only in the file's name, and no way up. */
static int
check_trace(struct conf_parse *p, struct view path, size_t slash)
{
	static const struct view var = { "$session", 8 };
	struct view rest = path, piece;
	size_t at;

	while (view_split(&rest, '/', &piece)) {
		if (view_eq(piece, VIEW("..")))
			return conf_error(p,
			    "trace \"%.*s\" holds \"..\"; expected a path "
			    "under state_dir or an absolute one",
			    VIEW_ARG(path));
	}
	if (slash + 1 == path.n)
		return conf_error(p,
		    "trace \"%.*s\" names a directory; expected a file like "
		    "traces/$session.jsonl",
		    VIEW_ARG(path));
	at = view_find(path, '$');
	if (at == path.n)
		return 0;
	if (view_starts(view_from(path, at), VIEW("${session}")))
		return conf_error(p,
		    "bad variable in trace \"%.*s\"; write $session, without "
		    "braces",
		    VIEW_ARG(path));
	rest = view_from(path, at + var.n);
	if (at < slash || !view_starts(view_from(path, at), var) ||
	    view_find(rest, '$') < rest.n)
		return conf_error(p,
		    "bad variable in trace \"%.*s\"; expected at most one "
		    "$session, in the file's name",
		    VIEW_ARG(path));
	return 0;
}

static int
parse_trace(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	struct conf_capture *c = base;
	struct view path = args[1];
	const char *joined;
	size_t slash;
	int rc;

	(void)row;
	(void)n;
	if (path.n == 0 || path.n > 2048)
		return conf_error(p,
		    "bad trace; expected a path of at most 2048 bytes");
	if (path.p[0] != '/') {
		joined = conf_text(p, "%.*s/%.*s",
		    VIEW_ARG(p->conf->main.state_dir), VIEW_ARG(path));
		if (joined == NULL)
			return SP_E_NOMEM;
		path = view_str(joined);
	}
	for (slash = path.n; slash > 0 && path.p[slash - 1] != '/'; slash--)
		continue;
	rc = check_trace(p, path, slash - 1);
	if (rc != 0)
		return rc;
	c->trace = path;
	c->trace_dir = view_sub(path, 0, slash > 1 ? slash - 1 : 1);
	c->trace_name = view_from(path, slash);
	return 0;
}

static int
dump_trace(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_capture *c = base;
	int rc;

	rc = buf_printf(out, "%s%s ", indent, row->name);
	if (rc == 0)
		rc = conf_dump_word(out, c->trace);
	return rc == 0 ? buf_add_str(out, ";\n") : rc;
}

static int
parse_trace_keep(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct conf_capture *c = base;
	uint64_t ms = 0, bytes = 0;
	bool good;

	good = view_eq(args[1], VIEW("off")) ||
	    (num_duration_ms(args[1], &ms) == 0 && ms > 0);
	if (good && n > 2)
		good = view_eq(args[2], VIEW("off")) ||
		    (num_size(args[2], &bytes) == 0 && bytes > 0);
	if (!good)
		return conf_error(p,
		    "bad value for \"%s\"; expected a time or off, then a "
		    "size or off, like 14d 500g",
		    row->name);
	c->trace_keep_ms = ms;
	c->trace_keep_bytes = bytes;
	return 0;
}

static int
dump_trace_keep(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_capture *c = base;
	char ms[32] = "off", bytes[32] = "off";

	if (c->trace_keep_ms > 0)
		conf_type_duration(c->trace_keep_ms, ms);
	if (c->trace_keep_bytes > 0)
		conf_type_size_text(c->trace_keep_bytes, bytes);
	return buf_printf(out, "%s%s %s %s;\n", indent, row->name, ms, bytes);
}

#define GIB ((uint64_t)1 << 30)

const struct conf_directive core_conf_capture[] = {
	{ .name = "level",
	    .scopes = CONF_CAPTURE,
	    .type = CONF_CHOICE,
	    .offset = CAP(level),
	    .choices = levels,
	    .def = "logprobs",
	    .args = "text | logprobs | tokens",
	    .doc = "What is asked of the upstream and recorded: the text "
		   "alone, the\nlog-probability of every token, or also the "
		   "engine's token ids, which\ntraining needs." },
	{ .name = "top_logprobs",
	    .scopes = CONF_CAPTURE,
	    .type = CONF_NUMBER,
	    .offset = CAP(top_logprobs),
	    .max = 20,
	    .def = "5",
	    .args = "NUMBER",
	    .doc = "How many alternatives are asked for at each token." },
	{ .name = "sampling",
	    .scopes = CONF_CAPTURE,
	    .type = CONF_CUSTOM,
	    .args_min = 1,
	    .args_max = 64,
	    .parse = parse_sampling,
	    .dump = dump_sampling,
	    .args = "NAME=NUMBER ...",
	    .doc = "Parameters forced on every call, such as "
		   "temperature=1.0 top_p=1.0 top_k=-1.",
	    .def_doc = "what the client says" },
	{ .name = "max_tokens_cap",
	    .scopes = CONF_CAPTURE,
	    .type = CONF_NUMBER,
	    .offset = CAP(max_tokens_cap),
	    .min = 1,
	    .max = 1000000000,
	    .args = "NUMBER",
	    .doc = "Most tokens that a request may ask for; a higher number "
		   "is lowered.\nOnly plain integers are: 32000.0, 3.2e4 and "
		   "\"32000\" pass as they came,\nand a server that takes "
		   "those for numbers is to bound them itself." },
	{ .name = "thinking",
	    .scopes = CONF_CAPTURE,
	    .type = CONF_CHOICE,
	    .offset = CAP(thinking),
	    .choices = thinkings,
	    .def = "client",
	    .args = "client | off",
	    .doc = "With off, chat_template_kwargs.enable_thinking is set "
		   "false whatever the\nclient says." },
	{ .name = "logprobs_refused",
	    .scopes = CONF_CAPTURE,
	    .type = CONF_CHOICE,
	    .offset = CAP(logprobs_refused),
	    .choices = refusals,
	    .def = "retry",
	    .args = "fail | retry",
	    .doc =
		"What happens when an upstream refuses log-probabilities: "
		"its error goes to\nthe client, or the call is sent once "
		"more without them and marked in the\ntrace.\nWhat an upstream "
		"refused for a model is asked for again after 10 minutes, a\n"
		"reload, or a change of its servers." },
	{ .name = "token_ids",
	    .scopes = CONF_CAPTURE,
	    .type = CONF_CHOICE,
	    .offset = CAP(token_ids),
	    .choices = token_ids,
	    .def = "auto",
	    .args = "auto | on | off",
	    .doc = "Whether token ids are asked for at level tokens; auto "
		   "stops after a refusal." },
	{ .name = "require_logprobs",
	    .scopes = CONF_CAPTURE,
	    .type = CONF_ONOFF,
	    .offset = CAP(require_logprobs),
	    .def = "off",
	    .args = "on | off",
	    .doc = "With on, a reply without log-probabilities is an error." },
	{ .name = "trace",
	    .scopes = CONF_CAPTURE,
	    .type = CONF_CUSTOM,
	    .args_min = 1,
	    .args_max = 1,
	    .parse = parse_trace,
	    .dump = dump_trace,
	    .def = "traces/$session.jsonl",
	    .args = "PATH",
	    .doc = "The file that turns are appended to, absolute or under "
		   "state_dir.\n$session in its name stands for the "
		   "session's id." },
	{ .name = "trace_sync",
	    .scopes = CONF_CAPTURE,
	    .type = CONF_ONOFF,
	    .offset = CAP(trace_sync),
	    .def = "off",
	    .args = "on | off",
	    .doc = "With on, a turn counts as recorded only when the disk "
		   "has it." },
	{ .name = "trace_keep",
	    .scopes = CONF_CAPTURE,
	    .type = CONF_CUSTOM,
	    .args_min = 1,
	    .args_max = 2,
	    .parse = parse_trace_keep,
	    .dump = dump_trace_keep,
	    .def = "14d 500g",
	    .args = "TIME | off [ SIZE | off ]",
	    .doc = "How long, and up to which size of all together, traces "
		   "are kept.\nThe oldest finished sessions go first." },
	{ .name = "trace_roll",
	    .scopes = CONF_CAPTURE,
	    .type = CONF_SIZE,
	    .offset = CAP(trace_roll_bytes),
	    .min = 4096,
	    .def = "256m",
	    .args = "SIZE",
	    .max = 1024 * GIB,
	    .doc = "Size at which the trace of the session default is sealed "
		   "and a new one\nbegins." },
	{ .name = "turn_max",
	    .scopes = CONF_CAPTURE,
	    .type = CONF_SIZE,
	    .offset = CAP(turn_max_bytes),
	    .min = 4096,
	    .max = 4 * GIB,
	    .def = "64m",
	    .args = "SIZE",
	    .doc = "Memory that one open turn may take; a larger one is "
		   "recorded as truncated." },
	{ .name = NULL },
};

/* Two captures must not write one file, or their chains would mix. */
static int
check_traces(struct conf_parse *p, const struct conf_capture *c)
{
	size_t i;
	int rc;

	if (c->trace.n == 0)
		return 0; /* reported already */
	for (i = 0; i + 1 < p->conf->captures_n; i++) {
		const struct conf_capture *o = p->conf->captures[i];

		if (!view_eq(o->trace, c->trace))
			continue;
		rc = conf_error(p,
		    "captures \"%.*s\" and \"%.*s\" write the same trace; "
		    "expected a \"trace\" of its own for each",
		    VIEW_ARG(o->name), VIEW_ARG(c->name));
		return rc == SP_E_CONF ? 0 : rc;
	}
	return 0;
}

int
core_conf_capture_block(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct conf *conf = p->conf;
	const struct conf_node *node = p->node;
	struct conf_block b = { .scope = CONF_CAPTURE,
		.node = node,
		.parent = p->block };
	struct conf_capture *c, **grown;
	size_t i;
	int rc;

	(void)base;
	(void)n;
	rc = conf_block_name(p, args[1]);
	for (i = 0; i < conf->captures_n && rc == 0; i++) {
		if (view_eq(conf->captures[i]->name, args[1]))
			rc = conf_error(p,
			    "duplicate capture \"%.*s\"; expected different "
			    "names, it stands at %s:%u",
			    VIEW_ARG(args[1]), conf->captures[i]->pos.file,
			    conf->captures[i]->pos.line);
	}
	if (rc != 0)
		return rc;
	c = conf_alloc(p, sizeof(*c));
	b.what = conf_text(p, "capture \"%.*s\"", VIEW_ARG(args[1]));
	grown = conf_more(p, conf->captures, conf->captures_n, sizeof(void *),
	    row->name);
	if (c == NULL || b.what == NULL || grown == NULL)
		return p->nomem ? SP_E_NOMEM : SP_E_CONF;
	c->name = args[1];
	c->pos = conf_node_pos(node);
	c->index = (unsigned)conf->captures_n;
	conf->captures = grown;
	conf->captures[conf->captures_n++] = c;
	rc = conf_block_add(p, &b, core_conf_capture, c);
	if (rc == 0)
		rc = conf_block_plain(p, &b, node->child);
	if (rc == 0)
		rc = conf_block_nested(p, &b, node->child);
	if (rc == 0)
		rc = check_traces(p, c);
	if (rc == 0 && c->require_logprobs && c->level == CONF_LEVEL_TEXT)
		rc = conf_error(p,
		    "capture \"%.*s\" requires log-probabilities that it "
		    "does not ask for; expected level logprobs or tokens",
		    VIEW_ARG(c->name));
	return rc;
}

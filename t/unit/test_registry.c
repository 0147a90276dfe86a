/* The registry of sessions and its journal; what both sides say of one. */
#include "config.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/fd.h"
#include "recorder/journal.h"
#include "recorder/registry.h"

#include "recorder_peer.h"

static char top[] = "/tmp/sp-registry.XXXXXX";
static int keys = -1;
static struct conf_capture capture = { .name = { "c", 1 },
	.level = CONF_LEVEL_TOKENS,
	.trace_name = { "$session.jsonl", 14 } };
static struct conf_capture *captures[] = { &capture };
static struct conf conf = { .captures = captures, .captures_n = 1 };
static struct signer signer;
static struct store store;
static struct registry reg;

static int
open_dir(const char *name)
{
	char path[200];

	snprintf(path, sizeof(path), "%s/%s", top, name);
	(void)mkdir(path, 0700);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static struct session_msg
wanted(const char *id)
{
	struct session_msg m = { .id = view_str(id),
		.capture = VIEW("c"),
		.upstream = VIEW("up"),
		.model = VIEW("m/x"),
		.purpose = VIEW("train"),
		.sampling = VIEW("{\"top_p\":0.5}"),
		.metadata = VIEW("{\"a\":[1,\"b\"]}"),
		.max_calls = 3,
		.max_tokens = 100,
		.max_wall_ms = 1500 };

	memset(m.key, id[0], sizeof(m.key));
	return m;
}

/* A reply taken apart: its result, or what went wrong. */
static int
result_of(int rc, struct buf *reply, struct view *text)
{
	struct wire w;
	int result;

	*text = VIEW_NONE;
	if (rc != 0)
		return rc;
	wire_init(&w, buf_view(reply));
	(void)wire_u32(&w);
	result = wire_u8(&w);
	*text = wire_bytes(&w);
	return wire_done(&w) == 0 ? result : SP_E_PROTO;
}

static int
create(const struct session_msg *m, struct buf *reply, struct view *text)
{
	struct buf body = BUF_INIT(MESSAGE_CONTROL_MAX);
	int rc = wire_put_u32(&body, 7);

	if (rc == 0)
		rc = session_msg_put(&body, m);
	buf_reset(reply, 0);
	if (rc == 0)
		rc = registry_create(&reg, buf_view(&body), reply);
	buf_clear(&body);
	return result_of(rc, reply, text);
}

static int
ask(int (*take)(struct registry *r, struct view body, struct buf *reply),
    const char *id, int limit, struct buf *reply, struct view *text)
{
	struct buf body = BUF_INIT(MESSAGE_CONTROL_MAX);
	int rc = wire_put_u32(&body, 9);

	if (rc == 0)
		rc = wire_put_bytes(&body, view_str(id));
	if (rc == 0 && take == registry_end)
		rc = wire_put_bytes(&body, VIEW_NONE);
	if (rc == 0 && limit >= 0)
		rc = wire_put_u32(&body, (uint32_t)limit);
	buf_reset(reply, 0);
	if (rc == 0)
		rc = take(&reg, buf_view(&body), reply);
	if (rc == 0 && buf_len(reply) == 0)
		(void)registry_next_ended(&reg, reply);
	buf_clear(&body);
	return result_of(rc, reply, text);
}

static void
used(const char *id, uint64_t tokens)
{
	const struct record r = { .session = view_str(id),
		.outcome = MESSAGE_OUTCOME_END,
		.complete = true,
		.trainable = true,
		.completion_tokens = tokens,
		.findings = 1 };

	registry_called(&reg, view_str(id), 0);
	registry_turned(&reg, &r, true);
}

static void
start(void)
{
	tap_is_int(store_init(&store, &conf, &signer), 0, "store");
	keys = open_dir("keys");
	int fd = open_dir("traces");
	tap_is_int(store_add_dir(&store, &capture, &fd), 0, "its folder");
	tap_is_int(registry_init(&reg, &store, keys), 0, "registry");
}

static void
end(void)
{
	registry_clear(&reg);
	store_clear(&store);
	fd_close(&keys);
}

static void
creating(void)
{
	struct buf reply = BUF_INIT(MESSAGE_BULK_MAX);
	struct session_msg m = wanted("one");
	struct view text;

	tap_is_int(create(&m, &reply, &text), MESSAGE_SESSION_OK, "created");
	peer_is(text, "session_id", "\"one\"", "created");
	peer_is(text, "state", "\"open\"", "created");
	peer_is(text, "trace", "\"one.jsonl\"", "created");
	peer_is(text, "metadata.a.1", "\"b\"", "created");
	peer_is(text, "max_wall_s", "1.5", "created");
	tap_is_int(create(&m, &reply, &text), MESSAGE_SESSION_EXISTS, "twice");
	m.id = VIEW("default");
	tap_is_int(create(&m, &reply, &text), MESSAGE_SESSION_BAD, "default");
	m.id = VIEW("x.seal");
	capture.trace_name = VIEW("$session");
	tap_is_int(create(&m, &reply, &text), MESSAGE_SESSION_BAD,
	    "a name that no trace has");
	capture.trace_name = VIEW("$session.jsonl");
	m.id = VIEW("a/b");
	tap_is_int(create(&m, &reply, &text), SP_E_PROTO, "a bad id");
	m = wanted("two");
	m.capture = VIEW("other");
	tap_is_int(create(&m, &reply, &text), MESSAGE_SESSION_BAD,
	    "a capture there is not");
	m = wanted("two");
	m.metadata = VIEW("[1]");
	tap_is_int(create(&m, &reply, &text), SP_E_PROTO, "bad metadata");
	m.metadata = VIEW("{\"a\":NaN}");
	tap_is_int(create(&m, &reply, &text), SP_E_PROTO, "no JSON");
	m = wanted("two");
	m.model = VIEW("a\"b");
	tap_is_int(create(&m, &reply, &text), SP_E_PROTO, "a quote");
	m = wanted("two");
	tap_is_int(create(&m, &reply, &text), MESSAGE_SESSION_OK, "another");
	buf_clear(&reply);
}

static void
listing(void)
{
	struct buf reply = BUF_INIT(MESSAGE_BULK_MAX);
	struct view text;

	tap_is_int(ask(registry_list, "", 1, &reply, &text), MESSAGE_SESSION_OK,
	    "a page");
	peer_is(text, "sessions.0.session_id", "\"one\"", "page");
	peer_is(text, "next", "\"one\"", "page");
	peer_is(text, "total", "2", "page");
	tap_is_int(ask(registry_list, "one", 5, &reply, &text),
	    MESSAGE_SESSION_OK, "the next");
	peer_is(text, "sessions.0.session_id", "\"two\"", "next");
	peer_is(text, "next", "null", "next");
	tap_is_int(ask(registry_list, "nobody", 5, &reply, &text),
	    MESSAGE_SESSION_UNKNOWN, "after nobody");
	tap_is_int(ask(registry_list, "", 0, &reply, &text), SP_E_PROTO,
	    "no limit");
	tap_is_int(ask(registry_list, "", 100000, &reply, &text), SP_E_PROTO,
	    "a limit too high");
	tap_is_int(ask(registry_list, "", -1, &reply, &text), SP_E_PROTO,
	    "cut off");
	tap_is_int(ask(registry_get, "two", -1, &reply, &text),
	    MESSAGE_SESSION_OK, "one");
	tap_is_int(ask(registry_get, "three", -1, &reply, &text),
	    MESSAGE_SESSION_UNKNOWN, "nobody");
	buf_clear(&reply);
}

static void
tracing(const char *id, int want, const char *what)
{
	struct buf body = BUF_INIT(64), reply = BUF_INIT(64);
	struct view text;
	int fd = -1, rc;

	rc = wire_put_u32(&body, 9);
	if (rc == 0)
		rc = wire_put_bytes(&body, view_str(id));
	if (rc == 0)
		rc = registry_trace(&reg, buf_view(&body), &reply, &fd);
	if (fd >= 0)
		tap_ok(want == 0 && rc == 0 && buf_len(&reply) == 12, "%s",
		    what);
	else
		tap_is_int(result_of(rc, &reply, &text), want, what);
	fd_close(&fd);
	buf_clear(&body);
	buf_clear(&reply);
}

static void
ending(void)
{
	struct buf reply = BUF_INIT(MESSAGE_BULK_MAX);
	struct buf line = BUF_INIT(4096);
	struct trace *t = NULL;
	struct view text;
	int fd;

	tracing("two", MESSAGE_SESSION_BAD, "no trace yet");
	tracing("nobody", MESSAGE_SESSION_UNKNOWN, "nobody's trace");
	tracing("../x", MESSAGE_SESSION_UNKNOWN, "a path is no id");
	tap_is_int(store_get(&store, &capture, VIEW("two"), &t), 0, "a trace");
	tap_is_int(buf_add_str(&line, "{\"turn\":1"), 0, "a line");
	tap_is_int(trace_append(t, &line, &signer), 0, "of it");
	used("two", 5);
	tracing("two", 0, "its trace");
	/* the journal cannot be written */
	fd = reg.fd;
	reg.fd = open("/dev/full", O_RDWR | O_CLOEXEC);
	tap_is_int(ask(registry_end, "two", -1, &reply, &text),
	    MESSAGE_SESSION_FULL, "no room for its end");
	fd_close(&reg.fd);
	reg.fd = fd;
	tap_is_int(ask(registry_get, "two", -1, &reply, &text),
	    MESSAGE_SESSION_OK, "as it was");
	peer_is(text, "state", "\"open\"", "open");
	reg.replaying = true;
	/* a turn is open still: the end waits for it */
	tap_is_int(ask(registry_end, "two", -1, &reply, &text), SP_E_PROTO,
	    "no answer yet");
	tap_ok(registry_closing(&reg) && buf_len(&reply) == 0, "it waits");
	store_put(&store, t);
	tap_ok(registry_next_ended(&reg, &reply), "and comes");
	tap_is_int(result_of(0, &reply, &text), MESSAGE_SESSION_OK, "ended");
	peer_is(text, "outcome", "\"done\"", "ended");
	peer_is(text, "completion_tokens", "5", "ended");
	peer_is(text, "findings.0", "\"not_captured\"", "ended");
	tap_ok(!registry_closing(&reg), "nothing is left to do");
	tap_is_int(ask(registry_end, "two", -1, &reply, &text),
	    MESSAGE_SESSION_OK, "twice");
	tap_is_int(ask(registry_end, "nobody", -1, &reply, &text),
	    MESSAGE_SESSION_UNKNOWN, "nobody");
	buf_clear(&line);
	buf_clear(&reply);
}

/* A trace with one turn; the caller's reference. */
static struct trace *
traced(const struct conf_capture *c, const char *id)
{
	struct buf line = BUF_INIT(4096);
	struct trace *t = NULL;

	if (store_get(&store, c, view_str(id), &t) != 0 ||
	    buf_add_str(&line, "{\"turn\":1") != 0 ||
	    trace_append(t, &line, &signer) != 0)
		abort();
	buf_clear(&line);
	used(id, 5);
	return t;
}

static bool
sealed(const char *name, const char *reason)
{
	struct buf text = BUF_INIT(65536);
	struct seal_facts f = { .reason = "" };
	char path[200];
	int fd;

	snprintf(path, sizeof(path), "%s/traces/%s", top, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fd_read_all(fd, &text) != 0 ||
	    seal_check(buf_view(&text), &f) != 0)
		f.reason[0] = '\0';
	fd_close(&fd);
	buf_clear(&text);
	return strcmp(f.reason, reason) == 0;
}

/* Its seal cannot be written at the end of a session: it is later. */
static void
unsealed(void)
{
	static const char *const ids[] = { "late", "late-too" };
	struct buf reply = BUF_INIT(MESSAGE_BULK_MAX);
	struct session_msg m;
	char path[2][200];
	struct view text;
	size_t i;

	for (i = 0; i < 2; i++) {
		m = wanted(ids[i]);
		tap_is_int(create(&m, &reply, &text), MESSAGE_SESSION_OK,
		    ids[i]);
		store_put(&store, traced(&capture, ids[i]));
		snprintf(path[i], sizeof(path[i]), "%s/traces/.%s.seal.tmp",
		    top, ids[i]);
		tap_is_int(mkdir(path[i], 0700), 0, "it has no seal");
		tap_is_int(ask(registry_end, ids[i], -1, &reply, &text),
		    MESSAGE_SESSION_OK, "it ends");
	}
	/* and one of nobody's session */
	store_put(&store, traced(&capture, "stray"));
	snprintf(path[0], sizeof(path[0]), "%s/traces/.stray.seal.tmp", top);
	tap_is_int(mkdir(path[0], 0700), 0, "nor has a stray");
	tap_is_int(ask(registry_end, "stray", -1, &reply, &text),
	    MESSAGE_SESSION_UNKNOWN, "whose episode ends");
	buf_reset(&reply, MESSAGE_BULK_MAX);
	tap_ok(!registry_next_ended(&reg, &reply) && registry_closing(&reg),
	    "their seals are due");
	tap_is_int(rmdir(path[0]) | rmdir(path[1]), 0, "room, for two");
	reg.again_ms = 0;
	TAILQ_FIRST(&reg.strays)->again_ms = 1;
	(void)registry_next_ended(&reg, &reply);
	tap_ok(sealed("stray.seal", "end"), "the stray is sealed");
	/* the one that cannot be does not keep back the other */
	reg.again_ms = 0;
	(void)registry_next_ended(&reg, &reply);
	tap_ok(sealed("late-too.seal", "end") && registry_closing(&reg),
	    "so is the one that can be");
	snprintf(path[0], sizeof(path[0]), "%s/traces/.late.seal.tmp", top);
	tap_is_int(rmdir(path[0]), 0, "room for all");
	registry_forget(&reg);
	tap_ok(sealed("late.seal", "end") && !registry_closing(&reg),
	    "the last when the recorder stops");
	buf_clear(&reply);
}

/* A reload takes a capture away; its directory is another one's, too. */
static void
captured_no_more(void)
{
	struct conf_capture old = { .name = { "old", 3 },
		.trace_name = { "old-$session.jsonl", 18 } };
	struct conf_capture *with[] = { &capture, &old };
	struct conf before = { .captures = with, .captures_n = 2 };
	struct conf_capture next = capture;
	struct conf_capture *without[] = { &next };
	struct conf after = { .captures = without, .captures_n = 1 };
	struct buf reply = BUF_INIT(MESSAGE_BULK_MAX);
	struct session_msg m = wanted("left");
	struct view text;
	int fd = open_dir("traces");

	tap_is_int(store_add_dir(&store, &old, &fd), 0, "a second capture");
	store.conf = &before;
	m.capture = VIEW("old");
	tap_is_int(create(&m, &reply, &text), MESSAGE_SESSION_OK, "left");
	store_put(&store, traced(&old, "left"));
	m = wanted("stays");
	tap_is_int(create(&m, &reply, &text), MESSAGE_SESSION_OK, "stays");
	store_put(&store, traced(&capture, "stays"));
	fd = open_dir("traces");
	tap_is_int(store_add_dir(&store, &next, &fd), 0, "a reload");
	store.conf = &after;
	store_drop(&store, &before);
	tap_ok(sealed("old-left.seal", "reload"),
	    "what no capture leads to any more is sealed");
	tap_ok(sealed("stays.seal", ""), "what one does goes on");
	tap_is_int(ask(registry_end, "left", -1, &reply, &text),
	    MESSAGE_SESSION_OK, "its session ends");
	peer_is(text, "n_turns", "1", "left");
	tap_is_int(ask(registry_end, "stays", -1, &reply, &text),
	    MESSAGE_SESSION_OK, "and the other");
	tap_ok(sealed("stays.seal", "end"), "which is sealed then");
	fd = open_dir("traces");
	tap_is_int(store_add_dir(&store, &capture, &fd), 0, "as it was");
	store.conf = &conf;
	store_drop(&store, &after);
	buf_clear(&reply);
}

/* The seal of NAME.N.jsonl has the name of that of the roll NAME.N. */
static void
names_of_rolls(void)
{
	static const char *const ids[] = { "default.jsonl.2",
		"default.jsonl.1844674407370955161" };
	static const char *const good[] = { "default.jsonl.0",
		"default.jsonl.2x", "other.jsonl.2", "v1.5", "default.2" };
	struct buf reply = BUF_INIT(MESSAGE_BULK_MAX);
	struct session_msg m;
	struct view text;
	size_t i;

	for (i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		m = wanted(ids[i]);
		tap_is_int(create(&m, &reply, &text), MESSAGE_SESSION_BAD,
		    ids[i]);
	}
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		m = wanted(good[i]);
		tap_is_int(create(&m, &reply, &text), MESSAGE_SESSION_OK,
		    good[i]);
	}
	/* one that is there already is read */
	store_put(&store, traced(&capture, ids[0]));
	tracing(ids[0], 0, "a file from before");
	buf_clear(&reply);
}

static void
replaying(void)
{
	struct buf body = BUF_INIT(MESSAGE_CONTROL_MAX);
	struct session_msg m, want = wanted("one");
	struct wire w;

	registry_called(&reg, VIEW("one"), 0);
	registry_called(&reg, VIEW("one"), MESSAGE_TURN_BUDGET);
	registry_uncalled(&reg, VIEW("one"), MESSAGE_TURN_BUDGET);
	registry_called(&reg, VIEW("nobody"), 0);
	registry_replay(&reg);
	tap_ok(registry_next_replay(&reg, &body) == MESSAGE_SESSION,
	    "one is open");
	wire_init(&w, buf_view(&body));
	session_msg_get(&w, &m);
	tap_is_int(wire_done(&w), 0, "a session");
	tap_ok(view_eq(m.id, want.id) && view_eq(m.sampling, want.sampling) &&
		memcmp(m.key, want.key, sizeof(m.key)) == 0 &&
		m.max_calls == 3 && m.calls == 1,
	    "as it was asked for, and used");
	buf_reset(&body, MESSAGE_CONTROL_MAX);
	want = wanted("two");
	tap_ok(registry_next_replay(&reg, &body) == MESSAGE_SESSION_PAST &&
		view_eq(buf_view(&body), view_of(want.key, sizeof(want.key))),
	    "the key of one that ended");
	buf_reset(&body, MESSAGE_CONTROL_MAX);
	tap_ok(registry_next_replay(&reg, &body) == MESSAGE_REPLAY_DONE,
	    "there is no other");
	buf_clear(&body);
}

static void
add_to_journal(const char *text)
{
	int fd = openat(keys, JOURNAL_FILE, O_WRONLY | O_APPEND);

	tap_is_int(fd_write_all(fd, text, strlen(text)), 0, "journal");
	fd_close(&fd);
}

static void
again(void)
{
	struct buf reply = BUF_INIT(MESSAGE_BULK_MAX);
	struct registry other;
	struct view text;

	tap_is_int(registry_init(&other, &store, keys), SP_E_DENIED,
	    "one writer at a time");
	end();
	start();
	tap_is_int(ask(registry_get, "one", -1, &reply, &text),
	    MESSAGE_SESSION_OK, "one is there again");
	peer_is(text, "state", "\"open\"", "again");
	peer_is(text, "model_calls", "1", "again");
	peer_is(text, "sampling.top_p", "0.5", "again");
	tap_is_int(ask(registry_get, "two", -1, &reply, &text),
	    MESSAGE_SESSION_OK, "so is the other");
	peer_is(text, "state", "\"ended\"", "again");
	peer_is(text, "n_turns", "1", "again");
	add_to_journal("no JSON\n{\"op\":\"use\",\"id\":\"nobody\"}\n"
		       "{\"op\":\"create\",\"id\":\"../x\"}\n[]\n\n"
		       "{\"op\":\"use\",\"id\":\"one\",\"calls\":7}\n"
		       "{\"op\":\"use\",\"id\":\"one\",\"calls\":9");
	end();
	start();
	tap_is_int(ask(registry_get, "one", -1, &reply, &text),
	    MESSAGE_SESSION_OK, "damaged lines are left out");
	peer_is(text, "model_calls", "7", "and torn ones");
	peer_is(text, "state", "\"open\"", "it was used behind them");
	buf_clear(&reply);
}

/* What was damaged is kept; what may have ended a session did so. */
static void
damaged(void)
{
	static const char kept[] =
	    "no JSON\n"
	    "{\"op\":\"create\",\"id\":\"../x\"}\n[]\n"
	    "{\"op\":\"use\",\"id\":\"one\",\"calls\":9\n";
	struct buf text = BUF_INIT(4096);
	int fd = openat(keys, JOURNAL_FILE ".torn", O_RDONLY | O_CLOEXEC);
	struct registry_session *s;

	tap_is_int(fd_read_all(fd, &text), 0, "what was damaged is kept");
	tap_ok(view_eq(buf_view(&text), view_str(kept)), "all of it");
	fd_close(&fd);
	buf_clear(&text);
	add_to_journal("{\"op\":\"create\",\"id\":\"three\"}\n"
		       "{\"op\":\"end\",\"id\":\"one\",\"outc\377me\":\n");
	end();
	start();
	s = registry_find(&reg, VIEW("one"));
	tap_ok(s != NULL && s->ended_us != 0 &&
		strcmp(s->outcome, "unknown") == 0,
	    "a damaged end is an end");
	s = registry_find(&reg, VIEW("three"));
	tap_ok(s != NULL && s->ended_us == 0, "of that session alone");
	add_to_journal("{\"op\":\"en\n");
	end();
	start();
	s = registry_find(&reg, VIEW("three"));
	tap_ok(s != NULL && s->ended_us != 0, "of all, when it names none");
	tap_is_int(unlinkat(keys, JOURNAL_FILE ".torn", 0), 0, "once");
}

/* Without memory: an error, or what was asked; never half of it. */
static void
starving(void)
{
	struct buf reply = BUF_INIT(MESSAGE_BULK_MAX);
	struct session_msg m = wanted("hungry");
	struct view text = VIEW_NONE;
	unsigned long n;
	int rc = 0;

	for (n = 1; n < 300; n++) {
		mem_fail_after(n, 0);
		rc = create(&m, &reply, &text);
		mem_fail_after(0, 0);
		if (rc == MESSAGE_SESSION_OK || rc == MESSAGE_SESSION_EXISTS)
			break;
		if (rc != SP_E_NOMEM && rc != MESSAGE_SESSION_FAILED &&
		    rc != MESSAGE_SESSION_FULL)
			break;
	}
	tap_ok(rc == MESSAGE_SESSION_OK || rc == MESSAGE_SESSION_EXISTS,
	    "created when there is memory, after %lu", n);
	for (n = 1; n < 300; n++) {
		end();
		keys = open_dir("keys");
		rc = store_init(&store, &conf, &signer);
		int fd = open_dir("traces");
		if (rc == 0)
			rc = store_add_dir(&store, &capture, &fd);
		mem_fail_after(n, 0);
		if (rc == 0)
			rc = registry_init(&reg, &store, keys);
		mem_fail_after(0, 0);
		if (rc != SP_E_NOMEM)
			break;
	}
	tap_is_int(rc, 0, "opened when there is memory");
	tap_is_int(ask(registry_get, "one", -1, &reply, &text),
	    MESSAGE_SESSION_OK, "and nothing is lost");
	buf_clear(&reply);
}

static void
wire(void)
{
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	struct session_msg m = wanted("one");
	char big[SESSION_MSG_META_MAX + 1];
	struct session_msg got;
	struct wire w;
	size_t n;

	memset(big, 'x', sizeof(big));
	m.metadata = view_of(big, sizeof(big));
	tap_is_int(session_msg_put(&b, &m), SP_E_LIMIT, "too long to be said");
	buf_reset(&b, 0);
	m = wanted("one");
	tap_is_int(session_msg_put(&b, &m), 0, "said");
	for (n = 0; n < buf_len(&b); n++) {
		wire_init(&w, view_sub(buf_view(&b), 0, n));
		session_msg_get(&w, &got);
		if (wire_done(&w) == 0)
			break;
	}
	tap_is_int((long long)n, (long long)buf_len(&b), "never cut short");
	b.mem[b.off + 4 + SESSION_MSG_KEY + 1] = 1; /* an id of 259 bytes */
	wire_init(&w, buf_view(&b));
	session_msg_get(&w, &got);
	tap_is_int(wire_done(&w), SP_E_PROTO, "nor too long");
	buf_clear(&b);
}

int
main(void)
{
	static const char *const left[] = { "keys/sessions.jsonl",
		"traces/two.jsonl", "traces/two.seal", "traces/late.jsonl",
		"traces/late.seal", "traces/late-too.jsonl",
		"traces/late-too.seal", "traces/stray.jsonl",
		"traces/stray.seal", "traces/old-left.jsonl",
		"traces/old-left.seal", "traces/stays.jsonl",
		"traces/stays.seal", "traces/default.jsonl.2.jsonl", "keys",
		"traces", "" };
	char path[256];
	size_t i;
	int fd = -1;

	if (mkdtemp(top) == NULL)
		return 1;
	tap_is_int(signer_open(&signer, -1), 0, "a key");
	wire();
	keys = open_dir("keys");
	if (fd_open_beneath(keys, "x", O_RDONLY, 0, &fd) == SP_E_UNSUPPORTED) {
		/* valgrind before 3.22, for one */
		tap_skip(1, "no openat2 here");
		fd_close(&keys);
		signer_clear(&signer);
		snprintf(path, sizeof(path), "%s/keys", top);
		(void)rmdir(path);
		(void)rmdir(top);
		return tap_done();
	}
	fd_close(&keys);
	start();
	creating();
	listing();
	ending();
	replaying();
	again();
	damaged();
	starving();
	unsealed();
	captured_no_more();
	names_of_rolls();
	end();
	signer_clear(&signer);
	for (i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", top, left[i]);
		tap_is_int(remove(path), 0, path);
	}
	return tap_done();
}

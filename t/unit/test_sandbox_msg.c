#include "config.h"

#include "base/mem.h"
#include "ipc/sandbox_msg.h"
#include "tap.h"

static struct view paths[] = { VIEW_INIT("/usr"), VIEW_INIT("/opt/echo") };
static struct view vars[] = { VIEW_INIT("A=1"), VIEW_INIT("B=") };
static struct view words[] = { VIEW_INIT("/bin/sh"), VIEW_INIT(""),
	VIEW_INIT("a b") };

static struct sandbox_spec
a_spec(void)
{
	struct sandbox_spec s;

	memset(&s, 0, sizeof(s));
	s.slot = 3;
	s.generation = 0xffffffff;
	s.side = SANDBOX_WORKER;
	s.flags = SANDBOX_WATCH_FILES;
	s.cgroup = VIEW("slot-3-worker");
	s.hostname = VIEW("episode");
	s.init_uid = 200000;
	s.uid = 200002;
	s.gid = 200001;
	s.memory_bytes = 1ULL << 40;
	s.pids = 256;
	s.workspace_bytes = UINT64_MAX;
	s.teardown_ms = 10000;
	s.rootfs = VIEW("/srv/images/echo");
	s.assets = VIEW("assets-0123");
	s.read_only = (struct sandbox_list){ paths, 2 };
	s.read_write = (struct sandbox_list){ paths, 1 };
	s.resolv_conf = VIEW("nameserver 127.0.0.1\n");
	s.hosts = VIEW("203.0.113.1 a\n");
	s.env = (struct sandbox_list){ vars, 2 };
	return s;
}

static struct sandbox_run
a_run(void)
{
	struct sandbox_run r;

	memset(&r, 0, sizeof(r));
	r.flags = SANDBOX_RUN_STDIN | SANDBOX_RUN_EVENT_FD;
	r.timeout_ms = 1500;
	r.cwd = VIEW("/tmp");
	r.argv = (struct sandbox_list){ words, 3 };
	r.env = (struct sandbox_list){ vars, 2 };
	return r;
}

static bool
same_list(const struct sandbox_list *a, const struct sandbox_list *b)
{
	size_t i;

	if (a->n != b->n)
		return false;
	for (i = 0; i < a->n; i++)
		if (!view_eq(a->v[i], b->v[i]))
			return false;
	return true;
}

static void
there_and_back(void)
{
	struct buf b = BUF_INIT(SANDBOX_MSG_RUN_MAX);
	struct arena *a = arena_new(1024 * 1024);
	struct sandbox_spec s = a_spec(), got;
	struct sandbox_run r = a_run(), run;

	tap_is_int(sandbox_msg_spec_put(&b, &s), 0, "a spec is written");
	tap_is_int(sandbox_msg_spec_get(buf_view(&b), a, &got), 0, "and read");
	tap_ok(got.slot == s.slot && got.generation == s.generation &&
		got.side == s.side && got.flags == s.flags &&
		got.init_uid == s.init_uid && got.uid == s.uid &&
		got.gid == s.gid && got.memory_bytes == s.memory_bytes &&
		got.pids == s.pids &&
		got.workspace_bytes == s.workspace_bytes &&
		got.teardown_ms == s.teardown_ms,
	    "its numbers are the same");
	tap_ok(view_eq(got.cgroup, s.cgroup) &&
		view_eq(got.hostname, s.hostname) &&
		view_eq(got.rootfs, s.rootfs) &&
		view_eq(got.assets, s.assets) &&
		view_eq(got.resolv_conf, s.resolv_conf) &&
		view_eq(got.hosts, s.hosts),
	    "its texts");
	tap_ok(same_list(&got.read_only, &s.read_only) &&
		same_list(&got.read_write, &s.read_write) &&
		same_list(&got.env, &s.env),
	    "its lists");
	tap_is_int(sandbox_msg_run_get(buf_view(&b), a, &run), SP_E_PROTO,
	    "a spec is no run");
	buf_reset(&b, 0);
	tap_is_int(sandbox_msg_run_put(&b, &r), 0, "a run is written");
	tap_is_int(sandbox_msg_run_get(buf_view(&b), a, &run), 0, "and read");
	tap_ok(run.flags == r.flags && run.timeout_ms == r.timeout_ms &&
		view_eq(run.cwd, r.cwd) && same_list(&run.argv, &r.argv) &&
		same_list(&run.env, &r.env),
	    "all of it is the same");
	tap_is_int(sandbox_msg_spec_get(buf_view(&b), a, &got), SP_E_PROTO,
	    "a run is no spec");
	buf_clear(&b);
	arena_free(a);
}

/* Every shorter text is refused, and one byte more. */
static void
cuts(void)
{
	struct buf b = BUF_INIT(SANDBOX_MSG_SPEC_MAX);
	struct sandbox_spec s = a_spec(), got;
	struct sandbox_run r = a_run(), run;
	struct arena *a = arena_new(64UL * 1024 * 1024);
	size_t i, n, bad = 0;

	if (sandbox_msg_spec_put(&b, &s) != 0)
		bad++;
	n = buf_len(&b);
	for (i = 0; i < n; i++)
		if (sandbox_msg_spec_get(view_of(buf_view(&b).p, i), a, &got) !=
		    SP_E_PROTO)
			bad++;
	if (buf_add_char(&b, 0) != 0 ||
	    sandbox_msg_spec_get(buf_view(&b), a, &got) != SP_E_PROTO)
		bad++;
	tap_is_int((long long)bad, 0, "a spec that is cut, or too long");
	buf_reset(&b, 0);
	if (sandbox_msg_run_put(&b, &r) != 0)
		bad++;
	n = buf_len(&b);
	for (i = 0; i < n; i++)
		if (sandbox_msg_run_get(view_of(buf_view(&b).p, i), a, &run) !=
		    SP_E_PROTO)
			bad++;
	if (buf_add_char(&b, 0) != 0 ||
	    sandbox_msg_run_get(buf_view(&b), a, &run) != SP_E_PROTO)
		bad++;
	tap_is_int((long long)bad, 0, "a run that is cut, or too long");
	buf_clear(&b);
	arena_free(a);
}

static void
spec_is(const struct sandbox_spec *s, int want, const char *what)
{
	struct buf b = BUF_INIT(SANDBOX_MSG_SPEC_MAX);
	struct arena *a = arena_new(1024 * 1024);
	struct sandbox_spec got;
	int rc = sandbox_msg_spec_put(&b, s);

	if (rc == 0)
		rc = sandbox_msg_spec_get(buf_view(&b), a, &got);
	tap_is_int(rc, want, what);
	buf_clear(&b);
	arena_free(a);
}

static void
run_is(const struct sandbox_run *r, int want, const char *what)
{
	struct buf b = BUF_INIT(SANDBOX_MSG_RUN_MAX);
	struct arena *a = arena_new(8UL * 1024 * 1024);
	struct sandbox_run got;
	int rc = sandbox_msg_run_put(&b, r);

	if (rc == 0)
		rc = sandbox_msg_run_get(buf_view(&b), a, &got);
	tap_is_int(rc, want, what);
	buf_clear(&b);
	arena_free(a);
}

static void
nonsense_specs(void)
{
	static struct view relative[] = { VIEW_INIT("usr") };
	static struct view no_name[] = { VIEW_INIT("=1") };
	static struct view no_value[] = { VIEW_INIT("A") };
	static char wide[SANDBOX_MSG_NAME_MAX + 1];
	struct sandbox_spec s = a_spec();

	memset(wide, 'a', sizeof(wide));
	s.side = 0;
	spec_is(&s, SP_E_PROTO, "no side");
	s.side = SANDBOX_SIDES;
	spec_is(&s, SP_E_PROTO, "an unknown side");
	s = a_spec();
	s.cgroup = VIEW("");
	spec_is(&s, SP_E_PROTO, "no control group");
	s.cgroup = VIEW("a/b");
	spec_is(&s, SP_E_PROTO, "a path for a control group");
	s.cgroup = VIEW("..");
	spec_is(&s, SP_E_PROTO, "one that leads out");
	s.cgroup = view_of(wide, sizeof(wide));
	spec_is(&s, SP_E_LIMIT, "a long one");
	s = a_spec();
	s.hostname = VIEW("");
	spec_is(&s, SP_E_PROTO, "no host name");
	s.hostname = VIEW("a\0b");
	spec_is(&s, SP_E_PROTO, "a NUL");
	s = a_spec();
	s.rootfs = VIEW("srv");
	spec_is(&s, SP_E_PROTO, "a relative root");
	s = a_spec();
	s.assets = VIEW("a/b");
	spec_is(&s, SP_E_PROTO, "a path for the assets' name");
	s.assets = VIEW("..");
	spec_is(&s, SP_E_PROTO, "or one that leads out");
	s = a_spec();
	s.read_only = (struct sandbox_list){ relative, 1 };
	spec_is(&s, SP_E_PROTO, "a relative path to read");
	s = a_spec();
	s.read_write = (struct sandbox_list){ relative, 1 };
	spec_is(&s, SP_E_PROTO, "a relative path to write");
	s = a_spec();
	s.env = (struct sandbox_list){ no_name, 1 };
	spec_is(&s, SP_E_PROTO, "a variable without a name");
	s.env = (struct sandbox_list){ no_value, 1 };
	spec_is(&s, SP_E_PROTO, "a variable without a value");
	s.env = (struct sandbox_list){ vars, SANDBOX_MSG_LIST_MAX + 1 };
	spec_is(&s, SP_E_LIMIT, "too many variables");
}

static void
nonsense_runs(void)
{
	static struct view empty[] = { VIEW_INIT("") };
	struct sandbox_run r = a_run();

	r.argv.n = 0;
	run_is(&r, SP_E_PROTO, "no arguments");
	r.argv = (struct sandbox_list){ empty, 1 };
	run_is(&r, SP_E_PROTO, "no program");
	r = a_run();
	r.flags = 1U << 31;
	run_is(&r, SP_E_PROTO, "an unknown flag");
	r = a_run();
	r.cwd = VIEW("tmp");
	run_is(&r, SP_E_PROTO, "a relative directory");
	r.cwd = VIEW("");
	run_is(&r, 0, "none is fine");
	r.env = (struct sandbox_list){ empty, 1 };
	run_is(&r, SP_E_PROTO, "an empty variable");
}

/* A count that the text cannot hold is not believed. */
static void
greedy(void)
{
	struct buf b = BUF_INIT(SANDBOX_MSG_RUN_MAX);
	struct sandbox_run r = a_run(), got;
	struct arena *a = arena_new(64UL * 1024);
	const uint8_t many[] = { 0xff, 0xff, 0xff, 0xff };

	tap_is_int(sandbox_msg_run_put(&b, &r), 0, "a run");
	/* magic, flags, timeout, cwd; then the number of arguments */
	memcpy(b.mem + b.off + 4 + 4 + 8 + 4 + r.cwd.n, many, sizeof(many));
	tap_is_int(sandbox_msg_run_get(buf_view(&b), a, &got), SP_E_PROTO,
	    "four milliards of arguments");
	tap_ok(arena_used(a) < 1024, "nothing was allocated for them");
	buf_clear(&b);
	arena_free(a);
}

static void
no_memory(void)
{
	struct buf b = BUF_INIT(SANDBOX_MSG_SPEC_MAX);
	struct sandbox_spec s = a_spec(), got;
	struct arena *a;
	unsigned long n;
	int rc = SP_E_NOMEM;

	for (n = 1; n < 50 && rc == SP_E_NOMEM; n++) {
		buf_clear(&b);
		buf_init(&b, SANDBOX_MSG_SPEC_MAX);
		mem_fail_after(n, 0);
		rc = sandbox_msg_spec_put(&b, &s);
		mem_fail_after(0, 0);
	}
	tap_ok(rc == 0 && n > 1, "writing, each allocation failing");
	rc = SP_E_NOMEM;
	for (n = 1; n < 50 && rc == SP_E_NOMEM; n++) {
		a = arena_new(1024 * 1024);
		mem_fail_after(n, 0);
		rc = sandbox_msg_spec_get(buf_view(&b), a, &got);
		mem_fail_after(0, 0);
		arena_free(a);
	}
	tap_is_int(rc, 0, "reading, each allocation failing");
	a = arena_new(8);
	tap_is_int(sandbox_msg_spec_get(buf_view(&b), a, &got), SP_E_NOMEM,
	    "reading into too little");
	arena_free(a);
	buf_clear(&b);
}

static void
stages(void)
{
	unsigned i, bad = 0;

	for (i = 1; i < SANDBOX_STAGES; i++)
		if (sandbox_msg_stage(i) == NULL ||
		    sandbox_msg_stage(i)[0] == '?')
			bad++;
	tap_is_int(bad, 0, "every stage has a name");
	tap_is_str(sandbox_msg_stage(0), "?", "no stage");
	tap_is_str(sandbox_msg_stage(SANDBOX_STAGES), "?", "an unknown one");
}

int
main(void)
{
	there_and_back();
	cuts();
	nonsense_specs();
	nonsense_runs();
	greedy();
	no_memory();
	stages();
	return tap_done();
}

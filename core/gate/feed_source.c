#include "config.h"

#include "gate/feed_source.h"

#include <stdio.h>
#include <string.h>

#include "gate/process.h"
#include "ipc/wire.h"
#include "json/jscan.h"
#include "json/jwrite.h"

enum {
	SOURCE_JSON_MAX = 128 * 1024, /* a path may be escaped byte by byte */
	SOURCE_NAME_MAX = 64,
};

struct source {
	struct feed *feed;
	enum feed_type type;
	struct buf text;
	struct jwrite w;
};

static void
source_begin(struct source *s, struct feed *f, enum feed_type type)
{
	s->feed = f;
	s->type = type;
	buf_init(&s->text, SOURCE_JSON_MAX);
	jwrite_init(&s->w, &s->text);
	jwrite_object(&s->w);
}

static void
source_end(struct source *s)
{
	int rc;

	jwrite_end_object(&s->w);
	rc = jwrite_finish(&s->w);
	if (rc == SP_OK)
		feed_add(s->feed, s->type, buf_view(&s->text));
	else
		feed_add_gap(s->feed, s->type, 1,
		    rc == SP_E_NOMEM ? "memory" : "too large");
	buf_clear(&s->text);
}

static void
put_str(struct source *s, const char *key, const char *v)
{
	jwrite_key(&s->w, key);
	jwrite_cstr(&s->w, v);
}

static void
put_u64(struct source *s, const char *key, uint64_t v)
{
	jwrite_key(&s->w, key);
	jwrite_u64(&s->w, v);
}

/* ---- processes that were started -------------------------------------------- */

static const char *
end_name(unsigned end)
{
	switch (end) {
	case SANDBOX_END_EXIT:
		return "exit";
	case SANDBOX_END_SIGNAL:
		return "signal";
	case SANDBOX_END_TIMEOUT:
		return "timeout";
	case SANDBOX_END_OOM:
		return "oom";
	default:
		return "lost";
	}
}

/* As Python's subprocess has it: a signal is negative. */
static void
put_returncode(struct source *s, const struct process_exit *e)
{
	jwrite_key(&s->w, "returncode");
	if (e->end == SANDBOX_END_EXIT)
		jwrite_u64(&s->w, e->status);
	else if (e->end == SANDBOX_END_LOST)
		jwrite_null(&s->w);
	else
		jwrite_i64(&s->w, -(int64_t)(e->status > 0 ? e->status : 9));
}

static void
tell_process(struct feed *f, const struct episode_news *n)
{
	const struct process *p = n->process;
	bool exits = n->what == EPISODE_PROCESS_EXITED;
	struct source s;

	source_begin(&s, f, FEED_PROCESS);
	put_str(&s, "kind", exits ? "exit" : "spawn");
	put_u64(&s, "pid", p->pid);
	put_str(&s, "process", p->name);
	put_str(&s, "side", process_side(p->side));
	if (p->links_n > 0)
		put_u64(&s, "links_removed", p->links_n);
	if (exits) {
		put_returncode(&s, &p->exit);
		put_str(&s, "end", end_name(p->exit.end));
		put_u64(&s, "user_us", p->exit.user_us);
		put_u64(&s, "system_us", p->exit.system_us);
		put_u64(&s, "peak_bytes", p->exit.peak_bytes);
	}
	source_end(&s);
}

/* ---- processes that were seen ----------------------------------------------- */

static void
tell_seen(struct feed *f, const char *kind, unsigned side, uint32_t pid,
    const char *name)
{
	struct source s;

	source_begin(&s, f, FEED_PROCESS);
	put_u64(&s, "pid", pid);
	put_str(&s, "kind", kind);
	if (name != NULL)
		put_str(&s, "name", name);
	put_str(&s, "side", process_side(side));
	jwrite_key(&s.w, "sampled");
	jwrite_bool(&s.w, true);
	source_end(&s);
}

/* Those that were started are told of exactly, and not a second time. */
static bool
is_started(const struct episode *ep, uint32_t pid)
{
	const struct process *p;

	LIST_FOREACH (p, &ep->processes, link)
		if (p->started && p->pid == pid)
			return true;
	return false;
}

static bool
has_pid(const uint32_t *pids, size_t n, uint32_t pid)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

struct seen {
	uint32_t pid;
	char name[SOURCE_NAME_MAX];
};

/* {"pid":N,"name":S} */
static int
read_seen(struct jscan *j, struct seen *out)
{
	struct buf name = BUF_INIT(SOURCE_NAME_MAX - 1);
	struct jscan_span key, v;
	int64_t pid = 0;
	int rc;

	memset(out, 0, sizeof(*out));
	rc = jscan_enter(j);
	while (rc == SP_OK && (rc = jscan_member(j, &key)) == 1) {
		rc = jscan_skip(j, &v);
		if (rc == SP_OK && jscan_is(j, &key, VIEW("pid")))
			rc = jscan_i64(j, &v, &pid);
		if (rc == SP_OK && jscan_is(j, &key, VIEW("name")) &&
		    jscan_decode(j, &v, &name, NULL) == SP_OK)
			memcpy(out->name, name.mem != NULL ? name.mem : "",
			    buf_len(&name));
	}
	buf_clear(&name);
	if (rc == SP_OK && (pid <= 0 || pid > INT32_MAX))
		rc = SP_E_SYNTAX;
	out->pid = (uint32_t)pid;
	return rc;
}

/* {"processes":[...],"more":N}: 0 with *used, how many were read; SP_E_*. */
static int
read_sample(struct view text, struct seen *out, size_t max, size_t *used,
    uint64_t *more)
{
	struct jscan_span key, v;
	struct jscan j;
	int64_t n = 0;
	int rc;

	*used = 0;
	*more = 0;
	jscan_init(&j, text, 0);
	rc = jscan_enter(&j);
	while (rc == SP_OK && (rc = jscan_member(&j, &key)) == 1) {
		if (!jscan_is(&j, &key, VIEW("processes"))) {
			rc = jscan_skip(&j, &v);
			if (rc == SP_OK && jscan_is(&j, &key, VIEW("more")))
				rc = jscan_i64(&j, &v, &n);
			continue;
		}
		rc = jscan_enter(&j);
		while (rc == SP_OK && (rc = jscan_element(&j)) == 1)
			rc = *used < max ? read_seen(&j, &out[(*used)++])
					 : SP_E_LIMIT;
	}
	if (rc == SP_OK && n > 0)
		*more = (uint64_t)n;
	return rc;
}

static void
tell_sampled(struct episode *ep, unsigned side, struct view text)
{
	struct feed_samples *was = feed_samples(ep->feed, side);
	struct feed_samples now;
	struct seen seen[FEED_SAMPLES_MAX];
	uint64_t more;
	size_t i, n;

	if (read_sample(text, seen, FEED_SAMPLES_MAX, &n, &more) != SP_OK) {
		feed_add_gap(ep->feed, FEED_PROCESS, 0, "malformed");
		return;
	}
	memset(&now, 0, sizeof(now));
	for (i = 0; i < n; i++)
		if (!is_started(ep, seen[i].pid))
			now.pids[now.n++] = seen[i].pid;
	for (i = 0; i < was->n; i++)
		if (!has_pid(now.pids, now.n, was->pids[i]))
			tell_seen(ep->feed, "exit", side, was->pids[i], NULL);
	for (i = 0; i < n; i++)
		if (has_pid(now.pids, now.n, seen[i].pid) &&
		    !has_pid(was->pids, was->n, seen[i].pid))
			tell_seen(ep->feed, "spawn", side, seen[i].pid,
			    seen[i].name);
	/* more than a sample holds: once, until they are fewer */
	now.more = more > 0;
	if (now.more && !was->more)
		feed_add_gap(ep->feed, FEED_PROCESS, more, "not sampled");
	*was = now;
}

/* ---- samples ---------------------------------------------------------------- */

static void
tell_resources(struct feed *f, unsigned side, struct view body)
{
	struct source s;
	struct wire w;
	uint64_t cpu, memory, processes, disk, user, system;

	wire_init(&w, body);
	(void)wire_u64(&w); /* its time: ours is that of the others */
	cpu = wire_u64(&w);
	memory = wire_u64(&w);
	processes = wire_u32(&w);
	disk = wire_u64(&w);
	user = wire_u64(&w);
	system = wire_u64(&w);
	if (w.bad)
		return;
	source_begin(&s, f, FEED_RESOURCE);
	put_u64(&s, "memory_bytes", memory);
	jwrite_key(&s.w, "cpu");
	jwrite_object(&s.w);
	put_u64(&s, "usage_usec", cpu);
	put_u64(&s, "user_usec", user);
	put_u64(&s, "system_usec", system);
	jwrite_end_object(&s.w);
	put_u64(&s, "disk_bytes", disk);
	put_u64(&s, "processes", processes);
	put_str(&s, "side", process_side(side));
	source_end(&s);
}

static void
tell_oom(struct feed *f, unsigned side, struct view body)
{
	struct source s;
	struct wire w;

	wire_init(&w, body);
	source_begin(&s, f, FEED_RESOURCE);
	put_str(&s, "kind", "oom");
	put_u64(&s, "kills", wire_u32(&w));
	if (wire_u8(&w) == 1)
		put_str(&s, "of", "sockets");
	put_str(&s, "side", process_side(side));
	source_end(&s);
}

static void
tell_event(struct episode *ep, const struct episode_news *n)
{
	struct wire w;

	switch (n->event) {
	case SANDBOX_EVENT_SAMPLE:
		tell_resources(ep->feed, n->side, n->text);
		break;
	case SANDBOX_EVENT_PROCESS:
		tell_sampled(ep, n->side, n->text);
		break;
	case SANDBOX_EVENT_OOM:
		tell_oom(ep->feed, n->side, n->text);
		break;
	case SANDBOX_EVENT_GAP:
		wire_init(&w, n->text);
		feed_add_gap(ep->feed, FEED_PROCESS, wire_u64(&w), "queue");
		break;
	default:
		break;
	}
}

void
feed_source_news(struct episode *ep, const struct episode_news *n)
{
	if (ep->feed == NULL)
		return;
	if (n->what == EPISODE_PROCESS_STARTED ||
	    n->what == EPISODE_PROCESS_EXITED)
		tell_process(ep->feed, n);
	else if (n->what == EPISODE_SAMPLE)
		tell_event(ep, n);
}

/* ---- turns ------------------------------------------------------------------ */

void
feed_source_turn(struct episode_set *set, const struct turn_facts *facts)
{
	struct episode *ep = NULL;
	struct source s;

	if (set != NULL && facts->episode.n > 0)
		ep = episode_find(set, facts->episode);
	if (ep == NULL || ep->feed == NULL)
		return;
	source_begin(&s, ep->feed, FEED_MODEL);
	put_u64(&s, "turn", facts->number);
	jwrite_key(&s.w, "session");
	jwrite_string(&s.w, facts->session);
	put_u64(&s, "completion_tokens", facts->tokens);
	jwrite_key(&s.w, "finish_reason");
	if (facts->finish_reason.n > 0)
		jwrite_string(&s.w, facts->finish_reason);
	else
		jwrite_null(&s.w);
	jwrite_key(&s.w, "recorded");
	jwrite_bool(&s.w, facts->ok);
	source_end(&s);
}

/* ---- connections through this process --------------------------------------- */

static void
put_dest(struct source *s, uint32_t addr, uint16_t port)
{
	char dest[32];

	(void)snprintf(dest, sizeof(dest), "%u.%u.%u.%u:%u", addr >> 24,
	    addr >> 16 & 255, addr >> 8 & 255, addr & 255, port);
	jwrite_key(&s->w, "dest");
	if (addr != 0)
		jwrite_cstr(&s->w, dest);
	else
		jwrite_null(&s->w);
}

void
feed_source_relay(const struct episode *ep, const struct relay_decision *d)
{
	static const char *const outcomes[] = {
		[RELAY_DENIED] = "deny",
		[RELAY_FAILED] = "failed",
		[RELAY_ALLOWED] = "allow",
	};
	struct source s;

	if (ep->feed == NULL ||
	    (d->verdict == RELAY_DENIED && !feed_may_deny(ep->feed)))
		return;
	source_begin(&s, ep->feed, FEED_NETWORK);
	put_str(&s, "kind", d->ended ? "closed" : "connection");
	put_str(&s, "protocol", "tcp");
	put_dest(&s, d->addr, d->port);
	if (d->name.n > 0) {
		jwrite_key(&s.w, "host");
		jwrite_string(&s.w, d->name);
	}
	jwrite_key(&s.w, "denied");
	jwrite_bool(&s.w, d->verdict == RELAY_DENIED);
	put_str(&s, "outcome", outcomes[d->verdict]);
	if (d->why != NULL && d->why[0] != '\0')
		put_str(&s, "reason", d->why);
	if (d->ended) {
		put_u64(&s, "sent_bytes", d->sent);
		put_u64(&s, "received_bytes", d->received);
	}
	put_str(&s, "source", d->way == RELAY_CONNECT ? "connect" : "relay");
	source_end(&s);
}

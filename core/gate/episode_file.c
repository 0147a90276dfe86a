#include "config.h"

#include "gate/episode_file.h"

#include "base/b64.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "gate/process.h"
#include "ipc/wire.h"
#include "os/fd.h"

enum { EPISODE_FILE_NAME_MAX = 64 * 1024 * 1024 }; /* a path, escaped */

/* ---- records ---------------------------------------------------------------- */

static const char *const types[SANDBOX_TYPES] = {
	[SANDBOX_TYPE_FILE] = "file",
	[SANDBOX_TYPE_DIR] = "directory",
	[SANDBOX_TYPE_SYMLINK] = "symlink",
	[SANDBOX_TYPE_FIFO] = "fifo",
	[SANDBOX_TYPE_SOCKET] = "socket",
	[SANDBOX_TYPE_DEVICE] = "device",
};
static const char *const changes[SANDBOX_CHANGES] = {
	[SANDBOX_CREATED] = "created",
	[SANDBOX_MODIFIED] = "modified",
	[SANDBOX_DELETED] = "deleted",
	[SANDBOX_REPLACED] = "replaced",
};

/* A name need not be UTF-8; then it is told as what it is. */
static void
put_name(struct jwrite *w, const char *key, const char *key_b64, struct view v)
{
	struct buf text = BUF_INIT(EPISODE_FILE_NAME_MAX);

	if (utf8_valid(v)) {
		jwrite_key(w, key);
		jwrite_string(w, v);
		return;
	}
	jwrite_key(w, key_b64);
	if (b64_add(&text, v) == SP_OK)
		jwrite_string(w, buf_view(&text));
	else
		w->err = SP_E_NOMEM;
	buf_clear(&text);
}

static void
put_mode(struct jwrite *w, uint32_t mode)
{
	char text[8];
	size_t i;

	/* set-id bits and nine more: four octal digits */
	for (i = 4; i-- > 0; mode >>= 3)
		text[i] = (char)('0' + (mode & 7));
	jwrite_key(w, "mode");
	jwrite_string(w, view_of(text, 4));
}

static int
dirent_line(struct wire *in, struct jwrite *w)
{
	struct sandbox_dirent d;
	int rc = sandbox_msg_dirent_get(in, &d);
	char when[32];

	if (rc != SP_OK)
		return rc;
	jwrite_object(w);
	put_name(w, "name", "name_b64", d.name);
	jwrite_key(w, "type");
	jwrite_cstr(w, types[d.type]);
	put_mode(w, d.mode);
	jwrite_key(w, "uid");
	jwrite_u64(w, d.uid);
	jwrite_key(w, "gid");
	jwrite_u64(w, d.gid);
	jwrite_key(w, "size");
	jwrite_u64(w, d.size);
	clock_format(d.mtime_us, when);
	jwrite_key(w, "modified_at");
	jwrite_cstr(w, when);
	jwrite_end_object(w);
	return jwrite_finish(w);
}

static int
change_line(struct wire *in, struct jwrite *w)
{
	struct sandbox_change c;
	int rc = sandbox_msg_change_get(in, &c);

	if (rc != SP_OK)
		return rc;
	jwrite_object(w);
	put_name(w, "path", "path_b64", c.path);
	jwrite_key(w, "change");
	jwrite_cstr(w, changes[c.kind]);
	jwrite_key(w, "type");
	jwrite_cstr(w, types[c.type]);
	jwrite_key(w, "size");
	jwrite_u64(w, c.size);
	put_mode(w, c.mode);
	if (c.kind == SANDBOX_MODIFIED) {
		jwrite_key(w, "content");
		jwrite_bool(w, (c.flags & SANDBOX_CHANGE_CONTENT) != 0);
		jwrite_key(w, "attributes");
		jwrite_bool(w, (c.flags & SANDBOX_CHANGE_MODE) != 0);
	}
	if ((c.flags & SANDBOX_CHANGE_UNCOMPARED) != 0) {
		jwrite_key(w, "uncompared");
		jwrite_bool(w, true);
	}
	if ((c.flags & SANDBOX_CHANGE_UNREADABLE) != 0) {
		jwrite_key(w, "unreadable");
		jwrite_bool(w, true);
	}
	jwrite_end_object(w);
	return jwrite_finish(w);
}

void
episode_file_records(struct episode_records *r, bool diff, struct view text)
{
	r->diff = diff;
	wire_init(&r->w, text);
}

int
episode_file_next(struct episode_records *r, struct buf *out)
{
	struct jwrite w;

	jwrite_init(&w, out);
	return r->diff ? change_line(&r->w, &w) : dirent_line(&r->w, &w);
}

int
episode_file_data(int fd, struct buf *out)
{
	return fd_read_sealed(fd, out);
}

int
episode_file_put(struct episode *ep, struct episode_file_ask *ask,
    struct view content,
    void (*file)(void *arg, struct episode *ep, enum sandbox_file_result result,
	uint64_t size, int fd, struct view what),
    void *arg)
{
	int rc = fd_sealed("put", content.p, content.n, &ask->put_fd);

	return rc == SP_OK ? episode_file(ep, ask, file, arg) : rc;
}

/* ---- news ------------------------------------------------------------------- */

static void
put_u64(struct jwrite *w, const char *key, uint64_t v)
{
	jwrite_key(w, key);
	jwrite_u64(w, v);
}

static void
put_text(struct jwrite *w, const char *key, struct view v)
{
	jwrite_key(w, key);
	jwrite_string(w, v);
}

const char *
episode_file_end(unsigned end)
{
	static const char *const names[] = {
		[SANDBOX_END_EXIT] = "exit",
		[SANDBOX_END_SIGNAL] = "signal",
		[SANDBOX_END_TIMEOUT] = "timeout",
		[SANDBOX_END_OOM] = "oom",
		[SANDBOX_END_LOST] = "lost",
	};

	return end >= SANDBOX_END_EXIT && end <= SANDBOX_END_LOST ? names[end]
								  : "lost";
}

static void
put_process(struct jwrite *w, const struct episode_news *n)
{
	const struct process *p = n->process;

	put_u64(w, "handle", p->handle);
	put_u64(w, "pid", p->pid);
	put_text(w, "side", view_str(process_side(p->side)));
	put_text(w, "program", view_str(p->name));
	if (n->what != EPISODE_PROCESS_EXITED)
		return;
	put_text(w, "end", view_str(episode_file_end(p->exit.end)));
	put_u64(w, "status", p->exit.status);
	put_u64(w, "user_us", p->exit.user_us);
	put_u64(w, "system_us", p->exit.system_us);
	put_u64(w, "peak_bytes", p->exit.peak_bytes);
}

/* The body of a KEEPER_EVENT, the workload's side of which nobody trusts. */
static void
put_sample(struct jwrite *w, const struct episode_news *n)
{
	struct wire in;

	wire_init(&in, n->text);
	put_u64(w, "sequence", n->sequence);
	put_text(w, "side", view_str(process_side(n->side)));
	switch (n->event) {
	case SANDBOX_EVENT_SAMPLE:
		put_u64(w, "wall_us", wire_u64(&in));
		put_u64(w, "cpu_us", wire_u64(&in));
		put_u64(w, "memory_bytes", wire_u64(&in));
		put_u64(w, "processes", wire_u32(&in));
		break;
	case SANDBOX_EVENT_OOM:
		put_u64(w, "kills", wire_u32(&in));
		if (wire_u8(&in) == 1)
			put_text(w, "of", VIEW("sockets"));
		break;
	case SANDBOX_EVENT_GAP:
		put_u64(w, "lost", wire_u64(&in));
		break;
	default:
		jwrite_key(w, "process");
		jwrite_span(w, n->text);
		return;
	}
	if (in.bad)
		w->err = SP_E_PROTO;
}

const char *
episode_file_news(const struct episode_news *n)
{
	static const char *const samples[] = {
		[SANDBOX_EVENT_SAMPLE] = "resources",
		[SANDBOX_EVENT_PROCESS] = "process",
		[SANDBOX_EVENT_OOM] = "oom",
		[SANDBOX_EVENT_GAP] = "gap",
	};

	switch (n->what) {
	case EPISODE_MADE:
		return "made";
	case EPISODE_CLOSING:
		return "closing";
	case EPISODE_ENDED:
		return "ended";
	case EPISODE_PROCESS_STARTED:
		return "process_started";
	case EPISODE_PROCESS_EXITED:
		return "process_exited";
	case EPISODE_SAMPLE:
		break;
	}
	return n->event >= SANDBOX_EVENT_SAMPLE && n->event <= SANDBOX_EVENT_GAP
	    ? samples[n->event]
	    : NULL;
}

void
episode_file_put_news(struct jwrite *w, const struct episode *ep,
    const struct episode_news *n)
{
	if (n->process != NULL)
		put_process(w, n);
	if (n->what == EPISODE_SAMPLE)
		put_sample(w, n);
	if (n->what == EPISODE_MADE) {
		put_u64(w, "generation", ep->generation);
		put_u64(w, "resets", ep->resets);
	}
	if (n->what == EPISODE_ENDED) {
		put_text(w, "end",
		    ep->state == EPISODE_ENDING
			? VIEW("asked")
			: view_str(episode_file_end(n->end)));
		put_text(w, "why", n->text);
	}
}

#include "config.h"

#include "gate/feed_files.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/mem.h"
#include "ipc/sandbox_msg.h"
#include "json/jwrite.h"
#include "os/fd.h"

enum {
	FEED_FILES_TURN = 16, /* messages in one go: then the others' turn */
	FEED_FILES_LAST = 256, /* at the end */
	FEED_FILES_JSON = 32 * 1024,
	FEED_FILES_RESCAN_MS = 1000, /* from a loss to the look at all */
	FEED_FILES_RESCAN_MAX = 100000, /* changes that are told of it */
};

/* One watch: of an episode where it was. */
struct feed_file_watch {
	LIST_ENTRY(feed_file_watch) link;
	struct feed_files *set;
	struct episode *ep;
	int fd;
	struct loop_fd *on;
	struct loop_timer *rescan;
	bool looking; /* a diff is under way */
	bool due; /* and more was lost meanwhile */
};

struct feed_files {
	struct loop *loop;
	LIST_HEAD(, feed_file_watch) all;
};

static const char *
feed_files_kind(uint8_t kind)
{
	switch (kind) {
	case SANDBOX_CREATED:
		return "create";
	case SANDBOX_DELETED:
		return "delete";
	default:
		return "modify";
	}
}

static void
feed_files_tell(struct episode *ep, struct view path, uint8_t kind, bool rescan)
{
	struct buf text = BUF_INIT(FEED_FILES_JSON);
	struct jwrite w;

	jwrite_init(&w, &text);
	jwrite_object(&w);
	jwrite_key(&w, "path");
	jwrite_string(&w, path);
	jwrite_key(&w, "kind");
	jwrite_cstr(&w, feed_files_kind(kind));
	if (rescan) {
		jwrite_key(&w, "rescan");
		jwrite_bool(&w, true);
	}
	jwrite_end_object(&w);
	if (jwrite_finish(&w) == SP_OK)
		feed_add(feed_of(ep), FEED_FS, buf_view(&text));
	else
		feed_add_gap(feed_of(ep), FEED_FS, 1, "memory");
	buf_clear(&text);
}

/* ---- after a loss: all that differs from the seed --------------------------- */

static void
feed_files_put_diff(struct episode *ep, struct view text)
{
	struct sandbox_change c;
	struct wire w;
	unsigned n = 0;

	wire_init(&w, text);
	while (n++ < FEED_FILES_RESCAN_MAX &&
	    sandbox_msg_change_get(&w, &c) == SP_OK) {
		if (c.kind == SANDBOX_REPLACED)
			feed_files_tell(ep, c.path, SANDBOX_DELETED, true);
		feed_files_tell(ep, c.path,
		    c.kind == SANDBOX_REPLACED ? SANDBOX_CREATED : c.kind,
		    true);
	}
	if (wire_more(&w) || w.bad)
		feed_add_gap(feed_of(ep), FEED_FS, 0, "rescan");
}

static void
feed_files_on_diff(void *arg, struct episode *ep,
    enum sandbox_file_result result, uint64_t size, int fd, struct view what)
{
	struct feed_file_watch *f = arg;
	struct buf text = BUF_INIT(64 * 1024 * 1024);

	(void)size;
	(void)what;
	f->looking = false;
	if (result == SANDBOX_FILE_OK && fd >= 0 &&
	    fd_read_sealed(fd, &text) == SP_OK)
		feed_files_put_diff(ep, buf_view(&text));
	else
		feed_add_gap(feed_of(ep), FEED_FS, 0, "rescan");
	buf_clear(&text);
	if (f->due)
		loop_timer_set(f->rescan, FEED_FILES_RESCAN_MS);
	f->due = false;
}

static void
feed_files_on_rescan(void *arg)
{
	struct feed_file_watch *f = arg;
	const struct episode_file_ask ask = { .op = SANDBOX_FILE_DIFF,
		.path = VIEW("/workspace"),
		.limit = 64 * 1024 * 1024,
		.put_fd = -1 };

	if (f->ep->state == EPISODE_LIVE &&
	    episode_file(f->ep, &ask, feed_files_on_diff, f) == SP_OK)
		f->looking = true;
}

static void
feed_files_lost(struct feed_file_watch *f)
{
	if (f->looking)
		f->due = true;
	else
		loop_timer_set(f->rescan, FEED_FILES_RESCAN_MS);
}

/* ---- reading ---------------------------------------------------------------- */

static int
feed_files_message(struct feed_file_watch *f, struct view bytes)
{
	struct sandbox_file_note n;
	struct wire w;
	int rc;

	wire_init(&w, bytes);
	while ((rc = sandbox_msg_file_note_get(&w, &n)) == SP_OK) {
		if (n.kind < SANDBOX_NOTE_OVERFLOW) {
			feed_files_tell(f->ep, n.path, n.kind, false);
			continue;
		}
		feed_add_gap(feed_of(f->ep), FEED_FS, n.lost,
		    n.kind == SANDBOX_NOTE_OVERFLOW ? "overflow" : "moved on");
		if (n.kind == SANDBOX_NOTE_OVERFLOW)
			feed_files_lost(f);
	}
	return rc == SP_E_EOF ? SP_OK : rc;
}

/* At most so many messages: false when there will be no more. */
static bool
feed_files_read(struct feed_file_watch *f, unsigned most)
{
	char *mem = loop_scratch(f->set->loop);
	ssize_t n;

	while (most-- > 0) {
		n = recv(f->fd, mem, SANDBOX_NOTES_MAX, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 && errno == EAGAIN;
		if (feed_files_message(f, view_of(mem, (size_t)n)) != SP_OK)
			return false;
	}
	return true;
}

static void
feed_files_on_ready(void *arg, unsigned ready)
{
	struct feed_file_watch *f = arg;

	(void)ready;
	if (feed_files_read(f, FEED_FILES_TURN))
		return;
	(void)!loop_fd_want(f->on, 0);
	/* with its sandbox it ends too, and nothing is lost */
	if (f->ep->state == EPISODE_LIVE)
		feed_add_gap(feed_of(f->ep), FEED_FS, 0, "watch ended");
}

/* ---- life ------------------------------------------------------------------- */

static void
feed_files_close(struct feed_file_watch *f)
{
	episode_forget(f->ep->set, f);
	LIST_REMOVE(f, link);
	loop_fd_free(f->on);
	loop_timer_free(f->rescan);
	fd_close(&f->fd);
	mem_free(f);
}

struct feed_files *
feed_files_new(struct loop *loop)
{
	struct feed_files *s = mem_calloc(1, sizeof(*s));

	if (s != NULL) {
		s->loop = loop;
		LIST_INIT(&s->all);
	}
	return s;
}

void
feed_files_free(struct feed_files *s)
{
	struct feed_file_watch *f;

	if (s == NULL)
		return;
	while ((f = LIST_FIRST(&s->all)) != NULL)
		feed_files_close(f);
	mem_free(s);
}

void
feed_files_open(struct feed_files *s, struct episode *ep, int fd)
{
	struct feed_file_watch *f = mem_calloc(1, sizeof(*f));

	if (f == NULL) {
		feed_add_gap(feed_of(ep), FEED_FS, 0, "memory");
		fd_close(&fd);
		return;
	}
	f->set = s;
	f->ep = ep;
	f->fd = fd;
	LIST_INSERT_HEAD(&s->all, f, link);
	f->on = loop_fd_new(s->loop, fd, feed_files_on_ready, f);
	f->rescan = loop_timer_new(s->loop, feed_files_on_rescan, f);
	if (f->on != NULL && f->rescan != NULL &&
	    loop_fd_want(f->on, LOOP_READ) == SP_OK)
		return;
	feed_add_gap(feed_of(ep), FEED_FS, 0, "memory");
	feed_files_close(f);
}

void
feed_files_news(struct feed_files *s, struct episode *ep,
    const struct episode_news *n)
{
	struct feed_file_watch *f, *next;

	if (n->what != EPISODE_MADE && n->what != EPISODE_ENDED)
		return;
	for (f = LIST_FIRST(&s->all); f != NULL; f = next) {
		next = LIST_NEXT(f, link);
		if (f->ep != ep)
			continue;
		(void)feed_files_read(f, FEED_FILES_LAST);
		feed_files_close(f);
	}
}

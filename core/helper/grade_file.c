#include "config.h"

#include "base/mem.h"
#include "helper/assets.h"
#include "helper/episodes_priv.h"
#include "ipc/wire.h"
#include "os/fd.h"

struct grade_file {
	LIST_ENTRY(grade_file) link;
	struct ep *ep;
	uint32_t request;
	bool muted; /* the reactor listens no more */
	struct hold_wait hold; /* of a diff */
	uint64_t limit;
	struct assets_read *asset; /* of a read */
};

static void
file_free(struct grade_file *f)
{
	LIST_REMOVE(f, link);
	hold_release(f->ep->hold, &f->hold);
	assets_read_drop(f->asset);
	mem_free(f);
}

static void
file_refuse_as(struct grade_file *f, enum sandbox_refusal how, const char *why)
{
	if (!f->muted)
		episodes_tell_refused(f->ep->e, f->request, how, view_str(why));
	file_free(f);
}

static void
file_refuse(struct grade_file *f, const char *why)
{
	file_refuse_as(f, SANDBOX_REFUSED_FAILED, why);
}

static struct grade_file *
file_new(struct ep *p, uint32_t request, uint64_t limit)
{
	struct grade_file *f;
	unsigned n = 0;

	LIST_FOREACH (f, &p->files, link)
		n++;
	f = n < GRADE_FILES_MAX ? mem_calloc(1, sizeof(*f)) : NULL;
	if (f == NULL)
		return NULL;
	f->ep = p;
	f->request = request;
	f->limit = limit;
	LIST_INSERT_HEAD(&p->files, f, link);
	return f;
}

/* ---- the changes ------------------------------------------------------------ */

/* DATA, perhaps, and DONE: passed on as they are. */
static void
diff_on_answer(void *arg, const struct channel_msg *m, struct view rest, int fd)
{
	struct grade_file *f = arg;

	if (f->muted)
		fd_close(&fd);
	else
		episodes_pass(f->ep, m->type, f->request, rest, fd);
	if (m->type == MESSAGE_KEEPER_FILE_DONE)
		file_free(f);
}

static void
diff_on_hold(void *arg, bool frozen)
{
	struct grade_file *f = arg;
	struct buf b = BUF_INIT(64);
	int rc;

	if (!frozen) {
		if (hold_never(f->ep->hold))
			file_refuse_as(f, SANDBOX_REFUSED_UNSUPPORTED,
			    SANDBOX_FROZEN_NEVER_TEXT);
		else
			file_refuse(f,
			    "the episode cannot be frozen: what runs in it "
			    "does not stop in time");
		return;
	}
	rc = wire_put_u8(&b, SANDBOX_FILE_DIFF);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, 0);
	if (rc == SP_OK)
		rc = wire_put_u64(&b, f->limit);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, VIEW_NONE);
	if (rc == SP_OK)
		rc = slot_ask_own(f->ep->slot, f->ep->slot->keepers[0].side,
		    MESSAGE_KEEPER_FILE, buf_view(&b), diff_on_answer, f);
	buf_clear(&b);
	if (rc != SP_OK)
		file_refuse(f, err_str(rc));
}

static void
diff_begin(struct grade_file *f)
{
	f->hold.done = diff_on_hold;
	f->hold.arg = f;
	if (hold_take(f->ep->hold, &f->hold) != SP_OK)
		file_refuse(f, "the episode ends");
}

/* ---- an asset --------------------------------------------------------------- */

static void
asset_on_read(void *arg, enum sandbox_file_result result, uint64_t size, int fd)
{
	struct buf b = BUF_INIT(64);
	struct grade_file *f = arg;
	int rc;

	f->asset = NULL;
	rc = wire_put_u8(&b, (uint8_t)result);
	if (rc == SP_OK)
		rc = wire_put_u64(&b, size);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b,
		    result == SANDBOX_FILE_OK ? VIEW_NONE : VIEW("asset"));
	if (rc == SP_OK && !f->muted) {
		if (fd >= 0)
			episodes_pass(f->ep, MESSAGE_KEEPER_FILE_DATA,
			    f->request, VIEW_NONE, fd);
		fd = -1;
		episodes_pass(f->ep, MESSAGE_KEEPER_FILE_DONE, f->request,
		    buf_view(&b), -1);
	}
	fd_close(&fd);
	buf_clear(&b);
	file_free(f);
}

static void
asset_begin(struct grade_file *f, struct view name)
{
	const struct assets_ask ask = { f->ep->env->env, f->ep->env->assets_fd,
		name, f->limit };

	if (ask.env == NULL || ask.dir < 0) {
		asset_on_read(f, SANDBOX_FILE_NOT_FOUND, 0, -1);
		return;
	}
	f->asset = assets_read_start(f->ep->e->p, &ask, asset_on_read, f);
	if (f->asset == NULL)
		file_refuse(f, "no child to read it");
}

/* ---- what the reactor asks -------------------------------------------------- */

int
grade_file(struct ep *p, uint32_t request, struct view rest)
{
	struct grade_file *f;
	struct view path;
	struct wire w;
	uint64_t max;
	uint8_t op;

	wire_init(&w, rest);
	op = wire_u8(&w);
	(void)wire_u32(&w);
	max = wire_u64(&w);
	path = wire_bytes(&w);
	if (wire_done(&w) != SP_OK)
		return SP_E_NOTFOUND;
	path = op == SANDBOX_FILE_READ ? assets_path(path) : VIEW_NONE;
	if (op != SANDBOX_FILE_DIFF_FROZEN && path.n == 0)
		return SP_E_NOTFOUND;
	f = file_new(p, request, max);
	if (f == NULL)
		episodes_tell_refused(p->e, request, SANDBOX_REFUSED_CAPACITY,
		    VIEW("too much file work at once"));
	else if (op == SANDBOX_FILE_DIFF_FROZEN)
		diff_begin(f);
	else
		asset_begin(f, path);
	return SP_OK;
}

/* ---- the end ---------------------------------------------------------------- */

void
grade_file_reactor_lost(struct ep *p)
{
	struct grade_file *f;

	LIST_FOREACH (f, &p->files, link)
		f->muted = true;
}

void
grade_file_drop(struct ep *p)
{
	struct grade_file *f;

	while ((f = LIST_FIRST(&p->files)) != NULL)
		file_free(f);
}

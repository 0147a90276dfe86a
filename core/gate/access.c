#include "config.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gate/access.h"
#include "json/jwrite.h"
#include "os/fd.h"

enum {
	ACCESS_BUFFER_MAX = 64 * 1024, /* of one turn of the loop */
	ACCESS_FLUSH_AT = 48 * 1024,
	ACCESS_PATH_MAX = 1024,
	ACCESS_METHOD_MAX = 32,
};

struct access {
	struct loop_task *task;
	struct buf lines;
	int fd;
	uint64_t lost;
	bool torn; /* the file ends within a line, whose rest is kept */
	bool failing; /* it was said already */
};

static void
access_fail(struct access *a, uint64_t lines, int rc)
{
	a->lost += lines;
	if (!a->failing)
		log_error("access log: %s; lines are lost", err_str(rc));
	a->failing = true;
}

/* A reader that is too slow loses lines, and nobody waits. */
static void
access_drop(struct access *a)
{
	struct view v = buf_view(&a->lines);
	bool torn = v.n > 0 && a->torn;
	size_t keep = torn ? view_find(v, '\n') + 1 : 0;
	struct view gone = view_from(v, keep);
	uint64_t lines = 0;

	/* the rest of a line that began goes out before all else */
	while (gone.n > 0) {
		lines++;
		gone = view_from(gone, view_find(gone, '\n') + 1);
	}
	if (keep <= v.n)
		buf_truncate(&a->lines, keep);
	if (lines > 0)
		access_fail(a, lines, SP_E_AGAIN);
}

static void
access_flush(void *arg)
{
	struct access *a = arg;
	struct view v = buf_view(&a->lines);
	size_t done;

	if (v.p != NULL && v.n > 0 && a->fd >= 0) {
		done = log_put(a->fd, v.p, v.n);
		if (done > 0)
			a->torn = v.p[done - 1] != '\n';
		if (done == v.n) {
			a->failing = false;
		} else {
			buf_consume(&a->lines, done);
			access_drop(a);
			return;
		}
	}
	buf_reset(&a->lines, 4096);
}

struct access *
access_new(struct loop *l)
{
	struct access *a = mem_calloc(1, sizeof(*a));

	if (a == NULL)
		return NULL;
	a->fd = -1;
	buf_init(&a->lines, ACCESS_BUFFER_MAX);
	a->task = loop_task_new(l, access_flush, a);
	if (a->task == NULL) {
		mem_free(a);
		return NULL;
	}
	return a;
}

void
access_free(struct access *a)
{
	if (a == NULL)
		return;
	access_flush(a);
	loop_task_free(a->task);
	buf_clear(&a->lines);
	fd_close(&a->fd);
	mem_free(a);
}

void
access_set_fd(struct access *a, int fd)
{
	access_flush(a);
	buf_reset(&a->lines, 4096);
	fd_close(&a->fd);
	a->fd = fd;
	a->torn = false;
	a->failing = false;
}

static void
access_put_str(struct jwrite *w, const char *key, const char *s)
{
	jwrite_key(w, key);
	jwrite_cstr(w, s);
}

static void
access_put_u64(struct jwrite *w, const char *key, uint64_t v)
{
	jwrite_key(w, key);
	jwrite_u64(w, v);
}

static int
access_write(struct buf *out, const struct access_line *l)
{
	struct jwrite w;
	char now[32];

	clock_format(clock_wall_us(), now);
	jwrite_init(&w, out);
	jwrite_object(&w);
	access_put_str(&w, "time", now);
	access_put_str(&w, "listener", l->listener);
	access_put_str(&w, "peer", l->peer);
	access_put_u64(&w, "conn", l->connection);
	access_put_u64(&w, "request", l->number);
	jwrite_key(&w, "method");
	jwrite_string(&w, view_sub(l->method, 0, ACCESS_METHOD_MAX));
	jwrite_key(&w, "path");
	jwrite_string(&w, view_sub(l->path, 0, ACCESS_PATH_MAX));
	access_put_u64(&w, "status", l->status);
	access_put_u64(&w, "bytes", l->bytes);
	jwrite_key(&w, "duration_ms");
	jwrite_double(&w, (double)l->duration_us / 1000.0);
	access_put_str(&w, "principal", l->principal);
	access_put_str(&w, "module", l->module);
	jwrite_key(&w, "session");
	if (l->session.n > 0)
		jwrite_string(&w, l->session);
	else
		jwrite_null(&w);
	access_put_str(&w, "outcome", l->outcome);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

void
access_add(struct access *a, const struct access_line *line)
{
	size_t before;
	int rc;

	if (a->fd < 0)
		return;
	if (buf_len(&a->lines) >= ACCESS_FLUSH_AT)
		access_flush(a);
	before = buf_len(&a->lines);
	rc = access_write(&a->lines, line);
	if (rc == SP_OK)
		rc = buf_add_char(&a->lines, '\n');
	if (rc != SP_OK) {
		buf_truncate(&a->lines, before);
		access_fail(a, 1, rc);
		return;
	}
	loop_task_post(a->task);
}

uint64_t
access_lost(const struct access *a)
{
	return a->lost;
}

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
	ACCESS_NAME_MAX = 128, /* ids and names of tools */
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

static void
access_put_view(struct jwrite *w, const char *key, struct view v)
{
	jwrite_key(w, key);
	if (v.n > 0)
		jwrite_string(w, view_sub(v, 0, ACCESS_NAME_MAX));
	else
		jwrite_null(w);
}

static void
access_put_start(struct jwrite *w, const char *listener, const char *peer,
    uint64_t connection, uint64_t number)
{
	char now[32];

	clock_format(clock_wall_us(), now);
	jwrite_object(w);
	access_put_str(w, "time", now);
	access_put_str(w, "listener", listener);
	access_put_str(w, "peer", peer);
	access_put_u64(w, "conn", connection);
	access_put_u64(w, "request", number);
}

static int
access_write_operation(struct buf *out, const void *arg)
{
	const struct access_operation *o = arg;
	struct jwrite w;

	jwrite_init(&w, out);
	access_put_start(&w, o->listener, o->peer, o->connection, o->number);
	access_put_str(&w, "principal", o->principal);
	access_put_str(&w, "door", o->door);
	access_put_view(&w, "episode", o->episode);
	access_put_str(&w, "operation", o->operation);
	access_put_view(&w, "tool", o->tool);
	access_put_str(&w, "outcome", o->outcome);
	jwrite_key(&w, "duration_ms");
	jwrite_double(&w, (double)o->duration_us / 1000.0);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

static int
access_write(struct buf *out, const void *arg)
{
	const struct access_line *l = arg;
	struct jwrite w;

	jwrite_init(&w, out);
	access_put_start(&w, l->listener, l->peer, l->connection, l->number);
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
	access_put_view(&w, "session", l->session);
	access_put_str(&w, "outcome", l->outcome);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

/* A line is whole or not there. */
static void
access_put(struct access *a, int (*write)(struct buf *out, const void *arg),
    const void *arg)
{
	size_t before;
	int rc;

	if (a->fd < 0)
		return;
	if (buf_len(&a->lines) >= ACCESS_FLUSH_AT)
		access_flush(a);
	before = buf_len(&a->lines);
	rc = write(&a->lines, arg);
	if (rc == SP_OK)
		rc = buf_add_char(&a->lines, '\n');
	if (rc != SP_OK) {
		buf_truncate(&a->lines, before);
		access_fail(a, 1, rc);
		return;
	}
	loop_task_post(a->task);
}

void
access_add(struct access *a, const struct access_line *line)
{
	access_put(a, access_write, line);
}

void
access_add_operation(struct access *a, const struct access_operation *op)
{
	access_put(a, access_write_operation, op);
}

uint64_t
access_lost(const struct access *a)
{
	return a->lost;
}

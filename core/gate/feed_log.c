#include "config.h"

#include "gate/feed_log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/fd.h"

/* In front of each event's data, in memory and in the file alike. */
struct feed_log_head {
	uint64_t seq, us;
	uint32_t type, n;
};

struct feed_log_block {
	struct buf mem; /* empty when it is in the file */
	uint64_t at; /* in the file */
	uint64_t bytes;
	uint64_t first_seq, last_us;
	unsigned types;
};

enum {
	FEED_LOG_CAP_FIRST = 8,
	FEED_LOG_RECORD_MAX = FEED_LOG_EVENT_MAX + sizeof(struct feed_log_head),
	FEED_LOG_GAP_MAX = 64,
};

static const struct feed_log_io feed_log_real = { .pwrite = pwrite,
	.pread = pread };

/* ---- life ------------------------------------------------------------------- */

void
feed_log_init(struct feed_log *l, const struct feed_log_limits *limits)
{
	memset(l, 0, sizeof(*l));
	l->limits = *limits;
	if (l->limits.io == NULL)
		l->limits.io = &feed_log_real;
	l->fd = -1;
	l->loaded = UINT64_MAX;
	buf_init(&l->load, FEED_LOG_BLOCK + FEED_LOG_RECORD_MAX);
}

static struct feed_log_block **
feed_log_place(const struct feed_log *l, uint64_t id)
{
	return &l->blocks[id & (l->cap - 1)];
}

static void
feed_log_block_free(struct feed_log *l, struct feed_log_block *b)
{
	l->memory -= b->mem.cap;
	buf_clear(&b->mem);
	mem_free(b);
}

/* What is told of it is told by the numbers that are missing. */
static void
feed_log_drop(struct feed_log *l)
{
	struct feed_log_block *b = *feed_log_place(l, l->first);

	l->oldest_us = b->last_us;
	l->first++;
	if (l->in_file < l->first)
		l->in_file = l->first;
	l->oldest = l->first < l->last
	    ? (*feed_log_place(l, l->first))->first_seq
	    : l->next;
	feed_log_block_free(l, b);
}

static void
feed_log_empty(struct feed_log *l)
{
	while (l->first < l->last)
		feed_log_drop(l);
	mem_free(l->blocks);
	l->blocks = NULL;
	l->cap = 0;
	buf_clear(&l->load);
	l->loaded = UINT64_MAX;
}

void
feed_log_clear(struct feed_log *l)
{
	feed_log_empty(l);
	fd_close(&l->fd);
}

void
feed_log_file(struct feed_log *l, int fd)
{
	/* what is in one is not in another */
	while (l->first < l->in_file)
		feed_log_drop(l);
	fd_close(&l->fd);
	l->fd = fd;
	l->file_at = 0;
	l->write_bad_at = 0;
}

void
feed_log_restart(struct feed_log *l)
{
	const struct feed_log before = *l;

	feed_log_empty(l);
	feed_log_init(l, &before.limits);
	/* the file is the same, and as good */
	l->fd = before.fd;
	l->write_errors = before.write_errors;
	l->read_errors = before.read_errors;
	l->write_rc = before.write_rc;
	l->write_bad_at = before.write_bad_at;
}

/* ---- the file --------------------------------------------------------------- */

/* Whole or not at all: 0; SP_E_*. */
static int
feed_log_write(struct feed_log *l, struct view v, uint64_t at)
{
	ssize_t n;

	while (v.n > 0) {
		n = l->limits.io->pwrite(l->fd, v.p, v.n, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? err_from_errno(errno) : SP_E_NOSPC;
		v = view_from(v, (size_t)n);
		at += (uint64_t)n;
	}
	return SP_OK;
}

/*
 * Blocks lie in the file in their order, once around: what is at or behind a
 * place is older than what is before it.
 */
static int
feed_log_write_at(struct feed_log *l, struct view v, uint64_t at)
{
	const struct feed_log_block *b;
	int rc;

	while (l->first < l->in_file) {
		b = *feed_log_place(l, l->first);
		if (b->at >= at + v.n || b->at + b->bytes <= at)
			break;
		feed_log_drop(l);
	}
	rc = feed_log_write(l, v, at);
	if (rc == SP_OK) {
		l->file_at = at + v.n;
		/* what the file has already a full disk takes, too */
		if (at + v.n > l->write_bad_at)
			l->write_rc = SP_OK;
		return SP_OK;
	}
	l->write_errors++;
	if (l->write_rc == SP_OK)
		l->write_bad_at = rc == SP_E_NOSPC ? at : 0;
	l->write_rc = rc;
	return rc;
}

/* Back to the beginning: what is behind is the oldest. */
static void
feed_log_wrap(struct feed_log *l)
{
	while (l->first < l->in_file &&
	    (*feed_log_place(l, l->first))->at >= l->file_at)
		feed_log_drop(l);
}

static int
feed_log_spill(struct feed_log *l, struct feed_log_block *b)
{
	struct view v = buf_view(&b->mem);
	uint64_t at = l->file_at;
	int rc = SP_E_NOSPC;

	if (l->fd < 0 || v.n > l->limits.file_max)
		return SP_E_NOSPC;
	if (at + v.n <= l->limits.file_max)
		rc = feed_log_write_at(l, v, at);
	/* a disk that is full still has what the file has already */
	if (rc != SP_OK && at > 0) {
		feed_log_wrap(l);
		at = 0;
		rc = feed_log_write_at(l, v, at);
	}
	if (rc != SP_OK)
		return rc;
	b->at = at;
	b->bytes = v.n;
	l->memory -= b->mem.cap;
	buf_clear(&b->mem);
	return SP_OK;
}

bool
feed_log_shrink(struct feed_log *l)
{
	uint64_t id = l->in_file, oldest = l->oldest;

	if (id + 1 >= l->last)
		return false;
	if (feed_log_spill(l, *feed_log_place(l, id)) == SP_OK) {
		l->in_file = id + 1;
	} else {
		/* nothing that is older than what is lost is kept: there is */
		/* one gap */
		while (l->first <= id)
			feed_log_drop(l);
		l->file_at = 0;
	}
	if (l->write_rc != SP_OK && l->oldest > oldest)
		l->broken = l->oldest;
	return true;
}

/* ---- adding ----------------------------------------------------------------- */

static int
feed_log_widen(struct feed_log *l)
{
	size_t cap = l->cap == 0 ? FEED_LOG_CAP_FIRST : 2 * l->cap;
	struct feed_log_block **blocks =
	    mem_calloc(cap, sizeof(struct feed_log_block *));
	uint64_t id;

	if (blocks == NULL)
		return SP_E_NOMEM;
	for (id = l->first; id < l->last; id++)
		blocks[id & (cap - 1)] = *feed_log_place(l, id);
	mem_free(l->blocks);
	l->blocks = blocks;
	l->cap = cap;
	return SP_OK;
}

static int
feed_log_block_new(struct feed_log *l, struct feed_log_block **out)
{
	struct feed_log_block *b;

	while (l->last - l->first >= FEED_LOG_BLOCKS)
		feed_log_drop(l);
	if (l->last - l->first == l->cap && feed_log_widen(l) != SP_OK)
		return SP_E_NOMEM;
	b = mem_calloc(1, sizeof(*b));
	if (b == NULL)
		return SP_E_NOMEM;
	buf_init(&b->mem, FEED_LOG_BLOCK + FEED_LOG_RECORD_MAX);
	b->first_seq = l->next;
	if (l->first == l->last)
		l->oldest = l->next;
	*feed_log_place(l, l->last++) = b;
	*out = b;
	return SP_OK;
}

/* The newest block, when n more bytes go into it; else another. */
static int
feed_log_room(struct feed_log *l, size_t n, struct feed_log_block **out)
{
	struct feed_log_block *b = NULL;
	int rc = SP_OK;

	if (l->first < l->last)
		b = *feed_log_place(l, l->last - 1);
	if (b == NULL ||
	    (buf_len(&b->mem) > 0 && buf_len(&b->mem) + n > FEED_LOG_BLOCK))
		rc = feed_log_block_new(l, &b);
	if (rc != SP_OK)
		return rc;
	l->memory -= b->mem.cap;
	rc = buf_reserve(&b->mem, n);
	l->memory += b->mem.cap;
	*out = b;
	return rc;
}

static int
feed_log_put(struct feed_log *l, unsigned type, uint64_t us, struct view data,
    uint64_t numbers)
{
	struct feed_log_head h;
	struct feed_log_block *b;
	int rc;

	rc = feed_log_room(l, sizeof(h) + data.n, &b);
	if (rc != SP_OK)
		return rc;
	memset(&h, 0, sizeof(h));
	h.seq = l->next;
	h.us = us;
	h.type = type;
	h.n = (uint32_t)data.n;
	err_assert(buf_add(&b->mem, &h, sizeof(h)) == SP_OK);
	err_assert(buf_add_view(&b->mem, data) == SP_OK);
	b->types |= type;
	b->last_us = us;
	l->next += numbers;
	return SP_OK;
}

/* In the place of those that were not stored, whose numbers it takes. */
static int
feed_log_put_lost(struct feed_log *l, unsigned gap_type, uint64_t us)
{
	struct buf text = BUF_INIT(FEED_LOG_GAP_MAX);
	uint64_t lost = l->lost;
	int rc;

	rc = buf_printf(&text, "{\"lost\":%llu,\"reason\":\"memory\"}",
	    (unsigned long long)lost);
	l->next -= lost;
	if (rc == SP_OK)
		rc = feed_log_put(l, gap_type, us, buf_view(&text), lost);
	if (rc == SP_OK)
		l->lost = 0;
	else
		l->next += lost;
	buf_clear(&text);
	return rc;
}

int
feed_log_add(struct feed_log *l, unsigned type, unsigned gap_type, uint64_t us,
    struct view data)
{
	int rc = data.n > FEED_LOG_EVENT_MAX ? SP_E_LIMIT : SP_OK;

	if (rc == SP_OK && l->lost > 0)
		rc = feed_log_put_lost(l, gap_type, us);
	if (rc == SP_OK)
		rc = feed_log_put(l, type, us, data, 1);
	if (rc != SP_OK) {
		l->lost++;
		l->next++;
	}
	while (l->memory > l->limits.memory_max && feed_log_shrink(l))
		continue;
	return rc;
}

/* ---- reading ---------------------------------------------------------------- */

static int
feed_log_read(struct feed_log *l, const struct feed_log_block *b)
{
	uint64_t at = b->at;
	size_t left = (size_t)b->bytes;
	ssize_t n;

	buf_reset(&l->load, FEED_LOG_BLOCK);
	if (buf_reserve(&l->load, left) != SP_OK)
		return SP_E_NOMEM;
	while (left > 0) {
		n = l->limits.io->pread(l->fd, buf_tail(&l->load), left,
		    (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return SP_E_SYS;
		buf_grow(&l->load, (size_t)n);
		left -= (size_t)n;
		at += (uint64_t)n;
	}
	return SP_OK;
}

/* A block's bytes, which may have to be read again. */
static int
feed_log_bytes(struct feed_log *l, uint64_t id, unsigned *budget,
    struct view *out)
{
	struct feed_log_block *b = *feed_log_place(l, id);
	int rc;

	*out = buf_view(&b->mem);
	if (id >= l->in_file)
		return SP_OK;
	if (l->loaded != id) {
		if (*budget == 0)
			return SP_E_STATE;
		--*budget;
		l->loaded = UINT64_MAX;
		rc = feed_log_read(l, b);
		if (rc != SP_OK)
			return rc;
		l->loaded = id;
	}
	*out = buf_view(&l->load);
	return SP_OK;
}

/* The first of these types from *off on: 0; SP_E_EOF none; SP_E_PROTO. */
static int
feed_log_find(struct view bytes, size_t *off, unsigned types,
    struct feed_log_event *ev)
{
	struct feed_log_head h;
	struct view head;

	while (*off < bytes.n) {
		head = view_sub(bytes, *off, sizeof(h));
		if (head.n < sizeof(h))
			return SP_E_PROTO;
		memcpy(&h, head.p, sizeof(h));
		if (bytes.n - *off - sizeof(h) < h.n)
			return SP_E_PROTO;
		*ev = (struct feed_log_event){ .seq = h.seq,
			.us = h.us,
			.type = h.type,
			.data = view_sub(bytes, *off + sizeof(h), h.n) };
		*off += sizeof(h) + h.n;
		if (h.type & types)
			return SP_OK;
	}
	return SP_E_EOF;
}

int
feed_log_get(struct feed_log *l, struct feed_log_at *at, unsigned types,
    unsigned *budget, struct feed_log_event *ev)
{
	struct view bytes;
	int rc;

	if (at->block < l->first)
		*at = (struct feed_log_at){ .block = l->first };
	while (at->block < l->last) {
		rc = SP_E_EOF;
		if ((*feed_log_place(l, at->block))->types & types) {
			rc = feed_log_bytes(l, at->block, budget, &bytes);
			if (rc == SP_OK)
				rc = feed_log_find(bytes, &at->off, types, ev);
		}
		if (rc == SP_OK || rc == SP_E_STATE || rc == SP_E_NOMEM)
			return rc;
		if (rc != SP_E_EOF) {
			/* it cannot be read again: it and the older are lost */
			while (l->first <= at->block)
				feed_log_drop(l);
			l->read_errors++;
			l->broken = l->oldest;
		}
		/* the newest grows */
		if (at->block + 1 >= l->last)
			break;
		*at = (struct feed_log_at){ .block = at->block + 1 };
	}
	return SP_E_AGAIN;
}

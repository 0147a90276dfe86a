#include "config.h"

#include "gate/worker_lines.h"

void
worker_lines_init(struct worker_lines *l, size_t max, bool skips)
{
	*l = (struct worker_lines){ .max = max, .skips = skips };
	buf_init(&l->part, max);
}

void
worker_lines_clear(struct worker_lines *l)
{
	buf_clear(&l->part);
}

bool
worker_lines_open(const struct worker_lines *l)
{
	return buf_len(&l->part) > 0 || l->skipping;
}

static int
lines_keep(struct worker_lines *l, struct view piece)
{
	int rc = l->skipping ? SP_OK : buf_add_view(&l->part, piece);

	if (rc == SP_E_LIMIT && l->skips) {
		buf_clear(&l->part);
		l->skipping = true;
		l->skipped++;
		return SP_OK;
	}
	return rc;
}

/* The end of a line: false, nothing more is wanted. */
static bool
lines_end(struct worker_lines *l, struct view piece,
    bool (*line)(void *arg, struct view line), void *arg, int *rc)
{
	struct buf whole = BUF_INIT(l->max);
	bool on = true;

	if (buf_len(&l->part) == 0 && !l->skipping && piece.n <= l->max)
		return piece.n == 0 || line(arg, piece);
	*rc = lines_keep(l, piece);
	if (*rc != SP_OK)
		return false;
	if (l->skipping) {
		l->skipping = false;
		return true;
	}
	/* l may be cleared, or gone, while the line is read */
	buf_take(&whole, &l->part);
	on = line(arg, buf_view(&whole));
	if (on) {
		/* the memory serves the next one, unless it is much */
		buf_reset(&whole, 64 * 1024);
		buf_take(&l->part, &whole);
	}
	buf_clear(&whole);
	return on;
}

int
worker_lines_add(struct worker_lines *l, struct view data,
    bool (*line)(void *arg, struct view line), void *arg)
{
	int rc = SP_OK;
	size_t at;

	while ((at = view_find(data, '\n')) < data.n) {
		if (!lines_end(l, view_sub(data, 0, at), line, arg, &rc))
			return rc;
		data = view_from(data, at + 1);
	}
	return data.n > 0 ? lines_keep(l, data) : SP_OK;
}

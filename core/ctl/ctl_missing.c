#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/ctl_missing.h"
#include "os/fd.h"
#include "recorder/trace.h"

/* No trace has so many: no sum of what is below overflows. */
#define TURN_MAX (UINT64_MAX / 2)

enum { FILE_NAME_MAX = 512, ROLLS_MAX = 1000 * 1000 };

static int
put(struct ctl_missing *m, uint64_t turn)
{
	size_t cap = m->cap == 0 ? 256 : m->cap * 2;
	uint64_t *v;

	if (m->n == m->cap) {
		v = mem_reallocarray(m->seen, cap, sizeof(*v));
		if (v == NULL)
			return SP_E_NOMEM;
		m->seen = v;
		m->cap = cap;
	}
	m->seen[m->n++] = turn;
	return 0;
}

int
ctl_missing_add(struct ctl_missing *m, const struct ctl_record *r)
{
	uint64_t turn = ctl_record_number(r->v[CTL_TURN]);
	uint64_t high = ctl_record_number(
	    ctl_record_get(r->v[CTL_METADATA], VIEW("turn_high")));

	if (turn == 0 || turn > TURN_MAX)
		return 0;
	if (m->low == 0 || turn < m->low)
		m->low = turn;
	if (high < turn || high > TURN_MAX)
		high = turn;
	if (high > m->high)
		m->high = high;
	return put(m, turn);
}

void
ctl_missing_clear(struct ctl_missing *m)
{
	mem_free(m->seen);
	m->seen = NULL;
	m->n = m->cap = 0;
}

static int
compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void
note(struct ctl_missing *m, uint64_t from, uint64_t to)
{
	m->turns += to - from + 1;
	if (m->ranges_n == CTL_MISSING_RANGES) {
		m->more += to - from + 1;
		return;
	}
	m->range[m->ranges_n].from = from;
	m->range[m->ranges_n++].to = to;
}

/* The numbers from low to the highest that are not among those seen. */
static void
find(struct ctl_missing *m, uint64_t low)
{
	uint64_t next;
	size_t i;

	if (m->n == 0)
		return;
	qsort(m->seen, m->n, sizeof(*m->seen), compare);
	next = low;
	m->turns = m->more = 0;
	m->ranges_n = 0;
	for (i = 0; i < m->n && m->seen[i] <= m->high; i++) {
		if (m->seen[i] < next)
			continue;
		if (m->seen[i] > next)
			note(m, next, m->seen[i] - 1);
		next = m->seen[i] + 1;
	}
	if (next <= m->high)
		note(m, next, m->high);
}

static int
take_later(void *arg, struct view line)
{
	struct ctl_missing *m = arg;
	struct ctl_record r;
	uint64_t turn = 0;

	if (ctl_record_read(&r, line) == 0)
		turn = ctl_record_number(r.v[CTL_TURN]);
	return turn > 0 && turn <= m->high ? put(m, turn) : 0;
}

void
ctl_missing_look(struct ctl_missing *m, int fd)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK)
		m->in_use = true;
}

/* SP_E_NOTFOUND: there is no such file. */
static int
read_later(struct ctl_missing *m, int dir, const char *name, uint64_t low)
{
	int fd =
	    openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	uint64_t torn;
	int rc;

	if (fd < 0)
		return SP_E_NOTFOUND;
	ctl_missing_look(m, fd);
	rc = ctl_record_lines(fd, &torn, take_later, m);
	fd_close(&fd);
	if (rc == 0)
		find(m, low);
	return rc;
}

/* The number of the roll that `name` is, and what it is one of; 0: none. */
static uint64_t
roll_of(const char *name, struct view *base)
{
	struct view v = view_str(name);
	size_t n = v.n;

	while (n > 0 && v.p[n - 1] != '.')
		n--;
	*base = view_sub(v, 0, n > 0 ? n - 1 : 0);
	return n > 0 ? trace_roll_number(v, *base) : 0;
}

int
ctl_missing_find(struct ctl_missing *m, int dir, const char *name, uint64_t low)
{
	char later[FILE_NAME_MAX];
	struct view base;
	uint64_t roll = roll_of(name, &base);
	int rc = 0, i;

	if (low == 0)
		low = m->low;
	find(m, low);
	for (i = 0; i < ROLLS_MAX && roll > 0 && rc == 0 && m->turns > 0; i++) {
		(void)snprintf(later, sizeof(later), "%.*s.%llu",
		    VIEW_ARG(base), (unsigned long long)++roll);
		rc = read_later(m, dir, later, low);
	}
	/* behind the last roll comes the file that is written to */
	if (rc == SP_E_NOTFOUND) {
		(void)snprintf(later, sizeof(later), "%.*s", VIEW_ARG(base));
		rc = read_later(m, dir, later, low);
	}
	return rc == SP_E_NOTFOUND ? 0 : rc;
}

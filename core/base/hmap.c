#include "config.h"

#include <stdint.h>
#include <string.h>

#include "base/hmap.h"
#include "base/mem.h"

/*
 * Entries lie in the order they were added; a table of slots, open addressing
 * with linear probing, finds them.  Removing leaves a hole among the entries
 * and closes the gap in the table at once (no tombstones there), so stepping
 * through the entries survives a removal.  Holes are squeezed out when
 * something is added and there is no room, or far too much of it.
 */
struct hmap_entry {
	char *key; /* owned; NULL: a hole */
	size_t key_n;
	unsigned long hash;
	void *val; /* borrowed */
};

struct hmap {
	struct hmap_entry *entries; /* owned */
	uint32_t *slots; /* owned; index in entries plus one, 0 empty */
	size_t cap; /* entries there is memory for; a power of two or 0 */
	size_t end; /* one past the last entry in use */
	size_t count;
	size_t max;
};

enum {
	HMAP_FIRST = 8, /* entries at first */
	HMAP_SLOTS = 2, /* slots for each entry: never over half full */
	HMAP_KEEP = 64, /* entries too few to give memory back for */
};
#define HMAP_MOST ((size_t)1 << 30) /* keeps an index in 32 bits */

struct hmap *
hmap_new(size_t max_entries)
{
	struct hmap *m = mem_calloc(1, sizeof(*m));

	if (m != NULL)
		m->max = max_entries < HMAP_MOST ? max_entries : HMAP_MOST;
	return m;
}

void
hmap_free(struct hmap *m)
{
	size_t i;

	if (m == NULL)
		return;
	for (i = 0; i < m->end; i++)
		mem_free(m->entries[i].key);
	mem_free(m->entries);
	mem_free(m->slots);
	mem_free(m);
}

size_t
hmap_count(const struct hmap *m)
{
	return m->count;
}

/* The slot after i. */
static size_t
hmap_step(const struct hmap *m, size_t i)
{
	return (i + 1) & (m->cap * HMAP_SLOTS - 1);
}

/* The slot a hash belongs to. */
static size_t
hmap_home(const struct hmap *m, unsigned long hash)
{
	return (size_t)hash & (m->cap * HMAP_SLOTS - 1);
}

/* The slot of key, or the empty one where it would go.  m->cap > 0. */
static size_t
hmap_slot(const struct hmap *m, struct view key, unsigned long hash)
{
	size_t i = hmap_home(m, hash);
	const struct hmap_entry *e;

	while (m->slots[i] != 0) {
		e = &m->entries[m->slots[i] - 1];
		if (e->hash == hash && view_eq(view_of(e->key, e->key_n), key))
			break;
		i = hmap_step(m, i);
	}
	return i;
}

static struct hmap_entry *
hmap_find(const struct hmap *m, struct view key, unsigned long hash)
{
	size_t i;

	if (m->count == 0)
		return NULL;
	i = hmap_slot(m, key, hash);
	return m->slots[i] != 0 ? &m->entries[m->slots[i] - 1] : NULL;
}

/* Moves everything into memory for cap entries, without holes. */
static int
hmap_rebuild(struct hmap *m, size_t cap)
{
	struct hmap_entry *entries = mem_calloc(cap, sizeof(*entries));
	uint32_t *slots = mem_calloc(cap * HMAP_SLOTS, sizeof(*slots));
	size_t i, n = 0, at;

	if (entries == NULL || slots == NULL) {
		mem_free(entries);
		mem_free(slots);
		return SP_E_NOMEM;
	}
	for (i = 0; i < m->end; i++)
		if (m->entries[i].key != NULL)
			entries[n++] = m->entries[i];
	mem_free(m->entries);
	mem_free(m->slots);
	m->entries = entries;
	m->slots = slots;
	m->cap = cap;
	m->end = n;
	for (i = 0; i < n; i++) {
		at = hmap_home(m, entries[i].hash);
		while (slots[at] != 0)
			at = hmap_step(m, at);
		slots[at] = (uint32_t)i + 1;
	}
	return 0;
}

/* Room for one more entry. */
static int
hmap_room(struct hmap *m)
{
	size_t cap = m->cap;

	if (cap > HMAP_KEEP && m->count < cap / 8) {
		/* too big is no failure */
		if (hmap_rebuild(m, cap / 4) == 0)
			return 0;
	}
	if (m->end < m->cap)
		return 0;
	if (cap == 0)
		cap = HMAP_FIRST;
	else if (m->count >= cap / 2)
		cap *= 2; /* else squeezing out the holes gives room enough */
	return hmap_rebuild(m, cap);
}

void *
hmap_get(const struct hmap *m, struct view key)
{
	const struct hmap_entry *e;

	if (m->count == 0)
		return NULL;
	e = hmap_find(m, key, view_hash(key));
	return e != NULL ? e->val : NULL;
}

/* The key is known not to be there. */
static int
hmap_insert(struct hmap *m, struct view key, unsigned long hash, void *val)
{
	struct hmap_entry *e;
	char *copy;
	int rc;

	if (m->count >= m->max)
		return SP_E_LIMIT;
	copy = mem_strndup(key.p, key.n);
	if (copy == NULL)
		return SP_E_NOMEM;
	rc = hmap_room(m);
	if (rc != 0) {
		mem_free(copy);
		return rc;
	}
	e = &m->entries[m->end++];
	*e = (struct hmap_entry){ copy, key.n, hash, val };
	m->slots[hmap_slot(m, key, hash)] = (uint32_t)m->end;
	m->count++;
	return 0;
}

int
hmap_add(struct hmap *m, struct view key, void *val)
{
	unsigned long hash = view_hash(key);

	err_assert(val != NULL);
	if (hmap_find(m, key, hash) != NULL)
		return SP_E_EXISTS;
	return hmap_insert(m, key, hash, val);
}

int
hmap_set(struct hmap *m, struct view key, void *val)
{
	unsigned long hash = view_hash(key);
	struct hmap_entry *e;

	err_assert(val != NULL);
	e = hmap_find(m, key, hash);
	if (e == NULL)
		return hmap_insert(m, key, hash, val);
	e->val = val;
	return 0;
}

/*
 * Empties slot gap and moves later slots of the same run back, each only if
 * that does not put it before its home.
 */
static void
hmap_close_gap(struct hmap *m, size_t gap)
{
	size_t mask = m->cap * HMAP_SLOTS - 1;
	size_t i = gap, home;

	for (;;) {
		i = hmap_step(m, i);
		if (m->slots[i] == 0)
			break;
		home = hmap_home(m, m->entries[m->slots[i] - 1].hash);
		if (((i - home) & mask) >= ((i - gap) & mask)) {
			m->slots[gap] = m->slots[i];
			gap = i;
		}
	}
	m->slots[gap] = 0;
}

void *
hmap_del(struct hmap *m, struct view key)
{
	unsigned long hash;
	struct hmap_entry *e;
	void *val;
	size_t at;

	if (m->count == 0)
		return NULL;
	hash = view_hash(key);
	at = hmap_slot(m, key, hash);
	if (m->slots[at] == 0)
		return NULL;
	e = &m->entries[m->slots[at] - 1];
	val = e->val;
	hmap_close_gap(m, at);
	/* key may point into the entry: last used above */
	mem_free(e->key);
	*e = (struct hmap_entry){ NULL, 0, 0, NULL };
	m->count--;
	while (m->end > 0 && m->entries[m->end - 1].key == NULL)
		m->end--;
	if (m->end == 0 && m->cap > HMAP_KEEP) {
		mem_free(m->entries);
		mem_free(m->slots);
		m->entries = NULL;
		m->slots = NULL;
		m->cap = 0;
	}
	return val;
}

bool
hmap_next(const struct hmap *m, size_t *pos, struct view *key, void **val)
{
	const struct hmap_entry *e;

	while (*pos < m->end) {
		e = &m->entries[(*pos)++];
		if (e->key == NULL)
			continue;
		*key = view_of(e->key, e->key_n);
		*val = e->val;
		return true;
	}
	return false;
}

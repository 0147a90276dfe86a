#include "config.h"

#include "gate/quota.h"

#include "base/hmap.h"
#include "base/mem.h"

enum { QUOTA_NAMES_MAX = 16 * 1024 * 1024 }; /* never reached: each has one */

struct quota {
	struct hmap *places;
};

/* Lives as long as something is counted under it. */
struct quota_place {
	struct quota *quota;
	uint64_t n;
	size_t name_n;
	char name[];
};

struct quota *
quota_new(void)
{
	struct quota *q = mem_calloc(1, sizeof(*q));

	if (q == NULL)
		return NULL;
	q->places = hmap_new(QUOTA_NAMES_MAX);
	if (q->places != NULL)
		return q;
	mem_free(q);
	return NULL;
}

void
quota_free(struct quota *q)
{
	if (q == NULL)
		return;
	err_assert(hmap_count(q->places) == 0);
	hmap_free(q->places);
	mem_free(q);
}

static int
place_new(struct quota *q, struct view name, struct quota_place **out)
{
	struct quota_place *p = mem_calloc(1, sizeof(*p) + name.n);
	int rc;

	if (p == NULL)
		return SP_E_NOMEM;
	p->quota = q;
	p->name_n = name.n;
	if (name.n > 0)
		memcpy(p->name, name.p, name.n);
	rc = hmap_add(q->places, name, p);
	if (rc == SP_OK)
		*out = p;
	else
		mem_free(p);
	return rc;
}

int
quota_take(struct quota *q, struct view name, uint64_t max,
    struct quota_place **out)
{
	struct quota_place *p = hmap_get(q->places, name);
	int rc = SP_OK;

	*out = NULL;
	if (p != NULL && max > 0 && p->n >= max)
		return SP_E_LIMIT;
	if (p == NULL)
		rc = place_new(q, name, &p);
	if (rc != SP_OK)
		return rc;
	p->n++;
	*out = p;
	return SP_OK;
}

void
quota_give(struct quota_place *p)
{
	if (p == NULL || --p->n > 0)
		return;
	(void)hmap_del(p->quota->places, view_of(p->name, p->name_n));
	mem_free(p);
}

/*
 * Which turns of a session are trained on: the one definition, for the counts
 * of sessions, for what /sessions/ID/trace gives, and for sallyportctl.
 */
#ifndef SP_JSON_JTRAIN_H
#define SP_JSON_JTRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/view.h"

/* One turn. */
struct jtrain_turn {
	bool good; /* complete, aligned, and no finding speaks against it */
	bool tools; /* its request had tools */
};

/*
 * A session's.  Where some of its turns had tools, those without are not the
 * agent's own (a title, a summary) and are left out; so how many there are is
 * known when all were added.
 */
struct jtrain_sum {
	uint64_t good, good_tools;
	uint64_t tools; /* turns with tools, good or not */
};

/*
 * The turn that a record's members tell of.
 * Source:  sallyportctl(1), TRACE RECORDS.
 * Context: any, does not block.
 * Parameters: raw JSON of "complete", "aligned" and "metadata"; may be empty.
 */
struct jtrain_turn jtrain_read(struct view complete, struct view aligned,
    struct view metadata);
void jtrain_add(struct jtrain_sum *s, const struct jtrain_turn *t);
static inline bool
jtrain_is(const struct jtrain_turn *t, bool any_tools)
{
	return t->good && (!any_tools || t->tools);
}
static inline uint64_t
jtrain_count(const struct jtrain_sum *s)
{
	return s->tools > 0 ? s->good_tools : s->good;
}

#endif

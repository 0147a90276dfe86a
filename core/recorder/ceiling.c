#include "config.h"

#include "base/log.h"
#include "base/mem.h"
#include "recorder/ceiling.h"

enum { HIGH_PERCENT = 75, HARD_PERCENT = 90 };

static bool
over(const struct turns *t, unsigned percent)
{
	return t->memory_max > 0 && mem_live() >= t->memory_max / 100 * percent;
}

bool
ceiling_high(const struct turns *t)
{
	return over(t, HIGH_PERCENT);
}

bool
ceiling_hard(const struct turns *t)
{
	return over(t, HARD_PERCENT);
}

bool
ceiling_may_grow(const struct turns *t, const struct turn *u)
{
	return !ceiling_high(t) || u->assemble.hold.over ||
	    u == TAILQ_FIRST(&t->open);
}

static size_t
size_of(const struct turn *u)
{
	return u->assemble.hold.used;
}

/*
 * What it holds beside the text goes: a record that is cut short is not
 * trained on, and of what came later it has nothing either.
 */
static void
cut(struct turn *u)
{
	struct assemble *a = &u->assemble;

	log_warn("session %s turn %llu is cut short: recorder_memory_max is "
		 "near",
	    u->session, (unsigned long long)u->number);
	assemble_cut(a);
	if (buf_len(&u->request) > 0 || u->piece_kind == MESSAGE_DATA_REQUEST) {
		buf_clear(&u->request);
		u->request_cut = true;
	}
	buf_clear(&u->body);
	buf_clear(&u->piece);
}

void
ceiling_press(struct turns *t)
{
	struct turn *u, *most;

	while (ceiling_hard(t)) {
		t->pressed = true;
		most = NULL;
		TAILQ_FOREACH (u, &t->open, link)
			if (!u->assemble.hold.over && size_of(u) > 0 &&
			    (most == NULL || size_of(u) > size_of(most)))
				most = u;
		if (most == NULL)
			return;
		cut(most);
	}
}

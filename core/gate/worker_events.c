#include "config.h"

#include "gate/worker_events.h"

#include "gate/worker_priv.h"
#include "gate/worker_rpc.h"

enum {
	EVENTS_LINE_MAX = 64 * 1024,
	EVENTS_BAD_MAX = 1000, /* that are told together */
};

void
worker_events_init(struct worker_events *e, const struct worker_world *world)
{
	*e = (struct worker_events){ .world = world };
	worker_lines_init(&e->lines, EVENTS_LINE_MAX, true);
}

void
worker_events_clear(struct worker_events *e)
{
	worker_lines_clear(&e->lines);
}

static void
events_lost(struct worker_events *e, uint64_t n, const char *reason)
{
	if (e->world->lost != NULL && e->ep != NULL)
		e->world->lost(e->world->arg, e->ep, n, reason);
	e->told = true;
}

/* Of lines that were passed over, in the order that they are counted in. */
static void
events_tell(struct worker_events *e)
{
	if (e->malformed > 0)
		events_lost(e, e->malformed, "malformed");
	if (e->lines.skipped > 0)
		events_lost(e, e->lines.skipped, "too large");
	e->malformed = e->lines.skipped = 0;
}

static bool
events_on_line(void *arg, struct view line)
{
	struct worker_events *e = arg;

	if (worker_rpc_object(line) != SP_OK) {
		e->malformed++;
		return true;
	}
	events_tell(e);
	e->world->event(e->world->arg, e->ep, line);
	return true;
}

void
worker_events_add(struct worker_events *e, struct episode *ep, struct view data)
{
	int rc;

	if (e->world->event == NULL || ep == NULL)
		return;
	e->ep = ep;
	rc = worker_lines_add(&e->lines, data, events_on_line, e);
	if (rc != SP_OK)
		events_lost(e, 0, "memory");
	if (!e->told || e->malformed + e->lines.skipped >= EVENTS_BAD_MAX)
		events_tell(e);
	e->ep = NULL;
}

void
worker_events_end(struct worker_events *e, struct episode *ep)
{
	/* half a line is none */
	if (worker_lines_open(&e->lines) && !e->lines.skipping)
		e->malformed++;
	e->ep = ep;
	events_tell(e);
	e->ep = NULL;
}

/* The generations of the configuration that the recorder knows. */
#ifndef SP_RECORDER_RECGEN_H
#define SP_RECORDER_RECGEN_H

#include <sys/queue.h>

#include "ipc/role.h"
#include "recorder/store.h"

/*
 * One of them: lives while it is current or prepared, while the reactor may
 * open turns of it, and while a turn of it is open.
 */
struct recgen {
	LIST_ENTRY(recgen) link;
	struct recgens *of;
	uint32_t number;
	unsigned refs; /* turns */
	bool ended; /* the reactor opens none of it any more */
	struct conf *conf; /* owned */
};

struct recgens {
	struct store *store; /* borrowed; its conf is the current one's */
	LIST_HEAD(, recgen) list;
	struct recgen *current;
	struct recgen *next; /* prepared, or NULL */
};

void recgens_init(struct recgens *g, struct store *store);
/* Frees all of them; no turn may be open. */
void recgens_clear(struct recgens *g);

/*
 * The first one, and the current one from now on.
 * Owner:   conf is taken in every case.
 * Returns: 0; SP_E_NOMEM.
 */
int recgen_first(struct recgens *g, uint32_t number,
    struct conf *conf) must_check;
/*
 * Makes the next one ready from what a role is handed: its directories are
 * opened to the store.  The walls stand, so they must lie where the recorder
 * may go already.
 * Context: recorder, serving; blocks on the disk.
 * Returns: 0; SP_E_STATE one is prepared already; SP_E_CONF, SP_E_DENIED with
 *          a line in err; SP_E_NOMEM; the call's error.
 */
int recgen_prepare(struct recgens *g, struct role *from,
    struct buf *err) must_check;
/* SP_E_STATE: that one is not prepared. */
int recgen_commit(struct recgens *g, uint32_t number) must_check;
void recgen_abandon(struct recgens *g);

/*
 * The capture of that name, in that generation; in the current one when the
 * recorder does not know it (it is younger).  One reference is taken.
 * Returns: 0, also without one to record under: *capture then has no directory;
 *          SP_E_PROTO a generation that is known has no such capture.
 */
int recgen_find(struct recgens *g, uint32_t number, struct view name,
    struct recgen **out, const struct conf_capture **capture) must_check;
void recgen_unref(struct recgen *n); /* NULL allowed */
/* The reactor opens no turn of it any more: of that one, of all old ones. */
void recgen_end(struct recgens *g, uint32_t number);
void recgen_end_old(struct recgens *g);

#endif

/*
 * Who may go on now and who waits: limits on calls in flight, in all and by
 * key, a queue that is fair between keys, and the bytes of bodies held.
 */
#ifndef SP_GATE_ADMISSION_H
#define SP_GATE_ADMISSION_H

#include <stdbool.h>
#include <sys/queue.h>

#include "base/err.h"
#include "base/view.h"
#include "conf/conf.h"
#include "event/loop.h"
#include "gate/metrics.h"

struct admission; /* one in the gate */
struct admission_key;
struct quota_place;

/* What became of a call that asked. */
enum admission_word {
	ADMISSION_NOW, /* it has its place */
	ADMISSION_HELD, /* it waits: the owner is called once */
	/* refused: */
	ADMISSION_KEY_LIMIT, /* its key has its limit, the queue is full */
	ADMISSION_KEY_TIMEOUT, /* likewise, and it has waited long enough */
	ADMISSION_LIMIT, /* all places are taken, the queue is full */
	ADMISSION_TIMEOUT, /* likewise, and it has waited long enough */
	ADMISSION_DRAINING, /* nothing waits any more */
	ADMISSION_BODY_BYTES, /* too much is held of bodies already */
	ADMISSION_MEMORY, /* memory_max is near */
	ADMISSION_PART, /* its episode has its part of the bodies */
	ADMISSION_LISTENER, /* its listener has its connections */
	ADMISSION_ADDRESS, /* its address has its own there */
	ADMISSION_SERVER, /* its server has its calls */
	ADMISSION_LOCATION, /* its location has */
	ADMISSION_NOMEM,
	ADMISSION_WORDS
};

enum admission_state {
	ADMISSION_OUT, /* the zero value */
	ADMISSION_WAITING,
	ADMISSION_IN
};

/*
 * One call; the caller's memory, zeroed, in one place from admission_enter()
 * to admission_leave().
 */
struct admission_ticket {
	enum admission_state state;
	struct admission *admission;
	struct admission_key *key;
	TAILQ_ENTRY(admission_ticket) of_key; /* waiting: oldest first */
	TAILQ_ENTRY(admission_ticket) of_all;
	/* the caller's: whose max_calls count too; NULL: nobody's */
	const struct conf_location *location;
	struct quota_place *of_server, *of_location;
	uint64_t since_ms;
	/*
	 * Of one that was held, once, from the loop: ADMISSION_NOW, or why it
	 * was refused; then it is out.  May enter and leave with any ticket.
	 */
	void (*decided)(void *arg, enum admission_word word);
	void *arg;
};

/*
 * Context: reactor; no blocking.
 * Owner:   the gate; freed when every ticket has left.
 * Returns: NULL without memory.
 */
struct admission *admission_new(struct loop *l) must_check;
void admission_free(struct admission *a); /* NULL allowed */
/*
 * Takes limits; from then on they hold for all, those that wait as well.
 * Calls that are in stay in.
 */
void admission_set(struct admission *a, const struct conf_main *c);
/*
 * Nothing waits any more: those that do are refused, and who finds no place
 * is from now on.
 */
void admission_drain(struct admission *a);
/*
 * Asks for a place.  A call goes on at once when there is room and nobody
 * else could have it; else it waits.  Places go to keys in turn, within a key
 * to the oldest.  A call that finds the queue full takes the place in it of
 * the newest call of a key that has much more there than its own.
 * A full server or location refuses at once; those that wait count there.
 * Parameters: t, zeroed or left, with decided, arg and location; key, copied.
 * Returns: ADMISSION_NOW, ADMISSION_HELD, or why not; t is out then.
 */
enum admission_word admission_enter(struct admission *a,
    struct admission_ticket *t, struct view key) must_check;
/* Gives back what it has, a place or one in the queue; out: nothing. */
void admission_leave(struct admission_ticket *t);

/* The status of a refusal: 429 of a key's own doing, else 503. */
unsigned admission_status(enum admission_word w);
const char *admission_name(enum admission_word w); /* "key_limit" */
const char *admission_reason(enum admission_word w); /* for people */

/*
 * Bytes of request bodies that are held.  False: they would pass the limit,
 * and nothing was taken.
 */
bool admission_body_take(struct admission *a, size_t n) must_check;
/* The same without taking them; false counts as a refusal as well. */
bool admission_body_fits(struct admission *a, uint64_t n) must_check;
void admission_body_give(struct admission *a, size_t n);
/* Counts a refusal that somebody else decided. */
void admission_refused(struct admission *a, enum admission_word w);
/* The limit; UINT64_MAX none. */
uint64_t admission_body_max(const struct admission *a);

/* Registers gauges and counters, set when they are read: 0; SP_E_NOMEM. */
int admission_metrics(struct admission *a, struct metrics *m) must_check;

struct admission_stats {
	uint64_t in, waiting, keys, body_bytes;
	uint64_t refused[ADMISSION_WORDS];
};
void admission_stats(const struct admission *a, struct admission_stats *out);

#endif

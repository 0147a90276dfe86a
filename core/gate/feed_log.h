/*
 * Events of one episode, kept in order: the newest in memory, older ones in a
 * file that has no name, the oldest given up when neither has room.
 */
#ifndef SP_GATE_FEED_LOG_H
#define SP_GATE_FEED_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

enum {
	FEED_LOG_BLOCK = 64 * 1024, /* bytes that go to the file at once */
	FEED_LOG_BLOCKS = 4096, /* that are kept at most */
	FEED_LOG_EVENT_MAX = 1024 * 1024, /* bytes of one event's data */
};

/* The file's calls; tests have their own. */
struct feed_log_io {
	ssize_t (*pwrite)(int fd, const void *p, size_t n, off_t at);
	ssize_t (*pread)(int fd, void *p, size_t n, off_t at);
};

struct feed_log_limits {
	size_t memory_max; /* bytes that stay in memory */
	uint64_t file_max; /* bytes of the file */
	const struct feed_log_io *io; /* NULL: the real ones */
};

struct feed_log_block;

struct feed_log {
	struct feed_log_limits limits;
	int fd; /* -1: there is no file */
	/* a ring: block id is at (id & (cap - 1)), first <= id < last */
	struct feed_log_block **blocks;
	size_t cap;
	uint64_t first, last;
	uint64_t in_file; /* blocks below this id are in the file */
	uint64_t file_at; /* where the next block goes */
	size_t memory; /* bytes that blocks hold */
	uint64_t next; /* number of the next event */
	uint64_t oldest; /* number of the oldest that is kept */
	uint64_t broken; /* what is below it the file did not take or give */
	uint64_t oldest_us; /* when the last that was given up had been */
	uint64_t lost; /* not stored since the last one that was */
	/* one block of the file, read again */
	uint64_t loaded;
	struct buf load;
	uint64_t write_errors, read_errors;
	/* the last write failed, at that place, and none beyond it went well */
	int write_rc; /* 0; SP_E_* */
	uint64_t write_bad_at;
};

struct feed_log_event {
	uint64_t seq, us; /* us: wall clock */
	unsigned type;
	struct view data; /* until the log is used again */
};

/* Where a reader is; zeroed: at the beginning of what is kept. */
struct feed_log_at {
	uint64_t block;
	size_t off;
};

/*
 * Context: reactor; writes and reads a file's pages.
 * Owner:   the struct is the caller's; fd is taken.
 */
void feed_log_init(struct feed_log *l, const struct feed_log_limits *limits);
void feed_log_clear(struct feed_log *l);
/* Older events may go there from now on.  fd is taken. */
void feed_log_file(struct feed_log *l, int fd);
/* Forgets everything, the file too; numbers begin at 0 again. */
void feed_log_restart(struct feed_log *l);
/*
 * Adds the next event.  When one before could not be, a record of type
 * gap_type comes first that says how many.
 * Returns: 0; SP_E_NOMEM, SP_E_LIMIT: it is counted in l->lost, and its
 *          number is used up.
 */
int feed_log_add(struct feed_log *l, unsigned type, unsigned gap_type,
    uint64_t us, struct view data) must_check;
/*
 * Gives memory back: the oldest block of it goes to the file, or is dropped.
 * False: nothing but the newest is left.
 */
bool feed_log_shrink(struct feed_log *l);
/*
 * The event at *at or the next of these types behind it; *at then is behind
 * what was returned.  A place that is not kept any more becomes the oldest.
 * budget: blocks of the file that may be read; counted down.
 * Returns: 0; SP_E_AGAIN there is none yet; SP_E_STATE the budget is used up;
 *          SP_E_NOMEM.
 */
int feed_log_get(struct feed_log *l, struct feed_log_at *at, unsigned types,
    unsigned *budget, struct feed_log_event *ev) must_check;

#endif

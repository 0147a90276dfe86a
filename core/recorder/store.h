/* All trace files: which there are, which are open, how much room is left. */
#ifndef SP_RECORDER_STORE_H
#define SP_RECORDER_STORE_H

#include "base/hmap.h"
#include "conf/conf.h"
#include "recorder/trace.h"

enum {
	STORE_DIRS_MAX = 32, /* of one generation */
	STORE_OPEN_MAX = 256, /* files kept open without an open turn */
	STORE_TRACES_MAX = 1024 * 1024,
};

struct store_dir {
	const struct conf_capture *capture; /* of some generation; NULL: it is
					       gone, a trace is still open */
	int fd; /* owned, once, by all entries with that number */
	uint64_t dev, ino;
};

struct store {
	const struct conf *conf; /* borrowed; of the current generation; NULL
				    at the end */
	const struct signer *signer; /* borrowed */
	struct store_dir *dirs; /* of all generations that live */
	size_t dirs_n;
	struct hmap *by_key;
	TAILQ_HEAD(store_traces, trace) traces;
};

/*
 * Context: recorder; blocks on the disk where trace.h says so.
 * Owner:   store_clear() closes and frees everything.
 * Returns: 0; SP_E_NOMEM.
 */
int store_init(struct store *s, const struct conf *conf,
    const struct signer *signer) must_check;
void store_clear(struct store *s);
/*
 * The directory of one capture's traces.  *fd is taken; when the directory is
 * there already it is closed, and *fd is the one in use.
 * Returns: 0; SP_E_NOMEM; the call's error.
 */
int store_add_dir(struct store *s, const struct conf_capture *capture,
    int *fd) must_check;
/* True when that directory is there already, for whatever capture. */
bool store_has_dir(const struct store *s, int fd);
/*
 * Forgets what a generation's captures have: traces of its directories that
 * no other generation has, and those that no capture of the current one leads
 * to, are sealed and closed, as soon as nobody uses them.
 */
void store_drop(struct store *s, const struct conf *conf);
/* Mode of new files. */
mode_t store_mode(const struct store *s);

/*
 * The trace file of a session under a capture, opened; one reference is
 * taken, store_put() gives it back.
 * Returns: 0; SP_E_NOTFOUND no such directory; SP_E_ARG the name is not one
 *          that a trace may have; what trace_open() returns.
 */
int store_get(struct store *s, const struct conf_capture *capture,
    struct view session, struct trace **out) must_check;
void store_put(struct store *s, struct trace *t);
/* The name of a session's file: 0; SP_E_ARG none may have it; SP_E_NOMEM. */
int store_file_name(const struct conf_capture *capture, struct view session,
    struct buf *out) must_check;
/* SP_E_EXISTS when that file, a roll or a seal of it is there; 0 it is not. */
int store_file_used(const struct store *s, const struct conf_capture *capture,
    struct view session) must_check;
/*
 * Whether a new session may have it: 0; SP_E_EXISTS as above; SP_E_ARG its
 * seal would have the name of the seal of another file's roll; SP_E_NOMEM.
 */
int store_file_new(const struct store *s, const struct conf_capture *capture,
    struct view session) must_check;
/*
 * The file for reading: *fd is the caller's; *size counts its whole lines.
 * Returns: 0; SP_E_NOTFOUND there is none; the call's error.
 */
int store_read(struct store *s, const struct conf_capture *capture,
    struct view session, int *fd, uint64_t *size) must_check;
/* Closes what has not been used for long, beyond STORE_OPEN_MAX. */
void store_trim(struct store *s);
/* Seals every file that was written to since its last seal. */
void store_seal_all(struct store *s, const char *reason);
/*
 * Seals a session's file, if there is one that has no seal as it is; for
 * files that this process has not written to, or could not seal.
 * Returns: 0; what store_get() and trace_seal() return.
 */
int store_seal_stale(struct store *s, const struct conf_capture *capture,
    struct view session, const char *reason) must_check;

/*
 * Room: true when each directory's filesystem has more free than the floor
 * (the lesser of 64 MiB and 5 % of it; a quarter more when `again`, so that
 * the answer does not flap), and n bytes can be had.
 */
bool store_has_room(const struct store *s, bool again, uint64_t n);
/* The first folder that has no room so, for the log; empty: all have. */
struct view store_full_dir(const struct store *s, bool again, uint64_t n);

#endif

/*
 * The grader's work on an episode: what it reads and runs there without the
 * workload having a say.  Source: the design, section 8.
 */
#ifndef SP_GATE_GRADING_H
#define SP_GATE_GRADING_H

#include "conf/conf_env.h"
#include "gate/episode.h"
#include "json/jwrite.h"

/* Where assets are, by kind or by their path beneath the directory. */
#define GRADING_ASSETS "/openenvd/assets"

enum {
	GRADING_READ_MAX = 1024 * 1024, /* bytes of a file that is read */
	GRADING_OUTPUT_MAX = 1024 * 1024, /* of each stream of a verdict */
};

enum grading_result {
	GRADING_OK = 1,
	GRADING_NOT_FOUND, /* no such file, or a link stands there */
	GRADING_NOT_TEXT, /* not UTF-8 */
	GRADING_SPECIAL, /* no regular file */
	GRADING_TOO_LARGE,
	GRADING_NO_PROCESS, /* no such asset or privileged process */
	GRADING_TIMEOUT,
	GRADING_BUSY, /* the helper has as many of the episode as it may */
	GRADING_RESET, /* the episode was reset or ended meanwhile */
	GRADING_FAILED, /* what: the cause, for the log */
};

/* One verdict: whatever it started is dead before this is told. */
struct grading_verdict {
	int returncode; /* as Python's: -N for signal N */
	struct view out, err; /* bytes, borrowed */
	bool out_cut, err_cut; /* there was more than GRADING_OUTPUT_MAX */
	uint32_t links_n; /* taken out of the copy that was judged */
	struct view links; /* paths beneath the workspace, each with its NUL */
};

enum { GRADING_LINKS_MAX = 8 }; /* of which the paths are told */

/*
 * Members of the object that w has open, when links were taken out:
 * "links_removed", how many, and "links_removed_paths", the first few.
 */
void grading_put_links(struct jwrite *w, const struct grading_verdict *v);

struct grading_done {
	/* of grading_read: text, borrowed.  Called once, then it is over. */
	void (*read)(void *arg, enum grading_result r, struct view text,
	    struct view what);
	/*
	 * of grading_diff: sandbox_change records, borrowed; sorted by path,
	 * as bytes
	 */
	void (*diff)(void *arg, enum grading_result r, struct view records,
	    struct view what);
	void (*verdict)(void *arg, enum grading_result r,
	    const struct grading_verdict *v, struct view what);
};

/*
 * All of these:
 * Context: reactor's loop; nothing blocks.  grading_forget() takes an answer
 *          back.
 * Owner:   *out is gone with its answer.
 * Returns: 0, the answer follows; SP_E_STATE not grading_may(); SP_E_GONE
 *          the helper is away; SP_E_NOMEM; SP_E_LIMIT too many at once.
 */
struct grading;
/*
 * Whether it is LIVE, and its worker is not about to reset it: until that is
 * answered there is nothing to judge.
 */
bool grading_may(struct episode *ep);
/* path: absolute; /workspace/... or /openenvd/assets/NAME. */
int grading_read(struct episode *ep, struct view path,
    const struct grading_done *done, void *arg,
    struct grading **out) must_check;
/* Frozen while it is taken, thawed after; one generation or GRADING_RESET. */
int grading_diff(struct episode *ep, const struct grading_done *done, void *arg,
    struct grading **out) must_check;
/*
 * A program of the configuration, on a copy of the workspace, with the assets,
 * without network, in a sandbox of its own.
 * Parameters: process, the name of a `process` with trust privileged, or
 *          empty: the asset `oracle`.
 */
int grading_run(struct episode *ep, struct view process,
    const struct grading_done *done, void *arg,
    struct grading **out) must_check;
void grading_forget(struct grading *g);

#endif

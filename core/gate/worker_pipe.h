/*
 * A worker that speaks in lines on its standard input and output: what stdio
 * and frames have in common.
 */
#ifndef SP_GATE_WORKER_PIPE_H
#define SP_GATE_WORKER_PIPE_H

#include "gate/process.h"
#include "gate/worker_events.h"
#include "gate/worker_lines.h"
#include "gate/worker_priv.h"

struct worker_pipe {
	struct worker_back *back; /* whose it is */
	struct process *p; /* NULL: it does not run */
	struct worker_lines in;
	struct worker_events events;
	struct buf chunk; /* what was read last */
	struct buf out; /* lines that the process takes later */
	struct loop_timer *closing; /* a stream is closed: it must exit */
	const char *closed; /* which */
	/* a line, whole, never empty; back->w may be NULL when it returns */
	void (*line)(struct worker_back *b, struct view line);
};

/*
 * Starts the environment's command in the worker's sandbox.
 * Context: reactor's loop.
 * Parameters: line, NULL: it speaks in another way; standard output is kept
 *          as standard error is, and it may close both.
 * Owner:   back is borrowed; worker_pipe_stop(), then worker_pipe_clear().
 * Returns: 0; SP_E_*: it does not run.
 */
int worker_pipe_start(struct worker_pipe *l, struct worker_back *back,
    const struct conf_environment *env,
    void (*line)(struct worker_back *b, struct view line)) must_check;
/*
 * Queues a line; line feeds in the text, which JSON has between its tokens
 * alone, become spaces.
 * Returns: 0; SP_E_LIMIT more than may wait; SP_E_GONE; SP_E_NOMEM.
 */
int worker_pipe_send(struct worker_pipe *l, struct view json) must_check;
void worker_pipe_hold(struct worker_pipe *l, bool on);
void worker_pipe_stop(struct worker_pipe *l);
void worker_pipe_clear(struct worker_pipe *l);

#endif

/* The reactor's event loop (libevent); the only one in the process. */
#ifndef SP_EVENT_LOOP_H
#define SP_EVENT_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct loop;
struct loop_fd;
struct loop_timer;
struct loop_task;

enum {
	LOOP_READ = 1,
	LOOP_WRITE = 2,
	/*
	 * The descriptor failed or hung up both ways.  Told only when nothing
	 * else is wanted (else the other two tell it), once per change.
	 */
	LOOP_HUP = 4
};

/*
 * Context: reactor, one thread.  Callbacks may free anything, the handle they
 *          came from included.
 * Owner:   handles belong to the caller; descriptors are borrowed.  *_free
 *          takes NULL.
 * Returns: NULL, or SP_E_NOMEM / SP_E_SYS, when there is none to be had.
 */
struct loop *loop_new(void) must_check;
/* After all handles. */
void loop_free(struct loop *l);
/*
 * Turns until loop_stop(): ready descriptors and timers, then tasks.  Not
 * from within a callback.  SIGPIPE is ignored from loop_new() on.
 */
int loop_run(struct loop *l) must_check;
void loop_stop(struct loop *l);
/* Monotonic time of this turn (outside of one, of the moment). */
uint64_t loop_now_ms(const struct loop *l);
uint64_t loop_now_us(const struct loop *l);

struct loop_fd *loop_fd_new(struct loop *l, int fd,
    void (*cb)(void *arg, unsigned ready), void *arg) must_check;
/*
 * Level-triggered; cheap when want does not change, and when reading is
 * stopped for a moment.  On an error nothing is lost but the interest.
 * Returns: 0; SP_E_NOMEM; SP_E_SYS.
 */
int loop_fd_want(struct loop_fd *f, unsigned want) must_check;
void loop_fd_free(struct loop_fd *f);

/*
 * A deadline that is cheap to push back: setting a later one only stores it,
 * and the kernel timer is moved when the earlier one fires.
 */
struct loop_timer *loop_timer_new(struct loop *l, void (*cb)(void *arg),
    void *arg) must_check;
void loop_timer_set(struct loop_timer *t, uint64_t in_ms);
void loop_timer_stop(struct loop_timer *t);
void loop_timer_free(struct loop_timer *t);

/*
 * Work for the end of this turn of the loop, after every ready descriptor was
 * served: how writes and messages are batched.  Posting twice runs it once; a
 * task that posts another runs it in this turn still, itself in the next.
 */
struct loop_task *loop_task_new(struct loop *l, void (*cb)(void *arg),
    void *arg) must_check;
void loop_task_post(struct loop_task *t);
void loop_task_free(struct loop_task *t);

/*
 * Scratch for reads, shared by all: 64 KiB, aligned for whatever is read,
 * valid until the next read.
 */
enum { LOOP_SCRATCH_BYTES = 64 * 1024 };
char *loop_scratch(struct loop *l);

#endif

/* A process inside an episode, with its standard streams. */
#ifndef SP_GATE_PROCESS_H
#define SP_GATE_PROCESS_H

#include "gate/episode.h"

enum process_stream {
	PROCESS_STDIN,
	PROCESS_STDOUT,
	PROCESS_STDERR,
	PROCESS_EVENTS, /* OPENENVD_EVENT_FD */
	PROCESS_STREAMS
};

struct process_exit {
	enum sandbox_end end;
	unsigned status; /* exit status or signal */
	uint64_t user_us, system_us, peak_bytes;
	bool cut; /* a descendant held its output open: not waited for */
	bool swept; /* process_kill_all() had killed it, had it not ended */
};

struct process_events {
	void (*started)(void *arg, uint32_t pid);
	/*
	 * it never ran: the process is freed after it
	 * stage: enum sandbox_stage; number: errno or 0, also told in what;
	 * stage 0: see process_grade()
	 */
	void (*not_started)(void *arg, unsigned stage, int number,
	    struct view what);
	/* Borrowed bytes; process_pause() stops more of them. */
	void (*output)(void *arg, enum process_stream stream, struct view data);
	/* standard input takes bytes again, or (closed) never will */
	void (*writable)(void *arg, bool closed);
	/*
	 * It ended, and its output was all told: the process is freed after
	 * it.
	 */
	void (*exited)(void *arg, const struct process_exit *e);
	/* it closed that output, and may run on; NULL: nobody cares */
	void (*closed)(void *arg, enum process_stream stream);
	/* what is done costs by the line: a little of it is told at once */
	bool lines;
	/*
	 * before it has started: links were taken out of the copy that it judges; NULL:
	 * nobody cares.  paths: beneath the workspace, each with its NUL
	 */
	void (*links)(void *arg, uint32_t n, struct view paths);
};

struct process {
	LIST_ENTRY(process) link; /* of its episode */
	struct episode_set *set;
	struct episode *ep; /* NULL: it is gone, freed with this turn */
	uint32_t handle;
	uint8_t side; /* enum sandbox_side */
	struct process_stream_state {
		struct process *p;
		enum process_stream which;
		int fd;
		struct loop_fd *f;
		bool paused, ended;
	} streams[PROCESS_STREAMS];
	struct buf input; /* not written yet */
	bool input_end, input_full;
	bool started, over;
	struct process_exit exit;
	struct loop_timer *linger;
	char *name; /* argv[0], or given: for news */
	uint32_t pid; /* inside */
	uint32_t links_n; /* taken out of the copy that it judges */
	const struct process_events *events;
	void *arg;
};

enum { PROCESS_INPUT_MAX = 1024 * 1024 };

/*
 * Starts it in a live episode.
 * Context: reactor's loop; does not block.
 * Owner:   *out belongs to the episode and is freed by itself after its last
 *          event; process_drop() ends it unheard.
 * Returns: 0; SP_E_STATE the episode is not LIVE; SP_E_LIMIT run is too
 *          large; SP_E_GONE; SP_E_NOMEM; SP_E_*.
 */
int process_run(struct episode *ep, enum sandbox_side side,
    const struct sandbox_run *run, const struct process_events *events,
    void *arg, struct process **out) must_check;
/*
 * A program of the configuration, in a sandbox of its own on a copy of the
 * workspace: see grading.h.  Refused by the helper it has not started, with
 * stage 0, and enum sandbox_refusal as number.
 * Parameters: name, of a `process` with trust privileged, or empty: the asset
 *          "oracle".
 */
int process_grade(struct episode *ep, struct view name,
    const struct process_events *events, void *arg,
    struct process **out) must_check;
/*
 * Queues bytes for its standard input: 0; SP_E_LIMIT more than may wait;
 * SP_E_GONE it is closed; SP_E_NOMEM.  After it p->input_full tells that half
 * of what may wait does: writable() follows, unless a later call tells that it
 * does no more.
 */
int process_write(struct process *p, struct view data) must_check;
void process_end_input(struct process *p);
void process_signal(struct process *p, unsigned signo);
void process_pause(struct process *p, enum process_stream stream, bool on);
/* Kills it; no event is told any more. */
void process_drop(struct process *p);
/* Kills all that run in the episode: each exits, the episode stays. */
void process_kill_all(struct episode *ep);
/* A name for the news in place of argv[0]; without memory that stays. */
void process_rename(struct process *p, struct view name);

/* ---- for episode.c ---------------------------------------------------------- */

/* PROCESS_* behind slot and generation: 0; SP_E_PROTO.  m->fd may be taken. */
int process_heard(struct episode *ep, struct channel_msg *m,
    struct view rest) must_check;
/* EPISODE_REFUSED of that number: whether it was one of these. */
bool process_refused(struct episode_set *s, uint32_t handle, unsigned why,
    struct view what);
/* The episode's end: each exits as lost. */
void process_lose_all(struct episode *ep, unsigned end);

/* What an enum sandbox_side is called in events and replies: static. */
const char *process_side(unsigned side);

#endif

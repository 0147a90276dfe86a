/* One request of /episodes: private to the module's files. */
#ifndef SP_EPISODES_CALL_H
#define SP_EPISODES_CALL_H

#include "gate/episode.h"
#include "gate/gate.h"
#include "gate/process.h"
#include "json/jwrite.h"

enum {
	EPISODES_JSON_MAX = 16 * 1024 * 1024, /* of one answer */
	EPISODES_RUN_MAX = 3 * 1024 * 1024, /* of what is to be run, as JSON */
	EPISODES_FILE_MAX = 64 * 1024 * 1024, /* that is read or listed */
};

enum episodes_op {
	EPISODES_CREATE,
	EPISODES_LIST,
	EPISODES_SHOW,
	EPISODES_END,
	EPISODES_RESET,
	EPISODES_FREEZE,
	EPISODES_THAW,
	EPISODES_EXEC,
	EPISODES_READ, /* a file, or (list) a directory */
	EPISODES_PUT, /* a file, or (dir) a directory */
	EPISODES_REMOVE,
	EPISODES_DIFF,
	EPISODES_GRADE,
	EPISODES_EVENTS,
	EPISODES_LOGS,
	EPISODES_GUARANTEES,
	EPISODES_WORKER, /* something asked of it */
	EPISODES_WORKER_SHOW,
};

struct episodes_exec; /* episodes_exec.c */
struct episodes_follow; /* episodes_events.c */
struct episodes_file; /* episodes_files.c */
struct episodes_logs; /* episodes_logs.c */
struct episodes_worker; /* episodes_worker.c */
struct grading; /* gate/grading.h */

struct episodes_call {
	struct gate_request *r;
	struct episode_set *set;
	enum episodes_op op;
	struct view id; /* of the path; "-": a fresh one, or none */
	struct episode *making; /* asked for, not yet there */
	struct episodes_exec *exec;
	struct episodes_follow *follow;
	struct episodes_file *file;
	struct episodes_logs *logs;
	struct episodes_worker *worker;
	struct grading *grading; /* asked for, not yet answered */
};

/* What is to run, read from JSON; views lie in an arena. */
struct episodes_run {
	struct sandbox_run run;
	enum sandbox_side side;
	struct view environment; /* of a fresh episode */
	struct view stdin_text;
	uint64_t limit; /* bytes kept of each output */
};

/* ---- episodes_door.c ----------------------------------------------------------- */

enum gate_verdict episodes_door_deny(struct episodes_call *c, unsigned status,
    const char *code, const char *reason);
/* The same after a hook held. */
void episodes_door_fail(struct episodes_call *c, unsigned status,
    const char *code, struct view text);
/* What a call of episode.h returned, or the helper refused. */
void episodes_door_fail_rc(struct episodes_call *c, int rc);
void episodes_door_fail_refused(struct episodes_call *c, unsigned refusal,
    struct view what);
/* The episode of the path, or NULL: it was refused with 404. */
struct episode *episodes_door_find(struct episodes_call *c);
/* A whole reply of that JSON, and the end of the request. */
void episodes_door_json(struct episodes_call *c, unsigned status,
    struct view body);
/* The head of a reply of unknown length: 0; SP_E_*. */
int episodes_door_stream(struct episodes_call *c, const char *type) must_check;

/* ---- episodes_run.c ------------------------------------------------------- */

/*
 * Reads what is to run: 0; SP_E_SYNTAX with *why; SP_E_NOMEM.
 * Parameters: fresh, "environment" is required; else it may not be there.
 */
int episodes_run_read(struct view text, bool fresh, struct arena *a,
    struct episodes_run *out, const char **why) must_check;
/* {"process":..}, or nothing: decoded. */
int episodes_run_grade(struct view text, struct buf *process,
    const char **why) must_check;
/* {"environment":..,"id":..}: decoded into both. */
int episodes_run_create(struct view text, struct buf *environment,
    struct buf *id, const char **why) must_check;

/* ---- episodes_exec.c ------------------------------------------------------ */

/* In the HEAD hook: how it is spoken. */
enum gate_verdict episodes_exec_head(struct episodes_call *c);
enum gate_verdict episodes_exec_message(struct episodes_call *c);
void episodes_exec_body(struct episodes_call *c, struct view data);
void episodes_exec_body_end(struct episodes_call *c);
void episodes_exec_room(struct episodes_call *c);
void episodes_exec_clear(struct episodes_call *c);
/* "stdout": as text, or "stdout_b64": what a program wrote. */
void episodes_exec_put(struct jwrite *w, const char *name, struct view v);
size_t episodes_exec_holds(const struct episodes_call *c);

/* ---- episodes_files.c ----------------------------------------------------- */

enum gate_verdict episodes_files_message(struct episodes_call *c);
void episodes_files_room(struct episodes_call *c);
void episodes_files_clear(struct episodes_call *c);
size_t episodes_files_holds(const struct episodes_call *c);

/* ---- episodes_grade.c ----------------------------------------------------- */

enum gate_verdict episodes_grade_message(struct episodes_call *c);
void episodes_grade_clear(struct episodes_call *c);

/* ---- episodes_events.c ---------------------------------------------------- */

enum gate_verdict episodes_events_message(struct episodes_call *c);
void episodes_events_clear(struct episodes_call *c);

/* ---- episodes_logs.c ------------------------------------------------------ */

enum gate_verdict episodes_logs_message(struct episodes_call *c);
void episodes_logs_room(struct episodes_call *c);
/* It waits for what comes. */
bool episodes_logs_follows(const struct episodes_call *c);
void episodes_logs_clear(struct episodes_call *c);

/* ---- episodes_worker.c ---------------------------------------------------- */

enum gate_verdict episodes_worker_message(struct episodes_call *c);
enum gate_verdict episodes_worker_show(struct episodes_call *c);
void episodes_worker_clear(struct episodes_call *c);

#endif

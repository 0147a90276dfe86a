#include "config.h"

#include "gate/launch.h"

#include "base/log.h"
#include "base/mem.h"
#include "gate/console.h"
#include "gate/process.h"
#include "gate/worker_events.h"

enum {
	LAUNCH_TAIL_MAX = 512,
};

/* One that runs; freed after its last event. */
struct launch {
	LIST_ENTRY(launch) link;
	struct process *p;
	char *name;
	char id[EPISODE_ID_MAX + 1]; /* of its episode, for the log */
	struct worker_events events;
	struct buf err; /* the end of standard error */
};

static void
launch_free(struct launch *l)
{
	LIST_REMOVE(l, link);
	worker_events_clear(&l->events);
	buf_clear(&l->err);
	mem_free(l->name);
	mem_free(l);
}

static void
launch_on_started(void *arg, uint32_t pid)
{
	const struct launch *l = arg;

	log_info("episode %s: process %s has started as %u", l->id, l->name,
	    pid);
}

static void
launch_on_not_started(void *arg, unsigned stage, int number, struct view what)
{
	struct launch *l = arg;

	(void)number;
	log_warn("episode %s: process %s could not be started (%s): %.*s",
	    l->id, l->name, sandbox_msg_stage(stage), VIEW_ARG(what));
	launch_free(l);
}

static void
launch_keep_tail(struct launch *l, struct view data)
{
	size_t have = buf_len(&l->err);

	if (data.n > LAUNCH_TAIL_MAX)
		data = view_from(data, data.n - LAUNCH_TAIL_MAX);
	if (have + data.n > LAUNCH_TAIL_MAX)
		buf_consume(&l->err, have + data.n - LAUNCH_TAIL_MAX);
	(void)!buf_add_view(&l->err, data);
}

static void
launch_on_output(void *arg, enum process_stream stream, struct view data)
{
	struct launch *l = arg;

	if (stream != PROCESS_EVENTS && l->p->ep != NULL)
		console_add(l->p->ep, view_str(l->name),
		    stream == PROCESS_STDERR ? "stderr" : "stdout", data);
	if (stream == PROCESS_STDERR)
		launch_keep_tail(l, data);
	else if (stream == PROCESS_EVENTS)
		worker_events_add(&l->events, l->p->ep, data);
}

static void
launch_on_exited(void *arg, const struct process_exit *e)
{
	struct launch *l = arg;

	worker_events_end(&l->events, l->p->ep);
	if (l->p->ep != NULL) {
		console_end(l->p->ep, view_str(l->name), "stdout");
		console_end(l->p->ep, view_str(l->name), "stderr");
	}
	if (e->end == SANDBOX_END_EXIT && e->status == 0)
		log_info("episode %s: process %s has ended", l->id, l->name);
	else if (e->end != SANDBOX_END_LOST)
		log_notice("episode %s: process %s ended with %s %u: %.*s",
		    l->id, l->name,
		    e->end == SANDBOX_END_EXIT ? "status" : "signal", e->status,
		    VIEW_ARG(buf_view(&l->err)));
	launch_free(l);
}

static const struct process_events launch_events = {
	.started = launch_on_started,
	.not_started = launch_on_not_started,
	.output = launch_on_output,
	.lines = true,
	.exited = launch_on_exited,
};

static int
launch_one(struct launch_list *all, struct episode *ep,
    const struct conf_env_process *conf, const struct worker_world *world)
{
	const struct sandbox_run run = {
		.flags = SANDBOX_RUN_EVENT_FD,
		.argv = { conf->command.v, conf->command.n },
	};
	struct launch *l = mem_calloc(1, sizeof(*l));
	int rc = SP_E_NOMEM;

	if (l == NULL)
		return SP_E_NOMEM;
	LIST_INSERT_HEAD(all, l, link);
	worker_events_init(&l->events, world);
	buf_init(&l->err, LAUNCH_TAIL_MAX);
	memcpy(l->id, ep->id, sizeof(l->id));
	l->name = mem_strndup(conf->name.p, conf->name.n);
	if (l->name != NULL)
		rc = process_run(ep, SANDBOX_AGENT, &run, &launch_events, l,
		    &l->p);
	if (rc != SP_OK) {
		launch_free(l);
		return rc;
	}
	process_rename(l->p, conf->name);
	return SP_OK;
}

void
launch_all(struct launch_list *l, struct episode *ep,
    const struct conf_environment *env, const struct worker_world *world)
{
	size_t i;
	int rc;

	for (i = 0; i < env->processes_n; i++) {
		if (env->processes[i].privileged)
			continue;
		rc = launch_one(l, ep, &env->processes[i], world);
		if (rc != SP_OK)
			log_error("episode %s: process %.*s cannot be started: "
				  "%s",
			    ep->id, VIEW_ARG(env->processes[i].name),
			    err_str(rc));
	}
}

void
launch_clear(struct launch_list *l)
{
	struct launch *one;

	while ((one = LIST_FIRST(l)) != NULL) {
		process_drop(one->p);
		launch_free(one);
	}
}

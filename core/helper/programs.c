#include "config.h"

#include <errno.h>
#include <string.h>

#include "helper/assets.h"
#include "helper/complain.h"
#include "helper/programs.h"
#include "ipc/wire.h"
#include "os/fd.h"

enum { PROGRAMS_RUN_MAX = 16 * 1024 };

static const struct conf_env_process *
process_at(const struct programs *t)
{
	return t->at > 0 && t->at <= t->env->processes_n
	    ? &t->env->processes[t->at - 1]
	    : NULL;
}

static const struct conf_env_asset *
asset_at(const struct programs *t)
{
	return t->at > t->env->processes_n
	    ? &t->env->asset[t->at - t->env->processes_n - 1]
	    : NULL;
}

/* What a grader's assets hold is not in a workload's sandbox. */
static struct view
program_at(const struct programs *t)
{
	const struct conf_env_process *p = process_at(t);
	const struct conf_list *l =
	    p != NULL ? &p->command : &t->env->worker_command;
	struct view v = l->n > 0 ? l->v[0] : VIEW_NONE;

	if (asset_at(t) != NULL)
		v = t->script;
	return assets_path(v).n > 0 ? VIEW_NONE : v;
}

/* An oracle's sandbox shows what the others do: the first one will tell. */
static uint8_t
side_at(const struct programs *t)
{
	if (asset_at(t) != NULL)
		return t->slot->keepers[0].side;
	return t->at == 0 ? SANDBOX_WORKER : SANDBOX_AGENT;
}

static void
read_asset(struct programs *t)
{
	const struct conf_env_asset *a = asset_at(t);

	t->script = VIEW_NONE;
	if (a != NULL && assets_run(t->env, a))
		t->script = assets_interpreter(t->env, a, t->head);
}

static int
probe(struct programs *t, struct view program)
{
	struct sandbox_run run = { .flags = SANDBOX_RUN_PROBE,
		.cwd = VIEW("/"),
		.argv = { .v = &program, .n = 1 } };
	struct buf text = BUF_INIT(PROGRAMS_RUN_MAX);
	int fd = -1;
	int rc = sandbox_msg_run_put(&text, &run);

	if (rc == SP_OK)
		rc = fd_sealed("run", buf_view(&text).p, buf_len(&text), &fd);
	if (rc == SP_OK)
		rc = slot_run(t->slot, side_at(t), (uint32_t)t->at + 1, fd);
	buf_clear(&text);
	return rc;
}

static int
go_on(struct programs *t)
{
	struct view program;
	int rc;

	for (; t->at <= t->env->processes_n + t->env->asset_n; t->at++) {
		read_asset(t);
		program = program_at(t);
		if (program.n == 0)
			continue;
		rc = probe(t, program);
		if (rc == SP_OK)
			return rc;
		complain("sallyport: environment \"%.*s\": %.*s cannot be "
			 "looked for: %s",
		    VIEW_ARG(t->env->name), VIEW_ARG(program), err_str(rc));
		t->rc = SP_E_CONF;
	}
	t->slot->owned = false;
	return SP_E_NOTFOUND;
}

int
programs_begin(struct programs *t, struct slot *s,
    const struct conf_environment *env)
{
	t->slot = s;
	t->env = env;
	t->at = 0;
	t->rc = SP_OK;
	s->owned = true; /* what its keepers answer is heard */
	return go_on(t);
}

static const char *
remedy(const struct programs *t, unsigned stage, uint32_t en)
{
	bool local = t->env->enforcement == CONF_ENV_ENFORCE_LOCAL;

	if (stage != SANDBOX_STAGE_EXEC)
		return "a sandbox in which it can be started";
	if (en == EACCES || en == EPERM)
		return "a program that the sandbox's user may execute";
	if (local)
		return "a program that is there";
	if (t->env->rootfs.n > 0)
		return "a program in rootfs or beneath a path of read_only";
	return "a program beneath a path of read_only: add the folder that it "
	       "is installed in (of a venv, that of its base Python, too)";
}

static void
missing_of_asset(struct programs *t, unsigned stage, uint32_t en,
    struct view what)
{
	const struct conf_env_asset *a = asset_at(t);

	complain("%s:%u: environment \"%.*s\": asset \"%.*s\" cannot be run: "
		 "%.*s: its #! names %.*s: %s; expected %s",
	    a->pos.file, a->pos.line, VIEW_ARG(t->env->name), VIEW_ARG(a->kind),
	    VIEW_ARG(a->path), VIEW_ARG(what), strerror((int)en),
	    remedy(t, stage, en));
	t->rc = SP_E_CONF;
}

static void
missing(struct programs *t, unsigned stage, uint32_t en, struct view what)
{
	const struct conf_env_process *p = process_at(t);
	const struct conf_pos *pos = p != NULL ? &p->pos : &t->env->pos;
	struct view program = program_at(t);

	/* of a script, what is missing may be another one */
	complain("%s:%u: environment \"%.*s\": %s%.*s%s cannot be started "
		 "inside: %.*s%s%.*s: %s; expected %s",
	    pos->file, pos->line, VIEW_ARG(t->env->name),
	    p != NULL ? "process \"" : "the worker",
	    VIEW_ARG(p != NULL ? p->name : VIEW_NONE), p != NULL ? "\"" : "",
	    VIEW_ARG(view_starts(what, program) ? VIEW_NONE : program),
	    view_starts(what, program) ? "" : ": ", VIEW_ARG(what),
	    strerror((int)en), remedy(t, stage, en));
	t->rc = SP_E_CONF;
}

int
programs_heard(struct programs *t, const struct channel_msg *m,
    struct view rest)
{
	struct view what;
	struct wire w;
	uint32_t en;
	uint8_t stage;

	if (m->type != MESSAGE_KEEPER_NOT_STARTED)
		return SP_E_AGAIN;
	wire_init(&w, rest);
	stage = wire_u8(&w);
	en = wire_u32(&w);
	what = wire_bytes(&w);
	if (wire_done(&w) != SP_OK)
		return SP_E_PROTO;
	if ((stage != SANDBOX_STAGE_EXEC || en != 0) && asset_at(t) != NULL)
		missing_of_asset(t, stage, en, what);
	else if (stage != SANDBOX_STAGE_EXEC || en != 0)
		missing(t, stage, en, what);
	t->at++;
	return go_on(t);
}

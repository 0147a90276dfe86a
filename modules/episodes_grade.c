/* A program of the configuration that judges an episode: its verdict. */
#include "config.h"

#include "episodes_call.h"
#include "gate/grading.h"
#include "json/jwrite.h"

enum { VERDICT_MAX = 32 * 1024 * 1024 }; /* both outputs, escaped */

void
episodes_grade_clear(struct episodes_call *c)
{
	grading_forget(c->grading);
	c->grading = NULL;
}

static int
put_verdict(const struct grading_verdict *v, struct buf *out)
{
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "returncode");
	jwrite_i64(&w, v->returncode);
	episodes_exec_put(&w, "stdout", v->out);
	episodes_exec_put(&w, "stderr", v->err);
	jwrite_key(&w, "stdout_truncated");
	jwrite_bool(&w, v->out_cut);
	jwrite_key(&w, "stderr_truncated");
	jwrite_bool(&w, v->err_cut);
	grading_put_links(&w, v);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

static void
on_verdict(void *arg, enum grading_result r, const struct grading_verdict *v,
    struct view what)
{
	struct episodes_call *c = arg;
	struct buf out = BUF_INIT(VERDICT_MAX);
	int rc;

	c->grading = NULL;
	switch (r) {
	case GRADING_OK:
		rc = put_verdict(v, &out);
		if (rc == SP_OK)
			episodes_door_json(c, 200, buf_view(&out));
		else
			episodes_door_fail_rc(c, rc);
		break;
	case GRADING_NO_PROCESS:
		episodes_door_fail(c, 404, "unknown_process", what);
		break;
	case GRADING_BUSY:
		episodes_door_fail(c, 429, "too_many_gradings", what);
		break;
	case GRADING_TIMEOUT:
		episodes_door_fail(c, 504, "grading_timeout", what);
		break;
	case GRADING_RESET:
		episodes_door_fail(c, 409, "episode_reset", what);
		break;
	case GRADING_NOT_FOUND:
	case GRADING_NOT_TEXT:
	case GRADING_SPECIAL:
	case GRADING_TOO_LARGE:
	case GRADING_FAILED:
		episodes_door_fail(c, 500, "grading_failed", what);
		break;
	}
	buf_clear(&out);
}

static const struct grading_done done = { .verdict = on_verdict };

enum gate_verdict
episodes_grade_message(struct episodes_call *c)
{
	struct buf process = BUF_INIT(SANDBOX_MSG_NAME_MAX);
	struct episode *ep = episodes_door_find(c);
	const char *why = "";
	int rc;

	if (ep == NULL)
		return episodes_door_deny(c, 404, "unknown_episode",
		    "there is no episode of that id");
	rc = episodes_run_grade(buf_view(&c->r->body), &process, &why);
	if (rc == SP_E_SYNTAX) {
		buf_clear(&process);
		return episodes_door_deny(c, 400, "bad_grade", why);
	}
	if (rc == SP_OK)
		rc = grading_run(ep, buf_view(&process), &done, c, &c->grading);
	if (rc == SP_E_LIMIT)
		episodes_door_fail(c, 429, "too_many_gradings",
		    VIEW("as many gradings of the episode wait as may: ask "
			 "again when one is done"));
	else if (rc != SP_OK)
		episodes_door_fail_rc(c, rc);
	buf_clear(&process);
	return GATE_HOLD;
}

#include "sm_brain.h"

enum { ECHO_MAX = 400 };

static bool
has_tool(const struct sm_ask *ask, struct view name)
{
	const struct sm_json *t = sm_json_get(ask->body, "tools");

	if (!sm_json_is(t, SM_JSON_ARRAY))
		return false;
	for (t = t->child; t != NULL; t = t->next)
		if (view_eq(name,
			sm_json_string(sm_json_get(t, "function"), "name")))
			return true;
	return false;
}

/* What the agent's system prompt says after "Working directory:". */
static struct view
working_directory(const struct sm_ask *ask)
{
	struct view mark = VIEW("Working directory:");
	size_t at = view_search(ask->system, mark);
	struct view rest = view_from(ask->system, at + mark.n);

	if (at >= ask->system.n)
		return VIEW_NONE;
	rest = view_trim(view_sub(rest, 0, view_find(rest, '\n')));
	while (rest.n > 1 && rest.p[rest.n - 1] == '/')
		rest.n--;
	return rest.n > 0 && rest.p[0] == '/' ? rest : VIEW_NONE;
}

static void
say(struct sm_out *o, struct view text)
{
	sm_out_str(o, "{\"text\":");
	sm_out_quoted(o, text);
	sm_out_str(o, "}");
}

/* Arguments as OpenCode's write tool takes them. */
static void
call_write(struct sm_out *o, const struct sm_ask *ask)
{
	struct view dir = working_directory(ask);
	struct sm_out path;

	sm_out_init(&path, 65536);
	if (dir.n > 0) {
		sm_out_add(&path, dir);
		sm_out_str(&path, dir.n > 1 ? "/" : "");
	}
	sm_out_str(&path, "hello.py");
	say(o, VIEW("I will write hello.py and then run it."));
	sm_out_str(o,
	    ",{\"tool_calls\":[{\"name\":\"write\",\"arguments\":"
	    "{\"filePath\":");
	sm_out_quoted(o, buf_view(&path.b));
	sm_out_str(o,
	    ",\"content\":\"print(\\\"Hello from the scripted model\\\")"
	    "\\n\"}}]}");
	if (path.err != 0)
		o->err = path.err;
	sm_out_clear(&path);
}

static void
call_bash(struct sm_out *o)
{
	say(o, VIEW("The file is there. Now I run it."));
	sm_out_str(o,
	    ",{\"tool_calls\":[{\"name\":\"bash\",\"arguments\":"
	    "{\"command\":\"python3 hello.py\","
	    "\"description\":\"Run hello.py\"}}]}");
}

/* The user's words back, cut at a character. */
static void
echo(struct sm_out *o, const struct sm_ask *ask)
{
	struct view said = view_trim(ask->last_user);
	struct sm_out t;

	while (said.n > 0 && said.p[said.n - 1] == '\n')
		said.n--;
	if (said.n > ECHO_MAX) {
		said.n = ECHO_MAX;
		while (said.n > 0 &&
		    ((unsigned char)said.p[said.n] & 0xc0) == 0x80)
			said.n--;
	}
	sm_out_init(&t, 4 * ECHO_MAX);
	sm_out_str(&t, "You said: ");
	sm_out_add(&t, said);
	say(o, buf_view(&t.b));
	if (t.err != 0)
		o->err = t.err;
	sm_out_clear(&t);
}

int
sm_brain_turn(const struct sm_ask *ask, const struct sm_json **turn)
{
	struct sm_out o;
	struct sm_json *root = NULL;
	bool agent =
	    has_tool(ask, VIEW("write")) && has_tool(ask, VIEW("bash"));
	int rc;

	sm_out_init(&o, 1 << 20);
	sm_out_str(&o, "{\"steps\":[");
	if (view_search(ask->system, VIEW("title generator")) < ask->system.n)
		say(&o, VIEW("Write and run hello.py"));
	else if (!agent)
		echo(&o, ask);
	else if (ask->tool_results == 0)
		call_write(&o, ask);
	else if (ask->tool_results == 1)
		call_bash(&o);
	else
		say(&o,
		    VIEW("Done: hello.py is written, and it ran without an "
			 "error."));
	sm_out_str(&o, "]}");
	rc = o.err;
	if (rc == 0)
		rc = sm_json_parse(ask->a, buf_view(&o.b), &root, NULL, 0);
	sm_out_clear(&o);
	*turn = root;
	return rc;
}

/* Of test_lifecycle.c: OpenEnv's sessions, which are episodes. */
#ifndef SP_T_UNIT_LIFECYCLE_SESSIONS_H
#define SP_T_UNIT_LIFECYCLE_SESSIONS_H

static const char session_text[] =
    "environment echo { worker stdio /bin/cat; episodes 2;\n"
    "  sandbox { uid 300000 4096; } }\n"
    "server {\n"
    "  listen 127.0.0.1:7000; server_name h;\n"
    "  location /ws { lifecycle; environment echo; " DOOR "}\n"
    "  location /mcp { mcp_agent; environment echo; tools a;\n"
    "    session_timeout 1s; }\n"
    "}\n";

#define CREATE \
	"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"openenv/session/create\""

static void
test_session(void)
{
	struct mux_stream *s;
	unsigned before;

	open_gate(session_text);
	fake_asked = SP_E_NOTFOUND;
	s = request("POST", "/mcp", NULL, CREATE ",\"params\":[]}");
	is(s, 200, "-32602", "a session that cannot be");
	tap_is_int(helper.n, 0, "has no episode");
	s = request("POST", "/mcp", NULL, CREATE "}");
	tap_is_int(s->status, 0, "a session waits for its episode");
	made(1);
	is(s, 200, "\"session_id\":", "and has it");
	tap_ok(told(MESSAGE_EPISODE_END, 0), "as long as it is used");
	s = request("POST", "/mcp", NULL, CREATE "}");
	helper_refuses(MESSAGE_EPISODE_CREATE, SANDBOX_REFUSED_FAILED, "no");
	turn();
	is(s, 200, "\"reason\":\"sandbox_failed\"", "or not");
	s = request("POST", "/mcp", NULL, CREATE "}");
	before = helper.n;
	mux_reset(s);
	turn();
	made(2);
	tap_ok(told(MESSAGE_EPISODE_END, before), "nor one that left");
	s = request("POST", "/mcp", NULL, CREATE "}");
	fake_asked = SP_OK;
	close_gate();
}

/* "session_id=ID" of the session that was made, for a query. */
static void
session_query(const struct mux_stream *s, char *out, size_t size)
{
	struct view v = buf_view(&s->got);
	size_t at = view_search(v, VIEW("\"session_id\":\""));

	v = view_from(v, at + strlen("\"session_id\":\""));
	v = view_sub(v, 0, view_find(v, '"'));
	snprintf(out, size, "session_id=%.*s", VIEW_ARG(v));
}

/* A second connection comes while a reset of the first one waits for room. */
static void
test_session_room(void)
{
	struct peer p, q, other;
	struct mux_stream *s;
	char query[256];
	unsigned tries;

	open_gate(session_text);
	fake_asked = SP_E_NOTFOUND;
	s = request("POST", "/mcp", NULL, CREATE "}");
	made(1);
	session_query(s, query, sizeof(query));
	fake_asked = SP_OK;
	p = come("/ws", query);
	helper_ended(1, "");
	other = live("/ws", 2);
	leave(&other, 1000);
	say(&p, "{\"type\":\"reset\"}");
	fake_room_ms = 200;
	helper_refuses(MESSAGE_EPISODE_CREATE, SANDBOX_REFUSED_CAPACITY, "");
	fake_room_ms = LIFECYCLE_ROOM_MS;
	q = come("/ws", query);
	tap_ok(q.ws != NULL && q.ws->code == 0, "two are attached");
	for (tries = 0; tries < 2000 && p.ws->sent == 0; tries++)
		spin(5);
	hears(&p, "has not left its place in time", "the wait has its bound");
	leave(&p, 1000);
	leave(&q, 1000);
	close_gate();
}

/* Who wants the name of one that a session has is told of it. */
static void
test_session_name(void)
{
	char reset[256], query[256];
	struct peer p, q;
	struct mux_stream *s;

	open_gate(session_text);
	fake_asked = SP_E_NOTFOUND;
	s = request("POST", "/mcp", NULL, CREATE "}");
	made(1);
	session_query(s, query, sizeof(query));
	fake_asked = SP_OK;
	p = live("/ws", 2);
	snprintf(reset, sizeof(reset),
	    "{\"type\":\"reset\",\"data\":{\"episode_id\":\"%s\"}}", at(1)->id);
	say(&p, reset);
	hears(&p, "\"reason\":\"episode_exists\"", "a name that a session has");
	hears(&p, "a session of openenv/session/create has it until",
	    "and who");
	hears(&p, "end that by openenv/session/close", "and what helps");
	q = come("/ws", query);
	say(&p, reset);
	hears(&p, "close that connection", "or one that somebody uses");
	leave(&q, 1000);
	leave(&p, 1000);
	close_gate();
}

/* Whatever there is no memory for: no episode stays that no session has. */
static void
test_session_memory(void)
{
	struct mux_stream *s;
	unsigned long n;
	unsigned good = 0, bad = 0, left = 0;

	for (n = 1; n < 90; n++) {
		open_gate(session_text);
		fake_asked = SP_E_NOTFOUND;
		s = ask("POST", "/mcp", NULL, CREATE "}");
		/* the client's own is not what fails */
		TAP_NEVER(buf_reserve(&s->down, 4096) != SP_OK ||
		    buf_reserve(&s->got, 4096) != SP_OK ||
		    buf_reserve(&mux.wire, 4096) != SP_OK);
		mem_fail_after(n, 0);
		turn();
		if (helper_request(MESSAGE_EPISODE_CREATE) != 0)
			made(1);
		mem_fail_after(0, 0);
		turn();
		if (s->status == 200 && has(&s->got, "session_id"))
			good++;
		else if (at(1) != NULL && at(1)->state == EPISODE_LIVE)
			left++;
		else
			bad++;
		fake_asked = SP_OK;
		mux_reset(s);
		turn();
		close_gate();
	}
	tap_ok(good > 0 && bad > 0 && left == 0,
	    "without memory: %u sessions, %u without episode, %u left", good,
	    bad, left);
}

#endif

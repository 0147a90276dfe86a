#!/usr/bin/python3
"""Sessions: keys, budgets, retries, and what outlives each of the parts."""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from gate import until  # noqa: E402
from tap import eq, ok  # noqa: E402
from upstream import GONE, RST, Raw, Scripted, events, sse, unary  # noqa: E402

ADMIN = "admin-token-0123456789"
CTL = gate.program("sallyportctl")
ASK = {"model": "m", "messages": [{"role": "system", "content": "be brief"},
                                  {"role": "user", "content": "hi"}]}
SCRIPT = {"turns": [], "fallback": {"text": "all right"}}


def conf(url, sessions=""):
    return (f"upstream m {{ server {url}/v1; }}\n"
            f"upstream other {{ server {url}/v1; model other-model; }}\n"
            "capture c { level tokens; top_logprobs 2; sampling top_p=0.5; }\n"
            "server { listen 127.0.0.1:0;\n"
            "location /v1 { llm_intercept; upstream m; capture c; }\n"
            "location /open/v1 { llm_intercept; upstream m; capture c;"
            " keys open; }\n"
            "location /rollout { llm_intercept; upstream m; capture c;"
            " session_path on; }\n"
            "location /admin/sessions { sessions; token env:ADMIN;"
            " door /rollout/$session/v1; }\n"
            "location /sessions { sessions; token env:ADMIN;"
            f" overrides sampling upstream model; {sessions} }}\n"
            "location /health { health; }\n"
            "location /status { status; } }")


class Door(gate.Gate):
    def __init__(self, url, text=None, **kw):
        super().__init__(text or conf(url, **kw), env={"ADMIN": ADMIN})

    def ask(self, method, path, body=None, key=ADMIN, headers=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        h = {"Authorization": f"Bearer {key}"} if key else {}
        h.update(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        c.request(method, path, body, h)
        r = c.getresponse()
        data = r.read()
        c.close()
        self.headers = {k.lower(): v for k, v in r.getheaders()}
        try:
            return r.status, json.loads(data)
        except ValueError:
            return r.status, data

    def create(self, **fields):
        status, s = self.ask("POST", "/sessions", fields)
        if status != 201:
            raise RuntimeError(f"no session: {status} {s}")
        return s

    def call(self, key, body=None, headers=None, where="/v1"):
        return self.ask("POST", where + "/chat/completions", body or ASK,
                        key=key, headers=headers)

    def get(self, sid):
        return self.ask("GET", f"/sessions/{sid}")[1]

    def well(self):
        try:
            return self.ask("GET", "/health", key=None)[0] == 200
        except OSError:
            return False


def code(got):
    status, body = got
    return status, body["error"]["code"] if isinstance(body, dict) else body


def test_create(d):
    s = d.create(session_id="a.b-C_1", metadata={"task": [1, {"é": "x"}]},
                 max_model_calls=3)
    eq((s["session_id"], s["state"], s["metadata"], s["max_model_calls"]),
       ("a.b-C_1", "open", {"task": [1, {"é": "x"}]}, 3), "a session")
    eq(s["base_url"], f"http://127.0.0.1:{d.port}/v1", "its base URL")
    eq((s["capture_level"], s["trace"]), ("tokens", "a.b-C_1.jsonl"),
       "its trace")
    ok(len(s["key"]) >= 40, "its key is long")
    eq(d.headers.get("cache-control"), "no-store", "a key is not to be kept")
    t = d.create()
    ok(t["session_id"] and t["session_id"] != s["session_id"] and
       t["key"] != s["key"], "an id is made where none is given")
    eq(code(d.ask("POST", "/sessions", {"id": "a.b-C_1"})),
       (409, "session_exists"), "an id is used once")
    g = d.get("a.b-C_1")
    ok("key" not in g and s["key"] not in json.dumps(g),
       "nobody is shown a key again")
    eq(g["max_model_calls"], 3, "a session is shown")
    return s, t


def test_bad(d):
    for name, body, status, want in (
            ("no JSON", b"{", 400, "bad_session"),
            ("no object", b"[1]", 400, "bad_session"),
            ("a slash", {"id": "a/b"}, 400, "bad_session"),
            ("dots", {"id": ".."}, 400, "bad_session"),
            ("a NUL", {"id": "a\0b"}, 400, "bad_session"),
            ("too long", {"id": "a" * 129}, 400, "bad_session"),
            ("an empty id", {"id": ""}, 400, "bad_session"),
            ("a number", {"id": 5}, 400, "bad_session"),
            ("the session default", {"id": "default"}, 400,
             "bad_session_id"),
            ("the seal of a roll", {"id": "default.jsonl.2"}, 400,
             "bad_session_id"),
            ("a name of other files", {"id": "x.seal.jsonl.torn"}, 201, None),
            ("a negative budget", {"max_model_calls": -1}, 400,
             "bad_session"),
            ("half a call", {"max_model_calls": 1.5}, 400, "bad_session"),
            ("metadata that is no object", {"metadata": [1]}, 400,
             "bad_session"),
            ("long metadata", {"metadata": {"a": "x" * 9000}}, 400,
             "bad_session"),
            ("sampling that is no number", {"sampling": {"top_p": "x"}}, 400,
             "bad_session"),
            *((f"sampling that sets {name}", {"sampling": {"top_p": 1,
                                                           name: 1}}, 400,
               "bad_session") for name in (
                "messages", "model", "stream", "prompt", "tools", "api_key",
                "max_tokens", "max_completion_tokens", "logprobs",
                "top_logprobs", "return_token_ids", "stream_options")),
            ("an unknown upstream", {"upstream": "nope"}, 400,
             "bad_session"),
            ("a capture, which may not be chosen", {"capture": "c"}, 400,
             "bad_session"),
            ("an upstream of its own", {"llm_url": "http://x/v1"}, 400,
             "bad_session"),
            ("an unknown field", {"max_calls": 5}, 400, "bad_session"),
            ("a member twice", b'{"model":"a","model":"b"}', 400,
             "bad_session"),
            ("a bound twice", b'{"max_wall_s":1,"budget":{"max_wall_s":2}}',
             400, "bad_session"),
            ("two ids", {"id": "two-1", "session_id": "two-2"}, 400,
             "bad_session"),
            ("metadata with a member twice", b'{"metadata":{"a":1,"a":2}}',
             400, "bad_session"),
            ("metadata with NaN", b'{"metadata":{"a":[NaN]}}', 400,
             "bad_session"),
            ("sampling with infinity", b'{"sampling":{"top_p":Infinity}}',
             400, "bad_session"),
            ("no end of time", b'{"max_wall_s":Infinity}', 400,
             "bad_session"),
            ("nulls", {"llm_url": None, "session_id": None}, 201, None)):
        got = d.ask("POST", "/sessions", body)
        eq((got[0], got[1].get("error", {}).get("code")), (status, want),
           f"create: {name}")
    got = d.ask("POST", "/sessions", {"sampling": {"messages": 1}})
    ok("sampling: messages is not" in got[1]["error"]["message"],
       "the refusal names what may not be set", got)
    for path in ("/sessions/..%2Fx", "/sessions/%2e%2e", "/sessions/a%00b",
                 "/sessions/" + "a" * 129, "/sessions/.a", "/sessions/nope",
                 "/sessions/a/b", "/sessions/nope/trace"):
        status = d.ask("GET", path)[0]
        ok(status in (400, 404), f"{path[:24]}: refused", status)
    eq(code(d.ask("GET", "/sessions?limit=0")), (400, "bad_query"),
       "a limit of 0")
    eq(code(d.ask("GET", "/sessions?limit=9999")), (400, "bad_query"),
       "a limit of too many")
    eq(code(d.ask("GET", "/sessions?after=never-was")),
       (404, "unknown_session"), "after nobody")
    eq(d.ask("PUT", "/sessions")[0], 405, "a method of no use")
    eq(d.headers.get("allow"), "GET, POST", "says which are")
    for key in (None, "wrong"):
        eq(code(d.ask("GET", "/sessions", key=key)), (401, "invalid_token"),
           "a token is needed")


def test_words(d):
    r = d.ask("POST", "/sessions", {"upstream": "nope"})
    eq(r[1]["error"]["message"],
       'upstream: no block "upstream nope" in the configuration',
       "a block that is not there is named")


def test_keys(d, s, t):
    sid = t["session_id"]
    eq(d.call(t["key"])[0], 200, "a key opens the door")
    eq(d.record(0, sid)["session"], sid, "and its session's trace")
    for field in ("x-api-key", "x-goog-api-key", "api-key"):
        eq(d.call(None, headers={field: t["key"]})[0], 200, field)
    eq(code(d.call("sk-sp-wrong")), (401, "invalid_api_key"), "no such key")
    r = d.call(None)
    ok(code(r) == (401, "invalid_api_key")
       and r[1]["error"]["message"].startswith("no session key was sent"),
       "no key", r)
    eq(code(d.call(sid)), (401, "invalid_api_key"),
       "an id is no key")
    eq(code(d.call(t["key"], headers={"x-api-key": s["key"]})),
       (400, "ambiguous_key"), "two keys")
    eq(d.call(t["key"], headers={"x-session-id": s["session_id"]})[0], 200,
       "headers never route")
    eq(len(d.records(sid)), 5, "all went where the key says")
    eq(d.call("anything", where="/open/v1")[0], 200, "an open door")
    eq(d.call(t["key"], where="/open/v1")[0], 200, "and a key that it knows")
    eq((len(d.records("default")), len(d.records(sid))), (1, 6),
       "each to its own trace")
    g = d.get(sid)
    eq((g["model_calls"], g["n_turns"], g["n_complete"]), (6, 6, 6),
       "calls and turns are counted")
    ok(g["completion_tokens"] > 0 and g["last_activity_at"] >
       g["created_at"], "so are tokens", g)


def test_paths(d, t):
    sid, key = t["session_id"], t["key"]
    n = len(d.records(sid))
    eq(d.call(key, where=f"/rollout/{sid}/v1")[0], 200,
       "a path that names the key's session")
    eq(d.call(key, where=f"/rollout/{sid}")[0], 200, "also without /v1")
    eq(len(d.records(sid)), n + 2, "goes to its trace")
    for name, path in (("another's id", "a.b-C_1/v1"), ("no id", "v1"),
                       ("a path", "..%2F..%2Fetc/v1"),
                       ("the session default", "default/v1")):
        got = d.call(key, where=f"/rollout/{path}")
        ok(got[0] in (400, 404), f"{name} is refused", got)
    eq(code(d.call(None, where=f"/rollout/{sid}/v1")),
       (401, "invalid_api_key"), "an id without a key opens nothing")
    s = d.ask("POST", "/admin/sessions", {"id": "of-path"})[1]
    eq(s["base_url"], f"http://127.0.0.1:{d.port}/rollout/of-path/v1",
       "a base URL with the id")
    path = s["base_url"].split(str(d.port))[1]
    eq(d.call(s["key"], where=path)[0], 200, "works")


def test_overrides(d, up):
    a = d.create(sampling={"temperature": 0.25}, model="mine", purpose="eval")
    eq(d.call(a["key"])[0], 200, "a session with sampling and model")
    req = d.record(0, a["session_id"])["request"]
    eq((req["temperature"], req["top_p"], req["model"]), (0.25, 0.5, "mine"),
       "its own go up, the capture's beside them")
    b = d.create(upstream="other", sampling={"top_p": 0.9})
    eq(d.call(b["key"])[0], 200, "a session with an upstream")
    r = d.record(0, b["session_id"])
    eq((r["request"]["model"], r["request"]["top_p"],
        r["metadata"]["upstream"]), ("other-model", 0.9, "other"),
       "whose model counts, and whose sampling goes first")


def test_budget(d):
    s = d.create(max_model_calls=1)
    eq(d.call(s["key"])[0], 200, "within the budget")
    status, got = d.call(s["key"])
    choice = got["choices"][0]
    eq((status, got["object"], choice["message"]["content"],
        choice["finish_reason"], got["usage"]["total_tokens"]),
       (200, "chat.completion", "Step budget exhausted; stopping.", "stop",
        0), "past it: a finished message")
    ok(got["id"].startswith("budget-") and got["model"] == "m",
       "of the gateway's own", got)
    for usage in (False, True):
        body = {**ASK, "stream": True}
        if usage:
            body["stream_options"] = {"include_usage": True}
        status, data = d.call(s["key"], body)
        eq(d.headers.get("content-type"), "text/event-stream",
           "a stream where a stream is asked for")
        lines = [x[6:] for x in data.decode().split("\n") if x]
        eq(lines[-1], "[DONE]", "with its end")
        chunks = [json.loads(x) for x in lines[:-1]]
        eq((chunks[0]["choices"][0]["delta"]["content"],
            chunks[1]["choices"][0]["finish_reason"]),
           ("Step budget exhausted; stopping.", "stop"), "text and reason")
        eq([c["usage"]["total_tokens"] for c in chunks if "usage" in c],
           [0] if usage else [], "usage for who asked for it")
    recs = d.records(s["session_id"])
    eq([r["findings"] == ["budget_stop"] for r in recs],
       [False, True, True, True], "marked in the trace")
    last = recs[-1]
    eq((last["response"], last["complete"], last["metadata"]["trainable"],
        last["metadata"]["budget"]), (None, False, False, "model_calls"),
       "as no turn of the model's")
    g = d.get(s["session_id"])
    eq((g["model_calls"], g["budget_stop_count"], g["n_turns"]), (1, 3, 4),
       "and counted")
    eq(d.ask("GET", "/v1/models", key=s["key"])[0], 200,
       "the list of models is no call")
    t = d.create(budget={"max_completion_tokens": 1})
    eq(d.call(t["key"])[1]["id"][:7] == "budget-", False, "tokens: the first")
    eq(d.call(t["key"])[1]["id"][:7], "budget-", "tokens: no second")
    eq(d.record(1, t["session_id"])["metadata"]["budget"],
       "completion_tokens", "tokens: named in the trace")
    w = d.create(max_wall_s=0.001)
    until(lambda: d.call(w["key"])[1]["id"].startswith("budget-"),
          "the end of the time")
    eq(d.records(w["session_id"])[-1]["metadata"]["budget"], "wall",
       "time: named in the trace")


def test_metrics(d):
    text = d.ask("GET", "/status", key=None)[1].decode()
    want = {"model_calls": 3, "completion_tokens": 1}
    got = {k: v for k, v in want.items() if
           f'budget_stops_total{{budget="{k}"}} {v}\n' in text}
    eq(got, want, "budget stops are counted")
    n = d.ask("GET", "/sessions?limit=1")[1]["open"]
    ok(f"sessions_open {n}\n" in text, "so are open sessions", text[-900:])


def test_list(d):
    known = []
    after = ""
    pages = 0
    while True:
        status, page = d.ask("GET", f"/sessions?limit=3{after}")
        eq(status, 200, "a page")
        known += [s["session_id"] for s in page["sessions"]]
        pages += 1
        if page["next"] is None:
            break
        after = "&after=" + page["next"]
    ok(pages > 2 and len(known) == len(set(known)) == page["total"],
       "pages hold each session once", known)
    eq(known[0], "a.b-C_1", "in the order they came")


def verify(d, sid):
    r = subprocess.run([CTL, "trace", "--verify", d.trace_path(sid)],
                       capture_output=True, text=True)
    return r.returncode, r.stdout + r.stderr


def test_trace(d, t):
    sid = t["session_id"]
    status, data = d.ask("GET", f"/sessions/{sid}/trace")
    with open(d.trace_path(sid), "rb") as f:
        want = f.read()
    eq((status, d.headers["content-type"]), (200, "application/x-ndjson"),
       "a trace")
    ok(data == want, "byte for byte")
    status, data = d.ask("GET", f"/sessions/{sid}/trace?view=train")
    lines = [json.loads(x) for x in data.splitlines()] \
        if isinstance(data, bytes) else [data]
    eq((status, len(lines)), (200, 8), "turns to train on")
    one = lines[0]
    eq(one["loss_mask"], [0] * len(one["prompt_token_ids"]) +
       [1] * len(one["completion_token_ids"]), "with their mask")
    status, doc = d.ask("GET", f"/sessions/{sid}/trace_entries")
    eq((status, doc["session_id"], len(doc["entries"])), (200, sid, 8),
       "the same as one document")
    eq(doc["entries"][0], one, "of the same entries")
    eq(code(d.ask("GET", f"/sessions/{sid}/trace?view=x")),
       (400, "bad_view"), "a view there is not")
    empty = d.create()["session_id"]
    eq(code(d.ask("GET", f"/sessions/{empty}/trace")), (404, "no_trace"),
       "no call, no trace")
    status, data = d.ask("GET", "/sessions/default/trace")
    eq(status, 200, "the session default has one, too")


def test_trainable(d):
    """One definition: the list's count, the views, and sallyportctl."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {}}}}]
    for asks, want in (([ASK], 1), ([ASK, {**ASK, "tools": tools}], 1),
                       ([{**ASK, "tools": tools}, ASK, ASK], 1),
                       ([{**ASK, "tools": tools}] * 2, 2)):
        s = d.create()
        sid = s["session_id"]
        for body in asks:
            d.call(s["key"], body)
        good = [r["metadata"]["trainable"] for r in d.records(sid)]
        eq(good, [True] * len(asks), "turns that could be trained on")
        n = d.get(sid)["n_trainable"]
        lines = d.ask("GET", f"/sessions/{sid}/trace?view=train")[1]
        p = subprocess.run([gate.program("sallyportctl"), "trace", "--train",
                            d.trace_path(sid)], capture_output=True)
        eq((n, len(lines.splitlines()) if isinstance(lines, bytes) else 1,
            len(p.stdout.splitlines())), (want, want, want),
           "n_trainable: those of the agent itself, as in the views")


def test_redacted(d):
    """A key in a field that is recorded is not."""
    a, b = d.create(), d.create()
    old = d.create()
    d.ask("DELETE", f"/sessions/{old['session_id']}")
    fields = {"x-session-id": a["key"], "idempotency-key": f"r/{b['key']}/1",
              "user-agent": f"agent/1.0 (key={a['key']}x)",
              "x-session-affinity": old["key"],
              "x-client-request-id": "req-" + "0" * 32}
    status = d.ask("POST", "/v1/chat/completions", ASK, a["key"], fields)[0]
    eq(status, 200, "a call that says its key everywhere")
    rec = d.record(0, a["session_id"])
    eq(rec["metadata"]["client"],
       {"x_session_id": "[redacted]", "idempotency_key": "[redacted]",
        "user_agent": "[redacted]", "x_session_affinity": "[redacted]",
        "x_client_request_id": "req-" + "0" * 32},
       "keys are blanked: its own, others', old ones; the rest is kept")
    with open(d.trace_path(a["session_id"]), "rb") as f:
        data = f.read()
    ok(not any(s["key"].encode() in data for s in (a, b, old)),
       "none is in the trace")
    # without a key of the gateway's own, what came as one is none the less
    d.ask("POST", "/open/v1/chat/completions", ASK, "sk-foreign-0123456789",
          {"x-session-id": "sk-foreign-0123456789"})
    with open(d.trace_path("default"), "rb") as f:
        ok(b"sk-foreign" not in f.read(), "nor one that is not ours")


def test_delete(d):
    s = d.create(session_id="short")
    d.call(s["key"])
    status, got = d.ask("DELETE", "/sessions/short")
    eq((status, got["state"], got["outcome"], got["n_turns"]),
       (200, "ended", "done", 1), "a session is ended")
    eq(code(d.call(s["key"])), (401, "session_closed"), "its key is dead")
    eq(code(d.call(s["key"], where="/open/v1")), (401, "session_closed"),
       "also where no key is asked for")
    rc, out = verify(d, "short")
    eq(rc, 0, f"its trace verifies")
    with open(d.trace_path("short")[:-6] + ".seal") as f:
        eq(json.load(f)["reason"], "end", "sealed by its end")
    eq(d.ask("DELETE", "/sessions/short")[1]["state"], "ended",
       "twice is no harm")
    eq(code(d.ask("DELETE", "/sessions/never")), (404, "unknown_session"),
       "nobody cannot be ended")
    eq(code(d.ask("POST", "/sessions", {"id": "short"})),
       (409, "session_exists"), "its id stays used")
    s = d.create()
    d.call(s["key"])
    got = d.ask("DELETE", f"/sessions/{s['session_id']}?outcome=oom")[1]
    eq(got["outcome"], "oom", "with an outcome of the caller's")
    eq(code(d.ask("DELETE", f"/sessions/{s['session_id']}?outcome=fun")),
       (400, "bad_query"), "if it is one")
    said = d.ask("DELETE", f"/sessions/{s['session_id']}?outcome=fun")[1]
    ok("harness_loop" in said["error"]["message"], "those there are, named",
       said)


def test_closed_calls():
    """Calls that are open when their session is ended."""
    up = Raw()
    with Door(up.url) as d:
        s = d.create()
        up.play([*sse(events({"choices": [{"index": 0, "delta": {
            "role": "assistant", "content": "par"}}]}), end=None), GONE],
            [GONE])
        stream = d.connect()
        d.send_raw = gate.request({**ASK, "stream": True}, headers=[
            ("Authorization", f"Bearer {s['key']}")])
        stream.sendall(d.send_raw)
        got = b""
        while b"par" not in got:
            got += stream.recv(65536)
        waits = http.client.HTTPConnection("127.0.0.1", d.port, timeout=60)
        waits.request("POST", "/v1/chat/completions", json.dumps(ASK),
                      {"Authorization": f"Bearer {s['key']}"})
        until(lambda: len(up.requests) == 2, "the second call")
        eq(d.ask("DELETE", f"/sessions/{s['session_id']}")[0], 200,
           "ended under two calls")
        r = waits.getresponse()
        eq((r.status, json.loads(r.read())["error"]["code"]),
           (400, "session_closed"), "the one that waits is told")
        while True:
            more = stream.recv(65536)
            if not more:
                break
            got += more
        ok(b"session_closed" in got and b"[DONE]" not in got and
           not got.endswith(b"0\r\n\r\n"), "a stream ends in an error",
           got[-300:])
        ok(b'"type":"invalid_request_error"' in got and
           b"upstream_error" not in got, "which is not the upstream's",
           got[-300:])
        until(lambda: up.ends.qsize() == 2, "the upstream's ends")
        recs = d.records(s["session_id"])
        eq([(r["complete"], r["aborted"]) for r in recs],
           [(False, True)] * 2, "both are recorded")
        rc, out = verify(d, s["session_id"])
        eq(rc, 0, "and sealed")


def test_odd_status():
    """A status that is no answer to a call is named."""
    up = Raw()
    with Door(up.url) as d:
        s = d.create()
        for status, want in (("304 Not Modified", "upstream_malformed"),
                             ("307 Temporary Redirect", "upstream_redirect")):
            up.play([f"HTTP/1.1 {status}\r\nLocation: /x\r\n"
                     "Content-Length: 0\r\n\r\n".encode()])
            got = d.call(s["key"])
            eq(code(got), (502, want), status)
            ok(("304" in got[1]["error"]["message"]) ==
               status.startswith("304"), "its reason", got)


def test_cut_key():
    """The upstream's key in a body that is passed on, cut in two reads."""
    key = "sk-upstream-secret-0123456789"
    up = Raw()
    text = (f"upstream u {{ server {up.url}/v1; api_key env:K; }}\n"
            "capture c { level text; }\n"
            "server { listen 127.0.0.1:0; location /v1 { llm_intercept; "
            "upstream u; capture c; keys open; pass /v1/responses; } }")
    first, rest = f'{{"a":"mark {key[:9]}', f'{key[9:]} end {key[:5]}'
    whole = f'{{"a":"mark {"*" * len(key)} end {key[:5]}'
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    plain = f"Content-Length: {len(first + rest)}\r\n\r\n"
    parted = "Transfer-Encoding: chunked\r\n\r\n"
    with gate.Gate(text, env={"K": key}) as g:
        for how, a, b in (
                ("a length", head + plain + first, rest),
                ("chunks", f"{head}{parted}{len(first):x}\r\n{first}\r\n",
                 f"{len(rest):x}\r\n{rest}\r\n0\r\n\r\n")):
            go = threading.Event()
            up.play([a.encode(), lambda: go.wait(gate.PATIENCE), b.encode()])
            s = g.connect()
            r = gate.Reply(s, gate.request(ASK, "/v1/responses"), read=False)
            got = r.until(b"mark ")
            go.set()
            while r.more():
                pass
            got = (got + r.buf).partition(b"\r\n\r\n")[2]
            if how == "chunks":
                got = re.sub(rb"(\r\n)?[0-9a-f]+\r\n", b"", got)
            eq(got.strip().decode(), whole, f"{how}: it is masked")
            s.close()


def test_retries():
    up = Raw()
    reply = unary({"id": "c", "object": "chat.completion", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "x"},
         "finish_reason": "stop"}]})
    with Door(up.url) as d:
        s = d.create()
        sid, key = s["session_id"], s["key"]
        up.play([RST], reply, reply, [GONE], reply)
        eq(d.call(key, headers={"x-stainless-retry-count": "0"})[0], 502,
           "a call that fails")
        eq(d.call(key, headers={"x-stainless-retry-count": "1"})[0], 200,
           "and is sent again")
        eq(d.call(key, headers={"Idempotency-Key": "k-1"})[0], 200,
           "the same once more, by intent")
        c = d.connect()
        c.sendall(gate.request({**ASK, "n": 1}, headers=[
            ("Authorization", f"Bearer {key}")]))
        until(lambda: len(up.requests) == 4, "the call that is left")
        c.close()
        until(lambda: len(d.records(sid)) == 4, "its record")
        eq(d.call(key, {**ASK, "n": 1},
                  headers={"x-stainless-retry-count": "2"})[0], 200,
           "a client that left asks again")
        m = [r["metadata"] for r in d.records(sid)]
        turns = [r["turn"] for r in d.records(sid)]
        eq([x.get("retry_of") for x in m],
           [None, turns[0], None, None, turns[3]],
           "what the client got no answer to is repeated, not what it got")
        eq(len({x["body_sha256"] for x in m[:3]}), 1, "bodies are the same")
        ok(m[3]["body_sha256"] != m[0]["body_sha256"] and
           m[3]["prefix_sha256"] == m[0]["prefix_sha256"],
           "or share their beginning")
        eq(m[1]["client"]["x_stainless_retry_count"], "1",
           "the count is kept")
        eq(m[2]["client"]["idempotency_key"], "k-1", "so is the key")


def test_durable(up):
    """Each part dies in turn, then the whole is started anew."""
    with Door(up.url) as d:
        a = d.create(session_id="lives", max_model_calls=4,
                     metadata={"n": 1})
        b = d.create(session_id="over")
        d.call(a["key"])
        d.call(b["key"])
        d.ask("DELETE", "/sessions/over")
        for part in ("sallyport-recorder", "sallyport-reactor"):
            pid = d.children()[part]
            os.kill(pid, signal.SIGKILL)
            until(lambda: d.children().get(part, pid) != pid and d.well(),
                  f"another {part}")
            until(lambda: d.call(a["key"])[0] == 200, "the session")
            eq(d.get("lives")["state"], "open", f"{part} died: it lives on")
            eq([code(d.call(b["key"], where=at)) for at in ("/v1", "/open/v1")],
               [(401, "session_closed")] * 2,
               f"{part} died: what was over is over")
        g = d.get("lives")
        eq((g["model_calls"], g["n_turns"], g["metadata"]), (3, 3, {"n": 1}),
           "and nothing was forgotten")
        d.stop()
        journal = os.path.join(d.state, "keys", "sessions.jsonl")
        for root, _, names in os.walk(d.state):
            if "sessions.jsonl" in names:
                journal = os.path.join(root, "sessions.jsonl")
        with open(journal, "rb") as f:
            text = f.read()
        ok(a["key"].encode() not in text and b["key"].encode() not in text,
           "no key is on the disk")
        with open(journal, "ab") as f:
            f.write(b'{"op":"use","id":"lives","calls":99')
        # the journal is the recorder's own: it stays so
        with open(d.log_path, "w"):
            pass
        d.start(d.argv, {"ADMIN": ADMIN})
        got = d.ask("GET", "/sessions")[1]["sessions"]
        eq([(s["session_id"], s["state"]) for s in got],
           [("lives", "open"), ("over", "ended")], "a start later")
        eq(d.get("lives")["model_calls"], 3, "what was torn does not count")
        eq(d.ask("GET", "/sessions/over/trace")[0], 200,
           "what is over is readable")
        eq(d.call(a["key"])[1]["id"][:7] == "budget-", False,
           "the key works, the budget has one left")
        eq(d.call(a["key"])[1]["id"][:7], "budget-", "and no more")
        eq(verify(d, "over")[0], 0, "a sealed trace verifies")
        d.ask("DELETE", "/sessions/lives")
        eq(d.get("lives")["outcome"], "budget", "ended by its budget")
        rc, out = verify(d, "lives")
        eq(rc, 0, f"so does one of several lives: {out[-200:]}")


def ctl(d, *args, token=ADMIN, url=None):
    r = subprocess.run(
        [CTL, "sessions", "--url", url or f"http://127.0.0.1:{d.port}",
         *args], capture_output=True, text=True,
        env={**os.environ, "SALLYPORT_ADMIN_TOKEN": token})
    return r.returncode, r.stdout, r.stderr


def test_ctl(d):
    rc, out, err = ctl(d, "create", '{"id": "by-ctl", "max_model_calls": 2}')
    key = json.loads(out)["key"]
    eq((rc, d.call(key)[0]), (0, 200), "sallyportctl makes a session")
    rc, out, err = ctl(d, "show", "by-ctl")
    eq((rc, json.loads(out)["n_turns"]), (0, 1), "shows it")
    rc, out, err = ctl(d)
    rows = [x.split()[0] for x in out.splitlines()]
    ok(rc == 0 and "by-ctl" in rows and rows[0] == "SESSION", "lists all",
       out)
    rc, out, err = ctl(d, "--json", "list")
    ok(rc == 0 and json.loads(out)["total"] == len(rows) - 1,
       "also as JSON", out)
    rc, out, err = ctl(d, "trace", "by-ctl")
    with open(d.trace_path("by-ctl")) as f:
        eq((rc, out), (0, f.read()), "prints its trace")
    rc, out, err = ctl(d, "trace", "by-ctl", "train")
    eq((rc, len(out.splitlines())), (0, 1), "and what can be trained on")
    rc, out, err = ctl(d, "end", "by-ctl", "oom",
                       url=f"http://127.0.0.1:{d.port}/sessions/")
    eq((rc, json.loads(out)["outcome"]), (0, "oom"), "ends it")
    for name, want, args, kw in (
            ("nobody", 1, ("show", "nobody"), {}),
            ("a path", 2, ("show", "../x"), {}),
            ("a wrong token", 1, ("list",), {"token": "x"}),
            ("a token of two lines", 2, ("list",), {"token": "a\r\nb: c"}),
            ("bad JSON", 1, ("create", "{"), {}),
            ("not the sessions", 1, ("list",),
             {"url": f"http://127.0.0.1:{d.port}/health"}),
            ("not the sessions, as JSON", 1, ("--json", "list"),
             {"url": f"http://127.0.0.1:{d.port}/health"}),
            ("a word", 2, ("fun",), {}),
            ("https", 2, ("list",), {"url": "https://127.0.0.1:1"}),
            ("no port", 2, ("list",), {"url": "http://127.0.0.1:x"}),
            ("nobody there", 2, ("list",), {"url": "unix:/nowhere"})):
        rc, out, err = ctl(d, *args, **kw)
        ok(rc == want and err and not out and ADMIN not in err,
           f"sallyportctl: {name}", (rc, err, out))
    ok("401: wrong token" in ctl(d, token="x")[2], "a wrong token is named")
    rc, out, err = ctl(d, "--token-env", "SP_NO_SUCH_VARIABLE")
    ok(rc == 1 and "401: SP_NO_SUCH_VARIABLE is not set" in err,
       "a token that is not set is named", err)


def test_stuck(d, t):
    """A recorder that does not move: nothing in the reactor waits for it."""
    s = d.create()
    pid = d.children()["sallyport-recorder"]
    os.kill(pid, signal.SIGSTOP)
    try:
        eq(code(d.ask("POST", "/sessions", {"id": "late"})),
           (504, "recorder_timeout"), "a recorder that is stuck: no session")
        eq(code(d.ask("GET", "/sessions")), (504, "recorder_timeout"),
           "nor a list")
        eq(d.ask("GET", "/v1/models", key=t["key"])[0], 200,
           "but keys are known")
        where = f"/sessions/{s['session_id']}"
        eq(code(d.ask("DELETE", where)), (504, "recorder_timeout"),
           "nor is a session ended")
        eq(d.ask("GET", "/v1/models", key=s["key"])[0], 200,
           "its key opens the door until it is")
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: d.ask("GET", "/sessions/late")[0] == 200,
          "what was asked for came late")
    eq(d.ask("GET", where)[1]["state"], "ended", "so did the end")
    eq(code(d.ask("GET", "/v1/models", key=s["key"])),
       (401, "session_closed"), "which closes the door")
    eq(d.ask("DELETE", "/sessions/late")[0], 200, "and can be ended")
    eq(d.call(t["key"])[0], 200, "calls go on")


def test_own_door(url):
    """The base URL of a door whose paths name the session."""
    for where in ("/", "/roll"):
        text = (f"upstream m {{ server {url}/v1; }}\ncapture c {{ }}\n"
                f"server {{ listen 127.0.0.1:0; location {where} {{"
                " llm_intercept; upstream m; capture c; session_path on; }\n"
                "location /sessions { sessions; token env:ADMIN; } }")
        with Door(url, text=text) as d:
            s = d.create(id="s-1")
            path = s["base_url"].split(str(d.port))[1]
            eq(path, f"{where.rstrip('/')}/s-1/v1", f"{where}: base_url")
            eq(d.call(s["key"], where=path)[0], 200, "leads to the door")


def test_conf(url):
    for text, want in (
            ("location /s { sessions; }", "expected a \"token\""),
            ("location /s { sessions; token env:ADMIN; overrides fun; }",
             "bad word \"fun\""),
            ("location /s { sessions; token env:ADMIN; door v1; }",
             "bad door \"v1\""),
            ("location /s { sessions; token env:ADMIN; capture d; }",
             "mixes sessions"),
            ("location /s { sessions; token env:ADMIN; door /nope; }",
             'door "/nope" leads to no model door'),
            ("location /s { sessions; token env:ADMIN; door /s; }",
             'door "/s" leads to no model door'),
            ("location /s { sessions; token env:ADMIN; door /v1; }\n"
             "location /v1 { llm_intercept; upstream m; capture c; }\n"
             "location /v1/x { health; }", None),
            ("location /s { sessions; token env:ADMIN; door /v1/x/y; }\n"
             "location /v1 { llm_intercept; upstream m; capture c; }\n"
             "location /v1/x { health; }", "leads to no model door")):
        path = os.path.join(TMP, "bad.conf")
        with open(path, "w") as f:
            f.write(f"upstream m {{ server {url}/v1; }}\n"
                    "capture c { }\ncapture d { trace traces/one.jsonl; }\n"
                    f"server {{ listen 127.0.0.1:0; {text} }}\n")
        r = subprocess.run([gate.program("sallyport"), "-t", "-c", path],
                           capture_output=True, text=True,
                           env={**os.environ, "ADMIN": ADMIN})
        if want is None:
            eq((r.returncode, r.stderr), (0, r.stderr), f"-t: {text}")
        else:
            ok(r.returncode != 0 and want in r.stderr
               and f"{path}:4: " in r.stderr, f"-t: {want}",
               r.stderr + r.stdout)
    for main, locations, want in (
            ("capture d { trace traces/one.jsonl; }", "",
             "or another \"capture\" here"),
            ("capture d { trace traces/one.jsonl; }\ncapture c { }",
             "capture c;", None),
            ("capture d { trace traces/one.jsonl; }\ncapture c { }",
             "overrides capture;", None),
            ("", "", "sessions without a capture")):
        path = os.path.join(TMP, "bad.conf")
        with open(path, "w") as f:
            f.write("server { listen 127.0.0.1:0; location /s { sessions;"
                    f" token env:ADMIN; {locations} }} }}\n{main}\n")
        r = subprocess.run([gate.program("sallyport"), "-t", "-c", path],
                           capture_output=True, text=True,
                           env={**os.environ, "ADMIN": ADMIN})
        if want is None:
            eq(r.returncode, 0, f"-t: {main} {locations} will do")
        else:
            ok(r.returncode != 0 and want in r.stderr
               and f"{path}:1: " in r.stderr, f"-t: {want}", r.stderr)


TMP = __import__("tempfile").mkdtemp(prefix="sp-sessions.")
with Scripted(script=SCRIPT) as model:
    with Door(model.url) as door:
        first, second = test_create(door)
        test_bad(door)
        test_words(door)
        test_keys(door, first, second)
        test_paths(door, second)
        test_overrides(door, model)
        test_budget(door)
        test_metrics(door)
        test_list(door)
        test_trace(door, second)
        test_trainable(door)
        test_redacted(door)
        test_delete(door)
        test_ctl(door)
        test_stuck(door, second)
    test_durable(model)
    test_own_door(model.url)
    test_conf(model.url)
test_closed_calls()
test_odd_status()
test_cut_key()
test_retries()
os.rmdir(TMP) if not os.listdir(TMP) else __import__("shutil").rmtree(TMP)
tap.done()

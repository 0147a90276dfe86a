#!/usr/bin/python3
"""The orchestrator's doors, on workers in real sandboxes."""
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import inside  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402
from wsock import Refused, Socket  # noqa: E402

FIXTURES = os.path.join(ROOT, "t", "fixtures", "worker")
SCRATCH = inside.scratch_beside(FIXTURES)
TOKEN = "orchestrator-token-of-this-test"
OBSERVER = "observer-token-of-this-test"
ENVIRONMENTS = {"full": 2, "one": 1, "plain": 1, "bare": 1, "broken": 1,
                "mute": 1}
DOORS = {
    "/ws": "lifecycle; environment full; grace 1h;",
    "/short": "lifecycle; environment full; grace 50ms;",
    "/shared": "lifecycle; environment one; shared on;",
    "/bare": "lifecycle; environment bare;",
    "/broken": "lifecycle; environment broken;",
    "/observe": "observe; environment full; stream harness_events; "
                "token env:SP_OBSERVER;",
    "/off": "lifecycle; environment full; allow_lifecycle off;",
    "/reset": "lifecycle_plain; environment plain;",
    "/step": "lifecycle_plain; environment plain;",
    "/state": "lifecycle_plain; environment plain;",
    "/mute/step": "lifecycle_plain; environment mute;",
    "/mcp": "mcp_agent; environment full; tools seen sum; "
            "session_timeout 10m;",
    "/brief/mcp": "mcp_agent; environment full; tools sleep; "
                  "session_timeout 1s;",
    "/one/mcp": "mcp_agent; environment one; tools sum;",
}


class Daemon(gate.Gate):
    def __init__(self, folder):
        self.socket = os.path.join(folder, "control")
        self.seed = os.path.join(folder, "seed")
        os.makedirs(self.seed)
        with open(os.path.join(self.seed, "seed"), "w",
                  encoding="utf-8") as f:
            f.write("as it was\n")
        uid = 400000 + os.getpid() % 1000 * 32768
        text = ""
        for i, (name, episodes) in enumerate(ENVIRONMENTS.items()):
            worker = f"/usr/bin/python3 {FIXTURES}/mcp.py"
            if name == "broken":
                worker += " early"
            elif name == "mute":
                worker += " mute"
            text += (
                f"environment {name} {{\n  episodes {episodes}; "
                f"workspace_size 64m; workspace {self.seed};\n"
                + ("" if name == "bare" else f"  worker stdio {worker};\n"
                   "  worker_directory /workspace;\n")
                + f"  sandbox {{ read_only {inside.HOST} {FIXTURES};\n"
                f"    read_write {SCRATCH}; memory 256m; tmp_size 64m; "
                "shm_size 16m;\n"
                f"    timeout 20s; env TMPDIR={SCRATCH}; "
                f"uid {uid + i * 4096} 4096; }} }}\n")
        text += "server { listen 127.0.0.1:0;\n"
        for path, words in DOORS.items():
            key = "" if "mcp" in words or "token" in words \
                else "token env:SP_TOKEN;"
            text += f"  location {path} {{ {words} {key} }}\n"
        super().__init__(text + "}\n", main=f"control {self.socket};\n"
                         f"access_log {folder}/access.log;",
                         env={"SP_TOKEN": TOKEN, "SP_OBSERVER": OBSERVER})
        self.access = os.path.join(folder, "access.log")

    def episodes(self, env=None):
        rc, out, _ = self.ctl("episodes", "--json")
        return [e for e in json.loads(out)["episodes"]
                if env in (None, e["environment"])] if rc == 0 else None

    def connect(self, path="/ws", token=TOKEN, **kw):
        return Socket(self.port, path, token, **kw)

    def refused(self, path, token=TOKEN, **kw):
        try:
            self.connect(path, token, **kw)
        except Refused as e:
            return e.status, e.body
        return None

    def http(self, method, path, body=None, token=TOKEN):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        c.request(method, path, body, {"Authorization": f"Bearer {token}"})
        r = c.getresponse()
        got = r.read()
        c.close()
        return r.status, json.loads(got) if got else None

    def of(self, session):
        """The episode that a session leads to."""
        ws = self.connect(f"/ws?session_id={session}")
        got = ws.ask({"type": "state"})["session_id"]
        ws.cut()
        return got

    def gone(self, env):
        return gate.until(lambda: self.episodes(env) == [],
                          f"the end of {env}'s episodes")


def reset(ws, **data):
    return ws.ask({"type": "reset", "data": data})


def step(ws, **data):
    return ws.ask({"type": "step", "data": data})


def state(ws):
    return ws.ask({"type": "state"})["data"]


def tool(ws, name, **arguments):
    return ws.ask({"type": "mcp", "data": {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": name, "arguments": arguments}}})


def observed(observation, reward=None, done=False):
    return {"type": "observation", "data": {
        "observation": observation, "reward": reward, "done": done}}


def fault(got, reason):
    """An error in the seed's shape, for that reason."""
    data = got["data"]
    return got["type"] == "error" and \
        data["message"] == "Environment operation failed" and \
        data["code"] == "execution_error" and \
        data["detail"]["reason"] == reason


# ---- handshakes -------------------------------------------------------------

def handshakes(d):
    tap.eq(d.refused("/ws", None)[0], 403, "no token")
    tap.ok(b"a bearer token is needed" in d.refused("/ws", None)[1],
           "is asked for")
    tap.eq(d.refused("/ws", TOKEN + "x")[0], 403, "a wrong one")
    tap.ok(b"not the token of this" in d.refused("/ws", TOKEN + "x")[1],
           "is told so")
    tap.eq(d.refused("/off")[0], 403, "allow_lifecycle off")
    tap.eq(d.refused("/wsx")[0], 403, "another path")
    tap.eq(d.http("GET", "/ws")[0], 426, "no WebSocket")
    tap.eq(d.http("GET", "/ws", token="x" * 20)[0], 401,
           "nor a token")
    for query, why in (("session_id=a&session_id=b", "stands there twice"),
                       ("session_id=a&%73ession_id=a", "stands there twice"),
                       ("%73ession_id=a", "no episode has that session_id")):
        ws = d.connect("/ws?" + query)
        got = json.loads(ws.receive())
        tap.ok(got["type"] == "error" and why in got["data"]["message"],
               f"?{query}", got)
        tap.eq((ws.receive(), ws.code), (None, 1000), "and closed")
    tap.eq(d.episodes("full"), [], "nothing was made for any of them")


# ---- one connection ---------------------------------------------------------

def protocol(d):
    ws = d.connect()
    tap.eq(reset(ws, seed=3), observed({"seed": 3}), "a reset")
    tap.eq([e["resets"] for e in d.episodes("full")], [0],
           "of what is fresh: its sandbox stays")
    tap.eq(step(ws, move=[1, "é"]),
           observed({"seen": {"move": [1, "é"]}}, 0.5), "a step")
    got = ws.ask({"type": "state"})
    tap.eq((got["data"], got["session_id"]),
           ({"step_count": 1, "own": True}, d.episodes("full")[0]["id"]),
           "a state, and what to attach by")
    got = tool(ws, "echo", a=1)
    tap.eq((got["type"], got["data"]["id"],
            got["data"]["result"]["content"][0]["text"]),
           ("mcp", 1, '{"a": 1}'), "a call of MCP")
    rpcs(ws)
    got = ws.ask({"type": "mcp", "data": {"jsonrpc": "2.0", "id": 9,
                                          "method": "nope"}})
    tap.eq((got["type"], got["data"]["error"]["code"]), ("mcp", -32601),
           "an error of MCP is its answer")
    got = step(ws, refuse=True)
    tap.ok(fault(got, "error") and "no such move" in
           got["data"]["detail"]["cause"], "what the worker refuses", got)
    tap.eq(step(ws, n=2)["data"]["reward"], 1.0, "and then lives on")
    tap.eq(step(ws, n=3)["data"]["done"], True, "done is passed on")
    for text in ("{", "[]", '{"type":"nothing"}', '{"data":{}}',
                 '{"type":"state","data":{}}', '{"type":"step"}'):
        got = ws.ask(text)
        tap.ok(got["type"] == "error" and
               got["data"]["code"] == "execution_error",
               f"bad: {text}", got)
    tap.eq(state(ws)["step_count"], 3, "it stays open")
    ws.send({"type": "step", "data": {"n": 4}})
    ws.send({"type": "state"})
    ws.send("nonsense")
    ws.frame(9, b"are you there")
    tap.eq([json.loads(ws.receive())["type"] for _ in range(3)],
           ["observation", "state", "error"], "many at once, in order")
    return ws


def rpcs(ws):
    """What of JSON-RPC a frame may hold, and what comes of it."""
    def ask(**data):
        got = ws.ask({"type": "mcp", "data": data})
        return got["type"], got["data"]
    kind, got = ask(jsonrpc="2.0", method="tools/call",
                    params={"name": "echo", "arguments": {"b": 2}})
    tap.eq((kind, got["id"], got["result"]["content"][0]["text"]),
           ("mcp", None, '{"b": 2}'), "without an id it is done all the same")
    for data, code in (
            ({}, -32600), ({"method": "tools/list", "id": 1}, -32600),
            ({"jsonrpc": "2.0", "id": 1}, -32600),
            ({"jsonrpc": "2.0", "id": 1, "result": {}}, -32600),
            ({"jsonrpc": "2.0", "id": 1, "method": 5}, -32600),
            ({"jsonrpc": "2.0", "id": 1, "method": "initialize",
              "params": {}}, -32601),
            ({"jsonrpc": "2.0", "id": 1, "method": "env/step",
              "params": {"n": 1}}, -32601)):
        kind, got = ask(**data)
        tap.eq((kind, got["error"]["code"], got["id"]),
               ("mcp", code, data.get("id")), f"{json.dumps(data)}")
    # ids of the worker's are not those of its clients
    for n in range(8):
        kind, got = ask(jsonrpc="2.0", method="notifications/cancelled",
                        params={"requestId": n})
        tap.eq((kind, got), ("mcp", {"jsonrpc": "2.0", "id": None,
                                     "result": {}}), "a notification")
    tap.eq(state(ws)["step_count"], 1, "the worker was told of none")


def sandboxes(d, ws):
    ep = d.episodes("full")[0]["id"]
    rc, _, err = d.ctl("exec", "--worker", "--in", ep, "--", "/bin/sh", "-c",
                       "cd /workspace; echo x >new; echo y >seed; "
                       "sleep 600 & exit 0")
    tap.ok(rc == 0, "something is written", err)
    files = json.loads(tool(ws, "where")["data"]["result"]["content"][0]
                       ["text"])["files"]
    tap.eq(files, ["new", "seed"], "the worker sees it")
    tap.eq(reset(ws, seed=4), observed({"seed": 4}), "a reset")
    got = json.loads(tool(ws, "where")["data"]["result"]["content"][0]
                     ["text"])["files"]
    tap.eq(got, ["seed"], "undoes it")
    tap.eq(state(ws)["step_count"], 0, "the worker is another one")
    tap.eq([(e["id"], e["resets"]) for e in d.episodes("full")],
           [(ep, 1)], "the episode is the same")


def failures(d, ws):
    got = tool(ws, "die")
    tap.ok(got["type"] == "mcp" and got["data"]["error"]["code"] == -32603
           and "told to die" in json.dumps(got), "a worker that ends", got)
    got = step(ws, n=1)
    tap.ok(fault(got, "worker_gone") and "told to die" in
           got["data"]["detail"]["stderr"], "nothing more is done", got)
    tap.eq(reset(ws, seed=5), observed({"seed": 5}), "until a reset")
    got = tool(ws, "noise")
    tap.ok("error" in got["data"], "one that breaks its protocol", got)
    tap.eq(reset(ws, seed=6), observed({"seed": 6}), "again")
    broken = d.connect("/broken")
    got = reset(broken)
    tap.ok(fault(got, "worker_gone") and "no licence found" in
           got["data"]["detail"]["stderr"], "one that never starts", got)
    broken.send({"type": "close"})
    tap.eq((broken.receive(), broken.code), (None, 1000), "close")
    bare = d.connect("/bare")
    tap.eq(reset(bare), observed({}), "an environment without worker")
    bare.close()


def observe(d, episode, **headers):
    """What is kept of its events."""
    c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=60)
    c.request("GET", f"/observe?episode={episode}&follow=0",
              headers={"Authorization": f"Bearer {OBSERVER}", **headers})
    got = [json.loads(x[6:]) for x in
           c.getresponse().read().decode().split("\n")
           if x.startswith("data: ")]
    c.close()
    return got


def told(d):
    """Every step and call that reached the worker is an event."""
    ws = d.connect()
    reset(ws, episode_id="told")
    step(ws, n=1)
    step(ws, refuse=True)
    d.ctl("worker", "told", "step", '{"n": 2}')
    tool(ws, "die")
    tap.ok(fault(step(ws, n=3), "worker_gone"), "a worker that is gone")
    got = [e["data"] for e in observe(d, "told")]
    tap.eq([(e["principal"], e["operation"],
             e.get("error", {}).get("code"), e["response"] is None)
            for e in got],
           [("orchestrator", "step", None, False),
            ("orchestrator", "step", "worker_error", True),
            ("operator", "step", None, False),
            ("orchestrator", "mcp", "worker_gone", True)],
           "what reached a worker is told, also what failed")
    tap.ok(got[1]["request"] == {"refuse": True} and
           "no such move" in got[1]["error"]["message"],
           "with what was asked, and why", got[1])
    ws.send({"type": "close"})
    ws.receive()
    gate.until(lambda: len(d.episodes("full")) == 1, "the end of one")


# ---- several ----------------------------------------------------------------

def several(d, ws):
    other = d.connect()
    tap.eq(reset(other, episode_id="second", seed=1),
           observed({"seed": 1}), "another episode")
    tap.ok("second" in [e["id"] for e in d.episodes("full")],
           "under the name that it was given")
    got = reset(ws, episode_id="second")
    tap.ok(fault(got, "episode_exists"), "which nobody else may have", got)
    step(other, n=1)
    tap.eq((state(other)["step_count"], state(ws)["step_count"]), (1, 0),
           "each has its own")
    third = d.connect()
    got = json.loads(third.receive())
    tap.eq((got["data"]["code"], got["data"]["active_sessions"],
            got["data"]["max_sessions"]), ("CAPACITY_REACHED", 2, 2),
           "no third")
    tap.eq((third.receive(), third.code), (None, 1000), "it is closed")
    for n in range(3):
        other.send({"type": "close"})
        tap.eq((other.receive(), other.code), (None, 1000), "close")
        other = d.connect()
        tap.eq(reset(other, seed=n), observed({"seed": n}),
               "and its place is free at once")
    other.close()
    gate.until(lambda: len(d.episodes("full")) == 1, "the end of one")


def broken_connections(d, ws):
    reset(ws, episode_id="kept")
    step(ws, n=1)
    try:
        got = json.loads(d.connect("/ws?session_id=kept").receive())
    except EOFError:
        got = None
    tap.eq(got["data"]["code"], "SESSION_ERROR", "one connection at a time")
    ws.cut()

    def attach():
        w = d.connect("/ws?session_id=kept")
        got = w.ask({"type": "state"})
        return (w, got) if got["type"] == "state" else None
    ws, got = gate.until(attach, "a connection that comes back")
    tap.eq(got["data"]["step_count"], 1, "finds what it left")
    short = d.connect("/short")
    reset(short, episode_id="short")
    short.cut()
    gate.until(lambda: "short" not in [e["id"] for e in d.episodes("full")],
               "the end of one after its grace")
    got = json.loads(d.connect("/ws?session_id=short").receive())
    tap.eq(got["data"]["code"], "SESSION_ERROR", "which is over")
    big = d.connect("/short")
    try:
        big.frame(1, b"x" * ((16 << 20) + 1))
        big.receive()
    except OSError:
        pass
    tap.ok(big.code in (1009, None), "a message too large", big.code)
    return ws


def shared(d):
    gate.until(lambda: [e for e in d.episodes("one")
                        if e["state"] == "live"], "the shared episode")
    a, b = d.connect("/shared"), d.connect("/shared")
    reset(a)
    step(a, n=1)
    step(b, n=2)
    tap.eq((state(a)["step_count"], state(b)["step_count"]), (2, 2),
           "one episode for all")
    ep = d.episodes("one")[0]
    b.close()
    tap.eq(state(a)["step_count"], 2, "which does not end with one of them")
    a.cut()
    c = d.connect("/shared")
    tap.eq((d.episodes("one")[0]["id"], state(c)["step_count"]),
           (ep["id"], 2), "nor with the last")
    c.send({"type": "close"})
    tap.eq((c.receive(), c.code), (None, 1000), "but with close")
    c = d.connect("/shared")
    tap.eq(reset(c, seed=2), observed({"seed": 2}), "and is made again")
    tap.eq(state(c)["step_count"], 0, "anew")
    c.close()


# ---- routes without state ---------------------------------------------------

def plain(d):
    tap.eq(d.http("POST", "/reset", '{"seed": 8}'),
           (200, observed({"seed": 8})["data"]), "POST /reset")
    tap.eq(d.http("POST", "/step", '{"action": {"a": 1}}'),
           (200, observed({"seen": {"a": 1}}, 0.5)["data"]), "POST /step")
    tap.eq(d.http("GET", "/state"),
           (200, {"step_count": 0, "own": True}), "GET /state")
    status, got = d.http("POST", "/step", '{"action": {"refuse": 1}}')
    tap.ok(status == 500 and got["detail"] == "Environment operation failed"
           and "no such move" in json.dumps(got), "what is refused", got)
    status, got = d.http("POST", "/step", "{}")
    tap.eq((status, got["detail"][0]["loc"]), (422, ["body", "action"]),
           "no action")
    tap.eq(d.http("GET", "/reset")[0], 405, "another method")
    status, got = d.http("GET", "/state", token="x" * 20)
    tap.ok((status, got["detail"]) == (401, "Unauthorized") and
           "is not the token of this location" in got["reason"],
           "a wrong token", got)
    d.gone("plain")


# ---- a reactor that dies ----------------------------------------------------

def crash(d, ws):
    reset(ws, episode_id="survivor")
    step(ws, n=1)
    fresh = d.connect()
    reset(fresh, episode_id="fresh")
    step(fresh, n=1)
    tap.ok("resets" not in observe(d, "fresh")[-1],
           "events of one that was never reset")
    before = d.log().count("ready: listening")
    os.kill(d.children()["sallyport-reactor"], signal.SIGKILL)
    try:
        ended = ws.receive() is None
    except (OSError, EOFError):
        ended = True
    tap.ok(ended, "the reactor is killed: connections break")

    def back():
        try:
            w = d.connect("/ws?session_id=survivor")
            got = w.ask({"type": "state"})
        except (OSError, EOFError, ValueError):
            return None
        return w, got
    ws, got = gate.until(back, "the next one")
    tap.ok(fault(got, "worker_gone"), "the episode is there, its worker is "
           "lost", (got, before))
    got = observe(d, "fresh", **{"Last-Event-ID": "0-0"})
    tap.eq([(e["seq"], e["type"], e["data"], e.get("resets"))
            for e in got[:1]],
           [(0, "gap", {"lost": None, "reason": "restart"}, 1)],
           "observers are told that what was before is lost")
    fresh = d.connect("/ws?session_id=fresh")
    fresh.send({"type": "close"})
    fresh.receive()
    tap.eq(reset(ws, seed=1), observed({"seed": 1}), "a reset mends it")
    tap.ok("survivor" in [e["id"] for e in d.episodes("full")],
           "under its name")
    gate.until(lambda: [e for e in d.episodes("one")
                        if e["state"] == "live"], "the shared one, anew")
    ws.close()
    d.gone("full")


def rpc(d, method, path="/mcp", token=TOKEN, **params):
    return d.http("POST", path, json.dumps({
        "jsonrpc": "2.0", "id": 1, "method": method, "params": params}),
        token)


def made(d, path="/mcp"):
    status, got = rpc(d, "openenv/session/create", path)
    return got["result"]["session_id"] if status == 200 else got


def openenv_sessions(d):
    """What OpenEnv's client for tools does: a session first, then a socket."""
    a, b = made(d), made(d)
    tap.eq(len(d.episodes("full")), 2, "each session is an episode")
    status, got = rpc(d, "openenv/session/create")
    tap.eq((status, got.get("error", {}).get("data", {}).get("reason")),
           (200, "at_capacity"), "and there are as many as may be")
    ws = d.connect(f"/ws?session_id={a}")
    tap.eq(reset(ws, seed=1, episode_id="mine"), observed({"seed": 1}),
           "the socket is attached to it")
    tap.eq(d.refused(f"/ws?session_id={a}", "no-such-token-is-known")[0], 403,
           "whom its id does not admit")
    for sid, what in ((a, "one"), (b, "another")):
        status, got = rpc(d, "tools/list", session_id=sid)
        tap.ok(status == 200 and "tools" in got.get("result", {}),
               f"the tools of {what}", got)
    for path in f"/mcp?session_id={b}", f"/mcp?episode={d.of(b)}":
        mcp = d.connect(path)
        got = mcp.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list",
                       "params": {"session_id": b}})
        tap.ok("tools" in got.get("result", {}),
               f"a WebSocket of MCP is of one: {path[:14]}", got)
        got = mcp.ask({"jsonrpc": "2.0", "id": 2, "method": "tools/list",
                       "params": {"session_id": a}})
        tap.eq(got["error"]["code"], -32602, "and knows no other's session")
        mcp.close()
    for query, why in ((f"{b}x", b"no session of this location"),
                       (f"{b}&session_id={b}", b"stands there twice")):
        got = d.refused(f"/mcp?session_id={query}")
        tap.ok(got and why in got[1],
               "none without a session that is there", got)
    named(d, a, b)
    tap.eq(d.refused(f"/mcp?session_id={b}", "no-such-token-is-known")[0], 403,
           "nor without the token")
    for token in ("no-such-token-is-known", ""):
        for method in ("tools/list", "openenv/session/close"):
            status, got = rpc(d, method, token=token, session_id=b)
            tap.ok(status in (400, 401), f"not without the token: {method}",
                   (status, got))
    status, got = rpc(d, "openenv/session/close", session_id=a)
    tap.eq(got["result"], {"session_id": a, "closed": False, "closing": True},
           "closed with a socket")
    tap.eq(state(ws)["step_count"], 0, "which goes on")
    ws.close()
    gate.until(lambda: len(d.episodes("full")) == 1, "the end of its episode")
    # one episode: the door is the agent's now, and its session nobody's
    for method in ("tools/list", "openenv/session/close"):
        status, got = rpc(d, method, token="", session_id=b)
        tap.eq((status, got["error"]["code"]), (200, -32602),
               f"an agent does not know it: {method}")
    mine = rpc(d, "openenv/session/create", token="")[1]["result"]["session_id"]
    ws = d.connect(f"/ws?session_id={mine}")
    tap.eq(reset(ws)["type"], "observation",
           "an agent's session leads the orchestrator to its episode")
    ws.ask({"type": "state"})
    ws.send({"type": "close"})
    ws.close()
    rpc(d, "openenv/session/close", token="", session_id=mine)
    tap.eq(len(d.episodes("full")), 1, "which ends with neither of them")
    status, got = rpc(d, "openenv/session/close", session_id=b)
    tap.eq(got["result"], {"session_id": b, "closed": True}, "closed")
    d.gone("full")
    status, got = d.http("POST", "/mcp", json.dumps({
        "jsonrpc": "2.0", "id": 1, "method": "openenv/session/create",
        "params": []}))
    tap.eq((status, got["error"]["code"], d.episodes("full")),
           (200, -32602, []), "what gets no session gets no episode")
    a = made(d, "/brief/mcp")
    status, got = rpc(d, "tools/call", "/brief/mcp", session_id=a,
                      name="sleep", arguments={"s": 2.5})
    tap.ok(status == 200 and "result" in got,
           "a call may be longer than a session may be idle", got)
    d.gone("full")
    tap.ok(True, "a session that nobody uses ends, and its episode")


def named(d, a, b):
    """A session, and an episode that is not its own."""
    other, mine = d.of(a), d.of(b)
    for query, headers in ((f"&episode={other}", ()),
                           ("", [f"X-Episode-Id: {other}"])):
        got = d.refused(f"/mcp?session_id={b}{query}", headers=headers)
        tap.ok(got and got[0] == 400 and mine.encode() in got[1] and
               other.encode() in got[1] and b"send one" in got[1],
               "a socket is of one episode", got)
    got = d.refused(f"/mcp?session_id={b}&episode=none")
    tap.ok(got and got[0] == 403 and b"no episode of that id" in got[1],
           "which is there", got)
    mcp = d.connect(f"/mcp?session_id={b}&episode={mine}",
                    headers=[f"X-Episode-Id: {mine}"])
    got = mcp.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    tap.ok("result" in got, "and may be named twice", got)
    mcp.close()


def closing(d):
    """Closed, with WebSockets of MCP alone: it is used until they leave."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    sid = made(d)
    one = d.connect(f"/mcp?session_id={sid}")
    two = d.connect(f"/mcp?episode={d.of(sid)}")
    status, got = rpc(d, "openenv/session/close", session_id=sid)
    tap.eq(got["result"], {"session_id": sid, "closed": False, "closing": True},
           "closed with sockets of MCP")
    tap.ok(all("result" in ws.ask(call) for ws in (one, two)), "which go on")
    tap.eq(rpc(d, "tools/list", session_id=sid)[1]["error"]["code"], -32602,
           "the session is none any more")
    one.close()
    tap.ok("result" in two.ask(call), "as long as there is one")
    tap.eq(len(d.episodes("full")), 1, "and so does the episode")
    two.close()
    d.gone("full")
    tap.ok(True, "which ends with the last")


def no_owner(d):
    """A session of the orchestrator's in an episode that is not its own."""
    d.ctl("episodes", "create", "full", "op")
    sid = made(d, "/mcp?episode=op")
    status, got = rpc(d, "tools/list", session_id=sid)
    tap.ok("result" in got, "a session of an operator's episode", got)
    d.ctl("end", "op")
    d.gone("full")
    rpc(d, "openenv/session/close", session_id=made(d))
    status, got = rpc(d, "tools/list", session_id=sid)
    tap.eq(got["error"]["code"], -32602, "goes with it")
    d.gone("full")


def renamed(d):
    """An episode was ended, and somebody else has its name since."""
    first, second = d.connect(), d.connect()
    reset(first, episode_id="same")
    step(first, n=1)
    d.ctl("end", "same")
    gate.until(lambda: len(d.episodes("full")) == 1, "its end")
    reset(second, episode_id="same")
    got = reset(first, episode_id="same")
    tap.ok(fault(got, "episode_exists") and "somebody is connected" in
           got["data"]["detail"]["cause"], "who asks for it is told", got)
    tap.eq(reset(first, seed=5), observed({"seed": 5}),
           "who asks for none has another")
    ids = [e["id"] for e in d.episodes("full")]
    mine = first.ask({"type": "state"})["session_id"]
    tap.ok(mine in ids and mine != "same" and "same" in ids,
           "with a name of its own", (mine, ids))
    tap.eq(state(second)["own"], True, "the other is as it was")
    for ws in first, second:
        ws.send({"type": "close"})
        ws.receive()
    d.gone("full")


def shared_session(d):
    sid = made(d, "/one/mcp")
    ws = d.connect(f"/shared?session_id={sid}")
    tap.eq(reset(ws)["type"], "observation", "a session of the shared one")
    ws.send({"type": "close"})
    ws.close()
    gate.until(lambda: "result" in rpc(d, "tools/list", "/one/mcp",
                                       session_id=sid)[1],
               "the session in the one that replaced it")
    tap.ok(True, "goes on in the one that takes its place")


def rows(d):
    with open(d.access, encoding="utf-8") as f:
        return [json.loads(x) for x in f.read().splitlines()]


def leaves(d):
    """Who does not wait for the answer to a request without state."""
    s = gate.Gate.connect(d)
    s.sendall(gate.request({"action": {"a": 1}}, "/mute/step",
                           [("Authorization", f"Bearer {TOKEN}")]))
    gate.until(lambda: d.episodes("mute"), "its episode")
    s.close()
    gate.until(lambda: any(x.get("door") == "lifecycle_plain" and
                           x["operation"] == "step" and
                           x["outcome"] == "client_gone" for x in rows(d)),
               "a line of an operation whose client is gone")
    tap.ok(True, "an operation whose client is gone has a line")
    d.gone("mute")


def logged(d):
    lines = rows(d)
    tap.ok(any(x.get("operation") == "open" and
               x["outcome"] == "unknown_session" for x in lines) and
           any(x.get("path") == "/ws" and x["outcome"] == "unknown_session"
               for x in lines), "a session_id that nobody has is in the log")
    tap.eq({x["principal"] for x in lines if x.get("path") == "/mcp" and
            (x["conn"], x["request"]) in [
                (y["conn"], y["request"]) for y in lines
                if y.get("operation") == "openenv/session/create" and
                y["principal"] == "orchestrator"]}, {"orchestrator"},
           "a request and its operation have one principal")
    ops = {(x.get("operation"), x["outcome"]) for x in lines
           if x.get("principal") == "orchestrator" and "operation" in x}
    tap.ok({("reset", "ok"), ("step", "error"), ("close", "ok"),
            ("mcp", "ok"), ("mcp", "error"), ("frame", "malformed"),
            ("step", "malformed")} <= ops,
           "each operation is a line of the log",
           ops)


walls.needed()
with tempfile.TemporaryDirectory() as tmp:
    os.chmod(tmp, 0o755)
    with Daemon(tmp) as daemon:
        handshakes(daemon)
        conn = protocol(daemon)
        sandboxes(daemon, conn)
        failures(daemon, conn)
        told(daemon)
        several(daemon, conn)
        conn = broken_connections(daemon, conn)
        shared(daemon)
        shared_session(daemon)
        plain(daemon)
        crash(daemon, conn)
        openenv_sessions(daemon)
        closing(daemon)
        no_owner(daemon)
        renamed(daemon)
        leaves(daemon)
        logged(daemon)
tap.done()

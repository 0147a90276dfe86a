#!/usr/bin/python3
"""What all doors have in common: bounds, counts, keys, lines of the log."""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import inside  # noqa: E402
import mcp  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402
from mcp import Client, rpc  # noqa: E402
from wsock import Refused, Socket  # noqa: E402

FIXTURES = os.path.join(ROOT, "t", "fixtures", "worker")
SCRATCH = inside.scratch_beside(FIXTURES)
MARK = f"never-in-a-line-{os.getpid()}"  # of arguments, contents, tokens
TOKENS = {w: f"{w.lower()}-{MARK}" for w in ("ORCH", "GRADER", "OBS", "ADMIN")}
DOORS = {
    "/ws": "lifecycle; token env:ORCH;",
    "/slow": "lifecycle; token env:ORCH; max_calls_per_second 1;",
    "/reset": "lifecycle_plain; token env:ORCH;",
    "/step": "lifecycle_plain; token env:ORCH;",
    "/state": "lifecycle_plain; token env:ORCH;",
    "/mcp": "mcp_agent; tools echo; sockets 2;",
    "/rated": "mcp_agent; tools echo; max_calls_per_second 1;",
    "/mcp/grader": "mcp_grader; token env:GRADER; tools echo grader.*; "
                   "fs_read /workspace/**; privileged_exec on;",
    "/observe": "observe; token env:OBS; stream harness_events; sockets 1;",
}


class Daemon(mcp.Gate):
    def __init__(self, folder):
        self.socket = os.path.join(folder, "control")
        self.access = os.path.join(folder, "access")
        uid = 400000 + os.getpid() % 1000 * 32768
        text = (f"environment box {{ episodes 3; workspace_size 64m;\n"
                f"  worker stdio /usr/bin/python3 {FIXTURES}/mcp.py;\n"
                f"  sandbox {{ read_only {inside.HOST} {FIXTURES};\n"
                f"    read_write {SCRATCH}; memory 256m; tmp_size 64m;\n"
                f"    shm_size 16m; timeout 20s; env TMPDIR={SCRATCH};\n"
                f"    uid {uid} 4096; }} }}\n"
                "upstream none { server http://127.0.0.1:9; }\n"
                "capture all { level text; }\n"
                "server { listen 127.0.0.1:0;\n"
                "  location /status { status; }\n"
                "  location /v1 { llm_intercept; upstream none; capture all;\n"
                "    keys session; }\n"
                "  location /sessions { sessions; token env:ADMIN; }\n")
        for path, words in DOORS.items():
            text += f"  location {path} {{ {words} environment box; }}\n"
        super().__init__(
            text + "}\n",
            main=f"control {self.socket}; access_log {self.access};",
            env=TOKENS)

    def ctl(self, *args):
        return subprocess.run(
            [gate.program("sallyportctl"), "-S", self.socket, *args],
            capture_output=True, check=False, timeout=120)

    def lines(self):
        with open(self.access, encoding="utf-8") as f:
            return f.read()

    def status(self):
        return self.ask("GET", "/status")[2].decode()


def bearer(who):
    return {"Authorization": "Bearer " + TOKENS[who]}


def refused(d, path, who=None, headers=()):
    try:
        Socket(d.port, path, TOKENS.get(who), headers)
    except Refused as e:
        return e
    return None


def until_refused(once, so):
    """A bound on a rate is met by going on and on."""
    for _ in range(1000):
        got = once()
        if so(got):
            return got
    return got


# ---- one of each operation ---------------------------------------------------

def orchestrate(d):
    ws = Socket(d.port, "/ws?x=" + MARK, TOKENS["ORCH"])
    ws.ask({"type": "reset", "data": {"episode_id": "one", "seed": MARK}})
    ws.ask({"type": "step", "data": {"action": MARK}})
    ws.ask({"type": "state"})
    ws.ask({"type": "mcp", "data": json.loads(
        rpc(1, "tools/call", name="echo", arguments={"a": MARK}))})
    ws.ask({"type": MARK})
    return ws


def plain(d):
    for method, path, body in (
            ("POST", "/reset", {"seed": MARK}),
            ("POST", "/step", {"action": {"a": MARK}}),
            ("GET", "/state", None)):
        d.ask(method, path, json.dumps(body) if body else None,
              **bearer("ORCH"))


def talk(d, path, **auth):
    c = Client(d, path, **auth)
    for text in (rpc(1, "ping", a=MARK),
                 rpc(2, "tools/list", cursor=MARK),
                 rpc(3, "tools/call", name="echo", arguments={"a": MARK}),
                 rpc(4, "tools/call", name="hidden", arguments={"a": MARK}),
                 rpc(5, "x/" + MARK, a=MARK)):
        c.post(text)
    one = d.ask("POST", path, rpc(1, "openenv/session/create", x=MARK),
                **auth)[2]
    handle = json.loads(one)["result"]["session_id"]
    d.ask("POST", path, rpc(1, "openenv/session/close", session_id=handle),
          **auth)
    d.ask("POST", path, "{" + MARK, **auth)


def grade(d):
    for tool, args in (("read_file", {"path": "/workspace/" + MARK}),
                       ("fs_diff", {}), ("get_full_state", {}),
                       ("get_trajectory", {}), ("run_oracle", {}),
                       ("run_process", {"name": MARK})):
        d.ask("POST", "/mcp/grader", rpc(
            1, "tools/call", name="grader." + tool, arguments=args),
            **bearer("GRADER"))


def observe(d):
    ws = Socket(d.port, "/observe?since=0&x=" + MARK, TOKENS["OBS"])
    tap.ok(MARK.encode() in ws.receive(), "an observer sees what happened")
    e = refused(d, "/observe", "OBS")
    tap.ok(e is not None and e.status == 429 and "Retry-After: 1" in e.head,
           "a second one is over sockets", e)
    text = d.status()
    tap.ok('sallyport_door_sockets{principal="observer"} 1\n' in text and
           'sallyport_door_sockets{principal="orchestrator"} 1\n' in text,
           "open ones are counted by principal", text)
    ws.close()
    return ws


TABLE = [
    ("orchestrator", "lifecycle", "open", None, "ok"),
    ("orchestrator", "lifecycle", "reset", None, "ok"),
    ("orchestrator", "lifecycle", "step", None, None),
    ("orchestrator", "lifecycle", "state", None, "ok"),
    ("orchestrator", "lifecycle", "mcp", "echo", "ok"),
    ("orchestrator", "lifecycle", "frame", None, "malformed"),
    ("orchestrator", "lifecycle", "close", None, "ok"),
    ("orchestrator", "lifecycle", "state", None, "limited"),
    ("orchestrator", "lifecycle_plain", "reset", None, "ok"),
    ("orchestrator", "lifecycle_plain", "step", None, None),
    ("orchestrator", "lifecycle_plain", "state", None, "ok"),
    ("agent", "mcp_agent", "tools/call", "hidden", "denied"),
    ("agent", "mcp_agent", "tools/call", None, "limited"),
    ("grader", "mcp_grader", "tools/call", "grader.read_file", None),
    ("grader", "mcp_grader", "tools/call", "grader.fs_diff", "ok"),
    ("grader", "mcp_grader", "tools/call", "grader.get_full_state", None),
    ("grader", "mcp_grader", "tools/call", "grader.get_trajectory", None),
    ("grader", "mcp_grader", "tools/call", "grader.run_oracle", None),
    ("grader", "mcp_grader", "tools/call", "grader.run_process", None),
    ("observer", "observe", "attach", None, "ok"),
    ("observer", "observe", "attach", None, "limited"),
    ("observer", "observe", "detach", None, None),
] + [(who, door, *row) for who, door in (("agent", "mcp_agent"),
                                         ("grader", "mcp_grader"))
     for row in (("initialize", None, "ok"),
                 ("ping", None, "ok"),
                 ("tools/list", None, "ok"),
                 ("tools/call", "echo", "ok"),
                 ("other", None, "malformed"),
                 ("openenv/session/create", None, "ok"),
                 ("openenv/session/close", None, "ok"),
                 ("invalid", None, "malformed"))]
FIELDS = ["time", "listener", "peer", "conn", "request", "principal", "door",
          "episode", "operation", "tool", "outcome", "duration_ms"]


def logged(d):
    def found(row):
        return next((x for x in map(json.loads, d.lines().splitlines())
                     if "operation" in x and all(
                         want is None or x[key] == want for key, want in zip(
                             ("principal", "door", "operation", "tool",
                              "outcome"), row))), None)

    for row in TABLE:
        x = gate.until(lambda r=row: found(r), f"a line of {row}")
        tap.ok(list(x) == FIELDS and x["episode"] and x["duration_ms"] >= 0,
               " ".join(w or "-" for w in row), x)
    text = d.lines()
    tap.ok(MARK not in text, "no argument, content or token is in any line",
           [x for x in text.splitlines() if MARK in x])
    text = d.status()
    tap.ok(MARK not in text, "nor in /status")
    for who, reason in (("observer", "sockets"), ("agent", "rate"),
                        ("orchestrator", "rate")):
        tap.ok(f'sallyport_operations_refused_total{{principal="{who}",'
               f'reason="{reason}"}}' in text,
               f"what was refused of an {who}, by reason", text)
    gate.until(lambda: not [x for x in d.status().splitlines() if x.startswith(
        "sallyport_operations_in_flight") and not x.endswith(" 0")],
               "all operations are over")


# ---- bounds ------------------------------------------------------------------

def rates(d):
    status, head, body = until_refused(
        lambda: d.ask("POST", "/rated", rpc(1, "ping")), lambda r: r[0] != 200)
    tap.eq((status, head["Retry-After"], head["Content-Type"],
            json.loads(body)["error"]["code"]),
           (429, "1", "application/json", -32000),
           "one too many: HTTP's status, JSON-RPC's error")
    # the handshake is one, too: from a second of rest on
    ws = gate.until(lambda: connect(d, "/rated"),
                    "a socket at a door with a rate")
    call = json.loads(rpc(9, "tools/call", name="echo", arguments={"a": MARK}))
    got = until_refused(lambda: ws.ask(call),
                        lambda g: g["error"]["code"] == -32000
                        if "error" in g else False)
    tap.ok(got["id"] == 9 and "max_calls_per_second" in
           got["error"]["message"], "over a WebSocket an error", got)
    ws.frame(9, b"")
    tap.ok(ws.code is None, "which stays open")
    ws.close()


def connect(d, path, who=None):
    try:
        return Socket(d.port, path, TOKENS.get(who))
    except Refused as e:
        if e.status != 429:
            raise
        return None


def rates_of_orchestrators(d):
    ws = gate.until(lambda: connect(d, "/slow", "ORCH"), "a slow socket")
    got = until_refused(
        lambda: ws.ask({"type": "state"}), lambda g: g["type"] == "error" and
        g["data"]["code"] == "TOO_MANY_CALLS")
    tap.ok("max_calls_per_second" in got["data"]["message"],
           "an error frame", got)
    gate.until(lambda: ws.ask({"type": "state"})["type"] == "state",
               "the socket stays open, and its turn comes")
    ws.close()


def sockets(d):
    two = [Socket(d.port, "/mcp") for _ in range(2)]
    e = refused(d, "/mcp")
    tap.eq(e and e.status, 429, "one WebSocket too many")
    tap.eq(d.ask("POST", "/mcp", rpc(1, "ping"))[0], 200,
           "requests are counted apart")
    for ws in two:
        ws.close()
    gate.until(lambda: not refused(d, "/mcp"), "and there is room again")


# ---- keys --------------------------------------------------------------------

def keys(d):
    def key(name):
        got = d.ask("POST", "/sessions", json.dumps({"session_id": name}),
                    Content_Type="application/json", **bearer("ADMIN"))
        return json.loads(got[2])

    tap.eq(d.ctl("episodes", "create", "box", "two").returncode, 0,
           "a second episode")
    one = key("one")
    secret = one.get("api_key") or one.get("key")
    tap.ok(bool(secret), "a session of an episode's name has a key", one)
    call = rpc(1, "tools/call", name="echo", arguments={})
    tap.eq(d.ask("POST", "/mcp", call, X_Episode_Id="one")[0], 401,
           "an id alone does not authorise")
    tap.eq(d.ask("POST", "/mcp", call, Authorization="Bearer wrong")[0], 401,
           "nor does what is no key")
    auth = {"Authorization": "Bearer " + secret}
    tap.eq(d.ask("POST", "/mcp", call, **auth)[0], 200, "its key does")
    tap.eq(d.ask("POST", "/mcp", call, X_Episode_Id="one", **auth)[0], 200,
           "and both")
    tap.eq(d.ask("POST", "/mcp", call, X_Episode_Id="two", **auth)[0], 400,
           "but not another's id")
    seen = [x["episode"] for x in map(json.loads, d.lines().splitlines())
            if x.get("operation") == "tools/call"]
    tap.eq(seen[-1], "one", "its own episode is meant")
    tap.ok(secret not in d.lines(), "the key is in no line")
    d.ask("DELETE", "/sessions/one", **bearer("ADMIN"))
    tap.eq(d.ask("POST", "/mcp", call, **auth)[0], 401,
           "the session's end is the key's")
    d.ctl("end", "two")


def main():
    walls.needed()
    with tempfile.TemporaryDirectory(prefix="sp-doors-") as folder, \
            Daemon(folder) as d:
        ws = orchestrate(d)
        talk(d, "/mcp")
        talk(d, "/mcp/grader", **bearer("GRADER"))
        grade(d)
        observe(d)
        rates(d)
        sockets(d)
        keys(d)
        ws.ask({"type": "close"})
        plain(d)
        rates_of_orchestrators(d)
        logged(d)
    tap.done()


main()

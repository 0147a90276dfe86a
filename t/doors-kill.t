#!/usr/bin/python3
"""
kill -9 of a worker, a keeper, the reactor, the recorder and the helper in
every phase of an episode: whoever waits is told, the next reset (after the
helper's death: the next start) works, and nothing is left.

A phase is a generator.  It brings an episode into the phase and yields; it is
sent the victim that was killed, checks what its client sees, and yields; then
it is sent the victim again and mends: a reset, after which a step works.
"""
import http.client
import json
import os
import re
import signal
import socket
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
import upstream  # noqa: E402
import walls  # noqa: E402
from wsock import Refused, Socket  # noqa: E402

FIXTURES = os.path.join(ROOT, "t", "fixtures", "worker")
TOKENS = {p: f"{p}-token-0123456789" for p in
          ("ORCHESTRATOR", "AGENT", "GRADER", "OBSERVER")}
# who is killed; the last three are of all episodes
WORKER, KEEPER, FRESH, ORACLE = "worker", "keeper", "fresh", "oracle"
RECORDER, REACTOR, HELPER = "recorder", "reactor", "helper"
ENDED = "ended"  # of a connection


class Daemon(mcp.Gate):
    def __init__(self, folder):
        self.socket = os.path.join(folder, "control")
        self.folder = folder
        self.fifos = os.path.join(folder, "fifos")
        self.seed = os.path.join(folder, "seed")
        assets = os.path.join(folder, "private")
        for path, mode in ((self.fifos, 0o755), (self.seed, 0o755),
                           (assets, 0o700)):
            os.mkdir(path, mode)
        with open(f"{assets}/oracle.py", "w", encoding="utf-8") as f:
            f.write("#!/usr/bin/python3\nimport ctypes, signal\n"
                    "ctypes.CDLL(None).prctl(15, b'at-oracle', 0, 0, 0)\n"
                    "signal.pause()\n")
        os.chmod(f"{assets}/oracle.py", 0o700)
        self.model = upstream.Raw()
        scratch = inside.scratch_beside(FIXTURES, self.fifos)
        self.first = 400000 + os.getpid() % 1000 * 32768
        text = f"upstream u {{ server {self.model.url}/v1; }}\n" \
            "capture c { level tokens; trace traces/$session.jsonl; }\n"
        for i, (name, words) in enumerate((
                ("held", "episodes 24; "
                 f"assets {assets} {{ oracle oracle.py; }}"),
                ("one", "episodes 1;"), ("pool", "episodes 1; warm 1;"))):
            text += (
                f"environment {name} {{ {words} workspace {self.seed};\n"
                f"  workspace_size 8m; worker_start_timeout 300s;\n"
                f"  worker stdio /usr/bin/python3 {FIXTURES}/held.py "
                f"{self.fifos}{' start' if i == 0 else ''};\n"
                f"  sandbox {{ read_only {inside.HOST} {FIXTURES} "
                f"{self.fifos};\n    read_write {scratch}; memory 64m; "
                f"tmp_size 8m; shm_size 8m;\n    timeout 300s; "
                f"env TMPDIR={scratch}; uid {self.first + i * 4096} 4096; }}\n"
                "  inside 127.0.0.1:7000 { location /v1 { llm_intercept;\n"
                "    upstream u; capture c; keys open; } } }\n")
        text += "server { listen 127.0.0.1:0; location /health { health; }\n"
        for path, words in (
                ("/ws", "lifecycle; environment held; grace 1h;"
                 " token env:ORCHESTRATOR;"),
                ("/shared", "lifecycle; environment one; shared on;"
                 " token env:ORCHESTRATOR;"),
                ("/pool", "lifecycle; environment pool;"
                 " token env:ORCHESTRATOR;"),
                ("/mcp", "mcp_agent; environment held; tools echo;"
                 " token env:AGENT;"),
                ("/mcp/grader", "mcp_grader; environment held; token "
                 "env:GRADER; tools * grader.*; fs_read /workspace/**;"
                 " privileged_exec on;"),
                ("/observe", "observe; environment held; token env:OBSERVER;"
                 " stream harness_events process;")):
            text += f"  location {path} {{ {words} }}\n"
        super().__init__(text + "}\n", main=f"control {self.socket};",
                         env=TOKENS)

    # ---- processes -----------------------------------------------------------
    def uids(self, env=None):
        """Processes of the sandboxes; of that environment's."""
        out = []
        first, n = (self.first, 3) if env is None else \
            (self.first + env * 4096, 1)
        for p in filter(str.isdigit, os.listdir("/proc")):
            try:
                # the dead have a name, but are nobody's
                if first <= os.stat(f"/proc/{p}").st_uid < \
                        first + n * 4096 and status(p)[0] != "Z":
                    out.append(int(p))
            except OSError:
                pass
        return out

    def named(self, comm):
        """The process in a sandbox that calls itself so."""
        def look():
            for p in self.uids():
                if words(p, "comm").strip() == comm:
                    return p
            return None
        return gate.until(look, f"a process {comm}")

    def keepers(self):
        return {p for p in map(int, filter(str.isdigit, os.listdir("/proc")))
                if parent(p) == self.p.pid and
                words(p, "comm").strip() == "sallyport-init"}

    def quiet_keepers(self):
        """Keepers, when none is being started."""
        gate.until(lambda: walls.spares_are_back(self.p.pid), "spares")
        return self.keepers()

    def keeper(self, pid):
        while parent(pid) != self.p.pid and pid:
            pid = parent(pid)
        return pid

    def fresh(self, before):
        """A keeper that was not there."""
        return gate.until(
            lambda: next((p for p in self.keepers() - before
                          if walls.children(p)), None), "a keeper")

    def let_go(self, tag):
        """Whoever waits at that FIFO goes on."""
        def opens():
            try:
                return os.open(os.path.join(self.fifos, tag),
                               os.O_WRONLY | os.O_NONBLOCK) + 1
            except OSError:
                return None
        os.close(gate.until(opens, f"who waits at {tag}") - 1)

    # ---- clients -------------------------------------------------------------
    def warm(self, env):
        """How many are ready, as the reactor knows."""
        rc, out, _ = self.ctl("status", "--json")
        return json.loads(out)[f'sallyport_episodes{{environment="{env}",'
                               'state="warm"}'] if rc == 0 else None

    def episodes(self, id_=None):
        """As they are listed; of that id."""
        rc, out, _ = self.ctl("episodes", "--json")
        return [e for e in json.loads(out)["episodes"]
                if id_ in (None, e["id"])] if rc == 0 else None

    def settled(self):
        """The shared episode and the warm one have their two keepers each."""
        return len(self.keepers()) == 4 and self.uids(2) and \
            "live" in self.states()

    def states(self):
        return [e["state"] for e in self.episodes() or ()]

    def connect(self, path="/ws"):
        return Socket(self.port, path, TOKENS["ORCHESTRATOR"])

    def again(self, path="/ws"):
        """A connection, as soon as there is a reactor."""
        def tries():
            try:
                return self.connect(path)
            except (OSError, EOFError, Refused):
                return None
        return gate.until(tries, "a connection")

    def post(self, tag, method, path="/mcp", token="AGENT", **params):
        """A call in the plain dialect; its reply is read later."""
        return Later(self, tag, path, mcp.rpc(1, method, **params), token)


def words(pid, what):
    try:
        with open(f"/proc/{pid}/{what}", encoding="utf-8",
                  errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def status(pid):
    """From its state on; Z: it is not there, or dead."""
    text = words(pid, "stat")
    return text.rsplit(")", 1)[1].split() if text else ["Z", "0"]


def parent(pid):
    return int(status(pid)[1])


class Later:
    """An HTTP request; got(): (status, body), or ENDED."""

    def __init__(self, d, tag, path, body, token, **fields):
        self.c = http.client.HTTPConnection("127.0.0.1", d.port,
                                            timeout=gate.PATIENCE)
        self.c.request("POST" if body else "GET", path, body, {
            "Authorization": f"Bearer {TOKENS[token]}", "X-Episode-Id": tag,
            **{k.replace("_", "-"): v for k, v in fields.items()}})
        self.r = None

    def head(self):
        self.r = self.c.getresponse()
        return self.r

    def got(self):
        try:
            r = self.r or self.head()
            return r.status, r.read().decode()
        except (ConnectionError, http.client.HTTPException) as e:
            return ENDED, repr(e)
        finally:
            self.c.close()


def heard(ws):
    """The next message of a WebSocket; ENDED; or ("closed", code)."""
    try:
        got = ws.receive()
    except (EOFError, ConnectionError):
        return ENDED
    except TimeoutError:
        return "nothing"
    return ("closed", ws.code) if got is None else json.loads(got)


def is_error(got):
    return isinstance(got, dict) and (
        got.get("type") == "error" or "error" in got.get("data", {}))


def begin(d, tag):
    """A connection, and its episode, whose worker is called is-TAG."""
    ws = d.connect()
    got = ws.ask({"type": "reset", "data": {"episode_id": tag, "name": tag}})
    if got["type"] != "observation":
        raise RuntimeError(f"no reset: {got}")
    return ws


def told(row, ws, victim, answered=False):
    """The orchestrator has asked for something."""
    got = heard(ws)
    if victim in (REACTOR, HELPER):
        tap.ok(got == ENDED, f"{row}: the connection ends", got)
    elif answered:
        tap.ok(isinstance(got, dict) and not is_error(got),
               f"{row}: it is answered", got)
    else:
        tap.ok(is_error(got), f"{row}: an error is told", got)


def works(row, ws, tag):
    ws.send({"type": "reset", "data": {"name": tag}})
    got = heard(ws)
    tap.ok(got == {"type": "observation", "data": {
        "observation": {"name": f"is-{tag}"}, "reward": None, "done": False}},
           f"{row}: the next reset works", got)
    if isinstance(got, dict):
        ws.send({"type": "step", "data": {}})
        got = heard(ws)
        tap.ok(isinstance(got, dict) and got["type"] == "observation",
               f"{row}: and a step", got)


def mend(d, row, ws, tag, victim, attach=True):
    """The next reset, on the same connection or on the next one."""
    if victim == REACTOR and attach:
        ws = d.again(f"/ws?session_id={tag}")
        ws.send({"type": "step", "data": {}})
        got = heard(ws)
        tap.ok(is_error(got) and
               got["data"].get("detail", {}).get("reason") == "worker_gone",
               f"{row}: its episode waited", got)
    elif victim in (REACTOR, HELPER) or ws.code is not None:
        ws = d.again()
    works(row, ws, tag)
    ws.close()


# ---- phases -----------------------------------------------------------------
def victim_of(d, tag):
    """Whom it may be, by the name of the worker."""
    return {WORKER: lambda: d.named(tag),
            KEEPER: lambda: d.keeper(d.named(tag))}


def connecting(d, row, tag):
    """Half a handshake."""
    s = socket.create_connection(("127.0.0.1", d.port), gate.PATIENCE)
    s.sendall(b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: webso")
    victim = yield {}
    if victim == RECORDER:
        tap.ok(True, f"{row}: it is nobody's matter")
    else:
        try:
            got = s.recv(1000)
        except ConnectionError:
            got = b""
        tap.eq(got, b"", f"{row}: the connection ends")
    s.close()
    yield
    mend(d, row, d.again(), tag, RECORDER)


def creating(d, row, tag):
    """Both keepers that are to keep it are stopped before they hear of it."""
    gate.until(lambda: d.settled() and walls.spares_are_back(d.p.pid),
               "the shared episode, a warm one and spares")
    both = [p for p, name in walls.children(d.p.pid).items()
            if name == "sallyport-spare"]
    for pid in both:
        os.kill(pid, signal.SIGSTOP)
    ws = d.connect()
    ws.send({"type": "reset", "data": {"episode_id": tag, "name": tag}})
    gate.until(lambda: "creating" in d.states(), "its being made")
    victim = yield {KEEPER: lambda: both[0]}
    for pid in both:
        resume(pid)
    if victim == KEEPER:
        got = heard(ws)
        tap.ok(is_error(got) and got["data"]["code"] == "FACTORY_ERROR",
               f"{row}: an error is told", got)
        tap.eq(heard(ws), ("closed", 1000), f"{row}: and it is closed")
    else:
        told(row, ws, victim, answered=True)
    yield
    mend(d, row, ws, tag, victim, attach=False)


def resume(pid):
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass


def starting(d, row, tag):
    """The worker has been started, and is not ready."""
    path = os.path.join(d.fifos, "start")
    os.mkfifo(path)
    ws = d.connect()
    ws.send({"type": "reset", "data": {"episode_id": tag, "name": tag}})
    agent = None
    try:
        pid = d.named("at-start")
        # an agent's client that comes now waits as well
        agent = d.post(tag, "tools/list")
        os.rename(path, path + "ed")
        victim = yield victim_of(d, "at-start")
        if victim == RECORDER:
            d.let_go("started")
    finally:
        for p in (path, path + "ed"):
            if os.path.exists(p):
                os.unlink(p)
    told(row, ws, victim, answered=victim == RECORDER)
    agent_told(row, agent, victim)
    yield
    mend(d, row, ws, tag, victim)


def agent_told(row, call, victim):
    got = call.got()
    if victim in (REACTOR, HELPER):
        tap.ok(got[0] == ENDED, f"{row}: the agent's connection ends", got)
    elif victim == RECORDER:
        tap.ok(got[0] == 200 and "result" in json.loads(got[1]),
               f"{row}: the agent is answered", got)
    else:
        tap.ok(got[0] == 200 and "error" in json.loads(got[1]),
               f"{row}: the agent is told an error", got)


def resetting(d, row, tag):
    """A sandbox takes the place of another, whose keeper is stopped."""
    ws = begin(d, tag)
    old = d.keeper(d.named(f"is-{tag}"))
    before = d.quiet_keepers()
    os.kill(old, signal.SIGSTOP)
    ws.send({"type": "reset", "data": {"name": tag}})
    new = d.fresh(before)
    agent = d.post(tag, "tools/call", name="echo")
    victim = yield {KEEPER: lambda: old, FRESH: lambda: new}
    resume(old)
    told(row, ws, victim, answered=victim in (RECORDER, KEEPER))
    got = agent.got()
    tap.ok(got[0] in (200, ENDED), f"{row}: the agent is answered", got)
    yield
    mend(d, row, ws, tag, victim)


def worker_resets(d, row, tag):
    """The worker's own reset is outstanding."""
    ws = begin(d, tag)
    os.mkfifo(os.path.join(d.fifos, tag))
    ws.send({"type": "reset", "data": {"name": tag, "hold": tag}})
    yield from outstanding(d, row, tag, ws)


def stepping(d, row, tag):
    ws = begin(d, tag)
    os.mkfifo(os.path.join(d.fifos, tag))
    ws.send({"type": "step", "data": {"hold": tag}})
    yield from outstanding(d, row, tag, ws)


def outstanding(d, row, tag, ws):
    d.named(f"at-{tag}")
    # calls that wait behind it
    ws.send({"type": "state"})
    agent = d.post(tag, "tools/list")
    victim = yield victim_of(d, f"at-{tag}")
    if victim == RECORDER:
        d.let_go(tag)
    os.unlink(os.path.join(d.fifos, tag))
    told(row, ws, victim, answered=victim == RECORDER)
    if victim not in (REACTOR, HELPER):
        told(f"{row}, behind it", ws, victim, answered=victim == RECORDER)
    agent_told(row, agent, victim)
    yield
    mend(d, row, ws, tag, victim)


def frozen(d, row, tag):
    """The same, and the episode is frozen."""
    ws = begin(d, tag)
    ws.send({"type": "step", "data": {"hold": tag}})
    d.named(f"at-{tag}")
    rc, _, err = d.ctl("freeze", tag)
    tap.ok(rc == 0, f"{row}: it freezes", err)
    victim = yield victim_of(d, f"at-{tag}")
    if victim != RECORDER:
        told(row, ws, victim)
    yield
    if victim == RECORDER:
        ws.close()
        ws = d.connect()
    mend(d, row, ws, tag, victim)


def tool_post(d, row, tag):
    ws = begin(d, tag)
    os.mkfifo(os.path.join(d.fifos, tag))
    agent = d.post(tag, "tools/call", name="echo", arguments={"hold": tag})
    d.named(f"at-{tag}")
    victim = yield victim_of(d, f"at-{tag}")
    if victim == RECORDER:
        d.let_go(tag)
    os.unlink(os.path.join(d.fifos, tag))
    agent_told(row, agent, victim)
    yield
    mend(d, row, ws, tag, victim)


class Spec:
    """A client of the specification: a session, and its stream."""

    def __init__(self, d, tag):
        self.d, self.tag = d, tag
        hello = self.post(mcp.rpc(0, "initialize",
                                  protocolVersion="2025-11-25",
                                  capabilities={}, clientInfo={
                                      "name": "t", "version": "1"}))
        r = hello.head()
        self.status, self.id = r.status, r.headers.get("Mcp-Session-Id")
        hello.got()

    def post(self, body, **fields):
        return Later(self.d, self.tag, "/mcp", body, "AGENT",
                     Accept=mcp.BOTH, Content_Type=mcp.JSON, **fields)

    def send(self, body):
        return self.post(body, Mcp_Session_Id=self.id)

    def stream(self):
        return Later(self.d, self.tag, "/mcp", None, "AGENT",
                     Accept="text/event-stream", Mcp_Session_Id=self.id)


def tool_sse(d, row, tag):
    ws = begin(d, tag)
    os.mkfifo(os.path.join(d.fifos, tag))
    spec = Spec(d, tag)
    stream = spec.stream()
    stream.head()
    call = spec.send(mcp.rpc("c", "tools/call", name="echo",
                             arguments={"hold": tag},
                             _meta={"progressToken": "p"}))
    tap.ok(b"progress" in mcp.event(call.head()), f"{row}: a stream")
    d.named(f"at-{tag}")
    victim = yield victim_of(d, f"at-{tag}")
    if victim == RECORDER:
        d.let_go(tag)
    os.unlink(os.path.join(d.fifos, tag))
    got = call.got()
    if victim in (REACTOR, HELPER):
        tap.eq(got[0], ENDED, f"{row}: the stream is cut")
    else:
        want = '"result"' if victim == RECORDER else '"error"'
        tap.ok(got[0] == 200 and want in got[1], f"{row}: {want} is the last "
               "event", got)
    if victim in (KEEPER, REACTOR, HELPER):
        tap.ok(stream.got(), f"{row}: the session's own stream ends")
    yield
    mend_spec(d, row, ws, tag, victim, spec)
    stream.c.close()


def mend_spec(d, row, ws, tag, victim, spec):
    """mend(), and the agent's session goes on or is made anew."""
    if victim == REACTOR:
        ws = d.again(f"/ws?session_id={tag}")
        got = spec.send(mcp.rpc(1, "tools/list")).got()
        tap.ok(got[0] == 404 and "Session not found" in got[1],
               f"{row}: the session is not found", got)
    elif victim == HELPER:
        ws = d.again()
        ws.send({"type": "reset", "data": {"episode_id": tag, "name": tag}})
        heard(ws)
        tap.eq(spec.send(mcp.rpc(1, "tools/list")).got()[0], 404,
               f"{row}: the session is not found")
    works(row, ws, tag)
    if victim in (REACTOR, HELPER, KEEPER):
        spec = Spec(d, tag)
        tap.eq(spec.status, 200, f"{row}: initialize again")
    got = spec.send(mcp.rpc(1, "tools/list")).got()
    tap.ok(got[0] == 200 and '"result"' in got[1],
           f"{row}: the agent's next call works", got)
    ws.close()


def tool_socket(d, row, tag):
    ws = begin(d, tag)
    os.mkfifo(os.path.join(d.fifos, tag))
    agent = Socket(d.port, f"/mcp?episode={tag}", TOKENS["AGENT"])
    agent.send(mcp.rpc(1, "tools/call", name="echo",
                       arguments={"hold": tag}))
    d.named(f"at-{tag}")
    victim = yield victim_of(d, f"at-{tag}")
    if victim == RECORDER:
        d.let_go(tag)
    os.unlink(os.path.join(d.fifos, tag))
    got = heard(agent)
    if victim in (REACTOR, HELPER):
        tap.eq(got, ENDED, f"{row}: the connection ends")
    elif victim == RECORDER:
        tap.ok("result" in got, f"{row}: it is answered", got)
    else:
        tap.ok(isinstance(got, dict) and "error" in got or
               victim == KEEPER and got[0] == "closed",
               f"{row}: an error is told", got)
    yield
    mend(d, row, ws, tag, victim)
    agent.s.close()


def grading(d, row, tag):
    ws = begin(d, tag)
    call = d.post(tag, "tools/call", "/mcp/grader", "GRADER",
                  name="grader.run_oracle", arguments={})
    before = set(filter(lambda p: words(p, "comm").strip() == "at-oracle",
                        d.uids()))
    oracle = gate.until(
        lambda: next((p for p in d.uids() if p not in before and
                      words(p, "comm").strip() == "at-oracle"), None),
        "an oracle")
    victim = yield {ORACLE: lambda: d.keeper(oracle),
                    **victim_of(d, f"is-{tag}")}
    if victim in (WORKER, RECORDER):
        if victim == WORKER:
            ws.send({"type": "step", "data": {}})
            tap.ok(is_error(heard(ws)), f"{row}: a step fails")
            d.ctl("episodes")
        tap.ok(status(oracle)[0] != "Z", f"{row}: it judges a copy")
        os.kill(oracle, signal.SIGKILL)
        got = call.got()
        tap.ok(got[0] == 200 and '"result"' in got[1],
               f"{row}: it is another's, and goes on", got)
    else:
        agent_told(row, call, victim)
    yield
    if victim == ORACLE:
        works(row, ws, tag)
        ws.close()
    else:
        mend(d, row, ws, tag, victim)


def diffing(d, row, tag):
    """Its keeper is stopped, so that it does not come to it."""
    ws = begin(d, tag)
    keeper = d.keeper(d.named(f"is-{tag}"))
    os.kill(keeper, signal.SIGSTOP)
    call = d.post(tag, "tools/call", "/mcp/grader", "GRADER",
                  name="grader.fs_diff", arguments={})
    d.ctl("episodes")
    victim = yield victim_of(d, f"is-{tag}")
    resume(keeper)
    if victim == WORKER:
        got = call.got()
        tap.eq(got[0], 200, f"{row}: it is another's, and goes on")
    else:
        agent_told(row, call, victim)
    yield
    mend(d, row, ws, tag, victim)


def observed(d, row, tag):
    ws = begin(d, tag)
    sse = Later(d, tag, "/observe", None, "OBSERVER",
                Accept="text/event-stream")
    tap.eq(sse.head().status, 200, f"{row}: a stream")
    sock = Socket(d.port, f"/observe?episode={tag}", TOKENS["OBSERVER"])
    victim = yield victim_of(d, f"is-{tag}")
    if victim in (WORKER, RECORDER):
        if victim == WORKER:
            while b'"exit"' not in mcp.event(sse.r):
                pass
            tap.ok(True, f"{row}: the worker's end is told")
    else:
        tap.ok(sse.got(), f"{row}: the stream ends")
        got = heard(sock)
        while isinstance(got, dict):
            got = heard(sock)
        tap.ok(got in (ENDED, ("closed", 1000)), f"{row}: the WebSocket ends",
               got)
    yield
    if victim == RECORDER:
        ws.send({"type": "step", "data": {}})
        heard(ws)
    mend(d, row, ws, tag, victim)
    if victim in (WORKER, RECORDER):
        tap.ok(sse.got()[0] == 200, f"{row}: the stream ends with the episode")
    sock.s.close()


def ending(d, row, tag):
    """It is over for its client, and its keeper has not heard of it."""
    ws = begin(d, tag)
    pid = d.named(f"is-{tag}")
    keeper = d.keeper(pid)
    os.kill(keeper, signal.SIGSTOP)
    ws.close()
    victim = yield {WORKER: lambda: pid, KEEPER: lambda: keeper}
    resume(keeper)
    gate.until(lambda: not os.path.exists(f"/proc/{pid}"), f"{row}: its end")
    tap.ok(True, f"{row}: its processes end")
    yield
    mend(d, row, ws, tag, victim, attach=False)


def idle(d, row, tag):
    ws = begin(d, tag)
    victim = yield victim_of(d, f"is-{tag}")
    if victim in (REACTOR, HELPER):
        told(row, ws, victim)
    yield
    if victim in (WORKER, KEEPER):
        # which of the two comes first is nobody's to say
        def fails():
            ws.send({"type": "step", "data": {}})
            return is_error(heard(ws))
        tap.ok(gate.until(fails, "an error"), f"{row}: what follows fails")
    mend(d, row, ws, tag, victim)


def shared(d, row, tag):
    ws = d.connect("/shared")
    ws.send({"type": "reset", "data": {"name": tag}})
    tap.ok(not is_error(heard(ws)), f"{row}: the shared episode")
    other = d.connect("/shared")
    os.mkfifo(os.path.join(d.fifos, tag))
    ws.send({"type": "step", "data": {"hold": tag}})
    d.named(f"at-{tag}")
    other.send({"type": "state"})
    victim = yield victim_of(d, f"at-{tag}")
    if victim == RECORDER:
        d.let_go(tag)
    os.unlink(os.path.join(d.fifos, tag))
    told(row, ws, victim, answered=victim == RECORDER)
    if victim == KEEPER:
        # it may have waited for the next one, which is there by then
        got = heard(other)
        tap.ok(isinstance(got, dict), f"{row}: the other one is answered", got)
    else:
        told(f"{row}, the other one", other, victim,
             answered=victim == RECORDER)
    yield
    if victim in (REACTOR, HELPER):
        ws = d.again("/shared")
    works(row, ws, tag)
    ws.cut()
    other.s.close()


def pooled(d, row, tag):
    """One that is kept ready, and nobody's."""
    pool = gate.until(lambda: next(iter(d.uids(2)), None), "a warm one")
    victim = yield {KEEPER: lambda: d.keeper(pool)}
    tap.ok(True, f"{row}: it is nobody's matter")
    if victim == KEEPER:
        gate.until(lambda: re.search(
            "slot=\\d+ environment=pool: its keeper ended", d.log()),
            "word of its end")
    yield
    gate.until(lambda: d.warm("pool") == 1, "the count of what is ready")
    ws = d.again("/pool")
    works(row, ws, tag)
    ws.close()
    gate.until(lambda: "pool" not in [e["environment"] for e in d.episodes()
                                      or ({"environment": "pool"},)],
               f"{row}: its end")


def model(d, row, tag):
    """A call of the model's is open inside the episode."""
    ws = begin(d, tag)
    d.model.play([upstream.stream_head(), upstream.chunked(upstream.events({
        "id": "1", "object": "chat.completion.chunk", "created": 1,
        "model": "m", "choices": [{"index": 0, "delta": {
            "role": "assistant", "content": "so far"},
            "finish_reason": None}]})), upstream.GONE])
    code = ("import urllib.request as u, ctypes\n"
            "r = u.urlopen(u.Request('http://127.0.0.1:7000/v1/chat/"
            "completions', b'{\"model\":\"m\",\"stream\":true,\"messages\":"
            "[{\"role\":\"user\",\"content\":\"x\"}]}', {'Content-Type':"
            "'application/json'}))\n"
            "print(r.readline(), flush=True)\n"
            f"ctypes.CDLL(None).prctl(15, b'at-{tag}', 0, 0, 0)\n"
            "try:\n"
            "  for line in r: print(line)\n"
            "except Exception as e: print('cut', e)\n")
    with subprocess.Popen(
            [gate.program("sallyportctl"), "-S", d.socket, "exec", "--in", tag,
             "--", "/usr/bin/python3", "-c", code], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        # the agent's side has a keeper of its own
        agent = d.named(f"at-{tag}")
        victim = yield {**victim_of(d, f"is-{tag}"),
                        KEEPER: lambda: d.keeper(agent)}
        out, err = p.communicate(timeout=gate.PATIENCE)
    if victim == RECORDER:
        tap.ok(p.returncode == 0 and '"error"' in out and "DONE" not in out,
               f"{row}: the agent sees an error", (out, err))
        ws.send({"type": "step", "data": {}})
        tap.ok(not is_error(heard(ws)), f"{row}: a step goes on")
    else:
        tap.ok(p.returncode != 0 or "[DONE]" not in out,
               f"{row}: the agent's program ends", (out, err))
    yield
    mend(d, row, ws, tag, victim)


# phase, and whom of the episode's own it has
PHASES = (
    (connecting, ()), (creating, (KEEPER,)), (starting, (WORKER, KEEPER)),
    (resetting, (KEEPER, FRESH)), (worker_resets, (WORKER, KEEPER)),
    (stepping, (WORKER, KEEPER)), (frozen, (WORKER, KEEPER)),
    (tool_post, (WORKER, KEEPER)), (tool_sse, (WORKER, KEEPER)),
    (tool_socket, (WORKER, KEEPER)), (grading, (WORKER, KEEPER, ORACLE)),
    (diffing, (WORKER, KEEPER)), (observed, (WORKER, KEEPER)),
    (ending, (WORKER, KEEPER)), (idle, (WORKER, KEEPER)),
    (shared, (WORKER, KEEPER)), (pooled, (KEEPER,)), (model, (KEEPER, WORKER)),
)


def tag_of(phase):
    """At most twelve characters: with at- the name of a process."""
    return phase.__name__.replace("_", "")[:12]


def wanted(phase, victim):
    only = os.environ.get("SP_KILL_ONLY", "").split()
    return not only or phase.__name__ in only or victim in only


def empty(d, row):
    """No episode but the shared one, and no process but of that."""
    def over():
        return "held" not in [e["environment"] for e in d.episodes() or
                              ({"environment": "held"},)]
    try:
        gate.until(over, "the end of its episodes")
    except TimeoutError:
        tap.diag(d.ctl("episodes"))
    tap.ok(over(), f"{row}: and its episode ends")


def one(d, phase, victim):
    row = f"{victim}, {phase.__name__}"
    p = phase(d, row, tag_of(phase))
    who = next(p)
    os.kill(who[victim](), signal.SIGKILL)
    p.send(victim)
    next(p, None)
    empty(d, row)


def all_at_once(d, victim, phases):
    """One death for all of them: each has its episode."""
    running = []
    for phase in phases:
        if wanted(phase, victim):
            row = f"{victim}, {phase.__name__}"
            running.append(phase(d, row, tag_of(phase)))
            next(running[-1])
    children = d.children()
    if victim == HELPER:
        d.p.kill()
        d.p.wait()
    else:
        os.kill(children[f"sallyport-{victim}"], signal.SIGKILL)
    for p in running:
        p.send(victim)
    if victim == HELPER:
        start_again(d)
    for p in running:
        next(p, None)
    empty(d, victim)


def start_again(d):
    gate.until(lambda: not d.uids(), "the end of its sandboxes")
    with open(d.log_path, "w", encoding="utf-8"):
        pass
    d.start(d.argv, d.env)


def leaves(d):
    with open(os.path.join(d.state, "slots"), encoding="utf-8") as f:
        text = f.read()
    block = int(re.search(r"^block (\d+)$", text, re.M)[1])
    return [os.path.join(at, x)
            for at in re.findall(r"^cgroup \d (.+)$", text, re.M)
            if os.path.isdir(at) for x in os.listdir(at)
            if x.startswith("slot-") and int(x.split("-")[1]) // 2048 == block]


def nothing_left(d):
    def left():
        out = [f"process {p} {words(p, 'comm')}" for p in d.uids()]
        out += [f"cgroup {x}" for x in leaves(d)]
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            out += [x for x in f if d.folder in x or d.tmp.name in x]
        return out
    tap.none(gate.becomes(left, []), "nothing is left of any of them")


def main():
    walls.needed()
    with tempfile.TemporaryDirectory(prefix="sp-kill-") as folder:
        os.chmod(folder, 0o755)
        with Daemon(folder) as d:
            for phase, own in PHASES:
                for victim in own:
                    if wanted(phase, victim):
                        one(d, phase, victim)
            # a worker that starts is held where any other's start is
            together = [p for p, _ in PHASES if p is not starting]
            for victim in (RECORDER, REACTOR, HELPER):
                for some in ([starting], together):
                    if any(wanted(p, victim) for p in some):
                        all_at_once(d, victim, some)
            tap.eq(d.stop(), 0, "it stops")
            nothing_left(d)
    tap.done()


main()

#!/usr/bin/python3
"""A stop waits for calls in flight, and for nothing else."""
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
import mcp  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402
from mcp import event, rpc  # noqa: E402
from wsock import Socket  # noqa: E402

FIXTURES = os.path.join(ROOT, "t", "fixtures", "worker")
SCRATCH = inside.scratch_beside(FIXTURES)
TOKEN = "orchestrator-token-of-this-test"
OBSERVER = "observer-token-of-this-test"


class Daemon(mcp.Gate):
    """One that would wait for ten minutes, longer than any test does."""

    def __init__(self, folder):
        self.socket = os.path.join(folder, "control")
        self.access = os.path.join(folder, "access.log")
        uid = 400000 + os.getpid() % 1000 * 32768
        super().__init__(
            "environment box { episodes 2; workspace_size 64m;\n"
            f"  worker stdio /usr/bin/python3 {FIXTURES}/mcp.py;\n"
            f"  sandbox {{ read_only {inside.HOST} {FIXTURES};\n"
            f"    read_write {SCRATCH}; memory 256m; tmp_size 64m;\n"
            f"    shm_size 16m; timeout 60s; env TMPDIR={SCRATCH};\n"
            f"    uid {uid} 4096; }} }}\n"
            "server { listen 127.0.0.1:0;\n"
            "  location /ws { lifecycle; environment box;\n"
            "    token env:SP_TOKEN; }\n"
            "  location /mcp { mcp_agent; environment box;\n"
            "    tools ask sleep; }\n"
            "  location /observe { observe; environment box;\n"
            "    stream harness_events process; token env:SP_OBSERVER; }\n"
            "}\n",
            main=f"control {self.socket}; access_log {self.access};\n"
            "drain_timeout 10m;",
            env={"SP_TOKEN": TOKEN, "SP_OBSERVER": OBSERVER})

    def observer(self):
        r = gate.Reply(self.connect(), gate.request(None, "/observe", [
            ("Accept", "text/event-stream"),
            ("Authorization", f"Bearer {OBSERVER}")]), read=False)
        r.until(b"data: ")
        return r

    def terminate(self):
        self.p.send_signal(signal.SIGTERM)

    def ended(self, what):
        try:
            status = self.p.wait(gate.PATIENCE)
        except subprocess.TimeoutExpired:
            status = None
        tap.eq(status, 0, f"{what}: it has stopped")
        tap.ok("drained: no call" in self.log() and
               "is over" not in self.log(),
               f"{what}: before drain_timeout, and nothing was cut",
               self.log()[-2000:])
        with open(self.access, encoding="utf-8") as f:
            return [json.loads(x) for x in f]


def hello(ws):
    return ws.ask(rpc(0, "initialize", protocolVersion="2025-11-25",
                      capabilities={"sampling": {}},
                      clientInfo={"name": "t", "version": "1"}))


def idle():
    with tempfile.TemporaryDirectory(prefix="sp-stops-") as folder, \
            Daemon(folder) as d:
        os.chmod(folder, 0o755)
        owner = Socket(d.port, "/ws", TOKEN)
        tap.eq(owner.ask({"type": "reset"})["type"], "observation",
               "an episode")
        sse = d.observer()
        seen = Socket(d.port, "/observe", OBSERVER)
        deaf = Socket(d.port, "/observe", OBSERVER)
        plain = Socket(d.port, "/mcp")
        plain.ask(rpc(1, "tools/list"))
        spec = Socket(d.port, "/mcp")
        hello(spec)
        client = mcp.Client(d)
        stream = client.stream()[1]
        tap.eq(stream.status, 200, "the stream of a session")
        d.terminate()
        for what, ws in (("an orchestrator", owner), ("an observer", seen),
                         ("plain MCP", plain), ("MCP", spec)):
            while ws.receive() is not None:
                pass
            tap.eq(ws.code, 1001, f"{what} is told at once: 1001")
        while sse.more():
            pass
        tap.ok(b'"type":"dropped"' in sse.buf and b"is stopping" in sse.buf,
               "who has an event stream by its last event", sse.buf[-300:])
        tap.eq(event(stream), None, "the stream of a session ends")
        rows = d.ended("without a call")
        tap.eq(len([x for x in rows if x["outcome"] == "stopping" and
                    "operation" not in x]), 7,
               "each line of the log says so")
        deaf.s.close()


def busy():
    with tempfile.TemporaryDirectory(prefix="sp-stops-") as folder, \
            Daemon(folder) as d:
        os.chmod(folder, 0o755)
        owner = Socket(d.port, "/ws", TOKEN)
        owner.ask({"type": "reset"})
        caller = Socket(d.port, "/mcp")
        hello(caller)
        caller.send(rpc(1, "tools/call", name="ask", arguments={}))
        asked = json.loads(caller.receive())
        tap.eq(asked["method"], "sampling/createMessage",
               "a call that waits for its client")
        seen = Socket(d.port, "/observe", OBSERVER)
        d.terminate()
        while seen.receive() is not None:
            pass
        tap.eq(seen.code, 1001, "others are told before that has its answer")
        while owner.receive() is not None:
            pass
        tap.eq(owner.code, 1001, "whose episode it is, too")
        caller.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"x": 1}})
        got = json.loads(caller.receive())
        tap.ok(got.get("id") == 1 and "result" in got,
               "the call has its answer, in its episode", got)
        tap.eq((caller.receive(), caller.code), (None, 1001), "then the end")
        d.ended("with a call")


def step():
    with tempfile.TemporaryDirectory(prefix="sp-stops-") as folder, \
            Daemon(folder) as d:
        os.chmod(folder, 0o755)
        owner = Socket(d.port, "/ws", TOKEN)
        owner.ask({"type": "reset"})
        seen = Socket(d.port, "/observe", OBSERVER)
        owner.send({"type": "mcp", "data": json.loads(
            rpc(1, "tools/call", name="sleep", arguments={"s": 2}))})
        owner.send({"type": "step", "data": {"a": 1}})
        # it has begun, as it is told
        while b"tools/call" not in seen.receive():
            pass
        d.terminate()
        got = [json.loads(owner.receive())["type"] for _ in range(2)]
        tap.eq(got, ["mcp", "observation"],
               "what an orchestrator asked has its answers")
        tap.eq((owner.receive(), owner.code), (None, 1001), "then the end")
        d.ended("with a step")


walls.needed()
idle()
busy()
step()
tap.done()

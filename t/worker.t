#!/usr/bin/python3
"""Workers of episodes, in real sandboxes: MCP over stdio, and frames."""
import json
import os
import shutil
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

FIXTURES = os.path.join(ROOT, "t", "fixtures", "worker")
SCRATCH = inside.scratch_beside(FIXTURES)
BOOTSTRAP = os.path.join(ROOT, "contrib", "python", "sallyport_worker.py")
FRAMES = "worker frames /usr/bin/python3 %s { factory %s; action_class %s; }"
BAD = ("early_event", "not_ready", "unasked", "event", "two_keys", "twice",
       "no_object", "text")
ENVIRONMENTS = {
    "full": "worker stdio /usr/bin/python3 {f}/mcp.py;",
    "plain": "worker stdio /usr/bin/python3 {f}/mcp.py plain; "
             "worker_directory /workspace;",
    "early": "worker stdio /usr/bin/python3 {f}/mcp.py early;",
    "mute": "worker stdio /usr/bin/python3 {f}/mcp.py mute; "
            "worker_start_timeout 1s;",
    "echo": "worker stdio /usr/bin/cat;",
    "nowhere": "worker stdio {gone}/worker;",
    "brief": "worker stdio /usr/bin/python3 {f}/mcp.py;",
    "small": FRAMES % (BOOTSTRAP, "small_env:Environment",
                       "small_env:Action"),
    "broken": FRAMES % (BOOTSTRAP, "small_env:broken", "small_env:Action"),
    "none": "",
    "judged": "assets {gone}/private { oracle o.sh; }",
    "shapes": "worker stdio /usr/bin/python3 {f}/mcp.py shapes;",
    "local": "enforcement local; worker stdio /usr/bin/python3 {f}/mcp.py;",
    # the worker's keeper is the second one there
    "local-two": "enforcement local; worker stdio /usr/bin/python3 {f}/mcp.py;"
                 " process idle { trust workload; command /bin/true; }",
}
LAUNCHED = """
    process teller { trust workload; command /usr/bin/python3 {f}/teller.py; }
    process quick { trust workload; command /bin/sh -c "echo no >&2; exit 7"; }
"""
ENVIRONMENTS["beside"] = ENVIRONMENTS["full"] + LAUNCHED
ENVIRONMENTS["alone"] = LAUNCHED
for bad in BAD:
    ENVIRONMENTS[bad] = FRAMES % (f"{FIXTURES}/bad_frames.py {bad}", "m:f",
                                  "m:c")


class Daemon(gate.Gate):
    def __init__(self, folder, **kw):
        self.socket = os.path.join(folder, "control")
        uid = 400000 + os.getpid() % 1000 * 32768
        text = ""
        # where no sandbox may write
        self.gone = tempfile.TemporaryDirectory(
            prefix="sp-", dir="/var/tmp" if SCRATCH == "/tmp" else "/tmp")
        gone = self.gone.name
        os.chmod(gone, 0o755)
        shutil.copy("/bin/true", os.path.join(gone, "worker"))
        os.mkdir(os.path.join(gone, "private"), 0o700)
        with open(os.path.join(gone, "private", "o.sh"), "w",
                  encoding="utf-8") as f:
            f.write("#!/bin/sh\nfor i in $(seq 0 99); do\n"
                    "  echo line $i of many that an oracle writes >&2\n"
                    "done\n")
        os.chmod(f.name, 0o755)
        for i, (name, worker) in enumerate(ENVIRONMENTS.items()):
            seen = f" {gone}" if name == "nowhere" else ""
            text += (f"environment {name} {{\n  episodes 1; workspace_size 64m;\n"
                     f"  {worker.replace('{f}', FIXTURES).replace('{gone}', gone)}\n"
                     f"  sandbox {{ read_only {inside.HOST} {FIXTURES} {BOOTSTRAP}{seen};\n"
                     f"    read_write {SCRATCH}; memory 256m; tmp_size 64m; shm_size 16m;\n"
                     f"    timeout {'500ms' if name == 'brief' else '20s'};\n"
                     f"    env TMPDIR={SCRATCH} PYTHONPATH={FIXTURES}; uid {uid + i * 4096} 4096; "
                     "} }\n")
        super().__init__(
            text + "server { listen 127.0.0.1:0; location /health "
            "{ health; } }", main=f"control {self.socket};", **kw)
        # that it was there is seen at the start
        os.unlink(os.path.join(gone, "worker"))

    def ctl(self, *args, stdin=b""):
        r = subprocess.run([gate.program("sallyportctl"), "-S", self.socket,
                            *args], input=stdin, capture_output=True,
                           check=False, timeout=120)
        return r.returncode, r.stdout, r.stderr

    def create(self, name):
        rc, out, err = self.ctl("episodes", "create", name)
        if rc != 0:
            sys.exit(f"no episode: {err}")
        return out.decode().rstrip("\n")

    def worker(self, ep, *args):
        """What it answers, or the words of the refusal."""
        rc, out, err = self.ctl("worker", ep, *args)
        return json.loads(out) if rc == 0 else err.decode().strip()

    def mcp(self, ep, method, id_=7, **params):
        return self.worker(ep, "mcp", json.dumps(
            {"jsonrpc": "2.0", "id": id_, "method": method,
             "params": params}))

    def tool(self, ep, name, id_=7, **arguments):
        return self.mcp(ep, "tools/call", id_, name=name,
                        arguments=arguments)

    def reset(self, ep):
        tap.eq(self.ctl("reset", ep)[0], 0, "a reset")
        return gate.until(lambda: self.settled(ep), "a worker that is ready")

    def failed(self, ep):
        got = self.worker(ep)
        return got if got["state"] == "failed" else None

    def settled(self, ep):
        got = self.worker(ep)
        return got if got["state"] != "starting" else None


def said(got):
    return got["result"]["result"]["content"][0]["text"]


def conversation(d):
    ep = d.create("full")
    got = gate.until(lambda: d.settled(ep), "a worker")
    tap.eq((got["state"], got["why"]), ("ready", ""), "a worker is ready")
    tap.eq(got["initialized"]["serverInfo"]["name"], "fixture",
           "what it said of itself is known")
    sees = got["initialized"]["sees"]
    tap.eq((sees["protocolVersion"], sorted(sees["capabilities"])),
           ("2025-11-25", ["elicitation", "roots", "sampling"]),
           "and how it was greeted")
    got = d.mcp(ep, "tools/list", "a\"b")
    tap.eq((got["result"]["id"], got["result"]["result"]["tools"][0]["name"]),
           ("a\"b", "echo"), "its tools, under the caller's own id")
    tap.eq(said(d.tool(ep, "echo", a=[1, {"b": None}])),
           '{"a": [1, {"b": null}]}', "a call")
    tap.ok(said(d.tool(ep, "id", "mine")) != '"mine"',
           "the worker sees an id of the gateway's")
    got = d.mcp(ep, "nope")
    tap.eq(got["result"]["error"]["code"], -32601, "an error passes")
    got = d.mcp(ep, "tools/call", name="progress", arguments={},
                _meta={"progressToken": "tok/1"})
    tap.eq([m["params"] for m in got["messages"]],
           [{"progressToken": "tok/1", "progress": n} for n in range(3)],
           "progress, under the caller's token")
    tap.eq(len(d.tool(ep, "log")["messages"]), 1, "a message of its log")
    got = d.tool(ep, "ask")
    tap.eq(json.loads(said(got))["error"]["code"], -32601,
           "a request of its own is answered")
    tap.eq(json.loads(said(got))["id"], "mine/1", "under its own id")
    tap.eq(said(d.tool(ep, "stray")), "after",
           "an answer to nothing is dropped")
    tap.eq(said(d.tool(ep, "event")), "told", "an event of its own")
    for n in (1 << 16, 3 << 20, 12 << 20):
        tap.eq(len(said(d.tool(ep, "big", bytes=n))), n, f"{n} bytes")
    got = json.loads(said(d.tool(ep, "where")))
    tap.eq((got["cwd"], got["uid"] != 0), ("/home/worker", True),
           "not where agents write, and as whom")
    return ep


def lifecycle(d, ep):
    tap.eq(d.worker(ep, "reset", '{"seed": 5}')["result"],
           {"observation": {"seed": 5}, "reward": None, "done": False},
           "env/reset")
    tap.eq(d.worker(ep, "step", '{"move": 1}')["result"],
           {"observation": {"seen": {"move": 1}}, "reward": 0.5,
            "done": False}, "env/step")
    got = d.worker(ep, "step", '{"refuse": true}')
    tap.ok("422" in got and "no such move" in got, "a step that it refuses",
           got)
    tap.eq(d.worker(ep, "state")["result"], {"step_count": 1, "own": True},
           "env/state")
    for bad in ("{}", '{"jsonrpc":"2.0","id":1,"method":"env/reset"}',
                '{"jsonrpc":"2.0","method":"notifications/cancelled"}'):
        got = d.worker(ep, "mcp", bad)
        tap.ok("400" in got, f"no request for a worker: {bad}", got)
    got = d.worker(ep, "step", "[1]")
    tap.ok("400" in got, "an action that is no object", got)
    plain = d.create("plain")
    tap.eq(d.worker(plain, "reset")["result"],
           {"observation": {}, "reward": None, "done": False},
           "env/reset of one that has none")
    tap.eq(d.worker(plain, "state")["result"],
           {"episode_id": plain, "step_count": 0}, "and its state")
    got = d.worker(plain, "step", "{}")
    tap.ok("422" in got, "and a step", got)
    tap.eq(json.loads(said(d.tool(plain, "where")))["cwd"], "/workspace",
           "worker_directory")
    d.ctl("end", plain)
    none = d.create("none")
    got = d.worker(none, "state")
    tap.ok("404" in got and "no worker" in got, "an environment without",
           got)
    d.ctl("end", none)


def failures(d, ep):
    rows = (("die", "502", "exit status 3"), ("crash", "502", "signal 9"),
            ("half", "502", "in the middle of a line"),
            ("noise", "502", "no JSON-RPC message: this is no JSON"),
            ("long", "502", "longer than 16777216"),
            ("batch", "502", "a batch"),
            ("deaf", "502", "closed its standard output"))
    for name, status, why in rows:
        got = d.tool(ep, name)
        tap.ok(status in got and why in got, f"{name}: {why}", got)
        how = d.worker(ep)
        tap.eq((how["state"], why in how["why"]), ("failed", True),
               "it counts as failed")
        if name == "die":
            tap.eq(how["stderr"], "it was told to die\n", "its last words")
        got = d.tool(ep, "echo")
        tap.ok("502" in got and why in got, "and answers no more", got)
        tap.eq(d.reset(ep)["state"], "ready", "until a reset")
    tap.eq(said(d.tool(ep, "echo", a=1)), '{"a": 1}', "all is well again")
    rc, _, err = d.ctl("exec", "--worker", "--in", ep, "--", "/bin/true")
    tap.eq((rc, err), (0, b""), "a program beside the worker")
    for name, why in (("early", "exit status 9"),
                      ("mute", "not ready in 1000 ms"),
                      ("echo", "sends back what it is told"),
                      ("nowhere", "could not be started")):
        bad = d.create(name)
        got = d.worker(bad, "state")
        tap.ok("502" in got and why in got, f"{name}: {why}", got)
        if name == "early":
            tap.eq(d.worker(bad)["stderr"], "no licence found\n",
                   "its last words")
        d.ctl("end", bad)


def deadline(d):
    ep = d.create("brief")
    got = d.tool(ep, "silent")
    tap.ok("504" in got and "did not answer in 500 ms" in got,
           "one that does not answer in time", got)
    tap.eq(d.worker(ep)["state"], "failed", "counts as failed")

    def counted(state):
        all_ = json.loads(d.ctl("status", "--json")[1])
        return all_[f'sallyport_episodes{{environment="brief",'
                    f'state="{state}"}}']
    tap.eq([counted(x) for x in ("creating", "running", "failed")], [0, 0, 1],
           "and is counted so")
    tap.eq(d.reset(ep)["state"], "ready", "until a reset")
    tap.eq([counted(x) for x in ("creating", "running", "failed")], [0, 1, 0],
           "which is counted")
    d.ctl("end", ep)


def logs(d, ep):
    """What it said on standard error, before and from now on."""
    rc, out, _ = d.ctl("logs", ep)
    tap.ok(rc == 0 and b"worker: it was told to die\n" in out,
           "logs has its words", out)
    rc, out, _ = d.ctl("logs", "--json", ep)
    tap.eq({json.loads(x)["stream"] for x in out.splitlines()}, {"stderr"},
           "as JSON, with the stream")
    before = len(out.splitlines())
    f = subprocess.Popen([gate.program("sallyportctl"), "-S", d.socket,
                          "logs", ep, "-f"], stdout=subprocess.PIPE)
    for _ in range(before):
        f.stdout.readline()
    d.tool(ep, "die")
    tap.eq(f.stdout.readline(), b"worker: it was told to die\n",
           "-f follows")
    d.reset(ep)
    other = d.create("early")
    g = subprocess.Popen([gate.program("sallyportctl"), "-S", d.socket,
                          "logs", other, "-f"], stdout=subprocess.PIPE)
    f.terminate()
    f.wait()
    g.stdout.readline()
    d.ctl("end", other)
    tap.eq((g.wait(gate.PATIENCE), g.stdout.read()), (0, b""),
           "and ends with its episode")
    rc, _, err = d.ctl("logs", "no-such-episode")
    tap.ok(rc == 1 and b"404" in err, "logs of no episode", err)


def checked(d):
    """env check: each step, and what it saw."""
    rc, out, err = d.ctl("env", "check", "--step", '{"move": 1}', "brief")
    tap.ok(rc == 0 and b"it works" in out, "env check of one that works",
           out + err)
    for word in ("sandbox", "reset", "tools", "state", "step", "oracle",
                 "renew", "changes", "end"):
        tap.ok(f"  {word} ".encode() in out, f"it tries: {word}", out)
    tap.ok(b"echo" in out and b'"seen"' in out,
           "and shows the tools and what a step gave", out)
    rc, out, err = d.ctl("env", "check", "early")
    tap.ok(rc == 1 and b"exit status 9" in out, "of one that fails",
           out + err)
    tap.ok(b"standard error:" in out and b"| no licence found" in out,
           "with the end of its standard error", out)
    rc, out, err = d.ctl("env", "check", "no-such")
    lines = out.decode().splitlines()
    tap.ok(rc == 1 and not err and len(lines) == 4 and
           lines[1].startswith("  sandbox  FAILED") and
           "no environment of that name" in lines[2] and lines[3] == "1 of these failed",
           "of none, each on a line of its own", out + err)
    rc, out, err = d.ctl("env", "check", "none")
    tap.ok(rc == 0 and b"has no worker" in out, "of one without a worker",
           out + err)
    rc, out, err = d.ctl("env", "check", "--json", "none")
    got = [json.loads(x) for x in out.splitlines()]
    tap.eq((rc, [(x["step"], x["outcome"]) for x in got[:-1]], got[-1]),
           (0, [("sandbox", "ok"), ("reset", "none"), ("oracle", "none"),
                ("renew", "ok"), ("changes", "none"), ("end", "ok")],
            {"environment": "none", "failed": 0}), "as lines of JSON")
    rc, out, err = d.ctl("env", "check", "--json", "early")
    got = [json.loads(x) for x in out.splitlines()]
    tap.ok(rc == 1 and got[-1]["failed"] > 0
           and any(x.get("outcome") == "failed"
                   and "exit status 9" in x["detail"] for x in got[:-1])
           and {"environment": "early", "stderr": "no licence found"} in got,
           "those of one that fails", out + err)
    rc, out, err = d.ctl("env", "check", "--json", "no-such")
    tap.eq((rc, [json.loads(x).get("outcome") for x in out.splitlines()]),
           (1, ["failed", None]), "and of none")
    tap.ok("no environment" in json.loads(out.splitlines()[0])["detail"],
           "with what was wrong", out)
    shapes(d)
    judged(d)
    rc, out, err = d.ctl("guarantees", "--json")
    got = {x["environment"]: x["guarantees"] for x in json.loads(out)}
    tap.ok(rc == 0 and any(
        g["guarantee"] == "privilege_drop" and g["provided"] is True
        and g["required"] is False and g["means"] for g in got["brief"])
        and "brief" in d.ctl("guarantees")[1].decode(),
        "guarantees, also as JSON", out + err)
    for args in (["check"], ["look", "x"], ["check", "--step", "{", "x"]):
        tap.eq(d.ctl("env", *args)[0], 2, "usage: env " + " ".join(args))


def shapes(d):
    """What no client can make a result of is no result that works."""
    rc, out, err = d.ctl("env", "check", "--step", '{"foo": 1}', "shapes")
    tap.ok(rc == 1 and b"2 of these failed" in out and
           b"observation is a text; expected an object. reward is a text; "
           b"expected a number or null. done is null; expected true or false"
           in out and b'| {"observation":"text"' in out.replace(b": ", b":"),
           "a reset that no client understands", out + err)
    tap.ok(b"observation is missing; expected an object. reward is missing; "
           b"expected a number or null. done is missing" in out,
           "a step that says something else", out)
    for step, wrong in (
            ('{"observation": {}, "reward": null, "done": true}', None),
            ('{"observation": {}, "reward": -1.5, "done": false}', None),
            ('{"observation": {}, "reward": true, "done": false}', None),
            ('{"observation": {}, "reward": [1], "done": false}',
             "reward is a list; expected a number or null"),
            ('{"observation": null, "reward": 1, "done": true}',
             "observation is null; expected an object"),
            ('{"observation": {}, "reward": 1, "done": "yes"}',
             "done is a text; expected true or false")):
        rc, out, err = d.ctl("env", "check", "--json", "--step", step,
                             "shapes")
        got = next(x for x in map(json.loads, out.splitlines())
                   if x.get("step") == "step")
        tap.ok(rc == 1 and (
            (got["outcome"], json.loads(got["detail"])) ==
            ("ok", json.loads(step)) if wrong is None else
            (got["outcome"], got["detail"]) == ("failed", wrong)),
            f"a step that gives {step}", out + err)


def judged(d):
    """What an oracle wrote is cut in its line, and its end follows."""
    rc, out, err = d.ctl("env", "check", "judged")
    title = out.find(b"            the oracle's standard error:\n")
    tap.ok(rc == 0 and title >= 0 and
           b"| line 99 of many" in out[title:] and
           b"standard output" not in out,
           "the end of an oracle's standard error", out + err)
    rc, out, err = d.ctl("env", "check", "--json", "judged")
    got = next(x for x in map(json.loads, out.splitlines())
               if x.get("step") == "oracle")
    tap.ok("line 0 " in got["detail"] and "line 99 " in got["detail"],
           "all of it is in the lines of JSON", out + err)


def local(d):
    """Without walls there is no diff, which is no failure."""
    rc, out, err = d.ctl("env", "check", "--step", '{"move": 1}', "local")
    tap.ok(rc == 0 and b"it works" in out and
           b"not had with enforcement local" in out,
           "env check of one with enforcement local", out + err)
    ep = d.create("local")
    rc, out, err = d.ctl("diff", ep)
    tap.ok(rc == 1 and b"501" in err and b"enforcement local" in err,
           "which has no diff", out + err)
    tap.eq(d.ctl("put", ep, "sub/f", stdin=b"put\n")[0], 0,
           "a path relative to the workspace")
    tap.eq([d.ctl("read", ep, x)[1] for x in ("sub/f", "/workspace/sub/f")],
           [b"put\n", b"put\n"], "is read as such")
    d.ctl("end", ep)
    ep = d.create("local-two")
    gate.until(lambda: d.worker(ep)["state"] == "ready",
               "its worker, beside an agent")
    where = [d.ctl("exec", *side, "--in", ep, "--", "/bin/sh", "-c",
                   "pwd; cd && pwd")[1].decode().split()
             for side in ([], ["--worker"])]
    tap.ok(where[0] == where[1] and len(set(where[0])) == 1 and
           where[0][0].startswith("/tmp/sallyport-"),
           "both sides start at home, in the workspace", where)
    d.ctl("end", ep)
    tap.ok(not os.path.exists(where[0][0]), "which is gone with the episode")


def sides(d):
    """Commands of the agent's where it has no side, or loses it."""
    rc, _, err = d.ctl("exec", "plain", "--", "true")
    tap.ok(rc == 125 and b"--worker" in err and b"inside" in err and
           b"stage" not in err, "exec where there is a worker alone", err)
    tap.eq(d.ctl("exec", "--worker", "plain", "--", "true")[0], 0,
           "is with --worker")
    rc, _, err = d.ctl("exec", "--worker", "none", "--", "true")
    tap.ok(rc == 125 and b"has no worker" in err, "where there is none", err)
    ep = d.create("beside")
    gate.until(lambda: d.settled(ep), "a worker")
    p = subprocess.Popen([gate.program("sallyportctl"), "-S", d.socket,
                          "exec", "--in", ep, "--", "/bin/sh", "-c",
                          "echo up; sleep 600"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    tap.eq(p.stdout.readline(), b"up\n", "a command of the agent's")
    d.tool(ep, "die")
    _, err = p.communicate(timeout=gate.PATIENCE)
    tap.ok(p.returncode == 137 and b"the worker failed: " in err,
           "dies with the worker, and says so", (p.returncode, err))
    d.ctl("end", ep)


def frames(d):
    ep = d.create("small")
    got = gate.until(lambda: d.settled(ep), "a worker")
    tap.eq((got["state"], got["why"], got["initialized"]),
           ("ready", "", None), "a worker of frames is ready")
    tap.eq(d.worker(ep, "reset", '{"seed": 3, "episode_id": "e"}')["result"],
           {"observation": {"text": "seed 3"}, "reward": 0.0, "done": False},
           "its reset")
    tap.eq(d.worker(ep, "step", '{"move": "last"}')["result"],
           {"observation": {"text": "did last"}, "reward": 1.0,
            "done": True}, "its step")
    tap.eq(d.worker(ep, "state")["result"],
           {"episode_id": "e", "step_count": 1}, "its state")
    got = d.worker(ep, "step", '{"move": "raise"}')
    tap.ok("422" in got and "environment operation failed" in got and
           "see sallyportctl logs ID" in got,
           "a step that raises, and where it is told why", got)
    got = d.worker(ep)["stderr"]
    tap.ok("that move is not allowed" in got
           and "a word on standard output" in got,
           "says why on standard error, where prints go as well", got)
    tap.ok("422" in d.worker(ep, "step", '{"jump": 1}'),
           "an action of another kind")
    tap.ok("422" in d.worker(ep, "reset", '{"colour": 1}'),
           "a reset that it does not take")
    tap.eq(d.worker(ep, "step", '{"move": "nan"}')["result"]["reward"], None,
           "a reward that is no number")
    tap.ok("422" in d.worker(ep, "step", '{"move": "big"}'),
           "an answer that is too long")
    tap.eq(d.mcp(ep, "tools/list", "x")["result"],
           {"jsonrpc": "2.0", "id": "x", "result": {"tools": [
               {"name": "add", "description": "adds",
                "inputSchema": {"type": "object"}}]}}, "its tools")
    tap.eq(said(d.tool(ep, "add", a=2, b=3)), "5", "a call")
    tap.eq(d.tool(ep, "nope")["result"]["error"]["code"], -32602,
           "a tool that is not there")
    tap.eq(d.tool(ep, "add", a="bad")["result"]["error"]["code"], -32603,
           "one that raises")
    tap.eq(d.mcp(ep, "prompts/list")["result"]["error"]["code"], -32601,
           "more of MCP there is not")
    got = d.worker(ep, "step", '{"move": "exit"}')
    tap.ok("502" in got and "exit status 4" in got, "one that ends it", got)
    tap.eq(d.reset(ep)["state"], "ready", "until a reset")
    d.ctl("end", ep)


def bad_frames(d):
    why = {"early_event": "first frame", "not_ready": "first frame",
           "unasked": "not asked", "twice": "not asked",
           "two_keys": "no frame", "no_object": "no frame",
           "text": "went astray", "broken": "exit status 1"}
    for name, words in why.items():
        ep = d.create(name)
        if name != "unasked":
            d.worker(ep, "step", "{}")
        got = gate.until(lambda: d.failed(ep), "its failure")
        tap.ok(words in got["why"], f"{name}: {words}", got)
        if name == "broken":
            tap.ok("no such thing" in got["stderr"], "its last words", got)
        d.ctl("end", ep)
    ep = d.create("event")
    tap.eq(d.worker(ep, "step", "{}")["result"]["observation"],
           {"hello": {"factory": "m:f", "action_class": "m:c",
                      "agent_policy": None}}, "what its first line says")
    d.ctl("end", ep)


def beside(d):
    for name in ("beside", "alone"):
        ep = d.create(name)
        for again in ("", " after a reset"):
            def told():
                rc, out, _ = d.ctl("read", ep, "/workspace/told")
                return rc == 0 and out == b"3"
            tap.ok(gate.until(told, "the process"),
                   f"{name}: a process of the environment runs{again}")
            tap.ok(gate.until(lambda: "process quick ended with status 7: no"
                              in d.log(), "its end"), "the end of another")
            tap.ok(b"quick: no\n" in d.ctl("logs", ep)[1],
                   "whose words logs has")
            if not again:
                tap.eq(d.ctl("reset", ep)[0], 0, "a reset")
        d.ctl("end", ep)


def example(folder):
    """The model for authors outlives whatever an agent calls and leaves."""
    file = os.path.join(folder, "counter")
    with open(os.path.join(ROOT, "contrib", "examples", "counter.py"),
              encoding="utf-8") as f:
        code = f.read().replace("/workspace/counter", file)
    p = subprocess.Popen([sys.executable, "-c", code], text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL)

    def ask(method, params="{}"):
        p.stdin.write('{"jsonrpc":"2.0","id":7,"method":%s,"params":%s}\n'
                      % (method, params))
        p.stdin.flush()
        got = json.loads(p.stdout.readline() or "{}")
        return got.get("id"), "result" in got

    def increment(by):
        return ask('"tools/call"', '{"name":"increment","arguments":%s}' % by)

    tap.eq(ask('"env/reset"'), (7, True), "the example is reset")
    tap.none([by[:9] for by in ("9" * 5000, "1e999", "NaN", '"x"', "null", "[]",
                                "[" * 500 + "]" * 500, '"' + "9" * 5000 + '"')
              if increment('{"by":%s}' % by) != (7, False)],
             "refuses what is no number of its size")
    for args in ("5", "[1]"):
        tap.eq(increment(args), (7, False), f"arguments that are {args}")
    for params in ("[]", '"x"', '{"name":[]}'):
        ask('"tools/call"', params)
    tap.eq(ask('["x"]'), (7, False), "no method")
    def huge(path):
        with open(path, "wb") as f:
            f.truncate(1 << 40)

    for make in (os.mkfifo, os.mkdir, huge,
                 lambda f: os.symlink("/etc/passwd", f)):
        if os.path.lexists(file):
            (os.rmdir if os.path.isdir(file) else os.unlink)(file)
        make(file)
        tap.eq(increment('{"by":1}'), (7, False), "another thing in its place")
    os.unlink(file)
    tap.eq((ask('"env/reset"'), increment('{"by":2}'), p.poll()),
           ((7, True), (7, True), None), "and lives")
    p.stdin.close()
    p.wait()
    p.stdout.close()


def main():
    walls.needed()
    with tempfile.TemporaryDirectory(prefix="sp-example-") as folder:
        example(folder)
    with tempfile.TemporaryDirectory(prefix="sp-worker-") as folder, \
            Daemon(folder) as d:
        ep = conversation(d)
        lifecycle(d, ep)
        failures(d, ep)
        deadline(d)
        logs(d, ep)
        checked(d)
        local(d)
        sides(d)
        frames(d)
        bad_frames(d)
        beside(d)
        d.ctl("end", ep)
        rc, out, _ = d.ctl("episodes")
        tap.eq((rc, len(out.splitlines())), (0, 1), "no episode is left")
    tap.done()


main()

#!/usr/bin/python3
"""OpenCode in a sandbox without a network device: its model is at loopback."""
import json
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import inside  # noqa: E402
import peer  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402
from upstream import Scripted  # noqa: E402

PROMPT = b"Write hello.py, which prints a greeting, and run it.\n"
USER = 64990
KEY = "the-upstream-key-that-nobody-inside-sees"
CONFIG = {"autoupdate": False, "share": "disabled", "model": "sp/m",
          "provider": {"sp": {
              "npm": "@ai-sdk/openai-compatible", "name": "sp",
              "options": {"baseURL": "http://127.0.0.1:7000/v1",
                          "apiKey": "none"},
              "models": {"m": {"name": "m", "tool_call": True, "limit": {
                  "context": 32768, "output": 4096}}}}}}
ENV = [f"OPENCODE_CONFIG_CONTENT={json.dumps(CONFIG)}",
       "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1",
       "OPENCODE_DISABLE_DEFAULT_PLUGINS=1",
       "OPENCODE_DISABLE_LSP_DOWNLOAD=1"]


def works(d, program, episode):
    options = ["--in", episode, "--timeout", "240"]
    for e in ENV:
        options += ["--env", e]
    rc, out, err = d.exec(program, "run", "--format", "json", "--auto",
                          options=options, stdin=PROMPT)
    said = [json.loads(x) for x in out.splitlines() if x.startswith(b"{")]
    tap.ok(rc == 0, "OpenCode ends with status 0", out[-1500:] + err[-1500:])
    ran = [x["part"]["state"] for x in said if x["type"] == "tool_use"
           and x["part"]["tool"] == "bash"]
    tap.ok(len(ran) == 1 and ran[0]["status"] == "completed"
           and "Hello" in ran[0]["output"], "it ran what it wrote", ran)
    tap.ok(not [x for x in said if x["type"] == "error"], "it met no error")
    rc, out, err = d.ctl("read", episode, "/workspace/hello.py")
    tap.ok(rc == 0 and b"Hello" in out, "which is read from outside", err)
    rc, out, err = d.ctl("diff", episode)
    tap.eq(out.split(), [b"A", b"file", b"hello.py"],
           "and all that changed")


def enclosed(d, episode):
    rc, out, _ = d.exec("/bin/cat", "/proc/net/dev",
                        options=["--in", episode])
    names = [x.split(b":")[0].strip() for x in out.splitlines()[2:]]
    tap.eq((rc, names), (0, [b"lo"]), "there is no device but loopback")
    with open(os.path.join(d.state, "keys", "sessions.jsonl"),
              encoding="utf-8") as f:
        tap.ok(KEY not in f.read(), "the key is not on disk")
    rc, out, err = d.exec("/usr/bin/python3", "-c", inside.HUNT, KEY[::-1],
                          options=["--in", episode])
    tap.eq((rc, out), (0, b"[] True\n"), "nor in any file inside")
    rc, out, _ = d.exec("/usr/bin/python3", "-c", inside.HUNT, "olleH",
                        options=["--in", episode])
    tap.ok(rc == 0 and b"/workspace/hello.py" in out,
           "where what is there is found", out)


def sockets(d, episode):
    """Neither the control socket nor the way upstream."""
    code = ("import socket, sys\n"
            "s = socket.socket(socket.AF_UNIX)\n"
            f"print(s.connect_ex({d.socket!r}))\n"
            "t = socket.socket()\n"
            f"print(t.connect_ex(('127.0.0.1', {d.port})))\n")
    rc, out, err = d.exec("/usr/bin/python3", "-c", code,
                          options=["--in", episode])
    tap.ok(rc == 0 and b"0" not in out.split(), "nor is there a way to the "
           "control socket, or to doors outside", (out, err))


def trace(d, up, episode):
    records = d.records(episode)
    tap.eq(len(records), 4, "four turns are recorded")
    tap.ok(all(r["episode"] == r["session"] == episode and r["aligned"]
               and r["complete"] for r in records),
           "whole, under the episode's id", records[:1])
    r = peer.run([peer.gate.program("sallyportctl"), "trace", "--verify",
                  d.trace_path(episode)])
    tap.ok(r.returncode == 0, "and the chain is good", r.stdout + r.stderr)
    sent = b"".join(bytes(c["up"]) for c in up.connections)
    tap.eq(sent.count(f"Bearer {KEY}\r\n".encode()), 4,
           "the key went to the model, with each call")


folder = peer.need("opencode")
program = os.path.join(os.path.realpath(folder), "node_modules", ".bin",
                       "opencode")


def task(who, uid=None):
    """All of it as root, or as that ordinary user, in user namespaces."""
    tap.diag(who)
    with Scripted() as model, tempfile.TemporaryDirectory(
            prefix="sp-in-") as at:
        os.chmod(at, 0o755)
        up = peer.Relay(model.port)
        bounds = "" if uid else "memory 2g; cpu off;"
        with inside.Daemon(at, up.url, [folder], bounds + "pids 512;",
                           env={"SP_TEST_KEY": KEY}, uid=uid) as d:
            episode = d.create()
            works(d, program, episode)
            enclosed(d, episode)
            sockets(d, episode)
            rc, _, err = d.ctl("end", episode)
            tap.eq(rc, 0, "it ends")
            trace(d, up, episode)
            d.gone()


task("as root")
refused = walls.user_refused(USER, peer.gate.program("sallyport"),
                             program)
if refused:
    tap.skip("all of it for an ordinary user", refused)
else:
    task("as an ordinary user", USER)
tap.done()

#!/usr/bin/python3
"""Workers of episodes: servers on a port of their sandbox, good and bad."""
import json
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402

walls.needed()
import worker  # noqa: E402
from worker import said  # noqa: E402

MCP = ("sse", "json", "bare", "close")
OPENENV = ("openenv", "slow")
# mode -> (more directives, what the failure says)
NEVER = {
    "early": ("", "exit status 9"),
    "deaf": ("worker_start_timeout 1s;", "not ready in 1000 ms"),
    "mute": ("worker_start_timeout 1s;", "not ready in 1000 ms"),
    "closes": ("worker_start_timeout 1s;", "not ready in 1000 ms"),
    "garbage": ("worker_start_timeout 1s;", "not ready in 1000 ms"),
    "flood": ("worker_start_timeout 1s;", "not ready in 1000 ms"),
    "endless": ("worker_start_timeout 1s;", "not ready in 1000 ms"),
    "ill": ("worker_start_timeout 1s;", "status 503"),
    "neither": ("", "status 404"),
    "session": ("", "id of its session"),
    "full": ("", "CAPACITY_REACHED"),
    "eager": ("", "answers nothing"),
    "accept": ("", "is no OpenEnv server"),
}


def environments():
    rows = {m: "" for m in MCP + OPENENV}
    rows.update({m: more for m, (more, _) in NEVER.items()})
    return {name: "worker http 8001 /usr/bin/python3 {f}/http.py 8001 "
                  f"{name}; {more}" for name, more in rows.items()}


def mcp(d):
    ep, got = d.made("sse")
    tap.eq((got["state"], got["why"]), ("ready", ""), "an MCP server is ready")
    tap.eq(got["initialized"]["serverInfo"]["name"], "fixture",
           "what it said of itself is known")
    tap.ok("serving" in got["stderr"], "what it wrote is kept", got["stderr"])
    tap.eq(d.mcp(ep, "tools/list", "a\"b")["result"]["id"], "a\"b",
           "its tools, under the caller's own id")
    tap.eq(said(d.tool(ep, "echo", a=[1, {"b": None}])),
           '{"a": [1, {"b": null}]}', "a call")
    rows = json.loads(said(d.tool(ep, "seen")))
    tap.eq([r[0] for r in rows[:3]],
           ["initialize", "notifications/initialized", "greeted"],
           "it is greeted, and nothing overtakes that")
    tap.eq(rows[0][1], {
        "host": "127.0.0.1:8001", "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-session-id": None, "mcp-protocol-version": None},
        "what comes with the greeting")
    later = [r[1] for r in rows if r[0] in ("tools/list", "tools/call")]
    tap.eq({(r["mcp-session-id"], r["mcp-protocol-version"]) for r in later},
           {("s-" + "x" * 30, "2025-11-25")},
           "session and version come with everything else")
    tap.eq([r[1] for r in rows if r[0] == "GET"],
           [{"last-event-id": None, "mcp-session-id": "s-" + "x" * 30}],
           "one standing stream")
    got = d.mcp(ep, "tools/call", name="progress", arguments={},
                _meta={"progressToken": "tok/1"})
    tap.eq([m["params"] for m in got["messages"]],
           [{"progressToken": "tok/1", "progress": n} for n in range(3)],
           "progress, under the caller's token")
    got = d.tool(ep, "ask")
    tap.eq(json.loads(said(got))["error"]["code"], -32601,
           "a request of its own is answered")
    got = d.tool(ep, "resumed")
    tap.eq(([m["params"]["data"] for m in got["messages"]], said(got)),
           (["1", "2"], "the rest"), "a stream is taken up where it ended")
    tap.eq(said(d.tool(ep, "lingers")), "and on",
           "one that does not end holds nobody up")
    tap.eq(said(d.tool(ep, "stray")), "after",
           "an answer to nothing is dropped")
    tap.eq(said(d.tool(ep, "interim")), "late", "interim replies are none")
    tap.eq(said(d.tool(ep, "changed")), "told", "what comes unasked is read")
    for n in (1 << 16, 3 << 20, 12 << 20):
        tap.eq(len(said(d.tool(ep, "big", bytes=n))), n, f"{n} bytes")
    tap.eq(d.mcp(ep, "nope")["result"]["error"]["code"], -32601,
           "an error passes")
    tap.eq(d.tool(ep, "error")["result"]["error"],
           {"code": -32099, "message": "both"},
           "an error that is a status, too")
    for name, args, words in (
            ("status", {"status": 500, "body": '{"error":{"message":"ouch"}}'},
             "status 500: ouch"),
            ("status", {"status": 429}, "status 429"),
            ("status", {"status": 202}, "holds no answer"),
            ("cut", {}, "holds no answer")):
        got = d.tool(ep, name, **args)
        tap.ok(words in str(got), f"{name} {args}: refused with words", got)
        tap.eq(said(d.tool(ep, "echo", n=1)), '{"n": 1}', "and it lives")
    d.end(ep)


def plain(d):
    for mode in ("json", "bare"):
        ep, got = d.made(mode)
        tap.eq((got["state"], got["why"]), ("ready", ""), f"{mode}: ready")
        got = d.tool(ep, "verbatim", "i/1")
        tap.eq(got["result"]["result"],
               {"n": 1.5, "u": "\u00e9", "content": []}, f"{mode}: a call")
        got = d.worker(ep, "reset", '{"seed":7}')
        tap.eq(got["result"],
               {"observation": {}, "reward": None, "done": False},
               f"{mode}: a reset of what offers none")
        d.end(ep)
    ep, got = d.made("close")
    tap.eq(got["state"], "ready", "one that closes its output serves on")
    d.end(ep)


def mcp_breaks(d):
    ep, _ = d.made("sse")
    for name, words in (("died", "exit status 3"), ("crash", "signal 9"),
                        ("dropped", "closed without a reply"),
                        ("half", "closed before the reply was whole"),
                        ("html", "neither JSON nor a stream"),
                        ("noise", "no JSON-RPC message"),
                        ("long", "too long"), ("long_event", "too long"),
                        ("garbage", ""),
                        ("status", "its session is gone")):
        args = {"status": 404} if name == "status" else {}
        got = d.tool(ep, name, **args)
        tap.ok(isinstance(got, str) and words in got,
               f"{name}: its worker fails, and why is told", got)
        tap.ok("reset" in str(d.tool(ep, "echo")) or
               words in str(d.tool(ep, "echo")), f"{name}: it stays so")
        tap.eq(d.reset(ep)["state"], "ready", f"{name}: a reset helps")
    got = d.ask(ep, "mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                            "params": {"name": "silent"}}, 300)
    tap.ok("300 ms" in got[1], "one that does not answer in time", got)
    tap.eq(d.reset(ep)["state"], "ready", "a reset helps")
    d.end(ep)


def openenv(d):
    ep, got = d.made("openenv")
    tap.eq((got["state"], got["why"], got["initialized"]), ("ready", "", None),
           "an OpenEnv server is ready")
    tap.eq(d.worker(ep, "reset", '{"seed":7}')["result"],
           {"observation": {"seed": 7}, "reward": 0.0, "done": False},
           "a reset")
    tap.eq(d.step(ep, a=1)["result"],
           {"observation": {"seen": {"a": 1}}, "reward": 0.5, "done": False},
           "a step")
    tap.eq(d.worker(ep, "state")["result"],
           {"episode_id": "mine", "step_count": 1}, "its state")
    got = d.mcp(ep, "tools/list", "a\"b")["result"]
    tap.eq(got, {"jsonrpc": "2.0", "id": "a\"b", "result": {"tools": []}},
           "MCP in a frame")
    tap.eq(d.mcp(ep, "odd", 5)["result"]["id"], 5,
           "an answer bears the request's id, whatever it says")
    tap.ok("no JSON-RPC response" in str(d.mcp(ep, "none")),
           "one that is none is an error")
    tap.ok("no such move (EXECUTION_ERROR)" in
           str(d.step(ep, do="refuse")), "a refusal, in its words")
    got = d.step(ep, do="invalid")
    tap.ok("Field required" in str(got), "what is wrong with it, too", got)
    for n in (1 << 16, 3 << 20, 12 << 20):
        got = d.step(ep, do="big", bytes=n)
        tap.eq(len(got["result"]["observation"]["x"]), n, f"{n} bytes")
    tap.eq(len(d.step(ep, x="y" * 100000)["result"]["observation"]["seen"]
               ["x"]), 100000, "and as many the other way")
    got = d.step(ep, do="nan")["result"]
    tap.eq((got["observation"], got["reward"]), ({"x": None}, None),
           "what is no number is null")
    tap.eq(d.step(ep, do="ping")["result"]["observation"], {"seen": "pong"},
           "it is told that somebody is there")
    tap.eq(d.step(ep, do="pieces")["result"]["reward"], 1,
           "a message in pieces")
    d.end(ep)
    ep, got = d.made("slow")
    tap.eq(got["state"], "ready", "one that takes its time is waited for")
    d.end(ep)


def openenv_breaks(d):
    ep, _ = d.made("openenv")
    for what, words in (("died", "exit status 3"),
                        ("session", "Session failed (SESSION_ERROR)"),
                        ("closed", "1011"), ("dropped", "WebSocket"),
                        ("binary", "no JSON object"),
                        ("noise", "no JSON object"),
                        ("array", "no JSON object"),
                        ("typeless", "no JSON object"),
                        ("other", "answers nothing"),
                        ("number", "answers nothing"),
                        ("bytes", "1007"), ("masked", "1002"),
                        ("huge", "1009")):
        got = d.step(ep, do=what)
        tap.ok(isinstance(got, str) and words in got,
               f"{what}: its worker fails, and why is told", got)
        tap.eq(d.reset(ep)["state"], "ready", f"{what}: a reset helps")
    d.step(ep, do="twice")
    gate.until(lambda: d.worker(ep)["state"] == "failed", "its failure")
    got = d.step(ep)
    tap.ok("answers nothing" in str(got), "an answer too many", got)
    tap.eq(d.reset(ep)["state"], "ready", "a reset helps")
    got = d.ask(ep, "step", {"do": "silent"}, 300)
    tap.ok("300 ms" in got[1], "one that does not answer in time", got)
    tap.eq(d.reset(ep)["state"], "ready", "a reset helps")
    d.end(ep)


def never(d):
    for mode, (_, words) in NEVER.items():
        ep, got = d.made(mode)
        if mode in ("full", "eager"):
            got = d.worker(ep, "reset")
            tap.ok(words in str(got), f"{mode}: failed, and why", got)
        else:
            tap.ok(got["state"] == "failed" and words in got["why"],
                   f"{mode}: failed, and why", got)
        if mode == "early":
            tap.ok("no licence found" in got["stderr"],
                   "what it said is told", got)
        d.end(ep)


def main():
    only = os.environ.get("ONLY")
    with tempfile.TemporaryDirectory(prefix="sp-worker-http-") as folder, \
            worker.Daemon(folder, environments()) as d:
        for test in (mcp, plain, mcp_breaks, openenv, openenv_breaks, never):
            if not only or test.__name__ in only.split():
                test(d)
        rc, out, _ = d.ctl("episodes")
        tap.eq((rc, len(out.splitlines())), (0, 1), "no episode is left")
    tap.done()


main()

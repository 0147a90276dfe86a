#!/usr/bin/python3
"""
Servers that are not ours as workers, in sandboxes and unchanged: OpenEnv's, of
two versions, and that of the MCP SDK over Streamable HTTP.
"""
import glob
import json
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import peer  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402
import worker  # noqa: E402
from worker import said  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
VENVS = {name: peer.need(name) for name in ("openenv-0.10", "openenv-0.3")}
MCP = peer.need("mcp")
NODE = os.path.realpath(glob.glob(os.path.join(
    MCP, "node_modules", "node*", "bin", "node"))[0])
START = "worker_start_timeout 60s;"
TOKEN = "orchestrator-token-of-this-test"


def environments():
    rows = {}
    for name, venv in VENVS.items():
        for what in ("moves", "tools"):
            rows[f"{what}-{name.rsplit('.', 1)[1]}"] = (
                f"worker http 8001 {venv}/bin/python "
                f"{HERE}/openenv_server.py 8001 {what}; {START}")
    rows["sdk"] = (f"worker http 8002 {NODE} {HERE}/mcp_fixtures.mjs http "
                   f"8002; {START}")
    return rows


# OpenEnv's client at the orchestrator's door: three sessions at once
CLIENT = """
import asyncio, json, sys
from openenv.core.generic_client import GenericEnvClient

async def session(seed):
    c = GenericEnvClient(base_url=sys.argv[1],
                         headers={"Authorization": "Bearer " + sys.argv[2]})
    await c.connect()
    out = [(await c.reset(seed=seed)).observation["at"]]
    for n in range(3):
        await asyncio.sleep(0.05)
        r = await c.step({"by": [seed, n]})
    out += [r.observation["at"], r.done, (await c.state())["step_count"]]
    try:
        await c.step({"by": [1]})
    except RuntimeError as e:
        out.append(str(e))
    await c.close()
    return out

async def main():
    got = await asyncio.gather(*(session(n) for n in (1, 2, 3)))
    print(json.dumps(got))

asyncio.run(main())
"""


def sessions(d, name):
    r = peer.run([f"{VENVS['openenv-0.10']}/bin/python", "-c", CLIENT,
                  f"http://127.0.0.1:{d.port}/{name}", TOKEN])
    got = json.loads(r.stdout) if r.returncode == 0 else []
    tap.ok(len(got) == 3, f"{name}: three of OpenEnv's clients at once",
           r.stdout + r.stderr)
    for seed, (first, last, done, steps, error) in enumerate(got, 1):
        tap.eq((last, done, steps),
               ([first[0] + 3 * seed, first[1] + 3], False, 3),
               f"{name}: session {seed} is its own")
        tap.ok("Environment operation failed" in error,
               f"{name}: what fails is an error", error)
    gate.until(lambda: len(d.ctl("episodes")[1].splitlines()) == 1,
               "the end of the episodes with their clients")


def moves(d, name):
    ep, got = d.made(name)
    tap.eq((got["state"], got["why"]), ("ready", ""), f"{name}: ready")
    got = d.worker(ep, "reset", '{"seed":7,"episode_id":"mine"}')["result"]
    at = got["observation"]["at"]
    tap.eq((len(at), got["done"]), (2, False), f"{name}: a reset")
    got = d.step(ep, by=[1, 2])["result"]
    tap.eq(got["observation"]["at"], [at[0] + 1, at[1] + 2],
           f"{name}: a step")
    tap.eq(d.worker(ep, "state")["result"],
           {"episode_id": "mine", "step_count": 1}, f"{name}: its state")
    got = d.step(ep, by=[1])
    tap.ok("a move has two numbers" in str(got) and "EXECUTION_ERROR" in
           str(got), f"{name}: what the environment raises is told", got)
    got = d.step(ep, nonsense=1)
    tap.ok("VALIDATION_ERROR" in str(got), f"{name}: an action that is none",
           got)
    got = d.step(ep, by=[-at[0] - 1, -at[1] - 2])["result"]
    tap.eq((got["reward"], got["done"]), (0.0, True), f"{name}: its end")
    tap.eq(d.reset(ep)["state"], "ready", f"{name}: a reset of the sandbox")
    got = d.worker(ep, "reset", '{"seed":7}')["result"]
    tap.eq(got["observation"]["at"], at, f"{name}: and all is as it was")
    rc, _, _ = d.ctl("exec", "--in", ep, "--worker", "--", "/usr/bin/pkill",
                     "-9", "python")
    got = d.step(ep, by=[0, 0])
    tap.ok("signal 9" in str(got), f"{name}: killed, and that is told", got)
    d.end(ep)


def tools(d, name):
    ep, got = d.made(name)
    tap.eq((got["state"], got["why"]), ("ready", ""), f"{name}: ready")
    tap.ok("observation" in d.worker(ep, "reset")["result"],
           f"{name}: a reset")
    got = d.mcp(ep, "tools/list", "x")["result"]
    tap.eq((got["id"], [t["name"] for t in got["result"]["tools"]]),
           ("x", ["echo_message"]), f"{name}: its tools")
    got = d.tool(ep, "echo_message", message="hi")
    tap.ok("hi" in json.dumps(got["result"]["result"]), f"{name}: a call", got)
    got = d.step(ep, type="call_tool", tool_name="echo_message",
                 arguments={"message": "ho"})
    tap.ok("ho" in json.dumps(got), f"{name}: the same as a step", got)
    d.end(ep)


def sdk(d):
    ep, got = d.made("sdk")
    tap.eq((got["state"], got["why"]), ("ready", ""), "sdk: ready")
    tap.eq((got["initialized"]["serverInfo"]["name"],
            got["initialized"]["protocolVersion"]),
           ("fixtures", "2025-11-25"), "sdk: what it is")
    names = [t["name"] for t in
             d.mcp(ep, "tools/list")["result"]["result"]["tools"]]
    tap.ok("echo" in names and "test_sampling" in names, "sdk: its tools",
           names)
    tap.eq(said(d.tool(ep, "echo", text="hi")), "hi", "sdk: a call")
    got = d.mcp(ep, "tools/call", "p", name="test_tool_with_progress",
                arguments={}, _meta={"progressToken": "mine"})
    tap.eq([(m["params"]["progressToken"], m["params"]["progress"])
            for m in got["messages"]],
           [("mine", n) for n in (0, 50, 100)], "sdk: progress")
    got = d.tool(ep, "test_tool_with_logging")
    tap.eq([m["params"]["data"] for m in got["messages"]],
           ["started", "processing", "completed"], "sdk: its log")
    got = d.tool(ep, "test_sampling", prompt="x")["result"]["result"]
    tap.ok(got["isError"], "sdk: its requests are answered", got)
    got = d.mcp(ep, "resources/read", uri="test://static-text")
    tap.eq(got["result"]["result"]["contents"][0]["text"], "static text",
           "sdk: a resource")
    got = d.mcp(ep, "prompts/get", name="test_simple_prompt")
    tap.eq(got["result"]["result"]["messages"][0]["content"]["text"],
           "A simple prompt.", "sdk: a prompt")
    got = d.tool(ep, "no such")["result"]
    tap.ok("error" in got or got["result"]["isError"], "sdk: no such tool",
           got)
    for n in range(20):
        if said(d.tool(ep, "echo", text=str(n))) != str(n):
            tap.ok(False, f"sdk: call {n}")
    tap.eq(d.reset(ep)["state"], "ready", "sdk: a reset")
    tap.eq(said(d.tool(ep, "echo", text="again")), "again", "sdk: and again")
    d.end(ep)


def main():
    walls.needed()
    with tempfile.TemporaryDirectory(prefix="sp-peer-worker-") as folder, \
            worker.Daemon(folder, environments(),
                          paths=[HERE, MCP, *VENVS.values()],
                          env=f"SP_MCP_MODULES={MCP}", episodes=3,
                          locations=" ".join(
                              f"location /{n}/ws {{ lifecycle; environment {n}"
                              "; grace 50ms; token env:SP_T; }"
                              for n in environments()
                              if n.startswith("moves")),
                          environ={"SP_T": TOKEN}) as d:
        for name in environments():
            if name.startswith("moves"):
                moves(d, name)
                sessions(d, name)
            elif name.startswith("tools"):
                tools(d, name)
        sdk(d)
        rc, out, _ = d.ctl("episodes")
        tap.eq((rc, len(out.splitlines())), (0, 1), "no episode is left")
    tap.done()


main()

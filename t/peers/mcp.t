#!/usr/bin/python3
"""Real MCP clients at the agent's door: what they see is what the worker says.

The conformance suite gives the same results there as at the server itself.
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import inside  # noqa: E402
import peer  # noqa: E402
import tap  # noqa: E402
from upstream import Scripted  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
MCP = peer.need("mcp")
MODULES = os.path.join(MCP, "node_modules")
NODE = os.path.realpath(glob.glob(os.path.join(
    MODULES, "node*", "bin", "node"))[0])
FIXTURES = os.path.join(HERE, "mcp_fixtures.mjs")


def direct(folder):
    """The server by itself, over HTTP."""
    port = os.path.join(folder, "port")
    p = subprocess.Popen([NODE, FIXTURES, "http", port],
                         env={"SP_MCP_MODULES": MCP},
                         stdin=subprocess.DEVNULL)
    gate.until(lambda: os.path.exists(port), "the server's port")
    with open(port, encoding="utf-8") as f:
        return p, f"http://127.0.0.1:{f.read()}/mcp"


def conformance(url, folder):
    """{check: [statuses]} of every scenario that there is for servers."""
    peer.run([NODE, os.path.join(MODULES, "@modelcontextprotocol",
                                 "conformance", "dist", "index.js"),
              "server", "--url", url, "--suite", "all", "-o", folder],
             cwd=folder, env={"PATH": "/usr/bin:/bin", "HOME": folder})
    out = {}
    for path in sorted(glob.glob(os.path.join(folder, "*", "checks.json"))):
        # each folder's name ends in the time
        name = re.sub(r"-\d{4}-\d\d-\d\dT[^T]*$", "",
                      os.path.basename(os.path.dirname(path)))
        with open(path, encoding="utf-8") as f:
            out[name] = [(c["id"], c["status"], c.get("errorMessage"))
                         for c in json.load(f)]
    return out


def compare(d, folder):
    p, url = direct(folder)
    try:
        os.mkdir(folder + "/direct")
        os.mkdir(folder + "/door")
        want = conformance(url, folder + "/direct")
    finally:
        p.terminate()
        p.wait()
    got = conformance(f"http://127.0.0.1:{d.port}/mcp", folder + "/door")
    tap.ok(len(want) >= 30 and sum(
        c[1] == "SUCCESS" for x in want.values() for c in x) >= 38,
        f"the server by itself: {len(want)} scenarios", want)
    for name, checks in want.items():
        tap.eq([c[:2] for c in got.get(name, [])], [c[:2] for c in checks],
               f"conformance at the door: {name}")


def inspector(d, folder):
    run = os.path.join(MODULES, "@modelcontextprotocol", "inspector",
                       "clients", "launcher", "build", "index.js")
    url = f"http://127.0.0.1:{d.port}/mcp"
    env = {"PATH": os.path.dirname(NODE) + ":/usr/bin:/bin", "HOME": folder}
    r = peer.run([NODE, run, "--cli", url, "--transport", "http", "--method",
                  "tools/list"], cwd=folder, env=env)
    tap.ok(r.returncode == 0 and '"echo"' in r.stdout and
           "env.secret" not in r.stdout, "the inspector lists tools",
           r.stdout[-800:] + r.stderr[-800:])
    r = peer.run([NODE, run, "--cli", url, "--transport", "http", "--method",
                  "tools/call", "--tool-name", "echo", "--tool-arg",
                  "text=hello"], cwd=folder, env=env)
    tap.ok(r.returncode == 0 and '"hello"' in r.stdout,
           "the inspector calls one", r.stdout[-800:] + r.stderr[-800:])


def opencode(d, folder):
    """Its tools are those of the door."""
    program = os.path.join(peer.need("opencode"), "node_modules", ".bin",
                           "opencode")
    config = {"autoupdate": False, "share": "disabled", "model": "sp/m",
              "mcp": {"env": {"type": "remote", "enabled": True,
                              "oauth": False,
                              "url": f"http://127.0.0.1:{d.port}/mcp"}},
              "provider": {"sp": {
                  "npm": "@ai-sdk/openai-compatible", "name": "sp",
                  "options": {"baseURL": f"http://127.0.0.1:{d.port}/v1",
                              "apiKey": "none"},
                  "models": {"m": {"name": "m", "tool_call": True, "limit": {
                      "context": 32768, "output": 4096}}}}}}
    os.mkdir(folder + "/home")
    r = peer.run([program, "mcp", "list"], cwd=folder, env={
        "PATH": os.environ["PATH"], "HOME": folder + "/home",
        "OPENCODE_CONFIG_CONTENT": json.dumps(config),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1"})
    said = r.stdout + r.stderr
    tap.ok(r.returncode == 0 and "env" in said and "connected" in said,
           "OpenCode connects", said[-1500:])
    r = peer.run([program, "run", "--format", "json", "--auto", "--title",
                  "t", "Say hello."], cwd=folder, env={
        "PATH": os.environ["PATH"], "HOME": folder + "/home",
        "OPENCODE_CONFIG_CONTENT": json.dumps(config),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"})
    tap.ok(r.returncode == 0, "OpenCode runs",
           r.stdout[-1500:] + r.stderr[-1500:])
    names = {t["function"]["name"] for x in d.records()
             for t in x["request"].get("tools", [])}
    tap.ok("env_echo" in names and not [n for n in names if "secret" in n],
           "its model is told of the door's tools", sorted(names))


def main():
    with tempfile.TemporaryDirectory(prefix="sp-mcp-", dir="/var/tmp") as top:
        os.chmod(top, 0o755)
        s = Scripted()
        d = inside.Daemon(
            top, s.url, see=[MCP, HERE, NODE], also=(
                f"worker stdio {NODE} {FIXTURES} stdio;"),
            bounds=f"env SP_MCP_MODULES={MCP}; memory 2g;",
            locations="location /mcp { mcp_agent; environment work; "
                      "tools test_* echo; }\n"
                      "location /v1 { llm_intercept; upstream u; capture c; "
                      "keys open; }",
            env={"SP_TEST_KEY": "k" * 20})
        with s, d:
            d.create()
            r = peer.run([NODE, os.path.join(HERE, "mcp_client.mjs"),
                          f"http://127.0.0.1:{d.port}/mcp"],
                         env={"SP_MCP_MODULES": MCP})
            peer.results("the SDK's client", r)
            compare(d, top)
            inspector(d, top)
            opencode(d, top)


main()
tap.done()

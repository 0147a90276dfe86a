#!/usr/bin/python3
"""OpenEnv's clients, the current and the 0.3 line, drive environments."""
import json
import os
import socket
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
import walls  # noqa: E402

TOKEN = "orchestrator-token-of-this-test"
WORKER = r"""
import json, sys
steps = 0
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    p = m.get("params", {})
    out = {"jsonrpc": "2.0", "id": m["id"]}
    if m["method"] == "initialize":
        out["result"] = {"protocolVersion": p["protocolVersion"],
                         "capabilities": {},
                         "serverInfo": {"name": "x", "version": "1"}}
    elif m["method"] == "env/reset":
        out["result"] = {"observation": {"seed": p.get("seed")},
                         "reward": None, "done": False}
    elif m["method"] == "env/state":
        out["result"] = {"episode_id": None, "step_count": steps}
    elif m["method"] != "env/step":
        out["error"] = {"code": -32601, "message": "Method not found"}
    elif p.get("type") == "refuse":
        out["error"] = {"code": -32000, "message": "no such move"}
    else:
        steps += 1
        seen = {"seen": p}
        if p.get("type") == "list_tools":
            seen = {"tools": [{"name": "echo", "description": "echo",
                               "input_schema": {"type": "object"}}]}
        elif p.get("type") == "call_tool":
            seen = {"tool_name": p["tool_name"], "result": p["arguments"],
                    "error": None}
        elif "big" in p:
            seen = {"x": "x" * p["big"]}
        out["result"] = {"observation": seen, "reward": steps / 2,
                         "done": steps >= 3}
    print(json.dumps(out), flush=True)
"""

HERE = os.path.join(ROOT, "t", "peers")
SERVER = os.path.join(HERE, "openenv_server.py")


def client(venv, url, what):
    """What MCPToolClient gets there."""
    r = peer.run([f"{venv}/bin/python", f"{HERE}/openenv_session.py", url,
                  TOKEN, what])
    try:
        return json.loads(r.stdout)
    except ValueError:
        return r.stdout + r.stderr[-3000:]


def direct(venv):
    """The same server, with nothing before it."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]

    def answers():
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    with subprocess.Popen([f"{venv}/bin/python", SERVER, str(port), "tools"],
                          stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as p:
        try:
            gate.until(answers, "OpenEnv's server")
            return client(venv, f"http://127.0.0.1:{port}", "one")
        finally:
            p.kill()


def sessions(g, venv):
    """The current MCPToolClient: /mcp and /ws by one session."""
    want = direct(venv)
    tap.ok(isinstance(want, dict) and want["tools"] == ["echo_message"],
           "MCPToolClient directly", want)
    for name in ("own", "all"):
        url = f"http://127.0.0.1:{g.port}/{name}"
        tap.eq(client(venv, url, "one"), want,
               f"MCPToolClient, {name}: as directly")
        got = client(venv, url, "tools")
        tap.eq(got, ["echo_message", "hi"], f"{name}: without a WebSocket")
    # those that closed have left their places
    got = client(venv, f"http://127.0.0.1:{g.port}/own", "two")
    tap.eq(got, ["s0", "s1", "full"], "own: two at once, and no third")


folders = [(n, peer.need(n)) for n in ("openenv-0.10", "openenv-0.3")]
walls.needed()
with tempfile.TemporaryDirectory(dir="/var/tmp") as tmp:
    os.chmod(tmp, 0o755)
    with open(os.path.join(tmp, "worker.py"), "w", encoding="utf-8") as f:
        f.write(WORKER)
    uid = 400000 + os.getpid() % 1000 * 8192
    text = ""
    for i, (name, n) in enumerate((("many", 3), ("single", 1))):
        text += (
            f"environment {name} {{ episodes {n}; workspace_size 64m;\n"
            f"  worker stdio /usr/bin/python3 -X utf8 {tmp}/worker.py;\n"
            f"  sandbox {{ read_only {inside.HOST} {tmp}; read_write /tmp;\n"
            "    memory 256m; tmp_size 64m; shm_size 16m; timeout 30s;\n"
            f"    uid {uid + i * 4096} 4096; }} }}\n")
    text += (
        "server { listen 127.0.0.1:0;\n"
        "  location /ws { lifecycle; environment many; token env:SP_T; }\n"
        "  location /single/ws { lifecycle; environment single;\n"
        "    token env:SP_T; }\n")
    # OpenEnv's own server, an episode for each session and one for all
    for i, (name, n) in enumerate((("own", 2), ("all", 1)), 2):
        text = (
            f"environment {name} {{ episodes {n}; workspace_size 64m;\n"
            f"  worker http 8001 {folders[0][1]}/bin/python {SERVER} 8001"
            " tools;\n  worker_start_timeout 120s;\n"
            f"  sandbox {{ read_only {inside.HOST} {folders[0][1]} {HERE};\n"
            "    read_write /var/tmp; env TMPDIR=/var/tmp; memory 512m;\n"
            "    tmp_size 64m; shm_size 16m; timeout 120s;\n"
            f"    uid {uid + i * 4096} 4096; }} }}\n") + text + (
            f"  location /{name}/ws {{ lifecycle; environment {name};\n"
            f"    token env:SP_T; shared {'on' if n == 1 else 'off'}; }}\n"
            f"  location /{name}/mcp {{ mcp_agent; environment {name};\n"
            "    tools echo_*; }\n")
    text += "}\n"
    with gate.Gate(text, env={"SP_T": TOKEN}) as g:
        for name, folder in folders:
            peer.results(name, peer.run([
                os.path.join(folder, "bin", "python"),
                os.path.join(ROOT, "t", "peers", "openenv_client.py"),
                f"http://127.0.0.1:{g.port}", TOKEN,
                f"http://127.0.0.1:{g.port}/single",
                "steps" if name.endswith("0.3") else "http"]))
        sessions(g, folders[0][1])
tap.done()

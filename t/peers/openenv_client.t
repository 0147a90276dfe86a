#!/usr/bin/python3
"""OpenEnv's clients, the current and the 0.3 line, drive environments."""
import os
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
        "    token env:SP_T; } }\n")
    with gate.Gate(text, env={"SP_T": TOKEN}) as g:
        for name, folder in folders:
            peer.results(name, peer.run([
                os.path.join(folder, "bin", "python"),
                os.path.join(ROOT, "t", "peers", "openenv_client.py"),
                f"http://127.0.0.1:{g.port}", TOKEN,
                f"http://127.0.0.1:{g.port}/single",
                "steps" if name.endswith("0.3") else "http"]))
tap.done()

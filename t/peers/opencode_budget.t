#!/usr/bin/python3
"""OpenCode whose session has a budget: its loop ends, and so does it, well."""
import http.client
import json
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import peer  # noqa: E402
import tap  # noqa: E402
from upstream import Scripted  # noqa: E402

PROMPT = "Write hello.py, which prints a greeting, and run it.\n"


def config(url, key):
    return {"autoupdate": False, "share": "disabled", "model": "sp/m",
            "provider": {"sp": {
                "npm": "@ai-sdk/openai-compatible", "name": "sp",
                "options": {"baseURL": url + "/v1", "apiKey": key},
                "models": {"m": {"name": "m", "tool_call": True, "limit": {
                    "context": 32768, "output": 4096}}}}}}


def work(program, url, key, d):
    os.makedirs(f"{d}/work")
    os.makedirs(f"{d}/home")
    with open(f"{d}/opencode.json", "w") as f:
        json.dump(config(url, key), f)
    env = {"PATH": os.environ["PATH"], "HOME": f"{d}/home",
           "LC_ALL": "C.UTF-8", "OPENCODE_CONFIG": f"{d}/opencode.json",
           "OPENCODE_DISABLE_AUTOUPDATE": "1",
           "OPENCODE_DISABLE_MODELS_FETCH": "1",
           "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
           "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
    with open(f"{d}/prompt", "w") as f:
        f.write(PROMPT)
    with open(f"{d}/prompt") as f:
        return peer.run([program, "run", "--format", "json", "--auto"],
                        cwd=f"{d}/work", env=env, stdin=f)


ADMIN = "admin-token-0123456789"


def admin(g, method, path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", g.port, timeout=60)
    c.request(method, path, json.dumps(body) if body else None,
              {"Authorization": f"Bearer {ADMIN}"})
    return json.loads(c.getresponse().read())


program = os.path.join(peer.need("opencode"), "node_modules", ".bin",
                       "opencode")
with Scripted() as model, peer.gate.Gate(
        f"upstream u {{ server {model.url}/v1; }}\n"
        "capture c { level tokens; }\n"
        "server { listen 127.0.0.1:0;\n"
        "location /v1 { llm_intercept; upstream u; capture c; }\n"
        "location /sessions { sessions; token env:ADMIN; } }",
        env={"ADMIN": ADMIN}) as g, tempfile.TemporaryDirectory() as d:
    # a title, and one step of the three that the task takes
    s = admin(g, "POST", "/sessions", {"id": "short", "max_model_calls": 2})
    r = work(program, s["base_url"][:-3], s["key"], d)
    said = [json.loads(x) for x in r.stdout.splitlines()
            if x.startswith("{")]
    tap.ok(r.returncode == 0, "OpenCode ends with status 0",
           r.stdout[-1500:] + r.stderr[-1500:])
    tap.ok(not [x for x in said if x["type"] == "error"],
           "it met no error")
    texts = [x["part"]["text"] for x in said if x["type"] == "text"]
    tap.ok(texts and "Step budget exhausted" in texts[-1],
           "it was told why", texts)
    s = admin(g, "DELETE", "/sessions/short")
    tap.eq((s["outcome"], s["model_calls"], s["budget_stop_count"] >= 1),
           ("budget", 2, True), "the session says so")
    stops = [x for x in g.records("short")
             if x["findings"] == ["budget_stop"]]
    tap.eq([(x["response"], x["metadata"]["trainable"]) for x in stops],
           [(None, False)] * s["budget_stop_count"],
           "the turn is marked, and not one to train on")
    r = peer.run([peer.gate.program("sallyportctl"), "trace", "--train",
                  g.trace_path("short")])
    tap.ok("Step budget" not in r.stdout, "nor does a trainer get to see it")
tap.done()

#!/usr/bin/python3
"""OpenCode does a task through sallyport, and notices nothing of it."""
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


def config(url):
    return {"autoupdate": False, "share": "disabled", "model": "sp/m",
            "provider": {"sp": {
                "npm": "@ai-sdk/openai-compatible", "name": "sp",
                "options": {"baseURL": url + "/v1", "apiKey": "none"},
                "models": {"m": {"name": "m", "tool_call": True, "limit": {
                    "context": 32768, "output": 4096}}}}}}


def work(program, url, d):
    os.makedirs(f"{d}/work")
    os.makedirs(f"{d}/home")
    with open(f"{d}/opencode.json", "w") as f:
        json.dump(config(url), f)
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


def outcome(r, d):
    said = [json.loads(x) for x in r.stdout.splitlines()
            if x.startswith("{")]
    tap.ok(r.returncode == 0, "OpenCode ends with status 0",
           r.stdout[-1500:] + r.stderr[-1500:])
    tap.ok(os.path.exists(f"{d}/work/hello.py"), "it wrote hello.py")
    ran = [x["part"]["state"] for x in said if x["type"] == "tool_use"
           and x["part"]["tool"] == "bash"]
    tap.ok(len(ran) == 1 and ran[0]["status"] == "completed"
           and "Hello" in ran[0]["output"], "it ran it", ran)
    tap.ok(not [x for x in said if x["type"] == "error"],
           "it met no error")


def trace(g):
    records = g.records()
    odd = [t["turn"] for t in records
           if not (t["aligned"] and t["complete"] and not t["findings"]
                   and len(t["completion_tokens"])
                   == len(t["completion_token_ids"])
                   == len(t["per_token_logps"])
                   == t["usage"]["completion_tokens"] > 0)]
    tap.ok(len(records) == 4 and not odd, "four turns: as many tokens as ids "
           "as log-probabilities", (len(records), odd))
    agent = [t for t in records if t["metadata"]["has_tools"]]
    calls = [c["function"]["name"] for t in agent
             for c in t["response"]["choices"][0]["message"]
             .get("tool_calls", [])]
    tap.eq(calls, ["write", "bash"], "the trace has the calls, in order")
    agent.sort(key=lambda t: t["turn"])
    grown = all(b["prompt_token_ids"][:len(a["prompt_token_ids"])
                                      + len(a["completion_token_ids"])]
                == a["prompt_token_ids"] + a["completion_token_ids"]
                for a, b in zip(agent, agent[1:]))
    tap.ok(grown, "each prompt begins with the tokens of the turn before")
    r = peer.run([peer.gate.program("sallyportctl"), "trace", "--verify",
                  g.trace_path()])
    tap.ok(r.returncode == 0, "sallyportctl finds the chain good",
           r.stdout + r.stderr)


def bytes_of(down, up):
    """What went down is what came from above, less what was not asked for."""
    sent = {peer.identity(r.body): r for r in up.replies()}
    got = [r for r in down.replies() if r.status == 200]
    bad = []
    for r in got:
        above = sent.get(peer.identity(r.body))
        if above is None or not r.whole or not above.whole:
            bad.append("a reply without its like above")
            continue
        want = [peer.stripped(d, True) for d in peer.data_of(above.body)]
        if peer.data_of(r.body) != [w for w in want if w is not None]:
            bad.append(f"{r.body[:600]!r}\nfrom {above.body[:600]!r}")
    tap.ok(len(got) == 4 and not bad, "byte for byte what the upstream sent, "
           "less log-probabilities and ids", "\n".join(bad) or len(got))
    tap.ok(all(b'"logprobs":{' in r.body and b'"token_ids":' in r.body
               for r in sent.values()), "which the upstream did send")


program = os.path.join(peer.need("opencode"), "node_modules", ".bin",
                       "opencode")
with Scripted() as model:
    up = peer.Relay(model.port)
    with peer.door(up.url) as g, tempfile.TemporaryDirectory() as d:
        down = peer.Relay(g.port)
        outcome(work(program, down.url, d), d)
        trace(g)
        bytes_of(down, up)
tap.done()

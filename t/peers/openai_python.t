#!/usr/bin/python3
"""The OpenAI Python SDK, an old and a new one, through sallyport."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import peer  # noqa: E402
import tap  # noqa: E402
from upstream import Scripted  # noqa: E402

SLOW = {"status": 429, "headers": {"retry-after": "1", "x-request-id": "r1"},
        "body": {"error": {"message": "slow down", "type": "rate"}}}
SOME = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"some\"}," \
       "\"finish_reason\":null}]}\n\n"
SCRIPT = {"then": "default", "turns": [
    {"name": "slow down", **SLOW},
    {"name": "slow down once", "repeat": 1, **SLOW},
    {"name": "slow down once", "steps": [{"text": "again"}]},
    {"name": "error in the stream", "steps": [
        {"raw": SOME}, {"raw": 'data: {"error":{"message":"gone","code":'
                        '502}}\n\n'}, {"done": True}]},
    {"name": "cut", "steps": [{"raw": SOME}, {"cut": "rst"}]},
    {"name": "empty", "steps": [{"raw": "data: [DONE]\n\n"}]},
]}

folders = [(n, peer.need(n)) for n in ("openai-2", "openai-3")]
env = {k: v for k, v in os.environ.items()
       if k.startswith(("LC_", "PATH", "HOME", "PYTHONDONT"))}
for name, folder in folders:
    with Scripted(script=SCRIPT) as model, peer.door(model.url) as g:
        peer.results(name, peer.run([
            os.path.join(folder, "bin", "python"),
            os.path.join(ROOT, "t", "peers", "openai_python.py"),
            f"http://127.0.0.1:{g.port}/v1", model.url + "/v1"], env=env))
        turns = g.records()
        odd = [t["turn"] for t in turns if t["complete"]
               and not (t["aligned"] and t["per_token_logps"])]
        tap.ok(len(turns) > 15 and not odd,
               f"{name}: whatever was asked, the trace has every token",
               (len(turns), odd))
tap.done()

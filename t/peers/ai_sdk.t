#!/usr/bin/python3
"""The AI SDK with its OpenAI-compatible provider, through sallyport."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import peer  # noqa: E402
import tap  # noqa: E402
from upstream import Scripted  # noqa: E402

SLOW = {"status": 429, "headers": {"retry-after": "1"},
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
    {"name": "long", "pace": 50, "steps": [{"text": "word " * 5000}]},
]}

folder = peer.need("ai-sdk")
with Scripted(script=SCRIPT) as model, peer.door(model.url) as g:
    peer.results("ai", peer.run([
        "node", os.path.join(ROOT, "t", "peers", "ai_sdk.mjs"), folder,
        f"http://127.0.0.1:{g.port}/v1", model.url + "/v1"]))
    aborted = gate.until(
        lambda: [t for t in g.records() if t["aborted"]], "the aborted turn")
    tap.ok(len(aborted) == 1 and not aborted[0]["complete"]
           and len(aborted[0]["completion_tokens"]) >= 3,
           "the aborted call is on file, as far as it came", aborted)
    gate.until(lambda: [e for e in model.log("end")
                        if e["how"] == "client_closed"],
               "the end of the aborted call upstream")
    tap.ok(True, "and the upstream was let go")
    whole = [t for t in g.records() if t["complete"]]
    tap.ok(all(t["aligned"] for t in whole) and len(whole) >= 5,
           "whole turns have every token", len(whole))
tap.done()

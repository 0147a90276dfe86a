"""
What `worker frames` sends is what the OpenEnv that is installed sends:
openenv_frames.py BOOTSTRAP.  Prints a line of JSON for each check.
"""
import datetime
import json
import os
import subprocess
import sys

from fastapi.testclient import TestClient
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Move(Action):
    metadata_too: bool


class Seen(Observation):
    at: datetime.date = datetime.date(2020, 2, 3)
    far: float = float("inf")


class Env(Environment):
    def __init__(self):
        super().__init__()
        self._state = State(episode_id="e", step_count=0)

    def reset(self, seed=None, episode_id=None, **_):
        return Seen(metadata={"hello": 1}, reward=0.5)

    def step(self, action, timeout_s=None, **_):
        return Seen(metadata={"on": datetime.date(2020, 2, 4)}
                    if action.metadata_too else {}, done=True)

    @property
    def state(self):
        return self._state


ASKED = (("reset", {}), ("step", {"metadata_too": True}),
         ("step", {"metadata_too": False}))


def check(ok, what, detail=None):
    print(json.dumps({"ok": bool(ok), "what": what, "detail": repr(detail)}))


def by_server():
    client = TestClient(create_fastapi_app(Env, Move, Seen))
    with client.websocket_connect("/ws") as ws:
        for kind, data in ASKED:
            ws.send_json({"type": kind, "data": data})
            yield ws.receive_json()["data"]


def by_frames():
    """Its answers, and what it said on standard error."""
    rpc = [{"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
           {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": {"name": "x", "arguments": {}}}]
    lines = [{"factory": "openenv_frames:Env", "agent_policy": None,
              "action_class": "openenv_frames:Move"}]
    lines += [{"operation": o, "data": d} for o, d in ASKED]
    lines += [{"operation": "mcp", "data": d} for d in rpc]
    here = os.path.dirname(os.path.abspath(__file__))
    r = subprocess.run([sys.executable, "-B", sys.argv[1]], text=True,
                       input="".join(json.dumps(x) + "\n" for x in lines),
                       capture_output=True, timeout=300, check=True,
                       env={**os.environ, "PYTHONPATH": here})
    return [json.loads(x)["result"] for x in r.stdout.splitlines()], r.stderr


def main():
    got, said = by_frames()
    want = list(by_server())
    for (kind, data), a, b in zip(ASKED, got[1:4], want):
        check(a == b, f"{kind} {data} is answered as its own server does",
              (a, b))
    check(("metadata" in want[0]) == ("metadata" in want[0]["observation"]),
          "metadata stands in both places or in none", want)
    print("metadata of this line:", want[0].get("metadata"))
    check(got[4].get("result") == {"tools": []},
          "an environment whose actions are no tools has none", got[4])
    check(got[5].get("error", {}).get("code") == -32602,
          "and a call is one of an unknown tool", got[5])
    check("Traceback" not in said, "which is no failure in its log", said)


if __name__ == "__main__":
    main()

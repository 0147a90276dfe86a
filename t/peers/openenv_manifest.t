#!/usr/bin/python3
"""openenv.yaml of an unmodified OpenEnv environment, and OpenEnv's own client:
its app as the worker over HTTP, then the environment itself by frames."""
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
import peer  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402

PYTHON = os.path.join(peer.need("openenv-0.10"), "bin", "python3")
TOKENS = {f"OPENENVD_{who}_TOKEN": f"token-of-{who.lower()}-here"
          for who in ("ORCHESTRATOR", "GRADER", "OBSERVER")}
APP = '''
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class EchoAction(Action):
    message: str


class EchoObservation(Observation):
    echoed: str = ""


class EchoEnv(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = State(episode_id=None, step_count=0)

    def reset(self, seed=None, episode_id=None, **kw):
        self._state = State(episode_id=episode_id, step_count=0)
        return EchoObservation(echoed=f"seed {seed}", done=False, reward=0.0,
                               metadata={"hello": 1})

    def step(self, action, timeout_s=None, **kw):
        self._state.step_count += 1
        return EchoObservation(echoed=action.message, done=False,
                               reward=float(len(action.message)))

    @property
    def state(self):
        return self._state


app = create_app(EchoEnv, EchoAction, EchoObservation, env_name="echo")
'''
MANIFEST = """
spec_version: 1
name: echo_env
type: space
runtime: fastapi
app: server.app:app
port: 8000
openenvd:
  enabled: true
  surfaces:
    orchestrator: {allow_lifecycle: true}
    agent: {tools: ["echo*"]}
    grader: {tools: ["*"], fs_read: ["/workspace/**"]}
    observer: {stream: [process]}
"""
CLIENT = '''
import asyncio, json, os, sys
from openenv.core.generic_client import GenericEnvClient

async def main():
    c = GenericEnvClient(
        base_url=sys.argv[1],
        headers={"Authorization": "Bearer " +
                 os.environ["OPENENVD_ORCHESTRATOR_TOKEN"]})
    async with c:
        r = await c.reset(seed=3)
        out = [r.observation["echoed"], r.done,
               r.observation["metadata"], r.metadata]
        r = await c.step({"message": "hello"})
        out += [r.observation["echoed"], r.reward]
        out.append((await c.state())["step_count"])
    print(json.dumps(out))

asyncio.run(main())
'''


class Manifest(gate.Gate):
    """gate.Gate of a manifest instead of a configuration."""

    def __init__(self, folder, *flags):
        self.tmp = tempfile.TemporaryDirectory(prefix="sp-")
        os.chmod(self.tmp.name, 0o755)
        self.state = os.path.join(self.tmp.name, "state")
        self.log_path = os.path.join(self.tmp.name, "log")
        self.start([gate.program("sallyport"), "--manifest",
                    os.path.join(folder, "openenv.yaml"), "--port", "0",
                    "--python", PYTHON, *flags, "-g",
                    f"state_dir {self.state}; "
                    f"control {self.tmp.name}/control;"], TOKENS)


def drive(folder, what, *flags):
    with Manifest(folder, *flags) as d:
        url = f"http://127.0.0.1:{d.port}"
        r = subprocess.run([PYTHON, os.path.join(folder, "client.py"), url],
                           env={**os.environ, **TOKENS}, text=True,
                           capture_output=True, timeout=500, check=False)
        tap.eq(r.stdout.strip(), '["seed 3", false, {"hello": 1}, '
               '{"hello": 1}, "hello", 5.0, 1]',
               f"{what}: OpenEnv's client") or tap.diag(
                   r.stderr[-2000:] + d.log()[-1500:])
        r = d.get("/health")
        tap.ok(r.status == 200 and b'"ok"' in r.body, f"{what}: health")
        r = d.get("/mcp/grader")
        tap.ok(r.status in (401, 405), f"{what}: the grader's door", r.status)
        r = d.get("/observe")
        tap.eq(r.status, 401, f"{what}: the observer's door")
        tap.ok(not re.search("|".join(TOKENS.values()), d.log()),
               f"{what}: no token in the log")


def main():
    walls.needed()
    with tempfile.TemporaryDirectory(prefix="sp-oe-", dir="/var/tmp") as d:
        os.chmod(d, 0o755)
        os.mkdir(os.path.join(d, "server"))
        for name, text in (("openenv.yaml", MANIFEST), ("client.py", CLIENT),
                           ("server/__init__.py", ""),
                           ("server/app.py", APP)):
            with open(os.path.join(d, name), "w", encoding="utf-8") as f:
                f.write(text)
        drive(d, "the app over HTTP")
        drive(d, "by frames", "--factory", "server.app:EchoEnv",
              "--action-class", "server.app:EchoAction", "--bootstrap",
              os.path.join(ROOT, "contrib", "python",
                           "sallyport_worker.py"))
    tap.done()


main()

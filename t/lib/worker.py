"""A daemon whose environments have workers, asked by sallyportctl."""
import http.client
import json
import os
import socket
import subprocess
import sys

import gate
import inside
import tap

FIXTURES = os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), "fixtures", "worker")


class Daemon(gate.Gate):
    """environments: name -> directives; {f} is where the fixtures are."""
    def __init__(self, folder, environments, paths=(), env="",
                 episodes=1, locations="", environ=None, **kw):
        self.socket = os.path.join(folder, "control")
        scratch = inside.scratch_beside(FIXTURES, *paths)
        uid = 400000 + os.getpid() % 1000 * 32768
        text = ""
        for i, (name, worker) in enumerate(environments.items()):
            text += (
                f"environment {name} {{\n  episodes {episodes}; "
                f"workspace_size 64m;\n"
                f"  {worker.format(f=FIXTURES)}\n"
                f"  sandbox {{ read_only {inside.HOST} {FIXTURES} "
                f"{' '.join(paths)};\n    read_write {scratch}; "
                f"memory 512m; tmp_size 64m; shm_size 16m;\n"
                f"    env TMPDIR={scratch} {env};\n"
                f"    uid {uid + i * 64} 64; }} }}\n")
        super().__init__(
            text + "server { listen 127.0.0.1:0; location /health "
            "{ health; } " + locations + " }", main=f"control {self.socket};",
            env=environ, **kw)

    def ctl(self, *args, stdin=b""):
        r = subprocess.run([gate.program("sallyportctl"), "-S", self.socket,
                            *args], input=stdin, capture_output=True,
                           check=False, timeout=120)
        return r.returncode, r.stdout, r.stderr

    def create(self, name):
        rc, out, err = self.ctl("episodes", "create", name)
        if rc != 0:
            sys.exit(f"no episode: {err}")
        return out.decode().rstrip("\n")

    def made(self, name):
        """An episode, and its worker as it is once it has settled."""
        ep = self.create(name)
        return ep, self.settle(ep)

    def worker(self, ep, *args):
        """What it answers, or the words of the refusal."""
        rc, out, err = self.ctl("worker", ep, *args)
        return json.loads(out) if rc == 0 else err.decode().strip()

    def ask(self, ep, op, data, timeout_ms):
        """The same with a deadline, as (status, body)."""
        c = http.client.HTTPConnection("localhost")
        c.sock = socket.socket(socket.AF_UNIX)
        c.sock.settimeout(60)
        c.sock.connect(self.socket)
        c.request("POST", f"/episodes/{ep}/worker", json.dumps(
            {"op": op, "data": data, "timeout_ms": timeout_ms}),
            {"Content-Type": "application/json"})
        r = c.getresponse()
        out = r.status, r.read().decode()
        c.close()
        return out

    def step(self, ep, **action):
        return self.worker(ep, "step", json.dumps(action))

    def mcp(self, ep, method, id_=7, **params):
        return self.worker(ep, "mcp", json.dumps(
            {"jsonrpc": "2.0", "id": id_, "method": method,
             "params": params}))

    def tool(self, ep, name, id_=7, **arguments):
        return self.mcp(ep, "tools/call", id_, name=name,
                        arguments=arguments)

    def end(self, ep):
        tap.eq(self.ctl("end", ep)[0], 0, "its end")

    def reset(self, ep):
        tap.eq(self.ctl("reset", ep)[0], 0, "a reset")
        return self.settle(ep)

    def settle(self, ep):
        return gate.until(lambda: self.settled(ep), "a worker that settled")

    def settled(self, ep):
        got = self.worker(ep)
        return got if got["state"] != "starting" else None


def said(got):
    """The text of a tool's answer."""
    try:
        return got["result"]["result"]["content"][0]["text"]
    except (KeyError, TypeError):
        return got

#!/usr/bin/python3
"""
What an agent receives through a door, against what the worker wrote: byte for
byte, but for the place of the id and for tools that are hidden.

The conversation in t/fixtures/worker/odd.py is told to the worker's own pipe
first, and then through POST (JSON, events), a WebSocket and the inside.
"""
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import inside  # noqa: E402
import mcp  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402
import ws  # noqa: E402
from mcp import BOTH, JSON, rpc  # noqa: E402

FIXTURES = os.path.join(ROOT, "t", "fixtures", "worker")
SCRATCH = inside.scratch_beside(FIXTURES)
sys.path.insert(0, FIXTURES)
import odd as said  # noqa: E402

HELLO = rpc(0, "initialize", protocolVersion="2025-11-25", capabilities={},
            clientInfo={"name": "t", "version": "1"})
GREETED = '{"jsonrpc":"2.0","method":"notifications/initialized"}'


class Daemon(mcp.Gate):
    def __init__(self, folder):
        self.socket = os.path.join(folder, "control")
        uid = 400000 + os.getpid() % 1000 * 32768
        door = "mcp_agent; %s tools see.*;"
        super().__init__(
            "environment b { episodes 1; workspace_size 16m;\n"
            f"  worker stdio /usr/bin/python3 {FIXTURES}/odd.py;\n"
            f"  sandbox {{ read_only {inside.HOST} {FIXTURES};\n"
            f"    read_write {SCRATCH}; memory 256m; tmp_size 16m;\n"
            f"    shm_size 16m; timeout 20s; env TMPDIR={SCRATCH};\n"
            f"    uid {uid} 4096; }}\n"
            "  inside 127.0.0.1:8000 { location /mcp { " + door % "" +
            " } } }\nserver { listen 127.0.0.1:0; location /health "
            "{ health; }\n location /mcp { " + door % "environment b;" +
            " } }\n", main=f"control {self.socket};")

    def ctl(self, *args, stdin=b""):
        r = subprocess.run([gate.program("sallyportctl"), "-S", self.socket,
                            *args], input=stdin, capture_output=True,
                           check=False, timeout=120)
        if r.returncode != 0:
            sys.exit(f"{args}: {r.stderr.decode()}")
        return r.stdout


# ---- the conversation, by each way --------------------------------------------

def direct():
    """What the worker wrote for each request, line by line."""
    p = subprocess.Popen([sys.executable, f"{FIXTURES}/odd.py"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out = []
    for line in [HELLO] + said.requests():
        p.stdin.write(line.encode() + b"\n")
        p.stdin.flush()
        got = []
        while True:
            got.append(p.stdout.readline().rstrip(b"\n"))
            if b'"method"' not in got[-1]:
                break
        out.append(got)
    p.stdin.close()
    p.wait()
    return out[1:]


def events(body):
    """Messages of a stream; a line's end in JSON makes two lines of data."""
    return [b"\n".join(re.findall(rb"^data: (.*)$", e, re.M))
            for e in body.split(b"\n\n") if b"\ndata: " in e]


def messages(fields, body):
    return [body] if fields["Content-Type"] == JSON else events(body)


def by_post(d):
    _, fields, _ = d.ask("POST", "/mcp", HELLO, Accept=BOTH, Content_Type=JSON)
    session = fields["Mcp-Session-Id"]
    return [messages(*d.ask("POST", "/mcp", line, Accept=BOTH,
                            Content_Type=JSON, Mcp_Session_Id=session)[1:])
            for line in said.requests()]


def by_plain(d):
    """openenvd's clients: nothing comes before the answer."""
    return [[d.ask("POST", "/mcp", line)[2]] for line in said.requests()]


def by_socket(d):
    out = []
    with ws.Ws(d.port, "/mcp", timeout=gate.PATIENCE) as c:
        c.send(ws.text(HELLO))
        c.message()
        c.send(ws.text(GREETED))
        for line in said.requests():
            c.send(ws.text(line))
            got = []
            while not got or b'"method"' in got[-1]:
                got.append(c.message().encode())
            out.append(got)
    return out


INSIDE = """
import http.client, json, sys
hello, *rest = json.load(sys.stdin)
fields = {"Accept": "application/json, text/event-stream",
          "Content-Type": "application/json"}
for line in [hello] + rest:
    c = http.client.HTTPConnection("127.0.0.1", 8000, timeout=60)
    c.request("POST", "/mcp", line.encode(), fields)
    r = c.getresponse()
    body = r.read()
    fields["Mcp-Session-Id"] = r.headers["Mcp-Session-Id"]
    print(json.dumps([r.headers["Content-Type"], body.decode("latin-1")]))
    c.close()
"""


def by_inside(d, ep):
    out = d.ctl("exec", "--in", ep, "--", "/usr/bin/python3", "-c", INSIDE,
                stdin=json.dumps([HELLO] + said.requests()).encode())
    rows = [json.loads(line) for line in out.splitlines()]
    return [messages({"Content-Type": kind}, body.encode("latin-1"))
            for kind, body in rows[1:]]


# ---- comparing ----------------------------------------------------------------

def seen(line):
    """As the worker wrote it, without what is hidden."""
    for piece in said.hidden():
        line = line.replace(piece.encode(), b"")
    return line


def compare(way, want, got, alone=False):
    for request, w, g in zip(said.requests(), want, got):
        w = [seen(x) for x in (w[-1:] if alone else w)]
        # of an event, "\\r" ends a line as well: JSON's white space; and
        # what is around a message is no part of it
        same = g == w or (way != "WebSocket" and [
            x.replace(b"\n", b"\r") for x in g] == [x.strip() for x in w])
        tap.ok(same, f"{way}: {request[:70]}",
               f"worker: {w!r}\n client: {g!r}")
    tap.eq(len(got), len(want), f"{way}: all of them")


def main():
    walls.needed()
    want = direct()
    with tempfile.TemporaryDirectory(prefix="sp-bytes-") as folder, \
            Daemon(folder) as d:
        ep = d.ctl("episodes", "create", "b").decode().rstrip("\n")
        compare("POST", want, by_post(d))
        compare("plain POST", want, by_plain(d), alone=True)
        compare("WebSocket", want, by_socket(d))
        compare("inside", want, by_inside(d, ep))
        both = b"".join(x for g in by_post(d) + by_socket(d) for x in g)
        tap.ok(b"secret" not in both and b"secr\\u0065t" not in both,
               "and nothing of what is hidden")
    tap.done()


main()

"""Real clients: where they are, and a relay that writes down what they get."""
import json
import os
import socket
import subprocess
import threading

import gate
import tap

CACHE = os.path.abspath(os.environ.get(
    "SP_CACHEDIR", os.path.join(gate.ROOT, "build", "cache")))


def need(name):
    """The folder of a peer; without it the test is skipped."""
    path = os.path.join(CACHE, name)
    if not os.path.exists(os.path.join(path, ".installed")):
        tap.skip_all(f"{name} is not in {CACHE}: contrib/install-peers")
    return path


def door(url, level="tokens", extra="", server=""):
    """A sallyport before that upstream."""
    return gate.Gate(
        f"upstream u {{ server {url}/v1; }}\n"
        f"capture c {{ level {level}; {extra} }}\n"
        "server { listen 127.0.0.1:0; location /v1 { llm_intercept;"
        f" upstream u; capture c; keys open; }} {server} }}")


def run(argv, timeout=300, **kw):
    return subprocess.run(argv, text=True, capture_output=True,
                          stdin=kw.pop("stdin", subprocess.DEVNULL),
                          timeout=timeout, **kw)


def results(name, r):
    """A program that prints JSON lines {ok, what, detail}: its tests."""
    n = 0
    for line in r.stdout.splitlines():
        try:
            one = json.loads(line)
        except ValueError:
            tap.diag(line)
            continue
        n += 1
        tap.ok(one["ok"], f"{name}: {one['what']}", one.get("detail"))
    tap.ok(r.returncode == 0 and n > 0, f"{name}: {n} checks made",
           f"status {r.returncode}\n{r.stderr[-3000:]}")


class Relay:
    """Passes bytes on both ways and keeps them, for each connection."""

    def __init__(self, port):
        self.to = port
        self.connections = []
        self.l = socket.socket()
        self.l.bind(("127.0.0.1", 0))
        self.l.listen(64)
        self.port = self.l.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            a, _ = self.l.accept()
            b = socket.create_connection(("127.0.0.1", self.to))
            for s in (a, b):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            kept = {"up": bytearray(), "down": bytearray()}
            self.connections.append(kept)
            for x, y, way in ((a, b, "up"), (b, a, "down")):
                threading.Thread(target=self.copy, args=(x, y, kept[way]),
                                 daemon=True).start()

    @staticmethod
    def copy(x, y, kept):
        try:
            while True:
                got = x.recv(65536)
                if not got:
                    break
                kept += got
                y.sendall(got)
            y.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def replies(self):
        """Each reply of each connection, taken apart."""
        out = []
        for kept in self.connections:
            s = Bytes(bytes(kept["down"]))
            while s.data or s.left:
                r = gate.Reply(s, read=False)
                r.buf = s.left
                r.read()
                s.left = r.buf
                if not r.status:
                    break
                out.append(r)
        return out


class Bytes:
    """A socket that has received all that it ever will."""

    def __init__(self, data):
        self.data, self.left = data, b""

    def recv(self, n):
        out, self.data = self.data[:n], self.data[n:]
        return out


def data_of(body):
    """The data of each event."""
    return [e[6:] for e in body.split(b"\n\n") if e.startswith(b"data: ")]


def identity(body):
    """The id that a reply carries in all of its chunks."""
    for d in data_of(body) or [body]:
        try:
            return json.loads(d)["id"]
        except (ValueError, KeyError, TypeError):
            continue
    return None


def stripped(text, keep_usage):
    """
    What a client gets that asked for neither log-probabilities nor ids: an
    account of it that shares no code with the gateway.  None: nothing.
    """
    if text == b"[DONE]":
        return text
    o = json.loads(text)
    for k in ("token_ids", "prompt_token_ids"):
        o.pop(k, None)
    if not keep_usage:
        usage = o.pop("usage", None)
        if usage is not None and not o.get("choices"):
            return None
    for c in o.get("choices") or []:
        for k in ("logprobs", "token_ids", "prompt_token_ids"):
            c.pop(k, None)
    return json.dumps(o, separators=(",", ":"), ensure_ascii=False).encode()

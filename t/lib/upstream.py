"""Upstreams of the tests: one that sends given bytes, and scripted-model."""
import json
import os
import queue
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

import gate

FIN, RST = object(), object()


def wait(seconds):
    return ("wait", seconds)


def wire(text):
    """The notation of bytes: <CR> <LF> <xHH> <'a' x N>; LF only as <LF>."""
    def one(m):
        t = m.group(1)
        if t == "CR":
            return "\r"
        if t == "LF":
            return "\n"
        if t.startswith("x"):
            return chr(int(t[1:], 16))
        c, n = re.fullmatch(r"'(.)' x ([\d,]+)", t).groups()
        return c * int(n.replace(",", ""))
    out = re.sub(r"<(CR|LF|x[0-9A-F]{2}|'.' x [\d,]+)>", one, text)
    return out.encode("latin-1")


def events(*datas, done=False, eol=b"\n"):
    """data: events; a dict is written compactly."""
    out = b""
    for d in list(datas) + (["[DONE]"] if done else []):
        if not isinstance(d, (str, bytes)):
            d = json.dumps(d, separators=(",", ":"))
        if isinstance(d, str):
            d = d.encode()
        out += b"data: " + d + eol + eol
    return out


def stream_head(extra=b"", framing=b"Transfer-Encoding: chunked\r\n"):
    return (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            + framing + extra + b"\r\n")


def chunked(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def sse(*pieces, end=b"0\r\n\r\n"):
    """A chunked stream, a chunk for each piece; waits and cuts between."""
    out = [stream_head()]
    for p in pieces:
        out.append(chunked(p) if isinstance(p, bytes) and p else p)
    return out + ([end] if end else [])


def unary(body, status="200 OK", headers=()):
    if not isinstance(body, bytes):
        body = json.dumps(body, separators=(",", ":")).encode()
    head = [f"HTTP/1.1 {status}", "Content-Type: application/json",
            f"Content-Length: {len(body)}"]
    head += [f"{k}: {v}" for k, v in headers]
    return ["\r\n".join(head).encode() + b"\r\n\r\n" + body]


class Raw:
    """
    Answers each request with the next of the plays: a list of bytes, waits,
    FIN and RST.  Without one it does not answer.  requests has what came.
    """

    def __init__(self):
        self.l = socket.socket()
        self.l.bind(("127.0.0.1", 0))
        self.l.listen(256)
        self.port = self.l.getsockname()[1]
        self.plays = queue.Queue()
        self.requests = []
        self.ends = queue.Queue()  # of plays that the other side cut off
        self.keep = True
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                s, _ = self.l.accept()
            except OSError:
                return
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(s,),
                             daemon=True).start()

    def play(self, *plays):
        for p in plays:
            self.plays.put(p)

    def serve(self, s):
        buf = b""
        try:
            while True:
                while b"\r\n\r\n" not in buf:
                    got = s.recv(262144)
                    if not got:
                        return
                    buf += got
                head, _, buf = buf.partition(b"\r\n\r\n")
                r = Request(head)
                while len(buf) < r.length:
                    got = s.recv(1 << 20)
                    if not got:
                        return
                    buf += got
                r.body, buf = buf[:r.length], buf[r.length:]
                r.at = time.monotonic()
                # first the play: whoever sees the request may add the next
                play = self.plays.get(timeout=gate.PATIENCE)
                self.requests.append(r)
                if not self.run(s, play, r):
                    return
        except (OSError, queue.Empty):
            pass
        finally:
            s.close()

    def run(self, s, play, r):
        for piece in play:
            if piece is FIN:
                s.shutdown(socket.SHUT_RDWR)
                return False
            if piece is RST:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                             b"\1\0\0\0\0\0\0\0")
                return False
            if isinstance(piece, bytes):
                try:
                    s.sendall(piece)
                except OSError:
                    self.ends.put((time.monotonic(), r))
                    raise
            elif callable(piece):
                piece()
            elif piece[0] == "wait":
                time.sleep(piece[1])
            elif piece[0] == "gone":
                # waits until the other side closes; that it did is the test
                s.settimeout(gate.PATIENCE)
                try:
                    got = s.recv(1)
                except ConnectionResetError:
                    got = b""
                except socket.timeout:
                    got = b"?"
                if got == b"":
                    self.ends.put((time.monotonic(), r))
                return False
        return True

    @property
    def last(self):
        return self.requests[-1]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"


GONE = ("gone",)


class Request:
    def __init__(self, head):
        lines = head.decode("latin-1").split("\r\n")
        self.line = lines[0]
        self.method, self.target = lines[0].split(" ")[:2]
        self.fields = [tuple(x.split(": ", 1)) if ": " in x else
                       (x.rstrip(":"), "") for x in lines[1:]]
        self.headers = {k.lower(): v for k, v in self.fields}
        self.length = int(self.headers.get("content-length", 0))


class Scripted:
    """contrib/scripted-model on a port of the kernel's."""

    def __init__(self, *args, script=None):
        self.tmp = tempfile.TemporaryDirectory(prefix="sm-")
        self.log_path = os.path.join(self.tmp.name, "log")
        argv = [gate.program("scripted-model"), "--log", self.log_path, *args]
        if script is not None:
            path = os.path.join(self.tmp.name, "script.json")
            with open(path, "w") as f:
                json.dump(script, f)
            argv += ["--script", path]
        self.p = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        line = self.p.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError("scripted-model says: " + line)
        self.port = int(line.rsplit(":", 1)[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def log(self, event="request"):
        with open(self.log_path) as f:
            return [x for x in map(json.loads, f) if x["event"] == event]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.send_signal(signal.SIGTERM)
        self.p.stdout.close()
        self.p.wait(gate.PATIENCE)
        self.tmp.cleanup()

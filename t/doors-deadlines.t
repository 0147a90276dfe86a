#!/usr/bin/python3
"""
Each door's deadlines: of a head, of a body, of an idle connection, of a silent
WebSocket, of a reply that nobody takes, of an operation.  In each server one of
them is short and all others are an hour, so whatever ends, ends by that one.
"""
import json
import os
import socket
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import doors  # noqa: E402
import gate  # noqa: E402
import h2  # noqa: E402
import mcp  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402
import ws  # noqa: E402
from doors import TOKENS  # noqa: E402
from mcp import rpc, said  # noqa: E402

# path: whose, and what it is asked over HTTP
DOORS = {"/mcp": "AGENT", "/mcp/grader": "GRADER", "/ws": "ORCHESTRATOR",
         "/observe": "OBSERVER"}
BODIES = {"/mcp": "AGENT", "/mcp/grader": "GRADER", "/step": "ORCHESTRATOR"}
SERVERS = ("plain", "header", "body", "idle", "silent", "send", "brief")
LATE = "300ms"
SAY = {"answer": False}
ORACLE = "#!/bin/sh\nexec sleep 3600\n"


def bearer(path):
    """Of a location, whatever server it is of."""
    return doors.bearer({**DOORS, **BODIES}[path])


def server(limit, env, own, ping="off", slow="1h"):
    return (f"server {{ listen 127.0.0.1:0; {limit}\n"
            f"  location /mcp {{ mcp_agent; environment {env};\n"
            f"    token env:AGENT; tools see say; ping {ping}; }}\n"
            f"  location /mcp/grader {{ mcp_grader; environment {env};\n"
            "    token env:GRADER; tools * grader.*; privileged_exec on;\n"
            f"    ping {ping}; }}\n"
            f"  location /ws {{ lifecycle; environment {own}; grace 1ms;\n"
            f"    token env:ORCHESTRATOR; ping {ping}; }}\n"
            f"  location /step {{ lifecycle_plain; environment {own};\n"
            "    token env:ORCHESTRATOR; }\n"
            f"  location /observe {{ observe; environment {env};\n"
            "    token env:OBSERVER; stream harness_events;\n"
            f"    ping {ping}; slow_timeout {slow}; }}\n"
            "  location /status { status; } }\n")


class Daemon(mcp.Gate):
    def __init__(self, folder):
        self.socket = os.path.join(folder, "control")
        self.access_path = os.path.join(folder, "access")
        os.mkdir(f"{folder}/private", 0o700)
        with open(f"{folder}/private/oracle.sh", "w", encoding="utf-8") as f:
            f.write(ORACLE)
        os.chmod(f"{folder}/private/oracle.sh", 0o700)
        words = f"assets {folder}/private {{ oracle oracle.sh; }}"
        conf = "".join(
            doors.environment(name, i, timeout=timeout, words=words)
            for i, (name, timeout) in enumerate((
                ("calm", "1h"), ("own", "1h"), ("brief", "2s"),
                ("briefer", "2s"))))
        for which in SERVERS:
            limit = {"header": "client_header_timeout", "send": "send_timeout",
                     "body": "client_body_timeout",
                     "idle": "keepalive_timeout"}.get(which)
            brief = which == "brief"
            conf += server(f"{limit} {LATE};" if limit else "",
                           "brief" if brief else "calm",
                           "briefer" if brief else "own",
                           LATE if which == "silent" else "off",
                           LATE if which == "send" else "1h")
        super().__init__(
            conf, main=f"control {self.socket}; "
            f"access_log {self.access_path};\n"
            "client_header_timeout 1h; client_body_timeout 1h;\n"
            "send_timeout 1h; keepalive_timeout 1h;", env=TOKENS)
        self.ports = dict(zip(SERVERS, (int(a.rsplit(":", 1)[1])
                                        for a in self.addresses
                                        if "unix:" not in a)))

    def create(self, *names):
        rc, _, err = self.ctl("episodes", "create", *names)
        if rc != 0:
            sys.exit(f"no episode: {err}")

    def access(self):
        with open(self.access_path, encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    def value(self, name):
        text = self.ask("GET", "/status")[2].decode()
        return sum(float(x.split()[-1]) for x in text.splitlines()
                   if x.startswith(name))


def rest(s, last=None):
    """All that comes until the other side ends it, or these last bytes."""
    got = b""
    try:
        while (b := s.recv(1 << 16)):
            got += b
            if last is not None and got.endswith(last):
                break
    except ConnectionError:
        pass
    s.close()
    return got


def head(path, *lines, method="GET"):
    fields = {"Host": "127.0.0.1", **bearer(path)}
    return "\r\n".join([f"{method} {path} HTTP/1.1",
                        *(f"{k}: {v}" for k, v in fields.items()),
                        *lines, ""]).encode()


UPGRADE = ("Upgrade: websocket", "Connection: Upgrade",
           "Sec-WebSocket-Version: 13",
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")


def fields(path, *more, method="GET"):
    """Of a request over HTTP/2."""
    return h2.fields(method, path, ("authorization",
                                    bearer(path)["Authorization"]), *more,
                     authority="127.0.0.1")


def until_end(c):
    """The frames of a connection that the other side ends."""
    c.s.settimeout(gate.PATIENCE)
    got = c.frames()
    c.close()
    return got, c.closed


# ---- what a client sends ------------------------------------------------------

def heads(d):
    port = d.ports["header"]
    for path in DOORS:
        for what, lines in (("a head", ("X-Half: 1",)),
                            ("a handshake", UPGRADE)):
            s = d.connect(port)
            s.sendall(head(path, *lines))
            got = rest(s)
            tap.ok(got.startswith(b"HTTP/1.1 408 "),
                   f"{path}: {what} that does not end", got[:200])
        c = h2.Client(port)
        c.send(h2.headers(1, fields(path), h2.END_STREAM))
        _, closed = until_end(c)
        tap.ok(closed, f"{path}: nor over HTTP/2")


def bodies(d):
    port = d.ports["body"]
    for path in BODIES:
        s = d.connect(port)
        s.sendall(head(path, "Content-Type: application/json",
                       "Content-Length: 100", method="POST")
                  + b'\r\n{"json')
        got = rest(s)
        tap.ok(got.startswith(b"HTTP/1.1 408 "),
               f"{path}: a body that does not come", got[:200])
        c = h2.Client(port)
        c.s.settimeout(gate.PATIENCE)
        c.send(h2.headers(1, fields(path, method="POST"), h2.END_HEADERS),
               h2.frame(h2.DATA, 0, 1, b'{"json'))
        got = c.frames(lambda f: f.kind in (h2.HEADERS, h2.RST))
        tap.ok(got and got[-1].kind == h2.HEADERS
               and h2.status(got[-1].payload) == 408,
               f"{path}: nor over HTTP/2", got)
        c.close()


def messages(d):
    """Of a WebSocket, that begin and do not end."""
    for path in DOORS:
        for what, half in (("fragments", ws.frame(ws.TEXT, b'{"json')
                            + ws.frame(ws.CONT) + ws.frame(ws.FIN | ws.PING)),
                           ("a frame", ws.text('{"jsonrpc')[:-3])):
            with ws.Ws(d.ports["body"], path, {
                    **bearer(path), "X-Episode-Id": "quiet"},
                    timeout=gate.PATIENCE) as c:
                c.send(half)
                while (got := c.message()) is not None \
                        and not isinstance(got, tuple):
                    pass
                tap.eq(got, (1008, "the message came too slowly"),
                       f"{path}: {what} without an end")


# ---- what it does not ---------------------------------------------------------

def idle(d):
    port = d.ports["idle"]
    for path, want in (("/mcp", b"200"), ("/mcp/grader", b"200"),
                       ("/ws", b"426"), ("/observe", b"404")):
        body = rpc(1, "tools/list") if "mcp" in path else ""
        s = d.connect(port)
        s.sendall(head(path, "Content-Type: application/json",
                       f"Content-Length: {len(body)}", "X-Episode-Id: "
                       + ("none" if want == b"404" else "quiet"),
                       method="POST" if body else "GET")
                  + b"\r\n" + body.encode())
        got = rest(s)
        tap.ok(got.startswith(b"HTTP/1.1 " + want)
               and b"onnection: close" not in got,
               f"{path}: an answer, and then the end of what is idle",
               got[:200])
        c = h2.Client(port)
        c.send(h2.headers(1, fields(path, (
            "x-episode-id", "none" if want == b"404" else "quiet"),
            method="POST" if body else "GET"), h2.END_HEADERS),
            h2.frame(h2.DATA, h2.END_STREAM, 1, body.encode()))
        got, closed = until_end(c)
        tap.ok(closed and any(f.kind == h2.HEADERS for f in got)
               and any(f.kind == h2.GOAWAY and f.code == h2.NO_ERROR
                       for f in got), f"{path}: so over HTTP/2", got)


def silent(d):
    """Who answers no ping is gone."""
    port = d.ports["silent"]
    for path in DOORS:
        with ws.Ws(port, path, {**bearer(path), "X-Episode-Id": "quiet"},
                   timeout=gate.PATIENCE) as c:
            kinds = []
            while c.open and (f := c.frame()) is not None:
                kinds.append(f[0] & 15)
            tap.ok(ws.PING in kinds and c.open,
                   f"{path}: a WebSocket that is silent ends", kinds)
        c = h2.Client(port)
        c.s.settimeout(gate.PATIENCE)
        c.send(h2.headers(1, [
            (":method", "CONNECT"), (":protocol", "websocket"),
            (":scheme", "http"), (":path", path), (":authority", "127.0.0.1"),
            ("authorization", bearer(path)["Authorization"]),
            ("x-episode-id", "quiet"), ("sec-websocket-version", "13")],
            h2.END_HEADERS))
        got = c.frames(lambda f: f.kind == h2.RST
                       or (f.kind == h2.DATA and f.flags & h2.END_STREAM))
        data = b"".join(f.payload for f in got if f.kind == h2.DATA)
        tap.ok(b"\x89" in data and got[-1].kind in (h2.RST, h2.DATA),
               f"{path}: so over HTTP/2", got)
        c.close()


def deaf(d):
    """Whoever takes nothing of a reply, or of what there is to see."""
    big = rpc(1, "tools/call", name="see", arguments={"x": "y" * (8 << 20)})
    for path in ("/mcp", "/mcp/grader"):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(gate.PATIENCE)
        s.connect(("127.0.0.1", d.ports["send"]))
        before = len(d.access())
        s.sendall(head(path, "Content-Type: application/json",
                       "X-Episode-Id: quiet",
                       f"Content-Length: {len(big)}", method="POST")
                  + b"\r\n" + big.encode())
        line = gate.until(lambda: [x for x in d.access()[before:]
                                   if x.get("path") == path],
                          "the end of that request")[0]
        got = len(rest(s))
        tap.ok(got < len(big) and line["outcome"] != "ok",
               f"{path}: a reply that nobody takes is cut", (got, line))
    for what in ("SSE", "WebSocket"):
        before = d.value("sallyport_observers_dropped_total")
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(gate.PATIENCE)
        s.connect(("127.0.0.1", d.ports["send"]))
        s.sendall(head("/observe", "X-Episode-Id: quiet", *(
            UPGRADE if what == "WebSocket"
            else ("Accept: text/event-stream",))) + b"\r\n")

        def flood():
            for _ in range(20):
                d.ask("POST", "/mcp", rpc(
                    1, "tools/call", name="see", arguments={"x": "z" * 50000}),
                    X_Episode_Id="quiet", **bearer("/mcp"))
            return d.value("sallyport_observers_dropped_total") > before
        tap.ok(gate.until(flood, "the drop of an observer"),
               f"an observer who takes nothing is dropped: {what}")
        # the stream is whole when it is read at once; else it is cut
        tap.ok(b"" in rest(s, b"\r\n0\r\n\r\n" if what == "SSE" else None),
               "and what it gets has an end")


# ---- operations ---------------------------------------------------------------

def told(answer):
    e = json.loads(answer)["error"]
    return e["code"], e["message"]


def operations(d):
    port = d.ports["brief"]
    failed = (-32603, "Environment operation failed")
    d.port, before = port, len(d.access())
    mute = rpc(1, "tools/call", name="say", arguments=SAY)
    oracle = rpc(1, "tools/call", name="grader.run_oracle", arguments={})
    for path, text, one, two in (("/mcp/grader", oracle, "one", "one"),
                                 ("/mcp", mute, "one", "two"),
                                 ("/mcp/grader", mute, "three", "four")):
        got = d.ask("POST", path, text, X_Episode_Id=one, **bearer(path))
        tap.eq((got[0], told(got[2])), (200, failed),
               f"{path}: a call that takes too long")
        if text is oracle:
            tap.eq(json.loads(got[2])["error"]["data"]["reason"], "timeout",
                   "and why")
        with ws.Ws(port, path, {**bearer(path), "X-Episode-Id": two},
                   timeout=gate.PATIENCE) as c:
            c.send(ws.text(text))
            tap.eq(told(c.message()), failed, f"{path}: over a WebSocket")
    with ws.Ws(port, "/ws", bearer("/ws"), timeout=gate.PATIENCE) as c:
        c.send(ws.text('{"type":"step","data":{"mute":true}}'))
        got = json.loads(c.message())
        tap.eq((got["type"], got["data"]["detail"]["reason"]),
               ("error", "timeout"), "/ws: a step that takes too long")
    got = d.ask("POST", "/step", '{"action":{"mute":true}}', **bearer("/step"))
    tap.eq(got[0], 504, "/step: so as a route")
    lines = gate.until(lambda: [x for x in d.access()[before:]
                                if x["outcome"] == "timeout"][5:],
                       "their lines in the log")
    tap.eq({(x["door"], x["operation"]) for x in d.access()[before:]
            if x["outcome"] == "timeout" and "door" in x},
           {("mcp_agent", "tools/call"), ("mcp_grader", "tools/call"),
            ("lifecycle", "step"), ("lifecycle_plain", "step")},
           f"the log says so ({len(lines)})")
    d.port = d.ports["plain"]


def main():
    walls.needed()
    with tempfile.TemporaryDirectory(prefix="sp-deadlines-") as folder, \
            Daemon(folder) as d:
        d.create("calm", "quiet")
        for name in ("one", "two", "three", "four"):
            d.create("brief", name)
        for part in (heads, bodies, messages, idle, silent, deaf, operations):
            part(d)
        got = d.ask("POST", "/mcp", rpc(1, "tools/call", name="see"),
                    **bearer("/mcp"))
        tap.ok(got[0] == 200 and "tools/call" in said(json.loads(got[2])),
               "whoever is in time is served", got)
    tap.done()


main()

#!/usr/bin/python3
"""
The four doors on a TLS listener, each with a token of its own: over HTTP/1.1
and HTTP/2, by requests and by WebSockets.
"""
import http.client
import os
import shutil
import ssl
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import doors  # noqa: E402
import gate  # noqa: E402
import h2  # noqa: E402
import tap  # noqa: E402
import tls  # noqa: E402
import walls  # noqa: E402
import ws  # noqa: E402
from doors import TOKENS  # noqa: E402
from mcp import rpc  # noqa: E402

DOORS = {
    "/mcp": ("AGENT", "mcp_agent; environment box; tools see;"),
    "/mcp/grader": ("GRADER", "mcp_grader; environment box; tools see;"),
    "/ws": ("ORCHESTRATOR", "lifecycle; environment own; grace 1ms;"),
    "/step": ("ORCHESTRATOR", "lifecycle_plain; environment own;"),
    "/observe": ("OBSERVER", "observe; environment box; "
                             "stream harness_events;"),
}
SEE = rpc(1, "tools/call", name="see", arguments={})
# path: method, body, fields, and what is in the answer
ASKED = {
    "/mcp": ("POST", SEE, {}, b'"result"'),
    "/mcp/grader": ("POST", SEE, {}, b'"result"'),
    "/step": ("POST", '{"action":{}}', {}, b'"observation"'),
    "/observe": ("GET", None, {"accept": "text/event-stream"},
                 b'"harness_event"'),
}
# path: what is said on a WebSocket, and what is in the first message back
SAID = {"/mcp": (SEE, '"result"'), "/mcp/grader": (SEE, '"result"'),
        "/ws": ('{"type":"reset","data":{}}', '"observation"'),
        "/observe": (None, '"harness_event"')}


class Daemon(gate.Gate):
    def __init__(self, folder, cert, key):
        self.socket = os.path.join(folder, "control")
        self.cert = cert
        conf = "".join(doors.environment(n, i, timeout="60s")
                       for i, n in enumerate(("box", "own")))
        conf += (f"server {{ listen 127.0.0.1:0 ssl; certificate file:{cert};\n"
                 f"  certificate_key file:{key};\n")
        for path, (who, words) in DOORS.items():
            conf += f"  location {path} {{ {words} token env:{who}; }}\n"
        super().__init__(conf + "}\n", main=f"control {self.socket};",
                         env=TOKENS)

    def wrap(self, *protocols):
        return tls.wrapper(self.cert, *protocols)

    def h2(self):
        c = h2.Client(self.port, wrap=self.wrap("h2"))
        c.s.settimeout(gate.PATIENCE)
        return c


def fields_of(who):
    return {"authorization": f"Bearer {TOKENS[who]}"}


def others(path):
    return [w for w in TOKENS if w != DOORS[path][0]]


# ---- requests -----------------------------------------------------------------

def h1_ask(d, path, who):
    """Status, type and the beginning of the answer."""
    method, body, more, want = ASKED[path]
    c = http.client.HTTPSConnection(
        "127.0.0.1", d.port, timeout=gate.PATIENCE,
        context=ssl.create_default_context(cafile=d.cert))
    c.request(method, path, body, {**more, **(fields_of(who) if who else {})})
    r = c.getresponse()
    got = b""
    while want not in got and (piece := r.read1(1 << 16)):
        got += piece
    c.close()
    return r.status, got


def h2_ask(d, path, who):
    method, body, more, want = ASKED[path]
    c = d.h2()
    fields = h2.fields(method, path, *more.items(),
                       *(fields_of(who).items() if who else ()),
                       scheme="https", authority=f"127.0.0.1:{d.port}")
    c.send(h2.headers(1, fields, h2.END_HEADERS
                      | (0 if body else h2.END_STREAM)))
    if body:
        c.send(h2.frame(h2.DATA, h2.END_STREAM, 1, body.encode()))
    data = []

    def enough(f):
        if f.kind == h2.DATA:
            data.append(f.payload)
        return f.kind == h2.RST or want in b"".join(data) or \
            (f.kind in (h2.DATA, h2.HEADERS) and f.flags & h2.END_STREAM)
    head = [f for f in c.frames(enough) if f.kind == h2.HEADERS]
    c.close()
    return h2.status(head[0].payload) if head else None, b"".join(data)


def requests(d):
    for version, ask in (("HTTP/1.1", h1_ask), ("HTTP/2", h2_ask)):
        for path, (_, _, _, want) in ASKED.items():
            status, got = ask(d, path, DOORS[path][0])
            tap.ok(status == 200 and want in got,
                   f"{version}: {path} with its token", (status, got[:300]))
            tap.eq({ask(d, path, w)[0] for w in (*others(path), None)}, {401},
                   f"{version}: and with nobody else's, nor without")


# ---- WebSockets ---------------------------------------------------------------

def h1_socket(d, path, who):
    """The handshake's status, and what came first."""
    with ws.Ws(d.port, path, fields_of(who) if who else {},
               timeout=gate.PATIENCE, wrap=d.wrap("http/1.1")) as c:
        if not c.open:
            return c.status, ""
        if SAID[path][0] is not None:
            c.send(ws.text(SAID[path][0]))
        return 200, c.message()


def h2_socket(d, path, who):
    c = d.h2()
    c.send(h2.headers(1, [
        (":method", "CONNECT"), (":protocol", "websocket"),
        (":scheme", "https"), (":path", path),
        (":authority", f"127.0.0.1:{d.port}"),
        ("sec-websocket-version", "13"),
        *(fields_of(who).items() if who else ())], h2.END_HEADERS))
    got = c.frames(lambda f: f.kind in (h2.HEADERS, h2.RST))
    status = h2.status(got[-1].payload) if got and \
        got[-1].kind == h2.HEADERS else None
    data = []
    if status == 200:
        if SAID[path][0] is not None:
            c.send(h2.frame(h2.DATA, 0, 1, ws.text(SAID[path][0])))

        def enough(f):
            if f.kind == h2.DATA:
                data.append(f.payload)
            return f.kind == h2.RST or \
                SAID[path][1].encode() in b"".join(data)
        c.frames(enough)
    c.close()
    return status, b"".join(data).decode("utf-8", "replace")


def sockets(d):
    for version, ask in (("HTTP/1.1", h1_socket), ("HTTP/2", h2_socket)):
        for path, (_, want) in SAID.items():
            # the orchestrator's episodes of before are ending meanwhile
            def once():
                status, got = ask(d, path, DOORS[path][0])
                return None if "CAPACITY" in (got or "") else (status, got)
            status, got = gate.until(once, "room for an episode")
            tap.ok(status == 200 and want in (got or ""),
                   f"wss over {version}: {path} with its token",
                   (status, (got or "")[:300]))
            refused = {ask(d, path, w)[0] for w in (*others(path), None)}
            tap.ok(refused <= {401, 403},
                   f"wss over {version}: and with nobody else's", refused)


def main():
    if shutil.which("openssl") is None:
        tap.skip_all("no openssl to make a certificate with")
    walls.needed()
    with tempfile.TemporaryDirectory(prefix="sp-tls-") as folder, \
            Daemon(folder, *tls.certificate(folder, "doors")) as d:
        r = subprocess.run([gate.program("sallyportctl"), "-S", d.socket,
                            "episodes", "create", "box"], check=False,
                           capture_output=True, timeout=120)
        if r.returncode != 0:
            sys.exit(f"no episode: {r.stderr.decode()}")
        tap.eq([tls.wrapper(d.cert, *p)(d.connect()).selected_alpn_protocol()
                for p in (("h2", "http/1.1"), ("http/1.1",))],
               ["h2", "http/1.1"], "both versions are offered")
        requests(d)
        sockets(d)
        plain = gate.Reply(d.connect(), gate.request(SEE, "/mcp", list(
            fields_of("AGENT").items())), read=False)
        while plain.more():
            pass
        tap.ok(b"result" not in plain.buf, "nothing is served without TLS",
               plain.buf)
    tap.done()


main()

#!/usr/bin/python3
"""WebSockets over real sockets: t/unit/websock_echo, a gate that echoes."""
import os
import socket
import struct
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import tap  # noqa: E402
import ws  # noqa: E402
from ws import BIN, CONT, FIN, PING, PONG, TEXT  # noqa: E402

BUILD = os.path.abspath(os.environ.get("SP_BUILDDIR", "."))
ECHO = os.path.join(BUILD, "t/unit/websock_echo")
if not os.path.exists(ECHO):
    tap.skip_all(f"{ECHO} is not built: make check-programs")


class Echo:
    def __init__(self, ping_ms=0):
        self.p = subprocess.Popen([ECHO, str(ping_ms)], text=True,
                                  stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        self.port = int(self.p.stdout.readline())

    def ws(self, *a, **k):
        return ws.Ws(self.port, *a, **k)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.stdin.close()
        tap.eq(self.p.wait(60), 0, "the server ends as it should")


def handshake(e):
    with e.ws(fields={"Sec-WebSocket-Extensions":
                      "permessage-deflate; client_max_window_bits",
                      "Sec-WebSocket-Protocol": "other, mcp"}) as c:
        tap.eq(c.status, 101, "a handshake")
        tap.eq(c.field("Sec-WebSocket-Accept"), ws.accept(c.key).decode(),
               "its key is answered")
        tap.eq((c.field("Upgrade"), c.field("Connection")),
               ("websocket", "Upgrade"), "switched")
        tap.eq(c.field("Sec-WebSocket-Extensions"), None,
               "no extension is taken")
        tap.eq(c.field("Sec-WebSocket-Protocol"), "mcp",
               "the subprotocol that is known is")
        tap.eq((c.field("Content-Length"), c.field("Transfer-Encoding")),
               (None, None), "no framing")
    with e.ws(fields={"Sec-WebSocket-Protocol": "other"},
              more=ws.text("early") + ws.text("bird")) as c:
        tap.eq(c.field("Sec-WebSocket-Protocol"), None,
               "one that is not known is not")
        tap.eq([c.message(), c.message()], ["early", "bird"],
               "frames behind the head are served")


def refused(e):
    for what, fields, want in (
            ("no key", {"Sec-WebSocket-Key": None}, 400),
            ("a short key", {"Sec-WebSocket-Key": "YWJj"}, 400),
            ("no version", {"Sec-WebSocket-Version": None}, 400),
            ("version 8", {"Sec-WebSocket-Version": "8"}, 426),
            ("no Upgrade", {"Upgrade": None}, 426),
            ("no Connection", {"Connection": None}, 426)):
        with e.ws(fields=fields) as c:
            tap.eq(c.status, want, f"refused: {what}")
            if want == 426:
                tap.eq((c.field("Upgrade"), c.field("Sec-WebSocket-Version")),
                       ("websocket", "13"), "and told what is served")


def echoes(e):
    with e.ws() as c:
        for n in (0, 1, 125, 126, 65535, 65536, 1 << 20, 16 << 20):
            c.send(ws.text(b"a" * n))
            tap.ok(c.message() == "a" * n, f"{n} bytes")
        for b in ws.text("byte by byte"):
            c.s.sendall(bytes([b]))
        tap.eq(c.message(), "byte by byte", "byte by byte")
        c.send(ws.frame(TEXT, b"in "), ws.frame(FIN | PING, b"p"),
               ws.frame(CONT, "pi\u00e9ces".encode()[:3]),
               ws.frame(FIN | CONT, "pi\u00e9ces".encode()[3:]))
        tap.eq(c.frame(), (FIN | PONG, b"p"), "a pong between")
        tap.eq(c.message(), "in pi\u00e9ces", "the pieces of a message")
        many = [f"{i} " + "x" * 500 for i in range(2000)]
        c.send(*map(ws.text, many))
        tap.ok([c.message() for _ in many] == many,
               "2,000 at once, read later")
        c.send(ws.close(1000, b"bye"))
        tap.eq(c.message(), (1000, ""), "closed")
        tap.ok(c.ended(), "and the connection ends")


def ends(e):
    for what, bytes_, want in (
            ("too long", [ws.frame(BIN, b"x" * (16 << 20)),
                          ws.frame(FIN | CONT, b"x")], 1009),
            ("announced too long",
             [b"\x81\xff" + struct.pack(">Q", 1 << 40) + b"keykx"], 1009),
            ("not UTF-8", [ws.frame(FIN | TEXT, b"\xff")], 1007),
            ("not masked", [ws.frame(FIN | TEXT, b"x", mask=False)], 1002),
            ("a reserved bit", [ws.frame(0xc1, b"x")], 1002),
            ("a bad close", [ws.close(1005)], 1002),
            ("a binary message", [ws.frame(FIN | BIN, b"x")], 1003),
            ("on request", [ws.text("close")], 4000)):
        with e.ws() as c:
            c.send(*bytes_)
            got = c.message()
            tap.eq(got and got[0], want, f"closed: {what}")
            if want in (1003, 4000):
                c.send(ws.close(want))
            tap.ok(c.ended(), "and the connection ends")
    with e.ws() as c:
        c.send(ws.text("x"), ws.frame(TEXT, b"half"))
        tap.eq(c.message(), "x", "one that goes on")
        c.s.shutdown(socket.SHUT_WR)
        tap.ok(c.ended(), "half closed without a close frame: ended")
    with e.ws() as c:
        c.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                       struct.pack("ii", 1, 0))
    with e.ws() as c:
        c.send(ws.text("alive"))
        tap.eq(c.message(), "alive", "a reset disturbs nobody")


def many(e):
    all_ = [e.ws() for _ in range(300)]
    for i, c in enumerate(all_):
        c.send(ws.text(f"I am {i}"))
    tap.ok([c.message() for c in all_]
           == [f"I am {i}" for i in range(300)], "300 at once")
    for c in all_:
        c.s.close()


with Echo() as e:
    handshake(e)
    refused(e)
    echoes(e)
    ends(e)
    many(e)
with Echo(20) as e, e.ws() as c:
    tap.eq(c.frame(), (FIN | PING, b""), "a ping of the server's")
    c.send(ws.frame(FIN | PONG), ws.text("x"))
    tap.eq(c.message(), "x", "answered: it lives")
tap.done()

#!/usr/bin/python3
"""HTTP/2 frame by frame: RFC 9113 sections 3 to 8, and RFC 7541."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import h2  # noqa: E402
import tap  # noqa: E402
from h2 import (ACK, CALM, CANCEL, CLOSED, COMPRESSION, CONTINUATION,  # noqa
                DATA, END_HEADERS, END_STREAM, FLOW, GOAWAY, HEADERS, PADDED,
                PING, PRIO, PRIORITY, PROTOCOL, PUSH, REFUSED, RST, SETTINGS,
                SIZE, WINDOW, block, fields, frame, headers, settings, u32)

CONF = """
upstream up { server http://127.0.0.1:9/v1; }
server {
    listen 127.0.0.1:0;
    header_max 8k; header_line_max 2k; header_max_n 40;
    location /health { health; }
    location /status { status; }
    location /v1 { llm_intercept; upstream up; capture off; keys open; }
}
"""
POST = "/v1/chat/completions"


def post(*more):
    return fields("POST", POST, *more)


def extended(protocol="websocket", method="CONNECT"):
    return [(":protocol", protocol)] + fields(method)


def without(name):
    return [f for f in fields() if f[0] != name]


def get(stream=1, *more):
    return headers(stream, fields("GET", "/health", *more))


def opened(stream=1, *more):
    return headers(stream, post(*more), END_HEADERS)


# ---- what must come of it ---------------------------------------------------

def conn(*codes):
    """A connection error: GOAWAY with one of the codes, or just the end."""
    def check(c):
        got = c.frames()
        away = [f for f in got if f.kind == GOAWAY]
        return c.closed and (not away
                             or any(f.code in codes for f in away))
    check.text = "connection error"
    return check


def stream(*codes, at=1):
    """A stream error, which may be taken for one of the connection."""
    def check(c):
        got = c.frames(lambda f: f.kind == RST and f.stream == at
                       or f.kind == GOAWAY)
        return not c.silent and (c.closed or got[-1].code in codes)
    check.text = "stream error"
    return check


def status(want, at=1):
    def check(c):
        got = c.frames(lambda f: f.kind == HEADERS and f.stream == at
                       or f.kind in (RST, GOAWAY))
        return bool(got) and got[-1].kind == HEADERS and \
            h2.status(got[-1].payload) == want
    check.text = f"status {want}"
    return check


def alive(c):
    return c.alive() and not any(f.kind in (RST, GOAWAY) for f in c.all)


alive.text = "nothing happens"


def unserved(c):
    """Streams that are over are not remembered: as frames in flight."""
    return alive(c) and not any(f.kind == HEADERS and f.stream < 5
                                for f in c.all)


unserved.text = "it is not served"


def acked(c):
    got = c.frames(lambda f: f.kind == SETTINGS and f.flags & ACK)
    return bool(got) and got[-1].payload == b"" and alive(c)


acked.text = "is acknowledged"
OK = status(200)


def either(*checks):
    """Of two that read alike the first frames."""
    def check(c):
        for f in c.frames(lambda f: f.kind in (HEADERS, RST, GOAWAY)):
            pass
        last = c.all[-1]
        return c.closed or not c.silent and last.kind != HEADERS or \
            h2.status(last.payload) in checks
    check.text = f"refused, or status {checks}"
    return check


BAD = stream(PROTOCOL)
BIG = b"x" * 16384
LONG = [("x-%d" % i, "v" * 100) for i in range(30)]
SPLIT = block(fields())
HALF = frame(HEADERS, END_STREAM, 1, SPLIT[:10])
REST = frame(CONTINUATION, END_HEADERS, 1, SPLIT[10:])
PRIO5 = u32(0) + b"\x10"

CASES = [
    # section 3.4
    ("3.4 nothing wrong", [get()], OK),
    # section 4
    ("4.1 an unknown type is ignored", [frame(0x16, 0, 0, b"12345678")],
     alive),
    ("4.1 also on a stream", [opened(), frame(0x42, 0xff, 1, b"x")], alive),
    ("4.1 undefined flags of PING", [frame(PING, 0x16, 0, b"12345678")],
     alive),
    ("4.1 undefined flags of HEADERS",
     [headers(1, fields(), END_HEADERS | END_STREAM | 0xc2 & ~PADDED)], OK),
    ("4.1 the reserved bit", [frame(PING, 0, 0x80000000, b"12345678")],
     alive),
    ("4.1 the reserved bit of a request",
     [headers(0x80000001, fields())], OK),
    ("4.2 the largest DATA", [opened(), frame(DATA, 0, 1, BIG)], alive),
    ("4.2 DATA too large", [opened(), frame(DATA, 0, 1, BIG + b"x")],
     stream(SIZE)),
    ("4.2 HEADERS too large", [frame(HEADERS, 5, 1, SPLIT + BIG)],
     conn(SIZE)),
    ("4.2 SETTINGS too large", [frame(SETTINGS, 0, 0, bytes(6 * 2731))],
     conn(SIZE)),
    ("4.2 an unknown type too large", [frame(0x42, 0, 0, BIG + b"x")],
     conn(SIZE)),
    ("4.3 a block that is none", [frame(HEADERS, 5, 1, b"\x40")],
     conn(COMPRESSION)),
    ("4.3 PRIORITY within a block", [HALF, frame(PRIORITY, 0, 1, PRIO5),
                                     REST], conn(PROTOCOL)),
    ("4.3 another stream within a block", [HALF, get(3)], conn(PROTOCOL)),
    ("4.3 PING within a block", [HALF, frame(PING, 0, 0, b"12345678")],
     conn(PROTOCOL)),
    ("4.3 DATA within a block", [HALF, frame(DATA, 0, 1, b"x")],
     conn(PROTOCOL)),
    ("4.3 SETTINGS within a block", [HALF, settings()], conn(PROTOCOL)),
    # section 5.1
    ("5.1 idle: DATA", [frame(DATA, 1, 1, b"x")], conn(PROTOCOL)),
    ("5.1 idle: RST_STREAM", [frame(RST, 0, 1, u32(8))], conn(PROTOCOL)),
    ("5.1 idle: WINDOW_UPDATE", [frame(WINDOW, 0, 1, u32(8))],
     conn(PROTOCOL)),
    ("5.1 idle: CONTINUATION", [frame(CONTINUATION, 4, 1, SPLIT)],
     conn(PROTOCOL)),
    ("5.1 idle: PRIORITY", [frame(PRIORITY, 0, 1, PRIO5)], alive),
    ("5.1 half closed: DATA", [headers(1, post()), frame(DATA, 1, 1, b"x")],
     stream(CLOSED)),
    ("5.1 half closed: HEADERS", [headers(1, post()), headers(1, post())],
     stream(CLOSED)),
    ("5.1 half closed: CONTINUATION",
     [get(), frame(CONTINUATION, 4, 1, SPLIT)], conn(CLOSED, PROTOCOL)),
    ("5.1 half closed: WINDOW_UPDATE",
     [headers(1, post(("content-length", "0"))),
      frame(WINDOW, 0, 1, u32(8))], status(400)),
    ("5.1 closed by RST: HEADERS",
     [opened(), frame(RST, 0, 1, u32(8)), headers(1, post())],
     unserved),
    ("5.1 closed by RST: CONTINUATION",
     [opened(), frame(RST, 0, 1, u32(8)),
      frame(CONTINUATION, 4, 1, SPLIT)], conn(CLOSED, PROTOCOL)),
    ("5.1 closed by RST: WINDOW_UPDATE",
     [opened(), frame(RST, 0, 1, u32(8)), frame(WINDOW, 0, 1, u32(8))],
     alive),
    ("5.1 closed by RST: RST_STREAM",
     [opened(), frame(RST, 0, 1, u32(8)), frame(RST, 0, 1, u32(8))], alive),
    ("5.1 closed by RST: PRIORITY",
     [opened(), frame(RST, 0, 1, u32(8)), frame(PRIORITY, 0, 1, PRIO5)],
     alive),
    ("5.1 a frame after RST_STREAM is ignored, and counted",
     [opened(), frame(RST, 0, 1, u32(8)), frame(DATA, 0, 1, b"x"), get(3)],
     status(200, 3)),
    ("5.1.1 an even stream", [get(2)], conn(PROTOCOL)),
    ("5.1.1 a lower stream", [get(5), get(3)], unserved),
    ("5.1.1 stream 0", [get(0)], conn(PROTOCOL)),
    ("5.1.1 streams may be skipped", [get(7)], status(200, 7)),
    ("5.1.1 the last stream there is", [get(0x7fffffff)],
     status(200, 0x7fffffff)),
    ("5.1.2 more streams than allowed",
     [opened(2 * i + 1) for i in range(129)], stream(REFUSED, PROTOCOL,
                                                     at=257)),
    ("5.3.1 HEADERS that depend on themselves",
     [frame(HEADERS, 0x25, 1, u32(1) + b"\0" + SPLIT)], stream(PROTOCOL)),
    ("5.3.1 PRIORITY that depends on itself",
     [frame(PRIORITY, 0, 1, u32(1) + b"\0")], conn(PROTOCOL)),
    ("5.3.2 HEADERS with a priority",
     [frame(HEADERS, 0x25, 1, u32(0) + b"\xff" + SPLIT)], OK),
    ("5.5 an extension within a block", [HALF, frame(0x42, 0, 1, b"x")],
     conn(PROTOCOL)),
    # section 6
    ("6.1 DATA on 0", [frame(DATA, 0, 0, b"x")], conn(PROTOCOL)),
    ("6.1 padding longer than the frame",
     [opened(), frame(DATA, PADDED, 1, b"\x09x")], conn(PROTOCOL)),
    ("6.1 padding as long as the frame",
     [opened(), frame(DATA, PADDED, 1, b"\x02x")], conn(PROTOCOL)),
    ("6.1 no byte for the padding", [opened(), frame(DATA, PADDED, 1)],
     conn(SIZE, PROTOCOL)),
    ("6.1 padding", [opened(), frame(DATA, PADDED | 1, 1, b"\x02{}xx")],
     status(502)),
    ("6.1 nothing but padding", [opened(), frame(DATA, PADDED, 1, b"\x01x")],
     alive),
    ("6.2 HEADERS on 0", [get(0)], conn(PROTOCOL)),
    ("6.2 padding longer than the frame",
     [frame(HEADERS, 5 | PADDED, 1, b"\xff" + SPLIT)], conn(PROTOCOL)),
    ("6.2 padding",
     [frame(HEADERS, 5 | PADDED, 1, b"\x04" + SPLIT + b"\0\0\0\0")], OK),
    ("6.2 padding and priority",
     [frame(HEADERS, 5 | PADDED | PRIO, 1,
            b"\x02" + PRIO5 + SPLIT + b"\0\0")], OK),
    ("6.3 PRIORITY on 0", [frame(PRIORITY, 0, 0, PRIO5)], conn(PROTOCOL)),
    ("6.3 PRIORITY too short", [opened(), frame(PRIORITY, 0, 1, b"1234")],
     stream(SIZE)),
    ("6.3 PRIORITY too long", [opened(), frame(PRIORITY, 0, 1, b"123456")],
     stream(SIZE)),
    ("6.4 RST_STREAM on 0", [frame(RST, 0, 0, u32(8))], conn(PROTOCOL)),
    ("6.4 RST_STREAM too short", [opened(), frame(RST, 0, 1, b"123")],
     conn(SIZE)),
    ("6.4 RST_STREAM too long", [opened(), frame(RST, 0, 1, b"12345")],
     conn(SIZE)),
    ("6.5 ACK with a payload", [frame(SETTINGS, ACK, 0, bytes(6))],
     conn(SIZE)),
    ("6.5 on a stream", [frame(SETTINGS, 0, 1)], conn(PROTOCOL)),
    ("6.5 no multiple of six", [frame(SETTINGS, 0, 0, b"123")], conn(SIZE)),
    ("6.5.2 ENABLE_PUSH 2", [settings((2, 2))], conn(PROTOCOL)),
    ("6.5.2 ENABLE_PUSH 0", [settings((2, 0))], acked),
    ("6.5.2 a window too large", [settings((4, 1 << 31))], conn(FLOW)),
    ("6.5.2 the largest window", [settings((4, (1 << 31) - 1))], acked),
    ("6.5.2 frames too small", [settings((5, 16383))], conn(PROTOCOL)),
    ("6.5.2 frames too large", [settings((5, 1 << 24))], conn(PROTOCOL)),
    ("6.5.2 the largest frames", [settings((5, (1 << 24) - 1))], acked),
    ("6.5.2 no streams of ours", [settings((3, 0))], acked),
    ("6.5.2 an unknown one", [settings((0xff, 1), (0xfff0, 7))], acked),
    ("6.5.2 CONNECT by WebSockets 2", [settings((8, 2))],
     either()),
    ("6.5.3 the last of two counts", [settings((4, 100), (4, 1)), get()],
     OK),
    ("6.7 PING on a stream", [frame(PING, 0, 1, b"12345678")],
     conn(PROTOCOL)),
    ("6.7 PING too short", [frame(PING, 0, 0, b"1234567")], conn(SIZE)),
    ("6.7 PING too long", [frame(PING, 0, 0, b"123456789")], conn(SIZE)),
    ("6.7 an answer nobody asked for", [frame(PING, ACK, 0, b"12345678")],
     alive),
    ("6.8 GOAWAY on a stream", [frame(GOAWAY, 0, 1, bytes(8))],
     conn(PROTOCOL)),
    ("6.8 GOAWAY too short", [frame(GOAWAY, 0, 0, bytes(7))], conn(SIZE)),
    ("6.9 no increment", [frame(WINDOW, 0, 0, u32(0))], conn(PROTOCOL)),
    ("6.9 no increment of a stream", [opened(), frame(WINDOW, 0, 1, u32(0))],
     stream(PROTOCOL)),
    ("6.9 WINDOW_UPDATE too short", [frame(WINDOW, 0, 0, b"123")],
     conn(SIZE)),
    ("6.9 WINDOW_UPDATE too long", [frame(WINDOW, 0, 0, b"12345")],
     conn(SIZE)),
    ("6.9.1 the connection's window overflows",
     [frame(WINDOW, 0, 0, u32(0x7fffffff))] * 2, conn(FLOW)),
    ("6.9.1 a stream's window overflows",
     [opened(), frame(WINDOW, 0, 1, u32(0x7fffffff)) * 2], stream(FLOW)),
    ("6.9.2 a change overflows a stream's window",
     [opened(), frame(WINDOW, 0, 1, u32(0x7fff0000)),
      settings((4, 0x7fffffff))], stream(FLOW)),
    ("6.10 CONTINUATION", [HALF, REST], OK),
    ("6.10 of one byte each",
     [frame(HEADERS, 1, 1, SPLIT[:1])]
     + [frame(CONTINUATION, 0, 1, SPLIT[i:i + 1]) for i in range(1, 6)]
     + [frame(CONTINUATION, 4, 1, SPLIT[6:])], OK),
    ("6.10 an empty one", [HALF, frame(CONTINUATION, 0, 1), REST], OK),
    ("6.10 on 0", [HALF, frame(CONTINUATION, 4, 0, SPLIT[10:])],
     conn(PROTOCOL)),
    ("6.10 after the end of a block", [opened(), REST], conn(PROTOCOL)),
    ("6.10 after a CONTINUATION that ended it", [HALF, REST, REST],
     conn(PROTOCOL)),
    ("6.10 after DATA", [opened(), frame(DATA, 0, 1, b"x"), REST],
     conn(PROTOCOL)),
    ("6.10 too many of them",
     [frame(HEADERS, 1, 1, SPLIT[:1])] + [frame(CONTINUATION, 0, 1)] * 5000,
     conn(CALM, PROTOCOL)),
    # section 7
    ("7 GOAWAY with an unknown code",
     [frame(GOAWAY, 0, 0, u32(0) + u32(0xff))], conn(0)),
    ("7 RST_STREAM with an unknown code",
     [opened(), frame(RST, 0, 1, u32(0xff))], alive),
    # section 8.1
    ("8.1 a second HEADERS without END_STREAM",
     [opened(), headers(1, [("x", "y")], END_HEADERS)], BAD),
    ("8.1 trailers", [opened(), frame(DATA, 0, 1, b"{}"),
                      headers(1, [("x-trailer", "y")])], status(502)),
    ("8.1 trailers with a pseudo-header",
     [opened(), frame(DATA, 0, 1, b"{}"), headers(1, [(":path", "/")])],
     BAD),
    ("8.1 PUSH_PROMISE", [frame(PUSH, 4, 1, u32(2) + SPLIT)],
     conn(PROTOCOL)),
    ("8.1.1 Content-Length too small",
     [opened(1, ("content-length", "1")), frame(DATA, 1, 1, b"{}")], BAD),
    ("8.1.1 Content-Length too large",
     [opened(1, ("content-length", "3")), frame(DATA, 1, 1, b"{}")], BAD),
    ("8.1.1 Content-Length and several DATA",
     [opened(1, ("content-length", "3")), frame(DATA, 0, 1, b"{}"),
      frame(DATA, 1, 1, b"{}")], BAD),
    ("8.1.1 Content-Length and no DATA",
     [headers(1, post(("content-length", "3")))], BAD),
    ("8.1.1 Content-Length that fits",
     [opened(1, ("content-length", "2")), frame(DATA, 0, 1, b"{"),
      frame(DATA, 1, 1, b"}")], status(502)),
    ("8.1.1 two Content-Lengths",
     [opened(1, ("content-length", "2"), ("content-length", "2"))], BAD),
    ("8.1.1 a Content-Length of no digits",
     [opened(1, ("content-length", "+2"))], BAD),
    ("8.1.1 a Content-Length past 63 bits",
     [opened(1, ("content-length", "9223372036854775808"))], BAD),
    # section 8.2
    ("8.2.1 an upper-case name", [get(1, ("X-Test", "y"))], BAD),
    ("8.2.2 connection", [get(1, ("connection", "keep-alive"))], BAD),
    ("8.2.2 keep-alive", [get(1, ("keep-alive", "timeout=5"))], BAD),
    ("8.2.2 proxy-connection", [get(1, ("proxy-connection", "close"))], BAD),
    ("8.2.2 transfer-encoding", [get(1, ("transfer-encoding", "chunked"))],
     BAD),
    ("8.2.2 upgrade", [get(1, ("upgrade", "websocket"))], BAD),
    ("8.2.2 te: gzip", [get(1, ("te", "gzip"))], BAD),
    ("8.2.2 te: trailers", [get(1, ("te", "trailers"))], OK),
    ("8.2.2 te: trailers, gzip", [get(1, ("te", "trailers, gzip"))], BAD),
    ("8.2.3 several cookies", [get(1, ("cookie", "a=1"), ("cookie", "b"))],
     OK),
    # section 8.3
    ("8.3 an unknown pseudo-header", [get(1, (":test", "x"))], BAD),
    ("8.3 a reply's pseudo-header", [get(1, (":status", "200"))], BAD),
    ("8.3 a pseudo-header after a field",
     [headers(1, fields()[:3] + [("x", "y"), (":authority", "h")])], BAD),
    ("RFC 8441 extended CONNECT where no WebSocket is",
     [headers(1, extended(), END_HEADERS)], status(405)),
    ("RFC 8441 that has ended already", [headers(1, extended())],
     status(405)),
    ("RFC 8441 another :protocol",
     [headers(1, extended("connect-udp"), END_HEADERS)], status(501)),
    ("RFC 8441 an empty :protocol",
     [headers(1, extended(""), END_HEADERS)], either(405, 501)),
    ("RFC 8441 two :protocol",
     [headers(1, [(":protocol", "websocket")] + extended(), END_HEADERS)],
     BAD),
    ("RFC 8441 :protocol of a GET",
     [headers(1, extended(method="GET"), END_HEADERS)], BAD),
    ("RFC 8441 no :path",
     [headers(1, [f for f in extended() if f[0] != ":path"], END_HEADERS)],
     BAD),
    ("RFC 8441 no :scheme",
     [headers(1, [f for f in extended() if f[0] != ":scheme"],
              END_HEADERS)], BAD),
    ("RFC 8441 no :authority",
     [headers(1, [f for f in extended() if f[0] != ":authority"],
              END_HEADERS)], either(400)),
    ("8.3.1 no :method", [headers(1, without(":method"))], BAD),
    ("8.3.1 no :scheme", [headers(1, without(":scheme"))], BAD),
    ("8.3.1 no :path", [headers(1, without(":path"))], BAD),
    ("8.3.1 an empty :path", [headers(1, fields("GET", ""))], BAD),
    ("8.3.1 :path without /", [headers(1, fields("GET", "health"))], BAD),
    ("8.3.1 :path *", [headers(1, fields("GET", "*"))], either(400)),
    ("8.3.1 :method of no token", [headers(1, fields("G T"))], BAD),
    ("8.3.1 an empty :method", [headers(1, fields(""))], either(400)),
    ("8.3.1 no name of a server", [headers(1, without(":authority"))],
     either(400)),
    ("8.3.1 Host instead of :authority",
     [headers(1, without(":authority") + [("host", "h")])], OK),
    ("8.3.1 Host and :authority", [get(1, ("host", "h"))], OK),
    ("8.3.1 Host and :authority differ", [get(1, ("host", "other"))],
     status(400)),
    ("8.3.1 two Hosts", [get(1, ("host", "h"), ("host", "h"))], BAD),
    ("8.3.1 userinfo in :authority",
     [headers(1, fields(authority="u@h"))], either(400)),
    ("8.3.1 a slash in :authority", [headers(1, fields(authority="h/x"))],
     either(400)),
    ("8.3.1 a fragment in :path", [headers(1, fields("GET", "/health#x"))],
     status(400)),
    ("8.3.1 a space in :path", [headers(1, fields("GET", "/a b"))],
     either(400)),
    ("8.3.1 a backslash in :path", [headers(1, fields("GET", "/a\\b"))],
     status(400)),
    ("8.3.1 a query", [headers(1, fields("GET", "/health?x=1"))], OK),
    ("8.5 CONNECT", [headers(1, [(":method", "CONNECT"),
                                 (":authority", "h:1")], END_HEADERS)],
     status(405)),
    ("8.5 CONNECT with :path",
     [headers(1, fields("CONNECT"), END_HEADERS)], BAD),
    # limits of ours
    ("HEAD", [headers(1, fields("HEAD"))], OK),
    ("404", [headers(1, fields("GET", "/nowhere"))], status(404)),
    ("an early answer", [headers(1, fields("POST", "/health"),
                                 END_HEADERS)], status(405)),
    ("a line too long", [get(1, ("x", "v" * 2100))], status(431)),
    ("a :path too long", [headers(1, fields("GET", "/" + "p" * 2100))],
     status(414)),
    ("too many fields", [get(1, *[("x", "y")] * 41)], status(431)),
    ("as many fields as may be", [get(1, *[("x", "y")] * 40)], OK),
    ("a head too large",
     [frame(HEADERS, 1, 1, block(fields() + LONG * 2)),
      frame(CONTINUATION, 4, 1, block(LONG * 1))], status(431)),
    ("an unknown expectation", [opened(1, ("expect", "a-miracle"))],
     status(417)),
    # RFC 7541
    ("hpack 2.3.3 an index past the tables", [frame(HEADERS, 5, 1,
                                                    SPLIT + b"\xc6")],
     conn(COMPRESSION)),
    ("hpack 2.3.3 a name's index past the tables",
     [frame(HEADERS, 5, 1, SPLIT + b"\x7f\x20\x01x")], conn(COMPRESSION)),
    ("hpack 4.2 a change of size at the end",
     [frame(HEADERS, 5, 1, SPLIT + b"\x21")], conn(COMPRESSION)),
    ("hpack 5.1 an integer without an end",
     [frame(HEADERS, 5, 1, SPLIT + b"\x7f" + b"\xff" * 20)],
     conn(COMPRESSION)),
    ("hpack 5.2 a string past the block",
     [frame(HEADERS, 5, 1, SPLIT + b"\0\1x\x7f")], conn(COMPRESSION)),
    ("hpack 5.2 Huffman padding of zeroes",
     [frame(HEADERS, 5, 1, SPLIT + b"\0\1x\x81\x00")], conn(COMPRESSION)),
    ("hpack 5.2 Huffman padding over seven bits",
     [frame(HEADERS, 5, 1, SPLIT + b"\0\1x\x82\x07\xff")],
     conn(COMPRESSION)),
    ("hpack 5.2 Huffman with EOS",
     [frame(HEADERS, 5, 1, SPLIT + b"\0\1x\x84\xff\xff\xff\xff")],
     conn(COMPRESSION)),
    ("hpack 6.1 index 0", [frame(HEADERS, 5, 1, SPLIT + b"\x80")],
     conn(COMPRESSION)),
    ("hpack 6.3 a table too large",
     [frame(HEADERS, 5, 1, b"\x3f\xe2\x1f" + SPLIT)], conn(COMPRESSION)),
    ("hpack 6.3 a table of nothing", [frame(HEADERS, 5, 1,
                                            b"\x20" + SPLIT)], OK),
]
for name in ("method", "scheme", "path", "authority"):
    CASES.append((f"8.3 :{name} twice",
                  [headers(1, fields() + [f for f in fields()
                                          if f[0] == ":" + name])], BAD))
for byte in list(range(0x09)) + list(range(0x0a, 0x20)) + [0x7f]:
    CASES.append((f"8.2.1 byte {byte:#04x} in a value",
                  [get(1, ("x", "a" + chr(byte) + "b"))], BAD))
for byte in list(range(0x21)) + [ord(c) for c in '"(),/;<=>?@[\\]{}'] + [
        0x7f, 0x80, 0xff]:
    CASES.append((f"8.2.1 byte {byte:#04x} in a name",
                  [get(1, ("a" + chr(byte) + "b", "x"))], BAD))
for value in (" x", "x ", "\tx", "x\t"):
    CASES.append((f"8.2.1 space around a value {value!r}",
                  [get(1, ("x", value))], BAD))
for byte in (0x09, 0x80, 0xe4, 0xff):
    CASES.append((f"8.2.1 byte {byte:#04x} is allowed in a value",
                  [get(1, ("x", "a" + chr(byte) + "b"))], OK))


def windows(port):
    c = h2.Client(port, first=settings((4, 1)))
    c.send(get())
    got = c.frames(lambda f: f.kind == DATA)
    tap.eq(len(got[-1].payload), 1, "6.9.2 a window of one: DATA of one byte")
    tap.ok(alive(c), "6.9.2 and no more")
    c.send(frame(WINDOW, 0, 1, u32(2)))
    got = c.frames(lambda f: f.kind == DATA)
    tap.eq(len(got[-1].payload), 2, "6.9.1 two more: DATA of two")
    c.send(settings((4, 0)))
    tap.ok(alive(c), "6.9.2 the window becomes negative")
    c.send(frame(WINDOW, 0, 1, u32(1)))
    tap.ok(alive(c) and c.all[-1].kind == PING, "6.9.2 zero again: nothing")
    c.send(settings((4, 1000)))
    got = c.frames(lambda f: f.flags & END_STREAM and f.kind == DATA)
    tap.eq(got[-1].flags & END_STREAM, 1, "6.9.2 then the rest")
    c.close()


def prefaces(port):
    for what, data in (("HTTP/1 in disguise", b"PRI * HTTP/2.0\r\n\r\nSM\r\n"
                        b"\r\r" + settings()),
                       ("no SETTINGS", h2.PREFACE + frame(PING, 0, 0,
                                                          b"12345678")),
                       ("SETTINGS that acknowledge",
                        h2.PREFACE + settings(flags=ACK))):
        c = h2.Client(port, preface=False)
        c.send(data)
        while c.exactly(1) is not None:
            pass
        tap.ok(c.closed, f"3.4 {what}: closed")
        c.close()


def interleaved(port):
    """Streams do not wait for each other; the first is still open."""
    c = h2.Client(port)
    c.send(opened(1), get(3), frame(DATA, 0, 1, b"{"), get(5))
    c.frames(lambda f: f.stream == 5 and f.flags & END_STREAM)
    ends = {f.stream for f in c.all if f.kind == DATA
            and f.flags & END_STREAM}
    tap.eq(ends, {3, 5}, "streams overtake one that waits")
    c.send(frame(RST, 0, 1, u32(CANCEL)))
    tap.ok(c.alive(), "and it may be reset")
    c.close()


def resets(n):
    return b"".join(opened(i) + frame(RST, 0, i, u32(CANCEL))
                    for i in range(1, 2 * n, 2))


BIG = [("x-big-%d" % i, "v" * 8000) for i in range(8)]
FLOODS = {
    "settings": settings() * 300,
    "ping": frame(PING, 0, 0, b"12345678") * 3000,
    "priority": frame(PRIORITY, 0, 3, PRIO5) * 3000,
    "window_update": frame(WINDOW, 0, 0, u32(1)) * 3000,
    "empty_data": opened() + frame(DATA, 0, 1) * 3000,
    "reset": resets(400),
    "headers": headers(1, fields("GET", "/health", *BIG[:1]), 0) + b"".join(
        frame(CONTINUATION, 0, 1, h2.block(BIG[:1])) for _ in range(40)),
    "other": frame(0xfa, 0, 0, bytes(16384)) * 600,
}


def metrics(g):
    r = g.get("/status", headers=[("Accept", "text/plain")])
    return dict(x.rsplit(" ", 1) for x in r.body.decode().splitlines()
                if x.startswith("sallyport_http2_"))


def floods(g):
    """Each kind of flood ends its connection, is counted, and harms nobody."""
    for kind, data in FLOODS.items():
        c = h2.Client(g.port)
        c.send(data)
        got = c.frames(lambda f: f.kind == GOAWAY)
        tap.ok(got and got[-1].kind == GOAWAY and got[-1].code == CALM,
               f"10.5 {kind}: ENHANCE_YOUR_CALM", got[-3:])
        c.close()
        tap.eq(metrics(g)[f'sallyport_http2_floods_total{{kind="{kind}"}}'],
               "1", "and it is counted as what it was")
    tap.ok(int(metrics(g)["sallyport_http2_resets_total"]) > 200,
           "resets are counted")
    c = h2.Client(g.port)
    c.send(opened(1), opened(3))
    tap.ok(c.alive(), "a client that behaves is served")
    gate.until(lambda: metrics(g)["sallyport_http2_connections"] == "1",
               "the others to be closed")
    tap.eq(metrics(g)["sallyport_http2_streams"], "2",
           "its connection and streams are counted")
    c.close()


def main():
    tap.ok(len(CASES) > 100, f"{len(CASES)} cases")
    with gate.Gate(CONF) as g:
        prefaces(g.port)
        windows(g.port)
        interleaved(g.port)
        for name, data, check in CASES:
            c = h2.Client(g.port)
            c.send(*data)
            good = check(c)
            tap.ok(good, f"{name}: {check.text}", c.all[-6:])
            c.close()
        r = g.get("/health")
        tap.eq(r.status, 200, "and the gate is still there")
    with gate.Gate(CONF) as g:
        floods(g)
    tap.done()


main()

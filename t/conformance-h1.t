#!/usr/bin/python3
"""HTTP/1.1 byte by byte: RFC 9112, smuggling, limits, pipelines."""
import os
import socket
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402

CONF = """
upstream up { server http://127.0.0.1:9/v1; }
server {
    listen 127.0.0.1:0;
    header_max 8k; header_line_max 2k; header_max_n 40;
    location /health { health; }
    location /v1 { llm_intercept; upstream up; capture off; keys open; }
}
"""
H = b"Host: h\r\n"
GET = b"GET /health HTTP/1.1\r\n"
# answered only where a connection lives on, or where a request was smuggled
NEXT = b"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

# what is sent: the statuses that come back.  After each NEXT is sent; it is
# 404 where the connection lives on.  An answer from the upstream, on which
# nobody listens, is 502: that request was taken as a whole.
REFUSED = [400]
LIVES = [200, 404]
CLOSES = [200]
TAKEN = [502, 404]


def field(line):
    return GET + H + line + b"\r\n\r\n"


def host(line):
    return GET + line + b"\r\n\r\n"


def target(t, method=b"GET"):
    return method + b" " + t + b" HTTP/1.1\r\n" + H + b"\r\n"


def version(v):
    return b"GET /health" + v + b"\r\n" + H + b"\r\n"


CASES = [
    ("nothing wrong", GET + H + b"\r\n", LIVES),
    ("an empty line before", b"\r\n" + GET + H + b"\r\n", LIVES),
    ("two empty lines before", b"\r\n\r\n" + GET + H + b"\r\n", REFUSED),
    ("a bare LF before", b"\n" + GET + H + b"\r\n", REFUSED),
    ("a bare CR before", b"\r" + GET + H + b"\r\n", REFUSED),
    ("HEAD", b"HEAD /health HTTP/1.1\r\n" + H + b"\r\n", "head"),
    ("OPTIONS *", target(b"*", b"OPTIONS"), [404, 404]),
    # the request line
    ("no version", version(b""), [505]),
    ("an empty version", version(b" "), REFUSED),
    ("HTTP/0.9", b"GET /health\r\n\r\n", [505]),
    ("two spaces after the method", b"GET  /health HTTP/1.1\r\n" + H
     + b"\r\n", REFUSED),
    ("a tab after the method", b"GET\t/health HTTP/1.1\r\n" + H + b"\r\n",
     REFUSED),
    ("two spaces before the version", version(b"  HTTP/1.1"), REFUSED),
    ("a space after the version", version(b" HTTP/1.1 "), REFUSED),
    ("a space before the method", b" " + GET + H + b"\r\n", REFUSED),
    ("CR CR LF", b"GET /health HTTP/1.1\r\r\n" + H + b"\r\n", REFUSED),
    ("LF after the request line", b"GET /health HTTP/1.1\n" + H + b"\r\n",
     REFUSED),
    ("an unknown method", b"get /health HTTP/1.1\r\n" + H + b"\r\n",
     [405, 404]),
    ("CONNECT", target(b"h:1", b"CONNECT"), [405]),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", REFUSED),
    ("half a preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", [505]),
    ("the preface after a request",
     GET + H + b"\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [200, 505]),
    # targets
    ("a query", target(b"/health?a=b"), LIVES),
    ("an empty query", target(b"/health?"), LIVES),
    ("absolute", target(b"http://g:81/health?x"), LIVES),
    ("absolute, https", target(b"https://g/health"), LIVES),
    ("absolute, another scheme", target(b"ftp://g/health"), REFUSED),
    ("absolute with userinfo", target(b"http://u@g/health"), REFUSED),
    ("absolute without a host", target(b"http:///health"), REFUSED),
    ("absolute with a bad port", target(b"http://g:x/health"), REFUSED),
    ("absolute without Host", GET[:4] + b"http://g/health HTTP/1.1\r\n\r\n",
     REFUSED),
    ("no slash", target(b"health"), REFUSED),
    ("a query alone", target(b"?a"), REFUSED),
    ("an asterisk for GET", target(b"*"), REFUSED),
    ("an asterisk and more", target(b"*a", b"OPTIONS"), REFUSED),
    ("a fragment", target(b"/health#a"), REFUSED),
    ("a backslash", target(b"/health\\a"), REFUSED),
    ("a space in the target", target(b"/he alth"), REFUSED),
    ("UTF-8 in the target", target(b"/health\xc3\xa4"), REFUSED),
    # Host
    ("no Host", GET + b"\r\n", REFUSED),
    ("two Hosts", GET + H + H + b"\r\n", REFUSED),
    ("two Hosts, one hidden", GET + H + b"HOST: g\r\n\r\n", REFUSED),
    ("Host with a port", host(b"Host: a.b:80"), LIVES),
    ("Host with an empty port", host(b"Host: a.b:"), LIVES),
    ("Host of IPv6", host(b"Host: [::1]:80"), LIVES),
    ("an empty Host", host(b"Host:"), LIVES),
    ("no Host in HTTP/1.0", b"GET /health HTTP/1.0\r\n\r\n", CLOSES),
    ("two Hosts in HTTP/1.0", b"GET /health HTTP/1.0\r\n" + H + H + b"\r\n",
     REFUSED),
    # persistence
    ("close", field(b"Connection: close"), CLOSES),
    ("close in a list", field(b"Connection: x, CLOSE"), CLOSES),
    ("close in a second field",
     field(b"Connection: keep-alive\r\nConnection: close"), CLOSES),
    ("HTTP/1.0", b"GET /health HTTP/1.0\r\n" + H + b"\r\n", CLOSES),
    ("HTTP/1.0 keep-alive", b"GET /health HTTP/1.0\r\n" + H
     + b"Connection: keep-alive\r\n\r\n", LIVES),
    ("a WebSocket where none is",
     field(b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
           b"Sec-WebSocket-Version: 13\r\n"
           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), LIVES),
    ("Upgrade that Connection does not name",
     field(b"Upgrade: websocket"), LIVES),
    ("Upgrade in HTTP/1.0", b"GET /health HTTP/1.0\r\n" + H
     + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", CLOSES),
    ("Upgrade is ignored", field(b"Connection: upgrade\r\nUpgrade: h2c"),
     LIVES),
    # Content-Length
    ("a length", POST + b"Content-Length: 2\r\n\r\n{}", TAKEN),
    ("a length with zeroes before", POST + b"Content-Length: 002\r\n\r\n{}",
     None),
    ("a length of 0", GET + H + b"Content-Length: 0\r\n\r\n", LIVES),
    ("a GET with a body", GET + H + b"Content-Length: 2\r\n\r\n{}", LIVES),
    ("two lengths alike",
     POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", REFUSED),
    ("two lengths that differ",
     POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", REFUSED),
    ("a list of lengths", POST + b"Content-Length: 2, 2\r\n\r\n{}", REFUSED),
    ("a length that is hidden", POST + b"Content-Length : 2\r\n\r\n{}",
     REFUSED),
    ("a length in the folds", POST + b"A: b\r\n Content-Length: 2\r\n\r\n{}",
     REFUSED),
    ("a length past 64 bits",
     POST + b"Content-Length: 18446744073709551618\r\n\r\n{}", REFUSED),
    ("a length larger than the limit",
     POST + b"Content-Length: 99999999999\r\n\r\n", [413]),
    # Transfer-Encoding
    ("chunked", CHUNKED + b"2\r\n{}\r\n0\r\n\r\n", TAKEN),
    ("chunked in capitals", POST + b"Transfer-Encoding: CHUNKED\r\n\r\n"
     b"2\r\n{}\r\n0\r\n\r\n", TAKEN),
    ("two chunks", CHUNKED + b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", TAKEN),
    ("a size with zeroes before", CHUNKED + b"0002\r\n{}\r\n0\r\n\r\n",
     TAKEN),
    ("an extension", CHUNKED + b"2;a=b\r\n{}\r\n0\r\n\r\n", TAKEN),
    ("a quoted extension", CHUNKED + b'2;a="b"\r\n{}\r\n0\r\n\r\n', TAKEN),
    ("a trailer", CHUNKED + b"2\r\n{}\r\n0\r\nA: b\r\n\r\n", TAKEN),
    ("both framings", POST + b"Transfer-Encoding: chunked\r\n"
     b"Content-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n", REFUSED),
    ("both framings the other way round", POST + b"Content-Length: 2\r\n"
     b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", REFUSED),
    ("chunked twice", POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n"
     b"0\r\n\r\n", REFUSED),
    ("chunked in two fields", POST + b"Transfer-Encoding: chunked\r\n"
     b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", REFUSED),
    ("chunked and then identity", POST + b"Transfer-Encoding: chunked, "
     b"identity\r\n\r\n0\r\n\r\n", REFUSED),
    ("gzip, chunked", POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n"
     b"0\r\n\r\n", [501]),
    ("identity", POST + b"Transfer-Encoding: identity\r\n\r\n", [501]),
    ("an empty coding", POST + b"Transfer-Encoding:\r\n\r\n", REFUSED),
    ("chunked in HTTP/1.0", b"POST /v1/x HTTP/1.0\r\n" + H
     + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", REFUSED),
    ("chunked with a hidden colon", POST + b"Transfer-Encoding : chunked"
     b"\r\n\r\n0\r\n\r\n", REFUSED),
    # expectations
    ("an unknown expectation", POST + b"Expect: magic\r\n"
     b"Content-Length: 2\r\n\r\n", [417]),
    # limits
    ("a request line too long", target(b"/" + b"a" * 2100), [414]),
    ("a line too long", field(b"A: " + b"b" * 2100), [431]),
    ("a head too large", field(b"\r\n".join(
        b"A%d: %s" % (i, b"v" * 1500) for i in range(8))), [431]),
    ("too many fields", field(b"\r\n".join([b"A: b"] * 40)), [431]),
    ("as many as are allowed", field(b"\r\n".join([b"A: b"] * 39)), LIVES),
    ("a line that never ends", GET + b"A: " + b"x" * 5000, [431]),
    # pipelines
    ("two in one", GET + H + b"\r\n" + GET + H + b"\r\n", [200, 200, 404]),
    ("a bad one behind a good one", GET + H + b"\r\nG@T / HTTP/1.1\r\n\r\n",
     [200, 400]),
    ("nothing after close", field(b"Connection: close") + GET + H + b"\r\n",
     CLOSES),
    ("a hundred", (GET + H + b"\r\n") * 100, [200] * 100 + [404]),
    ("a body that looks like a request", POST
     + b"Content-Length: %d\r\n\r\n" % len(NEXT) + NEXT, [400, 404]),
]
# names: RFC 9110 section 5.6.2
TOKEN = set(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
for byte in range(256):
    c = bytes([byte])
    if c not in b":\n" and byte not in TOKEN:
        CASES.append((f"byte {byte:#04x} in a name",
                      field(b"A" + c + b"B: x"), REFUSED))
    if byte < 0x20 and byte not in (9, 10) or byte == 0x7f:
        CASES.append((f"byte {byte:#04x} in a value",
                      field(b"A: x" + c + b"y"), REFUSED))
    if byte < 0x20 and c != b"\n" or byte >= 0x7f:
        CASES.append((f"byte {byte:#04x} in the target",
                      target(b"/health" + c), REFUSED))
    if byte not in TOKEN and c not in b" \n":
        CASES.append((f"byte {byte:#04x} in the method",
                      target(b"/health", b"G" + c + b"T"), REFUSED))
    if byte >= 0x80 or byte == 9:
        CASES.append((f"byte {byte:#04x} is allowed in a value",
                      field(b"A: x" + c + b"y"), LIVES))
for v in (b"HTTP/2.0", b"HTTP/2", b"HTTP/1", b"HTTP/0.9", b"HTTP/3.1"):
    CASES.append((f"version {v.decode()}", version(b" " + v), [505]))
for v in (b"http/1.1", b"HTTP/1.", b"HTTP/1.10", b"HTTP/11", b"HTTP/01.1",
          b"HTTP/1,1", b"HTTPS/1.1", b"ICY", b"HTTP/ 1.1", b"HTTP/1.1x"):
    CASES.append((f"version {v.decode()}", version(b" " + v), REFUSED))
for v in (b"u@h", b"h/a", b"a,b", b"a, b", b"a b", b"a?b", b"a\\b", b"a#b",
          b"[::1", b"[]", b"[::1]x", b"[::g]", b"a:1:2", b"a:65536", b"a:-1",
          b"a:x", b"\xc3\xa4", b"h|g", b"<h>"):
    CASES.append((f"Host {v!r}", host(b"Host: " + v), REFUSED))
for v in (b"-1", b"+2", b" 2 2", b"0x2", b"2.0", b"2e0", b"two", b"", b"2,",
          b"2;", b"1_0", b"\xb2"):
    CASES.append((f"a length of {v!r}",
                  POST + b"Content-Length: " + v + b"\r\n\r\n{}", REFUSED))
for v in (b"chunke", b"xchunked", b"chunked;q=1", b"\x0bchunked",
          b"chunked\x0b", b'"chunked"', b"chunked,", b",chunked"):
    CASES.append((f"a coding of {v!r}", POST + b"Transfer-Encoding: " + v
                  + b"\r\n\r\n0\r\n\r\n", "refused"))
for v in (b"-2", b"+2", b"0x2", b" 2", b"2 ", b"g", b"", b"\t2", b";a",
          b"11111111111111111", b"ffffffffffffffff", b"2\n", b"2\r"):
    CASES.append((f"a chunk of size {v!r}", CHUNKED + v + b"\r\n{}\r\n0\r\n"
                  b"\r\n", "refused"))
for what, v in (("no CR LF after a chunk", b"2\r\n{}0\r\n\r\n"),
                ("LF after a size", b"2\n{}\r\n0\r\n\r\n"),
                ("LF after a chunk", b"2\r\n{}\n0\r\n\r\n"),
                ("CR alone after a chunk", b"2\r\n{}\rX0\r\n\r\n"),
                ("a chunk longer than its size", b"1\r\n{}\r\n0\r\n\r\n"),
                ("a bad trailer", b"2\r\n{}\r\n0\r\nA b\r\n\r\n"),
                ("a folded trailer", b"2\r\n{}\r\n0\r\n A: b\r\n\r\n"),
                ("LF after a trailer", b"2\r\n{}\r\n0\r\nA: b\n\r\n"),
                ("a NUL in an extension", b"2;a\0\r\n{}\r\n0\r\n\r\n"),
                ("an extension too long", b"2;" + b"a" * 5000
                 + b"\r\n{}\r\n0\r\n\r\n"),
                ("trailers too long", b"2\r\n{}\r\n0\r\nA: " + b"b" * 9000
                 + b"\r\n\r\n")):
    CASES.append((what, CHUNKED + v, "refused"))


def talk(port, pieces):
    """Statuses that came until the end of the connection."""
    s = socket.create_connection(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.settimeout(gate.PATIENCE / 10)
    got = b""
    try:
        for p in pieces:
            s.sendall(p)
        s.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    try:
        while True:
            more = s.recv(262144)
            if not more:
                break
            got += more
    except ConnectionResetError:
        pass
    except socket.timeout:
        return got, None
    s.close()
    return got, statuses(got)


def statuses(got):
    out = []
    while got:
        head, mark, got = got.partition(b"\r\n\r\n")
        if not mark or not head.startswith(b"HTTP/1.1 "):
            return out + [head]
        code = int(head.split(b" ")[1])
        if code == 100:
            continue
        out.append(code)
        n = [x for x in head.lower().split(b"\r\n")
             if x.startswith(b"content-length:")]
        if n:
            got = got[int(n[0].split(b":")[1]):]
    return out


def good(want, got, codes):
    if codes is None:
        return False
    if want == "head":
        return got.count(b"HTTP/1.1 200 ") == 1 and \
            got.count(b"HTTP/1.1 404 ") == 1
    if want == "refused":
        return codes in ([400], [501])
    if want is None:
        return len(codes) in (1, 2) and codes[0] in (400, 502)
    return codes == want


def main():
    tap.ok(len(CASES) > 300, f"{len(CASES)} cases")
    with gate.Gate(CONF) as g:
        for name, data, want in CASES:
            got, codes = talk(g.port, [data + NEXT])
            tap.ok(good(want, got, codes), f"{name}: {want}", (codes, got))
        # the same in single bytes: where it is cut makes no difference
        for name, data, want in CASES[:60]:
            if len(data) > 400:
                continue
            got, codes = talk(g.port, [bytes([b]) for b in data + NEXT])
            tap.ok(good(want, got, codes), f"{name}, byte by byte: {want}",
                   (codes, got))
        r = g.get("/health")
        tap.eq(r.status, 200, "and the gate is still there")
    tap.done()


main()

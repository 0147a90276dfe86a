"""HTTP/2 frames, written and read by hand (RFC 9113, RFC 7541)."""
import socket
import struct

import gate

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
(DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW,
 CONTINUATION) = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIO = 1, 1, 4, 8, 0x20
(NO_ERROR, PROTOCOL, INTERNAL, FLOW, SETTINGS_TIMEOUT, CLOSED, SIZE, REFUSED,
 CANCEL, COMPRESSION, CONNECT, CALM, INADEQUATE, HTTP11) = range(14)


def frame(kind, flags=0, stream=0, payload=b"", length=None):
    n = len(payload) if length is None else length
    return (struct.pack(">I", n)[1:] + bytes([kind, flags])
            + struct.pack(">I", stream) + payload)


def u32(n):
    return struct.pack(">I", n)


def settings(*pairs, flags=0):
    return frame(SETTINGS, flags, 0,
                 b"".join(struct.pack(">HI", k, v) for k, v in pairs))


def integer(n, bits, first=0):
    """RFC 7541 section 5.1."""
    top = (1 << bits) - 1
    if n < top:
        return bytes([first | n])
    out, n = [first | top], n - top
    while n >= 128:
        out.append(n % 128 + 128)
        n //= 128
    return bytes(out + [n])


def text(s):
    if isinstance(s, str):
        s = s.encode("latin-1")
    return integer(len(s), 7) + s


def block(fields):
    """Literals without indexing, names and all: no state, no Huffman."""
    return b"".join(b"\0" + text(k) + text(v) for k, v in fields)


def fields(method="GET", path="/health", *more, scheme="http", authority="h"):
    return [(":method", method), (":scheme", scheme), (":path", path),
            (":authority", authority), *more]


def headers(stream, what, flags=END_HEADERS | END_STREAM):
    if not isinstance(what, bytes):
        what = block(what)
    return frame(HEADERS, flags, stream, what)


# RFC 7541 appendix B, the digits alone
DIGITS = {"00000": "0", "00001": "1", "00010": "2", "011001": "3",
          "011010": "4", "011011": "5", "011100": "6", "011101": "7",
          "011110": "8", "011111": "9"}
STATIC = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}


def status(payload):
    """Of a reply that is the first on its connection."""
    first = payload[0]
    if first & 0xe0 == 0x20:
        return status(payload[1:])
    if first & 0x80:
        return STATIC.get(first & 0x7f)
    n, value = payload[1] & 0x7f, payload[2:2 + (payload[1] & 0x7f)]
    if not payload[1] & 0x80:
        return int(value[:n])
    bits, out, code = "".join(f"{b:08b}" for b in value), "", ""
    for b in bits:
        code += b
        if code in DIGITS:
            out, code = out + DIGITS[code], ""
    return int(out)


class Frame:
    def __init__(self, head, payload):
        self.kind, self.flags = head[3], head[4]
        self.stream = struct.unpack(">I", head[5:9])[0] & 0x7fffffff
        self.payload = payload

    @property
    def code(self):
        at = 4 if self.kind == GOAWAY else 0
        return struct.unpack(">I", self.payload[at:at + 4])[0]

    def __repr__(self):
        return (f"<frame {self.kind} flags {self.flags:#x} stream "
                f"{self.stream} {self.payload[:40]!r}>")


class Client:
    """A connection; frames() reads until one makes enough true, or the end."""

    def __init__(self, port, preface=True, first=settings(),
                 wrap=lambda s: s):
        self.s = wrap(socket.create_connection(("127.0.0.1", port)))
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.s.settimeout(gate.PATIENCE / 20)
        self.buf, self.all = b"", []
        self.closed = self.silent = False
        if preface:
            self.send(PREFACE + first)

    def send(self, *data):
        try:
            self.s.sendall(b"".join(data))
        except OSError:
            pass

    def exactly(self, n):
        while len(self.buf) < n:
            try:
                got = self.s.recv(65536)
            except ConnectionResetError:
                got = b""
            except socket.timeout:
                self.silent = True
                return None
            if not got:
                self.closed = True
                return None
            self.buf += got
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def frames(self, enough=lambda f: False):
        """The frames that came now; the last one is the one, or all."""
        out = []
        while True:
            head = self.exactly(9)
            body = None if head is None else self.exactly(
                int.from_bytes(head[:3], "big"))
            if body is None:
                return out
            f = Frame(head, body)
            out.append(f)
            self.all.append(f)
            if enough(f):
                return out

    def alive(self):
        """Whether a PING is answered; everything before it has come then."""
        self.send(frame(PING, 0, 0, b"alive?!?"))
        got = self.frames(lambda f: f.kind == PING and f.flags & ACK
                          and f.payload == b"alive?!?")
        return bool(got) and got[-1].kind == PING

    def close(self):
        self.s.close()

"""A WebSocket client, frame by frame (RFC 6455)."""
import base64
import hashlib
import os
import socket
import struct

CONT, TEXT, BIN, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FIN = 0x80
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def frame(first, payload=b"", mask=True):
    n = len(payload)
    bit = 0x80 if mask else 0
    head = bytes([first])
    if n < 126:
        head += bytes([bit | n])
    elif n < 65536:
        head += bytes([bit | 126]) + struct.pack(">H", n)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", n)
    if not mask:
        return head + payload
    key = os.urandom(4)
    whole = int.from_bytes((key * (n // 4 + 1))[:n], "big")
    return head + key + (int.from_bytes(payload, "big")
                         ^ whole).to_bytes(n, "big")


def text(s):
    return frame(FIN | TEXT, s.encode() if isinstance(s, str) else s)


def close(code=1000, reason=b""):
    return frame(FIN | CLOSE, struct.pack(">H", code) + reason)


def accept(key):
    return base64.b64encode(hashlib.sha1(key + GUID).digest())


class Ws:
    """One connection; with key None there is no handshake yet."""

    def __init__(self, port, path="/ws", fields=(), more=b"", timeout=30,
                 host="127.0.0.1", wrap=lambda s: s):
        self.s = wrap(socket.create_connection((host, port), timeout=timeout))
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.key = base64.b64encode(os.urandom(16))
        self.got = b""
        own = {"Host": f"{host}:{port}", "Upgrade": "websocket",
               "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
               "Sec-WebSocket-Key": self.key.decode()}
        own.update(fields)
        self.s.sendall(f"GET {path} HTTP/1.1\r\n".encode() + b"".join(
            f"{k}: {v}\r\n".encode() for k, v in own.items()
            if v is not None) + b"\r\n" + more)
        while b"\r\n\r\n" not in self.got:
            if not self.more():
                break
        self.head, _, self.got = self.got.partition(b"\r\n\r\n")
        words = self.head.split(b" ", 2)
        self.status = int(words[1]) if len(words) > 1 else None
        self.open = self.status == 101

    def field(self, name):
        for line in self.head.split(b"\r\n")[1:]:
            k, _, v = line.partition(b":")
            if k.strip().lower() == name.lower().encode():
                return v.strip().decode()
        return None

    def more(self):
        try:
            b = self.s.recv(1 << 16)
        except ConnectionError:
            b = b""
        self.got += b
        return bool(b)

    def need(self, n):
        while len(self.got) < n:
            if not self.more():
                return False
        return True

    def frame(self):
        """(first byte, payload) of the next frame, or None at the end."""
        if not self.need(2):
            return None
        n, at = self.got[1], 2
        if n in (126, 127):
            at = 4 if n == 126 else 10
            if not self.need(at):
                return None
            n = int.from_bytes(self.got[2:at], "big")
        parts, have = [self.got[at:]], len(self.got) - at
        while have < n:
            try:
                b = self.s.recv(1 << 20)
            except ConnectionError:
                b = b""
            if not b:
                return None
            parts.append(b)
            have += len(b)
        rest = b"".join(parts)
        first = self.got[0]
        self.got = rest[n:]
        return first, rest[:n]

    def message(self):
        """The next text; pings are answered; (code, reason) of a close."""
        while True:
            f = self.frame()
            if f is None:
                return None
            op = f[0] & 15
            if op == PING:
                self.s.sendall(frame(FIN | PONG, f[1]))
            elif op == CLOSE:
                return (int.from_bytes(f[1][:2], "big") if f[1] else 1005,
                        f[1][2:].decode())
            elif op != PONG:
                return f[1].decode()

    def send(self, *frames):
        self.s.sendall(b"".join(frames))

    def ended(self):
        """The server has ended the connection, and nothing was left."""
        return not self.got and not self.more()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()

"""A WebSocket client, small: what is sent and what comes, frame by frame."""
import base64
import json
import os
import socket
import struct

PATIENCE = 60


class Refused(Exception):
    """The handshake was: status, head and body of the reply."""

    def __init__(self, status, head, body):
        super().__init__(f"{status} {head} {body}")
        self.status, self.head, self.body = status, head, body


class Socket:
    """Text frames as JSON; close() and code tell how it ended."""

    def __init__(self, port, path, token=None, headers=()):
        self.s = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buf = b""
        self.code = None
        self.pings = 0
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}",
                 "Upgrade: websocket", "Connection: Upgrade",
                 f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13",
                 "Sec-WebSocket-Extensions: permessage-deflate; "
                 "client_max_window_bits"]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        lines += headers
        self.s.sendall("\r\n".join(lines + ["", ""]).encode())
        while b"\r\n\r\n" not in self.buf:
            self.more()
        head, self.buf = self.buf.split(b"\r\n\r\n", 1)
        status = int(head.split()[1])
        if status != 101:
            n = [int(x.split(b":")[1]) for x in head.split(b"\r\n")
                 if x.lower().startswith(b"content-length:")]
            while n and len(self.buf) < n[0]:
                self.more()
            raise Refused(status, head.decode(), self.buf)

    def more(self):
        got = self.s.recv(1 << 16)
        if not got:
            raise EOFError("the connection ended")
        self.buf += got

    def take(self, n):
        while len(self.buf) < n:
            self.more()
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def frame(self, opcode, data, fin=True):
        head = bytes([opcode | (0x80 if fin else 0)])
        if len(data) < 126:
            head += bytes([0x80 | len(data)])
        elif len(data) < 1 << 16:
            head += b"\xfe" + struct.pack(">H", len(data))
        else:
            head += b"\xff" + struct.pack(">Q", len(data))
        # a mask of zeros is a mask: RFC 6455 s5.3
        self.s.sendall(head + b"\0\0\0\0" + data)

    def send(self, what):
        if not isinstance(what, (str, bytes)):
            what = json.dumps(what)
        self.frame(1, what.encode() if isinstance(what, str) else what)

    def receive(self):
        """The next message, or None: it is closed, see code."""
        while True:
            a, b = self.take(2)
            n = b & 0x7f
            if n == 126:
                n = struct.unpack(">H", self.take(2))[0]
            elif n == 127:
                n = struct.unpack(">Q", self.take(8))[0]
            data = self.take(n)
            if a & 15 == 9:
                self.pings += 1
                self.frame(10, data)
            elif a & 15 == 8:
                self.code = struct.unpack(">H", data[:2])[0] if data else 1005
                self.frame(8, data)
                self.s.close()
                return None
            elif a & 15 == 1:
                return data

    def ask(self, what):
        self.send(what)
        got = self.receive()
        return json.loads(got) if got is not None else None

    def close(self, code=1000):
        """The handshake of a close; the code that came back."""
        if self.code is None:
            self.frame(8, struct.pack(">H", code))
        while self.code is None and self.receive() is not None:
            pass
        return self.code

    def cut(self):
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                          struct.pack("ii", 1, 0))
        self.s.close()

"""An outside for sandboxes with a way out, behind a link, as root."""
import os
import subprocess
import sys
import threading

import gate

OURS, ALSO_OURS, OUTSIDE = "203.0.113.1", "203.0.113.2", "203.0.113.10"

# Runs outside: TLS on 443 and 8443 that says which name it was asked for, an
# echo on 8080 that tells who comes and goes.
SERVER = r"""
import socket, ssl, sys, threading
ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
ctx.load_cert_chain(sys.argv[1])
names = threading.local()
def on_name(s, name, c): names.v = name
ctx.sni_callback = on_name
def say(*a): print(*a, flush=True)
def tls(s):
    names.v = None
    try:
        with ctx.wrap_socket(s, server_side=True) as t:
            got = t.recv(1000)
            t.sendall(f"{names.v}:".encode() + got)
    except OSError as e:
        say("tls", type(e).__name__)
def echo(s):
    say("open")
    try:
        while True:
            got = s.recv(65536)
            if not got: break
            s.sendall(got)
    except OSError:
        pass
    s.close()
    say("closed")
def serve(port, what):
    l = socket.create_server((sys.argv[2], port), backlog=64)
    def loop():
        while True:
            s, _ = l.accept()
            threading.Thread(target=what, args=(s,), daemon=True).start()
    return threading.Thread(target=loop)
all = [serve(443, tls), serve(8443, tls), serve(8080, echo)]
for t in all: t.start()
say("ready")
"""

# Runs inside.
HELP = r"""
import hashlib, json, os, socket, ssl, sys, threading
def tcp(host, port):
    s = socket.create_connection((host, port), 30)
    s.settimeout(30)
    return s
def connect(target):
    # (status, line or socket)
    s = tcp("127.0.0.1", 3128)
    s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    got = b""
    while b"\r\n\r\n" not in got:
        more = s.recv(4096)
        if not more: return 0, got
        got += more
    status = int(got.split()[1])
    if status == 200: return 200, s
    while True:
        more = s.recv(4096)
        if not more: break
        got += more
    return status, got.split(b"\r\n\r\n", 1)[1].decode().strip()
def tls(s, name):
    c = ssl.create_default_context()
    c.check_hostname = False
    c.verify_mode = ssl.CERT_NONE
    try:
        with c.wrap_socket(s, server_hostname=name) as t:
            t.sendall(b"hello")
            got = b""
            while True:
                more = t.recv(1000)
                if not more: return got.decode()
                got += more
    except OSError as e:
        return type(e).__name__
def through(target, name):
    status, s = connect(target)
    return [status, tls(s, name) if status == 200 else s]
def attempt(host, port, data=b"x"):
    try:
        s = tcp(host, port)
        s.sendall(data)
        return s.recv(100).decode()
    except OSError as e:
        return type(e).__name__
def tell(x): print(json.dumps(x), flush=True)
"""


def sh(*argv):
    r = subprocess.run(argv, capture_output=True, text=True, check=False)
    if r.returncode != 0:
        raise RuntimeError(f"{argv}: {r.stderr}")
    return r.stdout


class Outside:
    """A namespace behind a link, and what serves there."""

    def __init__(self, tmp):
        self.hold = subprocess.Popen(["unshare", "-n", "cat"],
                                     stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE)
        self.hold.stdin.write(b"x\n")
        self.hold.stdin.flush()
        self.hold.stdout.readline()
        pid = str(self.hold.pid)
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "out0", "type", "veth", "peer", "name",
           "out1", "netns", pid)
        for a in (OURS, ALSO_OURS):
            sh("ip", "addr", "add", a + "/24", "dev", "out0")
        sh("ip", "link", "set", "out0", "up")
        into = ["nsenter", "-t", pid, "-n"]
        sh(*into, "ip", "addr", "add", OUTSIDE + "/24", "dev", "out1")
        sh(*into, "ip", "link", "set", "out1", "up")
        pem = os.path.join(tmp, "cert.pem")
        sh("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
           "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
           "/CN=packages.example", "-keyout", pem, "-out", pem + ".crt")
        with open(pem + ".crt", encoding="ascii") as f, \
                open(pem, "a", encoding="ascii") as to:
            to.write(f.read())
        self.p = subprocess.Popen([*into, sys.executable, "-c", SERVER, pem,
                                   OUTSIDE],
                                  stdout=subprocess.PIPE, text=True)
        self.lines = []
        self.more = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()
        self.wait("ready")

    def read(self):
        for line in self.p.stdout:
            with self.more:
                self.lines.append(line.strip())
                self.more.notify_all()

    def wait(self, line, n=1):
        with self.more:
            return self.more.wait_for(
                lambda: self.lines.count(line) >= n, gate.PATIENCE)

    def close(self):
        for p in (self.p, self.hold):
            p.kill()
            p.wait()

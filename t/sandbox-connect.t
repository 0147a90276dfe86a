#!/usr/bin/python3
"""Sockets that a keeper makes in its sandbox's network, and who else gets in.
"""
import errno
import os
import shutil
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "lib"))
import keeper as K  # noqa: E402
import tap  # noqa: E402
from sandbox import (CG, TMP, inside, nothing_left, run_all,
                     sandbox)  # noqa: E402

PORT = 8001
# says its name to whoever comes, and what it was told
SERVER = """
import os, socket, sys
s = socket.socket()
s.bind(("127.0.0.1", %d)); s.listen(%d)
print("up", flush=True)
while True:
    c, _ = s.accept()
    c.sendall(b"the worker's ")
    c.sendall(c.recv(100))
    c.close()
"""


def server(k, port=PORT, backlog=16, code=SERVER):
    h = k.start(["/usr/bin/python3", "-c", code % (port, backlog)])
    k.started(h)
    os.set_blocking(k.stdio[h][1], True)
    assert os.read(k.stdio[h][1], 3) == b"up\n"
    return h


def said(s, text=b"hello"):
    with s:
        s.settimeout(20)
        s.setblocking(True)
        s.sendall(text)
        out = b""
        while True:
            got = s.recv(100)
            if not got:
                return out
            out += got


def answered(k, what, port=PORT):
    tap.eq(k.connect(port), errno.ECONNREFUSED,
           f"{what}: nobody listens yet")
    server(k, port)
    s = k.connect(port)
    ok = isinstance(s, socket.socket)
    tap.ok(ok, f"{what}: a socket", s)
    if ok:
        tap.eq((s.getpeername(), os.get_blocking(s.fileno())),
               (("127.0.0.1", port), False),
               f"{what}: to the port, not blocking")
        tap.eq(said(s), b"the worker's hello", f"{what}: which answers")


def two():
    """The agent's and the worker's, on one workspace."""
    agent = sandbox(K.Spec(cgroup=f"t{os.getpid()}a"))
    agent.send(K.SHARE, struct.pack("<I", 1))
    _, _, share = agent.until((K.SHARED,))
    worker = sandbox(K.Spec(side=K.WORKER, uid=211002,
                            cgroup=f"t{os.getpid()}w"), workspace=share)
    os.close(share)
    answered(worker, "a worker")
    spaces = {inside(x, "say(os.readlink('/proc/self/ns/net'))")
              for x in (agent, worker)}
    spaces.add(os.readlink("/proc/self/ns/net"))
    tap.eq(len(spaces), 3, "agent, worker and host have networks of their own")
    tap.eq(inside(agent, f"say(socket.socket().connect_ex(('127.0.0.1', "
                         f"{PORT})))"), str(errno.ECONNREFUSED),
           "the agent cannot connect to the worker's port")
    tap.eq(inside(agent, "s = socket.socket(); s.settimeout(2)\n"
                         "for a in ('127.0.0.2', '0.0.0.0', '127.255.255.254')"
                         f":\n say(socket.socket().connect_ex((a, {PORT})))"),
           "\n".join([str(errno.ECONNREFUSED)] * 3),
           "nor under another of loopback's addresses")
    with socket.socket() as s:
        tap.eq(s.connect_ex(("127.0.0.1", PORT)), errno.ECONNREFUSED,
               "nor can the host")
    # one of the agent's on the same port is another one
    server(agent, code=SERVER.replace("worker's", "agent's"))
    tap.eq(said(worker.connect(PORT)), b"the worker's hello",
           "the agent cannot take the worker's place")
    tap.eq(said(agent.connect(PORT)), b"the agent's hello",
           "each keeper connects in its own")
    tap.eq(inside(worker, "say(os.readlink('/proc/self/ns/net'))") in spaces,
           True, "what is started after it is where it was")
    tap.eq(os.readlink(f"/proc/{worker.proc.pid}/ns/net"),
           os.readlink("/proc/self/ns/net"), "the keeper has not moved")
    tap.ok(worker.end() and agent.end(), "both end")
    nothing_left("two")


def edges():
    k = sandbox()
    tap.eq(k.connect(1), errno.ECONNREFUSED, "a low port")
    tap.eq(k.connect(65535), errno.ECONNREFUSED, "the highest")
    # nobody accepts and the queue is full: it is on its way for ever
    server(k, 9000, 0, SERVER.replace("while True:", "import time\n"
                                      "time.sleep(1000)\nwhile 0:"))
    socks = [k.connect(9000) for _ in range(4)]
    tap.ok(all(isinstance(s, socket.socket) for s in socks),
           "a full queue holds nobody up", socks)
    for s in socks:
        s.close()
    tap.eq(k.sh("echo on").out, b"on\n", "and the keeper works on")
    server(k)
    got = [said(k.connect(PORT), b"%d" % i) for i in range(50)]
    tap.eq(got, [b"the worker's %d" % i for i in range(50)], "fifty more")
    with open(f"/proc/{k.proc.pid}/task/{k.proc.pid}/children",
              encoding="utf-8") as f:
        tap.eq(len(f.read().split()), 3, "no child stays")
    n = len(os.listdir(f"/proc/{k.proc.pid}/fd"))
    k.connect(PORT).close()
    tap.eq(len(os.listdir(f"/proc/{k.proc.pid}/fd")), n,
           "nor a descriptor in the keeper")
    os.kill(k.init_pid, 9)
    tap.ok(k.gone(), "it ends with its pid 1")
    nothing_left("edges")


def hostile():
    for what, body in (("port 0", struct.pack("<IH", 1, 0)),
                       ("too short", struct.pack("<I", 1)),
                       ("too long", struct.pack("<IHH", 1, 1, 1))):
        k = sandbox()
        k.send(K.CONNECT, body)
        k.gone()
        tap.ok(k.proc.returncode is not None, f"{what}: the keeper ends")
        nothing_left(what)
    k = K.Keeper()
    k.send(K.CONNECT, struct.pack("<IH", 1, PORT))
    k.gone()
    tap.ok(k.proc.returncode is not None, "before it is built: it ends")
    nothing_left("before it is built")


def ordinary():
    seed = f"{TMP}/ordinary"
    os.makedirs(seed)
    os.chown(seed, 64990, 64990)
    fd = os.open(seed, os.O_RDONLY)
    full_path = K.PROGRAM
    K.PROGRAM = shutil.copy(full_path, f"{TMP}/sallyport-init")
    os.chmod(K.PROGRAM, 0o755)
    k = K.Keeper(user=64990)
    built = k.build(K.Spec(flags=K.USERNS), seed=fd)
    K.PROGRAM = full_path
    os.close(fd)
    if not built:
        k.close()
        tap.skip("an ordinary user's", f"{k.failed}")
        return
    answered(k, "an ordinary user's")
    tap.eq(k.sh("echo on").out, b"on\n", "and it works on")
    tap.ok(k.end(), "it ends")
    nothing_left("an ordinary user's")


def local():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    k = K.Keeper()
    tap.ok(k.build(K.Spec(flags=K.LOCAL), CG), "a local one", k.failed)
    answered(k, "a local one", port)
    tap.ok(k.end(), "it ends")
    nothing_left("a local one")


run_all((two, edges, hostile, ordinary, local))

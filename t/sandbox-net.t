#!/usr/bin/python3
"""The network of an episode: namespaces, links, rules, as root.

Everything happens in a network namespace of the test's own; t/unit/net_drive
makes and removes networks in it.
"""
import ctypes
import errno
import json
import os
import socket
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
sys.dont_write_bytecode = True
import tap  # noqa: E402

BUILD = os.environ.get("SP_BUILDDIR", ROOT)
DRIVE = os.path.join(BUILD, "t/unit/net_drive")
NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
PATIENCE = 60


def prepare():
    if os.geteuid() != 0:
        tap.skip_all("network namespaces need root")
    if not os.access(DRIVE, os.X_OK):
        tap.skip_all(f"{DRIVE} is not built")
    if LIBC.unshare(NEWNET) != 0:
        tap.skip_all("no network namespace: " +
                     os.strerror(ctypes.get_errno()))


class Drive:
    """net_drive, and what it holds open."""

    def __init__(self):
        self.p = subprocess.Popen([DRIVE], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)

    def __call__(self, *words):
        self.p.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            raise RuntimeError(f"net_drive ended at {words}")
        return json.loads(line)

    def inside(self, made, code, *args):
        """Runs Python in the namespace; what it prints is JSON."""
        fd = os.open(f"/proc/{self.p.pid}/fd/{made['ns']}", os.O_RDONLY)
        try:
            r = subprocess.run(
                [sys.executable, "-c", HELP + code, *map(str, args)],
                capture_output=True, text=True, timeout=PATIENCE,
                preexec_fn=lambda: enter(fd), pass_fds=[fd], check=False)
        finally:
            os.close(fd)
        if r.returncode != 0:
            raise RuntimeError(r.stderr)
        return json.loads(r.stdout)

    def take(self, fd):
        """A descriptor of net_drive's (pidfd_getfd)."""
        pid_fd = os.pidfd_open(self.p.pid)
        got = LIBC.syscall(438, pid_fd, fd, 0)
        os.close(pid_fd)
        if got < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return got

    def close(self):
        self.p.stdin.close()
        self.p.wait(PATIENCE)


def enter(fd):
    if LIBC.setns(fd, NEWNET) != 0:
        os._exit(99)


# What the code inside may use.  "refused" and the like instead of numbers.
HELP = """
import errno, json, socket, struct, sys, time
def say(x):
    print(json.dumps(x))
def word(f):
    try:
        return f()
    except socket.timeout:
        return "silence"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
def tcp(host, port, family=socket.AF_INET, wait=3):
    def go():
        with socket.socket(family) as s:
            s.settimeout(wait)
            s.connect((host, port))
            s.sendall(b"hi")
            return s.recv(9).decode()
    return word(go)
def udp(host, port, wait=3):
    def go():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(wait)
            s.connect((host, port))
            s.send(b"q")
            return s.recv(9).decode()
    return word(go)
"""


def names(what):
    """ip(8)'s names of links, nft(8)'s of tables."""
    if what == "links":
        out = subprocess.run(["ip", "-j", "link"], capture_output=True,
                             text=True, check=True).stdout
        return sorted(x["ifname"] for x in json.loads(out))
    out = subprocess.run(["nft", "list", "tables"], capture_output=True,
                         text=True, check=True).stdout
    return sorted(line.split()[-1] for line in out.splitlines())


def no_way(d):
    made = d("make", 1, "veth", "listen:8000", "listen:9000")
    tap.eq(made["rc"], 0, "a network without a way out is made")
    tap.eq(sorted(made["listeners"]), ["0", "1"], "with its listeners")
    got = d.inside(made, """
import os
def names():
    return sorted(n for _, n in socket.if_nameindex())
say([names(), word(lambda: open("/proc/net/if_inet6").read()),
     open("/proc/sys/net/ipv4/ping_group_range").read().split()])
""")
    tap.eq(got[0], ["lo"], "it has loopback and nothing else")
    tap.ok(got[1] in ("", "ENOENT"), "and no IPv6 address", got[1])
    tap.eq(got[2], ["1", "0"], "and ICMP sockets for nobody")
    listener = socket.socket(fileno=d.take(made["listeners"]["0"]))
    listener.settimeout(PATIENCE)
    got = d.inside(made, """
s = socket.create_connection(("127.0.0.1", 8000), 5)
def squat(addr, family=socket.AF_INET, option=None):
    def go():
        with socket.socket(family) as s:
            if option:
                s.setsockopt(socket.SOL_SOCKET, option, 1)
            s.bind((addr, 8000))
            s.listen(1)
            return "listens"
    return word(go)
RP = socket.SO_REUSEPORT
say([s.getpeername()[1], squat("127.0.0.1"), squat("0.0.0.0"),
     squat("127.0.0.1", option=socket.SO_REUSEADDR),
     squat("0.0.0.0", option=socket.SO_REUSEADDR),
     squat("127.0.0.1", option=RP), squat("0.0.0.0", option=RP),
     squat("::", socket.AF_INET6), squat("::1", socket.AF_INET6)])
""")
    with listener.accept()[0]:
        tap.eq(got[0], 8000, "who is inside reaches the listener outside")
    tap.eq(got[1:8], ["EADDRINUSE"] * 7,
           "nobody inside can take the listener's place")
    tap.ok(got[8] in ("EADDRNOTAVAIL", "EAFNOSUPPORT"),
           "nor IPv6's loopback", got[8])
    listener.close()
    d("clear", 1)
    tap.eq([d("cut", 1)["rc"], d("cut", 1)["rc"]], [0, 0],
           "removing it twice is fine")
    made = d("make", 1, "veth", "listen:8000", "listen:8000")
    tap.ok(made["rc"] == -9 and "inside 127.0.0.1:8000" in made["why"],
           "an address that is taken is named", made)


def jobs(d):
    """In a child, and what may happen to that."""
    made = d("start", 2, "veth", "listen:8000")
    tap.ok(made["rc"] == 0 and made["ns"] >= 0 and made["listeners"],
           "a child makes it and hands it over", made)
    got = d.inside(made, """
with socket.socket() as s:
    say(word(lambda: s.bind(("127.0.0.1", 8000))))
""")
    tap.eq(got, "EADDRINUSE", "and it is that network")
    d("clear", 2)
    tap.eq(d("drop", 2, "veth")["heard"], 0, "a job that was dropped is mute")


prepare()
BEFORE = names("links"), names("tables")
DRIVER = Drive()
no_way(DRIVER)
jobs(DRIVER)
tap.eq((names("links"), names("tables")), BEFORE, "nothing is left behind")
DRIVER.close()
tap.done()

#!/usr/bin/python3
"""Episodes as the helper makes them, asked for by a reactor of the test's.

The reactor is t/unit/fake_reactor: it passes on what it is told, also what no
reactor would say.  Keepers, networks and control groups are the real ones.
"""
import errno
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import tap  # noqa: E402
import walls  # noqa: E402

BUILD = os.environ.get("SP_BUILDDIR", ROOT)
PATIENCE = 60

walls.needed()

CREATE, RESET, END, FREEZE, FILE, FILE_PUT, RUN, SIGNAL, RESUME = \
    range(160, 169)
CONNECT, GRADE = 169, 170
MADE, REFUSED, LISTENER, NFLOG, WATCH, ENDED, FROZEN, FILE_DONE, FILE_DATA, \
    STDIO, STARTED, NOT_STARTED, EXITED, EVENT, GUARANTEES, CONNECTED = \
    range(176, 192)
UNKNOWN, CAPACITY, FAILED, UNCLEAN, STATE = range(1, 6)
AGENT, WORKER, ORACLE = 1, 2, 3
F_READ, F_SNAPSHOT, F_UPPER, F_DIFF_FROZEN = 1, 7, 8, 9

CONF = """
state_dir {dir}/state;
error_log stderr info;
environment echo {{
    workspace {dir}/ws; workspace_size 16m; episodes {episodes}; warm {warm};
    teardown_timeout 3s;
    sandbox {{ memory 128m; pids 64; uid 300000 4096; {more} }}
}}
environment web {{
    worker http 8001 /usr/bin/python3 -c pass; teardown_timeout 3s;
    workspace_size 16m; sandbox {{ memory 128m; pids 64; uid 310000 4096; }}
    inside 127.0.0.1:7000 {{ location /health {{ health; }} }}
}}
environment judged {{
    workspace {dir}/ws; workspace_size 16m; episodes 2; teardown_timeout 3s;
    assets {dir}/private {{ oracle grade.sh; }}
    sandbox {{ memory 128m; tmp_size 16m; pids 64; uid 320000 4096; }}
    process slow {{ trust privileged; asset oracle;
        command /bin/sh -c "sleep 1000"; }}
    process own {{ trust workload; command /bin/true; }}
}}
server {{ listen 127.0.0.1:0; location /health {{ health; }} }}
"""

# says who it is to whoever comes, until that one has said all
SERVER = """
import os, socket
s = socket.socket()
s.bind(("127.0.0.1", 8001))
s.listen()
while True:
    c, _ = s.accept()
    c.sendall(b"uid %d: " % os.getuid())
    while True:
        got = c.recv(100)
        if not got:
            break
        c.sendall(got)
    c.close()
"""


def setup():
    tmp = tempfile.mkdtemp(prefix="sp-episodes-")
    os.chmod(tmp, 0o755)
    os.mkdir(os.path.join(tmp, "bin"))
    for src, dst in (("sallyport", "sallyport"),
                     ("sallyport-init", "sallyport-init"),
                     ("sallyport-recorder", "sallyport-recorder"),
                     ("t/unit/fake_reactor", "sallyport-reactor")):
        path = os.path.join(BUILD, src)
        if not os.access(path, os.X_OK):
            shutil.rmtree(tmp)
            tap.skip_all(f"{path} is not built")
        shutil.copy(path, os.path.join(tmp, "bin", dst))
    os.mkdir(os.path.join(tmp, "ws"))
    with open(os.path.join(tmp, "ws", "hello"), "w") as f:
        f.write("hello\n")
    os.mkdir(os.path.join(tmp, "private"), 0o700)
    path = os.path.join(tmp, "private", "grade.sh")
    with open(path, "w") as f:
        f.write("#!/bin/sh\ncat hello; exit 5\n")
    os.chmod(path, 0o700)
    return tmp


TMP = setup()


def until(condition, what):
    end = time.monotonic() + PATIENCE
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.005)


def u32(*v):
    return b"".join(struct.pack("<I", x) for x in v)


def text(v):
    v = v if isinstance(v, bytes) else v.encode()
    return u32(len(v)) + v


def run_spec(argv, env=(), flags=0, timeout_ms=0, cwd=""):
    out = u32(0x4e555231, flags) + struct.pack("<Q", timeout_ms) + text(cwd)
    for items in (argv, env):
        out += u32(len(items)) + b"".join(text(x) for x in items)
    return out


def leaves():
    """Control groups of this daemon's slots, where it has them."""
    with open(os.path.join(TMP, "state", "slots")) as f:
        text_ = f.read()
    block = int(re.search(r"^block (\d+)$", text_, re.M).group(1))
    ours = range(block * 2048, (block + 1) * 2048)
    out = []
    for at in re.findall(r"^cgroup \d (.+)$", text_, re.M):
        out += [os.path.join(at, d) for d in os.listdir(at)
                if d.startswith("slot-") and int(d.split("-")[1]) in ours]
    return sorted(out)


def host():
    """What episodes might leave on this host."""
    links = sorted(x for x in os.listdir("/sys/class/net")
                   if x.startswith("sp-"))
    with open("/proc/self/mountinfo") as f:
        mounts = sum(1 for _ in f)
    return links, mounts, keepers()


def keepers():
    out = []
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    if not f.read().startswith(b"sallyport-init") or \
                            not in_our_tree(int(pid)):
                        continue
                # who watches the files dies with its keeper
                with open(f"/proc/{pid}/comm", "rb") as f:
                    if f.read() not in (b"sallyport-watch\n",
                                        b"sallyport-spare\n"):
                        out.append(int(pid))
            except OSError:
                pass
    return sorted(out)


def in_our_tree(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe").startswith(TMP)
    except OSError:
        return False


class Daemon:
    """sallyport with the reactor of the test's, and the way to it."""

    def __init__(self, episodes=2, warm=0, wait=True, more=""):
        self.log_path = os.path.join(TMP, "log")
        self.conf = os.path.join(TMP, "sallyport.conf")
        with open(self.conf, "w") as f:
            f.write(CONF.format(dir=TMP, episodes=episodes, warm=warm,
                                more=more))
        self.s = None
        self.request = 0
        self.start(wait)

    def start(self, wait=True):
        self.log_at = os.path.getsize(self.log_path) \
            if os.path.exists(self.log_path) else 0
        with open(self.log_path, "ab") as log:
            self.p = subprocess.Popen(
                [os.path.join(TMP, "bin", "sallyport"), "-c", self.conf],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if wait:
            self.connect()

    def log(self):
        with open(self.log_path, errors="replace") as f:
            f.seek(self.log_at)
            return f.read()

    def address(self):
        for line in self.log().splitlines():
            if "ready: listening on 127.0.0.1:" in line:
                return int(line.rsplit(":", 1)[1])
        if self.p.poll() is not None:
            raise RuntimeError("sallyport ended: " + self.log()[-2000:])
        return None

    def connect(self):
        port = until(self.address, "readiness")
        self.s = socket.create_connection(("127.0.0.1", port))
        self.s.settimeout(PATIENCE)
        self.buf = b""
        self.msgs, self.out, self.eof, self.files = [], {}, set(), []

    def say(self, *words):
        self.s.sendall((" ".join(str(w) for w in words) + "\n").encode())

    def msg(self, kind, body):
        self.say("msg", kind, body.hex())

    def read(self):
        while b"\n" not in self.buf:
            got = self.s.recv(262144)
            if not got:
                raise EOFError
            self.buf += got
        line, self.buf = self.buf.split(b"\n", 1)
        word, *rest = line.decode().split(" ")
        if word == "msg":
            self.msgs.append((int(rest[0]), bytes.fromhex(rest[1]),
                              int(rest[2])))
        elif word == "out":
            key = int(rest[0]), int(rest[1])
            self.out[key] = self.out.get(key, b"") + bytes.fromhex(rest[2])
        elif word == "eof":
            self.eof.add((int(rest[0]), int(rest[1])))
        elif word == "file":
            self.files.append(bytes.fromhex(rest[0]))

    def wait(self, kinds, match=lambda body: True):
        """The next message of those kinds that matches, with what it says."""
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        while True:
            for i, (kind, body, fd) in enumerate(self.msgs):
                if kind in kinds and match(body):
                    del self.msgs[i]
                    return kind, body, fd
            self.read()

    def number(self):
        self.request += 1
        return self.request

    def create(self, env="echo"):
        """(slot, generation), or the refusal's reason and text."""
        n = self.number()
        self.msg(CREATE, u32(n) + text(env))
        kind, body, _ = self.wait(
            (MADE, REFUSED),
            lambda b: n in struct.unpack_from("<III", b.ljust(12, b"\0")))
        if kind == MADE:
            return struct.unpack_from("<II", body)
        return body[4], body[9:].decode()

    def end(self, ep):
        n = self.number()
        self.msg(END, u32(n, *ep))
        return self.wait(
            (ENDED, REFUSED), lambda b: n in struct.unpack_from("<III", b)
        )[0] == ENDED

    def reset(self, ep):
        n = self.number()
        self.msg(RESET, u32(n, *ep))
        kind, body, _ = self.wait((MADE, REFUSED))
        if kind == MADE:
            return struct.unpack_from("<II", body)
        return body[4], body[9:].decode()

    def run(self, ep, argv, **kw):
        """A process to its end: (end, status, stdout), or the stage."""
        h = self.begin(ep, argv, **kw)
        kind, body, _ = self.wait(
            (EXITED, NOT_STARTED),
            lambda b: struct.unpack_from("<I", b, 8)[0] == h)
        if kind == NOT_STARTED:
            return "stage", body[12], body[21:].decode()
        while (h, 1) not in self.eof:
            self.read()
        return body[12], body[13], self.out.get((h, 1), b"")

    def begin(self, ep, argv, **kw):
        h = self.number()
        side = kw.pop("side", AGENT)
        self.say("fd", RUN, (u32(*ep) + bytes([side]) + u32(h)).hex(),
                 run_spec(argv, **kw).hex())
        return h

    def dial(self, ep, side=WORKER, port=8001):
        """(request, errno, descriptor), or the refusal's reason and text."""
        n = self.number()
        self.msg(CONNECT, u32(n, *ep) + bytes([side]) + struct.pack("<H", port))
        kind, body, fd = self.wait(
            (CONNECTED, REFUSED), lambda b: n in struct.unpack_from("<III", b))
        if kind == REFUSED:
            return body[4], body[9:].decode()
        return n, struct.unpack_from("<I", body, 12)[0], fd

    def stop(self, how=signal.SIGTERM):
        if self.s is not None:
            self.s.close()
        self.p.send_signal(how)
        return self.p.wait(PATIENCE)


def sh(d, ep, script):
    return d.run(ep, ["/bin/sh", "-c", script])


def test_life():
    d = Daemon()
    ep = d.create()
    tap.ok(isinstance(ep[1], int), f"an episode: {ep}")
    tap.eq(sh(d, ep, "cat hello; echo x > new; id -u"),
              (1, 0, b"hello\n300001\n"), "a process in its workspace")
    tap.eq(sh(d, ep, "exit 7")[:2], (1, 7), "its exit status")
    tap.eq(sh(d, ep, "kill -9 $$")[:2], (2, 9), "a signal")
    tap.eq(d.run(ep, ["/no/such"])[0], "stage", "what is not there")
    h = d.begin(ep, ["/bin/cat"], flags=1)
    # not one that was told of an earlier one: before it there is no pipe
    d.wait(STARTED, lambda b: struct.unpack_from("<I", b, 8)[0] == h)
    d.say("in", h, b"to and fro".hex())
    d.say("in", h)
    d.wait(EXITED)
    while (h, 1) not in d.eof:
        d.read()
    tap.eq(d.out.get((h, 1)), b"to and fro", "input and output")
    h = d.begin(ep, ["/bin/sleep", "1000"])
    # likewise: nothing is there yet that could be signalled
    d.wait(STARTED, lambda b: struct.unpack_from("<I", b, 8)[0] == h)
    d.msg(SIGNAL, u32(*ep, h) + bytes([15]))
    _, body, _ = d.wait(EXITED)
    tap.eq(tuple(body[12:14]), (2, 15), "a signal is passed on")
    tap.eq(d.run(ep, ["/bin/sleep", "1000"], timeout_ms=100)[0], 3,
              "a timeout")
    two = d.reset(ep)
    tap.ok(isinstance(two[1], int) and two != ep, f"a reset: {two}")
    tap.eq(sh(d, two, "ls"), (1, 0, b"hello\n"),
              "everything is as in the beginning")
    d.msg(RESET, u32(99, *ep))
    _, body, _ = d.wait(REFUSED)
    tap.eq(body[4], UNKNOWN, "the old one is not known")
    other = d.create()
    third = d.create()
    tap.eq(third[0], CAPACITY, "no more than are allowed")
    tap.eq(d.create("none")[0], UNKNOWN, "no such environment")
    tap.ok(d.end(two) and d.end(other), "both are ended")
    tap.eq(d.stop(), 0, "a stop")
    until(lambda: not keepers(), "the end of keepers")
    tap.eq(leaves(), [], "no control group is left")
    tap.eq(host(), HOST, "nor anything else")


def first_of(cmdline):
    """Pid 1 of the sandbox in which this runs; not that of a warm one."""
    def space(pid):
        return os.readlink(f"/proc/{pid}/ns/pid")

    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if f.read() != cmdline:
                    continue
            for k in keepers():
                if os.stat(f"/proc/{k}").st_uid != 0 and \
                        space(k) == space(pid):
                    return k
        except OSError:
            pass
    raise RuntimeError(f"no {cmdline} runs")


PROBE = ("import os, socket\n"
         "print(os.readlink('/proc/self/ns/net'),"
         " socket.socket().connect_ex(('127.0.0.1', 8001)))")


def test_worker():
    """The way to a worker's port: the helper's alone, and to that port."""
    d = Daemon()
    ep = d.create("web")
    tap.eq(d.dial(ep)[1:], (errno.ECONNREFUSED, 0), "nobody listens yet")
    h = d.begin(ep, ["/usr/bin/python3", "-c", SERVER], side=WORKER)
    d.wait(STARTED, lambda b: struct.unpack_from("<I", b, 8)[0] == h)
    got = until(lambda: next((x for x in [d.dial(ep)] if x[1] == 0), None),
                "the worker's port")
    tap.eq(got[2], 1, "a socket comes with it")
    d.say("in", got[0], b"to and fro".hex())
    d.say("in", got[0])
    while (got[0], 9) not in d.eof:
        d.read()
    tap.eq(d.out[(got[0], 9)], b"uid 310002: to and fro",
           "which leads to the worker's server")
    inside = {}
    for side in (AGENT, WORKER):
        out = d.run(ep, ["/usr/bin/python3", "-c", PROBE], side=side)[2]
        inside[side] = out.decode().split()
    tap.ok(inside[AGENT][0] != inside[WORKER][0] !=
           os.readlink("/proc/self/ns/net"),
           "the worker's network is neither the agent's nor the host's",
           inside)
    tap.eq((inside[AGENT][1], inside[WORKER][1]),
           (str(errno.ECONNREFUSED), "0"),
           "the agent cannot connect to the worker's port")
    for what, how in (("another port", {"port": 8002}),
                      ("no port", {"port": 0}),
                      ("the agent's side", {"side": AGENT}),
                      ("no side", {"side": 9})):
        tap.eq(d.dial(ep, **how), (STATE, "the port is not the worker's"),
               f"{what} is refused")
    echo = d.create()
    tap.eq(d.dial(echo, side=AGENT)[0], STATE,
           "so is one of an environment without such a worker")
    tap.eq(d.dial((ep[0], ep[1] + 1))[0], UNKNOWN, "and of no episode")
    for _ in range(3):
        d.msg(CONNECT, u32(d.number(), *ep) + bytes([WORKER]) + b"\x41\x1f")
    two = d.reset(ep)
    tap.ok(isinstance(two[1], int) and two != ep, f"a reset: {two}")
    tap.eq(d.dial(two)[1:], (errno.ECONNREFUSED, 0), "after it nobody listens")
    tap.eq(d.dial(ep)[0], UNKNOWN, "and the old one is not known")
    tap.ok(d.end(two) and d.end(echo), "both are ended")
    tap.eq(d.stop(), 0, "a stop")
    tap.eq(leaves(), [], "no control group is left")


def test_deaths():
    d = Daemon(warm=1)
    ep = d.create()
    h = d.begin(ep, ["/bin/sleep", "1000"])
    d.wait(STARTED)
    until(lambda: walls.spares_are_back(d.p.pid), "spares")
    mine = [k for k in keepers() if os.stat(f"/proc/{k}").st_uid == 0]
    os.kill(mine[0], signal.SIGKILL)
    kind, body, _ = d.wait(ENDED)
    tap.eq(struct.unpack_from("<III", body)[:2], ep,
              "its keeper is killed: the episode ends")
    again = d.create()
    tap.eq(sh(d, again, "echo here")[2], b"here\n", "another one is made")
    h = d.begin(again, ["/bin/sleep", "1001"])
    d.wait(STARTED, lambda b: struct.unpack_from("<I", b, 8)[0] == h)
    os.kill(first_of(b"/bin/sleep\0001001\0"), signal.SIGKILL)
    _, body, _ = d.wait(ENDED)
    tap.eq(struct.unpack_from("<II", body), again,
              "its pid 1 is killed: the episode ends")
    ep = d.create()
    # a reactor that leaves finds its episodes with the next
    d.say("bye")
    next_reactor(d)
    d.msg(RESUME, b"")
    _, body, _ = d.wait(MADE)
    tap.eq(struct.unpack_from("<III", body), (*ep, 0),
              "the next reactor is told of it")
    tap.eq(sh(d, ep, "echo still")[2], b"still\n", "it lives")
    tap.ok(d.end(ep), "and ends")
    tap.eq(d.stop(), 0, "a stop")
    until(lambda: not keepers(), "the end of keepers")
    tap.eq(leaves(), [], "no control group is left")


def test_killed():
    """kill -9 of the helper at any moment; the next start is clean."""
    rnd = random.Random(4711)
    for n in range(12):
        d = Daemon(warm=2, wait=False)
        try:
            if n % 3:
                d.connect()
                ep = d.create()
                if n % 3 == 2:
                    d.begin(ep, ["/bin/sh", "-c",
                                 "setsid sleep 1000 & echo x > y; wait"])
                    d.msg(RESET, u32(77, *ep))
            time.sleep(rnd.random() * 0.1)
        except (EOFError, OSError, RuntimeError):
            pass
        d.stop(signal.SIGKILL)
    until(lambda: not keepers(), "the death of sandboxes with the helper")
    d = Daemon()
    tap.ok("sweeping" in d.log() or not leaves(), "the next start sweeps")
    tap.eq(d.stop(), 0, "and stops")
    tap.eq(leaves(), [], "no control group is left after 12 kills")
    tap.eq(host(), HOST, "nor anything else")
    with open(os.path.join(TMP, "state", "slots"), "w") as f:
        f.write("sallyport-slots 1\nslots 3\n")
    d = Daemon(wait=False)
    tap.ok(d.p.wait(PATIENCE) != 0 and "cannot be understood" in d.log(),
           "a torn journal refuses the start")
    os.unlink(os.path.join(TMP, "state", "slots"))


def test_hostile():
    """What no reactor would say ends the reactor, and nothing else."""
    rnd = random.Random(815)
    bad = [
        ("short", RESET, u32(1)), ("long", END, u32(1, 2, 3, 4)),
        ("a keeper's message", 144, u32(1)), ("the recorder's", 96, b"\1\0"),
        ("no such type", 9999, b""), ("from the helper", MADE, u32(1, 1, 1, 0)),
        ("name over its end", CREATE, u32(1, 4000) + b"echo"),
        ("signal 0", SIGNAL, u32(0, 1, 1) + b"\0"),
        ("freeze 7", FREEZE, u32(1, 0, 1) + b"\7"),
        ("run without a descriptor", RUN, u32(0, 1) + b"\1" + u32(5)),
        ("a connection that is short", CONNECT, u32(1, 0, 1) + b"\2"),
    ]
    for what, kind, body in bad:
        hostile(what, struct.pack("<HHI", kind, 1, 1000) + body, 0)
    for fds in (0, 1, 2, 60):
        junk = bytes(rnd.randrange(256) for _ in range(40))
        hostile(f"junk with {fds} descriptors", junk, fds)
    d = Daemon()
    ep = d.create()
    d.say("raw", "00", 0)
    next_reactor(d)
    d.msg(RESUME, b"")
    _, body, _ = d.wait(MADE)
    tap.eq(struct.unpack_from("<II", body), ep, "the episode lives on")
    # what fits the table and makes no sense is refused, or no matter
    for slot, generation in ((0, 999), (4000000000, 1), (ep[0] + 1, ep[1])):
        d.msg(END, u32(55, slot, generation))
        _, body, _ = d.wait(REFUSED)
        tap.eq(body[4], UNKNOWN, f"no episode {slot}/{generation}")
    h = d.number()
    d.say("fd", RUN, (u32(*ep) + bytes([AGENT]) + u32(h)).hex(), "00ff")
    kind, body, _ = d.wait(NOT_STARTED)
    tap.eq(body[12], 1, "a run that is none is refused at stage spec")
    d.say("fd", RUN, (u32(*ep) + bytes([3]) + u32(h)).hex(),
          run_spec(["/bin/true"]).hex())
    d.wait(NOT_STARTED)
    tap.ok(True, "no oracle where there is none")
    tap.eq(sh(d, ep, "echo well")[2], b"well\n", "the episode is well")
    tap.ok(d.end(ep), "and ends")
    tap.eq(d.stop(), 0, "a stop")


def hostile(what, data, fds):
    d = Daemon()
    d.say("raw", data.hex(), fds)
    until(lambda: "ended as compromised" in d.log(), what)
    tap.eq(d.stop(), 0, f"the reactor is ended, the helper is not: {what}")


def next_reactor(d):
    """The reactor was ended and another one serves."""
    try:
        while True:
            d.read()
    except (EOFError, OSError):
        pass
    until(lambda: "reactor serves again" in d.log(), "the next reactor")
    d.connect()


def reload_with(d, old, new):
    with open(d.conf) as f:
        text_ = f.read()
    with open(d.conf, "w") as f:
        f.write(text_.replace(old, new))
    return subprocess.run(
        [os.path.join(TMP, "bin", "sallyport"), "-s", "reload", "-c", d.conf],
        capture_output=True, text=True, timeout=PATIENCE, check=False)


def oracles():
    return [x for x in leaves() if x.endswith("-oracle")]


def grade(d, ep, name="", handle=None):
    h = handle or d.number()
    d.msg(GRADE, u32(h, *ep) + text(name))
    return h


def told(d, h):
    """What became of it: (type, what comes behind its number)."""
    kind, body, _ = d.wait(
        (REFUSED, NOT_STARTED, EXITED),
        lambda b: h in (struct.unpack_from("<I", b)[0],
                        struct.unpack_from("<I", b.ljust(12, b"\0"), 8)[0]))
    return kind, body[4:] if kind == REFUSED else body[12:]


def test_grading():
    """A program of the configuration, and nothing else, is what runs there."""
    d = Daemon()
    ep, plain = d.create("judged"), d.create()
    h = grade(d, ep)
    tap.eq(told(d, h)[1][:2], b"\1\5", "a verdict")
    while (h, 1) not in d.eof:
        d.read()
    tap.eq(d.out.get((h, 1)), b"hello\n", "on a copy of the workspace")
    until(lambda: not oracles(), "the end of its sandbox")
    for name in ("own", "none", "grade.sh", "oracle", "/bin/sh", "a" * 64,
                 b"slow\0x", b"\xff"):
        kind, rest = told(d, grade(d, ep, name))
        tap.eq((kind, rest[0]), (REFUSED, UNKNOWN), f"no process {name!r:.20}")
    tap.eq(told(d, grade(d, plain))[0], REFUSED, "nor where there are no assets")
    for which in ((ep[0], ep[1] + 9), (4000000000, 1)):
        tap.eq(told(d, grade(d, which))[0], REFUSED, "nor of no episode")
    # while one runs: what the reactor itself would run beside it
    h = grade(d, ep, "slow")
    d.wait(STARTED, lambda b: struct.unpack_from("<I", b, 8)[0] == h)
    n = d.number()
    d.say("fd", RUN, (u32(*ep) + bytes([ORACLE]) + u32(n)).hex(),
          run_spec(["/bin/sh", "-c", "cat /openenvd/assets/*"]).hex())
    tap.eq(told(d, n)[0], NOT_STARTED, "no oracle's sandbox for a reactor")
    tap.ok((n, 1) not in d.out, "and no asset")
    waiting = [grade(d, ep) for _ in range(9)]
    tap.eq([told(d, x)[0] for x in waiting[7:]], [REFUSED] * 2,
           "no more wait than may")
    d.msg(SIGNAL, u32(*ep, h) + bytes([15]))
    d.msg(SIGNAL, u32(*ep, waiting[0]) + bytes([9]))
    tap.eq(told(d, waiting[0])[0], NOT_STARTED, "one that waits is taken back")
    d.msg(SIGNAL, u32(*ep, h) + bytes([9]))
    tap.eq(told(d, h)[1][:2], b"\2\11", "and one that runs, by 9 alone")
    tap.eq([told(d, x)[1][:2] for x in waiting[1:7]], [b"\1\5"] * 6,
           "the others come all")
    # reset and end: its answer is the episode's
    for how in (RESET, END):
        h = grade(d, ep, "slow")
        if how == END:
            d.wait(STARTED, lambda b: struct.unpack_from("<I", b, 8)[0] == h)
        grade(d, ep)
        d.msg(how, u32(d.number(), *ep))
        if how == RESET:
            _, body, _ = d.wait(MADE)
            ep = struct.unpack_from("<II", body)
        else:
            d.wait(ENDED)
        until(lambda: not oracles(), "the end of the oracle's sandbox")
        tap.ok(not [m for m in d.msgs if m[0] in (EXITED, NOT_STARTED)],
               "a reset or an end is all that is told")
    ep = d.create("judged")
    grade(d, ep, "slow")
    d.wait(STARTED)
    d.say("bye")
    next_reactor(d)
    until(lambda: not oracles(), "the end of what nobody listens to")
    tap.eq(sh(d, ep, "cat hello")[2], b"hello\n", "and the episode goes on")
    d.end(ep)
    d.stop()
    tap.eq(leaves(), [], "no control group is left")


def hostile_grading():
    """What ends the reactor: see test_hostile()."""
    d = Daemon()
    ep = d.create("judged")
    where = u32(1) + u32(*ep)
    cases = [
        ("number 0", lambda: d.msg(GRADE, u32(0, *ep) + text(""))),
        ("a number twice", lambda: [grade(d, ep, "slow", 7) for _ in "ab"]),
        ("a snapshot", lambda: d.msg(FILE, where + bytes([F_SNAPSHOT]) +
                                     u32(0) + bytes(8) + text(""))),
        ("the upper layer", lambda: d.msg(FILE, where + bytes([F_UPPER]) +
                                          u32(0) + bytes(8) + text(""))),
        ("a snapshot with a place for it", lambda: d.say(
            "fd", FILE_PUT, (where + bytes([F_SNAPSHOT]) + u32(0) + bytes(8) +
                             text("")).hex(), "00")),
    ]
    for what, say in cases:
        at = len(d.log())
        say()
        until(lambda: "ended as compromised" in d.log()[at:], what)
        next_reactor(d)
        tap.eq(sh(d, ep, "cat hello")[2], b"hello\n",
               f"{what} ends the reactor, and nothing else")
    until(lambda: not oracles(), "the end of oracles' sandboxes")
    # assets by what is no path of theirs
    for path in ("/openenvd/assets/", "/openenvd/assets/../ws/hello",
                 "/openenvd/assets/x/../grade.sh", "/openenvd/assets/none",
                 "/openenvd/assets/grade.sh/"):
        n = d.number()
        d.msg(FILE, u32(n, *ep) + bytes([F_READ]) + u32(0) +
              struct.pack("<Q", 1 << 20) + text(path))
        _, body, _ = d.wait(FILE_DONE)
        tap.ok(body[12] != 1 and not d.files, f"no asset {path}")
    n = d.number()
    d.msg(FILE, u32(n, *ep) + bytes([F_READ]) + u32(0) +
          struct.pack("<Q", 5) + text("/openenvd/assets/oracle"))
    _, body, _ = d.wait(FILE_DONE)
    tap.eq((body[12], d.files), (5, []), "nor more of one than was asked for")
    # many that stand still at once, and all of them are answered
    asked = []
    for _ in range(40):
        asked.append(d.number())
        d.msg(FILE, u32(asked[-1], *ep) + bytes([F_DIFF_FROZEN]) + u32(0) +
              bytes(8) + text(""))
    for n in asked:
        d.wait((FILE_DONE, REFUSED), lambda b, n=n: n in struct.unpack_from(
            "<III", b))
    tap.eq(sh(d, ep, "echo on")[2], b"on\n", "40 diffs at once")
    d.msg(FREEZE, u32(d.number(), *ep) + b"\1")
    d.wait(FROZEN)
    d.say("bye")
    next_reactor(d)
    tap.eq(sh(d, ep, "echo on")[2], b"on\n",
           "what a reactor has frozen does not stay so without it")
    d.end(ep)
    d.stop()


def test_reload():
    d = Daemon(warm=1)
    ep = d.create()
    r = reload_with(d, "memory 128m", "memory 64m")
    tap.ok(r.returncode == 1 and "environment \"echo\" has changed" in r.stderr,
           "a change of an environment that lives is refused by name")
    tap.eq(sh(d, ep, "echo on")[2], b"on\n", "and it lives on")
    d.end(ep)
    r = reload_with(d, "memory 64m", "memory 900g")
    tap.ok(r.returncode == 1 and "more than this host's" in r.stderr and
           all(f'"{x}"' in r.stderr for x in ("episodes", "warm", "memory")),
           "more memory than there is is refused by a reload, too")
    # a warm one of before that takes its time to end: its keeper is stopped
    until(lambda: len(keepers()) == 2 and walls.spares_are_back(d.p.pid),
          "one warm sandbox alone")
    old = [k for k in keepers() if os.stat(f"/proc/{k}").st_uid == 0]
    os.kill(old[0], signal.SIGSTOP)
    with open(os.path.join(TMP, "ws", "more"), "w") as f:
        f.write("more\n")
    r = reload_with(d, "memory 900g", "memory 64m")
    tap.eq(r.returncode, 0, "a change of one that does not live is taken")
    ep = d.create()
    tap.eq(sh(d, ep, "cat more")[2], b"more\n",
           "its workspace was captured anew, by a child")
    users = {os.stat(f"/proc/{k}").st_uid for k in keepers()} - {0}
    theirs = int(sh(d, ep, "id -u")[2])
    tap.ok(len(users) > 1 and theirs - 1 in users and all(
        theirs - 1 == u or abs(theirs - 1 - u) >= 4 for u in users),
        f"uids that may still be in use are not given again: {users}")
    os.kill(old[0], signal.SIGCONT)
    d.end(ep)
    d.stop()
    os.unlink(os.path.join(TMP, "ws", "more"))


def test_ends():
    """What an episode died of is told with its end."""
    d = Daemon()
    ep = d.create()
    h = d.begin(ep, ["/usr/bin/python3", "-c", "x = b'x' * (1200 << 20)"])
    _, body, _ = d.wait((EXITED, ENDED))
    if struct.unpack_from("<II", body) == ep and len(body) > 20:
        tap.eq(body[12], 4, "a process that had too little memory")
        _, body, _ = d.wait(ENDED)
    tap.eq((struct.unpack_from("<II", body), body[12]), (ep, 4),
           "and its episode end by it")
    d.stop()
    d = Daemon(more="lifetime 1s;")
    ep = d.create()
    h = d.begin(ep, ["/bin/sleep", "1000"])
    d.wait(STARTED, lambda b: struct.unpack_from("<I", b, 8)[0] == h)
    _, body, _ = d.wait((EXITED, ENDED))
    tap.eq((struct.unpack_from("<II", body), body[12]), (ep, 3),
           "one that lasts too long ends by its lifetime, and all in it")
    tap.eq(d.stop(), 0, "a stop")
    tap.eq(leaves(), [], "no control group is left")


def test_removed_group():
    """Another root process empties a sandbox's group and removes it."""
    d = Daemon()
    ep = d.create()
    h = d.begin(ep, ["/bin/sleep", "1000"])
    d.wait(STARTED, lambda b: struct.unpack_from("<I", b, 8)[0] == h)
    main = [x for x in leaves()
            if os.path.exists(os.path.join(x, "cgroup.events"))]
    for leaf in main:
        with open(os.path.join(leaf, "cgroup.procs")) as f:
            pids = f.read().split()
        for pid in pids:
            with open(os.path.join(leaf, "..", "..", "self", "cgroup.procs"),
                      "w") as f:
                f.write(pid)
        until(lambda leaf=leaf: rmdir(leaf), "the group's end")
    two = d.reset(ep)
    tap.ok(isinstance(two[1], int) and two != ep,
           f"its reset is none the worse: {two}")
    tap.eq(sh(d, two, "echo well")[2], b"well\n", "the fresh one is well")
    tap.ok(d.end(two), "and ends")
    tap.eq(d.stop(), 0, "a stop")
    until(lambda: not keepers(), "the end of keepers")
    tap.eq(leaves(), [], "no control group is left")


def rmdir(path):
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True


def test_warm_stays():
    """A reactor that dies with requests open leaves no more warm ones."""
    d = Daemon(episodes=4, warm=1)
    until(lambda: len(keepers()) == 2, "the warm one")
    for _ in range(3):
        d.msg(CREATE, u32(d.number()) + text("echo"))
    d.say("raw", "00", 0)
    next_reactor(d)
    d.msg(RESUME, b"")
    made = 0
    try:
        d.s.settimeout(1)
        while True:
            d.wait(MADE)
            made += 1
    except TimeoutError:
        d.s.settimeout(PATIENCE)
    until(lambda: len(keepers()) == 2 * (made + 1),
          f"one warm one besides {made} episodes")
    tap.ok(True, "as many warm ones as are configured, and no more")
    tap.eq(d.stop(), 0, "a stop")


def test_many():
    d = Daemon(episodes=16, warm=0)
    n = [d.number() for _ in range(16)]
    for x in n:
        d.msg(CREATE, u32(x) + text("echo"))
    made = [struct.unpack_from("<II", d.wait((MADE, REFUSED))[1])
            for _ in n]
    tap.eq(len(set(made)), 16, "sixteen at once")
    tap.eq(sh(d, made[15], "echo x > a; ls")[2], b"a\nhello\n",
              "each with a workspace")
    tap.eq(sh(d, made[0], "ls")[2], b"hello\n", "of its own")
    for x in made:
        d.msg(END, u32(d.number(), *x))
    for x in made:
        d.wait(ENDED)
    tap.eq(d.stop(), 0, "all ended")
    tap.eq(leaves(), [], "no control group is left")


# ours: in a network namespace of the test's own
if os.environ.get("SP_IN_NETNS") != "1":
    os.environ["SP_IN_NETNS"] = "1"
    shutil.rmtree(TMP)
    os.execvp("unshare", ["unshare", "-n", "--mount", sys.executable,
                          os.path.abspath(__file__)])
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
HOST = host()
try:
    for test in (test_life, test_grading, hostile_grading, test_worker,
                 test_deaths, test_hostile,
                 test_reload, test_ends, test_removed_group, test_warm_stays,
                 test_many, test_killed):
        test()
finally:
    shutil.rmtree(TMP, ignore_errors=True)
tap.done()

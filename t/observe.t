#!/usr/bin/python3
"""What observers are shown of an episode, as root, in real sandboxes.

Everything happens in a network namespace and a mount namespace of the test's
own; another namespace behind a link is the outside.
"""
import atexit
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
sys.dont_write_bytecode = True
import tap  # noqa: E402
import gate  # noqa: E402
import sandbox  # noqa: E402,F401  skips where there can be none

LIBC = ctypes.CDLL(None, use_errno=True)
NEWNET, NEWNS = 0x40000000, 0x20000
OURS, OUTSIDE = "203.0.113.1", "203.0.113.10"
TOKEN, NARROW = "observer-0123456789", "narrow-0123456789abc"
CONF = """
control {tmp}/control.sock;
environment box {{
    workspace {tmp}/seed;
    sandbox {{ uid 340000 4096; }}
    episodes 3;
}}
environment net {{
    sandbox {{ uid 350000 4096; }}
    episodes 2;
    egress {{ via veth; allow tcp 203.0.113.0/24 8080; }}
}}
environment relayed {{
    sandbox {{ uid 360000 4096; }}
    episodes 2;
    egress {{ via relay; allow tcp 203.0.113.0/24 8080; }}
}}
environment plain {{ enforcement local; episodes 2; }}
server {{
    listen 127.0.0.1:0;
    location /plain {{
        observe; environment plain; token env:OBSERVER; stream fs_diff;
    }}
    location /calls {{
        observe; environment box; token env:OBSERVER; stream harness_events;
    }}
    location /observe {{
        observe; environment box; token env:OBSERVER; sockets 4;
        stream harness_events fs_diff process network resource model;
        slow_timeout 1s;
    }}
    location /narrow {{
        observe; environment box; token env:OBSERVER; stream process;
    }}
    location /net {{
        observe; environment net; token env:OBSERVER; stream network;
    }}
    location /relayed {{
        observe; environment relayed; token env:OBSERVER; stream network;
    }}
    location /status {{ status; }}
}}
"""


def sh(*argv):
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.PIPE)


class Observer:
    """A client of server-sent events; what came is in events."""

    def __init__(self, g, path="/observe", headers=(), token=TOKEN, read=True,
                 rcvbuf=None):
        self.s = g.connect(rcvbuf=rcvbuf)
        self.s.sendall(gate.request(
            None, path, [("Accept", "text/event-stream"),
                         ("Authorization", f"Bearer {token}"), *headers]))
        self.events = []
        self.ids = []
        self.ended = False
        self.status = None
        self.more = threading.Condition()
        self.thread = threading.Thread(target=self.run, daemon=True)
        if read:
            self.thread.start()

    def run(self):
        f = self.s.makefile("rb")
        try:
            self.status = int(f.readline().split()[1])
            chunked = False
            while (line := f.readline().strip()):
                chunked |= line.lower() == b"transfer-encoding: chunked"
            self.body(f, chunked)
        except (OSError, ValueError, IndexError):
            pass
        with self.more:
            self.ended = True
            self.more.notify_all()

    def body(self, f, chunked):
        text = b""
        while True:
            if chunked:
                n = int(f.readline(), 16)
                data = f.read(n + 2)[:-2]
                if n == 0:
                    return
            else:
                data = f.read(4096)
                if not data:
                    return
            text += data
            while b"\n\n" in text:
                one, text = text.split(b"\n\n", 1)
                self.event(one.decode())

    def event(self, text):
        data = [x[6:] for x in text.split("\n") if x.startswith("data: ")]
        ids = [x[4:] for x in text.split("\n") if x.startswith("id: ")]
        if data:
            with self.more:
                self.events.append(json.loads("\n".join(data)))
                self.ids.append(ids[0] if ids else None)
                self.more.notify_all()

    def until(self, cond, what=""):
        """The first event that is so, or None."""
        def find():
            return next((e for e in self.events if cond(e)), None) or \
                self.ended
        with self.more:
            self.more.wait_for(find, gate.PATIENCE)
            got = next((e for e in self.events if cond(e)), None)
        if got is None:
            tap.diag(f"{what} did not come: {self.events[-5:]}")
        return got

    def wait_end(self):
        with self.more:
            return self.more.wait_for(lambda: self.ended, gate.PATIENCE)

    def close(self):
        try:
            self.s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.s.close()


class Ctl:
    def __init__(self, g):
        self.base = [gate.program("sallyportctl"), "-S",
                     os.path.join(g.tmp_dir, "control.sock")]

    def __call__(self, *argv, check=True):
        r = subprocess.run([*self.base, *argv], capture_output=True,
                           text=True, timeout=120, check=False)
        if check and r.returncode != 0:
            raise RuntimeError(f"{argv}: {r.returncode}: {r.stderr}")
        return r

    def py(self, episode, code):
        return self("exec", "--in", episode, "--", "/usr/bin/python3", "-c",
                    code, check=False)


def kind(of, **data):
    """A condition: of that type, with those members in its data."""
    return lambda e: e["type"] == of and all(
        e["data"].get(k) == v for k, v in data.items())


# ---- the door ---------------------------------------------------------------
def status_of(g, path, *headers, method="GET"):
    r = g.get(path, headers, method)
    return r.status, r


def test_refused(g):
    auth = ("Authorization", f"Bearer {TOKEN}")
    accept = ("Accept", "text/event-stream")
    st, r = status_of(g, "/observe", accept)
    tap.ok(st == 401 and r.headers.get("www-authenticate") == "Bearer",
           "no token: 401", (st, r.headers))
    tap.eq(status_of(g, "/observe", ("Authorization", "Bearer " + NARROW),
                     accept)[0], 401, "another's token: 401")
    tap.eq(status_of(g, "/observe", auth, accept)[0], 503,
           "no episode: 503")
    st, r = status_of(g, "/observe?episode=none", auth, accept)
    got = json.loads(r.body)
    tap.ok((st, got["detail"]) == (404, "Not Found") and
           "no episode of that id" in got["reason"],
           "none of that id: 404, and why", (st, got))
    tap.eq(status_of(g, "/observe", auth, accept, method="POST")[0], 405,
           "observers use GET")
    tap.eq(status_of(g, "/observe", auth, ("Accept", "application/json"))[0],
           406, "events are no JSON document")


def test_since(g):
    auth = ("Authorization", f"Bearer {TOKEN}")
    for what in ("?since=x", "?since=-1", "?since=1-x", "?since=%zz"):
        tap.eq(status_of(g, "/observe" + what, auth)[0], 400,
               f"{what}: 400")
    tap.eq(status_of(g, "/observe", auth, ("Last-Event-ID", "a b"))[0], 400,
           "Last-Event-ID that is none: 400")
    r = subprocess.run([gate.program("sallyportctl"), "guarantees", "--url",
                        f"http://127.0.0.1:{g.port}"], capture_output=True,
                       check=False, timeout=60)
    tap.ok(r.returncode == 1 and b"nothing at /episodes" in r.stderr and
           b"--location" in r.stderr, "a 404 without words is put in words",
           r.stderr)
    for word in ("2", "no", "", "0&follow=1", "0&f%6fllow=0"):
        st, r = status_of(g, f"/observe?follow={word}", auth)
        tap.ok(st == 400 and b"follow is 0 or 1" in r.body,
               f"follow={word}: 400", (st, r.body))


# ---- processes --------------------------------------------------------------
def test_processes(g, ctl):
    o = Observer(g)
    r = ctl("exec", "--in", "e1", "--", "/bin/sh", "-c", "exit 7",
            check=False)
    tap.eq(r.returncode, 7, "a process ends with 7")
    spawn = o.until(kind("process", kind="spawn", process="/bin/sh"))
    end = o.until(kind("process", kind="exit", process="/bin/sh"))
    tap.ok(spawn and end and spawn["data"]["pid"] == end["data"]["pid"] and
           end["data"]["returncode"] == 7 and spawn["seq"] < end["seq"] and
           spawn["ts"] <= end["ts"], "its start and end are told",
           (spawn, end))
    ctl("exec", "--in", "e1", "--", "/bin/sh", "-c", "kill -15 $$",
        check=False)
    end = o.until(kind("process", kind="exit", returncode=-15))
    tap.ok(end, "a signal is negative")
    p = subprocess.Popen([*ctl.base, "exec", "--in", "e1", "--", "/bin/sh",
                          "-c", "sleep 1000; exit 0"])
    try:
        seen = o.until(kind("process", kind="spawn", name="sleep"))
        tap.ok(seen and seen["data"].get("sampled") is True,
               "what it starts is seen, and said to be sampled", seen)
        res = o.until(lambda e: e["type"] == "resource" and
                      e["data"].get("memory_bytes", 0) > 0 and
                      e["data"]["cpu"]["usage_usec"] > 0)
        tap.ok(res and res["data"]["processes"] >= 2,
               "resources are sampled", res)
    finally:
        p.kill()
        p.wait()
    o.close()


def test_replay(g, ctl):
    o = Observer(g)
    ctl("exec", "--in", "e1", "--", "/bin/sh", "-c", "exit 9", check=False)
    o.until(kind("process", kind="exit", returncode=9))
    with o.more:
        live, ids = list(o.events), list(o.ids)
    o.close()
    tap.eq([e["seq"] for e in live], list(range(len(live))),
           "numbers from 0, one behind the other")
    tap.eq(ids, [f"0-{e['seq']}" for e in live], "ids name them")
    o = Observer(g, "/observe?follow=0")
    tap.ok(o.wait_end(), "a replay alone ends")
    tap.eq(o.events[:len(live)], live, "a replay is what was seen live")
    at = len(live) // 2
    o = Observer(g, f"/observe?follow=0&since={at}")
    o.wait_end()
    tap.eq(o.events[:len(live) - at], live[at:], "since: from there on")
    o = Observer(g, "/observe?follow=0",
                 headers=[("Last-Event-ID", ids[at])])
    o.wait_end()
    tap.eq(o.events[:len(live) - at - 1], live[at + 1:],
           "Last-Event-ID: behind it")
    o = Observer(g, "/narrow?follow=0")
    o.wait_end()
    tap.eq(o.events, [e for e in live if e["type"] == "process"] +
           o.events[len([e for e in live if e["type"] == "process"]):],
           "a narrower door shows less, under the same numbers")


def changes(o):
    with o.more:
        return [(e["data"]["path"], e["data"]["kind"]) for e in o.events
                if e["type"] == "fs_change"]


def watchers(g):
    """/proc/PID/status of the processes that watch files, this daemon's."""
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/status", encoding="utf-8") as f:
                said = dict(x.rstrip("\n").split(":\t", 1) for x in f
                            if ":\t" in x)
            with open(f"/proc/{said['PPid']}/stat", encoding="utf-8") as f:
                above = int(f.read().rsplit(")", 1)[1].split()[1])
        except (OSError, KeyError):
            continue
        if said["Name"] == "sallyport-watch" and above == g.p.pid:
            out.append(said)
    return out


def test_watcher(g, ctl):
    """It may read anybody's files, and has no other way to do so."""
    ctl("episodes", "create", "box", "w1")
    # its privilege goes when it has begun, beside what else is built
    gate.until(lambda: all(w["Seccomp"] == "2" for w in watchers(g) or [{
        "Seccomp": "none"}]), "a watcher with a filter")
    got = watchers(g)
    tap.ok(got, "somebody watches the files")
    tap.eq({(w["Seccomp"], w["NoNewPrivs"], w["CapEff"], w["CapPrm"],
             w["CapBnd"]) for w in got},
           {("2", "1", "0" * 15 + "4", "0" * 15 + "4", "0" * 16)},
           "with a filter, one capability and no way to more")
    tap.ok(all("0" not in w["Uid"].split() for w in got), "not as root",
           [w["Uid"] for w in got])
    ctl("end", "w1")


def test_files(g, ctl):
    ctl("episodes", "create", "box", "f1")
    o = Observer(g, "/observe?episode=f1")
    ctl("exec", "--in", "f1", "--", "/bin/sh", "-ec", """
cd /workspace
mkdir -p out/deep
echo 1 >out/a.txt
echo 2 >>out/a.txt
mv out/a.txt out/deep/b.txt
rm out/deep/b.txt
rm -r out
chmod 600 seeded.txt
echo more >>sub/old.txt
printf 'x' >"$(printf 'n\\303\\266 \\042q')"
touch end
""")
    o.until(kind("fs_change", path="end", kind="create"))
    got = changes(o)
    want = [("out", "create"), ("out/deep", "create"),
            ("out/a.txt", "create"), ("out/a.txt", "modify"),
            ("out/a.txt", "delete"), ("out/deep/b.txt", "create"),
            ("out/deep/b.txt", "delete"), ("out/deep", "delete"),
            ("out", "delete"), ("seeded.txt", "modify"),
            ("sub/old.txt", "modify"), ('n\u00f6 "q', "create"),
            ("end", "create")]
    at = 0
    for one in got:
        if at < len(want) and one == want[at]:
            at += 1
    tap.eq(at, len(want), "changes in their order")
    if at < len(want):
        tap.diag(f"missing {want[at]} in {got}")
    tap.ok(len(got) < 3 * len(want), "and not much else", got)
    subprocess.run([*ctl.base, "exec", "--in", "f1", "--", "/bin/sh", "-c",
                    "cd /workspace; mkdir q; echo 1 >q/1; rm -r q; echo >z"],
                   check=True)
    o.until(kind("fs_change", path="z", kind="create"))
    tap.ok({("q", "create"), ("q/1", "create"), ("q/1", "delete"),
            ("q", "delete")} <= set(changes(o)),
           "what is gone again has its path", changes(o)[-8:])
    ctl("reset", "f1")
    ctl("exec", "--in", "f1", "--", "/bin/sh", "-c", "echo >/workspace/new")
    tap.ok(o.until(kind("fs_change", path="new")), "after a reset, too")
    o.close()
    ctl("end", "f1")


def running(mark):
    """Whether a Python with that argument lives, anywhere on the host."""
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                argv = f.read().split(b"\0")
        except OSError:
            continue
        if argv[0] == b"/usr/bin/python3" and mark.encode() in argv:
            return True
    return False


def test_overflow(g, ctl):
    """Nobody reads for a while: told, and then all that differs."""
    ctl("episodes", "create", "box", "o1")
    mark = f"overflow-{os.getpid()}"
    reactor = g.children()["sallyport-reactor"]
    with subprocess.Popen(
            [*ctl.base, "exec", "--in", "o1", "--", "/usr/bin/python3", "-c",
             """
import os, sys
print("ready", flush=True)
sys.stdin.readline()
for d in range(20):
    os.mkdir(f"/workspace/d{d}")
    for i in range(1500):
        open(f"/workspace/d{d}/f{i}", "w").close()
        if i: os.unlink(f"/workspace/d{d}/f{i}")
""", mark], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        p.stdout.readline()
        p.stdin.write(b"go\n")
        p.stdin.flush()
        o = Observer(g, "/observe?episode=o1")
        o.until(kind("fs_change", path="d0"))
        os.kill(reactor, signal.SIGSTOP)
        try:
            gate.until(lambda: not running(mark))
        finally:
            os.kill(reactor, signal.SIGCONT)
        p.wait(gate.PATIENCE)
    gap = o.until(lambda e: e["type"] == "gap" and
                  e["data"].get("type") == "fs_change" and
                  e["data"]["reason"] == "overflow")
    tap.ok(gap and gap["data"]["lost"] is None, "an overflow is told", gap)
    e = o.until(lambda e: e["type"] == "fs_change" and
                e["data"].get("rescan") and e["data"]["path"] == "d19/f0")
    tap.ok(e and e["data"]["kind"] == "create",
           "then what differs from the seed", e)
    o.close()
    o = Observer(g, "/calls?episode=o1&follow=0")
    o.wait_end()
    tap.eq(o.events, [], "and not to who is not shown files")
    ctl("end", "o1")


def test_elsewhere(g, ctl):
    """enforcement local: others' files lie in the same file system."""
    ctl("episodes", "create", "plain", "p1")
    o = Observer(g, "/plain")
    with tempfile.TemporaryDirectory(prefix="sp-elsewhere-") as tmp:
        for i in range(100):
            with open(os.path.join(tmp, str(i)), "w", encoding="ascii") as f:
                f.write("x")
    ctl("exec", "--in", "p1", "--", "/bin/sh", "-c", "mkdir d; echo >d/end")
    tap.ok(o.until(kind("fs_change", path="d/end", kind="create")),
           "local: its own files are seen")
    with o.more:
        # a busy host may have more to tell than the kernel keeps
        got = [e for e in o.events if not (
            e["type"] == "fs_change" and
            e["data"]["path"].split("/")[0] == "d") and
            e["data"].get("reason") not in ("overflow", "rescan")]
    tap.eq(got, [], "and nothing of what others do on the host")
    o.close()
    ctl("end", "p1")


def test_many(g):
    os_ = [Observer(g) for _ in range(4)]
    tap.ok(all(o.until(lambda e: True) for o in os_), "four observers")
    st, r = status_of(g, "/observe", ("Authorization", f"Bearer {TOKEN}"))
    tap.ok(st == 429 and b"detail" in r.body, "one more is refused", r.body)
    for o in os_:
        o.close()

    def free():
        o = Observer(g, "/observe?follow=0")
        o.wait_end()
        return o.status == 200
    tap.ok(gate.until(free), "and has its place when they left")


def test_reset(g, ctl):
    o = Observer(g)
    o.until(lambda e: True)
    early = o.ids[0]
    ctl("reset", "e1")
    ctl("exec", "--in", "e1", "--", "/bin/true")
    with o.more:
        o.more.wait_for(lambda: [i for i in o.ids if i == "1-0"],
                        gate.PATIENCE)
        first = next((e for e, i in zip(o.events, o.ids) if i == "1-0"), None)
    tap.ok(first and first["seq"] == 0, "after a reset numbers begin at 0",
           o.ids[-5:])
    o.close()
    o = Observer(g, "/observe?follow=0", headers=[("Last-Event-ID", early)])
    o.wait_end()
    gap = {"lost": 1, "reason": "reset"}
    tap.ok(len(o.events) > 1 and o.events[0]["type"] == "gap" and
           o.events[0]["data"].keys() == gap.keys() and
           o.events[1]["seq"] == 0 and
           all(e["resets"] == 1 for e in o.events),
           "an id of before the reset: what was lost, then all",
           o.events[:2])
    o = Observer(g)
    o.until(lambda e: True)
    ctl("end", "e1")
    tap.ok(o.wait_end(), "with the episode the stream ends")


def dropped(g):
    text = g.get("/status").body.decode()
    return next(float(x.split()[-1]) for x in text.split("\n")
                if x.startswith("sallyport_observers_dropped_total"))


def test_slow(g, ctl):
    """Many events and one who takes none of them, and one who does."""
    ctl("episodes", "create", "box", "slow")
    ctl("reset", "slow")
    fast = Observer(g, "/observe?episode=slow")
    slow = Observer(g, "/observe?episode=slow", read=False, rcvbuf=4096)
    before = dropped(g)
    flood = subprocess.Popen(
        [*ctl.base, "exec", "--in", "slow", "--", "/usr/bin/python3", "-c",
         """
import os
while True:
    for i in range(1000):
        name = f"/workspace/{'x' * 200}{i}"
        open(name, "w").close()
        os.unlink(name)
"""], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        tap.ok(gate.until(lambda: dropped(g) > before),
               "who takes nothing is dropped")
    finally:
        flood.kill()
        flood.wait()
    slow.thread.start()
    tap.ok(slow.wait_end(), "and its stream ends")
    last = slow.events[-1] if slow.events else None
    tap.ok(last and last["type"] == "dropped" and
           "too slow" in last["data"]["reason"],
           "with the reason as its last event", last)
    tap.eq(last.get("resets"), 1, "which has the count of resets as others do")
    ctl("exec", "--in", "slow", "--", "/bin/sh", "-c", "exit 3", check=False)
    tap.ok(fast.until(kind("process", kind="exit", returncode=3)),
           "who keeps up sees what follows")
    o = Observer(g, "/observe?episode=slow&follow=0")
    tap.ok(o.wait_end() and
           any(map(kind("process", kind="exit", returncode=3), o.events)),
           "and a replay ends behind that, not after the first of it")
    ctl("end", "slow")
    fast.close()
    slow.close()


# ---- over a WebSocket -------------------------------------------------------
class WebSocket:
    """A client that reads; frames as RFC 6455 s5.2 has them."""

    def __init__(self, g, path="/observe", token=TOKEN):
        self.s = g.connect()
        self.s.sendall(gate.request(None, path, [
            ("Upgrade", "websocket"), ("Connection", "Upgrade"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("Authorization", f"Bearer {token}")], close=False))
        self.r = gate.Reply(self.s, read=False)
        text = self.r.until(b"\r\n\r\n") or b"HTTP/1.1 0"
        self.status = int(text.split()[1])
        self.code = self.reason = None

    def next(self):
        """The next event; None when it was closed."""
        while True:
            head = self.r.exactly(2)
            if head is None:
                return None
            n = head[1]
            if n >= 126:
                n = int.from_bytes(self.r.exactly(2 if n == 126 else 8),
                                   "big")
            body = self.r.exactly(n) if n else b""
            if head[0] & 15 == 1:
                return json.loads(body)
            if head[0] & 15 == 8:
                self.code = int.from_bytes(body[:2], "big")
                self.reason = body[2:].decode()
                return None

    def until(self, cond):
        while (e := self.next()) is not None:
            if cond(e):
                return e
        return None


def test_websocket(g, ctl):
    tap.eq(WebSocket(g, token="x" * 20).status, 403,
           "a handshake with another token: 403")
    ctl("episodes", "create", "box", "w1")
    ctl("exec", "--in", "w1", "--", "/bin/sh", "-c", "exit 4", check=False)
    w = WebSocket(g)
    tap.eq(w.status, 101, "a WebSocket")
    first = w.next()
    tap.ok(first and first["seq"] == 0, "from the start", first)
    tap.ok(w.until(kind("process", kind="exit", returncode=4)),
           "what was before")
    ctl("exec", "--in", "w1", "--", "/bin/sh", "-c", "exit 5", check=False)
    tap.ok(w.until(kind("process", kind="exit", returncode=5)),
           "and what comes")
    ctl("reset", "w1")
    ctl("exec", "--in", "w1", "--", "/bin/true")
    tap.ok(w.until(lambda e: e["seq"] == 0), "numbers begin again")
    ctl("end", "w1")
    while w.next() is not None:
        pass
    tap.eq((w.code, w.reason), (1000, "the episode is over"),
           "closed with the episode")


# ---- connections ------------------------------------------------------------
class Outside:
    """A namespace behind a link, where nobody listens."""

    def __init__(self):
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
        sh("ip", "addr", "add", OURS + "/24", "dev", "out0")
        sh("ip", "link", "set", "out0", "up")
        into = ["nsenter", "-t", pid, "-n"]
        sh(*into, "ip", "addr", "add", OUTSIDE + "/24", "dev", "out1")
        sh(*into, "ip", "link", "set", "out1", "up")
        with open("/proc/sys/net/ipv4/ip_forward", "w",
                  encoding="ascii") as f:
            f.write("1")

    def close(self):
        self.hold.kill()
        self.hold.wait()


def test_packets(g, ctl):
    ctl("episodes", "create", "net", "n1")
    o = Observer(g, "/net")
    r = ctl.py("n1", f"""
import socket
for host, port in (("{OUTSIDE}", 8080), ("{OUTSIDE}", 81),
                   ("169.254.169.254", 80)):
    try: socket.create_connection((host, port), 20).close()
    except OSError as e: print(type(e).__name__)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(b"x" * 500, ("203.0.113.77", 5353))
""")
    tap.eq(r.stdout.split(), ["ConnectionRefusedError"] * 3, "all refused")
    for dest, proto, denied in ((f"{OUTSIDE}:8080", "tcp", False),
                                (f"{OUTSIDE}:81", "tcp", True),
                                ("169.254.169.254:80", "tcp", True),
                                ("203.0.113.77:5353", "udp", True)):
        e = o.until(kind("network", kind="packet", dest=dest))
        tap.ok(e and e["data"] == {
            "kind": "packet", "protocol": proto, "dest": dest,
            "denied": denied, "outcome": "deny" if denied else "allow",
            "source": "nftables"}, f"{dest} was seen", e)
    ctl("reset", "n1")
    ctl.py("n1", f"""
import socket
try: socket.create_connection(("{OUTSIDE}", 82), 20)
except OSError: pass
""")
    tap.ok(o.until(kind("network", dest=f"{OUTSIDE}:82")),
           "and after a reset")
    ctl("end", "n1")
    tap.ok(o.wait_end(), "to its end")


def test_relayed(g, ctl):
    ctl("episodes", "create", "relayed", "r1")
    o = Observer(g, "/relayed")
    ctl.py("r1", f"""
import socket
for host, port in (("{OUTSIDE}", 8080), ("{OUTSIDE}", 81)):
    try: socket.create_connection((host, port), 20).close()
    except OSError as e: print(e)
""")
    e = o.until(kind("network", dest=f"{OUTSIDE}:8080", source="relay"))
    tap.ok(e and e["data"]["denied"] is False, "a connection by relay", e)
    ctl("end", "r1")
    o.close()


class Events:
    """sallyportctl events: its lines."""

    def __init__(self, ctl, episode):
        self.p = subprocess.Popen(["timeout", str(gate.PATIENCE), *ctl.base,
                                   "events", episode],
                                  stdout=subprocess.PIPE, text=True)

    def until(self, cond):
        """Up to the line that is so, which is the last; else to the end."""
        out = []
        for line in self.p.stdout:
            if line.strip():
                out.append(json.loads(line))
                if cond(out[-1]):
                    break
        return out

    def close(self):
        self.p.stdout.close()
        return self.p.wait(gate.PATIENCE)


def followed(ctl, episode, script):
    """What events tells of a script, from its beginning on to its end."""
    e = Events(ctl, episode)
    # who follows is shown the rest of a sample's second at the latest
    hold = subprocess.Popen([*ctl.base, "exec", "--in", episode, "--", "cat"],
                            stdin=subprocess.PIPE)
    e.until(lambda x: x["event"] == "resources")
    hold.stdin.close()
    hold.wait(gate.PATIENCE)
    ctl.py(episode, script + "\nraise SystemExit(11)")
    ctl("end", episode)
    got = e.until(lambda x: x["event"] == "ended")
    return e.close(), got


def test_events(g, ctl):
    """Every stream that there is comes to who follows on the socket."""
    ctl("episodes", "create", "net", "v1")
    rc, got = followed(ctl, "v1", f"""
import socket
open("/workspace/mine", "w").close()
try: socket.create_connection(("{OUTSIDE}", 81), 20)
except OSError: pass
""")
    def data(of, **has):
        return [e["data"] for e in got if e["event"] == of and
                all(e["data"].get(k) == v for k, v in has.items())]
    tap.eq(data("fs_change", path="mine", kind="create")[:1],
           [{"path": "mine", "kind": "create"}], "events: changed files")
    tap.eq([d["denied"] for d in data("network", dest=f"{OUTSIDE}:81")],
           [True], "events: denied packets")
    tap.ok(any(e["event"] == "process_exited" and e["status"] == 11
               for e in got), "events: processes", got[-5:])
    tap.ok(rc == 0 and got[-1]["event"] == "ended" and
           [e["n"] for e in got] == list(range(got[0]["n"],
                                               got[-1]["n"] + 1)),
           "events: to the end, each with its number", (rc, got[-1:]))
    ctl("episodes", "create", "relayed", "v2")
    _, got = followed(ctl, "v2", f"""
import socket
try: socket.create_connection(("{OUTSIDE}", 8080), 20).recv(1)
except OSError: pass
""")
    tap.ok(data("network", dest=f"{OUTSIDE}:8080", source="relay"),
           "events: what the relay was asked for", got[-5:])


class Gate(gate.Gate):
    def __init__(self, tmp):
        self.tmp_dir = tmp
        super().__init__(CONF.format(tmp=tmp), env={"OBSERVER": TOKEN})


def run(*tests):
    only = os.environ.get("ONLY")
    for test, *args in tests:
        if not only or test.__name__ in only.split():
            test(*args)


def main():
    if LIBC.unshare(NEWNET | NEWNS) != 0:
        tap.skip_all("no namespaces: " + os.strerror(ctypes.get_errno()))
    with tempfile.TemporaryDirectory(prefix="sp-observe-") as tmp:
        os.chmod(tmp, 0o755)
        sh("mount", "--make-rprivate", "/")
        os.makedirs(os.path.join(tmp, "seed", "sub"))
        for name in ("seeded.txt", "sub/old.txt"):
            with open(os.path.join(tmp, "seed", name), "w",
                      encoding="ascii") as f:
                f.write("from the seed\n")
        out = Outside()
        atexit.register(out.close)
        with Gate(tmp) as g:
            ctl = Ctl(g)
            run((test_refused, g))
            ctl("episodes", "create", "box", "e1")
            run((test_since, g), (test_processes, g, ctl),
                (test_replay, g, ctl), (test_many, g), (test_reset, g, ctl),
                (test_websocket, g, ctl), (test_watcher, g, ctl),
                (test_files, g, ctl),
                (test_overflow, g, ctl), (test_slow, g, ctl),
                (test_packets, g, ctl), (test_relayed, g, ctl),
                (test_elsewhere, g, ctl), (test_events, g, ctl))
    tap.done()


main()

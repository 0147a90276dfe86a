#!/usr/bin/python3
"""The helper is killed after each step; the next start finds all of it.

A run without a failure tells which steps there are (core/base/failpoint.h), in
each of the phases start, create, grade, reset and stop.  Each of their names is then
once the helper's last, in one of those phases, or in each of them with
SP_FAILPOINTS=all; and what the host had before is what it has after the next
start: links, tables, mounts, control groups, entries of conntrack, processes,
files of state_dir.
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402

if os.environ.get("SP_IN_NETNS") != "1":
    walls.needed()
    os.set_inheritable(walls.lock, True)
    os.environ["SP_IN_NETNS"] = "1"
    os.execvp("unshare", ["unshare", "--net", "--mount", "--propagation",
                          "private", sys.executable,
                          os.path.abspath(__file__)])

PATIENCE = 60
TMP = tempfile.mkdtemp(prefix="sp-fail-")
os.chmod(TMP, 0o755)
POINT = os.path.join(TMP, "point")
SOCKET = os.path.join(TMP, "control.sock")
PHASES = ("start", "create", "grade", "reset", "stop")

CONF = f"""
environment box {{
    workspace {TMP}/ws; workspace_size 16m; episodes 2; teardown_timeout 10s;
    sandbox {{ memory 128m; pids 64; uid 300000 4096; }}
    assets {TMP}/assets {{ oracle oracle.sh; }}
    egress {{ allow tcp 203.0.113.0/24 443; }}
    inside 127.0.0.1:7000 {{ location /health {{ health; }} }}
}}
server {{ listen 127.0.0.1:0; location /health {{ health; }} }}
"""


def names(path):
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def conntrack():
    """How many entries bear the mark of a slot of ours."""
    try:
        with open("/proc/net/nf_conntrack", encoding="utf-8") as f:
            return sum("mark=139" in line for line in f)
    except FileNotFoundError:
        return 0


def tables():
    out = subprocess.run(["nft", "list", "tables"], capture_output=True,
                         text=True, check=False)
    return sorted(out.stdout.splitlines())


def keepers():
    """Processes of this build's sallyport-init, keepers and first ones."""
    mine = os.stat(gate.program("sallyport-init"))
    out = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            st = os.stat(f"/proc/{pid}/exe")
            space = os.stat(f"/proc/{pid}/ns/net").st_ino
            with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
                spare = f.read() == "sallyport-spare\n"
        except OSError:
            continue
        if (st.st_dev, st.st_ino) == (mine.st_dev, mine.st_ino) and \
                space in SPACES and not spare:
            out += 1
    return out


SPACES = {os.stat("/proc/self/ns/net").st_ino}


class Host:
    """One daemon after another, on one state_dir."""

    def __init__(self):
        self.g = None

    def files(self):
        out = []
        for at, dirs, files in os.walk(self.g.state):
            out += [os.path.relpath(os.path.join(at, x), self.g.state)
                    for x in dirs + files]
        # the recorder's are its own matter
        return sorted(x for x in out if not x.startswith("traces"))

    def leaves(self):
        with open(os.path.join(self.g.state, "slots"), encoding="utf-8") as f:
            text = f.read()
        block = int(re.search(r"^block (\d+)$", text, re.M).group(1))
        ours = range(block * 2048, (block + 1) * 2048)
        return sorted(
            os.path.join(at, d) for at in re.findall(r"^cgroup \d (.+)$", text,
                                                     re.M)
            for d in names(at)
            if d.startswith("slot-") and int(d.split("-")[1]) in ours)

    def state(self):
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            mounts = sum(1 for _ in f)
        return {"links": sorted(names("/sys/class/net")), "tables": tables(),
                "mounts": mounts, "groups": self.leaves(),
                "conntrack": conntrack(), "files": self.files(),
                "keepers": keepers()}

    def start(self):
        env = {"SP_FAIL_POINT": POINT}
        if self.g is None:
            self.g = gate.Gate(CONF, main=f"control {SOCKET};", env=env)
        else:
            # readiness is looked for in the log
            os.truncate(self.g.log_path, 0)
            self.g.start(self.g.argv, env)
        # until it has a name, one that keeps nothing looks as if it did
        gate.until(lambda: self.g.p.poll() is not None or self.spares() == 2,
                   "keepers started ahead")
        if self.g.p.poll() is not None:
            raise RuntimeError("the helper died")

    def spares(self):
        n = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8",
                          errors="replace") as f:
                    name, _, rest = f.read().rpartition(")")
            except OSError:
                continue
            n += name.endswith("(sallyport-spare") and \
                int(rest.split()[1]) == self.g.p.pid
        return n

    def call(self, path, body):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(PATIENCE)
        s.connect(SOCKET)
        body = json.dumps(body).encode()
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                  "Content-Type: application/json\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        data = b""
        while piece := s.recv(65536):
            data += piece
        s.close()
        if not data:
            raise ConnectionError("no answer")
        if not data.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(data)
        return data

    def phase(self, what):
        if what == "start":
            self.start()
        elif what == "create":
            said = self.call("/episodes", {"environment": "box"})
            self.episode = re.search(rb'"id":\s*"([^"]+)"',
                                     said).group(1).decode()
        elif what == "grade":
            said = self.call(f"/episodes/{self.episode}/grade", {})
            if b"graded" not in said:
                raise RuntimeError(said)
            self.quiet("grade.clean")
        elif what == "reset":
            self.call(f"/episodes/{self.episode}/reset", {})
            self.quiet("slot.free", "reset.given")
        else:
            self.g.p.terminate()
            if self.g.p.wait(PATIENCE) != 0:
                raise ConnectionError("it was killed")

    def quiet(self, *last):
        """What goes on behind an answer is over: one sandbox is left."""
        end = time.monotonic() + PATIENCE
        # the sweep goes on after the last group went
        while self.g.p.poll() is None and (
                len(self.leaves()) > LEAVES or
                not set(last) <= set(steps())):
            if time.monotonic() > end:
                raise TimeoutError("the old sandbox is not swept")
            time.sleep(0.01)

    def dead(self):
        """All that the helper's death kills is dead."""
        self.g.p.wait(PATIENCE)
        end = time.monotonic() + PATIENCE
        while keepers() or self.g.children():
            if time.monotonic() > end:
                raise TimeoutError("sandboxes outlive the helper")
            time.sleep(0.01)


def arm(text):
    """What is to be the last step; counted from here."""
    with open(os.path.join(POINT, "steps"), "w", encoding="utf-8"):
        pass
    with open(os.path.join(POINT, "at"), "w", encoding="utf-8") as f:
        f.write(text)


def steps():
    with open(os.path.join(POINT, "steps"), encoding="utf-8") as f:
        return list(dict.fromkeys(f.read().split()))


def learn(host):
    """[(phase, step)] of a run in which nobody dies, and the clean state."""
    global LEAVES
    found = []
    for phase in PHASES:
        arm("")
        host.phase(phase)
        if phase == "create":
            LEAVES = len(host.leaves())
        found += [(phase, s) for s in steps()]
    host.start()
    clean = host.state()
    host.phase("stop")
    return found, clean


def choose(found):
    if os.environ.get("SP_FAILPOINTS") == "all":
        return found
    out, seen = [], set()
    # turn and turn about, so that no phase is left out
    for i in range(len(found)):
        order = [x for x in found if x[1] == found[i][1]]
        if found[i][1] not in seen:
            seen.add(found[i][1])
            out.append(order[len(seen) % len(order)])
    return out


def differs(now, clean):
    return {k: (v, clean[k]) for k, v in now.items() if v != clean[k]}


def die_at(host, phase, step, clean):
    """The helper dies there: what is left after the next start."""
    died = False
    try:
        for p in PHASES:
            arm(f"{step} 1" if p == phase else "")
            host.phase(p)
    except (OSError, RuntimeError):
        died = True
    if not died:
        return {"died": (False, True)}
    if host.g.p.poll() is None:
        host.g.p.kill()
    host.dead()
    arm("")
    with open(os.path.join(host.g.state, "slots"), encoding="utf-8") as f:
        journal = f.read()
    host.start()
    left = differs(host.state(), clean)
    host.phase("stop")
    if "\nslots 0\n" in journal:
        return left
    # a second sweep of the same finds nothing, and does nothing
    with open(os.path.join(host.g.state, "slots"), "w",
              encoding="utf-8") as f:
        f.write(journal)
    host.start()
    if "sweeping" not in host.g.log():
        left["second sweep"] = ("none", "one")
    left.update(differs(host.state(), clean))
    host.phase("stop")
    return left


def test_unreadable(host):
    path = os.path.join(host.g.state, "slots")
    for what, text in (("torn", "sallyport-slots 1\nblock 0\nslo"),
                       ("empty", ""), ("another's", "something else\nend\n")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.truncate(host.g.log_path, 0)
        try:
            host.start()
            refused = False
        except RuntimeError:
            refused = "cannot be understood" in host.g.log()
        tap.ok(refused, f"a journal that is {what} refuses the start")


def main():
    if gate.confined():
        tap.skip_all("this build has no failpoints (--disable-confinement)")
    os.makedirs(os.path.join(TMP, "ws"))
    os.mkdir(POINT)
    os.mkdir(os.path.join(TMP, "assets"), 0o700)
    path = os.path.join(TMP, "assets", "oracle.sh")
    with open(path, "w", encoding="ascii") as f:
        f.write("#!/bin/sh\necho graded\n")
    os.chmod(path, 0o700)
    with open(os.path.join(TMP, "ws", "hello"), "w", encoding="utf-8") as f:
        f.write("hello\n")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="utf-8") as f:
        f.write("1")
    host = Host()
    found, clean = learn(host)
    tap.eq((clean["keepers"], clean["groups"], clean["tables"]), (0, [], []),
           "without episodes there is nothing")
    for kind in ("journal", "network", "cut", "group", "stage", "keeper",
                 "seed", "slot", "end", "sweep", "reset", "stop", "hold",
                 "grade"):
        tap.ok(any(s.startswith(kind + ".") for _, s in found),
               f"steps of {kind} are among them")
    for phase, step in choose(found):
        if step.startswith("seed."):
            # only what has changed is captured again
            with open(os.path.join(TMP, "ws", "hello"), "a",
                      encoding="utf-8") as f:
                f.write("more\n")
        left = die_at(host, phase, step, clean)
        tap.eq(left, {}, f"{phase}: the helper dies at {step}")
    test_unreadable(host)


LEAVES = 0
try:
    main()
finally:
    shutil.rmtree(TMP, ignore_errors=True)
tap.done()

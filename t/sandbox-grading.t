#!/usr/bin/python3
"""Grading while the graded attack: numbers as in the list of cases.

Everything is real; it runs in a network and a mount namespace of its own.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import links as agent_links  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402

CTL = gate.program("sallyportctl")
SECRET = "the-answer-is-%d" % os.getpid()
ENV = """
environment box {{
    workspace {seed}; workspace_size 8m; workspace_inodes 400; episodes 3;
    warm 0; teardown_timeout 20s;
    assets {assets} {{ {kinds} }}
    sandbox {{ memory 128m; pids 64; uid {uid} 4096; tmp_size 4m;
        shm_size 1m; files 256; timeout {timeout}; env DOOR=open; }}
    process rubric {{ trust privileged; asset rubric;
        command /usr/bin/python3 -I; }}
    process steps {{ trust privileged; asset steps; }}
    process bad {{ trust privileged; asset bad; command /openenvd/assets/none; }}
    process agent {{ trust workload; command /bin/true; }}
}}
environment pair {{
    workspace {seed}; workspace_size 8m; episodes 2; teardown_timeout 20s;
    worker stdio /bin/sleep 1000;
    assets {assets} {{ oracle oracle.sh; }}
    sandbox {{ memory 64m; pids 64; uid {uid2} 4096; }}
    process agent {{ trust workload; command /bin/true; }}
}}
server {{ listen 127.0.0.1:0; location /health {{ health; }} }}
"""
KINDS = ("oracle oracle.sh; rubric rubric.py; steps sub/steps.sh; "
         "bad rubric.py; solution solution.txt;")
ORACLE = "#!/bin/sh\necho graded\n"


def own_namespaces():
    if os.environ.get("SP_SANDBOX_GRADING") == "own":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    os.execvpe("unshare", ["unshare", "-n", "-m", "--propagation", "private",
                           sys.executable, os.path.abspath(__file__)],
               dict(os.environ, SP_SANDBOX_GRADING="own"))


class Daemon(gate.Gate):
    def __init__(self, folder, timeout="60s", kinds=KINDS, wait=True):
        self.folder = folder
        self.socket = os.path.join(folder, "c.sock")
        self.assets = os.path.join(folder, "private")
        seed = os.path.join(folder, "seed")
        if not os.path.isdir(seed):
            os.makedirs(os.path.join(seed, "dir"))
            for name, text in (("hello", "hello\n"), ("dir/one", "1\n"),
                               ("gone", "gone\n"), ("big", "x" * 300000)):
                with open(os.path.join(seed, name), "w",
                          encoding="utf-8") as f:
                    f.write(text)
            os.makedirs(os.path.join(self.assets, "sub"))
            os.chmod(self.assets, 0o700)
        for name, text in (("oracle.sh", ORACLE), ("sub/steps.sh", ORACLE),
                           ("rubric.py", "print('rubric')\n"),
                           ("solution.txt", SECRET + "\n")):
            self.asset(name, text)
        uid = 31000000 + os.getpid() % 1000 * 8192
        super().__init__(ENV.format(seed=seed, assets=self.assets, uid=uid,
                                    uid2=uid + 4096, timeout=timeout,
                                    kinds=kinds),
                         main=f"control {self.socket};", wait=wait)

    def asset(self, name, text, mode=0o700):
        path = os.path.join(self.assets, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)

    def oracle(self, script, name="oracle.sh"):
        self.asset(name, "#!/bin/sh\n" + script + "\n")

    def ctl(self, *args, stdin=b"", timeout=gate.PATIENCE):
        r = subprocess.run([CTL, "-S", self.socket, *args], input=stdin,
                           capture_output=True, check=False, timeout=timeout)
        return r.returncode, r.stdout, r.stderr

    def new(self, env="box"):
        rc, out, err = self.ctl("episodes", "create", env)
        if rc != 0:
            raise RuntimeError(f"no episode: {rc} {err}\n" + self.log()[-900:])
        return out.decode().strip()

    def sh(self, me, script, **kw):
        return self.ctl("exec", "--in", me, "--", "/bin/sh", "-c", script, **kw)

    def py(self, me, code, *args, **kw):
        return self.ctl("exec", "--in", me, "--", "python3", "-c", code, *args,
                        **kw)

    def attack(self, me, script):
        """A workload that goes on; stopped with the episode."""
        p = subprocess.Popen([CTL, "-S", self.socket, "exec", "--in", me,
                              "--", "/bin/sh", "-c",
                              "echo on; " + script],
                             stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
        p.stdout.readline()
        return p

    def grade(self, me, *process, **kw):
        return self.ctl("grade", me, *process, **kw)

    def verdict(self, me, *process):
        rc, out, err = self.ctl("grade", "--json", me, *process)
        return json.loads(out) if rc == 0 else (rc, err.decode())

    def diff(self, me):
        rc, out, err = self.ctl("diff", "--json", "--frozen", me)
        if rc != 0:
            raise RuntimeError(f"no diff: {rc} {err}")
        return [json.loads(x) for x in out.splitlines()]

    def end(self, me):
        return self.ctl("end", me)[0]


def leaves(d, side=""):
    with open(os.path.join(d.state, "slots"), encoding="utf-8") as f:
        text = f.read()
    block = int(re.search(r"^block (\d+)$", text, re.M)[1])
    return [os.path.join(at, x)
            for at in re.findall(r"^cgroup \d (.+)$", text, re.M)
            for x in os.listdir(at) if x.startswith("slot-")
            and x.endswith(side) and int(x.split("-")[1]) // 2048 == block]


def inits(d):
    """Keepers, and pids 1, beneath this daemon."""
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8",
                      errors="replace") as f:
                words = f.read()
            if "(sallyport-init)" in words and \
                    os.readlink(f"/proc/{pid}/exe").startswith(
                        os.path.dirname(d.argv[0])):
                out.append((int(pid), int(words.rsplit(")", 1)[1].split()[1])))
        except OSError:
            pass
    return out


def keepers(d):
    return [pid for pid, up in inits(d) if up == d.p.pid]


def inits_of(d):
    return [pid for pid, up in inits(d) if up != d.p.pid]


def of_others(d):
    """Mounts and links that grading might leave."""
    with open("/proc/self/mounts", encoding="utf-8") as f:
        mounts = [x for x in f if d.folder in x]
    return mounts + [x for x in os.listdir("/sys/class/net")
                     if x.startswith("sp-")]


def frozen(d):
    out = []
    for leaf in leaves(d):
        try:
            with open(os.path.join(leaf, "cgroup.events"),
                      encoding="utf-8") as f:
                if "frozen 1" in f.read():
                    out.append(leaf)
        except OSError:
            pass
    return out


def still(d):
    """What stays frozen: the kernel thaws when it comes to it."""
    return gate.becomes(lambda: frozen(d), [])


def clean(d, what, episodes):
    """
    Nothing of any grading is left; so many episodes' keepers are.  One that is
    started ahead passes for such a keeper for a moment.
    """
    want = ([], episodes, [], [])
    tap.eq(gate.becomes(lambda: (leaves(d, "-oracle"), len(keepers(d)),
                                 of_others(d), frozen(d)), want),
           want, f"{what}: nothing is left of it")


# ---- what an honest episode sees -------------------------------------------------

def honest(d):
    me = d.new()
    d.sh(me, "echo mine >made; rm gone; chmod 600 made; umask 077; mkdir p; "
         "echo deep >p/q")
    d.oracle('cat made hello p/q; ls gone 2>/dev/null; id -u; pwd; '
             'echo "$DOOR $HOME $OPENENVD_ASSETS"; '
             'cat $OPENENVD_ASSETS/solution.txt; ls /sys/class/net 2>/dev/null;'
             ' cat /proc/net/dev | wc -l; readlink /proc/self/fd/0; '
             'echo oops >&2; exit 3')
    rc, out, err = d.grade(me)
    lines = out.decode().split("\n")
    tap.eq((rc, err, lines[:3]), (3, b"oops\n", ["mine", "hello", "deep"]),
           "the oracle sees the workspace as it is, also what is closed")
    # four of each episode: pid 1, agent, worker, oracle
    tap.eq(int(lines[3]) % 4, 3, "has a uid of its own")
    tap.ok(lines[4] == "/workspace" and lines[6] == SECRET and re.fullmatch(
        "open /home/oracle /openenvd/assets-[0-9a-f]{32}", lines[5]),
           "a place, an environment, and the assets", lines[4:7])
    tap.eq(lines[7:9], ["3", "/dev/null"], "but no network and no input")
    rc, out, _ = d.sh(me, "id -u; cat made")
    tap.ok(rc == 0 and out.split(b"\n")[0].decode() != lines[3],
           "which is not the agent's")
    d.oracle("echo changed >made; rm -rf dir hello; touch new; echo done")
    tap.eq(d.grade(me)[:2], (0, b"done\n"), "what it changes")
    tap.eq(d.sh(me, "cat made hello dir/one; ls new 2>&1 | wc -l")[1],
           b"mine\nhello\n1\n1\n", "is a copy's: nothing comes back")
    d.oracle("kill -9 $$")
    tap.eq(d.verdict(me)["returncode"], -9, "a signal is told as Python does")
    tap.eq(d.grade(me)[0], 137, "and as a shell does")
    d.asset("rubric.py", "import sys\nprint('judged', sys.argv)\n")
    rc, out, _ = d.grade(me, "rubric")
    tap.ok(rc == 0 and re.fullmatch(
        rb"judged \['/openenvd/assets-[0-9a-f]{32}/rubric.py'\]\n", out),
           "a process with a command gets its asset as last argument", out)
    d.oracle("echo step", "sub/steps.sh")
    tap.eq(d.grade(me, "steps")[:2], (0, b"step\n"), "and one without is it")
    for name in ("none", "agent", "oracle", "../oracle", "x" * 65):
        rc, out, err = d.grade(me, name)
        tap.ok(rc == 125 and out == b"" and b"404" in err or b"400" in err,
               f"no such process: {name[:12]}", (rc, err))
    rc, _, err = d.grade(me, "bad")
    tap.ok(rc == 125 and b"/no/such/program" not in b"" and b"500" in err,
           "what is not there to be run is told", err)
    d.asset("oracle.sh", "#!/no/such/sh\necho graded\n")
    rc, _, err = d.grade(me)
    tap.ok(rc == 125 and b"/oracle.sh: its #! names "
           b"/no/such/sh: No such file or directory" in err,
           "it is the interpreter that is not there", err)
    d.asset("oracle.sh", ORACLE, 0o600)
    rc, _, err = d.grade(me)
    tap.ok(rc == 125 and b"oracle.sh" in err and b"chmod u+x" in err,
           "what cannot be run is named, and what helps", err)
    d.asset("oracle.sh", ORACLE)
    tap.eq(d.grade(me)[:2], (0, b"graded\n"), "and then runs")
    clean(d, "honest", 1)
    d.end(me)


def several(d):
    """One at a time of each episode, and none is lost."""
    me, other = d.new(), d.new()
    d.oracle("sleep 0.2; echo $(ls /workspace | wc -l)")
    d.sh(other, "touch a b c")
    out, threads = [], []
    for x in (me, me, other, me, other):
        t = threading.Thread(
            target=lambda x=x: out.append((x == me, *d.grade(x)[:2])))
        t.start()
        threads.append(t)
    for t in threads:
        t.join()
    tap.eq(sorted(out), [(False, 0, b"7\n")] * 2 + [(True, 0, b"4\n")] * 3,
           "several at once, each with its own copy")
    clean(d, "several", 2)
    d.end(me)
    d.end(other)


def pairs(d):
    """Where worker and agent share a workspace both stand still."""
    me = d.new("pair")
    d.oracle("cat /workspace/n")
    d.sh(me, "echo 0 >n")
    p = d.attack(me, "i=0; while :; do i=$((i+1)); echo $i >n; done")
    q = subprocess.Popen([CTL, "-S", d.socket, "exec", "--in", me, "--side",
                          "worker", "--", "/bin/sh", "-c",
                          "while :; do echo w >m$$; rm m$$; done"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    gate.until(lambda: d.ctl("read", me, "/workspace/n")[0] == 0, "work")
    for _ in range(3):
        rc, out, err = d.grade(me)
        tap.ok(rc == 0, "an episode of two sandboxes is graded", (rc, err))
        d.diff(me)
    tap.eq(still(d), [], "and goes on")
    tap.eq(d.sh(me, "cat hello")[1], b"hello\n", "with others in it")
    d.end(me)
    p.wait()
    q.kill()
    q.wait()


# ---- D: attacks ---------------------------------------------------------------

SWAP = r"""
import os, socket, threading, time
os.chdir("/workspace")
def storm(make):
    n = 0
    while True:
        n += 1
        try: make(n)
        except OSError: pass
def files(n):
    open("v", "w").write("honest" if n % 2 else "forged"); os.rename("v", "x")
def links(n):
    os.symlink(["/etc/shadow", "../openenvd/assets/solution.txt",
                "/proc/self/root/etc/passwd", "/openenvd/assets", "."][n % 5],
               "l"); os.rename("l", "x")
def dirs(n):
    os.mkdir("d%d" % (n % 9)); os.rename("d%d" % (n % 9), "y")
    open("y/z", "w").write("z"); os.rename("y", "d%d" % (n % 9))
def fifos(n):
    os.mkfifo("f"); os.rename("f", "x")
def socks(n):
    s = socket.socket(socket.AF_UNIX); s.bind("s"); os.rename("s", "x")
def hard(n):
    os.link("hello", "h%d" % (n % 7)); os.rename("h%d" % (n % 7), "x")
def gone(n):
    os.unlink("x")
for f in (files, links, dirs, fifos, socks, hard, gone):
    threading.Thread(target=storm, args=(f,), daemon=True).start()
print("on", flush=True)
time.sleep(600)
"""


def races(d):
    me = d.new()
    p = subprocess.Popen([CTL, "-S", d.socket, "exec", "--in", me, "--",
                          "python3", "-c", SWAP], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    p.stdout.readline()
    d.oracle('for i in 1 2 3; do test -f /workspace/x && ! test -L /workspace/x'
             ' && head -c 5 /workspace/x; echo; done; find /workspace | sort | md5sum; '
             'find /workspace | sort | md5sum')
    kinds = set()
    for _ in range(12):
        v = d.verdict(me)
        if not isinstance(v, dict):
            tap.ok(False, "79: graded while everything is swapped", v)
            break
        lines = v["stdout"].split("\n")
        kinds.add(lines[0])
        if len(set(lines[:3])) != 1 or lines[3] != lines[4]:
            tap.ok(False, "79: the copy stands still", v)
            break
    else:
        tap.ok(True, f"79: graded 12 times while all is swapped: {len(kinds)}")
    for _ in range(12):
        got = d.diff(me)
        names = [x.get("path") for x in got]
        if names != sorted(names) and None not in names:
            names = []
    tap.ok(len(set(names)) == len(names) > 0,
           "each path of a diff is there once")
    seen = set()
    for _ in range(60):
        rc, out, err = d.ctl("read", me, "/workspace/x")
        seen.add(rc)
        if rc == 0 and not re.fullmatch(rb"(honest|forged|hello\n)?", out):
            tap.ok(False, "62: a read follows no link", out)
            break
    else:
        tap.ok(True, f"62, 64: 60 reads of what is swapped follow nothing {seen}")
    tap.eq(still(d), [], "nothing stays frozen")
    d.end(me)
    p.wait()


STEPS = r"""
import os
os.chdir("/workspace")
os.mkdir("s"); os.mkdir("t"); open("t/0", "w").close()
for i in range(120): open("s/%03d" % i, "w").write("%09d" % 0)
fds = [os.open("s/%03d" % i, os.O_WRONLY) for i in range(120)]
print("on", flush=True)
n = 0
while True:
    n += 1
    for fd in fds: os.pwrite(fd, b"%09d" % n, 0)
    for i in range(40): os.rename("t/%d" % i, "t/%d" % (i + 1))
    os.rename("t/40", "t/0")
"""


def moments(d):
    """What is graded and compared is the workspace of one moment."""
    me = d.new()
    p = subprocess.Popen([CTL, "-S", d.socket, "exec", "--in", me, "--",
                          "python3", "-c", STEPS], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    p.stdout.readline()
    d.oracle("cd /workspace; ls t | wc -l; cat s/*")
    bad = []
    for _ in range(15):
        v = d.verdict(me)
        if not isinstance(v, dict):
            bad.append(str(v))
            continue
        files, rest = v["stdout"].split("\n", 1)
        steps = [int(rest[i:i + 9]) for i in range(0, len(rest), 9)]
        if files != "1" or len(steps) != 120 or \
                steps != sorted(steps, reverse=True) or \
                steps[0] - steps[-1] > 1:
            bad.append(str((files, steps[:1], steps[-1:])))
    tap.none(bad, "79: a copy is of one moment")
    bad = []
    for _ in range(15):
        n = [x["path"] for x in d.diff(me) if x["path"].startswith("t/")]
        if len(n) != 1:
            bad.append(str(n))
    tap.none(bad, "and so is a diff")
    d.end(me)
    p.wait()


def paths(d):
    """62, 64: links, special files, and the assets by any form of a path."""
    me = d.new()
    d.sh(me, "ln -s /etc d; ln -s /proc/self/root r; ln -s .. up; mkfifo f; "
         "ln -s /openenvd/assets a; ln -s hello link; mkdir -p o/p; "
         "python3 -c 'import socket;socket.socket(1).bind(\"s\")'")
    for path in ("d/passwd", "r/etc/passwd", "up/etc/passwd", "link", "a",
                 "a/solution.txt", "../etc/passwd", "o/../../etc/passwd"):
        rc, out, _ = d.ctl("read", me, "/workspace/" + path)
        tap.ok(rc != 0 and out == b"", f"62: {path} is not read")
    for path in ("f", "s", "o"):
        started = time.monotonic()
        rc, out, err = d.ctl("read", me, "/workspace/" + path)
        tap.ok(rc != 0 and out == b"" and b"415" in err and
               time.monotonic() - started < 10, f"64: {path} is not opened")
    for kind in ("oracle", "solution"):
        rc, out, _ = d.ctl("read", me, "/openenvd/assets/" + kind)
        tap.ok(rc == 0 and out, f"an asset is read by its kind: {kind}")
    tap.eq(d.ctl("read", me, "/openenvd/assets/sub/steps.sh")[0], 0,
           "and by its path")
    os.symlink("solution.txt", os.path.join(d.assets, "link"))
    os.symlink("/etc/passwd", os.path.join(d.assets, "out"))
    os.mkfifo(os.path.join(d.assets, "fifo"))
    d.asset("large", "x" * (1 << 20) + "y")
    for path in ("", "..", "../etc/passwd", "sub/../solution.txt", "link",
                 "out", "./solution.txt", "sub//steps.sh", "none", "fifo",
                 "sub", "large", "solution.txt/"):
        rc, out, err = d.ctl("read", me, "/openenvd/assets/" + path)
        tap.ok(rc != 0 and out == b"", f"no asset is read as {path!r}", err)
    for name in ("link", "out", "fifo", "large"):
        os.unlink(os.path.join(d.assets, name))
    # from inside there is no form of it
    rc, out, err = d.sh(me, "ls -la / /openenvd /openenvd/assets; "
                        "cat /workspace/a/solution.txt; "
                        "cat /proc/1/root/openenvd/assets/*; "
                        "grep -r assets /proc/self/mountinfo; "
                        f"find / -name solution.txt 2>/dev/null; "
                        f"ls -la {d.assets}; cat {d.assets}/solution.txt")
    tap.ok(SECRET.encode() not in out + err and b"solution.txt\n" not in out,
           "an agent finds no asset", out[-300:])
    d.end(me)


HARD = r"""
import os, socket, sys
os.chdir("/workspace")
os.mkfifo("fifo"); os.mkdir("closed"); open("closed/in", "w").write("x")
os.chmod("closed/in", 0); os.chmod("closed", 0)
open(b"bad-\xff\xfe name", "w").write("b"); os.mkdir(b"\xc3"); 
open(b"\xc3/\x01\n\t", "w").write("c")
socket.socket(socket.AF_UNIX).bind("sock")
with open("sparse", "w") as f: f.truncate(1 << 40)
open("big", "r+").write("y")
for i in range(20): os.link("hello", "hard%d" % i)
os.symlink("x" * 4000, "long")
os.unlink("gone"); os.mkdir("gone"); open("gone/now", "w")
open("z" * 255, "w")
fd = os.open(".", os.O_RDONLY)
try: os.mknod("dev", 0o20666, os.makedev(1, 3)); print("device!")
except PermissionError: pass
try: os.mknod("white", 0o20666, 0); print("whiteout!")
except PermissionError: pass
try: os.setxattr("hello", "trusted.overlay.opaque", b"y"); print("xattr!")
except OSError: pass
for n in ("user.overlay.opaque", "user.overlay.redirect"):
    try: os.setxattr("dir", n, b"y")
    except OSError: pass
"""


def hard(d):
    """64, 68, 71, 76: what lies there is told as what it is."""
    me = d.new()
    rc, out, err = d.py(me, HARD)
    tap.eq((rc, out), (0, b""), f"71: no devices, no whiteouts {err[-200:]}")
    got = d.diff(me)
    by = {x["path"]: (x["change"], x["type"]) for x in got if "path" in x}
    want = {"fifo": ("created", "fifo"), "sock": ("created", "socket"),
            "closed": ("created", "directory"),
            "closed/in": ("created", "file"), "sparse": ("created", "file"),
            "big": ("modified", "file"), "long": ("created", "symlink"),
            "gone": ("replaced", "directory"), "gone/now": ("created", "file")}
    tap.eq({k: by.get(k) for k in want}, want,
           "64: a diff lists special, closed and huge files as what they are")
    raw = {x["path_b64"] for x in got if "path_b64" in x}
    tap.eq(raw, {"YmFkLf/+IG5hbWU=", "ww==", "wy8BCgk="},
           "names that are not UTF-8 are told in base64")
    tap.ok("dir/one" not in by, "71: user.overlay.* is nothing")
    d.oracle("cd /workspace; ls | wc -l; test -p fifo && echo fifo; "
             "stat -c %s sparse; test -S sock || echo nosock; "
             "chmod 700 closed && chmod 600 closed/in && cat closed/in; "
             "stat -c %h hello; cat dir/one")
    v = d.verdict(me)
    tap.ok(isinstance(v, dict) and v["stdout"].split("\n")[1:6] ==
           ["fifo", str(1 << 40), "nosock", "x21", "1"],
           "68: the copy has them, and what is closed can be opened", v)
    rc, out, _ = d.sh(me, "chattr +i ref 2>/dev/null && echo immutable; "
                      "cp /usr/bin/id suid; chmod 6755 suid; "
                      "setfattr -n user.mine -v x suid 2>/dev/null; "
                      "touch -d @1234567890 suid")
    tap.eq(out, b"", "70: nothing is made immutable")
    d.oracle("cd /workspace; stat -c '%a %Y' suid; ./suid -u; id -u")
    lines = (d.verdict(me).get("stdout") or "x").split("\n")
    tap.ok(lines[0] == "6755 1234567890" and lines[1] == lines[2],
           "70: mode and time are copied, and set-id bits mean nothing", lines)
    d.sh(me, "rm -rf hard* sparse; cp hello ref; touch -r hello ref; "
         "printf HELLO >h2; printf 'jello\n' >hello; touch -r ref hello")
    by = {x["path"]: x["change"] for x in d.diff(me) if "path" in x}
    tap.eq(by.get("hello"), "modified",
           "76: same size and time, other bytes: seen")
    tap.eq(d.ctl("read", me, "/workspace/closed/in")[:2], (0, b"x"),
           "68: what is closed is read")
    # full: bytes, inodes, names
    d.sh(me, "dd if=/dev/zero of=fill bs=64k 2>/dev/null; "
         "i=0; while : >s$i; do i=$((i+1)); done 2>/dev/null")
    d.oracle("ls /workspace | wc -l")
    v = d.verdict(me)
    tap.ok(isinstance(v, dict) and v["returncode"] == 0,
           "57: a workspace that is full is graded", v)
    tap.ok(d.ctl("reset", me)[0] == 0 and d.diff(me) == [],
           "and reset as if nothing had been")
    d.py(me, "import os\nfor i in range(1000):\n"
         " try: os.link('/workspace/hello', '/workspace/n%d' % i)\n"
         " except OSError: break")
    v = d.verdict(me)
    tap.ok(isinstance(v, dict) and v["returncode"] == 0,
           "57: one that is full of names is, too", v)
    d.ctl("reset", me)
    d.py(me, "import os\nn = 0\ntry:\n while n < 20000:\n"
         "  os.mkdir('d'); os.chdir('d'); n += 1\nexcept OSError: pass")
    v = d.verdict(me)
    tap.ok(isinstance(v, dict) and len(d.diff(me)) > 100,
           "66: a deep tree is graded, and compared", v)
    d.end(me)
    clean(d, "hard", 0)


def live_later(d):
    """What the oracle copies, builds anew or unpacks leads nowhere either."""
    me = d.new()
    rc, _, err = d.sh(me, agent_links.LATER)
    tap.eq(rc, 0, f"links that are made later {err[-300:]}")
    d.oracle("rm -rf build; mkdir build; cp -r project/. /tmp/; tar xf t.tar; "
             "for f in rebuilt /tmp/copied t/unpacked t/all/*; do "
             "cmp -s $f $OPENENVD_ASSETS/solution.txt && echo $f; done; "
             "ls /openenvd; cat /openenvd/assets*/solution.txt; "
             "find -L t /tmp -name solution.txt; test -L t/unpacked && "
             "echo there")
    v = d.verdict(me)
    tap.ok(isinstance(v, dict) and v["stdout"] == "there\n" and
           "ermission denied" in v["stderr"],
           "no link knows the assets' name, and nothing lists it", v)
    d.oracle("echo $OPENENVD_ASSETS")
    one, two = d.verdict(me)["stdout"], d.verdict(me)["stdout"]
    tap.ok(one != two and one.startswith("/openenvd/assets-"),
           "which is another each time", (one, two))
    d.end(me)


def links(d):
    """A link of the agent's leads the oracle to nothing that is its own."""
    me = d.new()
    rc, out, err = d.py(me, agent_links.LINKS)
    tap.eq((rc, out), (0, b""), f"links of all kinds {err[-300:]}")
    d.oracle("find /workspace -type l | sort; test -e /workspace/gone && "
             "echo gone; cat /workspace/x-* /workspace/sub/*/x-* "
             "2>/dev/null; cat /workspace/s-chain; exit 3")
    v = d.verdict(me)
    if not isinstance(v, dict):
        tap.ok(False, "links: a verdict", v)
        return
    names = {x.rsplit("/", 1)[-1] for x in v["stdout"].split("\n")}
    tap.eq({x for x in names if x[:2] in ("x-", "w-") or x == "gone"}, set(),
           "no link leads to an asset, to /proc or to what is the oracle's")
    tap.eq({x for x in names if x.startswith("s-")},
           {"s-file", "s-dir", "s-python", "s-none", "s-none2", "s-none3",
            "s-chain", "s-null", "s-up", "s-lib", "s-copied", "s-proc"},
           "all others are there")
    tap.ok(SECRET not in v["stdout"] and "hello" in v["stdout"] and
           v["returncode"] == 3, "the oracle is led to none, and goes on", v)
    told = v["links_removed_paths"]
    tap.eq((v["links_removed"], len(told)), (30, 8),
           "the verdict tells how many there were, and the first")
    tap.ok("/workspace/gone" in told and all(
        x.startswith("/workspace/") for x in told), "by their paths", told)
    rc, _, err = d.grade(me)
    tap.ok(rc == 3 and b"taken out" in err and b"30" in err,
           "and so does sallyportctl", err)
    d.oracle("echo step", "sub/steps.sh")
    tap.eq(d.grade(me, "steps")[:2], (0, b"step\n"), "a process's, too")
    v = json.loads(d.ctl("grade", "--json", me, "steps")[1])
    tap.eq(v["links_removed"], 30, "with the same")
    tap.eq(d.sh(me, "readlink x-direct")[1],
           b"/openenvd/assets/solution.txt\n", "the workspace keeps its own")
    d.end(me)
    me = d.new()
    # a folder of the seed that was moved whole, with its links
    d.sh(me, "ln -s ../hello dir/l; ln -s / top; "
         "printf x >\"$(printf 'n\\377')\"; rm \"$(printf 'n\\377')\"; "
         "ln -s /proc \"$(printf 'n\\377')\"")
    v = d.verdict(me)
    tap.eq(v.get("links_removed_paths"),
           ["/workspace/n\udcff", "/workspace/top"],
           "a name that is not UTF-8 is told as it is")
    d.end(me)
    me = d.new()
    d.py(me, "import os\nos.chdir('/workspace')\nn = 0\ntry:\n"
         " while True:\n  n += 1; os.symlink('/openenvd', 'l%d' % n)\n"
         "except OSError: pass\nos.unlink('l1'); os.unlink('hello')\n"
         "os.symlink('/openenvd', 'hello')\n")
    d.oracle("find /workspace -type l")
    v = d.verdict(me)
    tap.ok(isinstance(v, dict) and v["stdout"] == "" and
           v["links_removed"] > 300, "a workspace full of them is graded", v)
    d.end(me)
    clean(d, "links", 0)


PLANT = r"""
mkdir -p .git hooks logs/verifier
for f in json.py sitecustomize.py conftest.py usercustomize.py python3 sh; do
    printf 'import os\nos.system("touch /tmp/pwn")\nprint("forged")\n' >$f
    chmod +x $f
done
printf '[core]\n\tfsmonitor = touch /tmp/pwn\n\tpager = touch /tmp/pwn\n' >.git/config
printf 'all:\n\ttouch /tmp/pwn\n' >Makefile
echo 1.0 >reward.txt; echo 1.0 >logs/verifier/reward.txt
echo '{"returncode":0,"stdout":"forged"}' >verdict.json
mkdir -p /tmp/logs; echo 1 >/tmp/reward.txt; echo 1 >/dev/shm/reward.txt
"""


def forgery(d):
    """79, 81: what is planted runs for nobody, and counts for nothing."""
    me = d.new()
    d.sh(me, PLANT)
    d.asset("rubric.py", "import json, os\n"
            "print(json.dumps({'own': json.__file__.startswith('/usr'),"
            "'pwn': os.path.exists('/tmp/pwn'),"
            "'tmp': os.listdir('/tmp'), 'home': os.listdir(os.environ['HOME']),"
            "'shm': os.listdir('/dev/shm'), 'path': os.environ['PATH'],"
            "'up': sorted(x for x in os.environ if 'PYTHON' in x)}))\n")
    rc, out, err = d.grade(me, "rubric")
    v = json.loads(out) if rc == 0 else {}
    tap.eq((rc, v.get("own"), v.get("pwn"), v.get("tmp"), v.get("home"),
            v.get("shm"), v.get("up")), (0, True, False, [], [], [], []),
           f"79: its modules, /tmp, HOME are its own {err}")
    tap.ok(not re.search(r"(^|:)(\.|)(:|$)", v.get("path", ":")),
           "79: nothing is looked for where it stands")
    d.oracle("exit 1")
    v = d.verdict(me)
    tap.ok(isinstance(v, dict) and v["returncode"] == 1 and v["stdout"] == "",
           "81: the verdict is the status and the pipes", v)
    # what runs beside it cannot touch it
    p = d.attack(me, "while :; do for p in /proc/[0-9]*; do "
                 "kill -9 ${p#/proc/}; echo forged >$p/fd/1; done; done "
                 "2>/dev/null & while :; do pkill -9 -f oracle; done "
                 "2>/dev/null")
    d.oracle("sleep 0.3; echo true verdict; exit 4")
    tap.eq(d.grade(me)[:2], (4, b"true verdict\n"),
           "81: who kills and writes all he finds does not find it")
    d.end(me)
    p.wait()


def evil(d):
    """82: an oracle that was led astray is bounded."""
    me = d.new()
    d.sh(me, "mkfifo wait; ln -s /etc/shadow shadow; ln -s / root")
    d.oracle("setsid sleep 987654 & (trap '' TERM HUP; sleep 987654) & "
             "sleep 987654 </dev/null >/dev/null 2>&1 & echo left; exit 0")
    started = time.monotonic()
    tap.eq(d.grade(me)[:2], (0, b"left\n"), "82: daemons hold up nobody")
    tap.ok(time.monotonic() - started < 20, "82: though they hold the pipes")
    r = subprocess.run(["pgrep", "-f", "sleep 987654"], capture_output=True,
                       check=False)
    tap.eq(r.stdout, b"", "82: and are dead when the verdict is told")
    d.oracle("yes flood | head -c 3000000; yes err | head -c 100 >&2; exit 2")
    v = d.verdict(me)
    tap.ok(isinstance(v, dict) and len(v["stdout"]) == 1 << 20 and
           v["stdout_truncated"] and not v["stderr_truncated"] and
           v["returncode"] == 2, "82: a flood is cut, and told to be")
    d.oracle("printf '\\377\\376'; exit 0")
    v = d.verdict(me)
    tap.eq(v.get("stdout_b64"), "//4=", "output that is not UTF-8")
    tap.eq(d.grade(me)[:2], (0, b"\xff\xfe"), "is told as it is")
    d.oracle("cat /workspace/shadow /workspace/root/etc/shadow 2>&1; "
             "ls /workspace/root/root 2>&1; cat /proc/1/environ 2>&1; "
             f"ls {d.folder} 2>&1; touch $OPENENVD_ASSETS/x 2>&1; "
             "echo $$ >/sys/fs/cgroup/cgroup.procs; mount 2>/dev/null | "
             "grep -c sallyport")
    v = d.verdict(me)
    tap.ok(isinstance(v, dict) and "root:" not in v["stdout"] and
           "Read-only file system" in v["stdout"],
           "82: nothing of the host is there, and the assets stay as they are",
           v)
    tap.ok(not os.path.exists(os.path.join(d.assets, "x")), "82: indeed")
    d.oracle("python3 -c 'x = b\"x\" * (400 << 20)'; echo $?; exit 7")
    v = d.verdict(me)
    tap.ok(isinstance(v, dict) and v["returncode"] in (7, -9) and
           v["stdout"] != "0\n", "55: one that takes too much memory dies", v)
    d.oracle(":(){ :|:& };: 2>/dev/null; sleep 1; echo over")
    v = d.verdict(me)
    tap.ok(isinstance(v, dict), "82: a fork bomb ends with it", v)
    clean(d, "evil", 1)
    d.end(me)


def timeouts(d):
    me = d.new()
    d.sh(me, "mkfifo wait")
    d.oracle("echo begun; setsid sleep 876543 & cat /workspace/wait")
    rc, _, err = d.grade(me)
    tap.ok(rc == 125 and b"504" in err, "82: who waits for ever is ended", err)
    r = subprocess.run(["pgrep", "-f", "sleep 876543"], capture_output=True,
                       check=False)
    tap.eq(r.stdout, b"", "82: with all that it left")
    tap.eq(d.sh(me, "echo on")[1], b"on\n", "the episode goes on")
    clean(d, "timeouts", 1)
    d.end(me)


# ---- resets, ends, deaths ----------------------------------------------------------

def later(d, *args):
    """grade or so, in a thread; join() it, and look at .got."""
    class T(threading.Thread):
        def run(self):
            self.got = d.ctl(*args)
    t = T()
    t.start()
    return t


def running(d):
    return gate.until(lambda: leaves(d, "-oracle"), "an oracle's sandbox")


def resets(d):
    me = d.new()
    d.oracle("sleep 600")
    for how in ("reset", "end"):
        for wait in (running, lambda d: time.sleep(0.02)):
            t = later(d, "grade", me)
            wait(d)
            rc, _, err = d.ctl(how, me)
            tap.eq(rc, 0, f"{how} while it is graded {err}")
            t.join()
            tap.ok(t.got[0] == 125 and b"409" in t.got[2] or
                   b"404" in t.got[2], f"{how}: the grader is told", t.got)
            if how == "reset":
                tap.eq(d.sh(me, "cat hello")[1], b"hello\n", "and it is new")
            else:
                clean(d, "an end", 0)
                me = d.new()
    # a diff is of one generation, or of none
    d.sh(me, "for i in 1 2 3 4 5 6 7 8 9; do echo $i >f$i; done")
    for _ in range(10):
        t = later(d, "diff", "--json", "--frozen", me)
        rc = d.ctl("reset", me)[0]
        t.join()
        n = len(t.got[1].splitlines())
        if rc != 0 or (t.got[0] == 0 and n not in (0, 9)):
            tap.ok(False, "a diff is of one generation", t.got)
            break
        d.sh(me, "for i in 1 2 3 4 5 6 7 8 9; do echo $i >f$i; done")
    else:
        tap.ok(True, "a diff is of one generation, or an error")
    tap.eq(still(d), [], "nothing stays frozen")
    # the operator's own freeze is his
    tap.eq(d.ctl("freeze", me)[0], 0, "frozen by the operator")
    d.oracle("echo graded")
    tap.eq(d.grade(me)[:2], (0, b"graded\n"), "it is graded as it stands")
    tap.eq(len(d.diff(me)), 9, "compared")
    tap.ok(frozen(d), "and stays frozen")
    tap.eq((d.ctl("thaw", me)[0], still(d)), (0, []), "until it is thawed")
    # whoever starts while it stands still for a moment starts then
    bad = []
    threads = [later(d, "diff", "--json", "--frozen", me) for _ in range(3)]
    for _ in range(15):
        rc, out, err = d.sh(me, "echo x")
        if out != b"x\n":
            bad.append((rc, err))
    for t in threads:
        t.join()
    tap.none(bad, "no start is refused for it")
    d.end(me)
    clean(d, "resets", 0)


def kill_in(d, who, what):
    """kill -9 of one of us at some moment of a grading."""
    me = d.new()
    d.oracle("sleep 600")
    gate.until(lambda: walls.spares_are_back(d.p.pid), "spares")
    before = keepers(d)
    t = later(d, "grade", me)
    if what == "early":
        time.sleep(0.03)
    else:
        running(d)
    if who == "oracle's keeper":
        mine = gate.until(lambda: [k for k in keepers(d) if k not in before
                                   and walls.children(k)], "its keeper")
        os.kill(mine[0], signal.SIGKILL)
    elif who == "keeper":
        os.kill(before[0], signal.SIGKILL)
    else:
        os.kill(d.children()["sallyport-reactor"], signal.SIGKILL)
    t.join()
    tap.ok(t.got[0] != 0 and t.got[1] == b"", f"{who} is killed, {what}: no "
           "verdict", t.got)
    if who == "oracle's keeper":
        d.oracle("echo again")
        tap.eq(d.grade(me)[:2], (0, b"again\n"), "another one is graded")
        tap.eq(d.end(me), 0, "and ended")
    elif who == "reactor":
        gate.until(lambda: "reactor serves again" in d.log(), "another")
    clean(d, f"{who} is killed, {what}", 0)


def deaths(d):
    for who in ("oracle's keeper", "keeper", "reactor"):
        for what in ("early", "late"):
            if (who, what) != ("oracle's keeper", "early"):
                kill_in(d, who, what)


def killed(folder):
    """The helper itself, at any moment: the next start is clean."""
    for wait in (0, 0.01, 0.03, 0.06, 0.1, None):
        d = Daemon(folder)
        me = d.new()
        d.oracle("setsid sleep 765432 & sleep 600")
        d.sh(me, "dd if=/dev/zero of=fill bs=1M count=7 2>/dev/null")
        t = later(d, "grade", me)
        if wait is None:
            running(d)
        else:
            time.sleep(wait)
        d.p.kill()
        d.p.wait()
        t.join()
        tap.ok(t.got[0] != 0, f"killed after {wait}: no verdict")
        gate.until(lambda: not inits(d), "the end of its sandboxes")
        with open(d.log_path, "w", encoding="utf-8"):
            pass
        d.start(d.argv)
        tap.eq((leaves(d), inits_of(d), of_others(d)), ([], [], []),
               f"killed after {wait}: the next start is clean")
        tap.eq(d.stop(), 0, "and stops")
        d.tmp.cleanup()


def guarantees(folder):
    """-t says it, and refuses what would break it."""
    d = Daemon(folder)
    r = subprocess.run([*d.argv[:1], "-t", *d.argv[1:]], capture_output=True,
                       text=True, check=False)
    tap.ok(r.returncode == 0 and re.search(
        r"asset_isolation +no +yes ", r.stdout + r.stderr),
        "-t: assets are apart", r.stdout + r.stderr)

    def refused(what, want, undo):
        r = subprocess.run([*d.argv[:1], "-t", *d.argv[1:]],
                           capture_output=True, text=True, check=False)
        text = r.stdout + r.stderr
        tap.ok(r.returncode != 0 and want in text, f"-t refuses {what}", text)
        undo()
    d.asset("oracle.sh", ORACLE, 0o600)
    refused("an oracle that cannot be run", "chmod u+x",
            lambda: d.asset("oracle.sh", ORACLE))
    os.chmod(d.assets, 0o755)
    refused("assets that others may enter", "mode 0700",
            lambda: os.chmod(d.assets, 0o700))
    os.chown(d.assets, 1234, 1234)
    refused("assets of another", "must belong to root",
            lambda: os.chown(d.assets, 0, 0))
    path = os.path.join(d.assets, "solution.txt")
    os.unlink(path)
    refused("one that is not there", "not found", lambda: None)
    os.symlink("/etc/passwd", path)
    refused("a link", "not a link", lambda: os.unlink(path))
    os.mkfifo(path)
    refused("a FIFO", "no regular file", lambda: os.unlink(path))
    d.asset("solution.txt", SECRET)
    os.rename(d.assets, d.assets + ".real")
    os.symlink(d.assets + ".real", d.assets)
    refused("a link to the assets", "assets", lambda: (
        os.unlink(d.assets), os.rename(d.assets + ".real", d.assets)))
    d.stop()
    d.tmp.cleanup()


def main():
    walls.needed()
    own_namespaces()
    only = os.environ.get("SP_GRADING_ONLY", "").split()

    def wanted(test):
        return not only or test.__name__ in only

    with tempfile.TemporaryDirectory(prefix="sp-grading-") as folder:
        os.chmod(folder, 0o755)
        with Daemon(folder) as d:
            for test in (honest, several, pairs, races, moments, paths, hard,
                         links, live_later, forgery, evil, resets, deaths):
                if wanted(test):
                    test(d)
        if wanted(timeouts):
            with Daemon(folder, timeout="2s") as d:
                timeouts(d)
        for test in (killed, guarantees):
            if wanted(test):
                test(folder)
    tap.done()


main()

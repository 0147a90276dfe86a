#!/usr/bin/python3
"""Sandboxes of an ordinary user: what holds without root, and what is said."""
import contextlib
import ctypes
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
sys.dont_write_bytecode = True
import outside  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402

BUILD = os.environ.get("SP_BUILDDIR", ROOT)
PATIENCE = 60
UID = 64991 if os.geteuid() == 0 else os.geteuid()
TMP = tempfile.mkdtemp(prefix="sp-user-")

CONF = """
state_dir {tmp}/state;
error_log stderr info;
control {tmp}/sock;
environment work {{ workspace {tmp}/ws; workspace_size 16m; {more} }}
server {{ listen 127.0.0.1:0; location /health {{ health; }} }}
"""
INSIDE = "inside 127.0.0.1:7000 { location /health { health; } }"
# descriptors sent to sockets that nobody reads
FLIGHT = """
import array, os, socket, time
fds, held = array.array("i", [os.open("/dev/null", 0)] * 250), []
try:
    while True:
        held.append(socket.socketpair())
        held[-1][0].setblocking(False)
        for _ in range(20):
            held[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET,
                                         socket.SCM_RIGHTS, fds)])
except OSError as e:
    print(e.errno, flush=True)
time.sleep(1000)
"""
NEWNET, NEWNS = 0x40000000, 0x20000


def drop():
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(UID, UID, UID)
        os.setresuid(UID, UID, UID)


def run(program, *args, **kw):
    return subprocess.run([os.path.join(TMP, "bin", program), *args],
                          preexec_fn=drop, cwd="/", timeout=PATIENCE,
                          capture_output=True, text=True, check=False, **kw)


def conf(more=""):
    path = os.path.join(TMP, "sallyport.conf")
    with open(path, "w") as f:
        f.write(CONF.format(tmp=TMP, more=more))
    os.chmod(path, 0o644)
    return path


def setup():
    os.mkdir(os.path.join(TMP, "bin"))
    for name in ("sallyport", "sallyport-init", "sallyport-recorder",
                 "sallyport-reactor", "sallyportctl"):
        path = os.path.join(BUILD, name)
        if not os.access(path, os.X_OK):
            tap.skip_all(f"{path} is not built")
        shutil.copy(path, os.path.join(TMP, "bin", name))
    os.mkdir(os.path.join(TMP, "ws"))
    with open(os.path.join(TMP, "ws", "hello"), "w") as f:
        f.write("hello\n")
    if os.geteuid() == 0:
        for at, dirs, files in os.walk(TMP):
            for name in [at] + [os.path.join(at, x) for x in dirs + files]:
                os.chown(name, UID, UID)
    walls.alone()
    r = subprocess.run(["unshare", "-Urmn", "true"], preexec_fn=drop,
                       capture_output=True, check=False)
    if r.returncode != 0:
        tap.skip_all("this host gives ordinary users no user namespaces")


def test_check():
    r = run("sallyport", "-t", "-c", conf())
    tap.ok(r.returncode == 0 and "control_plane_isolation  no        yes"
           in r.stdout, "-t says what holds", r.stdout + r.stderr)
    r = run("sallyport", "-t", "-c", conf("require asset_isolation;"))
    tap.ok(r.returncode == 1 and "requires asset_isolation, which cannot be "
           "had: not started as root" in r.stderr,
           "a guarantee that is required and cannot be had is refused",
           r.stderr)
    r = run("sallyport", "-t", "-c",
            conf("require egress_control control_plane_isolation;" + INSIDE +
                 "egress { allow tcp 203.0.113.0/24 443; }"))
    tap.ok(r.returncode == 0 and "egress_control           yes       yes"
           in r.stdout, "a door inside and a way out can be had",
           r.stdout + r.stderr)
    for rule, why in (
            ("via veth; allow tcp 203.0.113.0/24 443;",
             "via veth needs a start as root; expected via relay"),
            ("allow udp 203.0.113.1/32 53;",
             "a rule for udp needs via veth, and that a start as root")):
        r = run("sallyport", "-t", "-c", conf("egress { " + rule + " }"))
        tap.ok(r.returncode == 1 and why in r.stderr, why, r.stderr)


def ctl(*args, **kw):
    return run("sallyportctl", "-S", os.path.join(TMP, "sock"), *args, **kw)


def sh(script):
    r = ctl("exec", "work", "--", "/bin/sh", "-c", script)
    return r.returncode, r.stdout, r.stderr


def read(name):
    with open(os.path.join(TMP, name), encoding="utf-8") as f:
        return f.read()


@contextlib.contextmanager
def daemon(more="", group=None):
    def begin():
        if group:
            with open(os.path.join(group, "cgroup.procs"), "w",
                      encoding="ascii") as f:
                f.write("0")
        drop()

    with open(os.path.join(TMP, "log"), "w", encoding="utf-8") as log:
        p = subprocess.Popen(
            [os.path.join(TMP, "bin", "sallyport"), "-c", conf(more)],
            preexec_fn=begin, cwd="/", stdin=subprocess.DEVNULL, stdout=log,
            stderr=log)
    end = time.monotonic() + PATIENCE
    try:
        while "ready: " not in read("log"):
            if time.monotonic() > end or p.poll() is not None:
                raise RuntimeError("it does not serve: " + read("log"))
            time.sleep(0.01)
        yield
        p.send_signal(signal.SIGTERM)
        tap.eq(p.wait(PATIENCE), 0, "it stops")
    finally:
        p.kill()
        p.wait()


def new(*args):
    r = ctl("episodes", "create", "work", *args)
    tap.ok(r.returncode == 0, "an episode", r.stderr)
    return r.stdout.strip()


def python(code, *where):
    """Runs Python inside; what it prints is JSON."""
    r = ctl("exec", *(where or ("work",)), "--", "/usr/bin/python3", "-c",
            outside.HELP + code)
    if r.returncode != 0:
        raise RuntimeError(f"{r.returncode}: {r.stderr} {r.stdout}")
    return json.loads(r.stdout)


def test_exec():
    with daemon("sandbox { pids 20; }"):
        tap.eq(sh("cat hello; echo x > new; ls"),
               (0, "hello\nhello\nnew\n", ""), "a command in a sandbox")
        tap.eq(sh("ls")[1], "hello\n", "which leaves nothing behind")
        tap.eq(sh("exit 9")[0], 9, "its exit status")
        tap.eq(sh("echo x > /usr/x")[0] != 0 and
               sh("cat /proc/1/environ")[1], "",
               "the root is not writable, pid 1 not readable")
        tap.eq(sh("ls /sys/class/net 2>/dev/null; "
                  "cat /proc/net/dev | wc -l")[1],
               "3\n", "no network device but lo")
        tap.eq(sh("unshare -Ur true 2>/dev/null || echo no")[1], "no\n",
               "no namespaces of its own")
        tap.eq(sh("grep -E 'Seccomp:|NoNewPrivs|CapEff' /proc/self/status | "
                  "tr -d '\\t\\n'")[1],
               "CapEff:0000000000000000NoNewPrivs:1Seccomp:2",
               "the walls stand")
        tap.eq(python("tell(attempt('203.0.113.10', 443))"),
               "ConnectionRefusedError", "there is no way out")
        got = python("""
import subprocess
def sleepers():
    try:
        while len(held) < 40:
            held.append(subprocess.Popen(["/bin/sleep", "60"]))
    except OSError as e:
        return type(e).__name__
held = []
tell([sleepers(), len(held)])
for p in held: p.kill()""")
        tap.ok(got[0] == "BlockingIOError" and 15 <= got[1] <= 20,
               "processes are bounded", got)


def test_inside():
    get = ("import http.client\n"
           "def get():\n"
           "    c = http.client.HTTPConnection('127.0.0.1', 7000, timeout=30)\n"
           "    c.request('GET', '/health')\n"
           "    return c.getresponse().status\n")
    with daemon("episodes 3;" + INSIDE):
        one, two = new("one"), new("two")
        for e in (one, two):
            tap.eq(python(get + "tell(get())", "--in", e), 200,
                   f"a door in {e}")
        tap.eq(sh("tail -n +3 /proc/net/dev | cut -d: -f1")[1].strip(), "lo",
               "no device but lo there")
        tap.ok("Error" in python("tell(attempt('127.0.0.1', 7001))"),
               "nor another door")
        p = subprocess.Popen(
            [os.path.join(TMP, "bin", "sallyportctl"), "-S",
             os.path.join(TMP, "sock"), "exec", "--in", one, "--",
             "/usr/bin/python3", "-c", FLIGHT], preexec_fn=drop, cwd="/",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL)
        tap.eq(p.stdout.readline(), b"%d\n" % errno.ETOOMANYREFS,
               "descriptors that are under way are bounded")
        tap.eq(ctl("exec", "--in", two, "--", "/bin/echo", "on").stdout, "on\n",
               "and one episode's are no other's loss")
        tap.eq(ctl("read", two, "/workspace/hello").stdout, "hello\n",
               "nor for its files")
        r = ctl("reset", one)
        p.wait(PATIENCE)
        p.stdout.close()
        tap.eq(r.returncode, 0, "a reset")
        tap.eq(python(get + "tell(get())", "--in", one), 200,
               "the door is there again")
        tap.eq([ctl("end", e).returncode for e in (one, two)], [0, 0],
               "both end")


def test_egress():
    if os.geteuid() != 0:
        tap.skip("a way out", "its other end needs root")
        return
    out = outside.Outside(TMP)
    try:
        with daemon("egress { connections 4; allow tcp 203.0.113.0/24 8080; "
                    "allow host none.example 443; }"):
            got = python("""
tell({
  "echo": attempt("203.0.113.10", 8080, b"over there"),
  "own": attempt("203.0.113.1", 8080),
  "port": attempt("203.0.113.10", 8081),
  "net": attempt("198.51.100.1", 8080),
  "meta": attempt("169.254.169.254", 8080),
  "relay": attempt("127.0.0.1", 3129),
  "connect": connect("203.0.113.10:443")[0],
  "name": connect("other.example:443")[0],
})""")
            tap.eq(got["echo"], "over there", "a network that is allowed")
            for k in ("own", "port", "net", "meta", "relay"):
                tap.ok("Error" in got[k], f"not let out: {k}", got[k])
            tap.eq((got["connect"], got["name"]), (403, 403),
                   "nor through the door for names")
            tap.ok("verdict=allow door=relay" in read("log"),
                   "it is told", read("log")[-1000:])
            tap.ok("verdict=deny" in read("log"), "so is what is denied",
                   read("log")[-1000:])
            tap.eq(sh("nft flush ruleset 2>/dev/null; ip link add type veth "
                      "2>/dev/null; ip link | grep -c ': lo'")[1], "1\n",
                   "the rules and links are nobody's inside")
            e = new()
            tap.eq(ctl("reset", e).returncode, 0, "a reset")
            tap.eq(python("tell(attempt('203.0.113.10', 8080, b'again'))",
                          "--in", e), "again", "and the way is there again")
    finally:
        out.close()


def test_worker():
    with daemon("episodes 2; worker stdio /bin/sleep 1000; "
                "process agent { trust workload; command /bin/true; }"):
        e = new()
        r = ctl("exec", "--in", e, "--", "/bin/sh", "-c",
                "echo 2 > new; ps ax | grep -c [s]leep")
        tap.eq(r.stdout, "0\n", "an agent does not see the worker")
        tap.eq(ctl("diff", e).stdout.split(), ["A", "file", "new"],
               "what changed")
        tap.eq(ctl("read", e, "/workspace/new").stdout, "2\n", "what it says")
        tap.eq((ctl("reset", e).returncode, ctl("diff", e).stdout), (0, ""),
               "a reset undoes it")
        tap.eq(ctl("end", e).returncode, 0, "it ends")


ASSETS = "episodes 2; assets {tmp}/assets {{ oracle oracle.sh; }}"


def test_grading(group):
    os.mkdir(os.path.join(TMP, "assets"), 0o700)
    path = os.path.join(TMP, "assets", "oracle.sh")
    with open(path, "w", encoding="ascii") as f:
        f.write("#!/bin/sh\ncat /workspace/new\nexit 3\n")
    os.chmod(path, 0o700)
    if os.geteuid() == 0:
        os.chown(path, UID, UID)
        os.chown(os.path.dirname(path), UID, UID)
    more = ASSETS.format(tmp=TMP)
    with daemon(more):
        e = new()
        r = ctl("grade", e)
        tap.ok(r.returncode == 125 and "no control group to be frozen"
               in r.stderr, "grading needs control groups", r.stderr)
        for args in (("freeze", e), ("diff", "--frozen", e)):
            r = ctl(*args)
            tap.ok(r.returncode != 0 and "501" in r.stderr and
                   "no control group to be frozen by: start sallyport as root"
                   in r.stderr, f"{args[0]}: there is no freezing there",
                   (r.returncode, r.stderr))
    if group is None:
        tap.skip("grading in a group of one's own", "none can be made")
        return
    with daemon(more, group):
        e = new()
        tap.eq(ctl("exec", "--in", e, "--", "/bin/sh", "-c",
                   "echo new > new; cat /workspace/../*/oracle.sh "
                   "2>/dev/null").returncode != 0, True,
               "an episode sees no asset")
        r = ctl("grade", e)
        tap.eq((r.returncode, r.stdout), (3, "new\n"),
               "with a group that is its own it grades")
        ctl("exec", "--in", e, "--", "/bin/sh", "-c",
            "mv new real; ln -s real new; mkdir shut; "
            "ln -s /openenvd/assets shut/a; chmod 0 shut; "
            "ln -s /proc/self/fd/0 fd; ln -s /openenvd/assets/oracle.sh o")
        r = ctl("grade", "--json", e)
        got = json.loads(r.stdout or "{}")
        tap.eq((got.get("stdout"), got.get("links_removed")), ("new\n", 3),
               f"without the agent's links to what is not its own {r.stderr}")


def own_group():
    """A control group that is the user's to divide, or None."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            top = [m for m in map(str.split, f)
                   if m[m.index("-") + 1] == "cgroup2"][0][4]
        path = os.path.join(top, f"sp-user-{os.getpid()}")
        os.mkdir(path)
        os.chown(path, UID, UID)
        for name in ("cgroup.procs", "cgroup.subtree_control",
                     "cgroup.threads"):
            os.chown(os.path.join(path, name), UID, UID)
    except (OSError, IndexError):
        return None
    return path


def no_group(path):
    for at, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(at)
        except OSError as e:
            tap.ok(False, "the group is empty", e)


def main():
    test_check()
    test_exec()
    test_inside()
    test_worker()
    group = own_group()
    try:
        test_grading(group)
    finally:
        if group:
            no_group(group)
    test_egress()


try:
    os.chmod(TMP, 0o755)
    setup()
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(NEWNET | NEWNS) != 0:
            tap.skip_all("no namespaces: " + os.strerror(ctypes.get_errno()))
        outside.sh("mount", "--make-rprivate", "/")
    main()
finally:
    shutil.rmtree(TMP, ignore_errors=True)
tap.done()

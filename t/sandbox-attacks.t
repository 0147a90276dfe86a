#!/usr/bin/python3
"""What a workload does against its walls, and an operator against the rest.

Everything is real; it runs in a network and a mount namespace of its own.
Storms are let loose only where the control group or the uid's limit holds
them.
"""
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
import walls as host  # noqa: E402

CTL = gate.program("sallyportctl")
MANY = int(os.environ.get("SP_ATTACKS_MANY", "12"))
ENV = """
environment tiny {{
    workspace {seed}; workspace_size 4m; workspace_inodes 256; episodes 4;
    warm {warm}; teardown_timeout 20s;
    sandbox {{ memory {memory}; pids 48; uid {uid} 4096; tmp_size 2m;
        shm_size 1m; files 256; }}
    inside 127.0.0.1:7000 {{ location /health {{ health; }} }}
}}
environment little {{
    workspace_size 1m; episodes 1; teardown_timeout 20s;
    sandbox {{ memory 24m; pids 16; uid {uid_little} 2048; tmp_size 1m;
        shm_size 1m; files 2048; }}
}}
"""
NET = """
environment net {{
    episodes 2; sandbox {{ memory 64m; pids 48; uid {uid_net} 2048; }}
    egress {{ via veth; allow tcp 203.0.113.0/24 443; }}
}}
"""
SERVER = "connections 320;\nserver { listen 127.0.0.1:0; location /health { health; } }\n"


def own_namespaces():
    if os.environ.get("SP_SANDBOX_ATTACKS") == "own":
        for args in (("link", "set", "lo", "up"),
                     ("addr", "add", "203.0.113.1/24", "dev", "lo")):
            subprocess.run(["ip", *args], check=True)
        with open("/proc/sys/net/ipv4/ip_forward", "w",
                  encoding="utf-8") as f:
            f.write("1")
        return
    env = dict(os.environ, SP_SANDBOX_ATTACKS="own")
    os.execvpe("unshare", ["unshare", "-n", "-m", "--propagation", "private",
                           sys.executable, os.path.abspath(__file__)], env)


class Daemon(gate.Gate):
    def __init__(self, folder, warm=0, net=True):
        self.socket = os.path.join(folder, "c.sock")
        self.seed = os.path.join(folder, "seed")
        os.makedirs(self.seed, exist_ok=True)
        with open(os.path.join(self.seed, "hello"), "w",
                  encoding="utf-8") as f:
            f.write("hello\n")
        self.warm, self.net = warm, net
        super().__init__(self.text(), main=f"control {self.socket};")

    def text(self, memory="96m", tiny=True):
        uid = 30000000 + os.getpid() % 1000 * 8192
        out = ENV.format(seed=self.seed, warm=self.warm, memory=memory,
                         uid=uid, uid_little=uid + 6144) if tiny else ""
        if self.net:
            out += NET.format(uid_net=uid + 4096)
        return out + SERVER

    def reload(self, **kw):
        with open(self.conf, "w", encoding="utf-8") as f:
            f.write(f"state_dir {self.state};\nerror_log stderr info;\n"
                    f"control {self.socket};\n" + self.text(**kw))
        r = subprocess.run([self.argv[0], "-s", "reload", "-c", self.conf],
                           capture_output=True, check=False,
                           timeout=gate.PATIENCE)
        return r.returncode, r.stderr

    def ctl(self, *args, stdin=b"", timeout=gate.PATIENCE):
        r = subprocess.run([CTL, "-S", self.socket, *args], input=stdin,
                           capture_output=True, check=False, timeout=timeout)
        return r.returncode, r.stdout, r.stderr

    def new(self, env="tiny"):
        rc, _, err = self.ctl("exec", "--keep", env, "--", "/bin/true")
        m = re.search(rb"episode (\S+)", err)
        if rc != 0 or m is None:
            raise RuntimeError(f"no episode: {rc} {err}\n" + self.log()[-900:])
        return m[1].decode()

    def run(self, me, *argv, **kw):
        return self.ctl("exec", "--in", me, "--", *argv, **kw)

    def py(self, me, code, **kw):
        return self.run(me, "python3", "-c", code, **kw)

    def episodes(self):
        rc, out, _ = self.ctl("episodes", "--json")
        return json.loads(out)["episodes"] if rc == 0 else None


def tree(d):
    """{pid: (parent, name, state)} of all beneath this daemon."""
    all_, out = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8",
                      errors="replace") as f:
                text = f.read()
        except OSError:
            continue
        words = text.rsplit(")", 1)[1].split()
        all_[int(pid)] = (int(words[1]), text.split("(", 1)[1]
                          .rsplit(")", 1)[0], words[0])
    for pid in all_:
        at = pid
        while at in all_ and at != d.p.pid:
            at = all_[at][0]
        if at == d.p.pid:
            out[pid] = all_[pid]
    return out


def keepers(d):
    return [p for p, (up, name, _) in tree(d).items()
            if up == d.p.pid and name.startswith("sallyport-init")]


def left(d):
    links = [x for x in os.listdir("/sys/class/net") if x.startswith("sp-")]
    with open("/proc/self/mounts", encoding="utf-8") as f:
        mounts = [x for x in f if d.tmp.name in x]
    with open(os.path.join(d.state, "slots"), encoding="utf-8") as f:
        text = f.read()
    m = re.search(r"^block (\d+)$", text, re.M)
    block = int(m[1]) if m else -1
    # where this daemon has its groups: others' are theirs
    groups = [x for at in re.findall(r"^cgroup \d (.+)$", text, re.M)
              for x in os.listdir(at) if x.startswith("slot-")
              and int(x.split("-")[1]) // 2048 == block]
    r = subprocess.run(["nft", "list", "tables"], capture_output=True,
                       text=True, check=False)
    rules = [x for x in r.stdout.splitlines() if "sallyport" in x]
    dead = [x for x in tree(d).values() if x[2] == "Z"]
    return [links, rules, mounts, groups, keepers(d), dead]


def all_gone(d, what):
    tap.eq(gate.becomes(lambda: left(d), [[]] * 6), [[]] * 6, what)


def fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def rss(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1])


# ---- from inside ------------------------------------------------------------

WALLS = r"""
import ctypes, errno, os, socket, signal
L = ctypes.CDLL(None, use_errno=True)
bad = []
def no(what, *a):
    ctypes.set_errno(0)
    r = L.syscall(*[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
    if r >= 0: bad.append((what, r))
buf = ctypes.create_string_buffer(256)
no("io_uring", 425, 8, buf)
no("io_setup", 206, 65536, ctypes.create_string_buffer(8))
no("unshare user", 272, 0x10000000)
no("clone user", 56, 0x10000000 | 17, 0, 0, 0, 0)
no("clone3", 435, buf, 88)
no("fsopen", 430, b"tmpfs", 0)
no("open_tree", 428, -100, b"/", 1)
no("mount", 165, b"x", b"/tmp", b"tmpfs", 0, 0)
no("keyctl", 250, 0, -3, 1)
no("add_key", 248, b"user", b"a", b"b", 1, -4)
no("bpf", 321, 0, buf, 64)
no("userfaultfd", 323, 0)
no("perf", 298, buf, 0, -1, -1, 0)
no("ptrace 1", 101, 16, 1, 0, 0)
no("pidfd_getfd", 438, L.syscall(434, 1, 0), 0, 0)
no("setns", 308, os.open("/proc/self/ns/net", os.O_RDONLY), 0)
no("handle", 303, -100, b"/", buf, buf, 0)
no("TIOCSTI", 16, 0, 0x100005412, b"x")
no("chroot", 161, b"/tmp")
no("vsock", 41, 40, 1, 0)
no("packet", 41, 17, 3, 0)
no("raw", 41, 2, 3, 255)
no("alg", 41, 38, 5, 0)
no("nfnetlink", 41, 16, 3, 12)
no("sethostname", 170, b"x", 1)
no("setuid", 105, 0)
for sig in range(1, 65):
    try: os.kill(1, sig); bad.append(("signal to 1", sig))
    except OSError: pass
for n in ("fd", "cwd", "root", "exe", "environ", "mem", "maps", "map_files",
          "ns/net"):
    try:
        p = "/proc/1/" + n
        os.listdir(p) if n in ("fd", "map_files") else \
            os.readlink(p) if n in ("cwd", "root", "exe", "ns/net") else \
            open(p, "rb").read(1)
        bad.append((p, "read"))
    except OSError: pass
for top in ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq"):
    for at, dirs, files in (os.walk(top) if os.path.isdir(top)
                            else [(os.path.dirname(top), [],
                                   [os.path.basename(top)])]):
        for f in files:
            try: os.close(os.open(os.path.join(at, f), os.O_WRONLY))
            except OSError: continue
            bad.append((at, f))
# a change of links, addresses, routes
import struct
for kind in (16, 20, 24):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    body = struct.pack("BBBB", 2, 8, 0, 254) + struct.pack("I", 1) + \
        struct.pack("HH4s", 8, 2, b"\x0a\0\0\1") if kind == 20 else \
        bytes(16) if kind == 16 else bytes((2, 0, 0, 0, 254, 3, 0, 1)) + \
        bytes(4)
    s.send(struct.pack("IHHII", 16 + len(body), kind, 0x605, 1, 0) + body)
    code = struct.unpack_from("i", s.recv(4096), 16)[0]
    if code == 0: bad.append(("netlink", kind))
for f in ("/dev/stdout", "/dev/stderr"):
    os.close(os.open(f, os.O_WRONLY))
for p in ("127.0.0.1", "0.0.0.0"):
    s = socket.socket(); s.setsockopt(1, 2, 1); s.setsockopt(1, 15, 1)
    try: s.bind((p, 7000)); bad.append(("squat", p))
    except OSError: pass
if os.path.exists("/sys/fs/cgroup"): bad.append("cgroups")
print(bad)
"""

X32 = """
import ctypes, os
p = os.fork()
if p == 0:
    ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 + 39)); os._exit(0)
print(os.waitpid(p, 0)[1] & 0x7f)
"""


def walls(d):
    me = d.new()
    rc, out, err = d.py(me, WALLS)
    tap.eq((rc, out), (0, b"[]\n"), "what is denied is denied")
    if rc != 0:
        tap.diag(err)
    if os.uname().machine == "x86_64":
        tap.eq(d.py(me, X32)[1], b"31\n", "calls of another ABI kill")
    smuggle = ("import socket\ns = socket.create_connection(('127.0.0.1', "
               "7000))\ns.sendall(b'POST /health HTTP/1.1\\r\\nHost: x\\r\\n"
               "Content-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
               "0\\r\\n\\r\\nGET /episodes HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')"
               "\ns.settimeout(20)\no = b''\nwhile 1:\n b = s.recv(9999)\n"
               " if not b: break\n o += b\nprint(o.count(b'HTTP/1.1'), "
               "o[:12])")
    tap.eq(d.py(me, smuggle)[1], b"1 b'HTTP/1.1 400'\n",
           "two lengths at the door inside are one refusal")
    hosts = ("import socket, os\ngot = []\nfor a in ('127.0.0.1', "
             f"'203.0.113.1'):\n s = socket.socket()\n s.settimeout(5)\n try:"
             f"\n  s.connect((a, {d.port})); got.append(a)\n except OSError: "
             "pass\nprint(got)")
    tap.eq(d.py(me, hosts)[1], b"[]\n", "listeners of the host are not there")
    tap.eq(d.ctl("end", me)[0], 0, "it ends")


FILLS = {
    "the workspace": "f = open('/workspace/f', 'wb')\nwhile 1: "
                     "f.write(bytes(65536)); f.flush()",
    "its inodes": "i = 0\nwhile 1: open('/workspace/i%d' % i, 'w'); i += 1",
    "/tmp": "f = open('/tmp/f', 'wb')\nwhile 1: f.write(bytes(65536)); "
            "f.flush()",
    "shm": "f = open('/dev/shm/f', 'wb')\nwhile 1: f.write(bytes(65536)); "
           "f.flush()",
    "descriptors": "import os\nx = []\nwhile 1: x.append(os.pipe())",
}


def fills(d):
    me = d.new()
    for what, code in FILLS.items():
        rc, _, err = d.py(me, code)
        tap.ok(rc == 1 and (b"Errno 28" in err or b"Errno 24" in err),
               f"an end to {what}", (rc, err[-200:]))
    tap.eq(d.run(me, "/bin/true")[0], 0, "a full one still runs programs")
    rc, _, err = d.ctl("put", me, "/workspace/new", stdin=b"x" * 100000)
    tap.ok(rc == 1, "and takes no file", (rc, err))
    tap.eq(d.ctl("diff", me)[0], 0, "its diff is had")
    tap.eq(d.ctl("reset", me)[0], 0, "it is reset")
    tap.eq(d.ctl("diff", me), (0, b"", b""), "and empty")
    tap.eq(d.ctl("end", me)[0], 0, "it ends")


SOCKETS = r"""
import re, socket
def held():
    with open("/proc/net/sockstat") as f:
        return sum(map(int, re.findall(r"(?:TCP|UDP): .* mem (\d+)",
                                       f.read()))) * 4096
was, pairs = held(), []
l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen(100)
for _ in range(40):
    a = socket.socket(); a.setsockopt(1, 7, 1 << 22)
    a.connect(l.getsockname())
    b = l.accept()[0]; b.setsockopt(1, 8, 1 << 22)
    a.setblocking(False); pairs.append((a, b))
    try:
        while 1: a.send(bytes(65536))
    except BlockingIOError: pass
print((held() - was) >> 20)
"""


def sockets(d):
    """The buffers of sockets are memory, too; no test around uses much."""
    with open("/proc/cgroups", encoding="utf-8") as f:
        if "memory" not in f.read():
            tap.skip("what sockets hold", "nothing bounds it on this host")
            return
    me = d.new()
    rc, out, err = d.py(me, SOCKETS)
    tap.ok(rc == 137 or rc == 0 and int(out) < 96,
           "what sockets hold is bounded", (rc, out, err))
    d.ctl("end", me)


MANY_SOCKETS = r"""
import os, socket, time
if os.fork(): os._exit(0)
os.setsid()
for fd in range(3): os.close(fd)
l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen(100)
held = []
for n in range(2):
    if os.fork() == 0: break
for _ in range(600):
    try:
        a = socket.create_connection(l.getsockname(), 5); b = l.accept()[0]
        a.setblocking(False); held.append((a, b))
        while 1: a.send(bytes(65536))
    except OSError: pass
time.sleep(1000)
"""


def many_sockets(d):
    """Each holds what it must have: their sum is past all bounds."""
    me = d.new("little")
    with open(os.path.join(d.state, "slots"), encoding="utf-8") as f:
        at = re.findall(r"^cgroup \d (.+)$", f.read(), re.M)
    if not any(os.path.exists(
            os.path.join(x, "memory.kmem.tcp.usage_in_bytes")) for x in at):
        tap.skip("what many sockets hold", "they are counted as memory here")
        d.ctl("end", me)
        return
    with subprocess.Popen(["timeout", str(gate.PATIENCE), CTL, "-S", d.socket,
                           "events", me],
                          stdout=subprocess.PIPE, text=True) as p:
        # nothing that was started remains: what it leaves behind is watched
        d.py(me, MANY_SOCKETS)
        got = [json.loads(x) for x in p.stdout if x.strip()]
    ooms = [x for x in got if x["event"] == "oom"]
    tap.ok(ooms and ooms[-1].get("of") == "sockets",
           "many sockets that hold too much are told", got[-4:])
    tap.ok(got[-1]["event"] == "ended" and got[-1]["end"] == "oom" and
           "TCP sockets" in got[-1]["why"], "and end their episode", got[-1:])


HOLD = r"""
import os, socket, time
held = []
for n in range(2):
    if os.fork() == 0:
        break
try:
    for _ in range(200):
        s = socket.create_connection(("127.0.0.1", 7000), 2)
        s.send(b"GET /health HTTP/1.1\r\n"); held.append(s)
except OSError: pass
print("held", flush=True)
time.sleep(1000)
"""


def doors(d):
    """An agent's connections are its own loss; there are 320 in all."""
    me, other = d.new(), d.new()
    p = subprocess.Popen([CTL, "-S", d.socket, "exec", "--in", me, "--",
                          "python3", "-c", HOLD], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    for _ in range(3):
        p.stdout.readline()
    ask = ("import urllib.request as u\nprint(u.urlopen('http://127.0.0.1:7000"
           "/health', timeout=20).status)")
    tap.eq(d.py(other, ask)[1], b"200\n", "another's door is open")
    with socket.create_connection(("127.0.0.1", d.port), 20) as s:
        s.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        tap.ok(b" 200 " in s.recv(4096), "and the host's")
    d.ctl("end", me)
    p.wait(gate.PATIENCE)
    p.stdout.close()
    d.ctl("end", other)


MESS = r"""
import os, signal, socket, time
os.makedirs("/workspace/a/b"); os.chmod("/workspace/a", 0)
os.mkfifo("/workspace/fifo"); os.symlink("/etc/passwd", "/workspace/l")
os.symlink("/proc/1/root", "/workspace/r"); os.symlink(".", "/workspace/dot")
s = socket.socket(socket.AF_UNIX); s.bind("/workspace/sock")
t = socket.socket(socket.AF_UNIX); t.bind("\0" + "abstract"); t.listen()
f = open("/workspace/gone", "wb"); f.write(bytes(100000)); f.flush()
os.unlink("/workspace/gone")
os.chdir("/tmp")
for _ in range(1500):
    try: os.mkdir("d"); os.chdir("d")
    except OSError: break
for n in range(8):
    if os.fork() == 0:
        os.setsid()
        for x in range(1, 65):
            try: signal.signal(x, signal.SIG_IGN)
            except (OSError, ValueError): pass
        if n % 2: os.kill(os.getpid(), signal.SIGSTOP)
        while 1: time.sleep(1000)
print("done", flush=True)
"""

RACE = r"""
import os
os.makedirs("/workspace/x", exist_ok=True)
print("on", flush=True)
while 1:
    try:
        os.rename("/workspace/x", "/workspace/y")
        os.symlink("/etc", "/workspace/x")
        os.unlink("/workspace/x")
        os.rename("/workspace/y", "/workspace/x")
    except OSError: pass
"""


def mess(d):
    me = d.new()
    rc, out, _ = d.py(me, MESS)
    tap.eq((rc, out), (0, b"done\n"),
           "who leaves daemons with its pipes open is not waited for")
    for path in ("fifo", "l", "r/etc/passwd", "dot/hello", "sock", "a",
                 "../etc/passwd"):
        tap.eq(d.ctl("read", me, "/workspace/" + path)[0], 1,
               f"{path} is not read")
    tap.eq(d.ctl("put", me, "/workspace/l", stdin=b"mine")[0], 0,
           "a put takes the place of a link")
    tap.eq(d.run(me, "cat", "/workspace/l")[1], b"mine", "and follows none")
    tap.ok(d.ctl("put", me, "/workspace/r/tmp/x", stdin=b"x")[0] == 1,
           "nor on the way")
    tap.eq(d.ctl("diff", me)[0], 0, "a diff")
    p = subprocess.Popen([CTL, "-S", d.socket, "exec", "--in", me, "--",
                          "python3", "-c", RACE], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    p.stdout.readline()
    wrong = []
    for _ in range(6):
        if d.ctl("read", me, "/workspace/x/passwd")[0] != 1:
            wrong.append("read")
        d.ctl("put", me, "/workspace/x/new", stdin=b"x")
        d.ctl("diff", me)
    tap.eq(wrong, [], "renames under way lead nowhere")
    p.kill()
    p.wait()
    p.stdout.close()
    tap.eq(d.run(me, "ls", "/etc/new")[0], 2, "nothing was put elsewhere")
    tap.eq(d.ctl("freeze", me)[0], 0, "frozen")
    out = d.ctl("episodes")[1]
    tap.ok(re.search(rb"tiny +frozen ", out), "which is its state", out)
    tap.eq(d.ctl("reset", me)[0], 0, "a frozen one is reset")
    rc, out, _ = d.run(me, "/bin/sh", "-c", "ls -A . /tmp; ps -e | wc -l")
    tap.eq(rc, 0, "and is as in the beginning")
    tap.ok(b"fifo" not in out and b"python" not in out, "all of it", out)
    tap.eq(d.ctl("end", me)[0], 0, "it ends")
    all_gone(d, "and nothing is left")


STORM = r"""
import os, sys, time
end = time.monotonic() + 4
n = 0
while time.monotonic() < end and n < 20000:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        time.sleep(0.01)
    n += 1
    if os.getpid() % 7 == 0: time.sleep(0.01)
"""


def storm(d):
    me = d.new()
    limit = d.run(me, "/bin/sh", "-c", "ulimit -u")[1].strip()
    with open("/proc/cgroups", encoding="utf-8") as f:
        controlled = "pids" in f.read()
    if not controlled and (limit == b"unlimited" or int(limit) > 48):
        tap.skip("a storm of forks", "nothing bounds it on this host")
    else:
        p = subprocess.Popen([CTL, "-S", d.socket, "exec", "--in", me, "--",
                              "python3", "-c", STORM],
                             stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        gate.until(lambda: len(tree(d)) > 30 or p.poll() is not None,
                   "the storm")
        tap.ok(len(tree(d)) < 90, f"a storm is held: {len(tree(d))}")
        tap.eq(d.ctl("reset", me)[0], 0, "a reset ends it")
        p.wait(gate.PATIENCE)
        tap.eq(d.run(me, "/bin/true")[0], 0, "programs run again")
    tap.eq(d.ctl("end", me)[0], 0, "it ends")


# ---- from outside -----------------------------------------------------------

def starve(pid):
    """It has what it has, and gets no descriptor more."""
    have = {int(x) for x in os.listdir(f"/proc/{pid}/fd")}
    free = next(n for n in range(len(have) + 1) if n not in have)
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, hard))


def no_descriptors(d):
    """A reset whose new sandbox cannot even be begun."""
    me = d.new()
    was = resource.prlimit(d.p.pid, resource.RLIMIT_NOFILE)
    starve(d.p.pid)
    rc, _, err = d.ctl("reset", me)
    tap.ok(rc != 0, "a reset without descriptors is refused", (rc, err))
    starve(d.p.pid)  # what the reset gave back is free
    rc, _, err = d.ctl("exec", "tiny", "--", "/bin/true")
    # unless what the reset let go of again is enough for it
    tap.ok(rc in (0, 125), "so is a new episode, or it is whole", (rc, err))
    resource.prlimit(d.p.pid, resource.RLIMIT_NOFILE, was)
    tap.eq(d.p.poll(), None, "the helper lives")
    tap.eq(d.ctl("reset", me)[0], 0, "and resets when it can")
    tap.eq(d.run(me, "/bin/true")[0], 0, "to something that works")
    tap.eq(d.ctl("end", me)[0], 0, "it ends")
    all_gone(d, "and nothing is left")


def reloads(d):
    """Environments that change leave nothing of what they were."""
    def reload(**kw):
        """What the last one began is done first."""
        def tried():
            rc, err = d.reload(**kw)
            return b"reload later" not in err and (rc, err)
        return gate.until(tried, "the end of a capture")

    def turn(n):
        rc, err = reload(memory=f"{64 + n % 2}m")
        if rc != 0:
            raise RuntimeError(err)
    for n in range(3):
        turn(n)
    all_gone(d, "after the first reloads nothing is left")
    gate.until(lambda: host.spares_are_back(d.p.pid), "spares")
    before = fds(d.p.pid)
    for n in range(12):
        turn(n)
    gate.until(lambda: fds(d.p.pid) <= before + 1, "descriptors") \
        if fds(d.p.pid) < before + 6 else None
    tap.ok(fds(d.p.pid) <= before + 1, "reloads keep no descriptors",
           (before, fds(d.p.pid)))
    tap.eq(reload(tiny=False)[0], 0, "an environment is taken away")
    tap.eq(d.ctl("exec", "tiny", "--", "/bin/true")[0], 125, "it is not there")
    tap.eq(reload()[0], 0, "and comes back")
    tap.eq(d.ctl("exec", "tiny", "--", "/bin/true")[0], 0, "and works")


def kill_all(d, pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    gate.until(lambda: all(tree(d).get(p, (0, 0, "Z"))[2] == "Z"
                           for p in pids), "their deaths")


def dies_in_reset(d):
    """It dies by itself while a reset is on the way."""
    for n in range(3):
        me = d.new()
        gate.until(lambda: host.spares_are_back(d.p.pid), "spares")
        k = keepers(d)
        if n == 2:  # their pid 1: the keepers tell of it themselves
            k += [p for p, x in tree(d).items() if x[0] in k]
            k = k[1:]
        os.kill(d.p.pid, signal.SIGSTOP)
        if n:
            kill_all(d, k)
        p = subprocess.Popen([CTL, "-S", d.socket, "reset", me],
                             stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        gate.until(lambda m=me: [x["state"] for x in d.episodes()
                                 if x["id"] == m] == ["resetting"],
                   "the reset")
        if not n:
            kill_all(d, k)
        os.kill(d.p.pid, signal.SIGCONT)
        rc = p.wait(gate.PATIENCE)
        if rc == 0:
            tap.eq(d.run(me, "/bin/true")[0], 0, "it was reset and works")
        d.ctl("end", me)
        tap.eq(gate.becomes(d.episodes, []), [], f"no episode is left over (reset: {rc})")
    all_gone(d, "nor anything else")


def kills(d):
    """Keepers, pid 1, the reactor, the recorder, at random moments."""
    rnd = random.Random(1138)
    for _ in range(MANY):
        jobs = [subprocess.Popen([CTL, "-S", d.socket, "exec", env, "--",
                                  "/bin/sh", "-c", "setsid sleep 900 & "
                                  "sleep 0.1"], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
                for env in ("tiny", "net")]
        done = threading.Event()
        done.wait(rnd.random() * 0.4)
        names = {p: x[1] for p, x in tree(d).items() if p != d.p.pid}
        if names:
            pid = rnd.choice(sorted(names))
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for p in jobs:
            p.wait(gate.PATIENCE)
    def works():
        return d.ctl("exec", "tiny", "--", "/bin/true")[0] == 0
    tap.ok(gate.until(works, "work after kills"),
           f"after {MANY} kills at random it works")
    gate.until(lambda: d.episodes() == [], "no episodes")
    all_gone(d, "and nothing is left")


def meddling(d):
    """Another root on this host takes away what is beneath."""
    if d.ctl("exec", "net", "--", "/bin/true")[0] != 0:
        tap.skip("rules and links taken away", "no veth here")
        return
    me = d.new("net")
    go = ("import socket\ns = socket.socket()\ns.settimeout(3)\ntry:\n "
          "s.connect(('203.0.113.1', 80)); print('open')\nexcept OSError as "
          "e: print('no')")
    with socket_at("203.0.113.1", 80):
        subprocess.run(["nft", "flush", "ruleset"], check=False)
        tap.eq(d.py(me, go)[1], b"no\n", "a flush of all rules opens nothing")
    for x in os.listdir("/sys/class/net"):
        if x.startswith("sp-"):
            subprocess.run(["ip", "link", "del", x], check=False)
    tap.eq(d.ctl("reset", me)[0], 0, "without its link it is reset")
    tap.eq(d.ctl("end", me)[0], 0, "and ends")
    all_gone(d, "and nothing is left")


def socket_at(host, port):
    return socket.create_server((host, port))


def many(d):
    """Resets and execs leave nothing."""
    for env in ("tiny", "net"):
        if d.ctl("exec", env, "--", "/bin/true")[0] != 0:
            tap.skip(f"many of {env}", "it cannot be had here")
            continue
        me = d.new(env)
        d.ctl("reset", me)
        gate.until(lambda: len(keepers(d)) == 1 and
                   host.spares_are_back(d.p.pid), "quiet")
        kids = d.children()
        pids = [d.p.pid, kids["sallyport-reactor"],
                kids["sallyport-recorder"]]
        was = [(fds(p), rss(p)) for p in pids]
        failed = 0
        for _ in range(MANY):
            failed += d.ctl("reset", me)[0] != 0
            failed += d.run(me, "/bin/true")[0] != 0
            failed += d.ctl("exec", env, "--", "/bin/true")[0] != 0
        tap.eq(failed, 0, f"{MANY} resets, {2 * MANY} execs of {env}")
        try:
            gate.until(lambda k=pids, w=was: len(keepers(d)) == 1 and
                       all(fds(p) <= x[0] for p, x in zip(k, w)), "no more")
        except TimeoutError:
            pass
        now = [(fds(p), rss(p)) for p in pids]
        # before, one that was let go may still have been there
        tap.ok(all(n[0] <= w[0] for n, w in zip(now, was)),
               f"helper, reactor, recorder keep no descriptors ({env})",
               (was, now))
        tap.diag(f"KiB before and after: {was} {now}")
        tap.eq(d.ctl("end", me)[0], 0, "it ends")
        all_gone(d, f"nothing is left of {env}")


def main():
    host.needed()
    own_namespaces()
    only = os.environ.get("SP_ATTACKS_ONLY", "").split()
    with tempfile.TemporaryDirectory(prefix="sp-attacks-") as folder:
        os.chmod(folder, 0o755)
        with Daemon(folder) as d:
            for test in (walls, fills, sockets, many_sockets, doors, mess, storm, no_descriptors,
                         dies_in_reset, reloads, meddling, kills, many):
                if not only or test.__name__ in only:
                    test(d)
            tap.eq(d.p.poll(), None, "the helper has lived through it")
    tap.done()


main()

#!/usr/bin/python3
"""storage disk: a workspace larger than memory, bounded, and gone after."""
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402

if os.environ.get("SP_IN_NETNS") != "1":
    walls.needed()
    os.set_inheritable(walls.lock, True)
    if walls.disks_refused():
        tap.skip_all(walls.disks_refused())
    os.environ["SP_IN_NETNS"] = "1"
    os.execvp("unshare", ["unshare", "--net", "--mount", "--propagation",
                          "private", sys.executable,
                          os.path.abspath(__file__)])

CTL = gate.program("sallyportctl")
CONF = """
environment disk {{
    workspace {seed}; workspace_size 96m; storage disk; episodes 2;
    sandbox {{ memory 32m; pids 64; tmp_size 1m; uid 320000 4096; }}
}}
server {{ listen 127.0.0.1:0; location /health {{ health; }} }}
"""
FILL = """
import os
n = 0
try:
    with open("big", "wb", buffering=0) as f:
        while True:
            n += f.write(bytes(1 << 16))
except OSError as e:
    print(e.errno, n >> 20)
"""
MANY = """
import os
os.unlink("big")
n = 0
try:
    while True:
        open(f"f{n}", "w").close()
        n += 1
except OSError as e:
    print(e.errno, n)
for i in range(2, n):
    os.unlink(f"f{i}")
"""


def loops():
    """Backing files of loop devices that a start of ours left unnamed."""
    out = []
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            with open(path, encoding="utf-8") as f:
                out.append(f.read())
        except OSError:
            pass
    return [x for x in out if STATE in x]


def free():
    st = os.statvfs(STATE)
    return st.f_bavail * st.f_frsize >> 20


def ctl(*args, stdin=b""):
    r = subprocess.run([CTL, "-S", SOCKET, *args], input=stdin,
                       capture_output=True, check=False, timeout=120)
    return r.returncode, r.stdout, r.stderr


def workspace():
    rc, _, err = ctl("exec", "--keep", "disk", "--", "/bin/true")
    me = re.search(rb"episode (\S+)", err)[1].decode()
    tap.eq(rc, 0, "an episode")

    def py(text):
        rc, out, err = ctl("exec", "--in", me, "--", "python3", "-c", text)
        return (rc, out) if rc == 0 else (rc, out, err)

    tap.eq(len(loops()), 1, "it has a file system of its own")
    tap.eq(os.listdir(os.path.join(STATE, "disk")), [],
           "in a file without a name")
    tap.eq(py("print(open('hello').read())"), (0, b"hello\n\n"), "the seed")
    rc, out = py(FILL)[:2]
    tap.ok(rc == 0 and re.fullmatch(rb"28 (9[0-9]|10[0-9])\n", out),
           "full is ENOSPC, at workspace_size, three times what memory there "
           "is", out)
    rc, out = py(MANY)[:2]
    tap.ok(rc == 0 and out.startswith(b"28 "), "so are inodes", out)
    rc, out, _ = ctl("read", me, "/workspace/hello")
    tap.eq((rc, out), (0, b"hello\n"), "a file is read from outside")
    tap.eq(py("""
import os
os.unlink("hello"); os.mkdir("d"); os.rename("f1", "d/f1")
os.symlink("x", "l")
print(open("d/f1").read() == "")"""), (0, b"True\n"), "it is worked with")
    rc, out, err = ctl("diff", me)
    tap.ok(rc == 0 and b"hello" in out, "its difference to the seed",
           out[-200:] + err[-200:])
    tap.eq(ctl("reset", me)[0], 0, "a reset")
    tap.eq(py("import os; print(os.listdir('.'))"), (0, b"['hello']\n"),
           "all is as it was")
    tap.eq(ctl("end", me)[0], 0, "it ends")
    gate.until(lambda: not loops(), "the end of its file system")
    tap.ok(True, "and nothing holds a loop device")


def refused():
    """More than the disk has is no sandbox, and says so at the start."""
    g.stop()
    with open(g.conf, encoding="utf-8") as f:
        text = f.read()
    with open(g.conf, "w", encoding="utf-8") as f:
        f.write(text.replace("96m", "3000g"))
    r = subprocess.run([gate.program("sallyport"), "-c", g.conf],
                       capture_output=True, text=True, check=False,
                       timeout=60)
    tap.ok(r.returncode != 0 and "storage disk" in r.stderr,
           "too large for the disk", r.stderr[-300:])
    tap.eq(loops(), [], "and nothing is left")
    with open(g.conf, "w", encoding="utf-8") as f:
        f.write(text)
    r = subprocess.run([gate.program("sallyport"), "-t", "-c", g.conf],
                       capture_output=True, text=True, check=False,
                       timeout=60)
    tap.eq(r.returncode, 0, "-t tries it")


def killed():
    """The helper dies: the file dies with its mount."""
    rc, _, _ = ctl("exec", "--keep", "disk", "--", "/bin/sh", "-c",
                   "head -c 30000000 /dev/zero > big")
    tap.eq((rc, len(loops())), (0, 1), "one that has written")
    g.p.kill()
    g.p.wait()
    gate.until(lambda: not loops(), "the end of its file system")
    os.truncate(g.log_path, 0)
    g.start(g.argv)
    gate.until(lambda: free() > BEFORE - 64, "the disk's room")
    tap.ok(True, "the disk has its room again")


with tempfile.TemporaryDirectory(prefix="sp-disk-") as tmp:
    os.chmod(tmp, 0o755)
    SOCKET = os.path.join(tmp, "c.sock")
    seed = os.path.join(tmp, "seed")
    os.mkdir(seed)
    with open(os.path.join(seed, "hello"), "w", encoding="utf-8") as f_:
        f_.write("hello\n")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with gate.Gate(CONF.format(seed=seed), main=f"control {SOCKET};") as g:
        STATE = g.state
        BEFORE = free()
        workspace()
        killed()
        refused()
tap.done()

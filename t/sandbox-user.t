#!/usr/bin/python3
"""Sandboxes of an ordinary user: what holds without root, and what is said."""
import os
import shutil
import signal
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
UID = 64991 if os.geteuid() == 0 else os.geteuid()
TMP = tempfile.mkdtemp(prefix="sp-user-")

CONF = """
state_dir {tmp}/state;
control {tmp}/sock;
environment work {{ workspace {tmp}/ws; workspace_size 16m; {more} }}
server {{ listen 127.0.0.1:0; location /health {{ health; }} }}
"""


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
            conf("inside 127.0.0.1:7000 { location /health { health; } }"))
    tap.ok(r.returncode == 1 and "inside needs a start as root" in r.stderr,
           "so is a door inside", r.stderr)
    r = run("sallyport", "-t", "-c",
            conf("egress { allow tcp 203.0.113.0/24 443; }"))
    tap.ok(r.returncode == 1 and "egress needs a start as root" in r.stderr,
           "and a way out", r.stderr)


def ctl(*args, **kw):
    return run("sallyportctl", "-S", os.path.join(TMP, "sock"), *args, **kw)


def sh(script):
    r = ctl("exec", "work", "--", "/bin/sh", "-c", script)
    return r.returncode, r.stdout, r.stderr


def test_exec():
    with open(os.path.join(TMP, "log"), "w") as log:
        p = subprocess.Popen(
            [os.path.join(TMP, "bin", "sallyport"), "-c", conf()],
            preexec_fn=drop, cwd="/", stdin=subprocess.DEVNULL, stdout=log,
            stderr=log)
    end = time.monotonic() + PATIENCE
    while "ready: " not in open(os.path.join(TMP, "log")).read():
        if time.monotonic() > end or p.poll() is not None:
            tap.ok(False, "it serves", open(os.path.join(TMP, "log")).read())
            return
        time.sleep(0.01)
    tap.eq(sh("cat hello; echo x > new; ls"), (0, "hello\nhello\nnew\n", ""),
           "a command in a sandbox")
    tap.eq(sh("ls")[1], "hello\n", "which leaves nothing behind")
    tap.eq(sh("exit 9")[0], 9, "its exit status")
    tap.eq(sh("echo x > /usr/x")[0] != 0 and sh("cat /proc/1/environ")[1], "",
           "the root is not writable, pid 1 not readable")
    tap.eq(sh("ls /sys/class/net 2>/dev/null; cat /proc/net/dev | wc -l")[1],
           "3\n", "no network device but lo")
    tap.eq(sh("unshare -Ur true 2>/dev/null || echo no")[1], "no\n",
           "no namespaces of its own")
    tap.eq(sh("grep -E 'Seccomp:|NoNewPrivs|CapEff' /proc/self/status | "
              "tr -d '\\t\\n'")[1],
           "CapEff:0000000000000000NoNewPrivs:1Seccomp:2", "the walls stand")
    p.send_signal(signal.SIGTERM)
    tap.eq(p.wait(PATIENCE), 0, "it stops")


try:
    os.chmod(TMP, 0o755)
    setup()
    test_check()
    test_exec()
finally:
    shutil.rmtree(TMP, ignore_errors=True)
tap.done()

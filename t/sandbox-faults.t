#!/usr/bin/python3
"""Faults around a sandbox: time, death, stages that fail, messages that lie.
Whatever happens, nothing is left behind.  Numbers as in the list of cases."""
import atexit
import ctypes
import errno
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "lib"))
import keeper as K  # noqa: E402
import tap  # noqa: E402
from sandbox import (CG, TMP, nothing_left, of_sandbox, poll,
                     rmdir, run_all, sandbox)  # noqa: E402


# ---- time, signals, death ---------------------------------------------------
def timeouts():
    k = sandbox()
    r = k.sh("sleep 60 & setsid sleep 61 >/dev/null 2>&1 & sleep 62", timeout_ms=300)
    tap.eq((r.end, r.status), (K.END_TIMEOUT, signal.SIGKILL),
           "60: a timeout kills the process with its session")
    p = k.start(["/bin/sleep", "60"])
    k.started(p)
    k.send(K.SIGNAL, struct.pack("<IB", p, signal.SIGTERM))
    k.finish(p)
    tap.eq((k.results[p].end, k.results[p].status),
           (K.END_SIGNAL, signal.SIGTERM), "a signal reaches one process")
    many = [k.start(["/bin/sleep", "60"]) for _ in range(5)]
    for p in many:
        k.started(p)
    k.send(K.SIGNAL, struct.pack("<IB", 0, signal.SIGKILL))
    for p in many:
        k.finish(p)
    tap.eq({k.results[p].end for p in many}, {K.END_SIGNAL},
           "a signal reaches all")
    tap.ok(poll(lambda: len(of_sandbox()) == 1), "but pid 1")
    # born while a sibling stops it: it starts, or fails, and nothing waits
    k.started(k.start(["/usr/bin/python3", "-c",
                       "import os, time\nt = time.time() + 20\n"
                       "me = os.getpid()\nwhile time.time() < t:\n"
                       " for p in os.listdir('/proc'):\n"
                       "  if p.isdigit() and int(p) not in (1, me):\n"
                       "   try: os.kill(int(p), 19)\n"
                       "   except OSError: pass"]))
    for _ in range(5):
        k.start(["/bin/sleep", "60"])
    started = time.monotonic()
    tap.ok(k.end(), "60: the end comes also while processes are being stopped")
    tap.ok(time.monotonic() - started < 25, "60: in bounded time")
    nothing_left("timeouts")


def freezing():
    k = sandbox()
    p = k.start(["/bin/sh", "-c", "while :; do echo >>/workspace/t; done"])
    k.started(p)

    def freeze(on):
        k.send(K.FREEZE, struct.pack("<IB", 5, on))
        return struct.unpack("<IBI", k.until((K.FROZEN,))[1])
    tap.eq(freeze(1), (5, 1, 0), "a sandbox is frozen")
    q = k.start(["/bin/true"])
    k.started(q)
    tap.eq(k.results[q].not_started[:2], ("enter", errno.EBUSY),
           "nothing starts in a frozen one")
    tap.eq(freeze(0), (5, 0, 0), "and thawed")
    tap.eq(k.run(["/bin/true"]).status, 0, "then it runs on")
    # frozen on its way in: it starts when it may, or has started
    q = k.start(["/bin/true"])
    freeze(1)
    freeze(0)
    tap.eq(k.finish(q).status, 0, "a start that was frozen half way goes on")
    freeze(1)
    tap.ok(k.end(), "a frozen one ends, too")
    nothing_left("freezing")


def deaths():
    # 17, 18: the helper's channel closes; the keeper is killed
    k = sandbox()
    k.started(k.start(["/bin/sh", "-c", "setsid sleep 999 & sleep 999"]))
    k.sock.shutdown(socket.SHUT_RDWR)
    k.close()
    nothing_left("17: the helper goes away")
    k = sandbox()
    k.started(k.start(["/bin/sh", "-c", "setsid sleep 999 & sleep 999"]))
    os.kill(k.proc.pid, signal.SIGKILL)
    k.close()
    tap.ok(poll(lambda: not of_sandbox()), "18: the keeper is killed: so is "
           "everything in its sandbox")
    for leaf in CG.leaves():
        tap.ok(poll(lambda leaf=leaf: "populated 0" in
                    open(f"{leaf}/cgroup.events").read()
                    if os.path.exists(f"{leaf}/cgroup.events") else True),
               "18: its leaf is empty")
        poll(lambda leaf=leaf: rmdir(leaf))
    nothing_left("18: the keeper is killed")
    # the leaf of an earlier one is there: sweep first
    for path in set(CG.paths.values()):
        os.makedirs(f"{path}/t{os.getpid()}", exist_ok=True)
    k = K.Keeper()
    tap.eq((k.build(K.Spec(), CG), (k.failed or "?")[0]), (False, "cgroup"),
           "18: a leaf that is there already")
    k.gone()
    for leaf in CG.leaves():
        rmdir(leaf)
    nothing_left("18: a leaf of before")


# ---- what goes wrong around it -----------------------------------------------
def stuck():
    """52: a process that cannot die."""
    image, where = f"{TMP}/ext4", f"{TMP}/frozen"
    os.makedirs(where)
    if not all(map(shutil.which, ("mkfs.ext4", "fsfreeze", "losetup"))):
        tap.skip("52: a task in state D", "mkfs.ext4, fsfreeze, losetup")
        return
    with open(image, "wb") as f:
        f.truncate(32 << 20)
    if subprocess.run(f"mkfs.ext4 -q {image} && mount -o loop {image} {where}",
                      shell=True, capture_output=True).returncode != 0:
        tap.skip("52: a task in state D", "no loop device to be had")
        return

    def undo():
        subprocess.run(["fsfreeze", "-u", where], capture_output=True)
        subprocess.run(["umount", "-l", where], capture_output=True)
    atexit.register(undo)
    try:
        os.chmod(where, 0o777)
        # open_tree: such as the agent's sandbox gives to the worker's
        fd = ctypes.CDLL(None).syscall(428, -100, where.encode(),
                                       1 | os.O_CLOEXEC)
        k = sandbox(K.Spec(side=K.WORKER, teardown_ms=300), workspace=fd)
        os.close(fd)
        k.started(k.start(["/bin/sh", "-c",
                           "while :; do echo x >>/workspace/f; done"]))
        subprocess.run(["fsfreeze", "-f", where], check=True)

        def asleep():
            for p in of_sandbox():
                with open(f"/proc/{p}/stat", encoding="utf-8") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] == "D":
                        return True
            return False
        tap.ok(poll(asleep), "52: a process sleeps for good")
        k.send(K.END)
        msg = k.until((K.STUCK, K.EMPTY))
        tap.eq(msg[0], K.STUCK, "52: that is told")
        tap.ok(struct.unpack("<I", msg[1][:4])[0] >= 1, "52: with a count")
        subprocess.run(["fsfreeze", "-u", where], check=True)
        tap.ok(k.gone(), "52: and when it can die, all goes on")
    finally:
        undo()
        atexit.unregister(undo)
    nothing_left("52: a task in state D")


def siblings():
    """13: who has the same uid looks while another is being started."""
    k = sandbox()
    spy = k.start(["/usr/bin/python3", "-c", """
import os, time
seen = set()
me = os.getpid()
print('ready', flush=True)
while not os.path.exists('/tmp/stop'):
    for p in os.listdir('/proc'):
        if not p.isdigit() or int(p) <= me:
            continue
        try:
            exe = os.readlink(f'/proc/{p}/exe')
            if 'sallyport' in exe: seen.add(exe)
        except OSError: pass
        try:
            for f in os.listdir(f'/proc/{p}/fd'):
                t = os.readlink(f'/proc/{p}/fd/{f}')
                if not t.startswith(('/dev/null', 'pipe:', '/proc', '/usr',
                                     '/etc', '/lib')):
                    seen.add(t)
        except OSError: pass
        try:
            if b'sallyport' in open(f'/proc/{p}/mem', 'rb').read(1): pass
            seen.add('mem')
        except OSError: pass
print(sorted(seen))
"""])
    k.started(spy)
    for _ in range(60):
        k.run(["/bin/true"])
    k.sh("touch /tmp/stop")
    r = k.finish(spy)
    tap.eq(r.out, b"ready\n[]\n", "13: nothing of the keeper is to be seen")
    k.end()
    nothing_left("siblings")


def cpu():
    if 3 not in CG.fds:
        tap.skip("56: cpu", "no cpu controller")
        return
    k = sandbox(K.Spec(cpu=100))
    p = k.start(["/bin/sh", "-c", "while :; do :; done"], timeout_ms=2500)
    q = k.start(["/bin/sleep", "3"])
    r = k.finish(p)
    k.finish(q)
    used = (r.user_us + r.system_us) / 1e6
    tap.ok(r.end == K.END_TIMEOUT and used < 0.9,
           "56: a tenth of a processor is no more than that", used)
    tap.ok(any(e[0] == 1 for e in k.events), "and samples came")
    seen = [json.loads(e[2]) for e in k.events if e[0] == 2]
    tap.ok(any({"sleep", "sh"} <= {p["name"] for p in s["processes"]} and
               s["more"] == 0 for s in seen), "with the processes", seen)
    tap.eq([e[1] for e in k.events], list(range(1, len(k.events) + 1)),
           "numbered without a gap")
    k.end()
    nothing_left("cpu")


def allocations():
    """Each allocation of the keeper fails in turn."""
    k = K.Keeper(env={"SP_FAIL_ALLOC": "1"})
    if k.build(K.Spec(), CG):
        k.end()
        tap.skip("allocation failures", "a build with confinement")
        return
    k.close()
    bad, n, whole = [], 1, False
    while n < 120 and not whole:
        k = K.Keeper(env={"SP_FAIL_ALLOC": str(n)})
        try:
            whole = k.build(K.Spec(), CG)
            r = k.run(["/bin/true"]) if whole else None
            whole = whole and r.end == K.END_EXIT
            whole = k.end() and whole
        except (BrokenPipeError, ConnectionResetError):
            whole = False
        k.close()
        if k.proc.returncode not in (0, 1):
            bad.append(f"{n}: status {k.proc.returncode}")
        if not poll(lambda: not CG.leaves() and not of_sandbox(), 5):
            bad.append(f"{n}: {CG.leaves()} {of_sandbox()}")
            for leaf in CG.leaves():
                rmdir(leaf)
        if len(bad) > 3:
            break
        n += 1
    tap.none(bad, f"each of {n} allocations fails, and nothing is left")
    tap.ok(whole, "until none does")
    nothing_left("allocation failures")


# ---- stages that fail, messages that lie ------------------------------------
def stages():
    """1: every stage in turn."""
    k = K.Keeper(env={"SP_FAIL_STAGE": "spec"})
    if k.build(K.Spec(), CG):
        k.end()
        tap.skip("1: each stage fails", "a build with confinement")
        return
    k.gone()
    for stage in ("spec cgroup limits namespaces workspace network root dev "
                  "proc pivot_root landlock seccomp init").split():
        k = K.Keeper(env={"SP_FAIL_STAGE": stage})
        built = k.build(K.Spec(), CG)
        tap.eq((built, (k.failed or "?")[0]), (False, stage),
               f"1: {stage} fails")
        tap.ok(k.gone(), f"1: {stage}: gone")
        nothing_left(f"1: {stage}")
    for stage in "enter stdio credentials exec check".split():
        k = K.Keeper(env={"SP_FAIL_STAGE": stage})
        if not k.build(K.Spec(), CG):
            tap.ok(False, f"1: {stage}", k.failed)
            continue
        r = k.sh("echo ran >/workspace/marker")
        tap.eq((r.not_started or "?")[0], stage, f"1: a process: {stage}")
        tap.ok(k.end(), f"1: a process: {stage}: gone")
        nothing_left(f"1: a process: {stage}")


def another_network():
    """A network namespace of nobody's, as the helper makes them."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        ok = ctypes.CDLL(None).unshare(0x40000000) == 0
        os.write(w, b"y" if ok else b"n")
        time.sleep(60)
        os._exit(0)
    os.read(r, 1)
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(r)
    os.close(w)
    return fd


def prepared():
    """The network comes last: while it is made the rest is, too."""
    net = another_network()
    k = K.Keeper()
    k.prepare(K.Spec(), CG)
    tap.ok(k.build(None, netns=net), "prepared, then built", k.failed)
    r = k.sh("readlink /proc/self/ns/net; cat /proc/1/net/dev | wc -l;"
             " touch /workspace/x /tmp/x && echo can; grep Cap"
             " /proc/self/status | sort -u -k2 | wc -l")
    tap.eq(r.out.decode().split()[0], f"net:[{os.fstat(net).st_ino}]",
           "in the network that was given")
    tap.eq(r.out.decode().split()[2:], ["can", "1"], "and all else is there")
    with open(f"/proc/{k.init_pid}/status", encoding="utf-8") as f:
        status = dict(line.split(":\t", 1) for line in f)
    tap.eq((os.readlink(f"/proc/{k.init_pid}/ns/net"),
            status["CapEff"].strip()),
           (f"net:[{os.fstat(net).st_ino}]", "0" * 16), "pid 1, too")
    tap.ok(k.end(), "gone")
    nothing_left("prepared, then built")

    def until_waits(k):
        """Its pid 1 is there."""
        children = f"/proc/{k.proc.pid}/task/{k.proc.pid}/children"

        def there():
            with open(children, encoding="utf-8") as f:
                return CG.leaves() and f.read().split()
        tap.ok(poll(there), "its pid 1 waits")

    k = K.Keeper()
    k.prepare(K.Spec(), CG)
    until_waits(k)
    tap.ok(k.end(), "prepared, and no network came: gone")
    nothing_left("prepared, and no network came")
    k = K.Keeper()
    k.prepare(K.Spec(), CG)
    until_waits(k)
    k.proc.kill()
    k.proc.wait()
    k.close()
    for leaf in CG.leaves():
        poll(lambda leaf=leaf: rmdir(leaf), 10)
    nothing_left("prepared, and the keeper died")
    for stage in ("workspace", "root", "seccomp"):
        k = K.Keeper(env={"SP_FAIL_STAGE": stage})
        k.prepare(K.Spec(), CG)
        try:
            built = k.build(None, netns=net)
        except (BrokenPipeError, ConnectionResetError):
            # it was through before it was asked: it said so, and went
            built = k.until((K.READY, K.FAILED))[0] == K.READY
        if built:
            k.end()
            continue
        tap.eq((k.failed or "?")[0], stage, f"prepared: {stage} fails")
        tap.ok(k.gone(), f"prepared: {stage}: gone")
        nothing_left(f"prepared: {stage}")
    os.close(net)


def nothing_to_run():
    """The reactor's words: they cost the process, not the sandbox."""
    k = sandbox()
    r = k.finish(k.start([]))
    tap.eq(r.not_started and r.not_started[0], "spec",
           "19: a run without arguments is refused")
    tap.eq(k.sh("echo on").out, b"on\n", "and others run")
    k.end()
    nothing_left("19: a run without arguments")


def liars():
    """19: what no helper would send."""
    good = K.Spec().encode()

    def broken(what, send):
        k = K.Keeper()
        try:
            send(k)
        except (BrokenPipeError, ConnectionResetError):
            pass
        try:
            left = k.until((K.GONE,), 20)
        except TimeoutError:
            left = "silent"
        k.close()
        tap.ok(left is None and k.proc.returncode is not None,
               f"19: {what} ends the keeper", (left, k.failed))

    def spec(k, data):
        k.send_sealed(K.SPEC, data)
        k.send(K.BUILD_IT)

    def unsealed(k):
        fd = os.memfd_create("x")
        os.write(fd, good)
        k.send(K.SPEC, b"", fd)
        os.close(fd)

    def twice(k):
        k.send_sealed(K.SPEC, good)
        k.send_sealed(K.SPEC, good)

    def give(k, body, n=1):
        k.send_sealed(K.SPEC, good)
        fds = [os.open("/", os.O_RDONLY) for _ in range(n)]
        k.send(K.GIVE, body, fds or None)
        for fd in fds:
            os.close(fd)
    broken("an empty message", lambda k: k.send(0, raw=b""))
    broken("three bytes", lambda k: k.send(0, raw=b"abc"))
    broken("an unknown type", lambda k: k.send(999))
    broken("a message of another role", lambda k: k.send(8, b"\0" * 12))
    broken("its own kind of message", lambda k: k.send(K.READY, b"\0" * 4))
    broken("BUILD without SPEC", lambda k: k.send(K.BUILD_IT))
    broken("PREPARE without SPEC", lambda k: k.send(K.PREPARE))
    broken("PREPARE twice", lambda k: (k.prepare(K.Spec(), CG),
                                       k.send(K.PREPARE)))
    broken("BUILD without the network that it was prepared for",
           lambda k: (k.prepare(K.Spec(), CG), k.send(K.BUILD_IT)))
    broken("RUN before BUILD", lambda k: k.send_sealed(
        K.RUN, K.run_body(["/bin/true"]), b"\1\0\0\0"))
    broken("an empty spec", lambda k: spec(k, b""))
    broken("a cut spec", lambda k: spec(k, good[:-1]))
    broken("a longer spec", lambda k: spec(k, good + b"\0"))
    broken("a spec with a NUL", lambda k: spec(
        k, K.Spec(hostname="a\0b").encode()))
    broken("a leaf that leads out", lambda k: spec(
        k, K.Spec(cgroup="../x").encode()))
    broken("a relative path", lambda k: spec(
        k, K.Spec(read_only=["usr"]).encode()))
    broken("a side that is none", lambda k: spec(k, K.Spec(side=9).encode()))
    broken("an unsealed spec", unsealed)
    broken("two specs", twice)
    broken("an unknown descriptor", lambda k: give(k, b"\x63" + b"\0" * 4))
    broken("GIVE without one", lambda k: give(k, b"\2" + b"\0" * 4, 0))
    broken("GIVE with three", lambda k: give(k, b"\2" + b"\0" * 4, 3))
    broken("a long GIVE", lambda k: give(k, b"\2" + b"\0" * 9))

    def served(what, send):
        k = sandbox()
        k.started(k.start(["/bin/sleep", "99"]))
        send(k)
        k.until((K.GONE,), 20)
        k.close()
        tap.ok(k.proc.returncode is not None, f"19: {what} ends it")
        nothing_left(f"19: {what}")
    served("a handle twice", lambda k: k.send_sealed(
        K.RUN, K.run_body(["/bin/true"]), b"\1\0\0\0"))
    nothing_to_run()
    served("BUILD again", lambda k: k.send(K.BUILD_IT))
    served("a wrong sequence", lambda k: (setattr(k, "seq", 99),
                                          k.send(K.END)))
    k = K.Keeper()
    tap.eq((k.build(K.Spec(uid=0), CG), (k.failed or "?")[0]),
           (False, "spec"), "19: never as root")
    k.gone()
    k = K.Keeper()
    tap.ok(k.end(), "END alone is fine")
    nothing_left("lies")


run_all((timeouts, freezing, deaths, stuck, siblings, cpu, allocations, stages,
         prepared, liars))

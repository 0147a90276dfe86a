"""What the tests of sandboxes share: making one, and that nothing is left."""
import atexit
import os
import shutil
import tempfile
import time

import gate
import keeper as K
import tap
import walls

walls.needed()
K.PROGRAM = gate.program("sallyport-init")
CG = K.Cgroups()
atexit.register(CG.close)
if 0 not in CG.fds:
    tap.skip_all("no cgroup v2 that root may write to")
TMP = tempfile.mkdtemp(prefix="sp-sandbox-")
os.chmod(TMP, 0o755)
atexit.register(shutil.rmtree, TMP, True)


# ---- nothing is left --------------------------------------------------------
def mounts():
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        return len(f.readlines())


def of_sandbox(uids=(211000, 211001, 211002)):
    """Processes with the sandbox's uids, anywhere on the host."""
    out = []
    for p in os.listdir("/proc"):
        try:
            if p.isdigit() and os.stat(f"/proc/{p}").st_uid in uids:
                with open(f"/proc/{p}/stat", encoding="utf-8") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] != "Z":
                        out.append(int(p))
        except OSError:
            pass
    return out


MOUNTS = mounts()


def poll(cond, seconds=10):
    deadline = time.monotonic() + seconds
    while not cond():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def nothing_left(what):
    poll(lambda: not CG.leaves() and not of_sandbox(), 5)
    left = []
    if CG.leaves():
        left.append(f"leaves {CG.leaves()}")
    if of_sandbox():
        left.append(f"processes {of_sandbox()}")
    if mounts() != MOUNTS:
        left.append(f"{mounts()} mounts, not {MOUNTS}")
    tap.none(left, f"{what}: nothing is left behind")


def sandbox(spec=None, **how):
    k = K.Keeper()
    if not k.build(spec or K.Spec(), CG, **how):
        tap.ok(False, "a sandbox", f"{k.failed}")
        k.close()
        tap.done()
    return k


PRE = """
import ctypes, os, sys, socket, errno
L = ctypes.CDLL(None, use_errno=True)
def sysc(*a):
    ctypes.set_errno(0)
    r = L.syscall(*a)
    return 0 if r >= 0 else ctypes.get_errno()
def say(*a):
    print(*a, flush=True)
"""


def inside(k, code, **how):
    r = k.py(PRE + code, **how)
    return r.out.decode("utf-8", "replace").strip() + \
        r.err.decode("utf-8", "replace").strip()


def rmdir(path):
    try:
        os.rmdir(path)
    except OSError:
        return not os.path.exists(path)
    return True


def run_all(tests):
    only = os.environ.get("ONLY")
    for test in tests:
        if not only or test.__name__ in only.split():
            test()
    tap.done()

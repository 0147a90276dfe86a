#!/usr/bin/python3
"""Control groups for real: limits, storms, frozen tasks, out of memory."""
import atexit
import os
import resource
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "lib"))
import gate  # noqa: E402
import tap  # noqa: E402

UID = 64990  # nobody's; bombs run as this one
NAME = f"sallyport-test-{os.getpid()}"
E_TIMEOUT, E_EXISTS, E_NOTFOUND = -13, -9, -8
KINDS = ("unified", "memory", "pids", "cpu", "freezer")

if os.geteuid() != 0:
    tap.skip_all("needs root")
if not os.path.exists("/proc/self/cgroup"):
    tap.skip_all("this kernel has no control groups")
TOOL = gate.program("t/unit/cgroup_tool")


class Tool:
    """cgroup_tool: one command, one answer."""

    def __init__(self, prefix=()):
        self.p = subprocess.Popen([*prefix, TOOL], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, bufsize=1)

    def __call__(self, *words):
        self.p.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.p.stdin.flush()
        return self.p.stdout.readline().strip()

    def rc(self, *words):
        return int(self(*words).split()[0])

    def usage(self):
        names = ("rc", "has_cpu", "has_memory", "has_pids", "cpu", "memory",
                 "peak", "pids", "oom")
        return dict(zip(names, map(int, self("usage").split())))

    def end(self):
        self.p.stdin.close()
        self.p.wait()


def mounts():
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        lines = [line.split() for line in f]
    return [m[4] for m in lines if m[m.index("-") + 1].startswith("cgroup")]


def sweep():
    """Whatever a test left: killed, moved out, removed."""
    for mount in mounts():
        top = os.path.join(mount, NAME)
        for where, dirs, _ in os.walk(top, topdown=False):
            del dirs
            try:
                with open(os.path.join(where, "cgroup.procs"),
                          encoding="ascii") as f:
                    pids = [int(p) for p in f.read().split()]
            except OSError:
                pids = []
            for pid in pids:
                try:
                    if pid != os.getpid():
                        os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            for _ in range(200):
                try:
                    os.rmdir(where)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)


def refused():
    """Why root may make no groups here, as in a container; or None."""
    for mount in mounts():
        path = os.path.join(mount, NAME)
        try:
            os.mkdir(path)
            os.rmdir(path)
            return None
        except OSError as e:
            why = e
    return why if mounts() else "none is mounted"


if refused():
    tap.skip_all(f"no control group can be made: {refused()}")
atexit.register(sweep)


def bounded():
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    resource.setrlimit(resource.RLIMIT_NPROC, (400, 400))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def start(tool, code):
    """Runs Python text in the leaf, as nobody; it begins when it is in it."""
    p = subprocess.Popen(
        ["/usr/bin/python3", "-c",
         # whatever becomes of the test, it ends by itself
         "import sys, os, time\nif sys.stdin.read(1) != 'x':\n"
         "    sys.exit(1)\nEND = time.monotonic() + 60\n" + code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, preexec_fn=bounded, cwd="/")
    if not tap.ok(tool.rc("enter", p.pid, 1) == 0, "a process enters"):
        # never outside of its bounds
        p.kill()
        p.wait()
        raise RuntimeError("no bounds for what comes")
    p.stdin.write(b"x")
    p.stdin.flush()
    return p


def opened(tool):
    """{kind: (version, path)} of what was found."""
    head = tool("open", NAME)
    words = head.split(" | ")[0].split(" ")
    tap.eq(words[0], "0", "groups are found")
    tap.diag(head)
    return {k: w.split(":", 1) for k, w in zip(KINDS, words[1:])
            if not w.endswith(":")}


def value(path, *names):
    with open(os.path.join(path, *names), encoding="ascii") as f:
        return f.read().strip()


STORM = """
for _ in range(4):
    os.fork()
while time.monotonic() < END:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        time.sleep(0.001)
"""


def storm(tool, have):
    pids = 48 if "pids" in have else 0
    tap.eq(tool("make", "storm", 0, pids, 0).split()[0], "0",
           "a leaf for a storm")
    tap.eq(tool.rc("wait", 0), 0, "which is empty")
    p = start(tool, STORM)
    gate.until(lambda: len(tool("procs").split()) > 32, "the storm")
    if pids:
        gate.until(lambda: int(value(have["pids"][1], "storm", "pids.current"))
                   == pids, "the storm to fill the leaf")
        seen = len(tool("procs").split()) - 1
        tap.ok(seen <= pids, f"the storm is bounded ({seen})")
        tap.ok(tool.usage()["pids"] <= pids, "as usage says")
    else:
        tap.skip("the storm is bounded", "no pids controller here")
    tap.eq(tool.rc("remove", "storm", 20), E_TIMEOUT,
           "it cannot be removed while anything lives")
    code, left, _ = tool("wait", 20).split()
    tap.ok(int(code) == E_TIMEOUT and int(left) > 0, "nor does it empty")
    tap.eq(tool.rc("kill"), 0, "killed")
    code, left, ms = tool("wait", 30000).split()
    tap.eq((code, left), ("0", "0"), "nothing is left")
    tap.diag(f"empty after {ms} ms")
    p.wait()
    tap.eq(tool.rc("remove", "storm", 30000), 0, "removed")
    tap.eq(tool.rc("remove", "storm", 0), 0, "twice is fine")
    tap.eq(tool.rc("kill"), 0, "all of what is gone is dead")
    tap.eq(tool.rc("close"), 0, "closed")
    tap.eq(tool.rc("leaf", "storm"), E_NOTFOUND, "it is gone")


def frozen(tool, have):
    tap.eq(tool("make", "cold", 0, 0, 0).split()[0], "0", "a leaf to freeze")
    tap.eq(tool.rc("freeze", 1, 5000), 0, "an empty one freezes")
    tap.eq(tool.rc("freeze", 0, 5000), 0, "and thaws")
    p = start(tool, "n = 0\nwhile time.monotonic() < END:\n    n += 1\n"
                    "    os.write(1, b'x' * 64)\n")
    p.stdout.read(64)
    tap.eq(tool.rc("freeze", 1, 30000), 0, "frozen")
    os.set_blocking(p.stdout.fileno(), False)
    while p.stdout.read(1 << 20):
        pass
    tap.ok(not p.stdout.read(64), "it writes no more")
    code, left, _ = tool("wait", 10).split()
    tap.eq((code, left), (str(E_TIMEOUT), "1"), "but is there")
    tap.eq(tool.rc("freeze", 0, 30000), 0, "thawed")
    tap.ok(gate.until(lambda: p.stdout.read(64), "output"), "it goes on")
    tap.eq(tool.rc("freeze", 1, 30000), 0, "frozen again")
    tap.eq(tool.rc("kill"), 0, "killed while frozen")
    tap.eq(tool("wait", 30000).split()[0], "0", "nothing is left")
    tap.eq(p.wait(), -signal.SIGKILL, "by a kill")
    usage = tool.usage()
    tap.ok(usage["rc"] == 0, "usage", usage)
    if usage["has_cpu"]:
        tap.ok(usage["cpu"] > 0, "processor time was counted")
    else:
        tap.ok("unified" not in have, "v2 always counts processor time")
    # what a host of containers may nest in it
    first = next(iter(have.values()))[1]
    os.makedirs(os.path.join(first, "cold", "a", "b"))
    os.makedirs(os.path.join(first, "cold", "a", "c"))
    os.makedirs(os.path.join(first, "cold", "d"))
    tap.eq(tool.rc("remove", "cold", 30000), 0, "removed with what nests")
    tap.ok(not os.path.exists(os.path.join(first, "cold")), "is gone")
    tool.rc("close")


def memory(tool, have):
    if "memory" not in have:
        tap.skip("out of memory", "no memory controller here")
        return
    limit = 64 << 20
    tap.eq(tool("make", "small", limit, 0, 0).split()[0], "0",
           "a leaf with little memory")
    where = os.path.join(have["memory"][1], "small")
    if have["memory"][0] == "v1":
        tap.eq(value(where, "memory.limit_in_bytes"), str(limit), "bounded")
        swap = os.path.join(where, "memory.memsw.limit_in_bytes")
        if os.path.exists(swap):
            tap.eq(value(swap), str(limit), "without swap")
        tap.eq(value(where, "memory.kmem.tcp.limit_in_bytes"),
               str(limit // 4), "and what its sockets hold")
    else:
        tap.eq(value(where, "memory.max"), str(limit), "bounded")
        tap.eq(value(where, "memory.oom.group"), "1", "dies as a whole")
    tap.eq(tool.usage()["oom"], 0, "no kill so far")
    p = start(tool, "b = []\nwhile time.monotonic() < END:\n    b.append(bytes(1 << 20))\n"
                    "    b[-1] = b'x' * (1 << 20)\n")
    tap.eq(p.wait(), -signal.SIGKILL, "who takes more is killed")
    usage = tool.usage()
    tap.ok(usage["oom"] >= 1, "and it is told why", usage)
    tap.ok(0 < usage["peak"] <= limit, "within the bound", usage)
    tap.eq(tool.rc("kill"), 0, "the rest as well")
    tap.eq(tool("wait", 30000).split()[0], "0", "nothing is left")
    tap.eq(tool.rc("remove", "small", 30000), 0, "removed")
    tool.rc("close")


def cpu(tool, have):
    if "cpu" not in have:
        tap.skip("processor time", "no cpu controller here")
        return
    tap.eq(tool("make", "slow", 0, 0, 250).split()[0], "0",
           "a leaf with a quarter of a processor")
    where = os.path.join(have["cpu"][1], "slow")
    if have["cpu"][0] == "v1":
        tap.eq((value(where, "cpu.cfs_quota_us"),
                value(where, "cpu.cfs_period_us")), ("25000", "100000"),
               "as quota")
    else:
        tap.eq(value(where, "cpu.max"), "25000 100000", "as quota")
    tap.eq(tool("make", "slow", 0, 0, 0).split()[0], str(E_EXISTS),
           "a leaf that is there is not taken")
    tap.eq(tool.rc("remove", "slow", 30000), 0, "removed")
    tool.rc("close")


def adopt(tool, have):
    if "unified" not in have:
        tap.skip("the leaf of the roles", "no v2 here")
        return
    p = subprocess.Popen(["sleep", "1000"])
    tap.eq(tool.rc("adopt", p.pid), 0, "a role is moved")
    own = os.path.join(os.path.dirname(have["unified"][1]), "self")
    tap.ok(str(p.pid) in value(own, "cgroup.procs").split(),
           "into the leaf of its own")
    p.kill()
    p.wait()
    tap.eq(tool.rc("adopt", p.pid), E_NOTFOUND, "not one that is gone")


def run(prefix=()):
    tool = Tool(prefix)
    try:
        have = opened(tool)
        storm(tool, have)
        frozen(tool, have)
        memory(tool, have)
        cpu(tool, have)
        adopt(tool, have)
    finally:
        tool.end()
        sweep()


run()

# a host without v2: the freezer kills; in a mount namespace without it
with open("/proc/self/mountinfo", encoding="utf-8") as info:
    lines = [line.split() for line in info]
unified = [m[4] for m in lines if m[m.index("-") + 1] == "cgroup2"]
freezer = [m[4] for m in lines if m[m.index("-") + 1] == "cgroup" and
           "freezer" in m[-1].split(",")]
if unified and freezer:
    run(["unshare", "-m", "--propagation", "private", "sh", "-c",
         " && ".join(f"umount {u}" for u in unified) + ' && exec "$0"'])
else:
    tap.skip("a host with v1 alone", "no v1 freezer to try it with")
tap.done()

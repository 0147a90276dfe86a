"""Plays the helper to a sallyport-init: one sandbox, message by message."""
import array
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import time

BUILD = os.path.abspath(os.environ.get("SP_BUILDDIR", "."))
PROGRAM = os.path.join(BUILD, "sallyport-init")

# core/ipc/message.h
(SPEC, GIVE, BUILD_IT, RUN, SIGNAL, FREEZE, FILE, FILE_PUT, SHARE, END,
 CONNECT, PREPARE) = range(128, 140)
(READY, FAILED, STDIO, STARTED, NOT_STARTED, EXITED, FROZEN, FILE_DONE,
 FILE_DATA, SHARED, EMPTY, STUCK, GONE, EVENT, WATCH,
 CONNECTED) = range(144, 160)
# core/ipc/sandbox_msg.h
FD_NETNS, FD_SEED, FD_WORKSPACE, FD_UPPER, FD_ASSETS, FD_DISK, FD_CGROUP = \
    range(1, 8)
CGROUP_V1 = 0x100
AGENT, WORKER, ORACLE = 1, 2, 3
USERNS, LOCAL, WATCH_FILES = 1, 2, 4
RUN_STDIN, RUN_ERR_TO_OUT, RUN_EVENT_FD = 1, 2, 4
END_EXIT, END_SIGNAL, END_TIMEOUT, END_OOM, END_LOST = range(1, 6)
(F_READ, F_DIFF, F_LIST, F_PUT, F_MKDIR, F_REMOVE, F_SNAPSHOT) = range(1, 8)
STAGES = ("? spec cgroup limits namespaces idmap network workspace root dev "
          "proc pivot_root init enter stdio credentials landlock seccomp exec "
          "check").split()


def bytes_(b):
    if isinstance(b, str):
        b = os.fsencode(b)
    return struct.pack("<I", len(b)) + b


def list_(items):
    return struct.pack("<I", len(items)) + b"".join(bytes_(i) for i in items)


class Spec(dict):
    """Fields by name; what is not given has a value that works."""
    def __init__(self, **over):
        dict.__init__(
            self, slot=7, generation=1, side=AGENT, flags=0,
            cgroup=f"t{os.getpid()}", hostname="episode",
            init_uid=211000, uid=211001, gid=211001,
            memory=0, pids=0, cpu=0, files=1024, file_bytes=0,
            workspace_bytes=32 << 20, workspace_inodes=20000,
            tmp_bytes=16 << 20, tmp_inodes=4096, shm_bytes=4 << 20,
            teardown_ms=10000, rootfs="", assets="",
            read_only=["/usr", "/bin", "/sbin", "/lib", "/lib64"],
            read_write=["/tmp", "/var/tmp"], resolv_conf="", hosts="", env=[])
        self.update(over)

    def encode(self):
        s = self
        return b"".join([
            struct.pack("<IIIBI", 0x43505331, s["slot"], s["generation"],
                        s["side"], s["flags"]),
            bytes_(s["cgroup"]), bytes_(s["hostname"]),
            struct.pack("<III", s["init_uid"], s["uid"], s["gid"]),
            struct.pack("<11Q", s["memory"], s["pids"], s["cpu"], s["files"],
                        s["file_bytes"], s["workspace_bytes"],
                        s["workspace_inodes"], s["tmp_bytes"],
                        s["tmp_inodes"], s["shm_bytes"], s["teardown_ms"]),
            bytes_(s["rootfs"]), bytes_(s["assets"]), list_(s["read_only"]),
            list_(s["read_write"]), bytes_(s["resolv_conf"]),
            bytes_(s["hosts"]), list_(s["env"])])


def run_body(argv, env=(), cwd="", flags=0, timeout_ms=0):
    return (struct.pack("<IIQ", 0x4e555231, flags, timeout_ms) +
            bytes_(cwd) + list_(argv) + list_(env))


def sealed(data):
    fd = os.memfd_create("t", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data) if data else None
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW |
                fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return fd


class Result:
    """What one process left behind."""
    def __init__(self):
        self.out = self.err = self.event = b""
        self.end = self.status = None
        self.pid = self.user_us = self.system_us = self.peak = None
        self.not_started = None     # (stage, errno, text)
        self.links = (0, [])        # taken out of an oracle's copy

    @property
    def text(self):
        return (self.out + self.err).decode("utf-8", "replace")

    def __repr__(self):
        return (f"end={self.end} status={self.status} out={self.out!r} "
                f"err={self.err!r} not_started={self.not_started}")


class Keeper:
    def __init__(self, env=None, fds=(), user=None):
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock = mine
        keep = its.fileno()

        def child():
            os.dup2(keep, 3)
            os.set_inheritable(3, True)
            os.umask(0o077)  # as the helper starts it
            if user is not None:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
        self.proc = subprocess.Popen(
            [PROGRAM], env=env or {}, stdin=subprocess.DEVNULL,
            preexec_fn=child, close_fds=not fds,
            pass_fds=(3,) if not fds else ())
        its.close()
        self.seq = 0
        self.handle = 0
        self.inbox = []
        self.events = []
        self.stdio = {}
        self.results = {}
        self.failed = None
        self.init_pid = None
        self.watch = None
        self.order = []
        self.seen_seq = 0

    # ---- messages
    def send(self, kind, body=b"", fd=None, raw=None):
        head = struct.pack("<HHI", kind, 1, self.seq)
        self.seq += 1
        data = raw if raw is not None else head + body
        anc = []
        if fd is not None:
            fds = fd if isinstance(fd, (list, tuple)) else [fd]
            anc = [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                    array.array("i", fds))]
        self.sock.sendmsg([data], anc)

    def send_sealed(self, kind, content, body=b""):
        fd = sealed(content)
        self.send(kind, body, fd)
        os.close(fd)

    def recv(self, timeout=20):
        """(type, body, fd) or None at the end."""
        r, _, _ = select.select([self.sock], [], [], timeout)
        if not r:
            raise TimeoutError("keeper says nothing")
        try:
            data, anc, _, _ = self.sock.recvmsg(1 << 17, 256)
        except ConnectionResetError:
            return None
        if not data:
            return None
        kind, version, seq = struct.unpack("<HHI", data[:8])
        assert version == 1 and seq == self.seen_seq, (version, seq)
        self.seen_seq += 1
        fd = -1
        for level, what, b in anc:
            if (level, what) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fd = array.array("i", b)[0]
        self.order.append(kind)
        return kind, data[8:], fd

    def note(self, msg):
        """Files what is not waited for."""
        kind, body, fd = msg
        if kind == STDIO:
            handle, which = struct.unpack("<IB", body)
            self.stdio.setdefault(handle, {})[which] = fd
        elif kind == STARTED:
            handle, pid = struct.unpack("<II", body[:8])
            self.results[handle].pid = pid
            if len(body) > 8:  # an oracle's copy had links taken out
                n, size = struct.unpack("<II", body[8:16])
                self.results[handle].links = (
                    n, body[16:16 + size].split(b"\0")[:-1])
        elif kind == NOT_STARTED:
            handle, stage, en, n = struct.unpack("<IBII", body[:13])
            self.results[handle].not_started = (
                STAGES[stage], en, body[13:13 + n].decode())
        elif kind == EXITED:
            handle, end, status, u, s, peak = struct.unpack("<IBBQQQ", body)
            r = self.results[handle]
            r.end, r.status, r.user_us, r.system_us, r.peak = \
                end, status, u, s, peak
        elif kind == EVENT:
            what, seq, _ = struct.unpack("<BQB", body[:10])
            self.events.append((what, seq, body[10:]))
        elif kind == FAILED:
            stage, en, n = struct.unpack("<BII", body[:9])
            self.failed = (STAGES[stage], en, body[9:9 + n].decode())
        elif kind == READY:
            self.init_pid, = struct.unpack("<I", body)
        elif kind == WATCH:
            self.watch = fd

    def until(self, kinds, timeout=20):
        """The next of those kinds, everything before it noted."""
        deadline = time.monotonic() + timeout
        while True:
            msg = self.recv(max(0.01, deadline - time.monotonic()))
            if msg is None:
                return None
            self.note(msg)
            if msg[0] in kinds:
                return msg

    # ---- the usual
    def prepare(self, spec, cgroups=None):
        """As far as it goes without a network; build(None, netns=fd) next."""
        self.tell(spec, cgroups)
        self.send(PREPARE)

    def tell(self, spec, cgroups):
        self.spec = spec
        self.send_sealed(SPEC, spec.encode())
        if cgroups:
            for index, (fd, v1) in cgroups.fds.items():
                self.send(GIVE, struct.pack("<BI", FD_CGROUP,
                                            index | (CGROUP_V1 if v1 else 0)),
                          fd)

    def build(self, spec, cgroups=None, **fds):
        """fds: netns=, seed=, workspace=, upper=, assets=, disk="""
        if spec is not None:
            self.tell(spec, cgroups)
        kinds = dict(netns=FD_NETNS, seed=FD_SEED, workspace=FD_WORKSPACE,
                     upper=FD_UPPER, assets=FD_ASSETS, disk=FD_DISK)
        for name, fd in fds.items():
            self.send(GIVE, struct.pack("<BI", kinds[name], 0), fd)
        self.send(BUILD_IT)
        msg = self.until((READY, FAILED))
        return msg is not None and msg[0] == READY

    def start(self, argv, **how):
        self.handle += 1
        self.results[self.handle] = Result()
        self.send_sealed(RUN, run_body(argv, **how),
                         struct.pack("<I", self.handle))
        return self.handle

    def started(self, handle, timeout=20):
        r = self.results[handle]
        deadline = time.monotonic() + timeout
        while r.pid is None and r.not_started is None:
            if self.until((STARTED, NOT_STARTED),
                          deadline - time.monotonic()) is None:
                return False
        return r.pid is not None

    def finish(self, handle, stdin=None, timeout=30):
        """Reads its output to the end, and its exit."""
        r = self.results[handle]
        if not self.started(handle, timeout):
            return r
        fds = self.stdio.get(handle, {})
        if 0 in fds:
            os.set_blocking(fds[0], True)
            os.write(fds[0], stdin or b"")
            os.close(fds.pop(0))
        deadline = time.monotonic() + timeout
        names = {1: "out", 2: "err", 3: "event"}
        while fds or r.end is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{r}")
            ready, _, _ = select.select([*fds.values(), self.sock], [], [], 1)
            if self.sock in ready:
                msg = self.recv()
                if msg is None:
                    break
                self.note(msg)
            for which, fd in list(fds.items()):
                if fd in ready:
                    data = os.read(fd, 65536)
                    if data:
                        setattr(r, names[which],
                                getattr(r, names[which]) + data)
                    else:
                        os.close(fds.pop(which))
        return r

    def run(self, argv, stdin=None, timeout=30, **how):
        if stdin is not None:
            how["flags"] = how.get("flags", 0) | RUN_STDIN
        return self.finish(self.start(argv, **how), stdin, timeout)

    def sh(self, text, **how):
        return self.run(["/bin/bash", "-c", text], **how)

    def py(self, text, **how):
        return self.run(["/usr/bin/python3", "-c", text], **how)

    def file(self, op, path, mode=0, most=1 << 20, fd=None):
        """(result, size, text, data)"""
        self.handle += 1
        body = struct.pack("<IBIQ", self.handle, op, mode, most) + \
            bytes_(path)
        self.send(FILE if fd is None else FILE_PUT, body, fd)
        data = None
        while True:
            msg = self.until((FILE_DATA, FILE_DONE))
            if msg[0] == FILE_DATA:
                data = os.pread(msg[2], 1 << 26, 0)
                os.close(msg[2])
                continue
            _, result, size, n = struct.unpack("<IBQI", msg[1][:17])
            return result, size, msg[1][17:17 + n].decode(), data

    def connect(self, port):
        """A socket to that port inside, or an errno."""
        self.handle += 1
        self.send(CONNECT, struct.pack("<IH", self.handle, port))
        _, body, fd = self.until((CONNECTED,))
        request, en = struct.unpack("<II", body)
        assert request == self.handle and (fd < 0) == (en != 0)
        return en or socket.socket(fileno=fd)

    def end(self, timeout=30):
        """True when EMPTY and GONE came, and the keeper left well."""
        try:
            self.send(END)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return self.gone(timeout)

    def gone(self, timeout=30):
        kinds = []
        while True:
            msg = self.until(range(144, 160), timeout)
            if msg is None:
                break
            kinds.append(msg[0])
            if msg[0] == EMPTY:
                self.empty_us, = struct.unpack("<Q", msg[1])
        status = self.proc.wait(timeout)
        self.close()
        return kinds[-1:] == [GONE] and EMPTY in kinds and status == 0

    def close(self):
        self.sock.close()
        for fds in self.stdio.values():
            for fd in fds.values():
                try:
                    os.close(fd)
                except OSError:
                    pass
        self.stdio = {}
        if self.watch is not None:
            os.close(self.watch)
            self.watch = None
        try:
            self.proc.wait(30)
        except subprocess.TimeoutExpired:
            os.kill(self.proc.pid, signal.SIGKILL)
            self.proc.wait()


class Cgroups:
    """A parent for leaves in each hierarchy that can be had."""
    WHERE = [
        (0, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"), None),
        (1, ("/sys/fs/cgroup/memory",), "memory"),
        (2, ("/sys/fs/cgroup/pids",), "pids"),
        (3, ("/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu"), "cpu"),
    ]

    def __init__(self):
        self.fds, self.paths = {}, {}
        name = f"sallyport-t{os.getpid()}"
        for index, tops, controller in self.WHERE:
            for top in tops:
                v1 = controller is not None
                probe = f"{top}/cgroup.procs"
                if not os.path.exists(probe) or \
                        v1 == os.path.exists(f"{top}/cgroup.controllers"):
                    continue
                path = f"{top}/{name}"
                try:
                    os.makedirs(path, exist_ok=True)
                except OSError:  # in a container it is read-only
                    break
                self.paths[index] = path
                self.fds[index] = (os.open(path, os.O_RDONLY), v1)
                break
        self.unify()

    def unify(self):
        """A unified host: the one tree serves all matters."""
        if 0 not in self.paths:
            return
        path = self.paths[0]
        top = os.path.dirname(path)
        have = open(f"{top}/cgroup.controllers").read().split()
        for index, name in ((1, "memory"), (2, "pids"), (3, "cpu")):
            if index in self.fds or name not in have:
                continue
            try:
                for d in (top, path):
                    with open(f"{d}/cgroup.subtree_control", "w") as f:
                        f.write(f"+{name}")
            except OSError:
                continue
            self.paths[index] = path
            self.fds[index] = (os.open(path, os.O_RDONLY), False)

    def leaves(self):
        out = []
        for path in filter(os.path.isdir, set(self.paths.values())):
            out += [f"{path}/{n}" for n in os.listdir(path)
                    if os.path.isdir(f"{path}/{n}")]
        return out

    def close(self):
        for fd, _ in self.fds.values():
            os.close(fd)
        for path in set(self.paths.values()):
            for n in self.leaves() if os.path.isdir(path) else ():
                try:
                    with open(f"{n}/cgroup.kill", "w") as f:
                        f.write("1")
                except OSError:
                    pass
            deadline = time.monotonic() + 5
            while True:
                try:
                    for n in self.leaves():
                        os.rmdir(n)
                    os.rmdir(path)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.01)


def dump(k):
    print(json.dumps(dict(failed=k.failed, init=k.init_pid, order=k.order)))

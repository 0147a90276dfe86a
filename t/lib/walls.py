"""Whether sandboxes can be had on this host, asked of the kernel alone."""
import ctypes
import fcntl
import os
import subprocess

import tap

NEWUSER = 0x10000000
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWPID, NEWNET
NAMESPACES = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x20000000 | \
    0x40000000


def host_refuses(uid=None):
    """
    What root may not do here, as in a container, or what that ordinary user
    may not in a user namespace; empty if it may.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def step(what, rc):
        if rc != 0:
            os.write(w, f"{what}: {os.strerror(ctypes.get_errno())}".encode())
            os._exit(1)

    def become():
        """Root of a user namespace, as that user."""
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        libc.prctl(4, 1)  # PR_SET_DUMPABLE: /proc/self is its own again
        step("user namespaces", libc.unshare(NEWUSER))
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"),
                           ("gid_map", f"0 {uid} 1")):
            try:  # in no words that Python would look up as that user
                fd = os.open(f"/proc/self/{name}", os.O_WRONLY)
                os.write(fd, text.encode())
                os.close(fd)
            except OSError as e:
                ctypes.set_errno(e.errno)
                step(f"user namespaces with a {name}", -1)

    def mount(kind, where, flags=0, data=None):
        step(f"mounting {kind or where}", libc.mount(
            b"none", where.encode(), kind and kind.encode(),
            ctypes.c_ulong(flags), data and data.encode()))

    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        if uid is not None:
            become()
        step("namespaces", libc.unshare(NAMESPACES))
        if os.fork() == 0:
            mount(None, "/", 0x4000 | 0x40000)  # MS_REC | MS_PRIVATE
            mount("tmpfs", "/tmp")
            for d in ("lower", "upper", "work", "all", "proc", "pts"):
                os.mkdir(f"/tmp/{d}")
            mount("overlay", "/tmp/all", 0, "lowerdir=/tmp/lower,"
                  "upperdir=/tmp/upper,workdir=/tmp/work" +
                  ("" if uid is None else ",userxattr"))
            mount("proc", "/tmp/proc")
            mount("devpts", "/tmp/pts", 0, "newinstance")
            os._exit(0)
        os.wait()
        os._exit(0)
    os.close(w)
    os.waitpid(pid, 0)
    with os.fdopen(r, "rb") as f:
        return f.read().decode()


def user_refused(uid, *paths):
    """Why that ordinary user has no sandboxes here, or None."""
    for path in paths:
        if subprocess.run(
                ["setpriv", f"--reuid={uid}", f"--regid={uid}",
                 "--clear-groups", "test", "-x", path],
                check=False).returncode != 0:
            return f"{path} is not for every user"
    why = host_refuses(uid)
    return f"this host refuses ordinary users {why}" if why else None


def groups_refused():
    """Why root can make no control group of version 2 here, or None."""
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        lines = [line.split() for line in f]
    why = "none is mounted"
    for top in (m[4] for m in lines if m[m.index("-") + 1] == "cgroup2"):
        path = os.path.join(top, f"sallyport-walls-{os.getpid()}")
        try:
            os.mkdir(path)
            os.rmdir(path)
            return None
        except OSError as e:
            why = e
    return why


def disks_refused():
    """Why there is no file system of its own for a workspace, or None."""
    if not os.access("/dev/loop-control", os.W_OK):
        return "this host has no loop devices"
    with open("/proc/filesystems", encoding="utf-8") as f:
        return None if "\text4\n" in f.read() else "this kernel has no ext4"


def children(pid):
    """{pid: name} of those it has."""
    out = {}
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as f:
            for p in f.read().split():
                with open(f"/proc/{p}/comm", encoding="utf-8",
                          errors="replace") as name:
                    out[int(p)] = name.read().strip()
    except OSError:  # it is gone, or one of them
        pass
    return out


def is_stopped(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "T"
    except OSError:
        return False


def spares_are_back(helper):
    """
    Both keepers that are started ahead are there.  Until then one may be
    starting, which looks like a keeper, and there are descriptors to come.
    One that a test has stopped keeps the name, whoever has it.
    """
    return len([p for p, name in children(helper).items()
                if name == "sallyport-spare" and not is_stopped(p)]) == 2


def alone():
    """
    Waits until no other test works with sandboxes: some count processes,
    mounts and groups of the whole host.  Held as long as this process lives,
    and by nobody that it starts.
    """
    global lock
    lock = os.open(f"/tmp/sallyport-sandbox-tests-{os.geteuid()}",
                   os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)


def needed():
    """Skips the whole test where there can be none; alone() with them."""
    if os.geteuid() != 0:
        tap.skip_all("sandboxes need root here")
    for what, why in (("sandboxes", host_refuses()),
                      ("control groups", groups_refused())):
        if why:
            tap.skip_all(f"this host refuses {what}: {why}")
    alone()

#!/usr/bin/python3
"""Attacks from inside a sandbox: nothing gets through, nothing is left behind.
Numbers are those of the list of cases."""
import errno
import os
import resource
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
import walls  # noqa: E402
from sandbox import (CG, TMP, inside, nothing_left, of_sandbox,
                     poll, run_all, sandbox)  # noqa: E402


# ---- credentials and leaks --------------------------------------------------
def credentials():
    seed = f"{TMP}/suid-seed"
    os.makedirs(seed)
    shutil.copy("/usr/bin/id", f"{seed}/id")
    os.chown(f"{seed}/id", 0, 0)
    os.chmod(f"{seed}/id", 0o4755)
    os.chown(seed, 1000, 1000)
    fd = os.open(seed, os.O_RDONLY)
    k = sandbox(seed=fd)
    os.close(fd)

    status = dict(line.split(":", 1) for line in
                  k.sh("cat /proc/self/status").out.decode().splitlines())
    sets = {n: status[n].strip() for n in
            ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    tap.eq(set(sets.values()), {"0" * 16}, "4: no capability in any set")
    tap.eq((status["NoNewPrivs"].strip(), status["Seccomp"].strip(),
            status["Groups"].strip()), ("1", "2", ""),
           "2: no_new_privs, a filter, no groups")
    tap.eq(inside(k, "try:\n os.setuid(0); say('root')\n"
                     "except OSError as e: say(e.errno)"), "1",
           "3: setuid(0) is EPERM")
    r = k.sh("/workspace/id -u; su -c id </dev/null; sudo id </dev/null; true")
    tap.ok(b"211001" in r.out and b"uid=0" not in r.out,
           "3: set-uid programs give nothing", r)
    tap.eq(k.sh("for f in /proc/self/fd/*; do readlink $f; done | sort -u | "
                "grep -v pipe: | grep -v proc/").text.strip(), "/dev/null",
           "5: only 0, 1, 2 are open")
    tap.eq(k.run(["/usr/bin/env"], env=["A=1", "HOME=/x"]).out.decode()
           .splitlines().count("A=1"), 1, "10: a variable of the run")
    env = dict(line.split("=", 1) for line in
               k.run(["/usr/bin/env"]).out.decode().splitlines())
    tap.eq(sorted(env), sorted("PATH HOME USER LOGNAME SHELL LANG TMPDIR"
                               .split()), "10: no other variable")
    tap.ok(b"\n" not in k.sh("ls /proc | grep '^[0-9]*$' | wc -l").out.strip()
           and int(k.sh("ls -d /proc/[0-9]* | wc -l").out) < 10,
           "7: the host's processes are not seen")
    r = k.sh("for p in /proc/[0-9]*; do : >$p/exe; done 2>&1; "
             "cat /proc/1/environ /proc/1/maps /proc/1/mem 2>&1; "
             "ls -l /proc/1/fd /proc/1/exe 2>&1; kill -9 1; kill 1; "
             "echo alive")
    tap.ok(b"alive" in r.out and b"sallyport-init\n" not in r.out
           and b"[heap]" not in r.out, "7, 11: pid 1 can be neither read nor "
           "written nor killed", r)
    p = k.start(["/bin/sleep", "30"])
    k.started(p)
    pid = k.results[p].pid
    tap.eq(inside(k, f"say(sysc(101, 16, {pid}, 0, 0), sysc(310, {pid}, 0, 0, "
                     f"0, 0, 0), sysc(438, sysc(434, {pid}, 0), 0, 0))"),
           "1 1 1", "11: ptrace, process_vm_readv, pidfd_getfd")
    tap.eq(inside(k, f"try:\n open('/proc/{pid}/mem','rb'); say('open')\n"
                     "except OSError as e: say(e.errno)"), "13",
           "11: another's memory through /proc")
    tap.eq(inside(k, f"os.kill({pid}, 15); say('sent')"), "sent",
           "a command may still stop another one")
    k.finish(p)
    tap.eq(inside(k, "import fcntl\nfor r in (0x5412, 0x541c, 0x5423):\n"
                     " say(sysc(16, 0, r, b'x'), sysc(16, 0, 0x100000000 + r, "
                     "b'x'))"), "1 1\n1 1\n1 1",
           "15: TIOCSTI, TIOCLINUX, TIOCSETD, also with high bits")
    tap.eq(inside(k, "import struct\n"
                     "s = socket.socket(type=socket.SOCK_DGRAM)\n"
                     "b = ctypes.create_string_buffer(struct.pack('HBBI', 6, "
                     "0, 0, 0))\n"
                     "f = struct.pack('@HP', 1, ctypes.addressof(b))\n"
                     "for o in (26, 51):\n"
                     " say(sysc(54, s.fileno(), 1, o, f, len(f)))\n"
                     "s.setsockopt(1, 7, 4096)"), "1\n1",
           "no program of a socket's goes into the kernel")
    tap.eq(inside(k, "fd = os.open('/tmp/f', os.O_CREAT)\n"
                     "for c in (1024, 1040):\n for v in (0, 1):\n"
                     "  say(sysc(72, fd, c, v))"), "22\n22\n22\n22",
           "nobody waits for a lease of the workload's")
    r = k.sh("tty; ls -l /dev/tty; cat </dev/tty; true")
    tap.ok(b"not a tty" in r.out, "15: no terminal", r)
    tap.ok(k.end(), "the sandbox ends")
    nothing_left("credentials")


# ---- system calls -----------------------------------------------------------
def syscalls():
    k = sandbox()
    e = inside
    tap.eq(e(k, "say(*[sysc(272, f) for f in (0x10000000, 0x20000, 0x20000000,"
                " 0x40000000, 0x8000000, 0x4000000, 0x2000000, 0x80)])"),
           " ".join(["1"] * 8), "21: unshare of any namespace")
    tap.eq(e(k, "say(*[sysc(56, f | 17, 0, 0, 0, 0) for f in (0x10000000, "
                "0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, "
                "0x2000000)])"), " ".join(["1"] * 7),
           "21: clone with any CLONE_NEW*")
    tap.eq(e(k, "say(sysc(435, b'\\0' * 88, 88))"), str(errno.ENOSYS),
           "22: clone3 is ENOSYS")
    tap.eq(e(k, "import threading, subprocess\nt = threading.Thread(target="
                "lambda: say('thread')); t.start(); t.join()\n"
                "say(subprocess.run(['/bin/echo', 'child'], "
                "capture_output=True).stdout.decode().strip())"),
           "thread\nchild", "22: threads and children work")
    tap.eq(e(k, "say(*[sysc(n, b'tmpfs', 0, 0, 0, 0) for n in (430, 431, 432, "
                "433, 428, 429, 442, 165, 166, 155, 161)])"),
           " ".join(["1"] * 11), "23: both mount interfaces")
    tap.eq(e(k, "fd = os.open('/proc/self/ns/mnt', 0)\nsay(sysc(308, fd, 0))"),
           "1", "25: setns")
    tap.eq(e(k, "b = ctypes.create_string_buffer(256)\n"
                "say(sysc(425, 8, b), sysc(426, 0, 0, 0, 0, 0), "
                "sysc(427, 0, 0, 0, 0))"), "1 1 1", "26: io_uring")
    tap.eq(e(k, "b = ctypes.create_string_buffer(8)\n"
                "say(*[sysc(n, 1, b, 0, 0, 0, 0) for n in (206, 207, 208, "
                "209, 210, 333)])"), " ".join(["1"] * 6),
           "the AIO of the host, which has one bound")
    tap.eq(e(k, "say(*[sysc(n, 0, 0, 0, 0, 0) for n in (323, 321, 298, 246, "
                "320, 175, 313, 176, 300)])"), " ".join(["1"] * 9),
           "27: userfaultfd, bpf, perf, kexec, modules, fanotify")
    tap.eq(e(k, "say(*[sysc(n, b'user', b'a', b'b', 1, -4) for n in (248, 249,"
                " 250)])"), "1 1 1", "28: keyrings")
    tap.eq(e(k, "say(*[sysc(n, 0, 0, 0, 0, 0) for n in (303, 304, 169, 103, "
                "163, 167, 168, 227, 305, 159, 172, 173)])"),
           " ".join(["1"] * 12), "47, 27: handles, and what is the host's")
    tap.eq(e(k, "bad = []\nfor f in range(64):\n try:\n"
                "  socket.socket(f, socket.SOCK_DGRAM, 0); bad.append(f)\n"
                " except OSError as x:\n"
                "  if f in (1, 2, 10, 16): bad.append((f, x.errno))\n"
                "  elif x.errno != 97: bad.append((f, x.errno))\nsay(bad)"),
           "[1, 2, 10, 16]", "31, 32: domains by allow list")
    tap.eq(e(k, "say(*[sysc(41, f, 2, 0) for f in (0x100000028, 0x80000000, "
                "0x100000010 | 0x20, 17)])"), "97 97 97 97",
           "32: domains with high bits")
    tap.eq(e(k, "say(*[sysc(41, 16, 3, p) for p in (1, 4, 9, 12, 15, 16, "
                "0x10000, 0x80000000)])"), " ".join(["93"] * 8),
           "32: netlink but for route")
    tap.eq(e(k, "say([n for _, n in socket.if_nameindex()])"), "['lo']",
           "33: interfaces can be listed, and there is lo alone")
    if shutil.which("node") and shutil.which("node").startswith("/usr/"):
        r = k.run(["node", "-e", "console.log(Object.keys(require('os')"
                                 ".networkInterfaces()).length >= 0)"])
        tap.eq(r.out.strip(), b"true", "33: node lists them, too")
    else:
        tap.skip("33: node lists them, too", "no node in /usr")
    tap.eq(e(k, "out = []\nfor a in ((2, 3, 1), (10, 3, 1), (2, 10, 768), "
                "(17, 3, 768), (2, 2, 1)):\n try:\n"
                "  socket.socket(*a); out.append(0)\n"
                " except OSError as x: out.append(x.errno)\nsay(*out)"),
           "1 1 1 97 13", "35: raw, packet, ping sockets")
    tap.eq(k.sh("ls /proc/sys/net/ipv6/conf 2>/dev/null | wc -l >/dev/null; "
                "cat /proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null || "
                "echo 1").text.strip(), "1", "no IPv6 in a network of its own")
    tap.ok(k.end(), "the sandbox ends")
    nothing_left("system calls")


PROBE = r"""
#include <unistd.h>
int main(int argc, char **argv)
{
	long r;

	(void)argv;
	if (argc > 1) /* x32's getpid */
		__asm__ volatile("syscall" : "=a"(r) : "a"(0x40000000L + 39)
		    : "rcx", "r11", "memory");
	else /* i386's getpid */
		__asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory");
	return 42;
}
"""


def other_abis():
    if os.uname().machine != "x86_64" or not shutil.which("gcc"):
        tap.skip("29: other ABIs", "x86-64 and gcc are needed")
        return
    seed = f"{TMP}/abi"
    os.makedirs(seed)
    with open(f"{TMP}/abi.c", "w", encoding="utf-8") as f:
        f.write(PROBE)
    subprocess.run(["gcc", "-o", f"{seed}/probe", f"{TMP}/abi.c"], check=True)
    fd = os.open(seed, os.O_RDONLY)
    k = sandbox(seed=fd)
    os.close(fd)
    for args, what in (([], "int 0x80"), (["x"], "x32")):
        r = k.run(["/workspace/probe", *args])
        tap.eq((r.end, r.status), (K.END_SIGNAL, signal.SIGSYS),
               f"29: {what} kills the process")
    k.end()
    nothing_left("other ABIs")


# ---- objects and file systems -----------------------------------------------
def filesystems():
    k = sandbox()
    out = k.sh("for f in sysrq-trigger sys/kernel/core_pattern "
               "sys/kernel/hostname sys/vm/drop_caches; do "
               "echo x 2>/dev/null >/proc/$f && echo wrote $f; done; "
               "wc -c </proc/kallsyms; wc -c </proc/keys; "
               "wc -c </proc/timer_list; ls /proc/acpi /proc/driver; "
               "cat /proc/kcore 2>/dev/null | head -c 4 | wc -c").text
    tap.ok("wrote" not in out and [w for w in out.split() if w.isdigit()] ==
           ["0"] * 4, "39: /proc's dangerous files", out)
    tap.eq(k.sh("cd /proc; cat locks pressure/* diskstats partitions cmdline "
                "config.gz 2>/dev/null | wc -c; ls pressure | wc -l; "
                "mkdir pressure/x 2>/dev/null || echo no").text.split(),
           ["0", "0", "no"], "39: nor what tells of the host's others")
    tap.eq(k.run(["/usr/bin/python3", "-c", """
import multiprocessing, os, platform, resource, shutil, socket, subprocess
print(os.cpu_count() > 0, os.getloadavg()[0] >= 0, platform.uname()[0],
      os.sysconf("SC_PHYS_PAGES") > 0, shutil.disk_usage("/").total > 0,
      subprocess.run(["ps", "-A"], capture_output=True).returncode)
"""]).out.split(), [b"True", b"True", b"Linux", b"True", b"True", b"0"],
           "39: Python and ps find what they need")
    node = shutil.which("node", path="/usr/bin:/bin")
    if node:
        tap.eq(k.run([node, "-p", "var o = require('os'); o.cpus().length > 0 "
                      "&& o.freemem() > 0 && o.uptime() > 0"]).out.strip(),
               b"true", "39: and node")
    else:
        tap.skip("39: and node", "there is none in /usr/bin")
    tap.eq(k.sh("ls /sys 2>&1 | head -1; find / -xdev -writable "
                "-not -type l 2>/dev/null | grep -vxE '/(home/agent|workspace|"
                "tmp|var/tmp)'").text.strip(),
           "ls: cannot access '/sys': No such file or directory",
           "41, 43: no /sys, no cgroup tree; nothing of the root is writable")
    tap.eq(k.sh("cd && echo x >x && cat x && grep -c agent /etc/passwd").out,
           b"x\n1\n", "61: a home of its own, and names to be read")
    tap.eq(k.sh("echo x >/usr/x; echo x >/etc/passwd; echo x >/x; "
                "mkdir /home/b; rm /bin/sh; touch /dev/x").text.count("\n"),
           6, "the root is read-only")
    tap.eq(k.sh("awk '{print $4}' /proc/mounts | grep -v nosuid | wc -l; "
                "awk '$2 !~ \"^/dev(/pts)?$\" {print $4}' /proc/mounts | "
                "grep -vc nodev").text.split(), ["0", "0"],
           "3: every mount is nosuid, and nodev but for /dev")
    name = f"sp-walls-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as host:
        host.bind("\0" + name)
        host.listen()
        tap.eq(inside(k, "s = socket.socket(socket.AF_UNIX)\n"
                         f"say(s.connect_ex('\\0{name}'))"),
               str(errno.ECONNREFUSED),
               "45: an abstract socket of the host")
    tap.eq(inside(k, "import ctypes\nsay(sysc(29, 0x5350, 4096, 0o1666), "
                     "sysc(64, 0x5350, 1, 0o1666), sysc(68, 0x5350, 0o1666))"),
           "0 0 0", "36: System V objects can be made")
    tap.eq(subprocess.run("ipcs -a | grep -ci 5350", shell=True,
                          capture_output=True, text=True).stdout.strip(), "0",
           "36: and are not the host's")
    tap.eq(k.sh("mknod /workspace/w c 0 0 2>&1; mknod /tmp/w c 0 0 2>&1; "
                "mknod /tmp/w b 7 0 2>&1; mkdir /workspace/d; "
                "setfattr -n trusted.overlay.opaque -v y /workspace/d 2>&1; "
                "chattr +i /workspace/d 2>&1; ls /workspace /tmp")
           .text.count("\n") >= 5, True, "71: whiteouts, devices, attributes")
    tap.eq(k.sh("ls /tmp; ls -A /workspace").text.split(), ["d"],
           "71: none was made")
    # pseudo terminals are the sandbox's own
    tap.eq(inside(k, "m, s = os.openpty(); os.write(s, b'x'); "
                     "say(os.read(m, 1), os.ttyname(s))"),
           "b'x' /dev/pts/0", "a pseudo terminal works")
    tap.eq(inside(k, "x = []\ntry:\n while len(x) < 300: "
                     "x.append(os.open('/dev/ptmx', 2))\n"
                     "except OSError as e: say(len(x), e.errno)"),
           "64 28", "and their number is bounded apart from the host's")
    r = k.sh("echo out >/dev/stdout; echo err >/dev/stderr")
    tap.eq((r.out, r.err), (b"out\n", b"err\n"),
           "standard output can be opened again")
    k.end()
    nothing_left("file systems")


def hostile_seed():
    """40: a workspace that holds what set-up might follow."""
    seed = f"{TMP}/hostile"
    os.makedirs(seed)
    for name in ("dev", "proc", "etc"):
        os.makedirs(f"{seed}/{name}")
    os.symlink("/etc/passwd", f"{seed}/dev/null")
    os.symlink("/etc", f"{seed}/proc/sys")
    os.symlink("/root", f"{seed}/r")
    fd = os.open(seed, os.O_RDONLY)
    k = sandbox(seed=fd)
    os.close(fd)
    tap.eq(k.sh("stat -c %F /dev/null; ls /workspace/r /workspace/r/ 2>&1 | "
                "grep -c 'No such'").text.strip(),
           "character special file\n1", "40: links in a seed lead nowhere")
    tap.eq(k.sh("stat -c '%U %G' /workspace /workspace/dev").text.split(),
           ["agent"] * 4, "the seed is the sandbox's own")
    k.sh("echo new >/workspace/n; rm -r /workspace/proc")
    k.end()
    tap.eq(sorted(os.listdir(seed)), ["dev", "etc", "proc", "r"],
           "and never changes")
    nothing_left("a hostile seed")


# ---- processes and limits ---------------------------------------------------
def processes():
    k = sandbox(K.Spec(pids=64))
    k.sh("for i in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP INT; "
         "sleep 999' >/dev/null 2>&1 & done; "
         "nohup sleep 999 >/dev/null 2>&1 &")
    tap.ok(poll(lambda: len(of_sandbox()) >= 4), "49: daemons run")
    r = k.sh("for i in $(seq 300); do (sleep 0 & ) ; done; "
             "ls -d /proc/[0-9]* | wc -l; grep -l '^State.*Z' "
             "/proc/[0-9]*/status 2>/dev/null | wc -l")
    tap.ok(r.end == K.END_EXIT and int(r.out.split()[0]) < 40,
           "54: orphans are reaped", r)
    if 2 in CG.fds:
        r = k.run(["/usr/bin/python3", "-c",
                   "import os\nn = 0\ntry:\n while n < 500:\n"
                   "  if os.fork() == 0: os.read(os.pipe()[0], 1)\n  n += 1\n"
                   "except OSError as e: print(e.errno, n < 64, flush=True)\n"
                   "os.killpg(0, 9)"])
        tap.eq(r.out.split(), [b"11", b"True"], "51: forks end at the bound")
    else:
        tap.skip("51: forks end at the bound", "no pids controller")
    started = time.monotonic()
    tap.ok(k.end(), "49: the end takes them all")
    tap.ok(time.monotonic() - started < 30, "within its time")
    nothing_left("daemons")


def storm():
    """50: processes that fork while they are killed."""
    k = sandbox(K.Spec(pids=200))
    code = ("import os, time\nt = time.time() + 20\nwhile time.time() < t:\n"
            " try:\n  if os.fork() == 0: os.setsid()\n except OSError: pass")
    if 2 not in CG.fds:
        tap.skip("50: a storm", "no pids controller bounds it")
    else:
        for _ in range(2):
            k.started(k.start(["/usr/bin/python3", "-c", code]))
        poll(lambda: len(of_sandbox()) > 100, 5)
        tap.ok(k.end(), "50: a storm of forks is killed")
    nothing_left("a storm")


def memory():
    if 1 not in CG.fds:
        tap.skip("55: memory", "no memory controller")
        return
    k = sandbox(K.Spec(memory=48 << 20, workspace_bytes=8 << 20,
                       tmp_bytes=1 << 20, shm_bytes=1 << 20))
    p = k.start(["/usr/bin/python3", "-c",
                 "b = []\nwhile True: b.append(bytearray(1 << 20))"])
    k.finish(p)
    tap.eq(k.results[p].end, K.END_OOM, "55: out of memory is told as that")
    tap.ok(any(e[0] == 3 for e in k.events), "55: and as an event")
    # everybody went: no half of a workload goes on
    tap.ok(k.gone(), "55: the sandbox went with it")
    nothing_left("out of memory")


def full():
    k = sandbox(K.Spec(workspace_bytes=8 << 20, workspace_inodes=300,
                       tmp_bytes=1 << 20, tmp_inodes=64, shm_bytes=1 << 20))
    r = k.sh("dd if=/dev/zero of=/workspace/f bs=1M count=64 2>&1 | "
             "grep -c 'No space'; rm /workspace/f; "
             "i=0; while : >/workspace/n$i; do i=$((i+1)); done 2>/dev/null; "
             "[ $i -lt 400 ] && echo inodes; "
             "for d in /tmp /dev/shm $HOME /var/tmp; do "
             "dd if=/dev/zero of=$d/f bs=1M count=8 2>&1 | "
             "grep -c 'No space'; done")
    tap.eq(r.text.split(), ["1", "inodes", "1", "1", "1", "1"],
           "57: full is ENOSPC, wherever it is")
    tap.ok(k.end(), "57: and ends as well")
    nothing_left("full disks")


def limits():
    k = sandbox(K.Spec(files=200, file_bytes=1 << 20))
    out = k.sh("ulimit -c; ulimit -n; ulimit -Hn; ulimit -f; ulimit -r; "
               "grep -E 'core|locked|msgqueue|pending' /proc/self/limits | "
               "awk '{print $(NF-2)}'; umask").text.split()
    tap.eq(out, ["0", "200", "200", "1024", "0", "1", "8388608", "4096",
                 "819200", "0002"], "59: resource limits and umask")
    r = k.sh("dd if=/dev/zero of=/workspace/f bs=1M count=2 2>&1; echo $?")
    tap.ok(b"153" in r.out or b"too large" in r.out, "59: file size", r)
    k.end()
    # who starts it may have allowed less, and nobody may be able to raise it
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            k = sandbox(K.Spec())
            said = k.sh("grep core /proc/self/limits | awk '{print $5, $6}'"
                        ).text
            k.end()
        finally:
            os._exit(0 if said == "0 0\n" else 1)
    tap.eq(os.waitpid(child, 0)[1], 0,
           "59: no more of cores than the helper has")
    nothing_left("limits")


# ---- what runs, and how -----------------------------------------------------
def running():
    k = sandbox(K.Spec(env=["A=spec", "B=spec"]))
    r = k.run(["/bin/cat"], stdin=b"in\0put")
    tap.eq(r.out, b"in\0put", "standard input is a pipe, if asked for")
    r = k.sh("echo $A$B$C; pwd; cat", env=["B=run", "C=run"], cwd="/tmp")
    tap.eq(r.out, b"specrunrun\n/tmp\n", "variables and directory; no input")
    r = k.sh("echo a; echo b >&2", flags=K.RUN_ERR_TO_OUT)
    tap.eq((r.out, r.err), (b"a\nb\n", b""), "both outputs in one")
    r = k.sh("echo e >&$OPENENVD_EVENT_FD; ls /proc/self/fd | tr '\\n' ' '",
             flags=K.RUN_EVENT_FD)
    tap.eq((r.event, r.out), (b"e\n", b"0 1 2 3 4 "), "an event pipe")
    r = k.run(["true"])
    tap.eq(r.status, 0, "a name is looked up in PATH")
    r = k.run(["/nonexistent"])
    tap.eq(r.not_started[:2], ("exec", errno.ENOENT), "no such program")
    r = k.run(["/bin/true"], cwd="/nonexistent")
    tap.eq(r.not_started[:2], ("exec", errno.ENOENT), "no such directory")
    r = k.run(["/workspace"])
    tap.eq(r.not_started[:2], ("exec", errno.EACCES), "not a program")
    r = k.sh("exit 7")
    tap.eq((r.end, r.status), (K.END_EXIT, 7), "an exit status")
    r = k.py("import os; os.abort()")
    tap.eq((r.end, r.status), (K.END_SIGNAL, signal.SIGABRT), "a signal")
    r = k.run(["/usr/bin/python3", "-c", "import sys; print(sys.argv[1:])",
               "", "a b", "$x", "\n", "*"])
    tap.eq(r.out, b"['', 'a b', '$x', '\\n', '*']\n", "arguments as they are")
    many = [k.start(["/bin/sh", "-c", f"echo {i}"]) for i in range(40)]
    tap.eq([k.finish(p).out for p in many],
           [f"{i}\n".encode() for i in range(40)], "forty at once")
    k.end()
    nothing_left("running")


def shared():
    """Agent and worker on one workspace: apart in all else."""
    a = sandbox(K.Spec(cgroup=f"t{os.getpid()}-agent"))
    a.send(K.SHARE, struct.pack("<I", 9))
    msg = a.until((K.SHARED,))
    tap.eq(struct.unpack("<I", msg[1]), (9,), "the workspace is shared")
    w = sandbox(K.Spec(cgroup=f"t{os.getpid()}-worker", side=K.WORKER,
                       uid=211002), workspace=msg[2])
    os.close(msg[2])
    a.sh("echo agent >/workspace/a; mkdir /workspace/d; echo x >/tmp/a")
    w.sh("echo worker >/workspace/w; echo worker >>/workspace/a; "
         "echo w >/workspace/d/w; rm /workspace/d/w")
    tap.eq(a.sh("cat /workspace/a /workspace/w; stat -c %u /workspace/w").text
           .split(), ["agent", "worker", "worker", "211002"],
           "both write in it")
    tap.eq(w.sh("ls /tmp /home; id -un; echo $HOME").text.split(),
           ["/home:", "worker", "/tmp:", "worker", "/home/worker"],
           "all else is each one's own")
    p = a.start(["/bin/sleep", "60"])
    a.started(p)
    r = w.sh("ls -d /proc/[0-9]* | wc -l; grep -c sleep /proc/[0-9]*/comm")
    tap.ok(int(r.out.split()[0]) <= 5 and b":1" not in r.out,
           "11: neither sees the other's processes", r)
    tap.ok(a.end(), "the agent's ends")
    tap.eq(w.sh("cat /workspace/a").out, b"agent\nworker\n",
           "the worker keeps the workspace")
    tap.ok(w.end(), "the worker's ends")
    nothing_left("a shared workspace")


def watched():
    k = K.Keeper()
    k.build(K.Spec(flags=K.WATCH_FILES), CG)
    tap.ok(k.watch is not None, "files are watched")
    k.sh("echo x >/workspace/seen")
    data = os.read(k.watch, 65536)
    tap.ok(b"\4\0\0\0seen" in data or b"\0\0\0\4seen" in data,
           "O1: a new file is seen", data)
    k.end()
    nothing_left("watched files")


# ---- files, from outside ------------------------------------------------------
def files():
    seed = f"{TMP}/files-seed"
    os.makedirs(f"{seed}/d")
    for name in ("kept", "changed", "d/gone"):
        with open(f"{seed}/{name}", "w", encoding="utf-8") as f:
            f.write("seed\n")
    fd = os.open(seed, os.O_RDONLY)
    k = sandbox(seed=fd)
    os.close(fd)
    OK, NOT_FOUND, ESCAPES, SPECIAL = 1, 2, 3, 4
    data = K.sealed(b"put\n")
    tap.eq(k.file(K.F_PUT, "/workspace/new/f", 0o640, fd=data)[:2], (OK, 4),
           "a file is put")
    os.close(data)
    tap.eq(k.sh("cat /workspace/new/f; stat -c '%U %a' /workspace/new/f; "
                "echo more >>/workspace/new/f").text.split(),
           ["put", "agent", "640"], "it is the sandbox's own")
    tap.eq(k.file(K.F_READ, "/workspace/new/f")[::3], (OK, b"put\nmore\n"),
           "and read")
    k.sh("ln -s /etc d; ln -s /proc/self/root r; mkfifo p; "
         "mkdir -p 0/1; echo s >0/1/s; chmod 0 0/1/s 0/1 0; "
         "echo x >changed; rm d/gone; echo t >/tmp/t; echo h >~/h")
    tap.eq([k.file(K.F_READ, p)[0] for p in
            ("/workspace/d/passwd", "/workspace/r/etc/shadow",
             "/workspace/../etc/passwd", "/workspace/p", "/dev/zero",
             "/workspace/none", "/workspace/0/1/s", "/tmp/t",
             "/home/agent/h", "/etc/hostname")],
           [NOT_FOUND, ESCAPES, ESCAPES, SPECIAL, ESCAPES, NOT_FOUND, OK, OK,
            OK, OK], "62, 64, 68: links, FIFOs, devices, modes")
    result, _, text, records = k.file(K.F_DIFF, "/workspace")
    tap.ok(result == OK and b"changed" in records and b"gone" in records and
           b"kept" not in records, "a diff has what changed", (result, text))
    tap.eq(k.file(K.F_LIST, "/workspace")[0], OK, "a directory is listed")
    tap.eq(k.file(K.F_MKDIR, "/workspace/m/n", 0o755)[0], OK, "one is made")
    tap.eq(k.file(K.F_REMOVE, "/workspace/0")[0], OK, "a tree is removed")
    tap.eq(k.sh("ls -d 0 m/n").out, b"m/n\n", "as the sandbox sees")
    # a private copy for one that grades: what it does stays there
    snap = f"{TMP}/snap"
    os.makedirs(snap)
    to = os.open(snap, os.O_RDONLY)
    tap.eq(k.file(K.F_SNAPSHOT, "/workspace", most=64 << 20, fd=to)[0], OK,
           "the upper layer is copied")
    fd = os.open(seed, os.O_RDONLY)
    o = sandbox(K.Spec(cgroup=f"t{os.getpid()}-oracle", side=K.ORACLE),
                seed=fd, upper=to)
    os.close(fd)
    os.close(to)
    got = o.sh("cat changed new/f kept; ls d/gone; echo graded >changed")
    tap.eq(got.out, b"x\nput\nmore\nseed\n", "79: an oracle sees the changes")
    tap.eq(got.links, (1, [b"r"]), "and no link to what is its own")
    tap.eq(k.sh("cat changed").out, b"x\n", "81: and changes nothing itself")
    tap.ok(o.end() and k.end(), "both end")
    # work that never ends does not hold up the end
    k = sandbox()
    r, w = os.pipe()
    k.send(K.FILE_PUT, struct.pack("<IBIQ", 77, K.F_PUT, 0, 1 << 20) +
           K.bytes_("/workspace/f"), r)
    os.close(r)
    tap.ok(k.end(), "60: the end comes while a file is being put")
    os.close(w)
    nothing_left("files")


# ---- other ways to build one -------------------------------------------------
def image():
    """rootfs: an unpacked image, with links that lead out of it."""
    root = f"{TMP}/image"
    for d in ("usr/bin", "etc", "var", "lib"):
        os.makedirs(f"{root}/{d}")
    for src in ("/bin/bash", "/usr/bin/ls", "/usr/bin/cat"):
        shutil.copy(src, f"{root}/usr/bin/{os.path.basename(src)}")
        for word in subprocess.run(["ldd", src], capture_output=True,
                                   text=True).stdout.split():
            if word.startswith("/") and os.path.exists(word):
                os.makedirs(root + os.path.dirname(word), exist_ok=True)
                shutil.copy(word, root + word)
    os.symlink("usr/bin", f"{root}/bin")
    os.symlink("/var/tmp", f"{root}/tmp")
    os.symlink("/root/.ssh", f"{root}/etc/hosts")
    os.symlink("../../../../../../../etc", f"{root}/openenvd")
    os.chmod(f"{root}/etc", 0o755)
    before = sorted(os.listdir(root))
    k = sandbox(K.Spec(rootfs=root, read_only=[]))
    r = k.sh("ls -l /etc/hosts; cat /etc/hosts; echo x >/x; ls /; echo t >/tmp/t;"
             " ls /var/tmp; echo w >/workspace/w && cat /workspace/w")
    tap.ok(b"127.0.0.1 localhost" in r.out and b"Read-only" in r.err and
           r.out.endswith(b"t\nw\n"), "an image as the root", r)
    # where the keeper's own root would lead it is the host's
    tap.eq(k.file(K.F_READ, "/tmp/t")[3], b"t\n", "its links stay in it")
    fd = os.memfd_create("put")
    os.write(fd, b"mine")
    name = f"/tmp/sallyport-{os.getpid()}"
    tap.eq((k.file(K.F_PUT, name, fd=fd)[0], os.path.exists("/var" + name),
            k.sh(f"cat {name}").out), (1, False, b"mine"),
           "for what is put there, too")
    os.close(fd)
    k.end()
    tap.eq((sorted(os.listdir(root)), os.listdir(f"{root}/var"),
            os.readlink(f"{root}/etc/hosts")),
           (before, [], "/root/.ssh"),
           "the image does not change")
    nothing_left("an image")


def disk():
    if walls.disks_refused():
        tap.skip("a workspace on disk", walls.disks_refused())
        return
    where = f"{TMP}/disk"
    os.makedirs(where)
    fd = os.open(where, os.O_RDONLY)
    k = sandbox(disk=fd)
    tap.eq(k.sh("echo d >/workspace/f; cat /workspace/f").out, b"d\n",
           "a workspace on disk")
    tap.eq(os.listdir(where), [], "its file has no name")
    other = sandbox(K.Spec(cgroup=f"t{os.getpid()}-2"), disk=fd)
    os.close(fd)
    tap.eq(other.sh("ls /workspace").out, b"",
           "74: another with the same directory has a file of its own")
    k.end()
    other.end()
    nothing_left("a workspace on disk")


def assets():
    where = f"{TMP}/assets"
    os.makedirs(where)
    with open(f"{where}/grade.sh", "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\necho graded\n")
    os.chmod(f"{where}/grade.sh", 0o700)
    os.chmod(where, 0o700)
    fd = os.open(where, os.O_RDONLY)
    k = sandbox(K.Spec(side=K.ORACLE), assets=fd)
    os.close(fd)
    tap.eq(k.sh("/openenvd/assets/grade.sh; echo x >/openenvd/assets/x").out,
           b"graded\n", "assets can be read and run, by their sandbox alone")
    tap.eq(os.listdir(where), ["grade.sh"], "and not written")
    k.end()
    k = sandbox()
    tap.ok(b"No such" in k.sh("ls /openenvd").err, "another has none")
    k.end()
    nothing_left("assets")


def ordinary():
    """The same walls for an ordinary user, by a user namespace."""
    folder = f"{TMP}/bin"
    os.makedirs(folder)
    shutil.copy(K.PROGRAM, f"{folder}/sallyport-init")
    os.chmod(f"{folder}/sallyport-init", 0o755)
    seed = f"{TMP}/user-seed"
    os.makedirs(seed)
    with open(f"{seed}/s", "w", encoding="utf-8") as f:
        f.write("seed\n")
    os.chown(seed, 64990, 64990)
    os.chown(f"{seed}/s", 64990, 64990)
    full_path, K.PROGRAM = K.PROGRAM, f"{folder}/sallyport-init"
    fd = os.open(seed, os.O_RDONLY)
    try:
        k = K.Keeper(user=64990)
        built = k.build(K.Spec(flags=K.USERNS), seed=fd)
    finally:
        K.PROGRAM = full_path
        os.close(fd)
    if not built and k.failed and k.failed[0] == "namespaces":
        k.gone()
        tap.skip("R: an ordinary user", k.failed[2])
        return
    tap.ok(built, "R: an ordinary user's sandbox", k.failed)
    r = k.sh("id -u; cat /workspace/s; echo x >>/workspace/s; echo y "
             ">/workspace/y; ls /workspace; ls -d /proc/[0-9]* | wc -l")
    tap.eq(r.out.split()[:4], [b"211001", b"seed", b"s", b"y"],
           "R: with its own uid and workspace")
    tap.eq(k.sh("grep -E 'Cap|NoNew|Seccomp:' /proc/self/status | "
                "awk '{print $2}' | sort | uniq -c | awk '{print $1}'").text
           .split(), ["5", "1", "1"], "R: without privilege, filtered")
    tap.eq(inside(k, "say(sysc(272, 0x10000000), sysc(165, 0, 0, 0, 0, 0))"),
           "1 1", "R: system calls are refused all the same")
    r = k.sh("cat /proc/1/mem /proc/1/environ; ls -l /proc/1/exe; "
             "echo x >/usr/x; true")
    tap.ok(r.out == b"" or b"->" not in r.out, "R: nor is pid 1 to be read", r)
    p = k.start(["/bin/sleep", "99"])
    k.started(p)
    tap.ok(k.end(), "R: and it ends")
    tap.eq(of_sandbox((64990,)), [], "R: with all its processes")
    nothing_left("an ordinary user's")


def local():
    """enforcement local: no walls, but all the rest."""
    seed = f"{TMP}/local-seed"
    os.makedirs(seed)
    with open(f"{seed}/s", "w", encoding="utf-8") as f:
        f.write("seed\n")
    fd = os.open(seed, os.O_RDONLY)
    k = K.Keeper()
    tap.ok(k.build(K.Spec(flags=K.LOCAL), CG, seed=fd), "a local one",
           k.failed)
    os.close(fd)
    r = k.sh("cat s; echo x >>s; mkdir d; pwd; setsid sleep 998 "
             ">/dev/null 2>&1 & exit 3")
    folder = r.out.decode().split()[-1]
    tap.eq((r.end, r.status, r.out[:5]), (K.END_EXIT, 3, b"seed\n"),
           "runs in a copy of the seed")
    tap.eq(k.sh("pwd", cwd="/workspace/d").out.decode().strip(),
           folder + "/d", "/workspace is that folder")
    tap.eq(k.file(K.F_READ, "/workspace/s")[::3], (1, b"seed\nx\n"),
           "whose files are read")
    k.started(k.start(["/bin/sleep", "997"]))
    tap.ok(k.end(), "it ends")
    left = subprocess.run(["pgrep", "-f", "^sleep 99[78]"],
                          capture_output=True, text=True).stdout
    tap.eq((os.path.exists(folder), left), (False, ""),
           "with folder and processes")
    nothing_left("a local one")


run_all((credentials, syscalls, other_abis, filesystems, hostile_seed, running,
         processes, storm, memory, full, limits, shared, watched, files, image,
         disk, assets, ordinary, local))

#!/usr/bin/python3
"""Hosts that lack something: a start is refused, by the name of what it is."""
import ctypes
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402

LIBC = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWNET = 0x20000, 0x40000000
# socket(2) and its number; errno of who finds no such protocol
SOCKET = {"x86_64": 41, "aarch64": 198}.get(os.uname().machine)
NETLINK, ROUTE, NETFILTER, NO_PROTOCOL = 16, 0, 12, 93

CONF = """
state_dir {tmp}/state; error_log stderr info;
environment work {{ workspace {tmp}/ws;
    sandbox {{ memory 64m; pids 32; {box} }}
    {more} }}
server {{ listen 127.0.0.1:0; location /health {{ health; }} }}
"""
EGRESS = "egress {{ via {way}; allow tcp 203.0.113.0/24 443; }}"


class Filter(ctypes.Structure):
    _fields_ = [("n", ctypes.c_ushort), ("at", ctypes.c_void_p)]


def without_netlink(protocol):
    """From here on the kernel seems to lack that protocol of netlink."""
    def insn(code, k, yes=0, no=0):
        return struct.pack("=HBBI", code, yes, no, k)
    text = b"".join((
        insn(0x20, 0), insn(0x15, SOCKET, 0, 5),  # the call
        insn(0x20, 16), insn(0x15, NETLINK, 0, 3),  # its domain
        insn(0x20, 32), insn(0x15, protocol, 0, 1),
        insn(0x06, 0x00050000 | NO_PROTOCOL), insn(0x06, 0x7fff0000)))
    keep = ctypes.create_string_buffer(text, len(text))
    prog = Filter(len(text) // 8, ctypes.addressof(keep))
    if LIBC.prctl(22, 2, ctypes.byref(prog), 0, 0) != 0:  # SET_SECCOMP
        os._exit(99)


def without_groups():
    """A mount namespace in which no control group is mounted."""
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        lines = [line.split() for line in f]
    if LIBC.unshare(NEWNS) != 0 or \
            LIBC.mount(b"none", b"/", None, ctypes.c_ulong(0x44000), None):
        os._exit(99)
    for m in reversed(lines):
        if m[m.index("-") + 1].startswith("cgroup") and \
                LIBC.umount2(m[4].encode(), 2) != 0:
            os._exit(98)


def start(tmp, more, before=None, check=True, box=""):
    path = os.path.join(tmp, "sallyport.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write(CONF.format(tmp=tmp, more=more, box=box))
    return subprocess.run(
        [gate.program("sallyport"), *(["-t"] if check else []), "-c", path],
        capture_output=True, text=True, check=False, preexec_fn=before,
        stdin=subprocess.DEVNULL, timeout=gate.PATIENCE)


def said(tmp, before, box):
    """What a start that succeeds has to say, until it is ready."""
    path = os.path.join(tmp, "sallyport.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write(CONF.format(tmp=tmp, more="", box=box))
    with subprocess.Popen([gate.program("sallyport"), "-c", path],
                          stderr=subprocess.PIPE, text=True,
                          stdin=subprocess.DEVNULL, preexec_fn=before) as p:
        late = threading.Timer(gate.PATIENCE, p.kill)
        late.start()
        out = ""
        for line in p.stderr:
            out += line
            if "ready: " in line:
                p.terminate()
        late.cancel()
    return out, p.returncode


def unbounded(tmp):
    """Bounds that root asks for and cannot have are warned of."""
    r = start(tmp, "", before=without_groups, box="cpu 1.0;")
    start_said, rc = said(tmp, without_groups, "cpu 1.0;")
    for text, code, how in ((r.stderr, r.returncode, "-t"),
                            (start_said, rc, "the start")):
        lines = [x for x in text.splitlines()
                 if "environment work: memory and cpu not bounded" in x]
        tap.ok(code == 0 and len(lines) == 1 and "warn" in lines[0] and
               "cgroup2: not mounted here, says /proc/self/mountinfo"
               in lines[0] and "nsenter --net=" in lines[0],
               f"without control groups {how} warns which bounds fail, why, "
               "and what helps", (code, text))
    r = start(tmp, "", box="cpu 1.0;")
    tap.ok("not bounded" not in r.stderr, "and not with them", r.stderr)


def without_forwarding():
    """A network of its own, with loopback, that does not forward."""
    if LIBC.unshare(NEWNET) != 0 or \
            subprocess.run(["ip", "link", "set", "lo", "up"],
                           check=False).returncode != 0:
        os._exit(97)
    with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="utf-8") as f:
        f.write("0")


def ways(tmp):
    """Where the host does not forward, auto is the relay; veth is warned."""
    for way, tcp, code, want in (
            ("auto", "tcp", 0, "notice helper*environment work: via auto "
             "takes the relay: * ip_forward"),
            ("veth", "tcp", 0, "warn helper*environment work: via veth: what "
             "is allowed does not get out: * ip_forward"),
            ("auto", "udp", 1, "a rule for udp needs via veth, and that "
             "* ip_forward"),
            ("relay", "tcp", 0, None)):
        r = start(tmp, f"egress {{ via {way}; allow {tcp} 203.0.113.0/24 443; "
                  "}", before=without_forwarding)
        words = (want or "").replace(" * ", "*").split("*")
        tap.ok(r.returncode == code and all(x in r.stderr for x in words) and
               (want or "forward" not in r.stderr),
               f"no forwarding: via {way}, {tcp}", (r.returncode, r.stderr))


def paths(tmp):
    """What an environment names and the host lacks, at its own line."""
    at = os.path.join(tmp, "sallyport.conf")
    refused(tmp, "read_only", f'{at}:4: environment "work": read_only /nope: '
            "No such file or directory; expected what is there", "",
            box="read_only /usr /bin /lib /nope;")
    refused(tmp, "rootfs", f'{at}:4: environment "work": rootfs /nope: '
            "No such file or directory; expected the directory", "",
            box="rootfs /nope;")
    refused(tmp, "rootfs", "rootfs /etc/passwd: not a directory", "",
            box="rootfs /etc/passwd;")
    for path, why in (("/nope", "No such file or directory"),
                      ("/etc/passwd", "not a directory")):
        refused(tmp, "workspace", f'{at}:6: environment "else": workspace '
                f"{path}: {why}; expected a directory", "} environment else {\n"
                f"workspace {path};", box="")
    tap.ok(start(tmp, "", box="read_only /usr /bin /lib /lib64 "
                 "/etc/alternatives;").returncode == 0,
           "what is of the default may be written out")


def refused(tmp, what, word, *args, **kw):
    for check in (True, False):
        r = start(tmp, *args, check=check, **kw)
        tap.ok(r.returncode == 1 and word in r.stderr and
               "ready: " not in r.stderr,
               f"{what}: {'-t' if check else 'the start'} names it",
               (r.returncode, r.stdout, r.stderr))
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        tap.none([x for x in f if tmp in x], "and nothing is left mounted")


def programs(tmp):
    """Those of an environment are looked for in a sandbox of it."""
    with tempfile.TemporaryDirectory(prefix="sp-host-",
                                     dir="/var/tmp") as out:
        os.chmod(out, 0o755)
        for name in ("seen", "hidden"):
            os.mkdir(os.path.join(out, name))
        shutil.copy("/bin/true", os.path.join(out, "hidden", "python"))
        os.symlink("../hidden/python", os.path.join(out, "seen", "python"))
        for name, mode, text in (("app", 0o755, f"#!{out}/hidden/python -I"),
                                 ("data", 0o644, "")):
            with open(os.path.join(out, "seen", name), "w",
                      encoding="utf-8") as f:
                f.write(text + "\n")
            os.chmod(f.name, mode)
        more = (f"episodes 1; worker stdio {out}/seen/python;"
                f"process app {{ trust workload; command {out}/seen/app; }}"
                "process fine { trust workload; command /bin/true; }")
        box = f"read_only /usr /bin /lib /lib64 {out}/seen"
        for check in (True, False):
            r = start(tmp, more + "process data { trust workload; command "
                      f"{out}/seen/data; }}", check=check, box=box + ";")
            lines = [x for x in r.stderr.splitlines() if "inside" in x]
            tap.ok(r.returncode == 1 and len(lines) == 3 and
                   f"the worker cannot be started inside: {out}/seen/python "
                   f"is a link to {out}/seen/../hidden/python: No such file"
                   in lines[0] and "add the folder" in lines[0] and
                   f'process "app" cannot be started inside: {out}/seen/app: '
                   f"its #! names {out}/hidden/python: No such file" in lines[1] and
                   "user may execute" in lines[2],
                   "programs that are not there are named",
                   (r.returncode, r.stderr))
        os.mkdir(os.path.join(out, "private"), 0o700)
        for name, first in (("oracle", "/no/such/sh -e"), ("rubric", "/x"),
                            ("own", "/openenvd/assets/rubric"),
                            ("fine", f"  {out}/hidden/python")):
            with open(os.path.join(out, "private", name), "w",
                      encoding="utf-8") as f:
                f.write(f"#!{first}\n")
            os.chmod(f.name, 0o755)
        assets = f"episodes 1; assets {out}/private {{ %s }}"
        for beside in ("", "process p { trust workload; command /bin/true; }",
                       "worker stdio /bin/true;"):
            refused(tmp, f"an oracle's interpreter, {beside}",
                    'asset "oracle" cannot be run: oracle: its #! names '
                    "/no/such/sh: No such file or directory; expected a "
                    "program beneath a path of read_only",
                    assets % "oracle oracle; x rubric;" + beside,
                    box=box + ";")
        r = start(tmp, assets % "oracle fine; own own;" +
                  "process q { trust privileged; asset own; }",
                  box=f"{box} {out}/hidden;")
        tap.ok(r.returncode == 0, "interpreters that are there", r.stderr)
        r = start(tmp, more, box=f"{box} {out}/hidden;")
        tap.ok(r.returncode == 0, "and taken where they can be started",
               r.stderr)


def main():
    walls.needed()
    with tempfile.TemporaryDirectory(prefix="sp-host-") as tmp:
        os.chmod(tmp, 0o755)
        os.mkdir(os.path.join(tmp, "ws"))
        r = start(tmp, "")
        tap.ok(r.returncode == 0, "as it is this host will do", r.stderr)
        programs(tmp)
        unbounded(tmp)
        paths(tmp)
        ways(tmp)
        refused(tmp, "38: no control groups", "cgroup2: not mounted here",
                "require resource_isolation;", before=without_groups)
        if SOCKET is None:
            tap.skip("103: a kernel without nftables",
                     "its calls' numbers are not known here")
        else:
            for way in ("relay", "veth"):
                refused(tmp, f"103: no nftables, via {way}",
                        "CONFIG_NETFILTER_NETLINK", EGRESS.format(way=way),
                        before=lambda: without_netlink(NETFILTER))
            refused(tmp, "103: no rtnetlink", "link", EGRESS.format(way="veth"),
                    before=lambda: without_netlink(ROUTE))
    tap.done()


main()

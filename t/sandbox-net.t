#!/usr/bin/python3
"""The network of an episode: namespaces, links, rules, as root.

Everything happens in a network namespace of the test's own; t/unit/net_drive
makes and removes networks in it.
"""
import ctypes
import json
import os
import socket
import struct
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
sys.dont_write_bytecode = True
import tap  # noqa: E402

BUILD = os.environ.get("SP_BUILDDIR", ROOT)
DRIVE = os.path.join(BUILD, "t/unit/net_drive")
NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
PATIENCE = 60


def prepare():
    if os.geteuid() != 0:
        tap.skip_all("network namespaces need root")
    if not os.access(DRIVE, os.X_OK):
        tap.skip_all(f"{DRIVE} is not built")
    if LIBC.unshare(NEWNET) != 0:
        tap.skip_all("no network namespace: " +
                     os.strerror(ctypes.get_errno()))


class Drive:
    """net_drive, and what it holds open."""

    def __init__(self):
        self.p = subprocess.Popen([DRIVE], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)

    def __call__(self, *words):
        self.p.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            raise RuntimeError(f"net_drive ended at {words}")
        return json.loads(line)

    def inside(self, made, code, *args):
        """Runs Python in the namespace; what it prints is JSON."""
        fd = os.open(f"/proc/{self.p.pid}/fd/{made['ns']}", os.O_RDONLY)
        try:
            r = subprocess.run(
                [sys.executable, "-c", HELP + code, *map(str, args)],
                capture_output=True, text=True, timeout=PATIENCE,
                preexec_fn=lambda: enter(fd), pass_fds=[fd], check=False)
        finally:
            os.close(fd)
        if r.returncode != 0:
            raise RuntimeError(r.stderr)
        return json.loads(r.stdout)

    def take(self, fd):
        """A descriptor of net_drive's (pidfd_getfd)."""
        pid_fd = os.pidfd_open(self.p.pid)
        got = LIBC.syscall(438, pid_fd, fd, 0)
        os.close(pid_fd)
        if got < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return got

    def close(self):
        self.p.stdin.close()
        self.p.wait(PATIENCE)


    def log(self, made):
        return Log(self.take(made["log"]))


class Log:
    """What NFLOG tells: (prefix, sequence, destination, protocol, port)."""

    def __init__(self, fd):
        self.s = socket.socket(fileno=fd, family=socket.AF_NETLINK,
                               type=socket.SOCK_RAW, proto=12)
        self.s.settimeout(0.3)

    def read(self):
        out = []
        while True:
            try:
                out += list(self.messages(self.s.recv(1 << 18)))
            except (TimeoutError, BlockingIOError):
                return out

    def messages(self, data):
        at = 0
        while at + 16 <= len(data):
            n, kind = struct.unpack_from("=IH", data, at)
            if kind == 4 << 8:
                yield self.packet(dict(self.attributes(data[at + 20:at + n])))
            at += (n + 3) & ~3

    @staticmethod
    def attributes(data):
        at = 0
        while at + 4 <= len(data):
            n, kind = struct.unpack_from("=HH", data, at)
            yield kind & 0x7fff, data[at + 4:at + n]
            at += (n + 3) & ~3

    @staticmethod
    def packet(a):
        ip = a[9]
        head = (ip[0] & 15) * 4
        port = struct.unpack_from("!H", ip, head + 2)[0] \
            if len(ip) >= head + 4 else 0
        return (a[10].rstrip(b"\0").decode(),
                struct.unpack("!I", a[12])[0], socket.inet_ntoa(ip[16:20]),
                ip[9], port)


OUTSIDE = """
import ctypes, os, socket, sys, threading
assert ctypes.CDLL(None).unshare(0x40000000) == 0
print("made", flush=True)
sys.stdin.readline()
got = []
def bound(kind, addr, port):
    s = socket.socket(socket.AF_INET, kind)
    s.bind((addr, port))
    if kind == socket.SOCK_STREAM:
        s.listen(64)
    return s
def stream(s, port):
    keep = []
    while True:
        c, _ = s.accept()
        got.append(port)
        keep.append(c)
        threading.Thread(target=answer, args=(c,), daemon=True).start()
def answer(c):
    while True:
        try:
            if not c.recv(9):
                break
            c.sendall(b"ok")
        except OSError:
            break
def datagrams(s, port):
    while True:
        _, who = s.recvfrom(9999)
        got.append(port)
        s.sendto(b"ok", who)
for a, p in (("203.0.113.34", 443), ("203.0.113.34", 80),
             ("203.0.113.99", 443)):
    threading.Thread(target=stream, daemon=True,
                     args=(bound(socket.SOCK_STREAM, a, p), p)).start()
for p in (53, 54):
    threading.Thread(target=datagrams, daemon=True, args=(
        bound(socket.SOCK_DGRAM, "203.0.113.1", p), p)).start()
print("serving", flush=True)
for line in sys.stdin:
    print(" ".join(map(str, got)), flush=True)
    got.clear()
"""


class Outside:
    """203.0.113.0/24 in a namespace behind a link of the host's."""

    def __init__(self):
        self.p = subprocess.Popen([sys.executable, "-c", OUTSIDE],
                                  stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        self.p.stdout.readline()
        pid = str(self.p.pid)
        there = ["nsenter", "-t", pid, "-n"]
        for argv in (
                "ip link set lo up",
                f"ip link add up0 type veth peer name dn0 netns {pid}",
                "ip addr add 10.250.0.1/30 dev up0", "ip link set up0 up"):
            subprocess.run(argv.split(), check=True)
        for argv in (
                "ip link set lo up", "ip addr add 10.250.0.2/30 dev dn0",
                "ip link set dn0 up", "ip addr add 203.0.113.1/32 dev lo",
                "ip addr add 203.0.113.34/32 dev lo",
                "ip addr add 203.0.113.99/32 dev lo"):
            subprocess.run(there + argv.split(), check=True)
        subprocess.run("ip route add default via 10.250.0.2".split(),
                       check=True)
        with open("/proc/sys/net/ipv4/ip_forward", "w") as f:
            f.write("1")
        self.seen()

    def seen(self):
        """Ports that were reached since the last time."""
        self.p.stdin.write("\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        return sorted(int(x) for x in line.split()) \
            if line != "serving\n" else []

    def close(self):
        self.p.kill()
        self.p.wait(PATIENCE)


def enter(fd):
    if LIBC.setns(fd, NEWNET) != 0:
        os._exit(99)


# What the code inside may use.  "refused" and the like instead of numbers.
HELP = """
import errno, json, socket, struct, sys, time
def say(x):
    print(json.dumps(x))
def word(f):
    try:
        return f()
    except socket.timeout:
        return "silence"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
def tcp(host, port, family=socket.AF_INET, wait=3):
    def go():
        with socket.socket(family) as s:
            s.settimeout(wait)
            s.connect((host, port))
            s.sendall(b"hi")
            return s.recv(9).decode()
    return word(go)
def udp(host, port, wait=3):
    def go():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(wait)
            s.connect((host, port))
            s.send(b"q")
            return s.recv(9).decode()
    return word(go)
"""


def names(what):
    """ip(8)'s names of links, nft(8)'s of tables."""
    if what == "links":
        out = subprocess.run(["ip", "-j", "link"], capture_output=True,
                             text=True, check=True).stdout
        return sorted(x["ifname"] for x in json.loads(out))
    out = subprocess.run(["nft", "list", "tables"], capture_output=True,
                         text=True, check=True).stdout
    return sorted(line.split()[-1] for line in out.splitlines())


def no_way(d):
    made = d("make", 1, "veth", "listen:8000", "listen:9000")
    tap.eq(made["rc"], 0, "a network without a way out is made")
    tap.eq(sorted(made["listeners"]), ["0", "1"], "with its listeners")
    got = d.inside(made, """
import os
def names():
    return sorted(n for _, n in socket.if_nameindex())
say([names(), word(lambda: open("/proc/net/if_inet6").read()),
     open("/proc/sys/net/ipv4/ping_group_range").read().split()])
""")
    tap.eq(got[0], ["lo"], "it has loopback and nothing else")
    tap.ok(got[1] in ("", "ENOENT"), "and no IPv6 address", got[1])
    tap.eq(got[2], ["1", "0"], "and ICMP sockets for nobody")
    listener = socket.socket(fileno=d.take(made["listeners"]["0"]))
    listener.settimeout(PATIENCE)
    got = d.inside(made, """
s = socket.create_connection(("127.0.0.1", 8000), 5)
def squat(addr, family=socket.AF_INET, option=None):
    def go():
        with socket.socket(family) as s:
            if option:
                s.setsockopt(socket.SOL_SOCKET, option, 1)
            s.bind((addr, 8000))
            s.listen(1)
            return "listens"
    return word(go)
RP = socket.SO_REUSEPORT
say([s.getpeername()[1], squat("127.0.0.1"), squat("0.0.0.0"),
     squat("127.0.0.1", option=socket.SO_REUSEADDR),
     squat("0.0.0.0", option=socket.SO_REUSEADDR),
     squat("127.0.0.1", option=RP), squat("0.0.0.0", option=RP),
     squat("::", socket.AF_INET6), squat("::1", socket.AF_INET6)])
""")
    with listener.accept()[0]:
        tap.eq(got[0], 8000, "who is inside reaches the listener outside")
    tap.eq(got[1:8], ["EADDRINUSE"] * 7,
           "nobody inside can take the listener's place")
    tap.ok(got[8] in ("EADDRNOTAVAIL", "EAFNOSUPPORT"),
           "nor IPv6's loopback", got[8])
    listener.close()
    d("clear", 1)
    tap.eq([d("cut", 1)["rc"], d("cut", 1)["rc"]], [0, 0],
           "removing it twice is fine")
    made = d("make", 1, "veth", "listen:8000", "listen:8000")
    tap.ok(made["rc"] == -9 and "inside 127.0.0.1:8000" in made["why"],
           "an address that is taken is named", made)


def nothing_open(d):
    """Without rules: refused at once, and told."""
    made = d("make", 1, "veth")
    log = d.log(made)
    got = d.inside(made, """
t = time.monotonic()
say([tcp("203.0.113.34", 443), udp("203.0.113.1", 53),
     tcp("169.254.169.254", 80), udp("8.8.8.8", 53),
     time.monotonic() - t < 2])
""")
    tap.eq(got, ["ECONNREFUSED"] * 4 + [True],
           "without rules all is refused at once, TCP and UDP")
    told = [x[0:1] + x[2:] for x in log.read()]
    tap.eq(told, [("deny", "203.0.113.34", 6, 443),
                  ("deny", "203.0.113.1", 17, 53),
                  ("deny", "169.254.169.254", 6, 80),
                  ("deny", "8.8.8.8", 17, 53)], "and told, destination by it")
    tap.eq(d("count", 1, "veth")["denied"], 4, "and counted")
    d("clear", 1)


def relayed(d):
    """Via relay: what is allowed comes to our listener."""
    rules = ["relay", "tcp:203.0.113.0/24:443", "host:8443"]
    made = d("make", 1, *rules)
    tap.eq([made["rc"], sorted(made["listeners"])], [0, ["1000", "1001"]],
           "via relay there is a listener for names and one for all")
    door = socket.socket(fileno=d.take(made["listeners"]["1001"]))
    door.settimeout(PATIENCE)
    log = d.log(made)
    fd = os.open(f"/proc/{d.p.pid}/fd/{made['ns']}", os.O_RDONLY)
    code = HELP + """
say([tcp("203.0.113.34", 80), udp("203.0.113.1", 443), tcp("10.0.0.1", 443),
     tcp("127.0.0.1", 9), tcp("203.0.113.34", 443), tcp("8.8.8.8", 8443)])
"""
    p = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                         text=True, preexec_fn=lambda: enter(fd),
                         pass_fds=[fd])
    os.close(fd)
    came = []
    for _ in range(2):
        with door.accept()[0] as c:
            port, addr = struct.unpack_from(
                "!2xH4s", c.getsockopt(socket.SOL_IP, 80, 16))
            came.append((socket.inet_ntoa(addr), port))
            c.sendall(b"relayed")
            c.recv(9)
    got = json.loads(p.communicate(timeout=PATIENCE)[0])
    tap.eq(came, [("203.0.113.34", 443), ("8.8.8.8", 8443)],
           "what is allowed comes to it, with its destination")
    tap.eq(got, ["ECONNREFUSED"] * 4 + ["relayed"] * 2,
           "and all else is refused")
    told = [x[0:1] + x[2:] for x in log.read()]
    tap.eq(told, [("deny", "203.0.113.34", 6, 80),
                  ("deny", "203.0.113.1", 17, 443),
                  ("deny", "10.0.0.1", 6, 443),
                  ("allow", "203.0.113.34", 6, 443),
                  ("allow", "8.8.8.8", 6, 8443)], "each is told")
    counts = d("count", 1, *rules)
    tap.eq([counts["allowed"], counts["denied"]], [2, 3], "and counted")
    d("clear", 1)


PROTECTED = ("0.0.0.1 10.250.0.2 100.64.0.1 127.9.9.9 169.254.169.254 "
             "172.16.0.1 192.0.0.1 192.88.99.1 192.168.1.1 198.18.77.2 "
             "240.0.0.1").split()


def by_link(d, outside):
    """Via veth: the whole way."""
    rules = ["veth", "tcp:0.0.0.0/0:443", "udp:203.0.113.1/32:53",
             "tcp:203.0.113.0/24:440-450"]
    made = d("make", 1, *rules)
    tap.eq(made["rc"], 0, "a network with a link is made")
    log = d.log(made)
    got = d.inside(made, """
t = time.monotonic()
say([tcp("203.0.113.34", 443), udp("203.0.113.1", 53),
     tcp("203.0.113.34", 80), udp("203.0.113.1", 54),
     tcp("203.0.113.34", 449), time.monotonic() - t < 3])
""")
    tap.eq(got, ["ok", "ok", "ECONNREFUSED", "ECONNREFUSED", "ECONNREFUSED",
                 True], "allowed goes out, the rest is refused at once")
    tap.eq(outside.seen(), [53, 443], "and never arrives")
    told = log.read()
    tap.eq([x[0:1] + x[2:] for x in told],
           [("allow", "203.0.113.34", 6, 443),
            ("allow", "203.0.113.1", 17, 53),
            ("deny", "203.0.113.34", 6, 80),
            ("deny", "203.0.113.1", 17, 54),
            ("allow", "203.0.113.34", 6, 449)], "each is told once")
    tap.eq([x[1] for x in told], list(range(5)), "with consecutive numbers")
    counts = d("count", 1, *rules)
    tap.eq([counts["allowed"], counts["denied"]], [3, 2], "and counted")
    got = d.inside(made, "say([tcp(a, 443) for a in sys.argv[1:]])",
                   *PROTECTED)
    tap.ok(set(got) <= {"ECONNREFUSED", "EINVAL", "ENETUNREACH"},
           "what is protected stays closed for 0.0.0.0/0", got)
    host_addresses(d, made)
    quiet(d, made, rules)
    return made


def host_addresses(d, made):
    subprocess.run("ip addr add 203.0.113.81/32 dev lo".split(), check=True)
    listeners = []
    for addr in ("198.18.0.9", "10.250.0.1", "203.0.113.81"):
        s = socket.socket()
        s.bind((addr, 443))
        s.listen(8)
        listeners.append(s)
    got = d.inside(made, """
say([tcp(a, 443) for a in ("198.18.0.9", "10.250.0.1", "203.0.113.81")])
""")
    tap.eq(got, ["ECONNREFUSED"] * 3,
           "nor is any address of the host, also one that came later")
    for s in listeners:
        s.close()
    subprocess.run("ip addr del 203.0.113.81/32 dev lo".split(), check=True)


def quiet(d, made, rules):
    """IPv6, multicast, broadcast."""
    before = d("count", 1, *rules)["denied"]
    got = d.inside(made, """
out = [tcp("2001:db8::1", 443, socket.AF_INET6),
       tcp("::ffff:203.0.113.34", 80, socket.AF_INET6)]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(1, 6, 1)
for a in ("224.0.0.251", "239.1.2.3", "255.255.255.255", "198.18.0.11"):
    word(lambda: s.sendto(b"x", (a, 53)))
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
             socket.inet_aton("239.9.9.9") + b"\\0\\0\\0\\0")
say(out + [word(lambda: open("/proc/net/if_inet6").read())])
""")
    tap.ok(got[0] in ("EADDRNOTAVAIL", "ENETUNREACH", "EAFNOSUPPORT") and
           got[1] == "ECONNREFUSED" and got[2] in ("", "ENOENT"),
           "there is no IPv6, and mapped addresses are IPv4's", got)
    six = subprocess.run("ip -6 -br addr show dev sp-1".split(), text=True,
                         capture_output=True, check=False).stdout
    tap.eq(six, "", "nor on the host's end")
    after = d("count", 1, *rules)["denied"]
    tap.ok(after >= before + 5, "multicast, broadcast and IGMP are denied",
           (before, after))


def flushed(d, made, outside):
    """A foreign flush of all rules opens nothing."""
    def flush():
        subprocess.run(["nft", "flush", "ruleset"], check=False,
                       stderr=subprocess.DEVNULL)
    outside.seen()
    flush()
    if made["nft"] >= 0:
        tap.eq(names("tables"), ["sallyport-1"], "our table is not flushed")
    else:
        tap.skip("our table is not flushed", "an older kernel")
    d("disown", 1)
    flush()
    tap.eq(names("tables"), [], "without its owner it is")
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("10.250.0.1", 7777))
    s.setblocking(False)
    d.inside(made, """
tcp("203.0.113.34", 80, wait=0.5)
udp("203.0.113.1", 54, wait=0.5)
udp("10.250.0.1", 7777, wait=0.5)
say(1)
""")
    try:
        reached = s.recv(9)
    except BlockingIOError:
        reached = b""
    tap.eq((outside.seen(), reached), ([], b""), "and still nothing is open")
    s.close()


def entries():
    with open("/proc/sys/net/netfilter/nf_conntrack_count") as f:
        return int(f.read())


def connections(d, outside):
    rules = ["veth", "tcp:203.0.113.0/24:443", "connections:5"]
    made = d("make", 2, *rules)
    before = entries()
    got = d.inside(made, """
keep = []
def one():
    s = socket.socket()
    keep.append(s)
    s.settimeout(3)
    s.connect(("203.0.113.34", 443))
    return "ok"
say([word(one) for _ in range(8)])
""")
    tap.eq(sorted(got), ["ECONNREFUSED"] * 3 + ["ok"] * 5,
           "connections of one episode are bounded")
    tap.ok(entries() > before, "the host knows them")
    d("clear", 2)
    tap.eq([d("cut", 2)["rc"], d("cut", 2)["rc"]], [0, 0],
           "a link is removed, twice is fine")
    tap.eq(entries(), before, "and the host has forgotten them")
    rules = ["veth", "udp:203.0.113.1/32:53", "connections:5"]
    made = d("make", 2, *rules)
    outside.seen()
    got = d.inside(made, 'say([udp("203.0.113.1", 53) for _ in range(12)])')
    came = outside.seen()
    tap.ok(0 < len(came) <= 5 and got.count("ECONNREFUSED") >= 5,
           "so are those of UDP, which are a port each", (got, came))
    d("clear", 2)
    d("cut", 2)
    tap.eq(entries(), before, "and these are forgotten, too")
    outside.seen()


def flood(d):
    """Denies beyond what is told are counted all the same."""
    rules = ["veth", "tcp:203.0.113.0/24:443"]
    made = d("make", 7, *rules)
    log = d.log(made)
    sent = d.inside(made, """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
n = 0
for i in range(1000):
    if word(lambda: s.sendto(b"x", ("203.0.113.1", 1000 + i))) == 1:
        n += 1
say(n)
""")
    told = log.read()
    tap.ok(sent > 500 and d("count", 7, *rules)["denied"] == sent and
           200 <= len(told) < sent,
           "a flood of denies is told in part and counted whole",
           (sent, len(told)))
    tap.eq([x[1] for x in told], list(range(len(told))),
           "and what is told has no gap of its own")
    d("clear", 7)
    d("cut", 7)


def frames(d):
    """What is no IP, and a link that is held."""
    rules = ["veth", "tcp:203.0.113.0/24:443", "listen:8000"]
    made = d("make", 6, *rules)
    log = d.log(made)
    d.inside(made, """
for kind, body in (0x88b5, b"x" * 46), (0x86dd, b"\\x60" + b"\\0" * 5 + b";\\1" +
                   b"\\xfe\\x80" + b"\\0" * 13 + b"\\1" + b"\\xff\\2" +
                   b"\\0" * 13 + b"\\1"):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    s.bind(("eth0", kind))
    s.send(b"\\x33\\x33\\0\\0\\0\\1" + b"\\2\\0\\0\\0\\0\\1" +
           struct.pack("!H", kind) + body)
say(1)
""")
    tap.eq([d("count", 6, *rules)["denied"], [x[0] for x in log.read()]],
           [1, ["deny"]], "a frame of IPv6 is denied and told")
    tap.eq([d("disown", 6)["rc"], d("cut", 6)["rc"]], [0, 0],
           "a link goes though its namespace is held")
    got = d.inside(made, """
say([sorted(n for _, n in socket.if_nameindex()),
     tcp("203.0.113.34", 443, wait=1)])
""")
    tap.eq(got, [["lo"], "ENETUNREACH"], "and nothing leads out any more")
    d("clear", 6)


def nested(d):
    """Rules in rules, one port, all ports, hundreds."""
    many = [f"tcp:203.0.{i}.0/24:{1000 + i}" for i in range(200)]
    made = d("make", 3, "veth", "tcp:203.0.113.0/24:443",
             "tcp:203.0.113.34/32:443", "tcp:203.0.113.34/32:400-500",
             "tcp:0.0.0.0/0:443", "tcp:0.0.0.0/0:443-443",
             "udp:203.0.113.1/32:1-65535", "udp:203.0.113.0/24:53",
             "tcp:255.255.255.255/32:65535", *many)
    tap.eq(made["rc"], 0, "rules may contain each other")
    got = d.inside(made, """
say([tcp("203.0.113.34", 443), udp("203.0.113.1", 54),
     tcp("203.0.113.34", 80)])
""")
    tap.eq(got, ["ok", "ok", "ECONNREFUSED"], "and mean what they say")
    d("clear", 3)
    d("cut", 3)


def busy_group(d):
    """Somebody else has the group of NFLOG."""
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    s.bind((0, 0))
    body = struct.pack("!BBH", 0, 0, 0x4004) + \
        struct.pack("=HHB3x", 5, 1, 1)
    s.send(struct.pack("=IHHII", len(body) + 16, (4 << 8) | 1, 5, 1, 0) + body)
    tap.eq(struct.unpack_from("=i", s.recv(999), 16)[0], 0, "a group is taken")
    made = d("make", 4, "veth", "tcp:203.0.113.0/24:443")
    log = d.log(made)
    d.inside(made, "say(tcp('203.0.113.34', 443))")
    tap.eq([x[0] for x in log.read()], ["allow"], "another one is found")
    s.close()
    d("clear", 4)
    d("cut", 4)


def left_over(d):
    """What is there already is not ours; what is half made goes away."""
    before = names("links"), names("tables")
    subprocess.run("ip link add sp-5 type veth peer name sp-5b".split(),
                   check=True)
    made = d("make", 5, "veth", "tcp:203.0.113.0/24:443")
    tap.ok(made["rc"] == -9 and "sp-5" in made["why"] and
           "sp-5" in names("links"), "another's link is left alone", made)
    tap.eq(d("cut", 5)["rc"], 0, "until the sweep")
    if d("fail", 0, 0)["rc"] != 0:
        tap.skip("failures at each step", "a release build")
        return
    bad, worst = [], []
    for step in range(STEPS):
        d("fail", step, 1)
        for rules in (["veth", "tcp:203.0.113.0/24:443"], ["relay"],
                      ["relay", "tcp:203.0.113.0/24:443"]):
            r = d("start", 5, *rules)
            if r["rc"] == 0:
                d("clear", 5)
                if rules[0] == "veth":
                    bad.append(f"step {step}: {r}")
                d("cut", 5)
            if (names("links"), names("tables")) != before:
                bad.append(f"step {step}: {names('links')} {names('tables')}")
        d("fail", step, 2)
        r = d("start", 5, "veth", "tcp:203.0.113.0/24:443")
        rcs = [r["rc"], d("cut", 5)["rc"], d("cut", 5)["rc"]]
        if rcs != [-12, 0, 0] or (names("links"), names("tables")) != before:
            worst.append(f"step {step}: {rcs} {names('links')}")
    d("fail", NETWORK_UP, 3)
    r = d("start", 5, "veth", "tcp:203.0.113.0/24:443")
    tap.eq([r["rc"], d("cut", 5)["rc"], names("links"), names("tables")],
           [-13, 0, *before], "a child that hangs is killed, and swept")
    d("fail", 0, 0)
    tap.none(bad, "a failure at any step leaves nothing")
    tap.none(worst, "a death at any step leaves what one sweep removes")


def order(d):
    """Until its rules are there a link is down."""
    if d("fail", 0, 0)["rc"] != 0:
        tap.skip("what comes before what", "a release build")
        return
    seen = []
    for step in (NETWORK_UP - 2, NETWORK_UP - 1, NETWORK_UP):
        d("fail", step, 2)
        d("start", 5, "veth", "tcp:203.0.113.0/24:443")
        up = subprocess.run("ip -br link show dev sp-5 up".split(), text=True,
                            capture_output=True, check=False).stdout != ""
        seen.append((up, "sallyport-5" in names("tables")))
        d("cut", 5)
    d("fail", 0, 0)
    tap.eq(seen, [(False, False), (False, True), (True, True)],
           "a link is up when its rules are there, and not before")


def crowd(d):
    n = 64
    bad = d("many", n, "veth", "tcp:203.0.113.0/24:443", "listen:8000")["bad"]
    tap.eq(bad, 0, f"{n} networks at once")
    tap.eq(sum(x.startswith("sp-") for x in names("links")), n,
           "each with its link")
    tap.eq(d("end", n)["bad"], 0, "and away again at once")


def probe(d):
    """What stands in the way is named."""
    r = d("probe", 1)
    tap.eq([r["rc"], r["why"]], [0, ""], "a host that forwards is found able")
    tap.eq(d("probe", 0)["rc"], 0, "and to relay")
    with open("/proc/sys/net/ipv4/ip_forward", "w") as f:
        f.write("0")
    r = d("probe", 1)
    tap.ok(r["rc"] == -18 and "ip_forward" in r["why"],
           "one that does not, not", r)
    tap.eq(d("probe", 0)["rc"], 0, "though it can relay")
    with open("/proc/sys/net/ipv4/ip_forward", "w") as f:
        f.write("1")
    for rules, word in (("policy drop", "ip others stop"),
                        ("policy accept; drop", "another firewall table")):
        subprocess.run(["nft", f"table ip others {{ chain stop {{ type filter "
                        f"hook forward priority 0; {rules}; }}; }}"], check=True)
        r = d("probe", 1)
        tap.ok(r["rc"] == -18 and word in r["why"],
               "a foreign table that drops is named", r)
        subprocess.run("nft delete table ip others".split(), check=True)


def times(d):
    for what, rules in (("nothing", ["veth", "listen:8000"]),
                        ("ten rules", ["veth", "listen:8000"] +
                         [f"tcp:203.0.113.{i}/32:443" for i in range(10)])):
        r = d("bench", 50, *rules)
        tap.diag(f"{what}: made in {r['make_us']} us, "
                 f"cut in {r['cut_us']} us (p50)")


def jobs(d):
    """In a child, and what may happen to that."""
    made = d("start", 2, "veth", "listen:8000")
    tap.ok(made["rc"] == 0 and made["ns"] >= 0 and made["listeners"],
           "a child makes it and hands it over", made)
    got = d.inside(made, """
with socket.socket() as s:
    say(word(lambda: s.bind(("127.0.0.1", 8000))))
""")
    tap.eq(got, "EADDRINUSE", "and it is that network")
    d("clear", 2)
    tap.eq(d("drop", 2, "veth")["heard"], 0, "a job that was dropped is mute")


STEPS = 10
NETWORK_UP = 8
prepare()
DRIVER = Drive()
OUT = Outside()
BEFORE = names("links"), names("tables")
try:
    no_way(DRIVER)
    nothing_open(DRIVER)
    relayed(DRIVER)
    flushed(DRIVER, by_link(DRIVER, OUT), OUT)
    DRIVER("clear", 1)
    DRIVER("cut", 1)
    connections(DRIVER, OUT)
    frames(DRIVER)
    flood(DRIVER)
    nested(DRIVER)
    busy_group(DRIVER)
    jobs(DRIVER)
    left_over(DRIVER)
    order(DRIVER)
    crowd(DRIVER)
    probe(DRIVER)
    tap.eq((names("links"), names("tables")), BEFORE, "nothing is left behind")
    times(DRIVER)
finally:
    DRIVER.close()
    OUT.close()
tap.done()

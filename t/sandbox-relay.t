#!/usr/bin/python3
"""The ways out of an episode that lead through sallyport, as root.

Everything happens in a network namespace and a mount namespace of the test's
own; another namespace behind a link is the outside.
"""
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
sys.dont_write_bytecode = True
import tap  # noqa: E402
import gate  # noqa: E402
from outside import ALSO_OURS, HELP, OUTSIDE, Outside, sh  # noqa: E402
import sandbox  # noqa: E402,F401  skips where there can be none

LIBC = ctypes.CDLL(None, use_errno=True)
NEWNET, NEWNS = 0x40000000, 0x20000
HOSTS = f"""127.0.0.1 localhost
{OUTSIDE} packages.example evil.example a.cdn.example
127.0.0.1 loop.rebind.example
169.254.169.254 meta.rebind.example
10.1.2.3 private.rebind.example
{OUTSIDE} mixed.rebind.example
10.1.2.3 mixed.rebind.example
{ALSO_OURS} own.rebind.example
"""
CONF = """
control {tmp}/control.sock;
environment out {{
    sandbox {{ uid 330000 4096; }}
    episodes 2;
    egress {{
        via relay;
        connections 8;
        allow host packages.example 443;
        allow host *.cdn.example 8443;
        allow host *.rebind.example 443;
        allow tcp 203.0.113.0/24 8080;
    }}
}}
server {{ listen 127.0.0.1:0; location /status {{ status; }} }}
"""


class Ctl:
    def __init__(self, g):
        self.g = g
        self.base = [gate.program("sallyportctl"), "-S",
                     os.path.join(g.tmp_dir, "control.sock")]

    def __call__(self, *argv):
        r = subprocess.run([*self.base, *argv], capture_output=True,
                           text=True, timeout=120, check=False)
        return r

    def inside(self, code, *where):
        """Runs Python in an episode; what it prints is JSON."""
        r = self("exec", *(where or ("out",)), "--", "/usr/bin/python3", "-c",
                 HELP + code)
        if r.returncode != 0:
            raise RuntimeError(f"{r.returncode}: {r.stderr} {r.stdout}\n"
                               + self.g.log()[-3000:])
        return json.loads(r.stdout)


def test_connect(ctl):
    got = ctl.inside("""
tell({
  "good": through("packages.example:443", "packages.example"),
  "case": through("Packages.EXAMPLE:443", "packages.example"),
  "below": through("a.cdn.example:8443", "a.cdn.example"),
  "proxy": os.environ.get("HTTPS_PROXY"),
})""")
    tap.eq(got["good"], [200, "packages.example:hello"],
           "CONNECT to a host that is allowed, and TLS through it")
    tap.eq(got["case"], [200, "packages.example:hello"],
           "a name's case is none")
    tap.eq(got["below"], [200, "a.cdn.example:hello"], "a host by its suffix")
    tap.eq(got["proxy"], "http://127.0.0.1:3128", "HTTPS_PROXY names it")
    if os.access("/usr/bin/curl", os.X_OK):
        r = ctl("exec", "out", "--", "/usr/bin/curl", "-sk", "--http0.9",
                "--max-time", "60", "https://packages.example/")
        tap.ok(r.stdout.startswith("packages.example:GET / "),
               "curl finds its way by itself", r.stdout + r.stderr)
    else:
        tap.skip("curl", "it is not there")


def test_refused(ctl):
    got = ctl.inside("""
tell({k: connect(t) for k, t in {
  "name": "other.example:443", "port": "packages.example:8443",
  "suffix": "cdn.example:8443", "literal": "203.0.113.10:443",
  "loop": "loop.rebind.example:443", "meta": "meta.rebind.example:443",
  "private": "private.rebind.example:443", "own": "own.rebind.example:443",
  "mixed": "mixed.rebind.example:443", "localhost": "localhost:443",
  "nothing": "none.rebind.example:443" }.items()})""")
    for k in ("name", "port", "suffix", "localhost"):
        tap.ok(got[k][0] == 403 and "no rule" in got[k][1],
               f"{k}: no rule, 403", got[k])
    tap.eq(got["literal"][0], 403, "an address is no name")
    for k in ("loop", "meta", "private", "own", "mixed"):
        tap.ok(got[k][0] == 403 and "no rule opens" in got[k][1],
               f"a name with an address that is protected: {k}", got[k])
    tap.ok(got["nothing"][0] in (502, 504), "a name that is not there",
           got["nothing"])


def test_names_in_tls(ctl, out):
    before = len(out.lines)
    got = ctl.inside("""
def raw(data):
    status, s = connect("packages.example:443")
    s.sendall(data)
    try: return s.recv(100).decode()
    except OSError as e: return type(e).__name__
tell([through("packages.example:443", "evil.example"),
      through("packages.example:443", None),
      raw(b"GET / HTTP/1.1\\r\\n\\r\\n"),
      through("packages.example:443", "packages.example")])""")
    tap.ok(all(x[0] == 200 and "Error" in x[1] for x in got[:2]) and
           got[2] == "ConnectionResetError",
           "another name in TLS, none, and no TLS are cut", got)
    tap.eq(got[3], [200, "packages.example:hello"], "the right one is not")
    tap.ok(not [x for x in out.lines[before:] if x == "tls SSLError"],
           "nothing of it was sent", out.lines[before:])


def test_turned(ctl):
    with socket.create_server(("0.0.0.0", 8080)) as mine:
        mine.setblocking(False)
        got = ctl.inside("""
n = 4 << 20
def big():
    data = os.urandom(1 << 20)
    s = tcp("203.0.113.10", 8080)
    sent, came = hashlib.sha256(), hashlib.sha256()
    def write():
        for i in range(n >> 20):
            s.sendall(data); sent.update(data)
        s.shutdown(socket.SHUT_WR)
    t = threading.Thread(target=write); t.start()
    got = 0
    while True:
        more = s.recv(65536)
        if not more: break
        got += len(more); came.update(more)
    t.join()
    return got == n and sent.digest() == came.digest()
tell({
  "echo": attempt("203.0.113.10", 8080, b"over there"),
  "big": big(),
  "own": [attempt(a, 8080) for a in ("203.0.113.1", "203.0.113.2")],
  "port": attempt("203.0.113.10", 8081),
  "net": attempt("198.51.100.1", 8080),
  "meta": attempt("169.254.169.254", 443),
  "direct": attempt("127.0.0.1", 3129),
  "name": tls(tcp("203.0.113.99", 443), "packages.example"),
  "evil": tls(tcp("203.0.113.10", 443), "evil.example"),
  "rebind": tls(tcp("203.0.113.10", 443), "own.rebind.example"),
})""")
        tap.eq(got["echo"], "over there", "a network that is allowed")
        tap.eq(got["big"], True, "4 MiB there and back, and both ends")
        tap.ok(all("Error" in x for x in got["own"]),
               "this host's own addresses are not reached", got["own"])
        try:
            mine.accept()
            tap.ok(False, "nobody came to them")
        except BlockingIOError:
            tap.ok(True, "nobody came to them")
    for k in ("port", "net", "meta", "direct"):
        tap.ok("Error" in got[k], f"not let out: {k}", got[k])
    tap.eq(got["name"], "packages.example:hello",
           "a host by its name in TLS, whatever address was asked")
    tap.ok("Error" in got["evil"] and "Error" in got["rebind"],
           "another name is cut there, too", [got["evil"], got["rebind"]])


def test_connections(ctl):
    got = ctl.inside("""
held = [connect("packages.example:443") for i in range(8)]
more = connect("packages.example:443")
for _, s in held: s.close()
import time
end = time.monotonic() + 30
while time.monotonic() < end:
    again = through("packages.example:443", "packages.example")
    if again[0] == 200: break
tell([[x[0] for x in held], more, again])""")
    tap.eq(got[0], [200] * 8, "as many connections as are allowed")
    tap.ok(got[1][0] == 503, "one more is refused", got[1])
    tap.eq(got[2], [200, "packages.example:hello"], "and later is not")


def test_reset(ctl, out):
    r = ctl("episodes", "create", "out", "e1")
    tap.ok(r.returncode == 0, "an episode", r.stderr)
    before = out.lines.count("open"), out.lines.count("closed")
    with subprocess.Popen(
            [*ctl.base, "exec", "--in", "e1", "--", "/usr/bin/python3", "-c",
             HELP + "s = tcp('203.0.113.10', 8080); s.sendall(b'x'); "
             "s.settimeout(None); s.recv(1); tell(1); s.recv(1)"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as p:
        p.stdout.readline()
        tap.ok(out.wait("open", before[0] + 1), "is connected")
        r = ctl("reset", "e1")
        tap.ok(r.returncode == 0, "is reset", r.stderr)
        tap.ok(out.wait("closed", before[1] + 1),
               "and its connection is over")
        p.wait(gate.PATIENCE)
    tap.eq(ctl.inside("tell(through('packages.example:443', "
                      "'packages.example'))", "--in", "e1"),
           [200, "packages.example:hello"], "the next one has ways out again")
    r = ctl("end", "e1")
    tap.ok(r.returncode == 0, "ends", r.stderr)


def test_told(g):
    log = g.log()
    for want in (
            "verdict=allow door=connect protocol=tcp name=packages.example "
            f"address={OUTSIDE} port=443 sent=",
            "verdict=deny door=connect protocol=tcp name=other.example "
            "address=- port=443",
            "verdict=allow door=relay", "why=server_name", "why=protected"):
        tap.ok(want in log, "in the log: " + want)
    text = g.get("/status").body.decode()
    tap.ok('sallyport_egress_total{verdict="deny",door="connect"}' in text and
           'sallyport_egress_total{verdict="allow",door="relay"}' in text,
           "counted", [x for x in text.split("\n") if "egress" in x])


class Gate(gate.Gate):
    def __init__(self, tmp):
        self.tmp_dir = tmp
        super().__init__(CONF.format(tmp=tmp))


def main():
    if LIBC.unshare(NEWNET | NEWNS) != 0:
        tap.skip_all("no namespaces: " + os.strerror(ctypes.get_errno()))
    with tempfile.TemporaryDirectory(prefix="sp-relay-") as tmp:
        os.chmod(tmp, 0o755)
        sh("mount", "--make-rprivate", "/")
        hosts = os.path.join(tmp, "hosts")
        with open(hosts, "w", encoding="ascii") as f:
            f.write(HOSTS)
        sh("mount", "--bind", hosts, "/etc/hosts")
        out = Outside(tmp)
        try:
            with Gate(tmp) as g:
                ctl = Ctl(g)
                test_connect(ctl)
                test_refused(ctl)
                test_names_in_tls(ctl, out)
                test_turned(ctl)
                test_connections(ctl)
                test_reset(ctl, out)
                test_told(g)
        finally:
            out.close()
            sh("umount", "/etc/hosts")
    tap.done()


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    main()

#!/usr/bin/python3
"""The control socket: who gets in, what answers, how long it stays."""
import grp
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from cases import UNARY  # noqa: E402
from upstream import Raw, unary  # noqa: E402

CTL = gate.program("sallyportctl")
IS_ROOT = os.geteuid() == 0
NOBODY = 65534
CONF = """
upstream u {{ server http://127.0.0.1:{port}/v1; }}
capture c {{ level text; trace traces/$session.jsonl; }}
server {{
    listen 127.0.0.1:{listen};
    location /v1 {{ llm_intercept; upstream u; capture c; }}
    location /health {{ health; }}
}}
"""
GOOD = {"choices": [{"index": 0, "message": {"content": "x"},
                     "finish_reason": "stop"}]}


class Daemon(gate.Gate):
    """A sallyport whose control socket is at self.socket."""

    def __init__(self, text, folder, main="", group="", **kw):
        self.socket = os.path.join(folder, "c.sock")
        self.main = main + f"\ncontrol {self.socket} {group};"
        self.text = text
        super().__init__(text, main=self.main, **kw)

    def plug(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(gate.PATIENCE)
        s.connect(self.socket)
        return s

    def ask(self, method, path, body=None, headers=()):
        r = gate.Reply(self.plug(), gate.request(body, path, headers, method),
                       read=False)
        return r.read(method)

    def rewrite(self, main):
        with open(self.conf, "w", encoding="utf-8") as f:
            f.write(f"state_dir {self.state};\nerror_log stderr info;\n"
                    f"{main}\n{self.text}\n")

    def hup(self, mark):
        n = len(re.findall(mark, self.log()))
        self.p.send_signal(signal.SIGHUP)
        gate.until(lambda: len(re.findall(mark, self.log())) > n, mark)

    def ctl(self, *args):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith("SALLYPORT")}
        r = subprocess.run([CTL, "-S", self.socket, *args], env=env,
                           capture_output=True, text=True, check=False)
        return r.returncode, r.stdout, r.stderr


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def served(d, up, port):
    st = os.lstat(d.socket)
    tap.ok(stat.S_ISSOCK(st.st_mode) and stat.S_IMODE(st.st_mode) == 0o600
           and st.st_uid == os.geteuid(), "the socket is its user's alone",
           oct(st.st_mode))
    tap.ok(d.socket not in d.addresses, "and no door for clients")
    tap.eq(d.ask("GET", "/health").status, 200, "it serves /health")
    r = d.ask("GET", "/status")
    tap.ok(r.status == 200 and b"sallyport_" in r.body, "and /status",
           r.body[:200])
    r = d.ask("GET", "/sessions")
    tap.ok(r.status == 200 and "sessions" in r.json(),
           "and /sessions, without a token", (r.status, r.body))
    for path in ("/v1/chat/completions", "/v1/models", "/"):
        tap.eq(d.ask("GET", path).status, 404, f"and no {path}")
    r = d.ask("POST", "/sessions", {"id": "one"})
    tap.ok(r.status == 201
           and r.json()["base_url"] == f"http://127.0.0.1:{port}/v1",
           "a session is made, and told where the model door is",
           (r.status, r.body))
    key = r.json()["key"]
    up.play(unary(GOOD))
    r = d.post(UNARY, headers=[("Authorization", f"Bearer {key}")])
    tap.eq(r.status, 200, "its key opens that")
    r = d.ask("GET", "/sessions/one/trace")
    tap.ok(r.status == 200 and r.body.splitlines() == d.lines("one"),
           "its trace is read there")
    r = d.ask("DELETE", "/sessions/one")
    tap.ok(r.status == 200 and r.json()["state"] != "open", "it ends",
           r.body)
    s = d.plug()
    a = gate.Reply(s, gate.request(None, "/health", close=False))
    b = gate.Reply(s, gate.request(None, "/status"))
    tap.eq((a.status, b.status), (200, 200), "one connection, two requests")


def ctl(d):
    rc, out, err = d.ctl("sessions", "create", '{"id": "two"}')
    tap.ok(rc == 0 and json.loads(out)["session_id"] == "two",
           "sallyportctl makes a session over it", (rc, out, err))
    rc, out, err = d.ctl("sessions")
    tap.ok(rc == 0 and any(x.startswith("two ") for x in out.splitlines()),
           "and lists it", (rc, out, err))
    rc, out, err = d.ctl("status")
    rows = dict(x.rsplit(None, 1) for x in out.splitlines())
    tap.ok(rc == 0 and rows.get("recorder_up") == "1"
           and not any("_bucket" in x for x in rows), "it shows the status",
           (rc, out, err))
    rc, out, err = d.ctl("status", "--json")
    tap.ok(rc == 0 and json.loads(out)["sallyport_recorder_up"] == 1,
           "also as it is", (rc, out, err))
    rc, out, err = d.ctl("guarantees", "--json")
    tap.eq((rc, json.loads(out)), (0, []), "and no guarantees of nothing")
    rc, out, err = d.ctl("status", "--location", "/health")
    tap.ok(rc == 1 and "no status" in err, "another location has none",
           (rc, out, err))
    for args in (["status", "x"], ["guarantees", "x"], ["status", "--x"]):
        rc, out, err = d.ctl(*args)
        tap.ok(rc == 2 and "usage" in err, "usage: " + " ".join(args), err)
    env = {**os.environ, "SALLYPORT_CONTROL": d.socket}
    r = subprocess.run([CTL, "sessions", "end", "two"], env=env, check=False,
                       capture_output=True, text=True)
    tap.eq(r.returncode, 0, "SALLYPORT_CONTROL names the socket, too")
    for path, word in (("relative", "not found"),
                       (d.socket + "x", "not found"),
                       ("/" + "x" * 200, "limit"), ("", "empty")):
        r = subprocess.run([CTL, "-S", path, "sessions"], check=False,
                           capture_output=True, text=True)
        tap.ok(r.returncode == 2 and word in r.stderr,
               f"no socket at {path[-8:]}", r.stderr)
    folder, name = os.path.split(d.socket)
    r = subprocess.run([CTL, "-S", name, "sessions"], check=False, cwd=folder,
                       capture_output=True, text=True)
    tap.eq(r.returncode, 0, "a path from where the caller stands")


def lives(d):
    """Through a restart of the reactor and a reload; not a change."""
    inode = os.lstat(d.socket).st_ino
    first = d.children()["sallyport-reactor"]
    os.kill(first, signal.SIGKILL)
    gate.until(lambda: d.children().get("sallyport-reactor", first) != first,
               "another reactor")
    tap.eq(d.ask("GET", "/health").status, 200, "the next reactor has it")
    d.hup("is reloaded")
    tap.eq(d.ask("GET", "/health").status, 200, "so it has after a reload")
    tap.eq(os.lstat(d.socket).st_ino, inode, "the same socket")
    d.rewrite("control off;")
    d.hup("nothing has changed")
    tap.ok("a change of control needs a restart" in d.log(),
           "a change is refused by name", d.log()[-500:])
    tap.eq(d.ask("GET", "/health").status, 200, "and changes nothing")


def full(up, folder):
    """Clients that take every connection leave the operator his."""
    text = CONF.format(port=up.port, listen=0)
    with Daemon(text, folder, main="connections 1;") as d:
        held = d.connect()
        held.sendall(b"GET /health HTTP/1.1\r\n")
        gate.until(lambda: "the most that are allowed" in d.log(), "full")
        tap.eq(d.ask("GET", "/status").status, 200,
               "with no connection left the control socket serves")
        held.close()
    tap.ok(not os.path.lexists(d.socket), "it is gone when sallyport is")


def in_the_way(up, folder):
    text = CONF.format(port=up.port, listen=0)
    d = Daemon(text, folder)
    d.p.kill()
    d.p.wait()
    gate.until(lambda: refused(d.socket), "the roles leave")
    tap.ok(os.path.lexists(d.socket), "one that was killed leaves its socket")
    with Daemon(text, folder) as d:
        tap.eq(d.ask("GET", "/health").status, 200,
               "and the next start replaces it")
        other = Daemon(text, folder, wait=False)
        tap.eq(other.p.wait(gate.PATIENCE), 1, "but none that is in use")
        tap.ok(re.search(r'control ".*c.sock": .*expected a path of its own',
                         other.log()), "and says so", other.log())
        tap.eq(d.ask("GET", "/health").status, 200, "that one serves on")
    path = os.path.join(folder, "c.sock")
    with open(path, "w", encoding="utf-8") as f:
        f.write("mine")
    other = Daemon(text, folder, wait=False)
    tap.eq(other.p.wait(gate.PATIENCE), 1, "a file is not replaced")
    with open(path, encoding="utf-8") as f:
        tap.eq(f.read(), "mine", "and stays as it is")
    os.unlink(path)
    other = Daemon(text, folder, group="no-such-group", wait=False)
    tap.eq(other.p.wait(gate.PATIENCE), 1, "a group that is not there")
    tap.ok('control: the group "no-such-group" does not exist' in other.log(),
           "is named", other.log())


def refused(path):
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(path) != 0


AS = """
import os, socket, sys
os.setgroups([int(g) for g in sys.argv[3].split()])
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1]))
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[4])
    s.sendall(b"GET /health HTTP/1.1\\r\\nHost: x\\r\\nConnection: close"
              b"\\r\\n\\r\\n")
    print(s.recv(100).split(b" ")[1].decode())
except PermissionError:
    print("denied")
except (IndexError, OSError):
    print("closed")
"""


def ask_as(d, uid, gid, groups=""):
    r = subprocess.run([sys.executable, "-c", AS, str(uid), str(gid), groups,
                        d.socket], capture_output=True, text=True, check=False)
    return r.stdout.strip() or r.stderr


def groups(up, folder):
    if not IS_ROOT:
        tap.skip("users and groups", "needs root")
        return
    gid = next(g.gr_gid for g in grp.getgrall() if g.gr_gid not in
               (0, NOBODY))
    name = grp.getgrgid(gid).gr_name
    text = CONF.format(port=up.port, listen=0)
    with Daemon(text, folder, group=name) as d:
        st = os.lstat(d.socket)
        tap.eq((stat.S_IMODE(st.st_mode), st.st_gid), (0o660, gid),
               "with a group it is open to that")
        tap.eq(ask_as(d, NOBODY, gid), "200", "by its first group")
        tap.eq(ask_as(d, NOBODY, NOBODY, str(gid)), "200", "or another")
        tap.eq(ask_as(d, NOBODY, NOBODY), "denied", "and to nobody else")
        os.chmod(d.socket, 0o666)
        tap.eq(ask_as(d, NOBODY, NOBODY), "closed",
               "however its permissions change")
        tap.ok("control: a connection of another user was closed" in d.log(),
               "which is told", d.log()[-300:])
        tap.eq(d.ask("GET", "/health").status, 200, "root still gets in")


class Own(gate.Gate):
    """As an ordinary user, with a runtime folder: no `control` is given."""

    def start(self, argv, env=None, wait=True):
        if IS_ROOT:
            os.chown(self.tmp.name, NOBODY, NOBODY)
            argv = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY),
                    "--clear-groups", "--", *argv]
        super().start(argv, env, wait)


def defaults(up, folder):
    text = CONF.format(port=up.port, listen=0)
    run = os.path.join(folder, "run")
    os.mkdir(run, 0o700)
    if IS_ROOT:
        os.chown(run, NOBODY, NOBODY)
    path = os.path.join(run, "sallyport.sock")
    env = {"XDG_RUNTIME_DIR": run}
    with Own(text, env=env) as d:
        tap.ok(os.path.lexists(path), "an ordinary user's lies in "
               "XDG_RUNTIME_DIR", d.log())
        r = subprocess.run([CTL, "-S", path, "sessions"], check=False,
                           capture_output=True, text=True)
        tap.eq(r.returncode, 0, "and answers")
        with Own(text, env=env) as e:
            tap.ok("no control socket" in e.log(),
                   "a second one starts without", e.log())
        tap.ok(os.path.lexists(path), "and leaves the first one's")
    with Own(text, env={"XDG_RUNTIME_DIR": ""}) as d:
        tap.ok(os.path.lexists(os.path.join(d.state, "sallyport.sock")),
               "without that it lies in state_dir", d.log())
    with Own("control off;" + text, env=env):
        tap.ok(not os.path.lexists(path), "off is off")


def main():
    up = Raw()
    folder = tempfile.mkdtemp(prefix="sp-")
    os.chmod(folder, 0o755)
    try:
        port = free_port()
        with Daemon(CONF.format(port=up.port, listen=port), folder) as d:
            served(d, up, port)
            ctl(d)
            lives(d)
        full(up, folder)
        in_the_way(up, folder)
        groups(up, folder)
        defaults(up, folder)
    finally:
        shutil.rmtree(folder)
    tap.done()


main()

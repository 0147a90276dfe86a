#!/usr/bin/python3
"""Several servers in one upstream: each is addressed as itself."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from urllib.parse import quote

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from cases import UNARY  # noqa: E402
from upstream import FIN, GONE, RST, Raw, unary  # noqa: E402

CONF = """
upstream both {{
    server http://127.0.0.1:{one}/one/v1;
    server http://localhost:{two}/two;
    balance least_conn;
}}
upstream failing {{
    server http://127.0.0.1:{closed}/closed;
    server http://localhost:{closed}/closed;
    server http://localhost:{two}/two;
    {balance}
}}
upstream nobody {{
    server http://127.0.0.1:{closed}/v1;
    server http://localhost:{closed}/v1;
}}
capture c {{ level text; }}
server {{
    listen 127.0.0.1:0;
    location /v1 {{ llm_intercept; upstream both; capture c; keys open; }}
    location /failing {{ llm_intercept; upstream failing; capture c;
        keys open; }}
    location /nobody {{ llm_intercept; upstream nobody; capture c;
        keys open; }}
}}
"""
GOOD = {"choices": [{"index": 0, "message": {"content": "x"},
                     "finish_reason": "stop"}]}


DYING = """
upstream one {{
    server {scheme}://127.0.0.1:{bad}/v1;
    server http://localhost:{good}/v1;
    tls_verify off;
}}
upstream none {{ server http://127.0.0.1:{bad}/v1;
    server http://localhost:{bad}/v1; }}
capture c {{ level text; }}
server {{
    listen 127.0.0.1:0;
    location /v1 {{ llm_intercept; upstream one; capture c; keys open; }}
    location /none {{ llm_intercept; upstream none; capture c; keys open; }}
    location /status {{ status; }}
}}
"""


HUNG = """
upstream u {{
    server {hung};
    server {good};
    balance least_conn;
    first_byte_timeout 300ms;
}}
capture c {{ level text; }}
server {{
    listen 127.0.0.1:0;
    location /v1 {{ llm_intercept; upstream u; capture c; keys open; }}
}}
"""


class Dying:
    """Accepts, and closes at once (how=fin) or resets what was asked."""

    def __init__(self, how):
        self.l = socket.socket()
        self.l.bind(("127.0.0.1", 0))
        self.l.listen(64)
        self.port = self.l.getsockname()[1]
        self.how, self.n = how, 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            s, _ = self.l.accept()
            self.n += 1
            if self.how == "rst":
                s.recv(1)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                             b"\1\0\0\0\0\0\0\0")
            s.close()


TOKEN = "operator-of-this-test"
RUNNING = """
upstream u {{ server {one}; {params} }}
capture c {{ level text; trace traces/$session.jsonl; }}
server {{
    listen 127.0.0.1:0;
    location /v1 {{ llm_intercept; upstream u; capture c; keys open; }}
    location /upstreams {{ upstreams; token env:SP_TEST_TOKEN; }}
}}
"""


class Daemon(gate.Gate):
    """A sallyport with a control socket, whose file may change."""

    def __init__(self, folder, text):
        self.socket = os.path.join(folder, "c.sock")
        super().__init__(text, main=f"control {self.socket};",
                         env={"SP_TEST_TOKEN": TOKEN})

    def ask(self, method, path, body=None):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(gate.PATIENCE)
        s.connect(self.socket)
        r = gate.Reply(s, gate.request(body, path, (), method), read=False)
        return r.read(method)

    def servers(self, name="u"):
        """{url: what is told of it}"""
        r = self.ask("GET", f"/upstreams/{name}")
        return {x["url"]: x for x in r.json()["servers"]}

    def states(self):
        return {u: x["state"] for u, x in self.servers().items()}

    def reload(self, text):
        with open(self.conf, "w", encoding="utf-8") as f:
            f.write(f"state_dir {self.state};\nerror_log stderr info;\n"
                    f"control {self.socket};\n{text}\n")
        n = len(re.findall("is reloaded", self.log()))
        self.p.send_signal(signal.SIGHUP)
        gate.until(lambda: len(re.findall("is reloaded", self.log())) > n,
                   "a reload")

    def ctl(self, *args):
        r = subprocess.run([gate.program("sallyportctl"), "-S", self.socket,
                            "upstream", *args], capture_output=True,
                           text=True, check=False)
        return r.returncode, r.stdout, r.stderr


class Model(Raw):
    """Answers every request at once, those to wait when they are let go."""

    def __init__(self):
        self.go = threading.Event()
        self.go.set()
        super().__init__()
        self.plays = self

    def get(self, timeout=None):
        return [lambda: self.go.wait(timeout)] + unary(GOOD)

    @property
    def base(self):
        return self.url + "/v1"


def spread(d, models, n=24):
    """How many calls of different sessions each of them got."""
    before = [len(m.requests) for m in models]
    bad = [s for s in (d.post(UNARY, headers=[("x-session-id", f"k{i}")])
                       .status for i in range(n)) if s != 200]
    return bad, [len(m.requests) - b for m, b in zip(models, before)]


def slow_call(d, model, key):
    """A call that the model has, and has not answered."""
    model.go.clear()
    n = len(model.requests)
    r = gate.Reply(d.connect(), gate.request(
        UNARY, headers=[("x-session-id", key)]), read=False)
    # the play is fetched before the request is listed
    gate.until(lambda: len(model.requests) > n, "the call")
    return r


def at_run_time(folder):
    one, two = Model(), Model()
    text = RUNNING.format(one=one.base, params="")
    with Daemon(folder, text) as d:
        seen(d, one)
        by_ctl(d, one, two)
        added(d, one, two)
        drained(d, one, two)
        removed(d, one, two)
        reloaded(d, one, two)
        there_and_back(d, one, two)
        alone(d, one)


def seen(d, one):
    r = d.ask("GET", "/upstreams")
    tap.ok(r.status == 200 and [u["name"] for u in r.json()["upstreams"]]
           == ["u"], "upstreams are listed", (r.status, r.body))
    tap.eq(d.servers(), {one.base: {
        "url": one.base, "state": "up", "open_calls": 0,
        "idle_connections": 0, "sessions": 0, "failures": 0,
        "checks_failed": 0, "rest_ms": 0}}, "and one with its servers")
    for method, path, status in (
            ("GET", "/upstreams/v", 404), ("GET", "/upstreams/u/x", 404),
            ("POST", "/upstreams", 405), ("DELETE", "/upstreams/u", 405),
            ("GET", "/upstreams/u/servers", 405),
            ("GET", "/upstreams/u/servers/drain", 405)):
        tap.eq(d.ask(method, path).status, status, f"{method} {path}")
    tap.eq(d.get("/upstreams").status, 401, "at a door it needs the token")
    r = d.get("/upstreams/u", headers=[("Authorization", f"Bearer {TOKEN}")])
    tap.eq(r.status, 200, "and takes it")


def added(d, one, two):
    r = d.ask("POST", "/upstreams/u/servers", {"url": two.base})
    tap.ok(r.status == 201 and len(r.json()["servers"]) == 2,
           "a server is added", (r.status, r.body))
    bad, counts = spread(d, [one, two])
    tap.ok(not bad and min(counts) > 0, "and gets its share", (bad, counts))
    for body, status in (({"url": two.base}, 409), ({"url": "nonsense"}, 400),
                         ({"url": "http://u:p@h/"}, 400), ({}, 400),
                         ({"url": 7}, 400), (b"{", 400), (None, 400),
                         ({"url": "https://localhost:1/v1"}, 409),
                         ({"url": "http://h/" + "x" * 5000}, 400)):
        r = d.ask("POST", "/upstreams/u/servers", body)
        tap.ok(r.status == status and r.json()["error"]["message"],
               f"{str(body)[:40]}: {status}", (r.status, r.body))
    tap.eq(len(d.servers()), 2, "which change nothing")
    for i in range(20):
        d.ask("POST", "/sessions", {"id": f"k{i}"})
    pinned = {u: x["sessions"] for u, x in d.servers().items()}
    tap.ok(sum(pinned.values()) == 20 and min(pinned.values()) > 0,
           "sessions are counted where they go", pinned)


def by_ctl(d, one, two):
    rc, out, err = d.ctl()
    tap.ok(rc == 0 and [x.split() for x in out.splitlines()] == [
        ["UPSTREAM", "STATE", "CALLS", "IDLE", "SESSIONS", "FAILURES",
         "CHECKS", "URL"],
        ["u", "up", "0", "0", "0", "0", "0", one.base]],
        "sallyportctl upstream lists servers", (rc, out, err))
    rc, out, err = d.ctl("u", "add", two.base)
    tap.ok(rc == 0 and len(out.splitlines()) == 3 and len(d.servers()) == 2,
           "and adds one", (rc, out, err))
    rc, out, err = d.ctl("u", "drain", two.base)
    tap.eq((rc, d.states()[two.base]), (0, "draining"), "drains it")
    rc, out, err = d.ctl("u", "remove", two.base)
    tap.eq((rc, list(d.servers())), (0, [one.base]), "and removes it")
    rc, out, err = d.ctl("--json", "u")
    tap.ok(rc == 0 and json.loads(out)["name"] == "u", "shown as JSON", out)
    for what, want, args in (
            ("no such upstream", 1, ("v",)),
            ("no such server", 1, ("u", "remove", two.base)),
            ("one that is there", 1, ("u", "add", one.base)),
            ("no URL", 1, ("u", "add", "nonsense")),
            ("a name that is a path", 2, ("../sessions",)),
            ("a word", 2, ("u", "fun", two.base)),
            ("no server", 2, ("u", "add")),
            ("another location", 1, ("--location", "/health")),
            ("no location", 2, ("--location", "x")),
            ("nobody there", 2, ("--url", "unix:/nowhere"))):
        rc, out, err = d.ctl(*args)
        tap.ok(rc == want and err and not out, f"sallyportctl: {what}",
               (rc, out, err))


def drained(d, one, two):
    r = slow_call(d, two, "k" + next(
        str(i) for i in range(24) if goes_to(d, two, f"k{i}")))
    tap.eq(d.servers()[two.base]["open_calls"], 1, "an open call is counted")
    q = d.ask("POST", "/upstreams/u/servers/drain", {"url": two.base})
    tap.ok(q.status == 200 and d.states()[two.base] == "draining",
           "a server drains", q.body)
    bad, counts = spread(d, [one, two])
    tap.eq((bad, counts), ([], [24, 0]), "it gets no more calls")
    two.go.set()
    tap.eq(r.read().status, 200, "the open one goes on")
    gate.until(lambda: d.servers()[two.base]["open_calls"] == 0, "its end")
    tap.eq(d.servers()[two.base]["idle_connections"], 0,
           "and no connection is kept")
    q = d.ask("POST", "/upstreams/u/servers", {"url": two.base})
    tap.eq((q.status, d.states()[two.base]), (201, "up"),
           "added again it takes calls")


def goes_to(d, model, key):
    n = len(model.requests)
    d.post(UNARY, headers=[("x-session-id", key)])
    return len(model.requests) > n


def removed(d, one, two):
    key = next(f"k{i}" for i in range(24) if goes_to(d, two, f"k{i}"))
    r = slow_call(d, two, key)
    q = d.ask("DELETE", "/upstreams/u/servers?url=" + quote(two.base, ""))
    tap.eq((q.status, list(d.servers())), (200, [one.base]),
           "a server is removed")
    tap.ok(goes_to(d, one, key), "the next call of its sessions goes "
           "elsewhere")
    two.go.set()
    tap.eq(r.read().status, 200, "the open one goes on")
    q = d.ask("DELETE", "/upstreams/u/servers", {"url": two.base})
    tap.eq(q.status, 404, "one that is not there")
    q = d.ask("POST", "/upstreams/u/servers/drain", {"url": two.base})
    tap.eq(q.status, 404, "is not drained, either")


def reloaded(d, one, two):
    d.ask("POST", "/upstreams/u/servers", {"url": two.base})
    d.ask("POST", "/upstreams/u/servers/drain", {"url": one.base})
    want = {one.base: "draining", two.base: "up"}
    d.reload(RUNNING.format(one=one.base, params=""))
    tap.eq(d.states(), want, "changes outlive a reload")
    d.reload(RUNNING.format(one=one.base, params="keepalive 3;"))
    tap.eq(d.states(), want, "and another parameter")
    bad, counts = spread(d, [one, two], 8)
    tap.eq((bad, counts), ([], [0, 8]), "also in what calls get")
    d.reload(RUNNING.format(one=f"{one.base}; server {one.url}/other",
                            params=""))
    tap.eq(d.states(), {one.base: "up", one.url + "/other": "up"},
           "servers that the file changes are the file's")
    tap.ok("changed at run time, and now in the file" in d.log(),
           "which is told")
    d.reload(RUNNING.format(one=one.base, params=""))
    d.ask("POST", "/upstreams/u/servers", {"url": two.base})
    first = d.children()["sallyport-reactor"]
    os.kill(first, signal.SIGKILL)
    gate.until(lambda: d.children().get("sallyport-reactor", first) != first,
               "another reactor")
    want = {one.base: "up", two.base: "up"}
    gate.until(lambda: d.states() == want, "what the one before was told of")
    tap.eq(d.states(), want, "a new reactor has what the one before had")
    d.ask("POST", "/upstreams/u/servers/drain", {"url": one.base})
    d.ask("DELETE", "/upstreams/u/servers", {"url": two.base})
    second = d.children()["sallyport-reactor"]
    os.kill(second, signal.SIGKILL)
    gate.until(lambda: d.children().get("sallyport-reactor", second) !=
               second, "a third")
    gate.until(lambda: d.states() == {one.base: "draining"}, "its changes")
    tap.eq(d.states(), {one.base: "draining"},
           "also of servers that drained or went")
    d.ask("POST", "/upstreams/u/servers", {"url": one.base})


def there_and_back(d, one, two):
    """The file is what it was once, and calls from then are still open."""
    r = slow_call(d, one, "k1")
    d.reload(RUNNING.format(one=one.base, params="keepalive 3;"))
    d.ask("POST", "/upstreams/u/servers", {"url": two.base})
    d.ask("POST", "/upstreams/u/servers/drain", {"url": one.base})
    d.reload(RUNNING.format(one=one.base, params=""))
    tap.eq(d.states(), {one.base: "draining", two.base: "up"},
           "what was changed since then holds")
    one.go.set()
    tap.eq(r.read().status, 200, "the open call goes on")
    d.ask("POST", "/upstreams/u/servers", {"url": one.base})
    d.ask("DELETE", "/upstreams/u/servers", {"url": two.base})


def alone(d, one):
    r = d.ask("DELETE", "/upstreams/u/servers", {"url": one.base})
    tap.ok(r.status == 409 and "add another" in r.json()["error"]["message"]
           and list(d.servers()) == [one.base],
           "the last one is not removed", (r.status, r.body))
    d.ask("POST", "/upstreams/u/servers/drain", {"url": one.base})
    r = d.post(UNARY)
    tap.ok(r.status == 502
           and r.json()["error"]["message"]
           == 'upstream "u": no server takes calls, as all drain', "without a server calls get 502", (r.status, r.body))
    d.ask("POST", "/upstreams/u/servers", {"url": one.base})
    tap.eq(d.post(UNARY).status, 200, "until one is added")


CHECKED = """
upstream u {{ server {one}; server {two}; api_key env:SP_TEST_TOKEN;
    health_check /health?deep=1 interval=20ms timeout={timeout} rise=2 fall=2;
}}
capture c {{ level text; }}
server {{
    listen 127.0.0.1:0;
    location /v1 {{ llm_intercept; upstream u; capture c; keys open; }}
}}
"""


SEVERAL = """
upstream a {{ server {one}; }}
upstream b {{ server {two}; }}
upstream idle {{ server {one}; }}
capture c {{ level text; }}
server {{
    listen 127.0.0.1:0;
    location /a {{ llm_intercept; upstream a; capture c; keys open; }}
    location /b {{ llm_intercept; upstream b; capture c; keys open; }}
    location /health {{ health; }}
}}
"""


def healthy(folder):
    """/health is of upstreams that locations use, and of any one of them."""
    one, two = Model(), Model()
    with Daemon(folder, SEVERAL.format(one=one.base, two=two.base)) as d:
        for name, up, status in (("a", one, 200), ("b", two, 503)):
            d.ask("POST", f"/upstreams/{name}/servers/drain",
                  {"url": up.base})
            r = d.get("/health")
            tap.eq(r.status, status, f"/health, upstream {name} drains, too")
        tap.ok(r.json()["status"] == "unavailable"
               and "no server of any upstream" in r.json()["reason"],
               "with the reason", r.body)
        tap.eq(d.post(UNARY, "/a/chat/completions").status, 502,
               "calls fail then")
        d.ask("POST", "/upstreams/b/servers", {"url": two.base})
        r = d.get("/health")
        tap.eq((r.status, r.json()), (200, {"status": "ok"}),
               "one that takes calls is enough")


def edited(folder):
    """What the file alone changes was not changed at run time."""
    one, two, three = Model(), Model(), Model()
    text = RUNNING.format(one=one.base, params=f"server {two.base};")
    with Daemon(folder, text) as d:
        d.reload(RUNNING.format(one=one.base, params=f"server {three.base};"))
        tap.ok(d.states() == {one.base: "up", three.base: "up"}
               and "changed at run time" not in d.log(),
               "a line of several is edited", (d.states(), d.log()))


class Checked(Model):
    """One that also tells how it is: 200, another status, or nothing."""

    def __init__(self):
        self.health, self.asked = 200, []
        super().__init__()

    def run(self, s, play, r):
        if r.target != "/health?deep=1":
            return super().run(s, play, r)
        self.requests.remove(r)
        self.asked.append(r)
        if self.health is None:
            return super().run(s, [GONE], r)
        s.sendall(f"HTTP/1.1 {self.health} X\r\nContent-Length: 0\r\n\r\n"
                  .encode())
        return True


def until_state(d, model, state):
    gate.until(lambda: d.states()[model.base] == state,
               f"{model.base} {state}: {d.states()}")


def checks(folder):
    one, two, three = Checked(), Checked(), Checked()
    text = CHECKED.format(one=one.base, two=two.base, timeout="30s")
    with Daemon(folder, text) as d:
        gate.until(lambda: len(one.asked) > 2 < len(two.asked), "checks")
        r = one.asked[0]
        tap.ok(r.method == "GET" and "authorization" not in r.headers
               and r.headers["host"] == f"127.0.0.1:{one.port}",
               "each server is asked, without the key", r.fields)
        tap.eq(set(d.states().values()), {"up"}, "both are up")
        two.health = 503
        until_state(d, two, "down")
        bad, counts = spread(d, [one, two])
        tap.eq((bad, counts), ([], [24, 0]), "one that fails gets no calls")
        tap.ok(d.servers()[two.base]["checks_failed"] >= 2
               and "is down, its health checks fail" in d.log(),
               "which is counted and told")
        page = d.ask("GET", "/status").body.decode()
        tap.ok('upstream_servers{upstream="u",state="down"} 1' in page
               and 'upstream_servers{upstream="u",state="up"} 1' in page
               and not re.search(r"upstream_checks_failed_total.* 0$", page,
                                 re.M), "and in the metrics", page)
        tap.eq(d.ask("GET", "/health").status, 200, "/health: one is left")
        one.health = 404
        until_state(d, one, "down")
        tap.eq(d.ask("GET", "/health").status, 503, "and none is")
        bad, counts = spread(d, [one, two])
        tap.ok(not bad and sum(counts) == 24, "with all down calls are tried",
               (bad, counts))
        one.health = two.health = 204
        until_state(d, one, "up")
        until_state(d, two, "up")
        tap.eq(d.ask("GET", "/health").status, 200, "/health is well again")
        bad, counts = spread(d, [one, two])
        tap.ok(not bad and min(counts) > 0, "back up they get their share",
               counts)
        three.health = 500
        d.ask("POST", "/upstreams/u/servers", {"url": three.base})
        until_state(d, three, "down")
        tap.ok(True, "one that is added is checked, too")
        d.ask("DELETE", "/upstreams/u/servers", {"url": three.base})
        n = len(three.asked)
        m = len(one.asked)
        gate.until(lambda: len(one.asked) > m + 3, "more checks")
        tap.ok(len(three.asked) <= n + 1, "one that is removed is not")
        two.health = None
        d.reload(CHECKED.format(one=one.base, two=two.base, timeout="50ms"))
        until_state(d, two, "down")
        tap.ok(True, "silence is a failure")
        d.reload(RUNNING.format(one=one.base, params=""))
        tap.eq(d.states(), {one.base: "up"}, "a reload ends the checks")


def as_itself(up, base, host):
    return [f"{r.target} {r.headers.get('host')}" for r in up.requests
            if r.target != f"{base}/chat/completions"
            or r.headers.get("host") != f"{host}:{up.port}"]


def main():
    one, two = Raw(), Raw()
    # bound and not listening: refused, and nobody else can take it
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    ports = {"one": one.port, "two": two.port,
             "closed": closed.getsockname()[1]}
    for balance in ("balance session;", "balance least_conn;"):
        failing(ports, balance, one, two)
    for how, scheme in (("fin", "http"), ("rst", "http"), ("fin", "https")):
        dying(how, scheme)
    stale()
    spoilt()
    with tempfile.TemporaryDirectory(prefix="sp-") as folder:
        at_run_time(folder)
        checks(folder)
        healthy(folder)
        edited(folder)
    tap.done()


def dying(how, scheme):
    """A server that dies before a byte: another one answers."""
    bad, good = Dying(how), Raw()
    what = f"{scheme}, {how}:"
    conf = DYING.format(bad=bad.port, good=good.port, scheme=scheme)
    with gate.Gate(conf) as g:
        n, statuses = 0, set()
        while bad.n == 0 and n < 200:
            good.play(unary(GOOD))
            n += 1
            statuses.add(g.post(UNARY, headers=[
                ("x-session-id", f"s{n}")]).status)
        tap.ok(statuses == {200} and bad.n == 1 and len(good.requests) == n,
               f"{what} a server that dies before a byte is made up for",
               (statuses, bad.n, n))
        gate.until(lambda: len(g.lines()) == n, "turns")
        tap.ok(all(r["complete"] and r["upstream_status"] == 200
                   for r in g.records()), f"{what} each is one good turn")
        tap.ok("not used for 1000 ms" in g.log(), f"{what} it rests, and the "
               "log says so", g.log()[-300:])
        bad.n = 0
        r = g.post(UNARY, "/none/chat/completions")
        e = r.json()["error"]
        tap.ok(r.status == 502 and e["type"] == "upstream_error"
               and "several servers failed, the last: " in e["message"]
               and f":{bad.port}: " in e["message"] and bad.n == 2,
               f"{what} all die: 502 after each once", (r.body, bad.n))
        r = g.get("/status")
        tap.ok(b'sallyport_upstream_failovers_total{upstream="none"} 1'
               in r.body, f"{what} failovers are counted",
               [x for x in r.body.splitlines() if b"failover" in x])


def spoilt():
    """Without a head of a reply a server rests."""
    for what, status, text in (("silence", 504, "no reply in time"),
                               ("garbage", 502, "bad status line")):
        bad, good = Model(), Model()
        if what == "silence":
            bad.go.clear()
        else:
            bad.get = lambda timeout=None: [b"SSH-2.0-x\r\n", FIN]
        with tempfile.TemporaryDirectory(prefix="sp-") as folder, \
                Daemon(folder, HUNG.format(hung=bad.base,
                                           good=good.base)) as d:
            failed = next((r for r in (d.post(UNARY) for _ in range(4))
                           if r.status != 200), None)
            tap.ok(failed is not None and failed.status == status
                   and failed.json()["error"]["message"].startswith(
                       'upstream "u": ')
                   and failed.json()["error"]["message"].endswith(text)
                   and len(bad.requests) == 1,
                   f"{what}: {status}, and no other server is asked",
                   failed and failed.body)
            tap.ok(d.servers()[bad.base]["failures"] == 1
                   and f"127.0.0.1:{bad.port}: " in d.log()
                   and "not used for 1000 ms" in d.log(),
                   f"{what}: it rests, and the log says so", d.log()[-400:])
            bad.go.set()
            half = [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", FIN]
            good.get = bad.get = lambda timeout=None: list(half)
            r = d.post(UNARY)
            words = "closed before the reply was whole"
            tap.ok(r.status == 502 and r.json()["error"]["message"]
                   == f'upstream "u": {words}' and re.search(
                       rf'"u": 127\.0\.0\.1:\d+: {words}', d.log()),
                   f"{what}: what breaks later is told, the server in the "
                   "log", (r.body, d.log()[-400:]))


def stale():
    """After a byte nothing is asked twice."""
    one, two = Raw(), Raw()
    conf = DYING.format(bad=one.port, good=two.port, scheme="http")
    with gate.Gate(conf) as g:
        one.play([b"HTTP/1.1 2", RST])
        two.play([b"HTTP/1.1 2", FIN])
        r = g.post(UNARY)
        tap.ok(r.status == 502 and len(one.requests + two.requests) == 1,
               "after a byte of the reply no other server is asked",
               (r.status, r.body))


def failing(ports, balance, one, two):
    with gate.Gate(CONF.format(balance=balance, **ports)) as g:
        for up in (one, two):
            up.requests.clear()
        both(g, one, two)
        before = len(two.requests)
        for _ in range(6):
            two.play(unary(GOOD))
            r = g.post(UNARY, "/failing/chat/completions")
            if r.status != 200:
                break
        tap.ok(r.status == 200 and r.json() == GOOD
               and len(two.requests) == before + 6,
               f"{balance} where nobody listens the next server is asked",
               (r.status, r.body))
        tap.none(as_itself(two, "/two", "localhost"),
                 "with its own Host and base")
        r = g.post(UNARY, "/nobody/chat/completions")
        tap.ok(r.status == 502 and b"refused" in r.body,
               "none listens: 502", (r.status, r.body))


def both(g, one, two):
    for _ in range(8):
        before = len(one.requests), len(two.requests)
        one.play(unary(GOOD))
        two.play(unary(GOOD))
        r = g.post(UNARY)
        if r.status != 200:
            break
        # the play of the one that was not asked
        idle = two if len(one.requests) > before[0] else one
        idle.plays.get_nowait()
    tap.eq(r.status, 200, "calls to two servers are answered")
    tap.ok(one.requests and two.requests, "by both",
           (len(one.requests), len(two.requests)))
    tap.none(as_itself(one, "/one/v1", "127.0.0.1")
             + as_itself(two, "/two", "localhost"),
             "each gets its own Host and base")


main()

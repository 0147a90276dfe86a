#!/usr/bin/python3
"""Several servers in one upstream: each is addressed as itself."""
import os
import socket
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from cases import UNARY  # noqa: E402
from upstream import FIN, RST, Raw, unary  # noqa: E402

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

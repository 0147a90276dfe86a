#!/usr/bin/python3
"""Several servers in one upstream: each is addressed as itself."""
import os
import socket
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from cases import UNARY  # noqa: E402
from upstream import Raw, unary  # noqa: E402

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
    tap.done()


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

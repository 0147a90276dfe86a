#!/usr/bin/python3
"""Calls in flight: limits, the queue that is fair, bodies, reload, drain."""
import json
import os
import re
import signal
import socket
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from gate import until  # noqa: E402
from tap import eq, ok  # noqa: E402
from upstream import GONE, Raw, Scripted, unary  # noqa: E402

ADMIN = "admin-token-0123456789"
ANSWER = {"id": "x", "object": "chat.completion", "created": 1, "model": "m",
          "choices": [{"index": 0, "finish_reason": "stop",
                       "message": {"role": "assistant", "content": "hi"}}]}


def conf(url):
    return (f"upstream u {{ server {url}/v1; }}\n"
            "capture c { level text; }\n"
            "server { listen 127.0.0.1:0;\n"
            "location /v1 { llm_intercept; upstream u; capture c;"
            " keys open; }\n"
            "location /sessions { sessions; token env:ADMIN; }\n"
            "location /health { health; }\n"
            "location /status { status; } }\n")


class Daemon(gate.Gate):
    def __init__(self, url, main):
        self.url = url
        super().__init__(conf(url), main + "\naccess_log access;",
                         env={"ADMIN": ADMIN})

    def limits(self, main):
        """A reload with other limits."""
        n = len(re.findall("is reloaded", self.log()))
        with open(self.conf, "w", encoding="utf-8") as f:
            f.write(f"state_dir {self.state};\n"
                    f"error_log stderr info;\n{main}\naccess_log access;\n"
                    + conf(self.url))
        self.p.send_signal(signal.SIGHUP)
        until(lambda: len(re.findall("is reloaded", self.log())) > n, "reload")

    def begin(self, name, host=1, key=None, size=0, send=None):
        """A call whose reply is not read yet, from 127.0.0.<host>."""
        s = socket.socket()
        s.settimeout(gate.PATIENCE)
        s.bind((f"127.0.0.{host}", 0))
        s.connect(("127.0.0.1", self.port))
        head = [("Authorization", f"Bearer {key}")] if key else []
        data = gate.request({"model": name, "messages": [
            {"role": "user", "content": "x" * size}]}, headers=head)
        s.sendall(data[:send])
        return s

    def session(self, name):
        r = gate.Reply(self.connect(), gate.request(
            {"id": name}, "/sessions", [("Authorization", f"Bearer {ADMIN}")]))
        return r.json()["key"]

    def metric(self, name):
        r = self.get("/status", headers=[("Accept", "text/plain")])
        for line in r.body.decode().splitlines():
            if line.startswith(f"sallyport_{name} "):
                return float(line.rsplit(" ", 1)[1])
        return None

    def waiting(self, n):
        until(lambda: self.metric("calls_waiting") == n, f"{n} to wait")

    def flying(self, n):
        until(lambda: self.metric("calls_in_flight") == n, f"{n} in flight")

    def access(self):
        with open(os.path.join(self.tmp.name, "access"),
                  encoding="utf-8") as f:
            return [json.loads(x) for x in f]


def refused(r, status, what):
    error = r.json().get("error", {}) if r.body else {}
    ok((r.status, error.get("code"), r.headers.get("retry-after")) ==
       (status, "too_many_calls", "1"), what,
       (r.status, r.headers, r.body))
    return error


class Model(Raw):
    """Answers when it is told to, one call at a time."""

    def __init__(self):
        super().__init__()
        self.free = threading.Semaphore(0)

    def expect(self, n):
        self.play(*[[self.free.acquire, *unary(ANSWER)]] * n)

    def names(self):
        return [json.loads(r.body)["model"] for r in self.requests]

    def seen(self, n):
        until(lambda: len(self.requests) >= n, f"request {n} upstream")


def test_no_queue(model, d):
    model.expect(3)
    a = d.begin("a1", 2)
    model.seen(1)
    error = refused(gate.Reply(d.begin("a2", 2)), 429,
                    "an address past its limit: 429")
    eq(error.get("type"), "rate_limit_error", "its type")
    b = d.begin("b1", 3)
    model.seen(2)
    error = refused(gate.Reply(d.begin("c1", 4)), 503,
                    "all places taken: 503")
    eq(error.get("type"), "server_error", "its type")
    eq(d.get("/health").status, 200,
       "what is no model call goes on")
    model.free.release(2)
    eq([gate.Reply(x).status for x in (a, b)], [200, 200], "those in end well")
    d.flying(0)
    c = d.begin("a3", 2)
    model.free.release()
    eq(gate.Reply(c).status, 200, "a place that was left is given again")
    eq((d.metric('calls_refused_total{reason="key_limit"}'),
        d.metric('calls_refused_total{reason="limit"}')), (1, 1),
       "refusals are counted by reason")
    lines = until(lambda: [x for x in d.access() if x["status"] in (429, 503)
                           ][1:] and d.access(), "access lines")
    eq([x["outcome"] for x in lines if x["status"] in (429, 503)],
       ["key_limit", "limit"], "and logged so")


def test_fair(model, d):
    d.limits("max_calls 1; queue 5 1m;")
    at = len(model.requests)
    model.expect(6)
    calls = [d.begin("x", 9)]
    model.seen(at + 1)
    for i, (name, host) in enumerate((("a1", 2), ("a2", 2), ("a3", 2),
                                      ("a4", 2), ("b1", 3))):
        calls.append(d.begin(name, host))
        d.waiting(i + 1)
    c = d.begin("c1", 4)
    refused(gate.Reply(calls[4]), 503,
            "a full queue: the newest of who has most there makes room")
    calls[4] = c
    for n in range(6):
        model.seen(at + n + 1)
        model.free.release()
    eq([gate.Reply(x).status for x in calls], [200] * 6, "the others end well")
    eq(model.names()[at:], ["x", "a1", "b1", "c1", "a2", "a3"],
       "addresses in turn, each its oldest first")


def test_sessions(model, d):
    d.limits("max_calls_per_key 1; queue 5 1m;")
    at = len(model.requests)
    model.expect(3)
    one, two = d.session("one"), d.session("two")
    first = d.begin("one-1", key=one)
    model.seen(at + 1)
    second = d.begin("one-2", key=one)
    d.waiting(1)
    other = d.begin("two-1", key=two)
    model.seen(at + 2)
    eq(model.names()[at:], ["one-1", "two-1"], "sessions count apart")
    d.limits("max_calls_per_key 2; queue 5 1m;")
    model.seen(at + 3)
    model.free.release(3)
    eq([gate.Reply(x).status for x in (first, second, other)], [200] * 3,
       "a reload with a higher limit lets the next one in")
    d.flying(0)


def test_leave(model, d):
    d.limits("max_calls 1; queue 5 1m;")
    at = len(model.requests)
    model.play([GONE])
    model.expect(1)
    first = d.begin("first", 2)
    model.seen(at + 1)
    second, third = d.begin("second", 3), d.begin("third", 4)
    d.waiting(2)
    second.close()
    d.waiting(1)
    ok(True, "a client that leaves waits no more")
    first.close()
    model.seen(at + 2)
    model.free.release()
    eq(gate.Reply(third).status, 200, "one that leaves gives its place back")
    eq(model.names()[at:], ["first", "third"], "nobody is called for nothing")
    d.flying(0)


def test_deadline(model, d):
    d.limits("max_calls 1; max_calls_per_key 1; queue 5 20ms;")
    at = len(model.requests)
    model.expect(1)
    first = d.begin("first", 2)
    model.seen(at + 1)
    refused(gate.Reply(d.begin("second", 2)), 429, "a key's own: 429 in time")
    refused(gate.Reply(d.begin("third", 3)), 503, "another's: 503 in time")
    model.free.release()
    eq(gate.Reply(first).status, 200, "the one that is in ends well")


def test_bodies(model, d):
    d.limits("max_body_bytes_in_flight 64k;")
    at = len(model.requests)
    r = gate.Reply(d.begin("big", size=70000, send=300))
    ok(r.status == 413 and b"max_body_bytes_in_flight" in r.body,
       "a body above the limit of all", r.body)
    first = d.begin("first", size=50000, send=40000)
    until(lambda: d.metric("body_bytes") > 30000, "bytes to be held")
    refused(gate.Reply(d.begin("second", size=50000, send=300)), 503,
            "no room for another one")
    first.close()
    until(lambda: d.metric("body_bytes") == 0, "bytes to be given back")
    model.expect(1)
    first = d.begin("first", size=50000)
    model.seen(at + 1)
    ok(d.metric("body_bytes") > 50000, "held while the model thinks")
    model.free.release()
    eq(gate.Reply(first).status, 200, "a body that fits")
    eq(d.metric("body_bytes"), 0, "nothing is held at the end")


def test_drain(model, d):
    d.limits("max_calls 1; queue 5 1m; drain_timeout 60s;")
    at = len(model.requests)
    model.expect(1)
    first = d.begin("first", 2)
    model.seen(at + 1)
    second = d.begin("second", 3)
    d.waiting(1)
    d.p.send_signal(signal.SIGTERM)
    refused(gate.Reply(second), 503, "a stop refuses those that wait")
    model.free.release()
    eq(gate.Reply(first).status, 200, "and waits for those that are in")


PLACES = """
upstream u {{ server {0}/v1; }}
max_connections_per_address 2;
server {{ listen 127.0.0.1:0; max_connections 3; max_calls 2;
location /v1 {{ llm_intercept; upstream u; capture off; keys open;
    max_calls 1; }}
location /b/v1 {{ llm_intercept; upstream u; capture off; keys open; }}
location /c/v1 {{ llm_intercept; upstream u; capture off; keys open; }}
location /status {{ status; }} }}
server {{ listen 127.0.0.1:0; max_connections_per_address 0;
location /v1 {{ llm_intercept; upstream u; capture off; keys open; }}
location /status {{ status; }} }}
"""


class Places(Daemon):
    def __init__(self, url):
        self.url = url
        gate.Gate.__init__(self, PLACES.format(url), "access_log access;")
        self.ports = [int(a.rsplit(":", 1)[1]) for a in self.addresses]

    def dial(self, host, at=0):
        s = socket.socket()
        s.settimeout(gate.PATIENCE)
        s.bind((f"127.0.0.{host}", 0))
        s.connect(("127.0.0.1", self.ports[at]))
        return s

    def send(self, s, path="/v1", close=True):
        s.sendall(gate.request({"model": "m", "messages": []},
                               f"{path}/chat/completions", close=close))
        return s

    def count(self, reason):
        return self.metric(f'calls_refused_total{{reason="{reason}"}}')

    def metric(self, name):
        self.port = self.ports[1]
        return super().metric(name)


def test_places():
    """Limits of a listener, an address there, a server and a location."""
    model = Model()
    with Places(model.url) as d:
        model.expect(8)
        model.free.release(100)
        a = [d.dial(2), d.dial(2)]
        for s in a:
            r = gate.Reply(d.send(s, close=False))
            eq(r.status, 200, "an address has as many connections as it may")
        extra = d.dial(2)
        r = gate.Reply(d.send(extra, close=False))
        refused(r, 429, "one more is told so")
        eq(r.headers.get("connection"), "close", "and closed")
        ok(r.gone(), "at once")
        b = d.dial(3)
        eq(gate.Reply(d.send(b, close=False)).status, 200,
           "another address gets in")
        refused(gate.Reply(d.send(d.dial(4))), 503,
                "the listener has as many as it may")
        r = gate.Reply(d.dial(4), gate.request(None, "/status"))
        eq(r.status, 200, "but the status is told")
        eq(gate.Reply(d.send(d.dial(4, 1))).status, 200,
           "another listener counts apart")
        many = [d.dial(2, 1) for _ in range(5)]
        eq([gate.Reply(d.send(s)).status for s in many[:2]], [200] * 2,
           "and an inner 0 takes an outer limit away")
        b.close()
        until(lambda: gate.Reply(d.send(d.dial(4))).status == 200,
              "a place that was left")
        ok(True, "a place that was left is given again")
        ok(d.count("connections_per_address") == 1 and
           d.count("connections") >= 1, "refusals are counted by reason")
        # more of them than are answered are closed without a word
        flood = [d.dial(2) for _ in range(80)]
        closed = until(lambda: [s for s in flood if silent(s)][15:],
                       "the rest to be closed")
        ok(closed, "far too many are closed")
        for s in flood + a + many:
            s.close()
        until(lambda: d.metric("connections_open") == 1, "all to be closed")
    model = Model()
    with Places(model.url) as d:
        model.expect(4)
        one = d.send(d.dial(2))
        model.seen(1)
        refused(gate.Reply(d.send(d.dial(3))), 503, "a location is full")
        two = d.send(d.dial(3), "/b/v1")
        model.seen(2)
        refused(gate.Reply(d.send(d.dial(4), "/c/v1")), 503,
                "its server is full")
        three = d.send(d.dial(5, 1))
        model.seen(3)
        ok(True, "another server has places of its own")
        eq((d.count("location_limit"), d.count("server_limit")), (1, 1),
           "both are counted")
        model.free.release(4)
        eq([gate.Reply(x).status for x in (one, two, three)], [200] * 3,
           "those in end well")
        d.flying(0)
        eq(gate.Reply(d.send(d.dial(3))).status, 200,
           "and their places are given again")


def silent(s):
    """It was closed, with nothing said."""
    s.setblocking(False)
    try:
        return s.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_many():
    """Forty clients of four addresses at a time, in the end all are served."""
    with Scripted("--delay-ms", "1") as model, \
            Daemon(model.url, "max_calls 4; max_calls_per_key 2;"
                   "queue 1000 1m;") as d:
        calls = [d.begin("m", 2 + i % 4) for i in range(40)]
        eq([gate.Reply(x).status for x in calls], [200] * 40, "all are served")
        until(lambda: d.metric("calls_in_flight") == 0, "nothing in flight")
        eq(d.metric("calls_waiting"), 0, "and nobody waits")


def main():
    model = Model()
    with Daemon(model.url, "max_calls 2; max_calls_per_key 1;") as d:
        test_no_queue(model, d)
        test_fair(model, d)
        test_sessions(model, d)
        test_leave(model, d)
        test_deadline(model, d)
        test_bodies(model, d)
        test_drain(model, d)
    test_places()
    test_many()
    tap.done()


main()

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
    test_many()
    tap.done()


main()

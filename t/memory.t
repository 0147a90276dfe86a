#!/usr/bin/python3
"""memory_max: bodies, slow readers and huge replies against a small ceiling."""
import json
import os
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from gate import until  # noqa: E402
from tap import eq, ok  # noqa: E402
from upstream import Raw, chunked, events, stream_head, unary  # noqa: E402

MIB = 1 << 20
CEILING = 64 * MIB
# What the kernel counts beside what was allocated: code, the allocator's
# spare, a sanitizer's shadow and redzones.
SPARE = 1.6
ANSWER = {"id": "x", "object": "chat.completion", "created": 1, "model": "m",
          "choices": [{"index": 0, "finish_reason": "stop",
                       "message": {"role": "assistant", "content": "hi"}}]}
CONF = """
upstream u {{ server {0}/v1; reply_max 64m; event_max 8m; }}
capture c {{ level text; }}
server {{ listen 127.0.0.1:0;
output_buffer 16m;
location /v1 {{ llm_intercept; upstream u; capture {1}; keys open; }}
location /health {{ health; }}
location /status {{ status; }} }}
"""


class Daemon(gate.Gate):
    def __init__(self, url, capture, main=""):
        asan = os.environ.get("ASAN_OPTIONS", "")
        super().__init__(CONF.format(url, capture), "memory_max 64m;\n" + main,
                         env={"ASAN_OPTIONS": asan + ":quarantine_size_mb=1:"
                              "thread_local_quarantine_size_kb=64"})
        kids = self.children()
        self.pid = kids["sallyport-reactor"]
        self.recorder = kids["sallyport-recorder"]
        self.top = 0

    def rss(self, pid=None):
        with open(f"/proc/{pid or self.pid}/status", encoding="ascii") as f:
            for line in f:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        return 0

    def metrics(self):
        r = self.get("/status", headers=[("Accept", "text/plain")])
        out = {}
        for line in r.body.decode().splitlines():
            if line.startswith("sallyport_"):
                name, value = line.rsplit(" ", 1)
                out[name[len("sallyport_"):]] = float(value)
        return out

    def live(self):
        return sum(v for k, v in self.metrics().items()
                   if k.startswith("memory_bytes{"))

    def refused(self):
        return self.metrics()['calls_refused_total{reason="memory"}']

    def ask(self):
        return self.post({"model": "m", "messages": []})


class Watch:
    """The highest RSS while it is entered."""

    def __init__(self, d, pid=None):
        self.d, self.pid, self.top, self.over = d, pid, 0, threading.Event()

    def __enter__(self):
        self.before = self.d.rss(self.pid)
        self.t = threading.Thread(target=self.run, daemon=True)
        self.t.start()
        return self

    def run(self):
        while not self.over.wait(0.01):
            self.top = max(self.top, self.d.rss(self.pid))

    def __exit__(self, *_):
        self.over.set()
        self.t.join()

    def check(self, what):
        limit = self.before + CEILING * SPARE
        ok(self.top < limit, f"{what}: the process stays within bounds",
           (self.top // MIB, int(limit) // MIB))


def recovered(d, model, what):
    until(lambda: d.metrics()["memory_pressure"] == 0, "pressure to end")
    until(lambda: d.live() < 16 * MIB, "memory to be given back")
    ok(True, f"{what}: memory is given back")
    model.play(unary(ANSWER))
    eq(d.ask().status, 200, f"{what}: then calls are served as before")


def answered(d, what):
    r = d.get("/health")
    told = json.loads(r.body)
    ok(r.status in (200, 503) and
       told["status"] == ("ok" if r.status == 200 else "unavailable") and
       (r.status == 200 or "memory_max" in told["reason"]),
       f"{what}: the health is told all the while", (r.status, told))


def statuses(socks, n):
    """Replies that have come, as {status: how many}, once they are n."""
    seen = {}

    def look():
        for s in list(socks):
            s.setblocking(False)
            try:
                data = s.recv(65536)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                data = b""
            finally:
                s.settimeout(gate.PATIENCE)
            socks.remove(s)
            key = int(data.split(b" ", 2)[1]) if data else 0
            seen[key] = seen.get(key, 0) + 1
            s.close()
        return sum(seen.values()) >= n
    until(look, f"{n} replies")
    return seen


def test_bodies(d, model):
    head = gate.request(b"", close=False).split(b"\r\n\r\n")[0].replace(
        b"Content-Length: 0", b"Content-Length: %d" % (8 * MIB))
    socks = [d.connect() for _ in range(24)]
    with Watch(d) as w:
        def send(s):
            try:
                s.sendall(head + b"\r\n\r\n" + b"x" * (8 * MIB - 1))
            except OSError:
                pass
        threads = [threading.Thread(target=send, args=(s,), daemon=True)
                   for s in socks]
        for t in threads:
            t.start()
        until(lambda: d.metrics()['calls_refused_total{reason="memory"}'] > 0,
              "refusals")
        answered(d, "bodies")
        seen = statuses(socks, 8)
        eq(set(seen) - {503, 0}, set(), "bodies past the ceiling get 503")
        for s in socks:
            s.close()
        for t in threads:
            t.join()
    w.check("bodies")
    recovered(d, model, "bodies")
    r = d.post(b"y" * 30 * MIB)
    ok(r.status == 413 and b"memory_max" in r.body,
       "a body that could never fit gets 413", (r.status, r.body[:200]))


def flood(size, count):
    """A play: count events of size bytes, until the gateway takes no more."""
    event = chunked(events({"choices": [{"index": 0, "delta": {
        "content": "z" * size}}]}))
    return [stream_head(), *[event] * count, b"0\r\n\r\n"]


def test_slow_readers(d, model):
    ended = d.metrics()['memory_ended_total{kind="calls"}']
    model.play(*[flood(256 * 1024, 200)] * 24)
    with Watch(d) as w:
        socks = []
        for _ in range(24):
            s = d.connect(rcvbuf=4096)
            s.sendall(gate.request({"model": "m", "stream": True,
                                    "messages": []}))
            socks.append(s)
        until(lambda: d.metrics()['memory_ended_total{kind="calls"}'] > ended,
              "those that hold most to be ended")
        answered(d, "slow readers")
        until(lambda: d.metrics()["memory_pressure"] < 2, "it to get easier")
        for s in socks:
            s.close()
    w.check("slow readers")
    # plays that nobody asked for
    while not model.plays.empty():
        model.plays.get_nowait()
    recovered(d, model, "slow readers")


def test_replies(d, model):
    body = b'{"choices":[{"index":0,"message":{"content":"' + b"w" * 12 * MIB
    head = (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % (len(body) + 100))
    model.play(*[[head + body, ("gone",)]] * 16)
    with Watch(d) as w:
        socks = []
        for _ in range(16):
            s = d.connect()
            s.sendall(gate.request({"model": "m", "messages": []}))
            socks.append(s)
        seen = statuses(socks, 10)
        answered(d, "huge replies")
        eq(set(seen) - {503}, set(), "replies that do not fit end in 503")
        for s in socks:
            s.close()
    w.check("huge replies")
    while not model.plays.empty():
        model.plays.get_nowait()
    recovered(d, model, "huge replies")


def test_metrics(d):
    m = d.metrics()
    eq(m["memory_max_bytes"], CEILING, "/status tells the ceiling")
    eq(sorted(k for k in m if k.startswith("memory_bytes")),
       [f'memory_bytes{{part="{p}"}}' for p in
        ("bodies", "http2", "other", "recorder", "replies", "tls")],
       "and where memory is")
    r = d.get("/status", headers=[("Accept", "application/json")])
    ok(b"memory_bytes" in r.body, "in JSON, too")


def test_recorder():
    """Turns that hold more than the recorder may: credit, then a cut."""
    model = Raw()
    with Daemon(model.url, "c", "recorder_memory_max 64m;") as d:
        turns = 24
        model.play(*[flood(128 * 1024, 64)] * turns)
        with Watch(d, d.recorder) as w:
            socks = []
            for _ in range(turns):
                s = d.connect()
                s.sendall(gate.request({"model": "m", "stream": True,
                                        "messages": []}))
                socks.append(s)

            def read(s):
                try:
                    while s.recv(1 << 20):
                        pass
                except OSError:
                    pass
            threads = [threading.Thread(target=read, args=(s,), daemon=True)
                       for s in socks]
            for t in threads:
                t.start()
            for t in threads:
                t.join(gate.PATIENCE)
        w.check("recorder")
        until(lambda: d.metrics()["turns_open"] == 0, "the turns to end")
        recs = d.records()
        eq(len(recs), turns, "recorder: every turn is on file")
        ok(all("truncated" in r["findings"] or
               len(r["response"]["choices"][0]["message"]["content"])
               == 64 * 128 * 1024 for r in recs),
           "recorder: whole, or it says that it was cut short")
        until(lambda: d.metrics()["recorder_up"] == 1, "the recorder")
        while not model.plays.empty():
            model.plays.get_nowait()
        model.play(unary(ANSWER))
        eq(d.ask().status, 200, "recorder: then calls are served as before")
        eq(d.children()["sallyport-recorder"], d.recorder,
           "recorder: nothing died of it")


def main():
    for capture in ("off", "c"):
        model = Raw()
        with Daemon(model.url, capture) as d:
            model.play(unary(ANSWER))
            eq(d.ask().status, 200, f"capture {capture}: a call")
            test_metrics(d)
            test_bodies(d, model)
            test_slow_readers(d, model)
            test_replies(d, model)
            ok(d.p.poll() is None and
               d.children()["sallyport-reactor"] == d.pid,
               "nothing died of it")
    test_recorder()
    tap.done()


if __name__ == "__main__":
    main()

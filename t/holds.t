#!/usr/bin/python3
"""What waits for the recorder, what is lost to it, and that both are told."""
import json
import os
import signal
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from gate import until  # noqa: E402
from tap import eq, ok  # noqa: E402
from upstream import Raw, chunked, events, sse, stream_head, unary  # noqa: E402

CONF = """
upstream u {{ server {0}/v1; }}
capture c {{ level logprobs; }}
server {{ listen 127.0.0.1:0;
location /v1 {{ llm_intercept; upstream u; capture c; keys open; }}
location /status {{ status; }} }}
"""
ASK = {"model": "m", "stream": True, "messages": []}
HI = {"choices": [{"index": 0, "delta": {"role": "assistant",
                                         "content": "hi"}}]}
STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def answer(text):
    return {"id": "x", "object": "chat.completion", "created": 1,
            "model": "m", "choices": [{"index": 0, "finish_reason": "stop",
                                       "message": {"role": "assistant",
                                                   "content": text}}]}


class Daemon(gate.Gate):
    def __init__(self, model, main="", env=None):
        super().__init__(CONF.format(model.url), main, env)
        self.recorder = self.children()["sallyport-recorder"]

    def still(self):
        os.kill(self.recorder, signal.SIGSTOP)

    def go(self):
        os.kill(self.recorder, signal.SIGCONT)

    def turns_of_the_loop(self):
        """What was sent to it before has been read when this returns."""
        for _ in range(3):
            self.get("/status")


def test_done(d, model):
    """[DONE], however it is written, waits until the turn is on file."""
    for end in (b"data: [DONE]\n\n", b"data:[DONE]\n\n",
                b"data: [DONE] \n\n", b"data:   [DONE]\r\n\r\n",
                b"data: [DONE]\r\n\r\n", b"data: [DONE]x\n\n"):
        n = len(d.lines())
        d.still()
        model.play(sse(events(HI), events(STOP), end))
        r = gate.Reply(d.connect(), gate.request(ASK), read=False)
        r.head()
        got = b""
        while b'"finish_reason"' not in got:
            got += r.chunk()
        d.turns_of_the_loop()
        r.s.setblocking(False)
        try:
            early = r.buf + r.s.recv(65536)
        except BlockingIOError:
            early = r.buf
        r.s.settimeout(gate.PATIENCE)
        r.buf = early
        ok(b"[DONE]" not in early and len(d.lines()) == n,
           f"{end!r} is held", early)
        d.go()
        rest = b""
        while c := r.chunk():
            rest += c
        ok(c == b"" and rest == end and len(d.lines()) == n + 1,
           "and comes as it was when the turn is on file", rest)


def test_lines(d, model):
    """An event of several data lines, out of which something is taken."""
    choice = dict(HI["choices"][0], logprobs={"content": []})
    text = json.dumps({"choices": [choice], "id": 1}, indent=1)
    lines = "".join(f"data: {x}\n" for x in text.split("\n"))
    event = ("event: message\n" + lines + "\n").encode()
    model.play(sse(event, events(STOP, done=True)))
    r = d.post(ASK)
    first = r.body.split(b"\n\n")[0].decode().split("\n")
    eq(first[0], "event: message", "its name stays")
    ok(all(x.startswith("data: ") for x in first[1:]) and len(first) > 5,
       "and each line of its data has its own", first)
    got = json.loads("\n".join(x[6:] for x in first[1:]))
    eq((got["id"], "logprobs" in got["choices"][0],
        got["choices"][0]["delta"]["content"]), (1, False, "hi"),
       "which together are the event, without what was not asked for")


def test_lengths(d, model):
    """RFC 9112 s6.3: two lengths; the coding wins, the connection ends."""
    body = json.dumps(answer("both")).encode()
    head = (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n")
    closed = []
    for length in (len(body), 5, len(body) + 100):
        model.play([head % length, chunked(body), b"0\r\n\r\n",
                    lambda: closed.append(1)] + [("gone",)])
        r = d.post({"model": "m", "messages": []})
        eq((r.status, r.headers.get("content-length"), r.json()
            ["choices"][0]["message"]["content"]),
           (200, str(len(body)), "both"),
           f"Content-Length {length} and chunks: the chunks count")
        model.ends.get(timeout=gate.PATIENCE)
        ok(True, "and the connection is used no more")
    model.play([head.replace(b"%d", b"5, 6"), chunked(body), b"0\r\n\r\n",
                ("gone",)])
    r = d.post({"model": "m", "messages": []})
    eq(r.status, 502, "lengths that differ among themselves: 502")


def test_truncated(model):
    """More than recorder_buffer at once does not fit."""
    big = "x" * (3 << 20)
    with Daemon(model, "recorder_buffer 1m;") as d:
        model.play(unary(answer("small")))
        r = d.post({"model": "m", "messages": [{"role": "user",
                                                "content": big}]})
        eq((r.status, r.json()["choices"][0]["message"]["content"]),
           (200, "small"), "a request over recorder_buffer is served")
        rec = d.record(0)
        ok("truncated" in rec["findings"] and rec["request"] is None
           and not rec["complete"] and not rec["metadata"]["trainable"],
           "and recorded as truncated, without it", rec["findings"])
        eq(rec["response"]["choices"][0]["message"]["content"], "small",
           "its answer is there")
        model.play(unary(answer(big)))
        r = d.post({"model": "m", "messages": []})
        eq(len(r.json()["choices"][0]["message"]["content"]), len(big),
           "an answer over it is served")
        rec = d.record(1)
        ok("truncated" in rec["findings"] and not rec["aligned"]
           and not rec["metadata"]["trainable"],
           "and recorded as truncated", rec["findings"])
        model.play(unary(answer("again")))
        eq(d.post({"model": "m", "messages": []}).status, 200,
           "the next turn")
        eq(d.record(2)["complete"], True, "is whole again")


def test_stop(model):
    """A stop settles turns that the recorder was not told the end of."""
    d = Daemon(model)
    try:
        model.play([stream_head(), chunked(events(HI)), ("gone",)],
                   sse(events(HI), events(STOP, done=True)))
        r = gate.Reply(d.connect(), gate.request(ASK), read=False)
        r.head()
        r.chunk()
        d.still()
        r.s.close()
        model.ends.get(timeout=gate.PATIENCE)
        s = gate.Reply(d.connect(), gate.request(ASK), read=False)
        s.head()
        s.chunk()
        d.turns_of_the_loop()
        d.p.send_signal(signal.SIGTERM)
        until(lambda: "draining" in d.log(), "the drain")
        d.go()
        rest = b""
        while c := s.chunk():
            rest += c
        ok(b"[DONE]" in rest, "a stop waits for a call's end")
        eq(d.p.wait(gate.PATIENCE), 0, "and is clean")
        recs = d.records()
        eq(sorted(x["metadata"]["outcome"] for x in recs),
           ["client_gone", "end"], "both turns are on file")
        ok(os.path.exists(d.trace_path()[:-6] + ".seal"),
           "and the trace is sealed")
    finally:
        d.stop()
        d.tmp.cleanup()


def test_hung(model):
    """Who hangs is found out and replaced; SP_PING_MS is a look of twelve."""
    if gate.confined():
        tap.skip("who hangs", "takes a minute in a build with confinement")
        return
    with Daemon(model, env={"SP_PING_MS": "200"}) as d:
        d.still()
        model.play(unary(answer("held")))
        r = gate.Reply(d.connect(), gate.request({"model": "m",
                                                  "messages": []}))
        ok(f"recorder (pid {d.recorder}) has not answered for 2 s: killed, "
           "another one is started" in d.log(),
           "a call ends when a recorder that hangs is found out", r.status)
        until(lambda: "recorder serves again" in d.log(), "another one")
        model.play(unary(answer("next")))
        eq(d.post({"model": "m", "messages": []}).status, 200,
           "the next one serves")
        reactor = d.children()["sallyport-reactor"]
        os.kill(reactor, signal.SIGSTOP)
        until(lambda: "reactor serves again" in d.log(), "another reactor")
        ok(f"reactor (pid {reactor}) has not answered for 2 s: killed"
           in d.log(), "likewise a reactor")
        got = d.get("/status").body
        ok(b'restarts_total{role="reactor"} 1' in got and
           b'restarts_total{role="recorder"} 1' in got, "both are counted")


def main():
    if os.getuid() != 0:
        tap.skip_all("the recorder can be stopped only by root")
    model = Raw()
    with Daemon(model) as d:
        test_done(d, model)
        test_lines(d, model)
        test_lengths(d, model)
    test_truncated(model)
    test_stop(model)
    test_hung(model)
    tap.done()


main()

#!/usr/bin/python3
"""Cases G and I: errors, clients that leave, silence, back-pressure."""
import os
import socket
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from cases import ASK, UNARY, Door, holds, row  # noqa: E402
from upstream import (FIN, GONE, RST, chunked, events, sse, stream_head,  # noqa
                      unary, wait)

MESSAGE = "response.choices.0.message"
PARTIAL = "metadata.partial_response.choices.0.message.content"


def say(text, finish=None):
    c = {"index": 0, "delta": {"content": text}}
    if finish:
        c["finish_reason"] = finish
    return {"choices": [c]}


def in_stream(door):
    row(door, "G1 an error object within a stream", events(
        say("par"), '{"id":"g","choices":[{"index":0,"delta":{"content":""},'
        '"finish_reason":"error"}],"error":{"code":502,"message":"provider '
        'lost","metadata":{"error_type":"provider_unavailable"}}}',
        done=True),
        record={"complete": False, "upstream_error.code": 502,
                "upstream_error.message": "provider lost",
                "response": None, PARTIAL: "par",
                "+findings": "error_in_stream", "metadata.trainable": False})
    for what, error in (("a code of letters", '{"code":"overloaded",'
                         '"message":"m"}'), ("a string", '"broken"')):
        row(door, f"G1 {what}, without choices",
            events(say("par"), '{"error":%s}' % error),
            record={"complete": False, "+findings": "error_in_stream"})
    for reason in ("abort", "aborted", "error", ""):
        row(door, f"G3 finish_reason {reason!r}", events(
            say("half"), '{"choices":[{"index":0,"delta":{"content":""},'
            '"finish_reason":"%s"}]}' % reason, done=True),
            record={"finish_reason": reason, "metadata.trainable": False,
                    "complete": False})
    row(door, "G3 an unknown one", events(
        say("half", "martian"), done=True),
        record={"finish_reason": "martian", "metadata.trainable": False,
                "+findings": "unknown_finish_reason"})


def broken_off(door):
    one = events(say("ok"))
    half = b'data: {"choices":[{"index":0,"del'
    for what, play in (
            ("RST", [*sse(one + half, end=None), wait(0.05), RST]),
            ("FIN within a chunk", [stream_head(), chunked(one),
                                    b"400\r\n" + half, FIN]),
            ("FIN between chunks", [*sse(one, end=None), FIN]),
            ("close without an end", [stream_head(framing=b""), one + half,
                                      FIN])):
        asked = len(door.up.requests)
        r = door.call(play)
        tail = r.body[len(one):]
        tap.ok(r.status == 200 and r.body.startswith(one) and not r.whole
               and tail.startswith(b'data: {"error":{')
               and tail.endswith(b"}}\n\n") and tail.count(b"\n") == 2
               and b"[DONE]" not in tail and b"finish_reason" not in tail,
               f"G4 {what}: whole events, one error event, no end", r.body)
        holds(f"G4 {what}", r.record, {
            "complete": False, PARTIAL: "ok",
            "+findings": "upstream_disconnect", "finish_reason": None})
        tap.eq(len(door.up.requests) - asked, 1,
               f"G8 {what}: no second attempt after the first byte")
    r = door.call([RST], UNARY)
    tap.ok(r.status == 502 and r.whole and
           r.json()["error"]["code"].startswith("upstream_"),
           "G8: an upstream that breaks off is 502", (r.status, r.body))
    r = door.call(unary(b'{"choices":[{"index":0,"message"'), UNARY)
    tap.ok(r.status == 502 and "error" in r.json(),
           "G8: half a reply is 502, no empty success", (r.status, r.body))
    for what, play in (("nothing at all", sse()),
                       ("[DONE] alone", sse(events(done=True))),
                       ("plain JSON", unary({"choices": [{
                           "index": 0, "message": {"content": "x"}}]}))):
        r = door.call(play)
        tap.ok(r.status == 502 and r.whole and "message" in r.json()["error"],
               f"G8: {what} for a stream is 502: agents loop on it",
               (r.status, r.body))


def statuses(door):
    fields = [("retry-after", "7"), ("Retry-After-Ms", "6800"),
              ("x-request-id", "r1"), ("x-ratelimit-remaining-tokens", "0")]
    for body in (ASK, UNARY):
        asked = len(door.up.requests)
        r = door.call(unary(b"{}", "429 Too Many Requests", fields), body)
        tap.ok(r.status == 429 and r.body == b"{}" and all(
            (k, v) in r.fields for k, v in fields),
            "G7: 429 with its fields and body", (r.status, r.fields, r.body))
        tap.eq(len(door.up.requests) - asked, 1, "G7: is not tried again")
        holds("G7", r.record, {"upstream_status": 429, "response": None,
                               "complete": False,
                               "+findings": "error_status"})
    r = door.call(unary(b"<html>no</html>", "500 Internal Server Error"),
                  UNARY)
    tap.ok(r.status == 500 and r.body == b"<html>no</html>",
           "G7: an error that is no JSON passes, too", (r.status, r.body))
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    with gate.Gate("upstream u { server http://127.0.0.1:%d; }\n"
                   "capture c { level text; }\nserver { listen 127.0.0.1:0;"
                   "location /v1 { llm_intercept; upstream u; capture c;"
                   "keys open; } }" % closed.getsockname()[1]) as g:
        r = g.post(UNARY)
        tap.ok(r.status == 502 and r.json()["error"]["code"] ==
               "upstream_unreachable", "G8: nobody there is 502",
               (r.status, r.body))
        holds("G8", g.record(0), {"complete": False, "upstream_status": None,
                                  "+findings": "upstream_disconnect"})
    r = door.call([GONE], UNARY, "hasty")
    tap.ok(r.status == 504 and r.json()["error"]["code"] ==
           "upstream_timeout", "G8: silence is 504", (r.status, r.body))


def left(door, name, play, body, seen, record, leave="reset"):
    """The client goes; the upstream must be let go, the turn recorded."""
    before = len(door.lines())
    door.up.play(play)
    r = gate.Reply(door.gate.connect(), gate.request(body), read=False)
    seen(r)
    if leave == "reset":
        r.reset()
    else:
        r.s.close()
    try:
        door.up.ends.get(timeout=gate.PATIENCE)
        good = True
    except Exception:
        good = False
    tap.ok(good, f"{name}: the upstream is let go")
    holds(name, gate.strict(door.line(before)), {
        "aborted": True, "complete": False, "+findings": "client_abort",
        **record})


def three(r):
    r.head()
    got = b""
    while got.count(b"\n\n") < 3:
        got += r.chunk()


def leaving(door):
    some = events(say("a"), say("b"), say("c"))
    for how in ("reset", "close"):
        left(door, f"I1 in a stream ({how})", [*sse(some, end=None), GONE],
             ASK, three, {MESSAGE + ".content": "abc",
                          "finish_reason": None}, how)
    arrived = threading.Event()

    def asked(_):
        arrived.wait(gate.PATIENCE)
        arrived.clear()
    left(door, "I1 before the head", [arrived.set, GONE], ASK, asked, {})
    left(door, "I3 in a unary call", [arrived.set, GONE], UNARY, asked, {})
    left(door, "I3 in a unary reply", [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100\r\n\r\n{", arrived.set, GONE],
        UNARY, asked, {})
    # only the write side is shut: not a cancel
    before = len(door.lines())
    door.up.play([arrived.set, wait(0.2)] + unary({"choices": [{
        "index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]}))
    s = door.gate.connect()
    s.sendall(gate.request(UNARY))
    arrived.wait(gate.PATIENCE)
    s.shutdown(socket.SHUT_WR)
    r = gate.Reply(s)
    tap.ok(r.status == 200 and r.whole, "I3: a half-close is not a cancel",
           (r.status, r.body))
    holds("I3 half-close", gate.strict(door.line(before)), {
        "aborted": False, "complete": True})


def slow_reader(door):
    """I4: what is not read is not fetched, and holds up nobody else."""
    piece = events(say("x" * 8000))
    count = 2600  # 20 MB
    sent = [0]

    def note():
        sent[0] += 1
    play = [stream_head()]
    for _ in range(count):
        play += [chunked(piece), note]
    play += [chunked(events(say("end", "stop"), done=True)), b"0\r\n\r\n"]
    before = len(door.lines())
    door.up.play(play)
    s = door.gate.connect(rcvbuf=2048)
    s.sendall(gate.request(ASK))
    r = gate.Reply(s, read=False)
    tap.ok(r.head(), "I4: the slow one has begun")
    last = -1
    while last != sent[0]:  # until the upstream gets no more out
        last = sent[0]
        time.sleep(0.3)
    tap.ok(sent[0] < count * 6 // 10, "I4: the upstream is held back",
           f"{sent[0]} of {count} pieces went out")
    door.up.play(sse(events(say("quick", "stop"), done=True)))
    q = door.gate.post(ASK)
    tap.ok(q.whole and b"quick" in q.body, "I4: others are served meanwhile")
    door.line(before)  # the quick one's record
    good, total = True, 0
    while True:
        c = r.chunk()
        if not c:
            good = c == b""
            break
        total += len(c)
    want = len(piece) * count + len(events(say("end", "stop"), done=True))
    tap.ok(good and total == want, "I4: the slow one gets all of it",
           (good, total, want))


def silence(door):
    play = [stream_head()]
    for i in range(8):
        play += [wait(0.4), chunked(events(say(str(i))))]
    play += [chunked(events(say("8", "stop"), done=True)), b"0\r\n\r\n"]
    r = door.call(play, where="hasty")
    tap.ok(r.whole and b"[DONE]" in r.body and r.record["complete"],
           "I6: a stream may take longer than the bound on its silence",
           (r.body, r.how))
    play = [*sse(events(say("a")), end=None)]
    for _ in range(600):
        play += [wait(0.1), chunked(b": hb\n\n")]
    r = door.call(play, where="hasty")
    tap.ok(not r.whole and b"[DONE]" not in r.body and b": hb\n" in r.body
           and b"upstream_timeout" in r.body,
           "I8: heartbeats are not progress", r.body[-600:])
    holds("I8", r.record, {"complete": False, PARTIAL: "a"})
    r = door.call([wait(0.4), *unary(b'{"error":{}}', "429 Slow")],
                  where="ka")
    tap.ok(r.status == 429, "I7: no comment before the upstream's head",
           (r.status, r.body))


with Door() as door:
    in_stream(door)
    broken_off(door)
    statuses(door)
    leaving(door)
    slow_reader(door)
    silence(door)
tap.done()

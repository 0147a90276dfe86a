#!/usr/bin/python3
"""Cases A to D: framing of streams, shape of chunks, tool calls, content."""
import os
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from cases import ASK, MISSING, Door, holds, row  # noqa: E402
from upstream import FIN, events, sse, stream_head, wait, wire  # noqa: E402

MESSAGE = "response.choices.0.message"
CALLS = MESSAGE + ".tool_calls"
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
WITH_USAGE = {**ASK, "stream_options": {"include_usage": True}}


def delta(finish=None, **d):
    c = {"index": 0, "delta": d}
    if finish:
        c["finish_reason"] = finish
    return {"choices": [c]}


def say(text, **more):
    return delta(content=text, **more)


STOP = delta(finish="stop")
CALL_1 = {"index": 0, "id": "c", "function": {"name": "w"}}


def calls(*pieces):
    """Chunks with one list of tool_calls each."""
    return [delta(tool_calls=p if isinstance(p, list) else [p])
            for p in pieces]


def fn(args=None, name=None, **more):
    f = {k: v for k, v in (("name", name), ("arguments", args))
         if v is not None}
    return {**more, "function": f}


def framing(door):
    row(door, "A1 CRLF", wire(
        'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}'
        "<CR><LF><CR><LF>data: [DONE]<CR><LF><CR><LF>"),
        record={MESSAGE + ".content": "a", "metadata.done_seen": True})
    row(door, "A1 CR alone", events(say("a"), STOP, done=True, eol=b"\r"),
        record={MESSAGE + ".content": "a", "complete": True})
    row(door, "A1 all three in one stream",
        events(say("a"), eol=b"\r\n") + events(say("b"), eol=b"\r")
        + events(say("c"), STOP, done=True),
        record={MESSAGE + ".content": "abc", "complete": True})
    row(door, "A3 no space after the colon",
        b'data:{"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
        b"data:[DONE]\n\n",
        record={MESSAGE + ".content": "x", "metadata.done_seen": True})
    row(door, "A3 two spaces", b'data:  {"choices":[{"index":0,"delta":'
        b'{"content":"x"}}]}\n\ndata:  [DONE]\n\n',
        record={MESSAGE + ".content": "x"})
    bom = b"\xef\xbb\xbf"
    one = events(say("first \ufeff"))
    row(door, "A4 a byte order mark in three pieces",
        [stream_head(), b"1\r\n\xef\r\n", wait(0.01), b"1\r\n\xbb\r\n",
         wait(0.01), b"1\r\n\xbf\r\n"] + sse(one)[1:], want=one,
        record={MESSAGE + ".content": "first \ufeff"})
    row(door, "A4 only one of them", bom + bom + one + events(say("b")),
        want=events(say("b")), record={MESSAGE + ".content": "b"})
    # the blank line behind a comment would be an empty event to some
    row(door, "A5 comments", b": PROCESSING\n\n: PROCESSING\n\n"
        + events(say("ok")), want=b": PROCESSING\n: PROCESSING\n"
        + events(say("ok")), record={MESSAGE + ".content": "ok"})
    row(door, "A5 a comment within an event",
        b": one\n" + events(say("ok")) + b": two\n\n",
        want=b": one\n" + events(say("ok")) + b": two\n",
        record={MESSAGE + ".content": "ok"})
    alive = b"id: 7\n" + events(say("still alive"))
    row(door, "A7 blocks without data",
        b"retry: 3000\n\nevent: ping\n\ndata:\n\n" + alive, want=alive,
        record={MESSAGE + ".content": "still alive"})
    row(door, "A11 ends of lines that are none",
        wire('data: {"choices":[{"index":0,"delta":{"content":"one<xE2><x80>'
             '<xA8>two<xC2><x85>three<x0B><x0C>"}}]}<LF><LF>')
        .replace(b"\x0b\x0c", b"\\u000b\\u000c"),
        record={MESSAGE + ".content": "one\u2028two\x85three\v\f"})
    line = door.lines()[-1].decode()
    tap.ok(len(line.splitlines()) == 1,
           "A11: a line of the trace is one for every reader")
    ended = events(say("hi"), STOP)
    row(door, "A12 no [DONE]", [stream_head(framing=b""), ended, FIN],
        want=ended, record={"complete": True, "metadata.done_seen": False,
                            MESSAGE + ".content": "hi"})
    for what, tail, added in (("one LF", b"data: [DONE]\n", b"\n"),
                              ("no LF", b"data:[DONE]", b"\n\n"),
                              ("CR LF", b"data: [DONE]\r\n", b"\n"),
                              ("CR LF CR", b"data: [DONE]\r\n\r", b"\n")):
        r = row(door, f"[DONE] with {what} at the end", sse(ended + tail),
                want=ended + tail + added,
                record={"complete": True, "metadata.done_seen": True})
        tap.ok(r.whole, f"[DONE] with {what}: the client's stream ends well")
    row(door, "[DONE] with one LF, ended by a close",
        [stream_head(framing=b""), ended + b"data: [DONE]\n", FIN],
        want=ended + b"data: [DONE]\n\n", record={"complete": True, "metadata.done_seen": True})
    for what, play in (
            ("without a finish_reason, ended by a close",
             [stream_head(framing=b""),
              events(say("hi")) + b"data: [DONE]\n", FIN]),
            ("within another line", sse(ended + b'data: {"a":\ndata: [DONE]')),
            ("of another kind", sse(ended + events(say("x"))[:-1]))):
        r = door.call(play)
        tap.ok(not r.whole and b'"error"' in r.body
               and r.record["complete"] is False,
               f"half an event {what} is no end", (r.body, r.record))
    row(door, "A14 error as a field", b'error: {"code":400,"message":"too '
        b'long","type":"invalid_request_error"}\n\ndata: [DONE]\n\n',
        want=b'data: {"error":{"code":400,"message":"too long","type":'
        b'"invalid_request_error"}}\n\ndata: [DONE]\n\n',
        record={"complete": False, "upstream_error.message": "too long",
                "response": None, "+findings": "error_in_stream"})


def long_lines(door):
    data = events(say("a" * 5000000), STOP, done=True)
    r = row(door, "A10 a line of 5 MB", data, record={"complete": True})
    tap.ok(r.record["response"]["choices"][0]["message"]["content"]
           == "a" * 5000000, "A10: all of it is in the trace")
    r = door.call(sse(events(say("ok")), events(say("a" * 100000)),
                      events(STOP, done=True)), where="small")
    tap.ok(r.body.startswith(events(say("ok"))) and not r.whole
           and b"[DONE]" not in r.body and b'data: {"error":' in r.body,
           "A10 over the bound: an error event, no end", r.body[:600])
    holds("A10 over the bound", r.record, {"complete": False})


def stepwise(door, name, pieces, where="v1", also=b""):
    """The upstream sends a piece only when the client has the one before."""
    steps = [threading.Event() for _ in pieces]
    play = [stream_head()]
    for i, p in enumerate(pieces):
        play.append(b"%x\r\n%s\r\n" % (len(p), p))
        play.append(lambda e=steps[i]: e.wait(gate.PATIENCE))
    door.up.play(play + [b"0\r\n\r\n"])
    r = gate.Reply(door.gate.connect(), gate.request(
        ASK, f"/{where}/chat/completions"), read=False)
    good = r.head() and r.status == 200
    got = b""
    for i, p in enumerate(pieces):
        need = p if i < len(pieces) - 1 else b""  # the last waits for the file
        while good and (need not in got or also not in got):
            c = r.chunk()
            good = bool(c)
            got += c or b""
        if need:
            got = got[got.find(need) + len(need):] if good else got
        steps[i].set()
    rest = b""
    while good:
        c = r.chunk()
        if not c:
            good = c == b""
            break
        rest += c
    tap.ok(good, f"{name}: each event is there before the next is sent",
           f"left: {got[-300:]!r} {rest[-300:]!r}")


def keepalive(door):
    one, two = events(say("1")), events(say("2"), STOP, done=True)
    seen = threading.Event()
    door.up.play([stream_head(), b"%x\r\n%s\r\n" % (len(one), one),
                  lambda: seen.wait(gate.PATIENCE)]
                 + sse(two)[1:])
    r = gate.Reply(door.gate.connect(), gate.request(
        ASK, "/ka/chat/completions"), read=False)
    r.head()
    got = b""
    while got.count(b": ka\n") < 2:
        c = r.chunk()
        if not c:
            break
        got += c
    seen.set()
    while True:
        c = r.chunk()
        if not c:
            break
        got += c
    between = got[len(one):-len(two)]
    tap.ok(got.startswith(one) and got.endswith(two)
           and between and between == b": ka\n" * (len(between) // 5),
           "A6, I7: own comments: one line each, between events", got)


def cuts(door):
    """Every position where an answer can be cut into two reads."""
    data = (b"\xef\xbb\xbf: hello\n\n"
            + events(say("spl\u00e9t \U0001f600"), eol=b"\r\n")
            + b"id: 7\nretry: 1\n"
            + events({"choices": [{"index": 0, "delta": {}, "logprobs": {
                "content": [{"token": "x", "logprob": -0.5}]},
                "token_ids": [5]}]})
            + b'data: {"choices":[\ndata: {"index":0,"delta":{"content":"t"}'
            b',\ndata: "finish_reason":"stop","logprobs":null}]}\n\n'
            + events(done=True))
    whole = door.call(sse(data))
    keep = ("response", "completion_tokens", "completion_token_ids",
            "per_token_logps", "aligned", "complete", "findings")
    facts = {k: whole.record[k] for k in keep}
    step = 1 if gate.VARIANT in ("release", "") else 13
    bad = []
    for k in range(1, len(data), step):
        r = door.call(sse(data[:k], data[k:]))
        if r.body != whole.body or {x: r.record[x] for x in keep} != facts:
            bad.append(f"cut at {k}: {r.body!r} {r.record['findings']}")
    tap.none(bad, f"A8 cut in two, {len(range(1, len(data), step))} places")
    r = door.call(sse(*[data[i:i + 1] for i in range(len(data))]))
    tap.ok(r.body == whole.body and {x: r.record[x] for x in keep} == facts,
           "A8 a byte at a time", r.body)


def chunks(door):
    usage = {"choices": [], "usage": USAGE}
    row(door, "B1 usage alone at the end",
        events(say("a", finish="stop"), usage, done=True), body=WITH_USAGE,
        record={"usage": USAGE, "metadata.n_choices": 1, "complete": True})
    row(door, "B2 choices null, and none",
        events(say("a", finish="stop"), {"choices": None, "usage": USAGE},
               {"usage": USAGE}, done=True), body=WITH_USAGE,
        record={"usage": USAGE, "metadata.n_choices": 1})
    for form in (None, MISSING_CHOICES):
        c = {} if form is MISSING_CHOICES else {"choices": form}
        row(door, f"B2 not asked for: {c}",
            events(say("a", finish="stop"), {**c, "usage": USAGE}),
            want=events(say("a", finish="stop")), record={"usage": USAGE})
    r = row(door, "B3 usage that only the trace asked for",
            b'data: {"choices":[{"index":0,"delta":{"content":"a"}}],'
            b'"usage":null}\n\ndata: {"choices":[],"usage":'
            b'{"total_tokens":5}}\n\n',
            want=b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}'
            b"\n\n", record={"usage.total_tokens": 5})
    tap.ok(b'"stream_options":{"include_usage":true}' in r.sent.body,
           "B3: the upstream is asked for it", r.sent.body)
    row(door, "B5 Azure", events(
        '{"id":"","model":"","choices":[],"prompt_filter_results":'
        '[{"prompt_index":0}]}',
        '{"id":"","choices":[{"index":0,"finish_reason":null,'
        '"content_filter_offsets":{"check_offset":4}}]}',
        '{"id":"i","model":"n","choices":[{"index":0,"delta":'
        '{"content":"a"},"finish_reason":"stop"}]}'),
        record={"response.id": "i", "response.model": "n",
                MESSAGE + ".content": "a", "complete": True})
    row(door, "B7 the last payload with the end",
        events(say("a"), say("z", finish="length"), done=True),
        record={MESSAGE + ".content": "az", "finish_reason": "length"})
    row(door, "B7 arguments with the end", events(delta(
        "tool_calls", tool_calls=[{"index": 0, "id": "c", "function": {
            "name": "w", "arguments": "{}"}}])),
        record={CALLS + ".0.function.arguments": "{}",
                "finish_reason": "tool_calls"})
    for role in ("", None):
        row(door, f"B9 role {role!r}", events(delta(role=role, content="a")),
            record={MESSAGE + ".role": "assistant"})
    row(door, "B9 the role again", events(delta(role="assistant", content="a"),
                                          delta(role="assistant", content="b")),
        record={MESSAGE + ".role": "assistant", MESSAGE + ".content": "ab"})


MISSING_CHOICES = object()


def tools(door):
    two = [{"id": "c1", "type": "function", "function": {
        "name": "ls", "arguments": "{}"}}, {"id": "c2", "type": "function",
                                            "function": {"name": "pwd",
                                                         "arguments": "{}"}}]
    row(door, "C1 no index", events(*calls(two)),
        record={CALLS + ".0.function.name": "ls", CALLS + ".0.id": "c1",
                CALLS + ".1.function.name": "pwd", CALLS + ".1.id": "c2"})
    row(door, "C1 no index, one after the other",
        events(*calls([two[0]], [two[1]])),
        record={CALLS + ".0.id": "c1", CALLS + ".1.id": "c2"})
    row(door, "C3 a fresh id on each piece", events(*calls(
        fn("", "read", index=0, id="a"), fn('{"p":', "", index=0, id="b"),
        fn("1}", "", index=0, id="c"))),
        record={CALLS: lambda c: len(c) == 1, CALLS + ".0.id": "a",
                CALLS + ".0.function.name": "read",
                CALLS + ".0.function.arguments": '{"p":1}'})
    row(door, "C4 two objects under one index", events(*calls(
        fn('{"a":1}', index=0), fn('{"a":2}', index=0))),
        record={CALLS + ".0.function.arguments": '{"a":1}{"a":2}',
                "metadata.tool_args_valid_json": False})
    row(door, "C6 the name comes last", events(*calls(
        fn('{"x":', index=0, id="c"), fn("1}", "bash", index=0))),
        record={CALLS + ".0.function.name": "bash", CALLS + ".0.id": "c",
                CALLS + ".0.function.arguments": '{"x":1}'})
    row(door, "C8 arguments are an object", events(*calls(
        fn({"city": "Ulm", "n": 1}, "w", index=0, id="c"))),
        record={CALLS + ".0.function.arguments": '{"city":"Ulm","n":1}'})
    half = calls(fn('{"path":"/tm', "w", index=0, id="c"))
    row(door, "C9 cut by max_tokens", events(
        *half, delta(finish="length")),
        record={CALLS + ".0.function.arguments": '{"path":"/tm',
                "finish_reason": "length",
                "metadata.tool_args_valid_json": False})
    r = door.call([stream_head(framing=b""), events(*half), FIN])
    tap.ok(b"[DONE]" not in r.body and not r.whole
           and r.body.startswith(events(*half))
           and b'"error"' in r.body[len(events(*half)):],
           "C9 cut by a disconnect: no end that the upstream did not send",
           r.body)
    holds("C9 cut by a disconnect", r.record, {
        "complete": False, "finish_reason": None,
        "metadata.partial_response.choices.0.message.tool_calls.0"
        ".function.arguments": '{"path":"/tm'})
    row(door, "C11 null is absent", events(
        '{"choices":[{"index":0,"delta":{"role":null,"content":null,'
        '"reasoning_content":"r","tool_calls":null},"logprobs":null,'
        '"finish_reason":null,"matched_stop":null}],"usage":null}'),
        want=events('{"choices":[{"index":0,"delta":{"role":null,'
                    '"content":null,"reasoning_content":"r",'
                    '"tool_calls":null},"finish_reason":null,'
                    '"matched_stop":null}]}'),
        record={"reasoning": "r", MESSAGE + ".content": lambda c: c in (None, "")
                or c is MISSING})
    row(door, "C11 an empty list", events(delta(content="a", tool_calls=[])),
        record={MESSAGE + ".content": "a"})
    row(door, "C12 the old function_call", events(
        delta(function_call={"name": "f", "arguments": ""}),
        delta("function_call", function_call={"arguments": "{}"})),
        record={MESSAGE + ".function_call": {"name": "f", "arguments": "{}"},
                "finish_reason": "function_call"})


def content(door):
    row(door, "D1 reasoning under three names", events(
        '{"choices":[{"index":0,"delta":{"reasoning":"hm",'
        '"reasoning_content":"hm","reasoning_details":[{"type":'
        '"reasoning.text","text":"hm","index":0}],"content":""}}]}'),
        record={"reasoning": "hm", MESSAGE + ".reasoning": "hm",
                MESSAGE + ".reasoning_content": "hm",
                MESSAGE + ".reasoning_details.0.text": "hm"})
    opaque = ('{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,'
              '"id":"c","function":{"name":"f","arguments":"{}"},'
              '"extra_content":{"google":{"thought_signature":"AAECAw=="}}}],'
              '"reasoning_details":[{"type":"reasoning.encrypted","data":'
              '"zz","index":1}]}%s}],"provider":"p"}')
    row(door, "D2 what must be sent back",
        events(opaque % ',"logprobs":{"content":[]}'),
        want=events(opaque % ""),
        record={CALLS + ".0.extra_content.google.thought_signature":
                "AAECAw==", MESSAGE + ".reasoning_details.0.data": "zz"})
    r = row(door, "D4 the answer lands in the reasoning", events(
        delta(reasoning="391", content=None), STOP), where="forced",
        record={"reasoning": "391",
                "+findings": "reasoning_only_with_thinking_off",
                "metadata.thinking_off": True})
    tap.ok(b'"chat_template_kwargs":{"enable_thinking":false}' in r.sent.body,
           "D4: thinking is off for the upstream", r.sent.body)


with Door() as door:
    framing(door)
    long_lines(door)
    for eol, name in ((b"\n", "LF"), (b"\r\n", "CRLF"), (b"\r", "CR")):
        stepwise(door, f"A1, H7 {name}", [
            events(say(str(i)), eol=eol) for i in range(4)]
            + [events(STOP, done=True, eol=eol)])
    keepalive(door)
    cuts(door)
    chunks(door)
    tools(door)
    content(door)
tap.done()

#!/usr/bin/python3
"""Cases E, J and K: log-probabilities and ids, sessions, the trace."""
import hashlib
import json
import os
import signal
import stat
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from cases import ASK, KEY, UNARY, Door, at, holds, row  # noqa: E402
from upstream import GONE, events, sse, unary  # noqa: E402

MESSAGE = "response.choices.0.message"


def entry(token, logprob, **more):
    return {"token": token, "logprob": logprob, **more}


def chunk(delta, entries=None, **more):
    c = {"index": 0, "delta": delta}
    if entries is not None:
        c["logprobs"] = {"content": entries}
    return {"choices": [{**c, **more}]}


def bare(delta, **more):
    return {"choices": [{"index": 0, "delta": delta, **more}]}


def ids(door):
    row(door, "E1 a step that only has log-probabilities", events(
        '{"choices":[{"index":0,"delta":{},"logprobs":{"content":[{"token":'
        '"<tool_call>","logprob":-0.01}]},"token_ids":[151657]}]}',
        '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c",'
        '"function":{"name":"ls","arguments":"{}"}}]},"logprobs":null}]}',
        '{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],'
        '"usage":{"completion_tokens":9}}'),
        want=events(
            '{"choices":[{"index":0,"delta":{}}]}',
            '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":'
            '"c","function":{"name":"ls","arguments":"{}"}}]}}]}',
            '{"choices":[{"index":0,"delta":{},"finish_reason":'
            '"tool_calls"}]}'),
        record={"completion_tokens": ["<tool_call>"],
                "completion_token_ids": [151657], "per_token_logps": [-0.01],
                "aligned": False, "+findings": "count_mismatch"})
    row(door, "E2 ids incomplete", events(
        chunk({"content": "a"}, token_ids=[1]),
        {**chunk({}, finish_reason="tool_calls", token_ids=[9]),
         "usage": {"completion_tokens": 40}}),
        want=events(bare({"content": "a"}),
                    bare({}, finish_reason="tool_calls")),
        record={"completion_token_ids": [1, 9], "aligned": False,
                "+findings": "count_mismatch", "per_token_logps": [],
                "metadata.id_sources": {"choice.token_ids": 2}})
    row(door, "E2 the complete one of two sources", events(
        chunk({"content": "ab"}, [entry("a", -1, id=7), entry("b", -2, id=8)],
              token_ids=[7], finish_reason="stop")),
        want=events(bare({"content": "ab"}, finish_reason="stop")),
        record={"completion_token_ids": [7, 8], "aligned": True,
                "+findings": "ids_incomplete"})
    both = ('{"prompt_token_ids":[1,2,3],"choices":[{"index":0,"delta":'
            '{"role":"assistant","content":""},"token_ids":null}]}',
            '{"choices":[{"index":0,"delta":{"content":"hi"},"logprobs":'
            '{"content":[{"token":"hi","id":77,"logprob":-0.2}]},'
            '"token_ids":[77]}]}')
    want = {"prompt_token_ids": [1, 2, 3], "completion_token_ids": [77],
            "completion_tokens": ["hi"], "per_token_logps": [-0.2],
            "aligned": True}
    row(door, "E3 ids at the top and in the choice", events(*both),
        want=events('{"choices":[{"index":0,"delta":{"role":"assistant",'
                    '"content":""}}]}',
                    '{"choices":[{"index":0,"delta":{"content":"hi"}}]}'),
        record=want)
    row(door, "E3 the client asked for ids itself", events(*both),
        want=events(both[0], '{"choices":[{"index":0,"delta":{"content":'
                    '"hi"},"token_ids":[77]}]}'),
        body={**ASK, "return_token_ids": True}, record=want)
    for place, c in (
            ("choice.output_ids", {**bare({"content": "x"},
                                          output_ids=[5, 6])}),
            ("delta.gen_tokens", bare({"content": "x", "gen_tokens": [5, 6]})),
            ("delta.token_ids", bare({"content": "x", "token_ids": [5, 6]}))):
        row(door, f"E3 {place}", events(c),
            want=events(bare({"content": "x"})),
            record={"completion_token_ids": [5, 6],
                    "metadata.id_sources": {place: 2}})
    row(door, "E4 token_id:N", events(chunk({"content": "Hi"}, [entry(
        "token_id:40", -0.1, bytes=[72, 105], top_logprobs=[
            entry("token_id:40", -0.1), entry("token_id:99", -3)])])),
        want=events(bare({"content": "Hi"})),
        record={"completion_token_ids": [40], "aligned": True,
                "completion_tokens": ["token_id:40"],
                "logprobs.0.top_logprobs.1.token": "token_id:99"})
    for odd in ("token_id:", "token_id:+4", "token_id:-4",
                "token_id:99999999999", "token_id:4x", "xtoken_id:4"):
        row(door, f"E4 {odd} is a string", events(
            chunk({"content": "Hi"}, [entry(odd, -0.1)])),
            want=events(bare({"content": "Hi"})),
            record={"completion_token_ids": [], "completion_tokens": [odd],
                    "aligned": False})


def values(door):
    zeros = [entry("a", 0.0) for _ in range(8)]
    row(door, "E6 eight zeros", events(chunk({"content": "ab"}, zeros)),
        want=events(bare({"content": "ab"})),
        record={"+findings": "all_zero_logprobs",
                "metadata.logprob_stats.zeros": 8,
                "metadata.logprob_stats.count": 8})
    row(door, "E6 two zeros", events(chunk({"content": "ab"}, zeros[:2])),
        want=events(bare({"content": "ab"})),
        record={"-findings": "all_zero_logprobs"})
    row(door, "E7 numbers that are none", events(
        '{"choices":[{"index":0,"delta":{"content":"x"},"logprobs":{"content"'
        ':[{"token":"x","logprob":-0.1,"top_logprobs":[{"token":"y","logprob"'
        ':-9999.0},{"token":"z","logprob":-Infinity},{"token":"w","logprob":'
        'NaN},{"token":"v","logprob":null}]}]}}]}'),
        want=events(bare({"content": "x"})),
        record={"per_token_logps": [-0.1],
                "logprobs.0.top_logprobs.0.logprob": -9999.0,
                "logprobs.0.top_logprobs.1.logprob": None,
                "logprobs.0.top_logprobs.2.logprob": None,
                "logprobs.0.top_logprobs.3.logprob": None,
                "+findings": "nonfinite_logprobs",
                "metadata.logprob_stats.nonfinite": lambda n: n >= 2})
    row(door, "E7 the sampled one is none", events(
        '{"choices":[{"index":0,"delta":{"content":"x"},"logprobs":{"content"'
        ':[{"token":"x","logprob":-Infinity},{"token":"y","logprob":-1}]},'
        '"token_ids":[1,2]}]}'),
        want=events(bare({"content": "x"})),
        record={"per_token_logps": [None, -1], "aligned": False})
    row(door, "E9 the sampled token is not the first of the top", events(
        chunk({"content": "cat"}, [entry("cat", -4.2, top_logprobs=[
            entry("dog", -0.1), entry("cow", -2.6), entry("cat", -4.2)])])),
        want=events(bare({"content": "cat"})),
        record={"per_token_logps": [-4.2],
                "logprobs.0.top_logprobs": lambda t: [
                    x["token"] for x in t] == ["dog", "cow", "cat"]})
    row(door, "E9 no alternatives", events(
        chunk({"content": "c"}, [entry("c", -1, top_logprobs=[])])),
        want=events(bare({"content": "c"})),
        record={"logprobs.0.top_logprobs": [], "per_token_logps": [-1]})
    row(door, "E11 log-probabilities of what is not content", events(
        chunk({"content": "4"}, [entry("<think>", 0), entry("2+2", -0.2),
                                 entry("</think>", 0), entry("4", -0.1)],
              finish_reason="stop")),
        want=events(bare({"content": "4"}, finish_reason="stop")),
        record={"completion_tokens": ["<think>", "2+2", "</think>", "4"],
                MESSAGE + ".content": "4", "-findings": "count_mismatch"})
    none = {**bare({"content": "4"}, finish_reason="stop"),
            "usage": {"completion_tokens": 1}}
    row(door, "E12 none came", events(none, done=True),
        want=events(bare({"content": "4"}, finish_reason="stop"), done=True),
        record={"+findings": "no_logprobs", "per_token_logps": [],
                "aligned": False, "complete": True})
    r = door.call(sse(events(none, done=True)), where="strictly")
    tap.ok(b"logprobs_missing" in r.body and b"[DONE]" not in r.body
           and not r.whole, "E12 strictly: an error event, no end", r.body)
    r = door.call(unary({"choices": [{"index": 0, "message": {
        "content": "4"}, "finish_reason": "stop"}]}), UNARY, "strictly")
    tap.ok(r.status == 502 and r.json()["error"]["code"] ==
           "logprobs_missing", "E12 strictly, unary: an error status", r.body)


def asked(door):
    body = {"model": "m", "temperature": 0.6, "top_p": 0.95, "messages": []}
    answer = unary({"choices": [{"index": 0, "message": {"content": "x"},
                                 "finish_reason": "stop"}]})
    r = door.call(answer, body)
    holds("E13 as the client had it", r.record, {
        "metadata.sampling_params": {"temperature": 0.6, "top_p": 0.95}})
    r = door.call(answer, body, "forced")
    got = json.loads(r.sent.body)
    tap.ok(got["temperature"] == 1.0 and got["top_p"] == 1.0
           and got["top_k"] == -1, "E13 forced: what the upstream gets",
           r.sent.body)
    holds("E13 forced", r.record, {
        "metadata.sampling_params": {"temperature": 1.0, "top_p": 1.0,
                                     "top_k": -1},
        "metadata.asked.requested_sampling_params":
            {"temperature": 0.6, "top_p": 0.95}})
    one = ('{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":'
           '{"content":[{"token":"a","logprob":-0.1%s}]}%s,'
           '"finish_reason":null}]}')
    row(door, "E15 stripped from a stream",
        events(one % ("", ',"token_ids":[3]')),
        want=events('{"choices":[{"index":0,"delta":{"content":"a"},'
                    '"finish_reason":null}]}'),
        record={"completion_token_ids": [3]})
    full = ',"top_logprobs":[{"token":"a","logprob":-0.1},{"token":"b",' \
           '"logprob":-3}]'
    row(door, "E15 cut to what the client asked for",
        events(one % (full, ',"token_ids":[3]')),
        want=events(one % (',"top_logprobs":[{"token":"a","logprob":-0.1}]',
                           "")),
        body={**ASK, "logprobs": True, "top_logprobs": 1},
        record={"logprobs.0.top_logprobs": lambda t: len(t) == 2})
    message = {"index": 0, "message": {"role": "assistant", "content": "a"},
               "logprobs": {"content": [entry("a", -0.1)]},
               "finish_reason": "stop", "token_ids": [3]}
    r = door.call(unary({"choices": [message], "prompt_token_ids": [1]}),
                  UNARY)
    tap.eq(r.json(), {"choices": [{"index": 0, "message": {
        "role": "assistant", "content": "a"}, "finish_reason": "stop"}]},
        "E15 stripped from a unary reply")


def sessions(door):
    body = json.dumps(UNARY)
    before = len(door.lines())
    door.up.play([GONE])
    r = gate.Reply(door.gate.connect(), gate.request(
        body, headers=[("x-stainless-retry-count", "0")]), read=False)
    gate.until(lambda: door.up.plays.empty(), "the request upstream")
    r.reset()
    first = gate.strict(door.line(before))
    good = unary({"choices": [{"index": 0, "message": {"content": "x"},
                               "finish_reason": "stop"}]})
    r = door.call(good, body, headers=[("x-stainless-retry-count", "1"),
                                       ("Idempotency-Key", "k1")])
    holds("J1 the call that was lost", first, {"aborted": True,
                                               "complete": False})
    digest = hashlib.sha256(r.sent.body).hexdigest()
    holds("J1 the SDK's retry", r.record, {
        "metadata.retry_of": lambda v: v in (first["turn"],
                                             first["metadata"]["node_id"]),
        "metadata.client.x_stainless_retry_count": "1",
        "metadata.client.idempotency_key": "k1",
        "metadata.body_sha256": digest, "turn": first["turn"] + 1})
    r = door.call(good, body)
    holds("J1 the same body without the mark", r.record, {
        "metadata": lambda m: m.get("retry_of") is None,
        "metadata.body_sha256": digest})

    title = {"model": "m-small", "max_tokens": 32, "messages": [
        {"role": "system", "content": "You write titles"},
        {"role": "user", "content": "fix bug"}]}
    r = door.call(good, title, headers=[("User-Agent", "agent/1.0")])
    holds("J3 facts by which a title call is known", r.record, {
        "metadata.has_tools": False, "metadata.n_messages": 2,
        "metadata.asked.requested_model": "m-small",
        "metadata.max_tokens": 32,
        "metadata.system_sha256": lambda d: isinstance(d, str)
        and len(d) == 64, "metadata.client.user_agent": "agent/1.0"})
    r = door.call(good, {**title, "tools": [{"type": "function"}]})
    holds("J3 an agent's call", r.record, {"metadata.has_tools": True})

    names = [("X-Session-Id", "ses_1"), ("x-session-affinity", "ses_1"),
             ("X-Client-Request-Id", "9f"), ("x-parent-session-id", "ses_0")]
    r = door.call(good, UNARY, headers=names)
    tap.ok(all(r.sent.headers.get(k.lower()) == v for k, v in names),
           "J4: what clients call their session goes up", r.sent.fields)
    holds("J4: it is recorded and does not route", r.record, {
        "session": "default", "metadata.client.x_session_id": "ses_1",
        "metadata.client.x_session_affinity": "ses_1",
        "metadata.client.x_client_request_id": "9f"})
    for path in ("/rollout/..%2F..%2Fetc/v1/chat/completions",
                 "/v1/..%2F..%2Fetc/chat/completions",
                 "/v1/../../etc/passwd", "/v1/%2e%2e/x/chat/completions",
                 "/v1/%00/chat/completions"):
        r = door.gate.post(UNARY, path)
        tap.ok(r.status in (400, 404) and "error" in r.json(),
               f"J4: {path} is refused", (r.status, r.body))


def secrets(door):
    good = unary({"choices": [{"index": 0, "message": {"content": "x"},
                               "finish_reason": "stop"}]})
    leak = unary({"error": {"message": "bad key " + KEY}},
                 "401 Unauthorized")
    hide = [("Authorization", "Bearer sk-SECRET"),
            ("x-api-key", "sk-SECRET"), ("Cookie", "a=SECRET")]
    r = door.call(good, UNARY, "keyed", headers=hide)
    bad = door.call(leak, UNARY, "keyed", headers=hide)
    tap.ok(b"SECRET" not in bad.body, "J6: the key does not come back",
           bad.body)
    found = []
    for folder, _, files in os.walk(door.gate.tmp.name):
        for name in files:
            with open(os.path.join(folder, name), "rb") as f:
                if b"SECRET" in f.read():
                    found.append(os.path.join(folder, name))
    pids = [door.gate.p.pid, *door.gate.children().values()]
    for pid in pids:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            if b"SECRET" in f.read():
                found.append(f"/proc/{pid}/cmdline")
    tap.ok(len(pids) == 3 and not found,
           "J6: no key in files and command lines", (pids, found))
    tap.ok(stat.S_IMODE(os.stat(door.path("keyed")).st_mode) == 0o600
           and stat.S_IMODE(os.stat(door.gate.state).st_mode) == 0o700,
           "J6: traces have mode 0600, their folder 0700")
    return r


def contract(door):
    ask = {"model": "m", "messages": [{"role": "user", "content": "q"}],
           "tools": None}
    r = door.call(unary({"id": "r1", "object": "chat.completion", "choices": [{
        "index": 0, "message": {"role": "assistant", "content": "Hi"},
        "logprobs": {"content": [entry("token_id:40", -0.1)]},
        "finish_reason": "stop", "token_ids": [40]}],
        "prompt_token_ids": [7, 8],
        "usage": {"completion_tokens": 1}}), ask)
    holds("J8 the names that trainers read", r.record, {
        "turn": lambda n: isinstance(n, int) and n > 0,
        "request.messages": ask["messages"], "request.tools": None,
        "response.choices.0.message": {"role": "assistant", "content": "Hi"},
        "response.choices.0.finish_reason": "stop",
        "completion_token_ids": [40], "completion_tokens": ["token_id:40"],
        "per_token_logps": [-0.1], "prompt_token_ids": [7, 8],
        "logprobs.0.token": "token_id:40", "finish_reason": "stop",
        "aligned": True, "complete": True, "aborted": False,
        "metadata.trainable": True, "usage.completion_tokens": 1,
        "latency_s": lambda v: v > 0, "timestamp": lambda v: v > 1.6e9,
        "upstream_status": 200, "upstream_error": None, "findings": [],
        "hash": lambda h: isinstance(h, str) and len(h) == 64})
    tap.eq(at(r.record, "prev"), gate.strict(door.lines()[-2])["hash"],
           "J8: each record carries the hash of the one before")
    r = door.call(unary({"error": {"message": "no", "code": 400}},
                        "400 Bad Request"), ask)
    holds("J8 a turn without an answer", r.record, {
        "response": None, "complete": False, "upstream_status": 400,
        "upstream_error.message": "no"})


def unicode(door):
    raw = b'data: {"choices":[{"index":0,"delta":{"content":' \
          b'"a\\u0000b \\\\u0000"},"finish_reason":"stop"}]}\n\n'
    r = row(door, "J5 NUL in the text", raw, record={
        MESSAGE + ".content": "a\0b \\u0000"})
    tap.ok(b"\0" not in r.line, "J5: no NUL in the file")
    lone = b'{"model":"m","messages":[{"role":"user","content":' \
           b'"cut \\ud83d here"}]}'
    r = door.call(unary({"choices": [{"index": 0, "message": {
        "content": "x"}, "finish_reason": "stop"}]}), lone)
    tap.ok(b'"cut \\ud83d here"' in r.sent.body,
           "K1: half a pair goes up as it came", r.sent.body)
    holds("K1", r.record, {"request.messages.0.content": "cut \ufffd here",
                           "+findings": "lone_surrogate"})
    tap.ok(b"\\ud83d" not in r.line, "K1: the line has no half pair")
    row(door, "K1 in the answer",
        b'data: {"choices":[{"index":0,"delta":{"content":"x\\ud83d"},'
        b'"finish_reason":"stop"}]}\n\n',
        record={MESSAGE + ".content": "x\ufffd",
                "+findings": "lone_surrogate"})
    row(door, "K1 a pair in two pieces is whole",
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00"},'
        b'"finish_reason":"stop"}]}\n\n',
        record={MESSAGE + ".content": "\U0001f600",
                "-findings": "lone_surrogate"})
    row(door, "K4 escaped names, in all places", events(
        '{"choices":[{"logpro\\u0062s":{"content":[]},"index":0,"delta":'
        '{"content":"a"}}]}',
        '{"choices":[{"index":0,"delta":{"content":"b"},"logprobs":null}]}',
        '{"choices":[{"logprobs":{"content":[]}}]}',
        '{"choices":[{"logprobs":null,"logprobs":{},"index":0 , "logprobs":'
        '1 ,"delta":{} , "token_ids" : [ 1 ] } ] }'),
        want=events(
            '{"choices":[{"index":0,"delta":{"content":"a"}}]}',
            '{"choices":[{"index":0,"delta":{"content":"b"}}]}',
            '{"choices":[{}]}',
            '{"choices":[{"index":0 ,"delta":{} } ] }'),
        record={MESSAGE + ".content": "ab"})


def shutdown():
    """J9: SIGTERM in the middle of a stream."""
    door = Door(main="drain_timeout 1s;")
    one = events({"choices": [{"index": 0, "delta": {"content": "half"}}]})
    door.up.play([*sse(one, end=None), GONE])
    r = gate.Reply(door.gate.connect(), gate.request(ASK), read=False)
    tap.ok(r.head() and r.chunk() == one, "J9: the stream runs")
    door.gate.p.send_signal(signal.SIGTERM)
    rest = b""
    while True:
        c = r.chunk()
        if not c:
            break
        rest += c
    tap.ok(c is None and b"[DONE]" not in rest and b"finish" not in rest,
           "J9: the client's stream is cut, and there is no [DONE]", rest)
    status = door.gate.stop()
    records = door.gate.records()
    tap.ok(status == 0 and len(records) == 1
           and records[0]["complete"] is False
           and at(records[0], "metadata.partial_response.choices.0.message"
                  ".content") == "half"
           or at(records[0], MESSAGE + ".content") == "half",
           "J9: what came is on file, as not complete", (status, records))
    door.gate.tmp.cleanup()


def full_disk():
    """J9: a trace that cannot be written."""
    import shutil
    import subprocess
    if os.geteuid() != 0:
        tap.skip("J9: full disk", "mounting needs root")
        return
    import tempfile
    d = tempfile.mkdtemp(prefix="sp-full-")
    os.chmod(d, 0o755)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=755",
                       "tmpfs", d], capture_output=True).returncode:
        tap.skip("J9: full disk", "tmpfs cannot be mounted here")
        os.rmdir(d)
        return
    try:
        small_disk(d)
    finally:
        subprocess.run(["umount", "-l", d], check=False)
        shutil.rmtree(d, ignore_errors=True)


def small_disk(d):
    from upstream import Raw
    up = Raw()
    with gate.Gate(f"upstream u {{ server {up.url}/v1; }}\n"
                   f"capture c {{ level text; trace {d}/t/$session.jsonl; }}\n"
                   "server { listen 127.0.0.1:0; location /v1 {"
                   " llm_intercept; upstream u; capture c; keys open; } }"
                   ) as g:
        data = events({"choices": [{"index": 0, "delta": {"content":
                                                          "x" * 60000},
                                    "finish_reason": "stop"}]}, done=True)
        ends = []
        for _ in range(8):
            up.play(sse(data))
            r = g.post(ASK)
            ends.append((r.status, r.whole and b"[DONE]" in r.body))
            if not ends[-1][1]:
                up.plays.queue.clear()
                break
        with open(f"{d}/t/default.jsonl", "rb") as f:
            lines = f.read().split(b"\n")
        good = [x for x in lines[:-1] if gate.strict(x)]
        tap.ok(not ends[-1][1] and len(good) >= len(ends) - 1,
               "J9: a full disk: no end without a record",
               (ends, len(good)))
        up.play(unary({}))
        r = g.post(ASK)
        up.plays.queue.clear()
        tap.ok(r.status == 503 and "error" in r.json(),
               "J9: new calls get 503", (r.status, r.body[:300]))


with Door() as door:
    ids(door)
    values(door)
    asked(door)
    sessions(door)
    secrets(door)
    contract(door)
    unicode(door)
shutdown()
full_disk()
tap.done()

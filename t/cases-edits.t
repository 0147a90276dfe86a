#!/usr/bin/python3
"""Case F: what is changed of a request, what is not, and refusals."""
import json
import os
import signal
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from cases import ASK, UNARY, Door, holds  # noqa: E402
from upstream import Raw, events, sse, unary  # noqa: E402

GOOD = unary({"model": "as-it-came", "choices": [{"index": 0, "message": {
    "content": "x"}, "finish_reason": "stop"}]})


def sent(door, name, body, want, where="text"):
    """What the upstream gets, byte for byte."""
    r = door.call(GOOD, body, where)
    tap.eq(r.sent.body.decode(), want, name)
    return r


def refuse(text, status="400 Bad Request"):
    return unary(text if isinstance(text, bytes) else {"error": text}, status)


def without_logprobs(body):
    got = json.loads(body)
    return not {"logprobs", "top_logprobs", "n_probs"} & set(got)


def refusals(door):
    for i, (status, words) in enumerate((
            ("403 Forbidden", "logprobs not permitted on this model"),
            ("400 Bad Request", "'logprobs' is not supported"),
            ("422 Unprocessable Entity", "unknown field top_logprobs"))):
        body = {**UNARY, "model": f"f1-{i}"}
        r = door.call([refuse({"message": words, "type": "x",
                               "param": None}, status), GOOD], body)
        tap.ok(r.status == 200 and len(r.requests) == 2
               and b'"logprobs":true' in r.requests[0].body
               and without_logprobs(r.requests[1].body),
               f"F1 {status}: once more without",
               [q.body for q in r.requests])
        holds("F1", r.record, {"metadata.logprobs_refused": True,
                               "+findings": "logprobs_refused"})
        r = door.call(GOOD, body)
        tap.ok(len(r.requests) == 1 and without_logprobs(r.sent.body),
               "F1: it is remembered for the model", r.sent.body)
    r = door.call(GOOD, {**UNARY, "model": "f1-other"})
    tap.ok(b'"logprobs":true' in r.sent.body,
           "F1: and for that model alone", r.sent.body)
    r = door.call([refuse({"message": "no", "param": "top_logprobs"}), GOOD],
                  {**ASK, "model": "f1-param"}, record=False)
    tap.ok(len(r.requests) == 2, "F1: named by error.param", r.requests)
    other = refuse({"message": "messages must not be empty"})
    r = door.call(other, {**UNARY, "model": "f1-x"})
    tap.ok(r.status == 400 and len(r.requests) == 1
           and r.json()["error"]["message"] == "messages must not be empty",
           "F1: any other 400 passes", r.body)
    words = refuse({"message": "logprobs unsupported"})
    r = door.call(words, UNARY, "strictly")
    tap.ok(r.status == 400 and len(r.requests) == 1
           and r.json() == {"error": {"message": "logprobs unsupported"}},
           "F1: with logprobs_refused fail it passes, too", r.body)

    words = refuse(b'{"error":{"code":400,"message":"logprobs unsupported '
                   b'together with tools and stream","type":'
                   b'"invalid_request_error"}}')
    r = door.call([words, sse(events(
        {"choices": [{"index": 0, "delta": {"content": "x"},
                      "finish_reason": "stop"}]}, done=True))],
        {**ASK, "model": "f2", "tools": [{"type": "function"}]})
    second = json.loads(r.requests[-1].body)
    tap.ok(r.status == 200 and len(r.requests) == 2
           and second.get("n_probs") == 5 and "logprobs" not in second,
           "F2: llama.cpp is asked in its own way", r.requests[-1].body)
    r = door.call([refuse(b'{"object":"error","message":"return_token_ids '
                          b'needs stream=false","code":400}'), GOOD],
                  {**UNARY, "model": "f3"})
    second = json.loads(r.requests[-1].body)
    tap.ok(r.status == 200 and "return_token_ids" not in second
           and second["logprobs"] is True,
           "F3: without ids, still with log-probabilities",
           r.requests[-1].body)
    holds("F3", r.record, {"metadata.token_ids_refused": True,
                           "metadata.logprobs_refused": False,
                           "+findings": "token_ids_refused"})


def edits(door):
    sent(door, "F5 false and null are overruled",
         '{"model":"m","logprobs":false,"top_logprobs":null,"messages":[]}',
         '{"model":"m","logprobs":true,"top_logprobs":5,"messages":[]}',
         "logprobs")
    sent(door, "F5 the client's larger number stays",
         '{"model":"m","top_logprobs":9,"logprobs":true,"messages":[]}',
         '{"model":"m","top_logprobs":9,"logprobs":true,"messages":[]}',
         "logprobs")
    sent(door, "F6 both caps",
         '{"model":"m","max_tokens":32000,"max_completion_tokens":65536,'
         '"messages":[]}',
         '{"model":"m","max_tokens":16384,"max_completion_tokens":16384,'
         '"messages":[]}')
    for odd in ("32000.0", '"32000"', "-5", "0", "null", "100", "16384"):
        text = '{"model":"m","max_tokens":%s,"messages":[]}' % odd
        sent(door, f"F6 {odd} passes", text, text)
    sent(door, "F6 none is added", '{"messages":[]}', '{"messages":[]}')
    for name in ("gpt-5-mini", "o1", "o3-pro", "o4-mini", "gpt-5"):
        sent(door, f"F7 renamed for {name}",
             '{"model":"%s","max_tokens":900,"messages":[]}' % name,
             '{"model":"%s","max_completion_tokens":900,"messages":[]}' % name)
    for name in ("gpt-4o", "o10", "gpt-50", "qwen"):
        text = '{"model":"%s","max_tokens":900,"messages":[]}' % name
        sent(door, f"F7 not for {name}", text, text)
    sent(door, "F7 both: the smaller one",
         '{"model":"o3","max_tokens":9,"max_completion_tokens":20}',
         '{"model":"o3","max_completion_tokens":9}')
    r = door.call(GOOD, '{"model":"Qwen3.5-4B","messages":[{"role":"user",'
                  '"content":"Make a title"}],"max_tokens":32}', "forced")
    got = json.loads(r.sent.body)
    tap.ok(got["model"] == "real/model" and r.json()["model"] == "as-it-came",
           "F9: the model is replaced on the way up alone", r.sent.body)
    holds("F9", r.record, {"metadata.asked.requested_model": "Qwen3.5-4B",
                           "metadata.sent_model": "real/model",
                           "request.model": "real/model"})
    r = door.call(GOOD, '{"messages":[]}', "forced")
    tap.eq(json.loads(r.sent.body).get("model"), "real/model",
           "F9: also where the client named none")
    r = door.call(GOOD, r'{"model":"a","mod\u0065l":"b","logprobs":false,'
                  r'"logprobs":true,"messages":[],"x":1,"x":2}', "forced")
    pairs = json.loads(r.sent.body, object_pairs_hook=lambda p: p)
    names = [k for k, _ in pairs]
    tap.ok(names.count("model") == 1 and names.count("logprobs") == 1
           and dict(pairs)["model"] == "real/model"
           and dict(pairs)["logprobs"] is True and names.count("x") == 2,
           "F11: one of each that is set; others as they came", r.sent.body)
    odd = ('{"seed":9007199254740993,"temperature":1.0,"x":1e400,"y":-0.0,'
           '"z":[12345678901234567890123], "\\u0061" : "\\ud83d\\/" ,'
           '"model":"m","messages":[]}')
    sent(door, "F12 nothing to change: byte for byte", odd, odd)
    r = door.call(GOOD, odd)
    tap.ok(r.sent.body.startswith(odd[:-1].encode()),
           "F12: what is added leaves the rest alone", r.sent.body)
    want = odd[1:odd.index(', "')].encode()
    tap.ok(want in r.line, "F12: the trace has the same numbers", r.line)
    for bad in ('{"messages":[]', "[]", "", "{'a':1}", '{"a":1}x', "\xff"):
        r = door.gate.post(bad, "/text/chat/completions")
        tap.ok(r.status == 400 and
               r.json()["error"]["type"] == "invalid_request_error",
               f"F: {bad!r} is refused", (r.status, r.body))


def forgotten():
    """Other servers may be another engine: what was refused is asked anew."""
    token = "admin-token-0123456789"
    one, two = Raw(), Raw()
    no = refuse({"message": "logprobs is not supported"})
    conf = (f"upstream u {{ server {one.url}/v1; }}\n"
            "capture c { level logprobs; logprobs_refused retry; }\n"
            "server { listen 127.0.0.1:0;\n"
            "location /v1 { llm_intercept; upstream u; capture c; keys open; }"
            "\nlocation /upstreams { upstreams; token env:T_TOKEN; } }")
    with gate.Gate(conf, env={"T_TOKEN": token}) as g:
        def asked(up, *plays):
            n = len(up.requests)
            up.play(*plays)
            r = g.post(UNARY)
            return r.status, ["logprobs" in json.loads(q.body)
                              for q in up.requests[n:]]
        tap.eq(asked(one, no, GOOD), (200, [True, False]), "it refuses")
        tap.eq(asked(one, GOOD), (200, [False]), "which is remembered")
        g.p.send_signal(signal.SIGHUP)
        gate.until(lambda: "(generation 2)" in g.log(), "the reload")
        tap.eq(asked(one, no, GOOD), (200, [True, False]),
               "after a reload it is asked again")
        tap.eq(asked(one, GOOD), (200, [False]), "which is remembered")
        auth = [("Authorization", f"Bearer {token}")]
        r = g.post({"url": two.url + "/v1"}, "/upstreams/u/servers", auth)
        tap.eq(r.status, 201, "a server is added")
        r = g.get(f"/upstreams/u/servers?url={one.url}/v1", auth, "DELETE")
        tap.eq(r.status, 200, "the other one removed")
        tap.eq(asked(two, GOOD), (200, [True]), "it is asked, and takes it")


with Door() as door:
    refusals(door)
    edits(door)
forgotten()
tap.done()

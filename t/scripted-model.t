#!/usr/bin/python3
"""contrib/scripted-model: the fake upstream does what its README says."""
import gzip
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

BIN = os.environ.get("SCRIPTED_MODEL") or os.path.join(
    os.environ.get("SP_BUILDDIR", "."), "scripted-model")
if not os.access(BIN, os.X_OK):
    sys.exit(f"{BIN} is not there: make scripted-model, and name its folder "
             "in SP_BUILDDIR")
TMP = tempfile.TemporaryDirectory()
COUNT = 0
FAILED = 0


def ok(good, what, detail=None):
    global COUNT, FAILED
    COUNT += 1
    print(("ok" if good else "not ok"), COUNT, "-", what, flush=True)
    if not good:
        FAILED += 1
        if detail is not None:
            for line in str(detail)[:3000].splitlines():
                print("#", line)
    return good


def eq(got, want, what):
    return ok(got == want, what, f"got {got!r}\nexpected {want!r}")


class Server:
    """One scripted-model; its exit status is part of the test."""
    n = 0

    def __init__(self, *args, script=None, env=None, unix=False):
        Server.n += 1
        base = os.path.join(TMP.name, str(Server.n))
        self.log_path = base + ".log"
        argv = [BIN, "--log", self.log_path, *args]
        if script is not None:
            with open(base + ".json", "w") as f:
                json.dump(script, f)
            argv += ["--script", base + ".json"]
        if unix:
            self.unix = base + ".sock"
            argv += ["--listen", "unix:" + self.unix]
        else:
            argv += ["--port-file", base + ".port"]
        self.p = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, **(env or {})})
        line = self.p.stdout.readline()
        assert line.startswith("listening on "), line
        self.port = None
        if not unix:
            self.port = int(line.rsplit(":", 1)[1])
            with open(base + ".port") as f:
                assert int(f.read()) == self.port

    def connect(self):
        if self.port is None:
            s = socket.socket(socket.AF_UNIX)
            s.connect(self.unix)
            return s
        s = socket.create_connection(("127.0.0.1", self.port))
        s.settimeout(120)
        return s

    def log(self, count=None):
        """The log's lines; waits until there are so many."""
        for _ in range(1000):
            with open(self.log_path) as f:
                lines = [json.loads(x) for x in f]
            if count is None or len(lines) >= count:
                return lines
            time.sleep(0.01)
        return lines

    def stop(self):
        self.p.send_signal(signal.SIGTERM)
        self.p.stdout.close()
        return self.p.wait(20)


def request(body=None, method="POST", path="/v1/chat/completions",
            version="1.1", headers=()):
    data = b"" if body is None else (
        body if isinstance(body, bytes) else json.dumps(body).encode())
    head = [f"{method} {path} HTTP/{version}", "Host: t"]
    if body is not None:
        head.append(f"Content-Length: {len(data)}")
    head += [f"{k}: {v}" for k, v in headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + data


def read_all(s):
    out = bytearray()
    how = "fin"
    try:
        while True:
            b = s.recv(65536)
            if not b:
                break
            out += b
    except ConnectionResetError:
        how = "rst"
    s.close()
    return bytes(out), how


def parse(raw):
    """status, headers, body; chunked is taken apart."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    h = {}
    for x in lines[1:]:
        k, v = x.split(": ", 1)
        h[k.lower()] = v
    if h.get("transfer-encoding") == "chunked":
        body = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            n = int(size, 16)
            if n == 0:
                break
            body += rest[:n]
            rest = rest[n + 2:]
        rest = body
    return int(lines[0].split()[1]), h, rest


def call(srv, body=None, close=True, **kw):
    s = srv.connect()
    hdr = list(kw.pop("headers", ()))
    if close:
        hdr.append(("Connection", "close"))
    s.sendall(request(body, headers=hdr, **kw))
    return parse(read_all(s)[0])


def raw_call(srv, body, **kw):
    s = srv.connect()
    s.sendall(request(body, headers=[("Connection", "close")], **kw))
    return read_all(s)


def user(text, **kw):
    return {"model": "m", "messages": [{"role": "user", "content": text}],
            **kw}


def events(body):
    out = []
    for block in body.decode().replace("\r\n", "\n").split("\n\n"):
        for line in block.split("\n"):
            if line.startswith("data: ") and line != "data: [DONE]":
                out.append(json.loads(line[6:]))
    return out


def gather(evs):
    r = {"content": "", "reasoning": "", "reasoning_content": "", "calls": {},
         "lp": [], "ids": [], "fin": None, "usage": None, "prompt": None}
    for e in evs:
        r["usage"] = e.get("usage") or r["usage"]
        r["prompt"] = e.get("prompt_token_ids") or r["prompt"]
        for c in e["choices"]:
            if c["index"] != 0:
                continue
            d = c["delta"]
            for k in ("content", "reasoning", "reasoning_content"):
                r[k] += d.get(k) or ""
            for t in d.get("tool_calls") or []:
                x = r["calls"].setdefault(t.get("index"), {"args": ""})
                f = t["function"]
                x["args"] += f["arguments"]
                if t.get("id"):
                    x.setdefault("id", t["id"])
                if f.get("name"):
                    x.setdefault("name", f["name"])
            r["lp"] += (c.get("logprobs") or {}).get("content", [])
            r["ids"] += c.get("token_ids") or []
            r["fin"] = c["finish_reason"] or r["fin"]
    return r


TOOLS = [{"type": "function", "function": {"name": n, "description": "d"}}
         for n in ("bash", "read", "write")]
CAPTURE = {"logprobs": True, "top_logprobs": 3, "return_token_ids": True,
           "stream": True, "stream_options": {"include_usage": True}}


def test_http():
    s = Server()
    st, h, b = call(s, method="GET", path="/v1/models")
    d = json.loads(b)
    eq((st, d["data"][0]["id"], d["data"][0]["max_model_len"]),
       (200, "scripted-model", 32768), "GET /v1/models")
    st, h, b = call(s, method="HEAD", path="/v1/models")
    ok(st == 200 and b == b"" and int(h["content-length"]) > 50,
       "HEAD has the length and no body")
    st, h, b = call(s, method="GET", path="/nothing")
    ok(st == 404 and "message" in json.loads(b)["error"], "unknown path: 404")
    eq(call(s, method="GET", path="/v1/chat/completions")[0], 405,
       "GET on completions: 405")
    st, _, b = call(s, b'{"messages":[', method="POST")
    ok(st == 400 and "body" in json.loads(b)["error"]["message"],
       "broken JSON: 400", b)
    eq(call(s, b"[1]")[0], 400, "JSON that is no object: 400")
    st, h, b = call(s, user("hi"), path="/deep/er/chat/completions?x=1")
    eq(json.loads(b)["choices"][0]["message"]["content"], "You said: hi",
       "any path that ends in /chat/completions; the echo")
    raw, _ = raw_call(s, user("hi"), version="1.0")
    st, h, b = parse(raw)
    ok(st == 200 and json.loads(b), "HTTP/1.0 unary")
    c = s.connect()
    c.sendall(request(user("hi", stream=True), version="1.0"))
    st, h, b = parse(read_all(c)[0])
    ok("transfer-encoding" not in h and b.endswith(b"data: [DONE]\n\n"),
       "HTTP/1.0 stream has no chunks")
    # three at once on one connection, the second chunked by the client
    two = json.dumps(user("two")).encode()
    c = s.connect()
    c.sendall(request(user("one")) +
              b"POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\n"
              b"Transfer-Encoding: chunked\r\n\r\n"
              b"5;ext=1\r\n" + two[:5] + b"\r\n" +
              b"%x\r\n" % (len(two) - 5) + two[5:] + b"\r\n0\r\nT: 1\r\n\r\n" +
              request(user("three"), headers=[("Connection", "close")]))
    raw, how = read_all(c)
    eq([raw.count(b"You said: " + w) for w in (b"one", b"two", b"three")],
       [1, 1, 1], "pipelined, with a chunked body")
    eq(how, "fin", "and closed cleanly")
    c = s.connect()
    body = json.dumps(user("x")).encode()
    c.sendall(request(body, headers=[("Expect", "100-continue"),
                                     ("Connection", "close")])[:-len(body)])
    first = c.recv(100)
    c.sendall(body)
    ok(first == b"HTTP/1.1 100 Continue\r\n\r\n" and
       read_all(c)[0].startswith(b"HTTP/1.1 200"), "Expect: 100-continue",
       first)
    for bad, want in ((b"GARBAGE\r\n\r\n", 400),
                      (b"GET / HTTP/2.0\r\n\r\n", 505),
                      (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
                      (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
                      (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n"
                       b"\r\n", 413),
                      (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
                       b"\r\nzz\r\n", 400),
                      (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
                       431)):
        c = s.connect()
        c.sendall(bad)
        eq(parse(read_all(c)[0])[0], want, f"{bad[:40]!r}: {want}")
    rnd = random.Random(1)
    for i in range(60):
        c = s.connect()
        try:
            c.sendall(rnd.randbytes(rnd.randrange(1, 400)) + b"\r\n\r\n")
            if i % 2:
                c.sendall(request(rnd.randbytes(50)))
        except OSError:
            pass
        c.close()
    for deep in (b"[" * 100000, b'{"messages":' + b'[{"a":' * 50000,
                 b'{"messages":"x","tools":3,"stop":[[]],"n":-5}',
                 b'{"messages":[{"role":4,"content":{"a":1}},7,null]}'):
        ok(call(s, deep)[0] in (200, 400), f"{deep[:24]!r}... is survived")
    eq(call(s, method="GET", path="/v1/models")[0], 200, "still serving")
    eq(s.stop(), 0, "clean exit")


def test_log():
    s = Server("--pace", "20")
    body = {"model": "m", "stream": True, "messages": [
        {"role": "user", "content": "a é \u2028 " + "word " * 50}]}
    c = s.connect()
    c.sendall(request(body, headers=[("X-Test", "Yes")]))
    c.recv(500)
    c.close()
    lines = s.log(2)
    r = lines[0]
    eq((r["event"], r["method"], r["path"], r["conn"], r["request"],
        r["headers"]["x-test"]),
       ("request", "POST", "/v1/chat/completions", 1, 1, "Yes"),
       "the log has the request")
    ok(json.loads(r["body"]) == body and
       r["body_bytes"] == len(json.dumps(body)), "and its body")
    eq([lines[1][k] for k in ("event", "conn", "request", "how")],
       ["end", 1, 1, "client_closed"], "and that the client left")
    call(s, user("x"))
    eq(s.log(4)[3]["how"], "complete", "a whole reply is complete")
    call(s, b"\xff\xfe")
    eq(s.log(6)[4]["body_base64"], "//4=", "other bytes come as base64")
    start = time.monotonic()
    call(s, user("a b c d e f g", stream=True))
    ok(time.monotonic() - start > 0.4, "10 tokens at 20 a second take time")
    eq(s.stop(), 0, "clean exit")


def test_agent():
    s = Server()
    system = "You are.\n<env>\n  Working directory: /srv/w\n</env>"
    msgs = [{"role": "system", "content": system},
            {"role": "user", "content": "do it"}]
    title = {"model": "m", "messages": [
        {"role": "system", "content": "You are a title generator."},
        {"role": "user", "content": "x"}]}
    d = json.loads(call(s, title)[2])
    ok(0 < len(d["choices"][0]["message"]["content"]) < 50, "a title")
    seen = []
    history = list(msgs)
    earlier = []
    for turn in range(3):
        body = {"model": "m", "messages": history, "tools": TOOLS, **CAPTURE}
        st, h, b = call(s, body)
        g = gather(events(b))
        n = g["usage"]["completion_tokens"]
        eq((len(g["lp"]), len(g["ids"])), (n, n),
           f"turn {turn}: logprobs, ids and usage agree")
        eq(len(g["prompt"]), g["usage"]["prompt_tokens"],
           f"turn {turn}: prompt ids too")
        eq(g["prompt"][:len(earlier)], earlier,
           f"turn {turn}: the prompt begins with all before it")
        one = json.loads(call(s, {**body, "stream": False})[2])
        ch = one["choices"][0]
        eq((ch["logprobs"]["content"], ch["token_ids"], one["usage"],
            one["prompt_token_ids"], ch["message"]["content"],
            ch["finish_reason"]),
           (g["lp"], g["ids"], g["usage"], g["prompt"], g["content"],
            g["fin"]), f"turn {turn}: unary says the same")
        earlier = g["prompt"] + g["ids"]
        msg = {"role": "assistant", "content": g["content"]}
        if g["calls"]:
            c = g["calls"][0]
            seen.append((c["name"], json.loads(c["args"])))
            msg["tool_calls"] = [{"id": c["id"], "type": "function",
                                  "function": {"name": c["name"],
                                               "arguments": c["args"]}}]
            history += [msg, {"role": "tool", "tool_call_id": c["id"],
                              "content": "fine"}]
            eq(g["fin"], "tool_calls", f"turn {turn}: finish_reason")
        else:
            eq(g["fin"], "stop", f"turn {turn}: finish_reason")
    eq([x[0] for x in seen], ["write", "bash"], "write, then bash")
    eq(seen[0][1]["filePath"], "/srv/w/hello.py", "in the working directory")
    eq(seen[1][1]["command"], "python3 hello.py", "and runs it")
    for e in g["lp"]:
        if not (e["logprob"] <= 0 and len(e["top_logprobs"]) == 3 and
                bytes(e["bytes"]).decode() == e["token"]):
            ok(False, "entries are well-formed", e)
    import math
    ok(all(sum(math.exp(t["logprob"]) for t in e["top_logprobs"]) < 1.0001
           for e in g["lp"]), "probabilities stay under one")
    b = call(s, {**user("x y z"), **CAPTURE, "max_tokens": 3})[2]
    g = gather(events(b))
    eq((g["fin"], g["usage"]["completion_tokens"], len(g["ids"])),
       ("length", 3, 3), "max_tokens ends it")
    g = events(call(s, user("q", n=3, stream=True))[2])
    eq({c["index"] for e in g for c in e["choices"]}, {0, 1, 2}, "n = 3")
    eq(len(json.loads(call(s, user("q", n=2))[2])["choices"]), 2,
       "n = 2, unary")
    eq(s.stop(), 0, "clean exit")


def test_shapes():
    ask = {**user("hello there"), **CAPTURE}
    for shape in ("vllm", "llamacpp", "openai", "sglang"):
        s = Server("--shape", shape)
        st, _, b = call(s, ask)
        if shape == "sglang":
            eq(st, 400, "sglang: no ids in a stream")
            st, _, b = call(s, {**ask, "stream": False})
            d = json.loads(b)
            c = d["choices"][0]
            ok("prompt_token_ids" in c and "prompt_token_ids" not in d and
               len(c["token_ids"]) == len(c["logprobs"]["content"]),
               "sglang: ids by choice", b)
            st, _, b = call(s, {**ask, "return_token_ids": False})
        g = gather(events(b))
        eq(len(g["lp"]), g["usage"]["completion_tokens"],
           f"{shape}: as many logprobs as tokens")
        eq(all("id" in e for e in g["lp"]), shape == "llamacpp",
           f"{shape}: ids in the entries or not")
        eq(len(g["ids"]) > 0, shape == "vllm",
           f"{shape}: token_ids in the stream or not")
        if shape == "vllm":
            g = gather(events(call(s, {
                **ask, "return_tokens_as_token_ids": True})[2]))
            eq([f"token_id:{i}" for i in g["ids"]],
               [e["token"] for e in g["lp"]], "vllm: token_id:N")
        b = call(s, user("hello", stream=True))[2] + call(s, user("q"))[2]
        ok(b'"token"' not in b and b"token_ids" not in b and
           b'"usage"' in b, f"{shape}: nothing that was not asked for", b)
        eq(s.stop(), 0, f"{shape}: clean exit")


def test_refuse():
    s = Server("--refuse", "logprobs", "--refuse", "return_token_ids",
               "--refuse", "max_tokens")
    for extra, word in (({"logprobs": True}, "logprobs"),
                        ({"return_token_ids": True}, "return_token_ids"),
                        ({"max_tokens": 5}, "max_tokens")):
        st, _, b = call(s, user("x", **extra))
        ok(st == 400 and word in json.loads(b)["error"]["message"],
           f"refused: {word}", b)
    eq(call(s, user("x", logprobs=False))[0], 200, "false is no wish")
    s.stop()
    s = Server("--refuse", "tool_logprobs", "--api-key-env", "SM_KEY",
               env={"SM_KEY": "sk-1"})
    key = [("Authorization", "bearer sk-1")]
    full = {**user("x"), "tools": TOOLS, "logprobs": True, "stream": True}
    eq(call(s, full)[0], 401, "no key: 401")
    eq(call(s, full, headers=key)[0], 400, "logprobs, tools and stream: 400")
    eq(call(s, {**full, "stream": False}, headers=key)[0], 200, "but unary")
    eq(s.stop(), 0, "clean exit")
    r = subprocess.run([BIN, "--shape", "round"], capture_output=True,
                       text=True)
    ok(r.returncode == 2 and "shape" in r.stderr, "a bad option is told")
    r = subprocess.run([BIN, "--help"], capture_output=True, text=True)
    ok(r.returncode == 0 and "--script" in r.stdout, "--help")
    bad = os.path.join(TMP.name, "bad.json")
    for text in ('{"turns":[{"steps":[{"tex":"a"}]}]}', '{"turns":', '{}'):
        with open(bad, "w") as f:
            f.write(text)
        r = subprocess.run([BIN, "--script", bad], capture_output=True,
                           text=True)
        ok(r.returncode == 1 and bad in r.stderr, f"refused: {text}",
           r.stderr)


def named(s, name, body=None, **kw):
    return raw_call_h(s, body or user("x", stream=True), name, **kw)


def raw_call_h(s, body, name, **kw):
    c = s.connect()
    c.sendall(request(body, headers=[("X-Script", name),
                                     ("Connection", "close")], **kw))
    return read_all(c)


def test_choice():
    s = Server(script={"model": "mm", "max_model_len": 7, "turns": [
        {"steps": [{"text": "first"}]},
        {"match": "magic", "repeat": 1, "steps": [{"text": "matched"}]},
        {"match": {"model": "big", "stream": False},
         "steps": [{"text": "big"}]},
        {"match": {"field": "logprobs"}, "status": 422, "body": {"a": 1.0}},
        {"name": "n1", "steps": [{"text": "named"}]},
        {"repeat": 2, "steps": [{"text": "second"}]},
    ]})

    def say(text, **kw):
        return json.loads(call(s, user(text, **kw))[2])["choices"][0][
            "message"]["content"]
    eq([say("a"), say("magic"), say("magic"), say("b"), say("c"), say("d")],
       ["first", "matched", "second", "second", "second", "second"],
       "turns in order, by match, and the last one on and on")
    eq(say("a", model="big"), "big", "by an object of conditions")
    st, _, b = call(s, user("a", logprobs=None))
    eq(st, 200, "null is not a field")
    st, _, b = call(s, user("a", logprobs=True))
    eq((st, b), (422, b'{"a":1.0}'), "by field; body as it was written")
    ok(b"named" in raw_call_h(s, user("a"), "n1")[0], "by header x-script")
    d = json.loads(call(s, method="GET", path="/models")[2])["data"][0]
    eq((d["id"], d["max_model_len"]), ("mm", 7), "the script names the model")
    eq(s.stop(), 0, "clean exit")
    s = Server(script={"then": "error", "turns": [
        {"steps": [{"text": "x"}]}]})
    eq([call(s, user("a"))[0] for _ in range(2)], [200, 500], "then: error")
    s.stop()
    s = Server(script={"then": "default", "turns": []}, unix=True)
    c = s.connect()
    c.sendall(request(user("u"), headers=[("Connection", "close")]))
    ok(b"You said: u" in read_all(c)[0], "then: default, on a unix socket")
    eq(s.stop(), 0, "clean exit")


TURNS = [
    {"name": "err", "status": 429,
     "headers": {"Retry-After": "7", "content-type": None},
     "body": "no\\x00\\xffw"},
    {"name": "think", "steps": [{"reasoning": "hm hm"}, {"text": "so"}]},
    {"name": "think2", "steps": [
        {"reasoning": "hm", "field": "reasoning_content"}]},
    {"name": "calls", "tokens_per_event": 3, "steps": [{"tool_calls": [
        {"id": "a", "name": "ls", "arguments": {"p": [1, 12345678901234567890123, "é"]}},
        {"id": "b", "name": "pwd", "arguments": "{\"x\":", "index": 5}]}]},
    {"name": "noindex", "steps": [{"tool_calls": [
        {"id": "a", "name": "ls", "index": None},
        {"id": "b", "name": "pwd", "index": None, "bare_object": True,
         "arguments": {"c": 1}}]}]},
    {"name": "fresh", "steps": [{"tool_calls": [
        {"name": "read", "arguments": "{\"p\":1}", "fresh_ids": True}]}]},
    {"name": "mute", "tool_logprobs": False, "steps": [{"tool_calls": [
        {"name": "read", "arguments": "{}"}]}]},
    {"name": "raw", "steps": [
        {"raw": "data: a\\x0d\n\n", "times": 2}, {"raw_base64": "AAECAw=="},
        {"event": {"b": [1, 2]}}, {"event": "{x"}]},
    {"name": "wire", "steps": [
        {"wire": "a<CR><LF><xFF><'ab' x 3><|><b><WAIT 1ms>c<FIN>d"}]},
    {"name": "none", "framing": "none", "steps": [
        {"raw": "HTTP/1.1 299 Odd\r\nX: y\r\n\r\nbody"}]},
    {"name": "fin", "steps": [{"text": "one"}, {"cut": "fin"},
                              {"text": "two"}]},
    {"name": "rst", "steps": [{"text": "one"}, {"pause_ms": 20},
                              {"cut": "rst"}]},
    {"name": "at5", "cut_at": 5, "steps": [{"text": "one"}]},
    {"name": "wire9", "cut_at_wire": 9, "cut": "fin",
     "steps": [{"text": "one"}]},
    {"name": "whole", "chunks": "whole", "write": "all",
     "steps": [{"text": "a b c"}]},
    {"name": "seven", "chunks": 7, "write": 1, "steps": [{"text": "a b c"}]},
    {"name": "length", "framing": "length", "steps": [{"text": "a b c"}]},
    {"name": "close", "framing": "close", "steps": [{"text": "a b c"}]},
    {"name": "old", "framing": "http1.0", "steps": [{"text": "a b c"}]},
    {"name": "gzip", "encoding": "gzip", "steps": [{"text": "a b c"}]},
    {"name": "lie", "framing": "length", "headers": {"Content-Length": "9999",
                                                     "X-A": "b\\x09c"},
     "steps": [{"text": "a"}]},
    {"name": "crlf", "eol": "\r\n", "steps": [{"text": "a"}]},
    {"name": "parts", "role": False, "finish": None, "done": False,
     "usage": False, "steps": [
         {"comment": "ka"}, {"delta": {"x": None}, "tokens": "two words"},
         {"finish": "abort"}, {"usage": {"total_tokens": 5}},
         {"done": True}]},
    {"name": "fin2", "finish": "content_filter", "steps": [{"text": "a"}]},
    {"name": "plain", "as": "unary", "steps": [{"text": "a"}]},
    {"name": "forced", "as": "stream", "steps": [{"text": "a"}]},
    {"name": "nolp", "logprobs": False, "token_ids": False,
     "steps": [{"text": "a"}]},
]


def test_script():
    s = Server(script={"turns": TURNS})
    ask = user("x", stream=True)
    st, h, b = parse(named(s, "err")[0])
    eq((st, h["retry-after"], "content-type" in h, b),
       (429, "7", False, b"no\x00\xffw"), "status, headers and raw body")
    full = user("x", **CAPTURE)
    g = gather(events(parse(named(s, "think", full)[0])[2]))
    eq((g["reasoning"], g["content"], len(g["ids"])),
       ("hm hm", "so", g["usage"]["completion_tokens"]), "reasoning")
    eq([e["token"] for e in g["lp"]],
       ["<think>", "hm", " hm", "</think>", "so", "<|im_end|>"], "its marks")
    g = gather(events(parse(named(s, "think2")[0])[2]))
    eq((g["reasoning"], g["reasoning_content"]), ("", "hm"), "its other name")
    g = gather(events(parse(named(s, "calls", full)[0])[2]))
    eq([(i, c["id"], c["name"], c["args"]) for i, c in g["calls"].items()],
       [(0, "a", "ls", '{"p":[1,12345678901234567890123,"é"]}'), (5, "b", "pwd", '{"x":')],
       "tool calls with indexes")
    n = g["usage"]["completion_tokens"]
    eq((len(g["lp"]), len(g["ids"])), (n, n), "with all their tokens")
    u = json.loads(parse(named(s, "calls", user("x"))[0])[2])
    eq([c["function"]["arguments"] for c in
        u["choices"][0]["message"]["tool_calls"]],
       ['{"p":[1,12345678901234567890123,"é"]}', '{"x":'], "and unary")
    ev = events(parse(named(s, "noindex")[0])[2])
    calls = [c for e in ev for ch in e["choices"]
             for c in ch["delta"].get("tool_calls", [])]
    ok(len(calls) == 2 and "index" not in calls[0] and
       calls[1]["function"]["arguments"] == {"c": 1},
       "without index, arguments as an object", calls)
    ev = events(parse(named(s, "fresh")[0])[2])
    calls = [c for e in ev for ch in e["choices"]
             for c in ch["delta"].get("tool_calls", [])]
    ok(len({c["id"] for c in calls}) == len(calls) > 2 and
       all(c["function"]["name"] == "" for c in calls[1:]), "fresh ids")
    g = gather(events(parse(named(s, "mute", full)[0])[2]))
    ok(0 < len(g["lp"]) < g["usage"]["completion_tokens"],
       "tool_logprobs: false leaves them out")
    b = parse(named(s, "raw")[0])[2]
    eq(b, b'data: a\r\n\ndata: a\r\n\n\x00\x01\x02\x03'
       b'data: {"b":[1,2]}\n\ndata: {x\n\n', "raw bytes and events")
    raw, how = named(s, "wire")
    st, h, b = parse(raw)
    eq((b, how), (b"a\r\n\xffababab<b>c", "fin"), "wire notation")
    ok(not raw.endswith(b"0\r\n\r\n"), "a cut has no last chunk")
    eq(named(s, "none")[0], b"HTTP/1.1 299 Odd\r\nX: y\r\n\r\nbody",
       "framing none: the whole response is the script's")
    raw, how = named(s, "fin")
    ok(b"one" in raw and b"two" not in raw and how == "fin", "cut by FIN")
    raw, how = named(s, "rst")
    ok(b"one" in raw and how == "rst", "cut by RST", how)
    eq(parse(named(s, "at5")[0])[2], b"data:", "cut in the body")
    eq(named(s, "wire9")[0], b"HTTP/1.1 ", "cut in the head")
    want = parse(named(s, "whole")[0])[2]
    raw, _ = named(s, "whole")
    eq(raw.count(b"\r\n\r\n"), 2, "chunks: whole is one chunk")
    ids = b"chatcmpl-"

    def norm(x):
        out = x.split(ids)
        return ids.join([out[0]] + [p[8:] for p in out[1:]])
    for name in ("seven", "length", "close", "old"):
        raw, _ = named(s, name)
        st, h, b = parse(raw)
        eq(norm(b), norm(want), f"{name}: the same body")
        if name == "seven":
            ok(b"\r\n7\r\n" in raw, "in chunks of seven")
        elif name == "length":
            eq(int(h["content-length"]), len(b), "with its length")
        else:
            ok("content-length" not in h and "transfer-encoding" not in h and
               raw.startswith(b"HTTP/1.0" if name == "old" else b"HTTP/1.1"),
               f"{name}: ended by the close")
    st, h, b = parse(named(s, "gzip")[0])
    eq((h["content-encoding"], norm(gzip.decompress(b))),
       ("gzip", norm(want)), "gzip")
    st, h, b = parse(named(s, "lie")[0])
    eq((h["content-length"], h["x-a"]), ("9999", "b\tc"), "headers override")
    ok(b"\r\n\r\ndata: [DONE]\r\n\r\n" in parse(named(s, "crlf")[0])[2],
       "CRLF line ends")
    b = parse(named(s, "parts", full)[0])[2]
    ok(b.startswith(b": ka\n\ndata: {") and b'"role"' not in b and
       b'"usage":{"total_tokens":5}' in b and b.count(b"[DONE]") == 1 and
       gather(events(b))["fin"] == "abort", "every part by hand", b)
    eq(gather(events(parse(named(s, "fin2")[0])[2]))["fin"],
       "content_filter", "finish_reason of the turn")
    st, h, b = parse(named(s, "plain")[0])
    ok(h["content-type"] == "application/json" and
       json.loads(b)["object"] == "chat.completion",
       "a unary answer to a stream request")
    ok(events(parse(named(s, "forced", user("x"))[0])[2]),
       "and a stream nobody asked for")
    b = named(s, "nolp", full)[0]
    ok(b'"token"' not in b and b"token_ids" not in b,
       "asked for and silently left out")
    how = [x["how"] for x in s.log() if x["event"] == "end"]
    eq((how.count("cut"), how.count("client_closed")), (5, 0),
       "the log tells the cuts")
    # every cut position of one reply
    eq(s.stop(), 0, "clean exit")
    size = len(named_size())
    turns = [{"name": str(i), "cut_at_wire": i, "id": "x",
              "steps": [{"text": "a"}]} for i in range(0, size, 17)]
    s = Server(script={"turns": turns})
    ok(all(len(named(s, str(i))[0]) == i for i in range(0, size, 17)),
       "cut at any byte")
    eq(s.stop(), 0, "clean exit")


def named_size():
    s = Server(script={"turns": [{"name": "q", "id": "x",
                                  "steps": [{"text": "a"}]}]})
    raw = named(s, "q")[0]
    s.stop()
    return raw


def test_bulk():
    s = Server("--bulk", "50", "--unary-bytes", "20k", "--pace", "200",
               "--write", "all")
    conns = [s.connect() for _ in range(200)]
    for c in conns:
        c.sendall(request(user("x", **CAPTURE),
                          headers=[("Connection", "close")]))
    got = [read_all(c)[0] for c in conns]
    ok(all(x == got[0] for x in got), "200 streams are the same bytes")
    g = gather(events(parse(got[0])[2]))
    eq((len(g["ids"]), len(g["lp"]), g["usage"]["completion_tokens"],
        len(g["lp"][0]["top_logprobs"])), (50, 50, 50, 5), "of 50 tokens")
    b = call(s, user("x", stream=True))[2]
    ok(b'"token"' not in b and b'"usage"' not in b,
       "without what was not asked for")
    for extra in ({}, {"logprobs": True}):
        st, h, b = call(s, user("x", **extra))
        d = json.loads(b)
        eq((len(b), (d["choices"][0]["logprobs"] or {}).get("content", [])
            != []), (20480, bool(extra)), f"unary of 20k, {extra}")
    eq(s.stop(), 0, "clean exit")


def test_big():
    s = Server("--unary-bytes", "8m", "--max-body", "20m")
    c = s.connect()
    c.sendall(request(user("x")) * 2 +
              request(user("x"), headers=[("Connection", "close")]))
    other = call(s, method="GET", path="/v1/models")[0]
    eq(other, 200, "one that does not read holds nobody up")
    c.settimeout(120)
    eq(len(read_all(c)[0]) // (8 << 20), 3, "and gets it all in the end")
    body = user("y" * (8 << 20), stream=True)
    b = call(s, body)[2]
    ok(gather(events(b))["content"].startswith("You said: yyy"),
       "a request of 8 MB")
    c = s.connect()
    c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n"
              b"Transfer-Encoding: chunked\r\n\r\n3000000\r\n")
    eq(parse(read_all(c)[0])[0], 413, "a chunk over --max-body: 413")
    eq(call(s, b'{"messages":[' + b"0," * (1 << 20) + b"0]}")[0] in
       (200, 500), True, "a body of a million values is survived")
    # more requests ahead than are read at once
    c = s.connect()
    flood = request(user("z" * 5000, stream=True)) * 400
    import threading
    t = threading.Thread(target=lambda: (c.sendall(flood + request(
        user("end"), headers=[("Connection", "close")]))))
    t.start()
    raw = read_all(c)[0]
    t.join()
    eq(raw.count(b"data: [DONE]"), 400, "400 pipelined streams")
    eq(s.stop(), 0, "clean exit")


for test in (test_http, test_log, test_agent, test_shapes, test_refuse,
             test_choice, test_script, test_bulk, test_big):
    print("#", test.__name__, flush=True)
    test()
print(f"1..{COUNT}")
sys.exit(FAILED != 0)

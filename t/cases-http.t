#!/usr/bin/python3
"""Case H: transport, paths, credentials, other endpoints."""
import gzip
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from cases import ASK, KEY, UNARY, Door, holds, row  # noqa: E402
from upstream import (FIN, Raw, chunked, events, sse, stream_head,  # noqa
                      unary)

GOOD = {"choices": [{"index": 0, "message": {"content": "x"},
                     "finish_reason": "stop"}]}


def say(text, finish=None):
    c = {"index": 0, "delta": {"content": text}}
    if finish:
        c["finish_reason"] = finish
    return {"choices": [c]}


def encodings(door):
    pieces = [events(say("a")), events(say("b", "stop")), events(done=True)]
    for name, bits in (("gzip", 31), ("deflate", 15)):
        z = zlib.compressobj(wbits=bits)
        play = [stream_head(b"Content-Encoding: " + name.encode() + b"\r\n")]
        for p in pieces:
            play.append(chunked(z.compress(p) + z.flush(zlib.Z_SYNC_FLUSH)))
        play += [chunked(z.flush()), b"0\r\n\r\n"]
        r = row(door, f"H1 a stream in {name}", play, want=b"".join(pieces),
                record={"complete": True,
                        "response.choices.0.message.content": "ab"})
        tap.ok("content-encoding" not in r.headers
               and r.sent.headers.get("accept-encoding") == "identity",
               f"H1 {name}: asked for without, sent on without",
               (r.fields, r.sent.fields))
    packed = gzip.compress(json.dumps(GOOD).encode())
    r = door.call(unary(packed, headers=[("Content-Encoding", "gzip")]), UNARY)
    tap.ok(r.json() == GOOD and "content-encoding" not in r.headers,
           "H1: a unary reply in gzip", (r.fields, r.body))
    for name in ("identity", "Identity", "gzip, identity", "identity,gzip",
                 ", identity ,"):
        r = door.call(unary(packed if "gzip" in name else GOOD,
                            headers=[("Content-Encoding", name)]), UNARY)
        tap.ok(r.json() == GOOD and "content-encoding" not in r.headers
               and r.record["complete"] is True
               and r.record["response"] is not None,
               f"H1: {name} in a unary reply", (r.fields, r.body, r.record))
    row(door, "H1 a stream in identity",
        [stream_head(b"Content-Encoding: identity\r\n")]
        + [chunked(p) for p in pieces] + [b"0\r\n\r\n"],
        want=b"".join(pieces), record={"complete": True})
    r = door.call(unary(b"\1\2\3", headers=[
        ("Content-Encoding", "gzip, br, identity")]), UNARY)
    tap.ok(r.body == b"\1\2\3" and "br" in r.headers["content-encoding"],
           "H1: two codings pass as they are", (r.fields, r.body))
    r = door.call(unary(b"\1\2\3", headers=[("Content-Encoding", "x-odd")]),
                  UNARY)
    tap.ok(r.body == b"\1\2\3" and r.headers.get("content-encoding") ==
           "x-odd", "H1: an unknown coding passes as it is",
           (r.fields, r.body))
    holds("H1 unknown coding", r.record, {
        "metadata.capture": "unsupported_encoding"})
    r = door.call(sse(events(say("a", "stop")).replace(b"a", b"b")),
                  headers=[("Accept-Encoding", "gzip, br")])
    tap.eq(r.sent.headers.get("accept-encoding"), "identity",
           "H1: the client's Accept-Encoding does not go up")


def expectations(door):
    s = door.gate.connect()
    body = json.dumps(UNARY).encode()
    door.up.play(unary(GOOD))
    head = gate.request(body, headers=[("Expect", "100-continue")])
    s.sendall(head[:-len(body)])
    r = gate.Reply(s, read=False)
    line = r.until(b"\r\n\r\n")
    tap.ok(line is not None and line.startswith(b"HTTP/1.1 100 "),
           "H3: 100 Continue before the body", line)
    s.sendall(body)
    r.read()
    tap.ok(r.status == 200 and "expect" not in door.up.last.headers,
           "H3: then the answer; Expect does not go up",
           (r.status, door.up.last.fields))
    r = door.gate.post(UNARY, headers=[("Expect", "a-miracle")])
    tap.ok(r.status == 417, "H3: an unknown expectation is 417",
           (r.status, r.body))


def old(door):
    data = events(say("a", "stop"), done=True)
    r = door.call([b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n"
                   b"\r\n" + data, FIN])
    tap.ok(r.body == data and r.whole and r.record["complete"],
           "H5: an upstream of HTTP/1.0", (r.status, r.body))
    r = door.call([b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n"
                   b"\r\n" + events(say("a")), FIN])
    tap.ok(b"[DONE]" not in r.body and b'"error"' in r.body and not r.whole
           and not r.record["complete"],
           "H5: its close without finish_reason is no end", r.body)
    r = door.call([b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n"
                   b"\r\n" + json.dumps(GOOD).encode(), FIN], UNARY)
    tap.ok(r.json() == GOOD, "H5: a unary reply of HTTP/1.0", r.body)
    for body, play, want in (
            (ASK, sse(data), data),
            (UNARY, unary(GOOD), json.dumps(
                GOOD, separators=(",", ":")).encode())):
        door.up.play(play)
        r = gate.Reply(door.gate.connect(), gate.request(body, version="1.0"))
        tap.ok(r.body == want and "transfer-encoding" not in r.headers
               and r.gone(), "H5: a client of HTTP/1.0: no chunks, a close",
               (r.fields, r.body))


def large(door):
    url = "data:image/png;base64," + "A" * (30 << 20)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": url}}]}]}).encode()
    r = door.call(unary(GOOD), body, "text")
    tap.ok(r.status == 200 and r.sent.body == body,
           "H6: a request of 30 MB goes up as it is", r.status)
    tap.eq(r.record["request"]["messages"][0]["content"][0]["image_url"]
           ["url"] == url, True, "H6: and into the trace")
    with gate.Gate(f"upstream u {{ server {door.up.url}; }}\n"
                   "capture c { level text; }\nserver { listen 127.0.0.1:0;"
                   "client_max_body 1m; location /v1 { llm_intercept;"
                   "upstream u; capture c; keys open; } }") as g:
        s = g.connect()
        head = gate.request(b"", headers=[])[:-4].replace(
            b"Content-Length: 0", b"Content-Length: 2000000")
        s.sendall(head + b"\r\n\r\n{")
        r = gate.Reply(s)
        tap.ok(r.status == 413 and "message" in r.json()["error"],
               "H6: over the bound is 413, in JSON, at once",
               (r.status, r.body))


BASES = (("http://{h}", "/v1"), ("http://{h}/", "/v1"),
         ("http://{h}/v1", "/v1"), ("http://{h}/v1/", "/v1"),
         ("http://{h}/api/paas/v4", "/api/paas/v4"),
         ("http://{h}/v1/chat/completions", "/v1"))


def paths():
    up = Raw()
    conf = "capture c { level text; }\n"
    doors = ""
    for i, (base, _) in enumerate(BASES):
        url = base.format(h=f"127.0.0.1:{up.port}")
        conf += f"upstream u{i} {{ server {url}; }}\n"
        doors += (f"location /b{i} {{ llm_intercept; upstream u{i};"
                  " capture c; keys open; pass /b%d/embeddings; }\n" % i)
    with gate.Gate(conf + "server { listen 127.0.0.1:0;\n" + doors + "}") as g:
        for i, (base, want) in enumerate(BASES):
            up.play(unary(GOOD))
            r = g.post(UNARY, f"/b{i}/chat/completions?x=1")
            tap.ok(r.status == 200 and up.last.target ==
                   want + "/chat/completions?x=1",
                   f"H8: base {base}", (r.status, r.body,
                                        up.requests and up.last.target))
            up.play(unary({"data": []}))
            r = g.get(f"/b{i}/models")
            tap.ok(r.status == 200 and up.last.target == want + "/models",
                   f"H8: models at {base}", (r.status, up.last.target))
            up.plays.queue.clear()
        for path in ("/b0/v1/chat/completions", "//b0/v1/chat/completions/",
                     "/b0/./v1/chat/completions", "/b0//chat/completions"):
            up.play(unary(GOOD))
            r = g.post(UNARY, path)
            tap.ok(r.status == 200 and up.last.target ==
                   "/v1/chat/completions", f"H8: {path}",
                   (r.status, r.body, up.last.target))
            up.plays.queue.clear()
    proxied(up)


def proxied(up):
    """sallyport proxy serves both forms of the path."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="sp-") as d:
        os.chmod(d, 0o755)
        g = gate.Gate.__new__(gate.Gate)
        g.log_path = os.path.join(d, "log")
        g.start([gate.program("sallyport"), "proxy", up.url, "--port",
                 str(port), "--trace", os.path.join(d, "t.jsonl")],
                {"UPSTREAM_API_KEY": KEY})
        g.port = port
        for path in ("/v1/chat/completions", "/chat/completions",
                     "//v1/chat/completions/", "/v1/chat/completions?x=1"):
            up.play(unary(GOOD))
            r = g.post(UNARY, path, headers=[("Authorization", "Bearer x")])
            tap.ok(r.status == 200 and up.last.target.split("?")[0] ==
                   "/v1/chat/completions" and up.last.headers.get(
                       "authorization") == "Bearer " + KEY,
                   f"H8: proxy: {path}", (r.status, r.body, up.last.fields))
            up.plays.queue.clear()
        r = g.get("/healthz")
        tap.ok(r.status == 200 and r.json().get("status") == "ok",
               "proxy: /healthz as the reference has it", (r.status, r.body))
        tap.eq(g.stop(), 0, "proxy: SIGTERM ends it well")


def credentials(door):
    body = '{"api_key":"k","api_base":"http://x","messages":[]}'
    r = door.call(unary(GOOD), body, "keyed", headers=[
        ("authorization", "bearer sess-42"), ("x-api-key", "sess-42"),
        ("x-goog-api-key", "sess-42"), ("Cookie", "c=1")])
    names = [k.lower() for k, _ in r.sent.fields]
    tap.ok(r.sent.headers.get("authorization") == "Bearer " + KEY
           and names.count("authorization") == 1
           and not {"x-api-key", "api-key", "x-goog-api-key", "cookie"}
           & set(names), "H10: the upstream's key and no other",
           r.sent.fields)
    tap.eq(r.sent.body, b'{"messages":[]}', "H10: nor one in the body")
    r = door.call(unary(GOOD), UNARY, headers=[
        ("authorization", "Bearer sess-42")])
    tap.ok("authorization" not in r.sent.headers,
           "H10: without one of its own the client's stays behind, too",
           r.sent.fields)
    for hide in ([], [("Authorization", "Bearer nobody")],
                 [("x-api-key", "nobody")], [("api-key", "nobody")],
                 [("x-goog-api-key", "nobody")], [("Authorization", "x")]):
        asked = len(door.up.requests)
        r = door.gate.post(UNARY, "/sess/chat/completions", hide)
        tap.ok(r.status == 401 and "message" in r.json()["error"]
               and "www-authenticate" in r.headers
               and len(door.up.requests) == asked,
               f"H10: keys session: {hide or 'no key'} is 401",
               (r.status, r.fields, r.body))


def keys_elsewhere(door):
    """The caller's key where only servers behind would see one; and fields
    that speak of a body that is another one by now."""
    mine = "CLIENT-KEY-0123456789"
    gone = [("X_Api_Key", mine), ("x_goog_api_key", mine), ("Api_Key", mine),
            ("Transfer_Encoding", "chunked"), ("Content_Length", "5"),
            ("Content-Digest", "sha-256=:eA==:"), ("Content-MD5", "eA=="),
            ("Repr-Digest", "sha-256=:eA==:"), ("Digest", "sha-256=eA=="),
            ("Range", "bytes=0-5"), ("Content-Encoding", "identity")]
    door.up.play(unary(GOOD))
    r = door.gate.post(
        UNARY, f"/v1/chat/completions?key={mine}&api-version=1&k%65y={mine}"
        f"&api_key={mine}", gone + [("X_Mine", "stays")])
    sent = door.up.last
    names = {k.lower() for k, _ in sent.fields}
    tap.ok(r.status == 200 and mine not in repr(sent.fields)
           and sent.target == "/v1/chat/completions?api-version=1"
           and not {k.lower() for k, _ in gone} & names and "x_mine" in names,
           "H10: nor a key in the query, nor a name with _ for -",
           (r.status, sent.target, sent.fields))
    stale = [("Content-Digest", "sha-256=:eA==:"), ("Content-MD5", "eA=="),
             ("Repr-Digest", "sha-256=:eA==:"), ("Digest", "sha-256=eA=="),
             ("ETag", '"x"'), ("Alt-Svc", 'h3=":443"'), ("X-Mine", "stays")]
    door.up.play(unary(GOOD, headers=stale), unary(GOOD, headers=stale))
    r = door.gate.post(UNARY)
    tap.ok(r.status == 200 and r.headers.get("x-mine") == "stays"
           and not {k.lower() for k, _ in stale[:-1]} & set(r.headers),
           "an edited answer goes without digests, tag and Alt-Svc", r.fields)
    r = door.gate.get("/v1/models")
    tap.ok(r.status == 200 and {"content-digest", "etag"} <= set(r.headers)
           and "alt-svc" not in r.headers,
           "one that is not edited without Alt-Svc alone", r.fields)
    packed = gzip.compress(json.dumps(GOOD).encode())
    door.up.play(unary(packed, headers=[("Content-Encoding", "gzip"), *stale]))
    r = door.gate.get("/v1/models")
    tap.ok(r.json() == GOOD and "alt-svc" not in r.headers
           and not {"content-digest", "etag"} & set(r.headers),
           "nor one that was decoded with what is of its coded bytes",
           r.fields)
    asked = len(door.up.requests)
    for coding in ("gzip", "identity, br", "x-odd"):
        r = door.gate.post(gzip.compress(json.dumps(UNARY).encode()),
                           headers=[("Content-Encoding", coding)])
        tap.ok(r.status == 415 and len(door.up.requests) == asked
               and r.json()["error"]["type"] == "invalid_request_error",
               f"a request's body in {coding} is 415", (r.status, r.body))


def quoted(door):
    """An upstream that quotes the gateway's own key, wherever it can."""
    good = json.loads(json.dumps(GOOD).replace('"x"', json.dumps(KEY)))
    echo = json.dumps({"choices": [{"index": 0, "delta": {"content": KEY},
                                    "finish_reason": "stop"}]})
    event = ("data: " + echo + "\n\n").encode()
    cut = event.index(KEY.encode()) + 9
    for what, play, body in (
            ("a reply", unary(good), UNARY),
            ("a field", unary(GOOD, headers=[("X-Key", KEY)]), UNARY),
            ("an error", unary({"error": {"message": "bad key " + KEY}},
                               "401 Unauthorized"), UNARY),
            ("an error with a good status",
             unary({"error": {"message": KEY, "code": 401}}), UNARY),
            ("an event", sse(event), ASK),
            ("an event in pieces", sse(event[:cut], event[cut:]), ASK)):
        before = len(door.lines("keyed"))
        r = door.call(play, body, "keyed")
        seen = repr(r.fields) + r.body.decode("latin-1")
        line = door.line(before, "keyed").decode()
        tap.ok(KEY not in seen and KEY not in line and "****" in seen,
               f"H10: the key is blanked in {what}", (seen, line))
        tap.ok(("key_masked" in json.loads(line)["findings"])
               == (what != "a field"),
               f"the turn says so, but not of {what}" if what == "a field"
               else f"the turn says so of {what}", line)


def short_keys():
    """Keys like vLLM's EMPTY are words that answers are full of."""
    up = Raw()
    text = "if q is EMPTY: return 0123456789abcdef"
    answer = {"choices": [{"index": 0, "message": {
        "role": "assistant", "content": text}, "finish_reason": "stop"}]}
    echo = events({"choices": [{"index": 0, "delta": {"content": text},
                                "finish_reason": "stop"}]})
    with gate.Gate(
            f"upstream short {{ server {up.url}/v1; api_key env:T_SHORT; }}\n"
            f"upstream long {{ server {up.url}/v1; api_key env:T_LONG; }}\n"
            "capture c { level text; }\nserver { listen 127.0.0.1:0;\n"
            "location /v1 { llm_intercept; upstream short; capture c; "
            "keys open; }\nlocation /l { llm_intercept; upstream long; "
            "capture c; keys open; } }",
            env={"T_SHORT": "EMPTY", "T_LONG": "0123456789abcdef"}) as g:
        for n, (path, body, play) in enumerate((
                ("/v1", UNARY, unary(answer)), ("/v1", ASK, sse(echo)),
                ("/l", UNARY, unary(answer)), ("/l", ASK, sse(echo)))):
            up.play(play)
            r = g.post(body, path + "/chat/completions")
            q = g.record(n)
            want = (text if path == "/v1"
                    else text.replace("0123456789abcdef", "*" * 16))
            tap.ok(want.encode() in r.body
                   and want in json.dumps(q["response"])
                   and q["complete"] is True
                   and ("key_masked" in q["findings"]) == (path == "/l")
                   and up.last.headers.get("authorization") == "Bearer "
                   + ("EMPTY" if path == "/v1" else "0123456789abcdef"),
                   f"a key of {5 if path == '/v1' else 16} bytes, call {n}",
                   (r.body, q))
        tap.eq(re.findall(r'(upstream [^:]*): api_key is shorter', g.log()),
               ['upstream "short"'], "the short one is told of at the start")
        t = subprocess.run(
            [gate.program("sallyport"), "-t", "-c", g.conf],
            env={**os.environ, "T_SHORT": "none", "T_LONG": "x" * 16},
            capture_output=True, text=True)
        tap.ok(t.returncode == 0 and re.search(
            r'sallyport.conf:\d+: upstream "short": api_key is shorter than 16',
            t.stderr) and "none" not in t.stderr, "-t tells of it",
            (t.returncode, t.stderr))


def relayed(door):
    """The end of a reply that is not edited waits for the record, too."""
    recorder = door.gate.children()["sallyport-recorder"]
    os.kill(recorder, signal.SIGSTOP)
    try:
        door.up.play(unary({"data": [1]}))
        s = door.gate.connect()
        r = gate.Reply(s, gate.request({"input": "x"}, "/v1/embeddings"),
                       read=False)
        r.head()
        n = int(r.headers["content-length"])
        early = r.exactly(n - 1)
        late = select.select([s], [], [], 0.3)[0]
        tap.ok(early is not None and not late and not r.buf,
               "the last byte waits for the recorder", (early, late, r.buf))
    finally:
        os.kill(recorder, signal.SIGCONT)
    tap.eq(r.exactly(1), b"}", "and comes when the turn is on file")
    s.close()


def endpoints(door):
    door.up.play(unary({"object": "list", "data": [{"id": "m"}]}))
    r = door.gate.get("/v1/models")
    tap.ok(r.status == 200 and r.json()["data"][0]["id"] == "m"
           and door.up.last.target == "/v1/models", "H11: models pass",
           (r.status, r.body))
    before = len(door.lines())
    door.up.play(unary({"data": [1]}))
    r = door.gate.post({"input": "x"}, "/v1/embeddings?a=b")
    tap.ok(r.status == 200 and r.json() == {"data": [1]}
           and door.up.last.target == "/v1/embeddings?a=b"
           and door.up.last.body == b'{"input": "x"}',
           "H11: what is declared passes", (r.status, r.body))
    holds("H11", gate.strict(door.line(before)), {
        "+findings": "not_captured", "metadata.trainable": False})
    asked = len(door.up.requests)
    for method, path in (("GET", "/v1/props"), ("POST", "/v1/completions"),
                         ("POST", "/v1/tokenize"), ("GET", "/v1"),
                         ("POST", "/v1/messages/count_tokens"),
                         ("GET", "/nowhere"), ("DELETE", "/v1/x"),
                         ("GET", "/v1x/models")):
        r = door.gate.get(path, method=method)
        tap.ok(r.status == 404 and "message" in r.json()["error"],
               f"H11: {method} {path} is 404", (r.status, r.body))
    r = door.gate.get("/v1/chat/completions")
    tap.ok(r.status == 405 and "POST" in r.headers.get("allow", "POST"),
           "H11: the wrong method is 405", (r.status, r.fields))
    tap.eq(len(door.up.requests), asked, "H11: none of them went up")
    s = door.gate.connect()
    s.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n"
              b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    r = gate.Reply(s)
    first = r.status
    r.read()
    tap.ok(first == 200 and r.status == 505 and r.gone(),
           "H13: the preface after a request gets 505", (r.status, r.body))
    s = door.gate.connect()
    s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    tap.ok(s.recv(9)[3:5] == b"\4\0", "H13: at first it begins HTTP/2")
    s.close()
    door.up.play(unary(GOOD))
    r = door.gate.post(UNARY, headers=[("Upgrade", "h2c"),
                                       ("HTTP2-Settings", "AAMAAABkAAQ")])
    tap.ok(r.status == 200 and "upgrade" not in door.up.last.headers,
           "H13: Upgrade: h2c is ignored", (r.status, door.up.last.fields))


SESSIONS = """location /sess { llm_intercept; upstream up; capture tokens;
    keys session; }"""
with Door(server=SESSIONS) as door:
    encodings(door)
    expectations(door)
    old(door)
    large(door)
    credentials(door)
    keys_elsewhere(door)
    quoted(door)
    endpoints(door)
    relayed(door)
paths()
short_keys()
tap.done()

#!/usr/bin/python3
"""The four doors, against clients and workers that mean no good."""
import gzip
import json
import os
import re
import resource
import socket
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import doors  # noqa: E402
import gate  # noqa: E402
import h2  # noqa: E402
import mcp  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402
import ws  # noqa: E402
from doors import FIXTURES, TOKENS, bearer  # noqa: E402
from mcp import BOTH, JSON, Client, event, rpc, said  # noqa: E402

SECRET = f"the-answer-is-{os.getpid()}"
FLOOD = 2000


class Daemon(mcp.Gate):
    def __init__(self, folder):
        self.socket = os.path.join(folder, "control")
        assets = os.path.join(folder, "private")
        os.mkdir(assets, 0o700)
        with open(f"{assets}/solution.txt", "w", encoding="utf-8") as f:
            f.write(SECRET)
        web = f"http 8001 /usr/bin/python3 {FIXTURES}/http.py 8001 sse"
        words = (f"assets {assets} {{ solution solution.txt; }}\n"
                 "  inside 127.0.0.1:8000 { location /mcp { mcp_agent;\n"
                 "    tools see say echo big; } }")
        conf = "".join(
            doors.environment(name, i, worker, words=words)
            for i, (name, worker) in enumerate((
                ("box", doors.HOSTILE), ("other", doors.HOSTILE),
                ("web", web))))
        conf += "server { listen 127.0.0.1:0;\n"
        for path, words in {
                "/mcp": "mcp_agent; environment box; tools see say;",
                "/keyed": "mcp_agent; environment box; tools see say; "
                          "token env:AGENT;",
                "/two": "mcp_agent; environment box; tools see say; "
                        "token env:AGENT;",
                "/web": "mcp_agent; environment web; tools echo big;",
                "/mcp/grader": "mcp_grader; environment box; tools * "
                               "grader.*; token env:GRADER; fs_read /**;",
                "/ws": "lifecycle; environment other; shared on; "
                       "token env:ORCHESTRATOR;",
                "/own": "lifecycle; environment other; grace 1ms; "
                        "token env:ORCHESTRATOR;",
                "/observe": "observe; environment box; token env:OBSERVER; "
                            "stream harness_events process; "
                            "slow_timeout 1s;",
                "/health": "health;"}.items():
            conf += f"  location {path} {{ {words} }}\n"
        super().__init__(conf + "}\n", main=f"control {self.socket};",
                         env=TOKENS)

    def create(self, *names):
        rc, out, err = self.ctl("episodes", "create", *names)
        if rc != 0:
            sys.exit(f"no episode: {err}")
        return out.rstrip("\n")

    def worked(self, ep):
        return gate.until(lambda: json.loads(self.ctl("worker", ep)[1])[
            "state"] == "ready", f"the worker of {ep}")

    def raw(self, data, half=False):
        """Everything that comes of these bytes until the connection ends."""
        s = self.connect()
        got = b""
        try:
            s.sendall(data)
            if half:
                s.shutdown(socket.SHUT_WR)
            while (b := s.recv(1 << 16)):
                got += b
        except ConnectionError:
            pass
        s.close()
        return got

    def answers(self):
        """Others are served meanwhile."""
        return self.ask("POST", "/mcp", rpc(1, "tools/call", name="see"))[0] \
            == 200

    def reactor(self):
        return self.children()["sallyport-reactor"]

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.reactor()}/fd"))

    def resident(self):
        with open(f"/proc/{self.reactor()}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * 4096


# ---- requests, byte for byte --------------------------------------------------

HEAD = "Host: 127.0.0.1\r\nConnection: close\r\n"
CALL = rpc(1, "tools/call", name="secret.see", arguments={})
G = f"Authorization: Bearer {TOKENS['GRADER']}\r\n"


def post(target, body=CALL, fields="", version="1.1", method="POST"):
    body = body.encode() if isinstance(body, str) else body
    return (f"{method} {target} HTTP/{version}\r\n{HEAD}{fields}"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


# what it is -> (bytes, the statuses that may come)
REQUESTS = {
    "a slash at the end": (post("/mcp/"), {200}),
    "two slashes": (post("//mcp/grader"), {401}),
    "another case": (post("/MCP"), {404}),
    "an encoded slash": (post("/mcp%2fgrader"), {400, 404}),
    "an encoded slash, with the token": (post("/mcp%2Fgrader", fields=G),
                                         {400, 404}),
    "dots to the agent's": (post("/mcp/grader/.."), {200}),
    "dots to the grader's": (post("/mcp/./grader"), {400, 401, 404}),
    "encoded dots": (post("/mcp/%2e%2e/mcp/grader"), {400, 401, 404}),
    "a NUL": (post("/mcp%00/grader"), {400, 404}),
    "a semicolon": (post("/mcp/grader;x=1"), {400, 404}),
    "absolute form, another host": (
        post("http://evil.example/mcp/grader"), {400, 401, 403}),
    "absolute form": (post("http://127.0.0.1/mcp/grader"), {400, 401}),
    "a fragment": (post("/mcp/grader#/mcp"), {400, 401, 404}),
    "no token": (post("/mcp/grader"), {401}),
    "a token in the query": (post(
        f"/mcp/grader?token={TOKENS['GRADER']}&access_token="
        f"{TOKENS['GRADER']}"), {401}),
    "a token in a cookie": (post(
        "/mcp/grader", fields=f"Cookie: token={TOKENS['GRADER']}\r\n"), {401}),
    "the token twice": (post("/mcp/grader", fields=G + G), {400, 401}),
    "one wrong, one right": (post(
        "/mcp/grader", fields="Authorization: Bearer wrong\r\n" + G),
        {400, 401}),
    "Basic": (post("/mcp/grader", fields="Authorization: Basic "
                   f"{TOKENS['GRADER']}\r\n"), {401}),
    "no scheme": (post("/mcp/grader", fields="Authorization: "
                       f"{TOKENS['GRADER']}\r\n"), {401}),
    "half a token": (post("/mcp/grader", fields="Authorization: Bearer "
                          f"{TOKENS['GRADER'][:-1]}\r\n"), {401}),
    "a longer token": (post("/mcp/grader", fields="Authorization: Bearer "
                            f"{TOKENS['GRADER']}x\r\n"), {401}),
    "another principal's": (post(
        "/mcp/grader", fields="Authorization: Bearer "
        f"{TOKENS['ORCHESTRATOR']}\r\n"), {401}),
    "in another field": (post("/mcp/grader", fields="X-Authorization: Bearer "
                              f"{TOKENS['GRADER']}\r\n"), {401}),
    "folded": (post("/mcp/grader", fields="Authorization:\r\n Bearer "
                    f"{TOKENS['GRADER']}\r\n"), {400, 401}),
    "HEAD": (post("/mcp", b"", method="HEAD"), {405}),
    "OPTIONS": (post("/mcp", b"", method="OPTIONS"), {405}),
    "PUT": (post("/mcp", method="PUT"), {405}),
    "a method in lower case": (post("/mcp", method="post"), {400, 405, 501}),
    "a method of its own": (post("/mcp", method="RESET"), {405, 501}),
    "GET of /ws": (post("/ws", b"", method="GET", fields="Authorization: "
                        f"Bearer {TOKENS['ORCHESTRATOR']}\r\n"),
                   {400, 405, 426}),
    "POST of /observe": (post("/observe", fields="Authorization: Bearer "
                              f"{TOKENS['OBSERVER']}\r\n"), {405}),
    "HTTP/1.0": (post("/mcp", version="1.0"), {200}),
    "HTTP/3.0": (post("/mcp", version="3.0"), {400, 505}),
    "a hidden tool": (post("/mcp"), {200}),
    "gzip": (post("/mcp", gzip.compress(CALL.encode()),
                  "Content-Encoding: gzip\r\n"), {200, 400, 415}),
    "UTF-16": (post("/mcp", CALL.encode("utf-16"), "Content-Type: "
                    "application/json; charset=utf-16\r\n"), {200}),
    "UTF-7 it says": (post("/mcp", CALL, "Content-Type: application/json; "
                           "charset=utf-7\r\n"), {200}),
    "another Host": (post("/mcp", fields="").replace(
        b"Host: 127.0.0.1", b"Host: evil.example"), {403}),
    "two Hosts": (post("/mcp", fields="Host: evil.example\r\n"), {400}),
    "no Host": (post("/mcp").replace(b"Host: 127.0.0.1\r\n", b""), {400}),
    "a name that ends so": (post("/mcp").replace(
        b"127.0.0.1", b"127.0.0.1.evil.example"), {400, 403}),
    "a user in Host": (post("/mcp").replace(
        b"127.0.0.1", b"127.0.0.1@evil.example"), {400, 403}),
    "Origin null": (post("/mcp", fields="Origin: null\r\n"), {403}),
    "Origin of a file": (post("/mcp", fields="Origin: file://\r\n"), {403}),
    "Origin, another": (post("/mcp", fields="Origin: http://localhost."
                             "evil.example\r\n"), {403}),
    "Origin of a user": (post("/mcp", fields="Origin: http://localhost@"
                              "evil.example\r\n"), {403}),
    "an empty Origin": (post("/mcp", fields="Origin: \r\n"), {403}),
    "two Origins": (post("/mcp", fields="Origin: http://localhost\r\n"
                         "Origin: http://evil.example\r\n"), {403}),
    "two episodes": (post("/keyed?episode=one", fields="X-Episode-Id: two\r\n"
                          f"Authorization: Bearer {TOKENS['AGENT']}\r\n"),
                     {400}),
    "two fields of episodes": (post(
        "/keyed", fields="X-Episode-Id: one\r\nX-Episode-Id: two\r\n"
        f"Authorization: Bearer {TOKENS['AGENT']}\r\n"), {400}),
    "two queries of episodes": (post(
        "/keyed?episode=one&episode=two", fields="Authorization: Bearer "
        f"{TOKENS['AGENT']}\r\n"), {400}),
    "an episode of another environment": (post(
        "/keyed?episode=elsewhere", fields="Authorization: Bearer "
        f"{TOKENS['AGENT']}\r\n"), {404}),
    "an episode with dots": (post(
        "/keyed?episode=../one", fields="Authorization: Bearer "
        f"{TOKENS['AGENT']}\r\n"), {400, 404}),
    "no length": (b"POST /mcp HTTP/1.1\r\n" + HEAD.encode() + b"\r\n",
                  {200, 411}),
    "two lengths": (post("/mcp", fields="Content-Length: 5\r\n"), {400}),
    "length and chunks": (post("/mcp", fields="Transfer-Encoding: "
                               "chunked\r\n"), {400}),
    "a wrong chunk": (b"POST /mcp HTTP/1.1\r\n" + HEAD.encode() +
                      b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}", {400}),
    "half a body": (post("/mcp")[:-5], {400, None}),
    "half a head": (post("/mcp")[:30], {400, None}),
    "an Expect of its own": (post("/mcp", fields="Expect: the-worst\r\n"),
                             {417}),
    "upgrade to h2c": (post("/mcp", fields="Upgrade: h2c\r\nHTTP2-Settings: "
                            "AAMAAABkAAQAAP__\r\n"), {200}),
    "a WebSocket with a body": (post(
        "/mcp", "xxxx", "Upgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
        "dGhlIHNhbXBsZSBub25jZQ==\r\n", method="GET"), {400, 403}),
    "a WebSocket by POST": (post(
        "/mcp", "", "Upgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
        "dGhlIHNhbXBsZSBub25jZQ==\r\n"), {400, 403, 405, 200}),
    "two of them, one after the other": (
        post("/mcp").replace(b"Connection: close\r\n", b"") + post("/mcp"),
        {200}),
    "pipelined behind a refusal": (
        post("/mcp/grader").replace(b"Connection: close\r\n", b"") +
        post("/mcp"), {401}),
}


def requests(d):
    for what, (data, want) in REQUESTS.items():
        got = d.raw(data, "half" in what or "no length" in what)
        status = int(got.split(b" ", 2)[1]) if b" " in got else None
        tap.ok(status in want and SECRET.encode() not in got and
               not any(t.encode() in got for t in TOKENS.values()) and
               b'"isError"' not in got and b'"content"' not in got,
               f"{what}: {status}", got[:800])


# ---- JSON ---------------------------------------------------------------------

PARAMS = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}'
DEEP = 100000
# what it is -> (text, the code for openenvd's clients, and for others)
TEXTS = {
    "nothing": (b"", -32700, 400),
    "white space": (b" \n", -32700, 400),
    "an open brace": (b"{", -32700, 400),
    "more behind": (b"{}{}", -32700, 400),
    "a BOM": (b"\xef\xbb\xbf" + rpc(1, "ping").encode(), -32700, 400),
    "no UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, 400),
    "a surrogate in UTF-8": (
        b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}', -32700, 400),
    "an overlong slash": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools\xc0\xafcall"}',
        -32700, 400),
    "a raw NUL": (b'{"jsonrpc":"2.0","id":1,"method":"a\0b"}', -32700, 400),
    "NaN": (b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}', -32700, 400),
    "a comment": (b'{"jsonrpc":"2.0",/**/"id":1,"method":"ping"}',
                  -32700, 400),
    "arrays without end": (b"[" * DEEP, -32700, 400),
    "nested too deep": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":'
                        + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
                        -32700, 400),
    "a string": (b'"tools/list"', -32602, 400),
    "null": (b"null", -32602, 400),
    "an empty object": (b"{}", -32602, 400),
    "an empty batch": (b"[]", -32602, 400),
    "a batch of nothing": (b"[1]", -32602, 400),
    "another version": (b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
                        -32602, 400),
    "an id that is an object": (
        b'{"jsonrpc":"2.0","id":{"a":1},"method":"tools/list"}', -32602, 400),
    "an id that is true": (
        b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}', -32602, 400),
    "an id of a half": (
        b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}', -32602, 400),
    "an id of 1e400": (
        b'{"jsonrpc":"2.0","id":1e400,"method":"tools/list"}', -32602, 400),
    "two ids": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}',
                -32602, 400),
    "two methods": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list",'
                    b'"method":"env/reset"}', -32602, 400),
    "a method twice, escaped": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list",'
        b'"meth\\u006fd":"env/reset"}', -32602, 400),
    "a method in another case": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list",'
        b'"Method":"env/reset"}', -32602, 400),
    "two params": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
        b'{"name":"see"},"params":{"name":"secret.see"}}', -32602, 400),
    "a result as well": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list",'
                         b'"result":{}}', -32602, 400),
    "params that are a list": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["see"]}',
        -32602, -32602),
    "two names": ((PARAMS % '{"name":"see","name":"secret.see"}').encode(),
                  -32602, -32602),
    "two names, the other way": (
        (PARAMS % '{"name":"secret.see","name":"see"}').encode(),
        -32602, -32602),
    "a name, escaped": (
        (PARAMS % '{"name":"see","na\\u006de":"secret.see"}').encode(),
        -32602, -32602),
    "a name, in another case": (
        (PARAMS % '{"name":"see","NAME":"secret.see"}').encode(),
        -32602, -32602),
    "two arguments": (
        (PARAMS % '{"name":"see","arguments":{},"arguments":{}}').encode(),
        -32602, -32602),
    "a name with an escape": (
        (PARAMS % '{"name":"secr\\u0065t.see"}').encode(), -32602, -32602),
    "a name with a NUL": ((PARAMS % '{"name":"see\\u0000"}').encode(),
                          -32602, -32602),
    "half a surrogate": ((PARAMS % '{"name":"see\\ud800"}').encode(),
                         -32602, -32602),
    "a name of a megabyte": (
        (PARAMS % json.dumps({"name": "see" * 350000})).encode(),
        -32602, -32602),
    "a tool of graders": ((PARAMS % '{"name":"grader.read_file"}').encode(),
                          -32602, -32602),
    "one that is reserved": ((PARAMS % '{"name":"reset"}').encode(),
                             -32602, -32602),
    "what orchestrators do": (rpc(1, "env/reset").encode(), -32601, -32601),
    "that, escaped": (b'{"jsonrpc":"2.0","id":1,"method":"env\\/step"}',
                      -32601, -32601),
    "methods in another case": (rpc(1, "Tools/Call", name="see").encode(),
                                -32601, -32601),
}


def plain(body):
    """An answer's JSON, also where it came as the last of some events."""
    body = body.encode() if isinstance(body, str) else body
    return body.rpartition(b"data: ")[2] if body.startswith(b"event: ") \
        else body


def code(body):
    got = json.loads(plain(body) or "{}")
    return got.get("error", {}).get("code")


def texts(d):
    c = Client(d)
    with ws.Ws(d.port, "/mcp") as plain, ws.Ws(d.port, "/mcp") as spec:
        spec.send(ws.text(rpc(0, "initialize", protocolVersion="2025-11-25",
                              capabilities={}, clientInfo={})))
        spec.message()
        for what, (text, want, other) in TEXTS.items():
            status, _, body = d.ask("POST", "/mcp", text)
            first = (status, code(body))
            status, _, body = c.post(text)
            second = status if status != 200 else code(body)
            tap.ok(first == (200, want) and second == other,
                   f"{what}: {want}, {other}", (first, second, body[:300]))
            if text and b"\xff" not in text and b"\xed\xa0" not in text and \
                    b"\xc0" not in text:
                plain.send(ws.text(text))
                spec.send(ws.text(text))
                got = [code(x.message()) for x in (plain, spec)]
                tap.ok(got[0] == want and got[1] is not None,
                       f"{what}, by WebSockets", got)
    got = json.loads(c.post("[" + ",".join(
        [rpc(i, "tools/call", name=n) for i, n in enumerate(
            ("see", "secret.see", "grader.read_file", "see"))]) + "]")[2])
    by = {m["id"]: m for m in got}
    tap.ok("result" in by[0] and "result" in by[3] and
           code(json.dumps(by[1])) == code(json.dumps(by[2])) == -32602,
           "of a batch, what may be called", got)
    tap.eq(c.post("[" + ",".join([rpc(i, "ping") for i in range(101)])
                  + "]")[0], 400, "a batch of too many")
    tap.ok(d.answers(), "others are served")


def judged(d):
    """What reaches the worker is what was judged, whatever else is in it."""
    c = Client(d)
    for params in ('{"name":"s\\u0065e"}',
                   '{"name":"see","x":{"name":"secret.see"}}',
                   '{"name":"see","arguments":{"name":"secret.see"}}',
                   '{"name":"see","_meta":{"name":"secret.see"}}',
                   '{"name":"see","tool_name":"secret.see"}'):
        got = json.loads(said(json.loads(plain(c.post(PARAMS % params)[2]))))
        tap.eq(got["params"]["name"], "see", f"{params}")
    many = "{" + ",".join(f'"progressToken":{i}' for i in range(100)) + "}"
    got = c.post(PARAMS % ('{"name":"see","_meta":' + many + "}"))[2]
    tap.eq(code(got), -32603, "a token a hundred times")
    tap.ok(d.answers(), "is nothing to the worker")


# ---- one session and another --------------------------------------------------

ASK = ('{"jsonrpc":"2.0","id":"own/1","method":"sampling/createMessage",'
       '"params":{"messages":[]}}')


def give(c, id_, words):
    return c.post(json.dumps({"jsonrpc": "2.0", "id": id_,
                              "result": {"model": words}}))[0]


def told(answer):
    """The models that the worker was told of."""
    return [json.loads(line)["result"]["model"]
            for line in json.loads(said(json.loads(answer)))]


def sessions(d):
    a, b = (Client(d, caps={"sampling": {}}) for _ in range(2))
    asks = rpc("same", "tools/call", name="say",
               arguments={"lines": [ASK], "wait": 1})
    h, r = a.open(asks)
    tap.eq(json.loads(event(r))["id"], "own/1", "one session is asked")
    tap.eq(give(b, "own/1", "b"), 202, "another one answers")
    c = b.post('{"jsonrpc":"2.0","method":"notifications/cancelled",'
               '"params":{"requestId":"same"}}')
    tap.eq(c[0], 202, "and cancels its call")
    give(a, "own/1", "a")
    tap.eq(told(event(r)), ["a"], "to the worker only the first has spoken")
    h.close()
    # one leaves in the midst of it; the id is another's then
    h, r = a.open(asks)
    event(r)
    h.close()
    h, r = b.open(asks)
    tap.eq(json.loads(event(r))["id"], "own/1", "the same id, in another")
    give(a, "own/1", "stolen")
    give(b, "own/1", "b")
    tap.eq(told(event(r)), ["b"], "whoever had it before does not answer")
    h.close()
    # progress and what it says in a call are that call's
    h, r = a.stream()
    h2_, r2 = b.open(rpc("same", "tools/call", name="say", arguments={
        "lines": ['{"jsonrpc":"2.0","method":"notifications/message",'
                  '"params":{"level":"info","data":"for b"}}',
                  '{"jsonrpc":"2.0","method":"notifications\\/progress",'
                  '"params":{"progressToken":@TOKEN@,"progress":1}}']},
        _meta={"progressToken": "t"}))
    got = [json.loads(event(r2)) for _ in range(3)]
    tap.eq((got[0]["params"]["data"], got[1]["params"]["progressToken"],
            got[2]["id"]), ("for b", "t", "same"), "what is said in a call")
    h2_.close()
    d.ask("POST", "/mcp/grader", rpc(1, "tools/call", name="say", arguments={
        "lines": ['{"jsonrpc":"2.0","method":"notifications/message",'
                  '"params":{"level":"info","data":"' + SECRET + '"}}']}),
        **bearer("GRADER"))
    a.post(rpc(2, "tools/call", name="say", arguments={"lines": [
        '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}']}))
    tap.eq(json.loads(event(r))["method"],
           "notifications/tools/list_changed",
           "another's, and a grader's, are not heard")
    # whose is whose
    tap.eq(d.ask("DELETE", "/mcp", Mcp_Session_Id="x" * 32)[0], 404,
           "DELETE of what there is not")
    tap.eq(d.ask("DELETE", "/two", Mcp_Session_Id=a.id,
                 **bearer("AGENT"))[0], 404, "or at another door")
    tap.eq(d.ask("DELETE", "/mcp/grader", Mcp_Session_Id=a.id,
                 **bearer("GRADER"))[0], 404, "or at the grader's")
    g = Client(d, "/mcp/grader", **bearer("GRADER"))
    tap.eq(d.ask("POST", "/mcp", rpc(1, "tools/call", name="secret.see"),
                 Accept=BOTH, Content_Type=JSON, Mcp_Session_Id=g.id)[0],
           404, "a grader's session at the agent's")
    plain = json.loads(d.ask("POST", "/mcp/grader", rpc(
        1, "openenv/session/create"), **bearer("GRADER"))[2])
    sid = plain["result"]["session_id"]
    for path in ("/mcp", "/web"):
        got = json.loads(d.ask("POST", path, rpc(
            1, "tools/list", session_id=sid))[2])
        tap.eq(got["error"]["code"], -32602, f"a grader's handle at {path}")
    t = threading.Thread(target=lambda: a.post(rpc(
        "s", "tools/call", name="say", arguments={"wait": 1})))
    t.start()
    gate.until(lambda: d.ask("DELETE", "/mcp", Mcp_Session_Id=a.id)[0] == 200,
               "DELETE while a call is open")
    t.join()
    tap.eq(event(r), None, "ends call and stream")
    h.close()
    tap.ok(d.answers(), "others are served")


def thousands(d):
    before = d.resident()
    made = [d.ask("POST", "/mcp", rpc(1, "openenv/session/create"))
            for _ in range(1100)]
    good = [m for m in made if b"session_id" in m[2]]
    tap.ok(len(good) <= 1024 and code(made[-1][2]) == -32602,
           f"{len(good)} handles, and no more")
    for m in good:
        d.ask("POST", "/mcp", rpc(
            1, "openenv/session/close", session_id=json.loads(m[2])["result"][
                "session_id"]))
    tap.ok(d.resident() - before < 32 << 20, "which are small",
           d.resident() - before)


# ---- workers ------------------------------------------------------------------

ID = '{"jsonrpc":"2.0","id":@ID@,"result":{"content":[]}}'
NOTE = ('{"jsonrpc":"2.0","method":"notifications/message","params":'
        '{"level":"info","data":"%s"}}')
# what it says -> (arguments of say, whether the worker is left)
WORDS = {
    "an answer to nothing": ({"lines": [ID.replace("@ID@", "99999")]}, True),
    "ids of other kinds": ({"lines": [ID.replace("@ID@", i) for i in (
        '"1"', "null", "-1", "1.5", "1e2", "18446744073709551617",
        "1" * 400)]}, True),
    "an answer twice": ({"lines": [ID, ID], "answer": False}, True),
    "a result, and an error": ({"lines": [
        '{"jsonrpc":"2.0","id":@ID@,"result":{},"error":{"code":1,'
        '"message":"m"}}'], "answer": False}, False),
    "neither": ({"lines": ['{"jsonrpc":"2.0","id":@ID@}'],
                 "answer": False}, False),
    "no JSON": ({"lines": ["Traceback (most recent call last):"]}, False),
    "no UTF-8": ({"lines": ["hex:" + NOTE.encode().hex() + "ff"]}, False),
    "bytes in a string": ({"lines": ["hex:" + (
        NOTE % "@").encode().replace(b"@", b"\xc3\x28").hex()]}, False),
    "a batch": ({"lines": ["[" + ID + "]"], "answer": False}, False),
    "deep": ({"lines": ["[" * DEEP]}, False),
    "notifications without end": ({"lines": [NOTE % ("x" * 1000)],
                                   "times": 3000}, True),
    "progress of others": ({"lines": [
        '{"jsonrpc":"2.0","method":"notifications/progress","params":'
        '{"progressToken":%s,"progress":1}}' % t for t in (
            "1", "99999", '"1"', "null", "1e400", "[]")]}, True),
    "progress with the token twice": ({"lines": [
        '{"jsonrpc":"2.0","method":"notifications/progress","params":'
        '{"progressToken":1,"progressToken":2}}']}, True),
    "cancellations of others": ({"lines": [
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":'
        '{"requestId":%s}}' % t for t in ("1", '"x"', "null", "{}")]}, True),
    "requests without end": ({"lines": [
        '{"jsonrpc":"2.0","id":"q%d","method":"sampling/createMessage"}' % i
        for i in range(200)], "wait": 200}, True),
    "requests of its own making": ({"lines": [
        '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":'
        '{"name":"grader.read_file","arguments":{"path":"/etc/passwd"}}}'],
        "wait": 1}, True),
    "a request without a usable id": ({"lines": [
        '{"jsonrpc":"2.0","id":null,"method":"ping"}']}, False),
    "numbers": ({"lines": [
        '{"jsonrpc":"2.0","id":@ID@,"result":{"content":[],"n":[1e999999,-0,'
        + "9" * 4000 + "]}}"], "answer": False}, True),
    "a line of 100 MiB": ({"lines": ["fill:104857600"]}, False),
}

TOOL = '{"name":%s,"inputSchema":{"type":"object"}}'
# what is listed, of which see alone is seen
LISTS = {
    "an escape": [TOOL % '"secr\\u0065t.see"', TOOL % '"s\\u0065e"'],
    "a name twice": ['{"name":"see","name":"secret.see"}',
                      '{"name":"secret.see","name":"see"}'],
    "a name in another case": ['{"name":"see","Name":"secret.see"}'],
    "no name": ["{}", '"secret.see"', "null", '["secret.see"]',
                 '{"name":["secret.see"]}'],
    "a tool of graders": [TOOL % '"grader.read_file"',
                           TOOL % '"grader\\u002erun_oracle"'],
    "a thousand": [TOOL % f'"secret.{i}"' for i in range(1000)],
}
WHOLE = {
    "tools twice": '{"tools":[],"tools":[{"name":"secret.see"}]}',
    "tools in another case": '{"tools":[],"TOOLS":[{"name":"secret.see"}]}',
    "tools, escaped": '{"tools":[],"t\\u006fols":[{"name":"secret.see"}]}',
    "tools that are an object": '{"tools":{"name":"secret.see"}}',
    "no tools": '{"secret.see":1}',
    "no object": '["secret.see"]',
    "result twice": '{"tools":[]},"result":{"tools":[{"name":"secret.see"}]}',
}


def say(d, arguments, path="/mcp", **fields):
    return d.ask("POST", path, rpc(1, "tools/call", name="say",
                                   arguments=arguments), **fields)


def workers(d, ep):
    for what, (arguments, left) in WORDS.items():
        body = say(d, arguments)[2]
        alive = json.loads(d.ctl("worker", ep)[1])["state"] == "ready"
        tap.ok(alive == left and ("error" in json.loads(body)) != left,
               f"a worker that says {what} is {'kept' if left else 'gone'}",
               (alive, body[:600]))
        if not alive:
            d.ctl("reset", ep)
            d.worked(ep)
        tap.ok(d.answers(), "and the next call is answered")


def lists(d):
    c = Client(d)
    for what, tools in LISTS.items():
        text = ('{"jsonrpc":"2.0","id":@ID@,"result":{"tools":['
                + ",".join(tools) + "]}}")
        say(d, {"list": text})
        for body in (c.post(rpc(1, "tools/list"))[2],
                     d.ask("POST", "/mcp", rpc(1, "tools/list"))[2]):
            names = [t["name"] for t in json.loads(plain(body))["result"][
                "tools"]]
            tap.ok(set(names) <= {"see"} and b"secret" not in body and
                   b"grader" not in body, f"a list with {what}", body[:500])
    for what, result in WHOLE.items():
        say(d, {"list": '{"jsonrpc":"2.0","id":@ID@,"result":' + result + "}"})
        body = c.post(rpc(1, "tools/list"))[2]
        tap.ok(b"secret" not in body and code(body) == -32603,
               f"{what}", body[:500])
    tap.ok(d.answers(), "others are served")


# ---- WebSockets ---------------------------------------------------------------

F = ws.FIN
# what it is -> (bytes, the codes it may end with; None: cut)
FRAMES = {
    "no mask": (ws.frame(F | ws.TEXT, b"{}", mask=False), {1002}),
    "a reserved bit": (ws.frame(F | 0x40 | ws.TEXT, b"{}"), {1002}),
    "an unknown opcode": (ws.frame(F | 3, b""), {1002}),
    "an unknown control": (ws.frame(F | 11, b""), {1002}),
    "a fragmented ping": (ws.frame(ws.PING, b""), {1002}),
    "a ping of 126 bytes": (ws.frame(F | ws.PING, b"x" * 126), {1002}),
    "a continuation of nothing": (ws.frame(F | ws.CONT, b"x"), {1002}),
    "a text in a text": (ws.frame(ws.TEXT, b"{") + ws.text("{}"), {1002}),
    "a close of one byte": (ws.frame(F | ws.CLOSE, b"x"), {1002}),
    "a close that is none": (ws.close(1005), {1002}),
    "a close that is not UTF-8": (ws.close(1000, b"\xff"), {1002, 1007}),
    "no UTF-8": (ws.text(b"\xff"), {1007}),
    "a length of 2^63": (b"\x81\xff" + b"\xff" * 8 + b"\0\0\0\0",
                         {1002, 1009, None}),
    "17 MiB it says": (b"\x81\xff" + (17 << 20).to_bytes(8, "big")
                       + b"\0\0\0\0x", {1009}),
    "bytes": (ws.frame(F | ws.BIN, b"{}"), {1003, 1011, 1000}),
}
SOCKETS = {"/mcp": {}, "/mcp/grader": bearer("GRADER"),
           "/ws": bearer("ORCHESTRATOR"), "/observe": bearer("OBSERVER")}


def closed(c):
    """The code that it is closed with, whatever comes before."""
    while True:
        got = c.message()
        if got is None or isinstance(got, tuple):
            return got and got[0]


def frames(d):
    for path, fields in SOCKETS.items():
        for what, (data, want) in FRAMES.items():
            # what observers send is of no interest
            if path == "/observe" and what == "bytes":
                continue
            with ws.Ws(d.port, path, fields) as c:
                if not tap.ok(c.open, f"{path}: a WebSocket", c.head):
                    continue
                try:
                    c.send(data)
                except ConnectionError:
                    pass
                got = closed(c)
                tap.ok(got in want, f"{path}: {what}: {got}")
        for fields2 in ({"Authorization": None}, {"Authorization": "Bearer x"},
                        {"Sec-WebSocket-Protocol": TOKENS["GRADER"]}):
            if path != "/mcp":
                with ws.Ws(d.port, path, fields2) as c:
                    tap.eq(c.status, 403, f"{path} without its token")
    # what is behind the handshake is of the WebSocket, or of nothing
    with ws.Ws(d.port, "/mcp", more=ws.text(CALL)) as c:
        tap.eq(code(c.message()), -32602, "a frame behind the handshake")
    with ws.Ws(d.port, "/mcp/grader", more=post("/mcp")) as c:
        while c.more():
            pass
        tap.ok(c.status == 403 and b"-32602" in c.got,
               "a request behind one that is refused is what it is", c.got)
    for words, want in (({"Upgrade": "h2c, websocket"}, 101),
                        ({"Upgrade": "websocket/13"}, 405),
                        ({"Sec-WebSocket-Version": "8"}, 426),
                        ({"Sec-WebSocket-Key": "short"}, 400),
                        ({"Sec-WebSocket-Key": None}, 400)):
        with ws.Ws(d.port, "/mcp", words) as c:
            tap.eq(c.status, want, f"a handshake with {words}")
    # pieces of one byte, up to the most that may be
    with ws.Ws(d.port, "/mcp", timeout=60) as c:
        text = rpc(1, "tools/call", name="see", arguments={}).encode()
        c.send(ws.frame(ws.TEXT, text[:1]), *[
            ws.frame(ws.CONT, text[i:i + 1]) + ws.frame(F | ws.PING, b"")
            for i in range(1, len(text))], ws.frame(F | ws.CONT))
        tap.ok("result" in c.message(), "a message in pieces of a byte")
        c.send(ws.frame(ws.TEXT), *[ws.frame(ws.CONT)] * 20000,
               ws.frame(F | ws.CONT, rpc(2, "ping").encode()))
        tap.eq(json.loads(c.message())["id"], 2, "pieces of nothing")
        pad = b" " * ((16 << 20) - len(text))
        half = len(pad) // 2
        c.send(ws.frame(ws.TEXT, pad[:half]), ws.frame(ws.CONT, pad[half:]),
               ws.frame(F | ws.CONT, text))
        tap.ok(c.message() is not None, "16 MiB")
        c.send(ws.frame(ws.TEXT, pad), ws.frame(F | ws.CONT, text + b"  "))
        tap.eq(closed(c), 1009, "and a byte more")
    tap.ok(d.answers(), "others are served")


def http2(d):
    """RFC 8441: what a WebSocket may not do by itself it may not there."""
    for path, fields, want in (
            ("/mcp", [], {200}),
            ("/mcp/grader", [], {401, 403}),
            ("/mcp/grader", [("authorization", "Bearer x")], {401, 403}),
            ("/ws", [], {401, 403}),
            ("/observe", [], {401, 403}),
            ("/MCP", [], {403, 404}),
            ("/mcp", [("origin", "http://evil.example")], {403})):
        c = h2.Client(d.port)
        c.send(h2.headers(1, [
            (":method", "CONNECT"), (":protocol", "websocket"),
            (":scheme", "http"), (":path", path), (":authority", "127.0.0.1"),
            ("sec-websocket-version", "13"), *fields], h2.END_HEADERS))
        got = c.frames(lambda f: f.kind == h2.HEADERS)
        status = h2.status(got[-1].payload) if got and \
            got[-1].kind == h2.HEADERS else None
        tap.ok(status in want, f"h2 {path} {fields}: {status}")
        if status == 200:
            c.send(h2.frame(h2.DATA, 0, 1, ws.text(CALL)))
            got = c.frames(lambda f: f.kind == h2.DATA)
            tap.ok(b"-32602" in got[-1].payload, "a hidden tool", got)
            c.send(h2.frame(h2.DATA, 0, 1, ws.frame(F | 3)))
            got = c.frames(lambda f: f.kind == h2.DATA)
            tap.ok(b"\x03\xea" in got[-1].payload, "a wrong frame", got)
        c.close()


# ---- orchestrators ------------------------------------------------------------

ORDERS = ["", "{", "[]", "null", "1", '"reset"', "{}", '{"type":1}',
          '{"type":"reset","data":[]}',
          '{"type":"step"}', '{"type":"step","data":null}',
          '{"type":"state","data":{}}', '{"type":"nothing"}',
          '{"type":"res\\u0000et"}', '{"type":"reset","data":{},"x":1}',
          '{"type":"mcp","data":{}}', '{"type":"mcp","data":[]}',
          '{"type":"reset","data":{"episode_id":"../x"}}',
          '{"type":"reset","data":{"episode_id":7}}',
          '{"type":"reset","data":{"episode_id":"' + "x" * 5000 + '"}}',
          "[" * DEEP, '{"type":"step","data":' + '{"a":' * DEEP]


def order(d, text):
    """What comes of it; None while the episodes of others are ending."""
    with ws.Ws(d.port, "/own", bearer("ORCHESTRATOR")) as c:
        c.send(ws.text(text))
        got = c.message()
        return None if got is not None and "CAPACITY" in got else got or "-"


def orders(d):
    for text in ORDERS:
        got = gate.until(lambda: order(d, text), "room")
        tap.ok(isinstance(got, str) and json.loads(got)["type"] in
               ("error", "mcp", "observation"),
               f"an order: {text[:60]!r}", got)
    with ws.Ws(d.port, "/ws", bearer("ORCHESTRATOR")) as c:
        c.send(ws.text('{"type":"reset","data":{"episode_id":"one"}}'))
        got = json.loads(c.message())
        tap.eq(got["type"], "error", "an episode of another environment is "
               "not taken by its id")
    tap.ok(d.answers(), "others are served")


# ---- floods -------------------------------------------------------------------

def connections(d):
    gate.until(lambda: d.answers(), "an answer")
    fds, rss = d.descriptors(), d.resident()
    half = [b"", b"POST /mcp HTTP/1.1\r\nHost: a", post("/mcp")[:-3],
            post("/mcp/grader", "x", f"{G}Expect: 100-continue\r\n")[:-1]]
    socks = []
    for i in range(FLOOD):
        try:
            s = d.connect()
            s.sendall(half[i % len(half)])
            socks.append(s)
        except OSError:
            break
    tap.ok(d.answers(), f"an answer, with {len(socks)} that stay half open")
    for i, s in enumerate(socks):
        if i % 2:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1" + b"\0" * 7)
        s.close()
    gate.until(lambda: d.descriptors() <= fds + 8, "descriptors to return")
    tap.ok(True, "the descriptors return")
    tap.ok(d.resident() - rss < 160 << 20, "the memory too",
           d.resident() - rss)


def deaf(d):
    """Those who never read hold up nobody."""
    gate.until(lambda: d.answers(), "an answer")
    fds = d.descriptors()
    held = []
    for path, more in (("/observe", bearer("OBSERVER")), ("/mcp", {})):
        for _ in range(4):
            s = d.connect(rcvbuf=4096)
            fields = {"Accept": "text/event-stream", **more}
            if path == "/mcp":
                fields["Mcp-Session-Id"] = Client(d).id
            s.sendall(gate.request(None, path, list({
                **fields, "Host": "127.0.0.1"}.items()), close=False)
                .replace(b"Host: gate\r\n", b""))
            held.append(s)
    for _ in range(20):
        say(d, {"lines": [
            '{"jsonrpc":"2.0","method":"notifications/tools/list_changed",'
            '"params":{"x":"' + "x" * 60000 + '"}}'], "times": 20})
    tap.ok(d.answers(), "calls are answered beside who does not read")
    for s in held:
        s.close()
    gate.until(lambda: d.descriptors() <= fds + 8, "descriptors to return")
    tap.ok(True, "and when they leave nothing is left")


SINCE = ("since=-1", "since=1e3", "since=", "since=%00", "since=" + "9" * 30,
         "since=0&since=1", "since=18446744073709551615")


def observers(d):
    for query in SINCE:
        tap.eq(d.ask("GET", f"/observe?follow=0&{query}",
                     Accept="text/event-stream", **bearer("OBSERVER"))[0],
               400, f"an observer with {query}")
    tap.eq(d.ask("GET", "/observe?follow=0", Accept="text/event-stream",
                 Last_Event_ID="1, 2", **bearer("OBSERVER"))[0], 400,
           "or two ids of events")
    tap.eq(d.ask("GET", "/observe?follow=0&episode=elsewhere",
                 Accept="text/event-stream", **bearer("OBSERVER"))[0], 404,
           "or the episode of another environment")
    got = d.ask("GET", "/observe?follow=0", Accept="text/event-stream",
                **bearer("OBSERVER"))[2]
    tap.ok(b"tools/call" in got, "one who is none sees calls", got[:300])


def within(d, ep):
    """From the inside: the doors of others, and other episodes."""
    script = """
import json, sys, urllib.request as u, urllib.error
for path, fields in json.load(sys.stdin):
    try:
        r = u.urlopen(u.Request("http://127.0.0.1:8000" + path, json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
             {"name": "secret.see"}}).encode(), fields))
        print(r.status, r.read().decode())
    except urllib.error.HTTPError as e:
        print(e.code, e.read().decode())
"""
    rows = [["/mcp", {}], ["/mcp/grader", {"Authorization": "Bearer x"}],
            ["/ws", {}], ["/observe", {}], ["/mcp?episode=two", {}],
            ["/mcp", {"X-Episode-Id": "elsewhere"}], ["/../mcp/grader", {}]]
    rc, out, err = d.ctl("exec", "--in", ep, "--", "/usr/bin/python3", "-c",
                         script, stdin=json.dumps(rows).encode())
    got = [line.split(" ", 1) for line in out.splitlines()]
    tap.eq([g[0] for g in got], ["200", "404", "404", "404", "400", "400",
                                 "400"], f"from inside {err}")
    tap.ok(got and "-32602" in got[0][1], "hidden tools are hidden there")


def main():
    walls.needed()
    resource.setrlimit(resource.RLIMIT_NOFILE,
                       (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory(prefix="sp-hostile-") as folder, \
            Daemon(folder) as d:
        d.create("other", "elsewhere")
        d.create("box", "one")
        d.create("web", "site")
        d.worked("one")
        for part in (requests, texts, judged, sessions, thousands, lists,
                     frames, http2, orders, connections, deaf,
                     observers):
            part(d)
        within(d, "one")
        workers(d, "one")
        tap.none([x for x in d.log().splitlines()
                  if re.search(r"AddressSanitizer|runtime error|LeakSan", x)],
                 "no sanitizer has spoken")
    tap.done()


main()

#!/usr/bin/python3
"""The doors that speak MCP, to workers in real sandboxes."""
import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import inside  # noqa: E402
import mcp  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402
import ws  # noqa: E402
from mcp import BOTH, JSON, Client, event, rpc, said  # noqa: E402

FIXTURES = os.path.join(ROOT, "t", "fixtures", "worker")
SCRATCH = inside.scratch_beside(FIXTURES)
TOKEN = "grader-token-0123456789"


class Daemon(mcp.Gate):
    def __init__(self, folder, **kw):
        self.socket = os.path.join(folder, "control")
        self.access = os.path.join(folder, "access")
        uid = 400000 + os.getpid() % 1000 * 32768
        conf = (f"environment rich {{ episodes 2; workspace_size 64m;\n"
                f"  worker stdio /usr/bin/python3 {FIXTURES}/rich.py;\n"
                f"  sandbox {{ read_only {inside.HOST} {FIXTURES};\n"
                f"    read_write {SCRATCH}; memory 256m; tmp_size 64m;\n"
                f"    shm_size 16m; timeout 20s; env TMPDIR={SCRATCH};\n"
                f"    uid {uid} 4096; }}\n"
                "  inside 127.0.0.1:8000 { location /mcp { mcp_agent;\n"
                "    tools echo env.*; } }\n}\n"
                "server { listen 127.0.0.1:0;\n"
                "  location /health { health; }\n"
                "  location /mcp { mcp_agent; environment rich;\n"
                "    tools echo env.*; }\n"
                "  location /bare { mcp_agent; environment rich;\n"
                "    tools echo; features none; }\n"
                "  location /keyed { mcp_agent; environment rich;\n"
                "    tools echo; token env:AGENT; }\n}\n"
                "server { listen 127.0.0.1:0;\n"
                "  location /keyed { mcp_agent; environment rich;\n"
                "    tools echo; sessions 2; }\n}\n")
        super().__init__(
            conf, main=f"control {self.socket}; access_log {self.access};",
            env={"GRADER": TOKEN, "AGENT": "agent-token-0123456789"}, **kw)

    def create(self, *more):
        rc, out, err = self.ctl("episodes", "create", "rich", *more)
        if rc != 0:
            sys.exit(f"no episode: {err}")
        return out.rstrip("\n")


# ---- byte for byte -----------------------------------------------------------

CONVERSATION = [
    rpc(1, "tools/call", name="echo", arguments={"a": [1, "\u00e4", None]}),
    '{"method":"tools/call", "id" : "x 1", "jsonrpc":"2.0",'
    '"params":{"arguments":{"n":1.50e1},"name":"env.look"}}',
    rpc(-7, "tools/call", name="env.fail", arguments={}),
    rpc(2, "resources/list"),
    rpc(3, "resources/templates/list"),
    rpc(4, "resources/read", uri="x:/1"),
    rpc(5, "resources/subscribe", uri="x:/1"),
    rpc(6, "prompts/list"),
    rpc(7, "prompts/get", name="p"),
    rpc(8, "completion/complete", ref={}, argument={}),
    rpc(9, "logging/setLevel", level="info"),
    rpc(10, "tools/call", name="env.unknown", arguments={}),
    '{"jsonrpc":"2.0","id":12345678901234567890,"method":"tools/call",'
    '"params":{"name":"echo"}}',
]


def direct():
    """The same, told to the worker's own pipe."""
    p = subprocess.Popen([sys.executable, f"{FIXTURES}/rich.py"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    hello = rpc(0, "initialize", protocolVersion="2025-11-25",
                capabilities={}, clientInfo={})
    got = []
    for line in [hello] + CONVERSATION:
        p.stdin.write(line.encode() + b"\n")
        p.stdin.flush()
        got.append(p.stdout.readline().rstrip(b"\n"))
    p.stdin.close()
    p.wait()
    return got


def same_bytes(d):
    want = direct()
    c = Client(d)
    tap.eq(c.hello[0], 200, "initialize")
    first = re.sub(rb'"jsonrpc" : "2.0" , |,  "id" : 0 ', b"", want[0])
    tap.ok(first[len(b'{ "result":'):-1] in c.hello[2],
           "the worker's own words", c.hello[2])
    for line, w in zip(CONVERSATION, want[1:]):
        status, fields, got = c.post(line)
        tap.eq((status, fields["Content-Type"], got),
               (200, "text/event-stream", w),
               f"{line[:60]}")
    return c


# ---- tools -------------------------------------------------------------------

def tools(d, c):
    one = c.post(rpc(1, "tools/list"))[2]
    got = json.loads(one)["result"]
    tap.eq(([t["name"] for t in got["tools"]], got["nextCursor"]),
           (["echo", "env.look", "env.turn"], "p2"), "a page of tools")
    tap.ok(b'"nextCursor":"p\\u0032"' in one and
           b'{"name" : "env.look", "description":"d env.look",' in one,
           "what is seen is as it was", one)
    two = json.loads(c.post(rpc(2, "tools/list", cursor="p2"))[2])["result"]
    tap.eq([t["name"] for t in two["tools"]],
           ["env.change", "env.progress", "env.log", "env.sample",
            "env.elicit", "env.fail", "env.slow"], "the last page")
    none = c.call(3, "tools/call", name="no.such", arguments={})
    for name in ("secret.peek", "secret.late", "grader.fake", "reset",
                 "grader.read_file", "Echo", "echo ", "ech\u200bo"):
        got = c.call(3, "tools/call", name=name, arguments={})
        want = json.loads(json.dumps(none).replace("no.such", "@"))
        want["error"]["message"] = want["error"]["message"].replace("@", name)
        tap.eq(got, want, f"{name!r} looks as what there is not")
    for bad in ('{"name":"echo","name":"secret.peek"}',
                '{"name":"echo","Name":"secret.peek"}',
                '{"name":"echo","n\\u0061me":"secret.peek"}'):
        got = json.loads(c.post('{"jsonrpc":"2.0","id":4,"method":"tools/call"'
                                f',"params":{bad}}}')[2])
        tap.eq(got["error"]["code"], -32602, f"{bad}")
    for method in ("env/reset", "env/step", "env/state", "Env/Reset",
                   "env\\/reset"):
        got = json.loads(c.post('{"jsonrpc":"2.0","id":5,"method":"'
                                + method + '"}')[2])
        tap.eq(got["error"]["code"], -32601, f"{method} is nobody's here")
    batch = json.loads(c.post("[" + rpc(1, "tools/call", name="secret.peek")
                              + "," + rpc(2, "tools/call", name="echo")
                              + "," + rpc(3, "tools/list") + "]")[2])
    by = {m["id"]: m for m in batch}
    tap.ok(by[1]["error"]["code"] == -32602 and "result" in by[2] and
           b"secret" not in json.dumps(by[3]).encode(), "nor in a batch",
           batch)


# ---- what the worker says by itself ------------------------------------------

def asks_meanwhile(d, c):
    """Who is asked in a call may call something for the answer."""
    h, r = c.open(rpc("s1", "tools/call", name="env.sample", arguments={}))
    asked = json.loads(event(r))
    got = c.call("s2", "tools/call", name="echo", arguments={"for": "it"})
    tap.eq(said(got), 'echo{"for": "it"}', "a call while its client is asked")
    c.post(json.dumps({"jsonrpc": "2.0", "id": asked["id"],
                       "result": {"model": "n"}}))
    tap.eq(said(json.loads(event(r))), '{"model": "n"}', "then the answer")
    h.close()


def streams(d):
    c = Client(d, caps={"sampling": {}})
    h, r = c.open(rpc("p1", "tools/call", name="env.progress", arguments={},
                      _meta={"progressToken": "tok"}))
    tap.eq((r.status, r.headers["Content-Type"], r.headers["Cache-Control"],
            r.headers["X-Accel-Buffering"], r.headers["Mcp-Session-Id"]),
           (200, "text/event-stream", "no-cache, no-transform", "no", c.id),
           "a stream, as there is progress")
    got = [json.loads(event(r)) for _ in range(4)]
    tap.eq(([m["params"]["progress"] for m in got[:3]], got[3]["id"]),
           ([0, 50, 100], "p1"), "progress, then the answer")
    tap.eq([m["params"]["progressToken"] for m in got[:3]], ["tok"] * 3,
           "under the client's token")
    tap.eq(event(r), None, "and the end")
    h.close()
    h, r = c.open(rpc(2, "tools/call", name="env.log", arguments={}))
    tap.eq(json.loads(event(r))["method"], "notifications/message", "a log")
    h.close()
    h, r = c.open(rpc(3, "tools/call", name="env.sample", arguments={}))
    asked = json.loads(event(r))
    tap.eq(asked["method"], "sampling/createMessage", "a question")
    status, _, body = c.post(json.dumps({
        "jsonrpc": "2.0", "id": asked["id"], "result": {"model": "m"}}))
    tap.eq((status, body), (202, b""), "its answer is taken")
    tap.eq(said(json.loads(event(r))), '{"model": "m"}', "and has come")
    h.close()
    asks_meanwhile(d, c)
    got = c.call(4, "tools/call", name="env.elicit", arguments={})
    tap.eq(json.loads(said(got))["code"], -32601,
           "what the client cannot do is refused for it")
    h, r = c.stream()
    tap.eq(r.status, 200, "GET")
    c.post(rpc(5, "tools/call", name="env.change", arguments={}))
    tap.eq(json.loads(event(r))["method"],
           "notifications/tools/list_changed", "what concerns nobody's call")
    done = {}
    t = threading.Thread(target=lambda: done.update(
        c.call("s", "tools/call", name="env.slow", arguments={})))
    t.start()
    gate.until(lambda: d.ask("POST", "/mcp", '{"jsonrpc":"2.0","method":'
                             '"notifications/cancelled","params":{"requestId":'
                             '"s","reason":"enough"}}', Accept=BOTH,
                             Content_Type=JSON, Mcp_Session_Id=c.id)[0] == 202
               and (t.join(0.05) or done), "a cancelled call's end")
    t.join()
    # one that was not sent yet ends here
    tap.ok("error" in done or said(done) == "cancelled",
           "a call is cancelled", done)
    tap.eq(d.ask("DELETE", "/mcp", Mcp_Session_Id=c.id)[0], 200, "DELETE")
    tap.eq(event(r), None, "ends the stream")
    tap.eq(c.post(rpc(6, "ping"))[0], 404, "and the session")
    h.close()
    bare = Client(d, "/bare", caps={"sampling": {}})
    caps = json.loads(bare.hello[2])["result"]["capabilities"]
    tap.eq(list(caps), ["tools"], "features none: nothing else is offered")
    tap.eq(bare.call(1, "prompts/list")["error"]["code"], -32601, "nor had")


# ---- the other dialect -------------------------------------------------------

def plain(d):
    def post(text):
        status, fields, body = d.ask("POST", "/mcp", text)
        tap.ok(status == 200 and "Mcp-Session-Id" not in fields,
               "HTTP is never at fault")
        return json.loads(body)

    got = post(rpc(1, "openenv/session/create"))
    tap.eq(list(got), ["jsonrpc", "id", "result"], "no member besides")
    sid = got["result"]["session_id"]
    tap.ok(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab]"
                        r"[0-9a-f]{3}-[0-9a-f]{12}", sid), "a UUID", sid)
    got = post(rpc(2, "tools/list", session_id=sid))
    tap.eq([t["name"] for t in got["result"]["tools"]],
           ["echo", "env.look", "env.turn"], "tools")
    got = post(rpc(3, "tools/call", name="echo", arguments={"a": 1},
                   session_id=sid))
    tap.eq(said(got), 'echo{"a": 1}', "a call")
    tap.eq(post(rpc(4, "tools/call", name="secret.peek", session_id=sid)),
           {"jsonrpc": "2.0", "id": 4, "error": {
               "code": -32602, "message": "Tool not found", "data": None}},
           "a hidden tool")
    tap.eq(post(rpc(5, "openenv/session/close", session_id=sid))["result"],
           {"session_id": sid, "closed": True}, "closed")
    tap.eq(post('{"jsonrpc":"2.0","method":"tools/call","params":'
                '{"name":"echo"}}')["id"], None, "without an id")


def sockets(d):
    def client(**kw):
        return ws.Ws(d.port, "/mcp", **kw)

    with client() as c:
        c.send(ws.text(rpc(1, "tools/list")), ws.text("{"),
               ws.text(rpc(2, "tools/call", name="secret.peek")),
               ws.text(rpc(3, "tools/call", name="echo", arguments={})))
        got = [json.loads(c.message()) for _ in range(4)]
        tap.eq([m["id"] for m in got], [1, None, 2, 3],
               "the plain dialect, in order")
        tap.eq([m.get("error", {}).get("code") for m in got],
               [None, -32700, -32602, None], "with its errors")
        c.send(ws.frame(ws.FIN | ws.BIN, b"x"))
        tap.eq(c.message()[0], 1003, "bytes are not for here")
    with client(fields={"Sec-WebSocket-Protocol": "mcp"}) as c:
        tap.eq(c.field("Sec-WebSocket-Protocol"), "mcp", "the subprotocol")
        c.send(ws.text(rpc(0, "initialize", protocolVersion="2025-11-25",
                           capabilities={"sampling": {}}, clientInfo={})))
        got = json.loads(c.message())
        tap.eq(got["result"]["serverInfo"]["name"], "rich", "initialize")
        c.send(ws.text('{"jsonrpc":"2.0","method":"notifications/'
                       'initialized"}'),
               ws.text(rpc(1, "ping")),
               ws.text(rpc(2, "tools/call", name="env.sample",
                           arguments={})))
        tap.eq(json.loads(c.message()), {"jsonrpc": "2.0", "id": 1,
                                         "result": {}}, "ping")
        asked = json.loads(c.message())
        tap.eq(asked["method"], "sampling/createMessage", "a question")
        c.send(ws.text(json.dumps({"jsonrpc": "2.0", "id": asked["id"],
                                   "result": {"model": "w"}})))
        tap.eq(said(json.loads(c.message())), '{"model": "w"}', "answered")
        c.send(ws.text(rpc(3, "tools/call", name="env.change",
                           arguments={})))
        got = sorted(json.loads(c.message()).get("method", "")
                     for _ in range(2))
        tap.eq(got, ["", "notifications/tools/list_changed"],
               "what changes is told")
        c.send(ws.text(rpc(4, "initialize")))
        tap.eq(json.loads(c.message())["error"]["code"], -32600,
               "initialize again")
    with ws.Ws(d.port, "/keyed") as c:
        tap.eq(c.status, 403, "a WebSocket without its token")
    with ws.Ws(d.port, "/none") as c:
        tap.eq(c.status, 403, "or to nowhere")
    with client(fields={"Host": "evil.example.com",
                        "Origin": "http://evil.example.com"}) as c:
        tap.eq(c.status, 403, "or of another site")


def refusals(d):
    tap.eq(d.ask("GET", "/none")[::2], (404, b'{"detail":"Not Found"}'),
           "no such door")
    got = d.ask("POST", "/keyed", "{}")
    tap.eq((got[0], got[1]["WWW-Authenticate"], got[2]),
           (401, "Bearer",
            b'{"detail":"Unauthorized","reason":"a bearer token is needed '
            b'here: send Authorization: Bearer TOKEN"}'), "no token")
    for host, origin, want in (("localhost:1", None, 200),
                               ("[::1]:1", "http://localhost:6274", 200),
                               ("evil.example.com", None, 403),
                               ("127.0.0.1", "http://evil.example.com", 403)):
        fields = {"Host": host, "Accept": BOTH, "Content_Type": JSON}
        if origin:
            fields["Origin"] = origin
        tap.eq(d.ask("POST", "/mcp", rpc(
            0, "initialize", protocolVersion="2025-11-25", capabilities={},
            clientInfo={}), **fields)[0], want, f"{host} {origin}")


def too_large(d):
    got = d.ask("POST", "/mcp", rpc(7, "tools/call", name="echo",
                                    arguments={"q": "x" * (16 << 20)}))
    tap.ok(got[0] == 413 and "told at once" in json.loads(got[2])["detail"],
           "more than a worker is told at once", got)
    # refused by its length: nothing of it is sent
    got = d.ask("POST", "/mcp", b"", Content_Length=str(17 << 20))
    tap.eq(got[0], 413, "before it is read")
    got = d.ask("POST", "/mcp", rpc(7, "tools/list"), Content_Encoding="gzip")
    tap.ok(got[0] == 415 and "gzip" in json.loads(got[2])["detail"],
           "a content coding", got)
    got = d.ask("PUT", "/mcp", b"{}")
    tap.eq((got[0], got[1].get("allow") or got[1].get("Allow")),
           (405, "GET, POST, DELETE"), "what is served there")


def within(d, ep):
    """The same door, from the inside."""
    code = ("import urllib.request as u, sys; r = u.Request('http://127.0.0.1:"
            "8000/mcp', sys.stdin.buffer.read()); "
            "print(u.urlopen(r).read().decode())")
    r = subprocess.run([gate.program("sallyportctl"), "-S", d.socket, "exec",
                        "--in", ep, "--", "/usr/bin/python3", "-c", code],
                       input=rpc(1, "tools/call", name="echo",
                                 arguments={"in": 1}).encode(),
                       capture_output=True, check=False, timeout=60)
    tap.ok(b'echo{\\"in\\": 1}' in r.stdout, "a call from inside",
           r.stdout + r.stderr)


def several(d, ep):
    d.create("second")
    got = d.ask("POST", "/mcp", rpc(1, "tools/list"))
    tap.ok(got[0] == 400 and b"key of the session" in got[2], "one of two", got)
    tap.eq(d.ask("POST", "/mcp", rpc(1, "tools/list"),
                 X_Episode_Id="second")[0], 401, "an id does not authorise")
    auth = {"Authorization": "Bearer agent-token-0123456789"}
    got = d.ask("POST", "/keyed", rpc(1, "tools/list"), X_Episode_Id="second",
                **auth)
    tap.ok(got[0] == 200 and b"echo" in got[2], "a token does", got)
    c = Client(d, "/keyed", X_Episode_Id="second", **auth)
    tap.eq(c.call(1, "ping"), {"jsonrpc": "2.0", "id": 1, "result": {}},
           "a session of one")
    tap.eq(c.post(rpc(1, "ping"), X_Episode_Id=ep)[0], 404,
           "is unknown in the other")
    d.ctl("end", "second")
    gate.until(lambda: d.ask("POST", "/mcp", rpc(1, "ping"))[0] == 200,
               "only one")


def beside(d):
    """The same path of another server is another door."""
    other = copy.copy(d)
    other.port = int(next(a for a in d.addresses if "unix:" not in a and
                          not a.endswith(f":{d.port}")).rsplit(":", 1)[1])
    ours = Client(d, "/keyed", Authorization="Bearer agent-token-0123456789")
    tap.eq(ours.hello[0], 200, "a session at a door with a token")
    got = other.ask("POST", "/keyed", rpc(1, "ping"), Accept=BOTH,
                    Content_Type=JSON, **ours.session)
    tap.eq(got[0], 404, "is unknown at the other server's door")
    got = other.ask("DELETE", "/keyed", **ours.session)
    tap.eq(got[0], 404, "and is not ended there")
    theirs = [Client(other, "/keyed").hello[0] for _ in range(2)]
    tap.eq(theirs, [200, 200], "which has as many of its own as it may")
    for _ in range(2):
        got = other.ask("POST", "/keyed", rpc(
            0, "initialize", protocolVersion="2025-11-25", capabilities={},
            clientInfo={"name": "t", "version": "1"}), Accept=BOTH,
            Content_Type=JSON)[2]
        got = json.loads(got[got.index(b"data: ") + 6:])["error"]
        tap.ok(got["code"] == -32603 and
               got["data"]["reason"] == "sessions_limit" and
               "2 sessions" in got["data"]["detail"] and
               "/keyed" in got["data"]["detail"] and
               "DELETE" in got["data"]["remedy"], "one more is told why", got)
    got = json.loads(other.ask("POST", "/keyed", rpc(
        1, "openenv/session/create"))[2])["error"]
    tap.ok(got["code"] == -32602 and
           got["data"]["reason"] == "sessions_limit" and
           "openenv/session/close" in got["data"]["remedy"],
           "to openenvd's clients, too", got)
    tap.eq(d.log().count("location /keyed: episode"), 1,
           "and a line in the log, one")
    tap.eq(ours.call(1, "ping"), {"jsonrpc": "2.0", "id": 1, "result": {}},
           "and the first goes on")


def resets(d, ep):
    c = Client(d)
    tap.eq(d.ctl("reset", ep)[0], 0, "a reset")
    got = c.call(1, "tools/call", name="echo", arguments={})
    tap.eq(said(got), "echo{}", "a session lives through it")
    d.ctl("end", ep)
    status, _, body = d.ask("POST", "/mcp", rpc(1, "tools/list"))
    tap.eq((status, json.loads(body)["error"]["code"]), (200, -32603),
           "no episode, to openenvd's clients")
    tap.eq(c.post(rpc(1, "ping"))[0], 503, "and to others")


def logged(d):
    def lines():
        with open(d.access, encoding="utf-8") as f:
            got = [json.loads(x) for x in f.read().splitlines()]
        return [x for x in got if "operation" in x]

    rows = gate.until(lines, "lines of operations")
    call = next(x for x in rows if x["operation"] == "tools/call" and
                x["outcome"] == "ok")
    tap.eq((call["principal"], call["door"], call["tool"]),
           ("agent", "mcp_agent", "echo"), "a line for each operation")
    tap.ok(any(x["outcome"] == "denied" and x["tool"] == "secret.peek"
               for x in rows), "also of what was denied")
    with open(d.access, encoding="utf-8") as f:
        tap.ok("arguments" not in f.read(), "never with arguments")


def main():
    walls.needed()
    with tempfile.TemporaryDirectory(prefix="sp-mcp-") as folder, \
            Daemon(folder) as d:
        ep = d.create()
        c = same_bytes(d)
        tools(d, c)
        streams(d)
        plain(d)
        sockets(d)
        refusals(d)
        too_large(d)
        within(d, ep)
        several(d, ep)
        beside(d)
        resets(d, ep)
        logged(d)
    tap.done()


main()

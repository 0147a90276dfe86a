#!/usr/bin/python3
"""Status, health and the gate's own errors, by the daemon as it runs."""
import fcntl
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import tls  # noqa: E402

BUILD = os.environ.get("SP_BUILDDIR", ".")
BIN = os.path.join(BUILD, "sallyport")
for program in ("sallyport", "sallyport-reactor", "sallyport-recorder"):
    if not os.access(os.path.join(BUILD, program), os.X_OK):
        sys.exit(f"{program} is not there: make it, and name its folder in "
                 "SP_BUILDDIR")
TMP = tempfile.mkdtemp(prefix="sp-status.")
os.chmod(TMP, 0o755)
TOKEN = "status-token-0123456789"
COUNT = 0
FAILED = 0


def ok(good, what, detail=None):
    global COUNT, FAILED
    COUNT += 1
    print("ok" if good else "not ok", COUNT, "-", what, flush=True)
    if not good:
        FAILED += 1
        for line in str(detail)[:3000].splitlines():
            print("#", line)
    return good


def eq(got, want, what):
    return ok(got == want, what, f"     got {got!r}\nexpected {want!r}")


class Upstream:
    """Accepts and never answers: calls to it hang."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.open = []
        self.came = threading.Semaphore(0)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            s, _ = self.socket.accept()
            self.open.append(s)
            self.came.release()


class Daemon:
    def __init__(self, conf, env=None):
        path = os.path.join(TMP, "sallyport.conf")
        with open(path, "w") as f:
            f.write(conf)
        self.p = subprocess.Popen(
            [BIN, "-c", path], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "STATUS_TOKEN": TOKEN, **(env or {})})
        self.log = []
        self.ports = []
        for line in self.p.stderr:
            self.log.append(line)
            if "listening on" in line:
                for word in line.replace(",", " ").split():
                    if word.startswith("127.0.0.1:"):
                        self.ports.append(int(word.split(":")[1]))
                break
        if not self.ports:
            print("Bail out! the daemon did not start:", "".join(self.log))
            sys.exit(1)

    def end(self):
        self.p.send_signal(signal.SIGTERM)
        rest = self.p.stderr.read()
        self.log.append(rest)
        return self.p.wait()


class Client:
    def __init__(self, port, tls=None, name=None):
        s = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.s = tls.wrap_socket(s, server_hostname=name) if tls else s
        self.f = self.s.makefile("rb")

    def send(self, method, path, fields=(), body=None):
        head = [f"{method} {path} HTTP/1.1"]
        if not any(f.lower().startswith("host:") for f in fields):
            head.append("Host: gate.example")
        head += fields
        if body is not None:
            head.append(f"Content-Length: {len(body)}")
        self.s.sendall("\r\n".join(head).encode() + b"\r\n\r\n" +
                       (body or b""))

    def recv(self, method="GET"):
        line = self.f.readline()
        if not line:
            return 0, {}, b""
        status = int(line.split()[1])
        fields = {}
        while True:
            line = self.f.readline().strip()
            if not line:
                break
            name, _, value = line.decode().partition(":")
            fields[name.lower()] = value.strip()
        if status < 200:
            return self.recv(method)
        n = int(fields.get("content-length", 0))
        return status, fields, b"" if method == "HEAD" else self.f.read(n)

    def ask(self, method, path, fields=(), body=None):
        self.send(method, path, fields, body)
        return self.recv(method)


def error_is(reply, status, code, what):
    got, fields, body = reply
    eq(got, status, what)
    try:
        e = json.loads(body)["error"]
    except (ValueError, KeyError):
        return ok(False, f"{what}: an error object", body)
    eq(fields.get("content-type"), "application/json", f"{what}: type")
    return ok(sorted(e) == ["code", "message", "param", "type"] and
              e["code"] == code and e["message"],
              f"{what}: an OpenAI error object", e)


def conf(upstream, more="", listen="listen 127.0.0.1:0;"):
    return f"""
state_dir {TMP}/state;
error_log stderr notice;
access_log {TMP}/access.log;
{more}
upstream model {{ server http://127.0.0.1:{upstream}/v1; }}
capture all {{ level logprobs; }}
server {{
    {listen}
    location /v1 {{ llm_intercept; upstream model; capture all; keys open;
                    client_max_body 1k; }}
    location /locked {{ llm_intercept; upstream model; capture all;
                        keys open; token env:STATUS_TOKEN; }}
    location /status {{ status; token env:STATUS_TOKEN; }}
    location /local {{ status; }}
    location /health {{ health; }}
}}
"""


def test_health(port):
    c = Client(port)
    status, fields, body = c.ask("GET", "/health")
    eq((status, json.loads(body)), (200, {"status": "ok"}), "health")
    status, fields, body = c.ask("HEAD", "/health")
    eq((status, fields.get("content-length")), (200, "16"), "health by HEAD")
    reply = c.ask("POST", "/health", body=b"{}")
    error_is(reply, 405, "method_not_allowed", "health by POST")
    eq(reply[1].get("allow"), "GET, HEAD", "what is allowed instead")
    eq(c.ask("GET", "/health")[0], 200, "and the connection is kept")


def test_errors(port):
    c = Client(port)
    error_is(c.ask("GET", "/nowhere"), 404, "unknown_url", "no location")
    error_is(c.ask("GET", "/health/x"), 404, "unknown_url",
             "beneath an exact location")
    error_is(c.ask("GET", "/a%2fb"), 400, "bad_path", "a bad path")
    reply = c.ask("OPTIONS", "*")
    error_is(reply, 404, "unknown_url", "the server as a whole")
    ok("OPTIONS *" in json.loads(reply[2])["error"]["message"],
       "has no answer, and that is said", reply[2])
    reply = c.ask("POST", "/locked/chat/completions", body=b"{}")
    error_is(reply, 401, "invalid_token", "no token")
    eq(reply[1].get("www-authenticate"), "Bearer", "asks for a bearer token")
    error_is(Client(port).ask("POST", "/locked/chat/completions",
                              [f"Authorization: Bearer {TOKEN}x"], b"{}"),
             401, "invalid_token", "another token")
    error_is(Client(port).ask("POST", "/v1/chat/completions",
                              body=b"x" * 1025),
             413, "request_too_large", "too large by its length")
    c = Client(port)
    c.send("POST", "/v1/chat/completions",
           ["Content-Length: 1025", "Expect: 100-continue"])
    error_is(c.recv(), 413, "request_too_large",
             "too large, said before a byte of it was sent")
    c = Client(port)
    c.send("POST", "/v1/chat/completions", ["Transfer-Encoding: chunked"])
    for _ in range(5):
        c.s.sendall(b"100\r\n" + b"x" * 256 + b"\r\n")
    c.s.sendall(b"0\r\n\r\n")
    error_is(c.recv(), 413, "request_too_large", "too large in chunks")
    error_is(Client(port).ask("POST", "/v1/chat/completions",
                              body=b"[1]"),
             400, "invalid_json", "no JSON object")
    c = Client(port)
    c.s.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
    error_is(c.recv(), 400, "bad_request", "the codec's own errors")
    c = Client(port)
    c.s.sendall(b"GET / HTTP/2.0\r\n\r\n")
    eq(c.recv()[0], 505, "another version")


def promtool(text, what):
    if shutil.which("promtool") is None:
        return ok(True, f"{what} # SKIP no promtool")
    r = subprocess.run(["promtool", "check", "metrics"], input=text,
                       capture_output=True)
    return ok(r.returncode == 0 and not r.stderr, what,
              (r.stdout + r.stderr).decode())


def test_status(port):
    c = Client(port)
    status, fields, text = c.ask("GET", "/status")
    eq(status, 200, "status, from this machine without a token")
    ok(fields["content-type"].startswith("text/plain; version=0.0.4"),
       "in Prometheus text format", fields)
    promtool(text, "promtool accepts it")
    for name in (b"requests_total{module=\"health\",code=\"200\"}",
                 b"connections_open", b"exchanges_open",
                 b"upstream_connects_total{upstream=\"model\"}",
                 b"upstream_reuses_total{", b"upstream_errors_total{",
                 b"completion_tokens_total", b"recorder_backlog_bytes",
                 b"recorder_up 1", b"restarts_total{role=\"recorder\"} 0",
                 b"recorder_ack_seconds_count", b"build_info{version="):
        ok(b"\nsallyport_" + name in text, name.decode(), text)
    status, fields, text = c.ask(
        "GET", "/status", ["Accept: application/openmetrics-text"
                           ";version=1.0.0,text/plain;q=0.5"])
    ok(fields["content-type"].startswith("application/openmetrics-text"),
       "OpenMetrics on request", fields)
    ok(text.endswith(b"# EOF\n") and
       b"# TYPE sallyport_requests counter\n" in text, "as it must be", text)
    status, fields, text = c.ask("GET", "/status",
                                 ["Accept: application/json"])
    eq(json.loads(text)["sallyport_recorder_up"], 1, "JSON on request")
    eq(c.ask("HEAD", "/status")[0], 200, "HEAD")
    error_is(c.ask("DELETE", "/status"), 405, "method_not_allowed",
             "another method")
    # a proxy on this machine is no neighbour
    far = ["X-Forwarded-For: 192.0.2.1"]
    error_is(c.ask("GET", "/status", far), 401, "invalid_token",
             "from afar without a token")
    eq(c.ask("GET", "/status",
             far + [f"Authorization: Bearer {TOKEN}"])[0], 200,
       "from afar with it")
    error_is(c.ask("GET", "/local", far), 403, "local_only",
             "from afar where no token is configured")


def test_access_log():
    with open(os.path.join(TMP, "access.log")) as f:
        text = f.read()
    lines = [json.loads(line) for line in text.splitlines()]
    ok(any(l["path"] == "/health" and l["status"] == 200 and
           l["outcome"] == "ok" for l in lines), "access log", text)
    ok(any(l["outcome"] == "too_large" and l["status"] == 413
           for l in lines), "with outcomes", text)
    bad = [l for l in lines if l["status"] >= 400 and l["outcome"] == "ok"]
    ok(not bad and any(l["status"] == 404 for l in lines),
       "what is refused is not ok", bad)
    ok(TOKEN not in text, "and no secrets", text)


def test_log_reader(upstream):
    """Whoever reads standard error stops doing so: lines are lost."""
    d = Daemon(conf(upstream.port).replace(f"access_log {TMP}/access.log",
                                           "access_log stderr"))
    fcntl.fcntl(d.p.stderr, fcntl.F_SETPIPE_SZ, 4096)
    c = Client(d.ports[0])
    got = [c.ask("GET", "/health")[0] for _ in range(200)]
    eq(got, [200] * 200, "requests are answered while nobody reads the log")
    with open(f"/proc/{d.p.pid}/fdinfo/2") as f:
        flags = int(f.read().split("flags:")[1].split()[0], 8)
    ok(not flags & os.O_NONBLOCK, "what is shared keeps its flags", flags)
    eq(d.end(), 0, "exit status")
    lines = [x for x in "".join(d.log).splitlines() if '"path"' in x]
    ok(0 < len(lines) < 200 and all(json.loads(x) for x in lines),
       "whole lines, and not all of them", lines)


def test_connections(upstream):
    d = Daemon(conf(upstream.port, "connections 3;"))
    port = d.ports[0]
    some = [Client(port) for _ in range(3)]
    for c in some:
        eq(c.ask("GET", "/health")[0], 200, "within the bound")
    late = Client(port)
    late.send("GET", "/health")
    late.s.settimeout(0.2)
    try:
        got = late.s.recv(1)
    except TimeoutError:
        got = b""
    eq(got, b"", "one more waits")
    late.s.settimeout(30)
    some[0].s.close()
    some[0].f.close()
    eq(late.recv()[0], 200, "until another has gone")
    eq(d.end(), 0, "exit status")


def test_drain(upstream):
    d = Daemon(conf(upstream.port, "drain_timeout 500ms;"))
    port = d.ports[0]
    idle = Client(port)
    eq(idle.ask("GET", "/health")[0], 200, "idle connection")
    busy = Client(port)
    busy.send("POST", "/v1/chat/completions", body=b'{"messages":[]}')
    upstream.came.acquire()
    d.p.send_signal(signal.SIGTERM)
    eq(idle.s.recv(1), b"", "the drain closes what is idle")
    eq(busy.recv()[0], 503, "the deadline ends what is not, with a reason")
    eq(d.p.wait(), 0, "exit status")
    with open(os.path.join(TMP, "access.log")) as f:
        last = json.loads(f.read().splitlines()[-1])
    eq(last["outcome"], "shutting_down", "and the log says so")


def certificate(name):
    return tls.certificate(TMP, name)[0][:-len(".pem")]


def test_tls(upstream):
    if shutil.which("openssl") is None:
        return ok(True, "TLS # SKIP no openssl")
    a, b = certificate("a.example"), certificate("b.example")
    second = f"""
server {{ listen 127.0.0.1:0 ssl; server_name b.example;
    certificate file:{b}.pem; certificate_key file:{b}.key;
    location /b {{ health; }} }}"""
    first = (f"ssl; server_name a.example; certificate file:{a}.pem;"
             f" certificate_key file:{a}.key;")
    d = Daemon(conf(upstream.port, listen=f"listen 127.0.0.1:0 {first}")
               + second)
    for name, path, port in (("a.example", "/health", d.ports[0]),
                             ("b.example", "/b", d.ports[1])):
        tls = ssl.create_default_context(
            cafile=os.path.join(TMP, name + ".pem"))
        c = Client(port, tls, name)
        eq(c.ask("GET", path, [f"Host: {name}:{port}"])[0], 200,
           f"{name}: its certificate and its locations")
    plain = Client(d.ports[0])
    reply = plain.ask("GET", "/health", ["Host: a.example"])
    error_is(reply, 400, "bad_request", "plain HTTP on a TLS port")
    ok(b"plain HTTP request was sent to HTTPS port" in reply[2],
       "is told what it is", reply)
    plain.s.settimeout(60)
    eq(plain.s.recv(1), b"", "and the connection ends")
    error_is(c.ask("GET", "/health", ["Host: a.example"]), 404,
             "unknown_url", "and not another listener's")
    eq(d.end(), 0, "exit status")


def main():
    upstream = Upstream()
    d = Daemon(conf(upstream.port))
    test_health(d.ports[0])
    test_errors(d.ports[0])
    test_status(d.ports[0])
    eq(d.end(), 0, "exit status")
    test_access_log()
    test_log_reader(upstream)
    test_connections(upstream)
    test_drain(upstream)
    test_tls(upstream)
    print(f"1..{COUNT}")
    shutil.rmtree(TMP, ignore_errors=True)
    return FAILED != 0


sys.exit(main())

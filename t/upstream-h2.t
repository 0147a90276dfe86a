#!/usr/bin/python3
"""Upstreams that speak HTTP/2: nginx before the scripted model."""
import concurrent.futures
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from upstream import Scripted  # noqa: E402

NGINX = """
daemon off; master_process off; pid {dir}/pid; error_log {dir}/error notice;
worker_rlimit_nofile 4096;
events {{ worker_connections 1024; }}
http {{
    log_format h2 '$server_protocol $connection $status $request_uri';
    access_log {dir}/access h2;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
    scgi_temp_path {dir}/s;
    client_max_body_size 64m; client_body_buffer_size 1m;
    http2_max_concurrent_streams {streams}; keepalive_requests {requests};
    server {{
        listen unix:{dir}/plain http2;
        {proxy}
    }}
    server {{
        listen unix:{dir}/tls ssl http2;
        ssl_certificate {dir}/cert.pem; ssl_certificate_key {dir}/key.pem;
        {proxy}
    }}
    server {{
        listen unix:{dir}/old ssl;
        ssl_certificate {dir}/cert.pem; ssl_certificate_key {dir}/key.pem;
        {proxy}
    }}
}}
"""
PROXY = """location / { proxy_pass %s; proxy_buffering off;
    proxy_http_version 1.1; proxy_set_header Connection ""; }"""
CONF = """
upstream h2c {{ server http://127.0.0.1:{plain}/v1; http2 on; }}
upstream alpn {{ server https://localhost:{tls}/v1; ca {ca}; }}
upstream must {{ server https://localhost:{old}/v1; ca {ca}; http2 on; }}
upstream old {{ server https://localhost:{old}/v1; ca {ca}; }}
upstream never {{ server https://localhost:{tls}/v1; ca {ca}; http2 off; }}
upstream wrong {{ server http://127.0.0.1:{model}/v1; http2 on; }}
capture c {{ level tokens; }}
server {{
    listen 127.0.0.1:0;
    {locations}
    location /status {{ status; }}
}}
"""
DOORS = ("h2c", "alpn", "must", "old", "never", "wrong")
LOCATION = ("location /%s { llm_intercept; upstream %s; capture c; "
            "keys open; }")
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**ASK, "stream": True}
SCRIPT = {"then": "default", "turns": [
    {"name": "endless", "steps": [{"text": "a"}, {"pause_ms": 600000}]},
    {"name": "slow", "steps": [{"text": "a"}, {"pause_ms": 300},
                               {"text": "b"}]},
    {"name": "cut", "steps": [{"text": "a"}, {"cut": "rst"}]},
]}


def certificate(folder):
    r = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"],
        capture_output=True, timeout=gate.PATIENCE)
    if r.returncode != 0:
        tap.skip_all("openssl makes no certificate: " + r.stderr.decode())


class Port:
    """A port of the kernel's before a socket of nginx's; counts."""

    def __init__(self, path):
        self.path, self.open, self.count = path, set(), 0
        self.l = socket.socket()
        self.l.bind(("127.0.0.1", 0))
        self.l.listen(256)
        self.port = self.l.getsockname()[1]
        self.pool = concurrent.futures.ThreadPoolExecutor(600)
        self.pool.submit(self.accept)

    def accept(self):
        while True:
            try:
                a, _ = self.l.accept()
            except OSError:
                return
            b = socket.socket(socket.AF_UNIX)
            b.connect(self.path)
            a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.count += 1
            self.open.add(a)
            self.pool.submit(self.copy, a, b)
            self.pool.submit(self.copy, b, a)

    def copy(self, x, y):
        try:
            while True:
                got = x.recv(65536)
                if not got:
                    break
                y.sendall(got)
        except OSError:
            pass
        for s in (x, y):
            self.open.discard(s)
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        try:
            self.l.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.l.close()
        for s in list(self.open):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.pool.shutdown(wait=False)


class Nginx:
    def __init__(self, model, streams=128, requests=1000):
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        if not os.path.exists(program):
            tap.skip_all("no nginx: contrib/install-packages check")
        self.tmp = tempfile.TemporaryDirectory(prefix="h2-")
        self.dir = self.tmp.name
        os.chmod(self.dir, 0o755)
        certificate(self.dir)
        with open(f"{self.dir}/conf", "w") as f:
            f.write(NGINX.format(dir=self.dir, streams=streams,
                                 requests=requests,
                                 proxy=PROXY % model.url))
        self.p = subprocess.Popen(
            [program, "-p", self.dir, "-c", f"{self.dir}/conf",
             "-e", f"{self.dir}/error"])
        gate.until(self.up, "nginx")
        self.plain = Port(f"{self.dir}/plain")
        self.tls = Port(f"{self.dir}/tls")
        self.old = Port(f"{self.dir}/old")

    def up(self):
        if self.p.poll() is not None:
            with open(f"{self.dir}/error", errors="replace") as f:
                tap.skip_all("nginx does not start: " + f.read()[-500:])
        try:
            socket.socket(socket.AF_UNIX).connect(f"{self.dir}/old")
            return True
        except OSError:
            return False

    def log(self):
        with open(f"{self.dir}/access") as f:
            return [x.split() for x in f]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in (self.plain, self.tls, self.old):
            p.close()
        self.p.terminate()
        self.p.wait(gate.PATIENCE)
        self.tmp.cleanup()


def conf(model, nginx):
    return CONF.format(
        plain=nginx.plain.port, tls=nginx.tls.port, old=nginx.old.port,
        model=model.port, ca=f"{nginx.dir}/cert.pem",
        locations="\n".join(LOCATION % (d, d) for d in DOORS))


def metric(g, name, upstream):
    text = g.get("/status").body.decode()
    want = f'{name}{{upstream="{upstream}"}} '
    return sum(float(x.rsplit(" ", 1)[1]) for x in text.splitlines()
               if want in x + " " or x.startswith("sallyport_" + want))


def post(g, door, body, headers=()):
    return g.post(body, f"/{door}/chat/completions", headers)


def doors(g, nginx):
    for door, version in (("h2c", "HTTP/2.0"), ("alpn", "HTTP/2.0"),
                          ("old", "HTTP/1.1"), ("never", "HTTP/1.1")):
        before = len(nginx.log())
        r = post(g, door, ASK)
        s = post(g, door, STREAM)
        tap.ok(r.status == 200 and r.json()["choices"] and s.status == 200
               and b"[DONE]" in s.body, f"{door}: unary and a stream",
               (r.status, r.body, s.body))
        lines = gate.until(lambda b=before: (nginx.log()[b:] + [0])[1]
                           and nginx.log()[b:], "nginx's log")
        tap.eq([x[0] for x in lines], [version] * 2, f"{door}: by {version}")
        tap.eq(len({x[1] for x in lines}), 1, f"{door}: on one connection")
    r = post(g, "must", ASK)
    tap.ok(r.status == 502 and b"application protocol" in r.body,
           "https without HTTP/2 where it must be: 502", (r.status, r.body))
    r = post(g, "wrong", ASK)
    tap.ok(r.status == 502 and b"does not speak HTTP/2" in r.body,
           "http without HTTP/2 where it must be: 502", (r.status, r.body))
    tap.eq([metric(g, "upstream_h2_requests_total", d) for d in DOORS],
           [2, 2, 0, 0, 0, metric(g, "upstream_h2_requests_total", "wrong")],
           "requests are counted by version")
    tap.eq(metric(g, "upstream_h2_broken_total", "wrong") > 0, True,
           "so are connections that were ended")


def many(g, nginx):
    before = nginx.tls.count
    with concurrent.futures.ThreadPoolExecutor(100) as ex:
        got = list(ex.map(lambda _: post(g, "alpn", STREAM,
                                         [("X-Script", "slow")]),
                          range(100)))
    tap.none([repr((r.status, r.body)) for r in got
              if r.status != 200 or b"[DONE]" not in r.body],
             "100 streams at once are whole")
    tap.ok(nginx.tls.count - before <= 1,
           "on one connection", nginx.tls.count - before)
    big = {**ASK, "messages": [{"role": "user", "content": "x" * 3000000}]}
    r = post(g, "alpn", big)
    tap.ok(r.status == 200, "a request of 3 MB", (r.status, r.body[:200]))


def cancel(g, nginx):
    before = nginx.tls.count
    s = g.connect()
    s.sendall(gate.request(STREAM, "/alpn/chat/completions",
                           [("X-Script", "endless")]))
    r = gate.Reply(s, read=False)
    r.head()
    gate.until(lambda: metric(g, "upstream_h2_streams", "alpn") == 1,
               "the stream")
    s.close()
    gate.until(lambda: metric(g, "upstream_h2_streams", "alpn") == 0,
               "the end of the stream")
    tap.ok(True, "a client that goes away ends its stream")
    r = post(g, "alpn", ASK)
    tap.ok(r.status == 200 and nginx.tls.count == before,
           "and the connection stays", (r.status, nginx.tls.count, before))
    r = post(g, "alpn", STREAM, [("X-Script", "cut")])
    tap.ok(b"[DONE]" not in r.body, "a stream that is cut is not whole",
           (r.status, r.body))
    r = post(g, "alpn", ASK)
    tap.ok(r.status == 200 and nginx.tls.count == before,
           "and the connection stays", (r.status, nginx.tls.count))


def reload(g, nginx):
    before = nginx.tls.count
    with open(g.conf) as f:
        text = f.read()
    with open(g.conf, "w") as f:
        f.write(text + "\n# another generation\n")
    g.p.send_signal(signal.SIGHUP)
    gate.until(lambda: "generation 2 of" in g.log(), "a reload")
    r = post(g, "alpn", ASK)
    tap.ok(r.status == 200 and nginx.tls.count == before,
           "a reload keeps the connection", (r.status, nginx.tls.count))
    with open(g.conf, "w") as f:
        f.write(text.replace("upstream alpn {", "upstream alpn { http2 off;"))
    g.p.send_signal(signal.SIGHUP)

    def old():
        n = len(nginx.log())
        r = post(g, "alpn", ASK)
        gate.until(lambda: len(nginx.log()) > n, "nginx's log")
        return r.status == 200 and nginx.log()[-1][0] == "HTTP/1.1"
    tap.ok(gate.until(old, "the new configuration"),
           "another configuration has its own")
    gate.until(lambda: metric(g, "upstream_h2_connections", "alpn") == 0,
               "the end of the old connection")
    tap.ok(True, "and the old connection is closed")


def limits(model):
    """Few streams at once, and a GOAWAY every so often."""
    with Nginx(model, streams=4, requests=10) as nginx, \
            gate.Gate(conf(model, nginx)) as g:
        with concurrent.futures.ThreadPoolExecutor(40) as ex:
            got = list(ex.map(lambda _: post(g, "alpn", ASK), range(200)))
        tap.none([repr((r.status, r.body)) for r in got if r.status != 200],
                 "200 calls where a connection takes 4 at once and 10 in all")
        tap.ok(nginx.tls.count >= 20, "on as many connections as that takes",
               nginx.tls.count)


def main():
    with Scripted(script=SCRIPT) as model:
        with Nginx(model) as nginx, gate.Gate(conf(model, nginx)) as g:
            doors(g, nginx)
            many(g, nginx)
            cancel(g, nginx)
            reload(g, nginx)
            bad = [x for x in g.log().splitlines() if "ERROR:" in x]
            tap.none(bad, "nothing that a sanitizer would say")
        limits(model)
    tap.done()


main()

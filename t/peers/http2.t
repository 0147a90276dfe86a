#!/usr/bin/python3
"""HTTP/2 as curl, nghttp and h2load speak it, with TLS and without."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from upstream import Scripted  # noqa: E402

CONF = """
upstream up {{ server {url}/v1; }}
capture c {{ level tokens; }}
server {{
    listen 127.0.0.1:0;
    location /v1 {{ llm_intercept; upstream up; capture c; keys open; }}
    location /health {{ health; }}
}}
server {{
    listen 127.0.0.1:0 ssl;
    certificate file:{dir}/cert.pem;
    certificate_key file:{dir}/key.pem;
    location /v1 {{ llm_intercept; upstream up; capture c; keys open; }}
    location /health {{ health; }}
}}
"""
ASK = {"model": "m", "stream": True,
       "messages": [{"role": "user", "content": "hi"}]}


def run(*argv):
    p = subprocess.run(argv, capture_output=True, timeout=gate.PATIENCE)
    return p.returncode, p.stdout, p.stderr


def certificate(folder):
    status, _, err = run(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
        "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
        "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem")
    if status != 0:
        tap.skip_all("openssl makes no certificate: " + err.decode())
    for name in ("key.pem", "cert.pem"):
        os.chmod(f"{folder}/{name}", 0o600)


def curl(url, version, how, ca, g, n):
    status, out, err = run("curl", "-sS", "-N", "--cacert", ca, *how, "-w",
                           "\n%{http_version} %{http_code}", "-H",
                           "Content-Type: application/json", "-d",
                           json.dumps(ASK), url + "/v1/chat/completions")
    tap.ok(status == 0 and out.endswith(f"\n{version} 200".encode())
           and b"data: [DONE]\n\n" in out,
           f"curl {' '.join(how)} {url[:5]}: a stream", (status, out, err))
    tap.ok(g.record(n)["complete"], "its turn is on file")


def main():
    for name in ("curl", "nghttp", "h2load", "openssl"):
        if shutil.which(name) is None:
            tap.skip_all(f"no {name}")
    with tempfile.TemporaryDirectory(prefix="sp-") as folder:
        certificate(folder)
        with Scripted() as model, gate.Gate(
                CONF.format(url=model.url, dir=folder)) as g:
            ports = [int(a.rsplit(":", 1)[1]) for a in g.addresses]
            serve(g, f"http://127.0.0.1:{ports[0]}",
                  f"https://localhost:{ports[1]}", folder + "/cert.pem")
    tap.done()


def serve(g, plain, tls, ca):
    curl(plain, "2", ["--http2-prior-knowledge"], ca, g, 0)
    curl(plain, "1.1", ["--http2"], ca, g, 1)
    curl(tls, "2", ["--http2"], ca, g, 2)
    curl(tls, "1.1", ["--http1.1"], ca, g, 3)
    for url in (plain, tls):
        status, out, err = run("nghttp", "-v", "--no-verify-peer",
                               url + "/health")
        tap.ok(status == 0 and b'{"status":"ok"}' in out,
               f"nghttp {url[:5]}", (out, err))
        status, out, err = run("h2load", "-n", "2000", "-c", "4", "-m", "64",
                               url + "/health")
        tap.ok(b"2000 succeeded, 0 failed" in out and b"2000 2xx" in out,
               f"h2load {url[:5]}: 2,000 requests", out)
    body = os.path.join(os.path.dirname(ca), "body")
    with open(body, "w") as f:
        json.dump(ASK, f)
    status, out, err = run("h2load", "-n", "400", "-c", "2", "-m", "100",
                           "-d", body, plain + "/v1/chat/completions")
    tap.ok(b"400 succeeded, 0 failed" in out, "h2load: 400 streams", out)
    gate.until(lambda: len(g.lines()) == 404, "the last turn")
    tap.ok(all(r["complete"] for r in g.records()),
           "every one is on file, and complete")
    load = re.search(rb"space savings ([\d.]+)%", out)
    tap.ok(load is not None, "heads are compressed")


main()

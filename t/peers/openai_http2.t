#!/usr/bin/python3
"""The OpenAI Python SDK through sallyport over HTTP/2, chosen by ALPN."""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import peer  # noqa: E402
import tap  # noqa: E402
from upstream import Scripted  # noqa: E402

CONF = """
upstream u {{ server {url}/v1; }}
capture c {{ level tokens; }}
server {{ listen 127.0.0.1:0; location /status {{ status; }} }}
server {{
    listen 127.0.0.1:0 ssl;
    certificate file:{dir}/cert.pem;
    certificate_key file:{dir}/key.pem;
    location /v1 {{ llm_intercept; upstream u; capture c; keys open; }}
}}
"""
SOME = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"some\"}," \
       "\"finish_reason\":null}]}\n\n"
SCRIPT = {"then": "default", "turns": [
    {"name": "slow down", "status": 429,
     "headers": {"retry-after": "1"},
     "body": {"error": {"message": "slow down", "type": "rate"}}},
    {"name": "cut", "steps": [{"raw": SOME}, {"cut": "rst"}]},
    {"name": "endless", "steps": [{"raw": SOME}, {"pause_ms": 600000}]},
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
    for name in ("key.pem", "cert.pem"):
        os.chmod(f"{folder}/{name}", 0o600)


def main():
    folder = peer.need("openai-http2")
    env = {k: v for k, v in os.environ.items()
           if k.startswith(("LC_", "PATH", "HOME", "PYTHONDONT"))}
    with tempfile.TemporaryDirectory(prefix="sp-") as tmp:
        certificate(tmp)
        with Scripted(script=SCRIPT) as model, gate.Gate(
                CONF.format(url=model.url, dir=tmp)) as g:
            ports = [int(a.rsplit(":", 1)[1]) for a in g.addresses]
            peer.results("openai-http2", peer.run(
                [os.path.join(folder, "bin", "python"),
                 os.path.join(ROOT, "t", "peers", "openai_http2.py"),
                 f"https://localhost:{ports[1]}/v1", f"{tmp}/cert.pem",
                 f"http://127.0.0.1:{ports[0]}/status"], env=env))
            turns = [t for t in g.records() if t["complete"]]
            tap.ok(len(turns) >= 64 and all(t["aligned"] for t in turns),
                   "the trace has every token", len(turns))
    tap.done()


main()

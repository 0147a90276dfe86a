#!/usr/bin/python3
"""curl through sallyport: TLS, unix sockets, versions, large bodies."""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import layers  # noqa: E402
import peer  # noqa: E402
import tap  # noqa: E402
from upstream import Scripted  # noqa: E402

ASK = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def curl(*args, body=ASK):
    argv = ["curl", "-sS", "--max-time", "60", "-w",
            "\n%{http_code} %{http_version} %{num_connects}"]
    if body is not None:
        argv += ["-H", "Content-Type: application/json", "-d",
                 body if isinstance(body, str) else json.dumps(body)]
    r = peer.run([*argv, *args])
    text, _, tail = r.stdout.rpartition("\n")
    return r.returncode, text, tail.split(), r.stderr


def plain(url, d):
    chat = url + "/v1/chat/completions"
    rc, text, tail, err = curl(chat)
    tap.ok(rc == 0 and tail[:2] == ["200", "1.1"] and "You said: hello"
           in json.loads(text)["choices"][0]["message"]["content"],
           "a unary call", (rc, text, tail, err))
    rc, text, tail, err = curl("-N", chat, body={**ASK, "stream": True})
    tap.ok(rc == 0 and text.endswith("data: [DONE]\n\n")
           and "logprobs" not in text, "a stream", (rc, text[-300:], err))
    rc, text, tail, err = curl("--http1.0", chat, body={**ASK, "stream": True})
    tap.ok(rc == 0 and text.endswith("data: [DONE]\n\n"),
           "a stream over HTTP/1.0", (rc, text[-300:], err))
    path = os.path.join(d, "body")
    with open(path, "w") as f:
        json.dump({"model": "m", "messages": [
            {"role": "user", "content": "x" * (3 << 20)}]}, f)
    for extra in ((), ("-H", "Transfer-Encoding: chunked"),
                  ("-H", "Expect: 100-continue")):
        rc, text, tail, err = curl(*extra, chat, body="@" + path)
        tap.ok(rc == 0 and tail[0] == "200",
               f"a body of 3 MB {' '.join(extra)}", (rc, text[:300], err))
    rc, text, tail, err = curl(chat, chat, chat)
    tap.ok(rc == 0 and text.count('"choices"') == 3
           and text.splitlines()[-1] != "" and tail[2] == "0",
           "three calls over one connection", (rc, tail, err))
    rc, text, tail, err = curl("--compressed", chat)
    tap.ok(rc == 0 and tail[0] == "200", "--compressed", (rc, err))
    rc, text, tail, err = curl(url + "/v1/models", body=None)
    tap.ok(rc == 0 and json.loads(text)["data"][0]["id"] == "scripted-model",
           "models", (rc, text, err))
    rc, text, tail, err = curl("-I", url + "/health", body=None)
    tap.ok(rc == 0 and tail[0] == "200" and text.endswith("\n\n"),
           "HEAD", (rc, text, err))
    rc, text, tail, err = curl(url + "/health", body=None)
    tap.ok(rc == 0 and tail[0] == "200" and json.loads(text),
           "health", (rc, text, err))
    rc, text, tail, err = curl("-X", "POST", url + "/nothing")
    tap.ok(rc == 0 and tail[0] == "404" and json.loads(text)["error"],
           "404 with an error object", (rc, text, err))


def metrics(url):
    rc, text, tail, err = curl(url + "/status", body=None)
    tap.ok(rc == 0 and tail[0] == "200" and "# TYPE" in text, "status",
           (rc, text[:300], err))
    if not layers.tool("promtool"):
        tap.skip("promtool accepts it", "promtool is not installed")
        return
    r = subprocess.run(["promtool", "check", "metrics"], input=text,
                       text=True, capture_output=True)
    tap.ok(r.returncode == 0, "promtool accepts it", r.stdout + r.stderr)
    rc, text, tail, err = curl("-H", "Accept: application/openmetrics-text",
                               url + "/status", body=None)
    tap.ok(rc == 0 and text.endswith("# EOF\n") or text.endswith("# EOF"),
           "as OpenMetrics, too", (rc, text[-200:]))


def certificate(d):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
         "/CN=gate.test", "-addext", "subjectAltName=DNS:gate.test",
         "-keyout", f"{d}/key", "-out", f"{d}/cert"],
        check=True, capture_output=True)


def tls(g, d):
    port = next(a for a in g.addresses if "unix:" not in a
                and int(a.rsplit(":", 1)[1]) != g.port).rsplit(":", 1)[1]
    url = f"https://gate.test:{port}/v1/chat/completions"
    to = ("--resolve", f"gate.test:{port}:127.0.0.1", "--cacert", f"{d}/cert")
    rc, text, tail, err = curl(*to, "--http1.1", url)
    tap.ok(rc == 0 and tail[:2] == ["200", "1.1"], "over TLS",
           (rc, text, tail, err))
    rc, text, tail, err = curl(*to, "--tls-max", "1.2", url,
                               body={**ASK, "stream": True})
    tap.ok(rc == 0 and text.endswith("data: [DONE]\n\n"),
           "a stream over TLS 1.2", (rc, text[-300:], err))
    rc, text, tail, err = curl(*to, "--ciphers", "DEFAULT@SECLEVEL=0",
                               "--tls-max", "1.1", url)
    tap.ok(rc == 35, "TLS 1.1 is refused", (rc, tail, err))
    rc, text, tail, err = curl(*to, "--http2", url)
    tap.ok(rc == 0 and tail[:2] == ["200", "2"],
           "ALPN chooses h2", (rc, tail, err))
    rc, text, tail, err = curl(f"http://127.0.0.1:{port}/v1/models", body=None)
    tap.ok(rc != 0 or tail[0] == "400", "plain HTTP to it is refused",
           (rc, text, tail))


if not layers.tool("curl") or not layers.tool("openssl"):
    tap.skip_all("curl and openssl are not both installed")
with tempfile.TemporaryDirectory(prefix="sp-") as d, Scripted() as model:
    os.chmod(d, 0o755)
    certificate(d)
    server = (f"}} server {{ listen unix:{d}/sock;"
              " location /v1 { llm_intercept; upstream u; capture c;"
              " keys open; } }"
              " server { listen 127.0.0.1:0 ssl; server_name gate.test;"
              f" certificate file:{d}/cert; certificate_key file:{d}/key;"
              " location /v1 { llm_intercept; upstream u; capture c;"
              " keys open; }")
    with peer.door(model.url, server="location /health { health; } "
                   "location /status { status; } " + server) as g:
        url = f"http://127.0.0.1:{g.port}"
        plain(url, d)
        metrics(url)
        tls(g, d)
        rc, text, tail, err = curl("--unix-socket", f"{d}/sock",
                                   "http://gate/v1/chat/completions")
        tap.ok(rc == 0 and tail[0] == "200", "over a unix socket",
               (rc, text, err))
tap.done()

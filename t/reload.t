#!/usr/bin/python3
"""Reload: another configuration while calls are served; logs; the manager."""
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
import tls  # noqa: E402
import upstream  # noqa: E402

IS_ROOT = os.geteuid() == 0
CONFINED = gate.confined()
ANSWER = upstream.unary({"id": "x", "object": "chat.completion", "created": 1,
                         "model": "m", "choices": [{
                             "index": 0, "finish_reason": "stop",
                             "message": {"role": "assistant",
                                         "content": "hi"}}]})
CALL = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def conf(url, listen="listen 127.0.0.1:0;", up="",
         trace="traces/$session.jsonl"):
    return f"""
    upstream u {{ server {url}/v1; {up} }}
    capture c {{ level text; trace {trace}; }}
    server {{
        {listen}
        location /v1 {{ llm_intercept; upstream u; capture c; keys open; }}
        location /status {{ status; }}
        location /health {{ health; }}
    }}
    """


class Daemon(gate.Gate):
    """A sallyport whose configuration changes; `state` lies in its folder."""

    def __init__(self, text, main="", **kw):
        self.main = main
        super().__init__(text, main=main, **kw)
        self.generation = 1

    def write(self, text, main=None):
        main = self.main if main is None else main
        with open(self.conf, "w", encoding="utf-8") as f:
            f.write(f"state_dir {self.state};\n"
                    f"error_log stderr info;\n{main}\n{text}\n")

    def said(self, pattern, count=1):
        """Waits until the log has it so often."""
        gate.until(lambda: len(re.findall(pattern, self.log())) >= count,
                   f"{pattern} in the log")

    def reload(self, text=None, main=None):
        """Until it is in use everywhere."""
        if text is not None:
            self.write(text, main)
        n = len(re.findall("is reloaded", self.log()))
        self.p.send_signal(signal.SIGHUP)
        self.said("is reloaded", n + 1)

    def refused(self, text, main=None):
        """What the log says of it."""
        self.write(text, main)
        before = len(self.log())
        n = len(re.findall("nothing has changed", self.log()))
        self.p.send_signal(signal.SIGHUP)
        self.said("nothing has changed", n + 1)
        return self.log()[before:]

    def metric(self, name):
        r = self.get("/status", headers=[("Accept", "text/plain")])
        for line in r.body.decode().splitlines():
            m = re.match("sallyport_" + name + r"(?:_total)?(?:\{.*\})? (\S+)",
                         line)
            if m:
                return float(m.group(1))
        return None

    def ask_unix(self, path):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(gate.PATIENCE)
        s.connect(path)
        return gate.Reply(s, gate.request(None, "/health"))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


def test_under_load():
    """Requests on kept connections meanwhile: none fails."""
    with upstream.Scripted() as model:
        text = conf(model.url)
        with Daemon(text) as d:
            failed, done, stop = [], [0] * 6, threading.Event()

            def client(i):
                s = d.connect()
                while not stop.is_set() and done[i] < 2000:
                    r = gate.Reply(s, gate.request(CALL, close=False))
                    if r.status != 200 or not r.whole:
                        failed.append((r.status, r.body[:200]))
                        return
                    done[i] += 1
                s.close()
            threads = [threading.Thread(target=client, args=(i,))
                       for i in range(len(done))]
            for t in threads:
                t.start()
            gate.until(lambda: min(done) > 3, "requests")
            for i in range(12):
                before = list(done)
                d.reload(conf(model.url, up=f"model m{i};"))
                gate.until(lambda: failed or all(
                    a > b or a >= 2000 for a, b in zip(done, before)),
                    "requests after a reload")
            stop.set()
            for t in threads:
                t.join()
            tap.eq(failed, [], "no request fails while 12 reloads happen")
            d.post(CALL)
            asked = {r["request"]["model"] for r in d.records()}
            tap.ok({"m0", "m11"} <= asked, "each had its configuration's model",
                   asked)
            tap.eq(d.records()[-1]["request"]["model"], "m11",
                   "and the last one has the last")


def test_old_stream():
    """What is open ends as it began; what comes has the new."""
    u, v = upstream.Raw(), upstream.Raw()
    go = threading.Event()
    with Daemon(conf(u.url, up="model old;",
                     trace="traces/old-$session.jsonl")) as d:
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1,
                 "model": "m", "choices": [{"index": 0, "delta": {
                     "content": "one"}, "finish_reason": None}]}
        last = {**chunk, "choices": [{"index": 0, "delta": {},
                                      "finish_reason": "stop"}]}
        u.play(upstream.sse(
            upstream.events(chunk), lambda: go.wait(gate.PATIENCE),
            upstream.events(last, done=True)))
        s = d.connect()
        r = gate.Reply(s, gate.request({**CALL, "stream": True}, close=False),
                       read=False)
        r.head()
        first = r.chunk()
        tap.ok(first and b"one" in first, "a stream is open")
        v.play(ANSWER)
        d.reload(conf(v.url, up="model new;",
                      trace="traces/new-$session.jsonl"))
        tap.eq(d.post(CALL).status, 200, "a call goes to the new upstream")
        tap.ok(b'"new"' in v.last.body, "with its model", v.last.body)
        go.set()
        rest = b""
        while True:
            c = r.chunk()
            if not c:
                break
            rest += c
        tap.ok(b"[DONE]" in rest, "the old stream ends whole", rest)
        old, new = (d.record(0, x + "-default") for x in ("old", "new"))
        tap.ok(old["request"]["model"] == "old" and old["complete"],
               "and is on file where it began", old)
        tap.eq(new["request"]["model"], "new", "the new one where it did")
        v.play(ANSWER)
        r = gate.Reply(s, gate.request(CALL, close=False))
        tap.ok(r.status == 200 and b'"new"' in v.last.body,
               "the same connection's next request has the new one")


def test_refused():
    u = upstream.Raw()
    good = conf(u.url)
    with Daemon(good) as d:
        pids = d.children()
        bad = good.replace("level text", "level nonsense")
        said = d.refused(bad)
        tap.ok(re.search(r"sallyport\.conf:\d+: .*nonsense", said),
               "a bad file is told with file and line", said)
        said = d.refused(good + "include /nowhere/at-all.conf;")
        tap.ok(re.search(r"sallyport\.conf:\d+", said),
               "an include that is not there as well", said)
        for line, name in (("resolver 127.0.0.1;", "resolver"),
                           ("connections 7;", "connections"),
                           ("pid_file /nowhere/pid;", "pid_file"),
                           ("trace_group nogroup;", "trace_group"),
                           ("recorder_buffer 2m;", "recorder_buffer"),
                           ("user nobody;", "user")):
            said = d.refused(good, main=line)
            tap.ok(f"change of {name} needs a restart" in said,
                   f"{name} is refused by name", said)
        said = d.refused(good, main="access_log /nowhere/log;")
        tap.ok("/nowhere/log" in said, "a log that cannot be opened", said)
        said = d.refused(conf(u.url, up="api_key file:/nowhere/key;"))
        tap.ok(re.search(r"sallyport\.conf:\d+: secret file:/nowhere/key",
                         said), "a secret that is not there", said)
        said = d.refused(conf("https://127.0.0.1:1",
                              up="ca /nowhere/ca.pem;"))
        tap.ok(re.search(r"sallyport\.conf:\d+: .*/nowhere/ca\.pem", said),
               "certificates that are not there", said)
        taken = socket.create_server(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        said = d.refused(conf(u.url, listen="listen 127.0.0.1:0; "
                                            f"listen 127.0.0.1:{port};"))
        tap.ok("in use" in said, "an address that is taken", said)
        taken.close()
        tap.eq(d.children(), pids, "the roles have seen none of it")
        u.play(ANSWER)
        tap.eq(d.post(CALL).status, 200, "and serve on")
        d.reload(good)
        u.play(ANSWER)
        tap.eq(d.post(CALL).status, 200, "a good one is taken after all")


def test_stop():
    """What the log says of a stop: no alarm, and no untruth."""
    u = upstream.Raw()
    with Daemon(conf(u.url)) as d:
        u.play(ANSWER)
        d.post(CALL)
        d.stop()
        tap.ok(" warn " not in d.log() and " error " not in d.log() and
               "drained: no call" in d.log(), "a clean stop is quiet", d.log())
    go = threading.Event()
    with Daemon(conf(u.url), main="drain_timeout 1ms;") as d:
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1,
                 "model": "m", "choices": [{"index": 0, "delta": {
                     "content": "one"}, "finish_reason": None}]}
        u.play(upstream.sse(upstream.events(chunk),
                            lambda: go.wait(gate.PATIENCE)))
        r = gate.Reply(d.connect(), gate.request({**CALL, "stream": True}),
                       read=False)
        r.head()
        r.chunk()
        d.stop()
        go.set()
        tap.ok("drained: no call" not in d.log() and
               "drain_timeout is over" in d.log(),
               "a cut is not called drained", d.log())


def test_listeners():
    u = upstream.Raw()
    with Daemon(conf(u.url)) as d:
        # everyone can reach it, whoever the roles are
        a, b = (os.path.join(d.tmp.name, x) for x in ("a.sock", "b.sock"))
        kept = d.port
        conn = d.connect()
        d.reload(conf(u.url, listen=f"listen 127.0.0.1:0; listen unix:{a};"))
        tap.eq(d.ask_unix(a).status, 200, "a listener is added")
        tap.eq(gate.Reply(conn, gate.request(None, "/health", close=False)
                          ).status, 200, "a connection from before goes on")
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(gate.PATIENCE)
        s.connect(a)
        tap.eq(gate.Reply(s, gate.request(None, "/health", close=False)
                          ).status, 200, "it keeps a connection")
        d.reload(conf(u.url, listen=f"listen unix:{b}; listen 127.0.0.1:0;"))
        tap.ok(not os.path.exists(a), "one that is removed is closed")
        tap.eq(d.ask_unix(b).status, 200, "another opened")
        d.port = kept
        tap.eq(d.get("/health").status, 200, "the third is the same still")
        r = gate.Reply(s, gate.request(None, "/health", close=False))
        tap.eq(r.status, 421, "a connection to no listener is sent away")
        d.reload(conf(u.url, listen=f"listen 127.0.0.1:0; listen unix:{a};"))
        tap.eq(d.ask_unix(a).status, 200, "the first one comes back")
        r = gate.Reply(s, gate.request(None, "/health", close=False))
        tap.eq(r.status, 200, "and its connection is of use again")


def test_secrets():
    u = upstream.Raw()
    with tempfile.TemporaryDirectory() as tmp:
        key = os.path.join(tmp, "key")

        def put(text):
            with open(key + ".new", "w", encoding="utf-8") as f:
                f.write(text)
            os.chmod(key + ".new", 0o600)
            os.rename(key + ".new", key)
        put("first-key-0123456789")
        text = conf(u.url, up=f"api_key file:{key};")
        with Daemon(text, env={"OTHER_KEY": "env-key-0123456789"}) as d:
            u.play(ANSWER, ANSWER, ANSWER, ANSWER)
            d.post(CALL)
            tap.eq(u.last.headers["authorization"],
                   "Bearer first-key-0123456789", "the key at the start")
            put("second-key-012345678")
            d.post(CALL)
            tap.eq(u.last.headers["authorization"],
                   "Bearer first-key-0123456789", "stays without a reload")
            d.reload()
            d.post(CALL)
            tap.eq(u.last.headers["authorization"],
                   "Bearer second-key-012345678", "a reload reads it again")
            d.reload(conf(u.url, up="api_key env:OTHER_KEY;"))
            d.reload(conf(u.url, up=f"api_key file:{key};"))
            d.reload(conf(u.url, up="api_key env:OTHER_KEY;"))
            d.post(CALL)
            tap.eq(u.last.headers["authorization"],
                   "Bearer env-key-0123456789",
                   "a variable is what it was, however often it is named")


def test_certificates():
    if shutil.which("openssl") is None:
        tap.skip("certificates", "no openssl")
        return
    u = upstream.Raw()
    with tempfile.TemporaryDirectory() as tmp:
        one, two = tls.certificate(tmp, "one"), tls.certificate(tmp, "two")
        live = [os.path.join(tmp, x) for x in ("live.pem", "live.key")]
        for src, dst in zip(one, live):
            shutil.copy(src, dst)
            os.chmod(dst, 0o600)
        text = conf(u.url, listen="listen 127.0.0.1:0 ssl; "
                    f"certificate file:{live[0]}; "
                    f"certificate_key file:{live[1]};")
        with Daemon(text) as d:
            def dial(pair, name):
                ctx = ssl.create_default_context(cafile=pair[0])
                return ctx.wrap_socket(d.connect(), server_hostname=name)
            s = dial(one, "one")
            health = gate.request(None, "/health", close=False)
            tap.eq(gate.Reply(s, health).status, 200, "TLS")
            os.chmod(live[0], 0o644)
            with open(live[1], "w", encoding="utf-8") as f:
                f.write("no key at all")
            said = d.refused(text)
            blame = re.search(r"sallyport\.conf:(\d+): certificate_key "
                              + f"file:{live[1]}: private key", said)
            with open(d.conf, encoding="utf-8") as f:
                lines = f.read().split("\n")
            tap.ok(blame and "certificate_key" in
                   lines[int(blame.group(1)) - 1],
                   "a broken key is refused, with its line and file", said)
            tap.ok("can be read by everyone" not in d.log(),
                   "a certificate that everyone can read is as usual")
            r = subprocess.run([gate.program("sallyport"), "-t", "-c", d.conf],
                               text=True, capture_output=True, check=False)
            tap.ok(r.returncode == 1 and "certificate_key file:" in r.stderr,
                   "-t finds it as well", r.stderr)
            shutil.copy(two[1], live[1])
            r = subprocess.run([gate.program("sallyport"), "-s", "reload",
                                "-c", d.conf], text=True, capture_output=True,
                               check=False)
            tap.ok(r.returncode == 1 and "does not fit" in r.stderr and
                   re.search(r"sallyport\.conf:\d+: certificate_key",
                             r.stderr),
                   "-s reload waits, and says why it was refused", r.stderr)
            plain = gate.Reply(d.connect(), health, read=False)
            plain.more()
            gate.until(lambda: "plain HTTP on a TLS port?" in d.log(),
                       "a word on plain HTTP")
            tap.ok(True, "plain HTTP at a TLS port is told of")
            for src, dst in zip(two, live):
                shutil.copy(src, dst)
            d.reload(text)
            tap.eq(gate.Reply(s, health).status, 200,
                   "a connection goes on with the old certificate")
            tap.eq(gate.Reply(dial(two, "two"), health).status, 200,
                   "a new one gets the new certificate")


def tls_server(pair):
    """Answers each call over TLS; closes after it."""
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(*pair)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                s = ctx.wrap_socket(listener.accept()[0], server_side=True)
                buf = b""
                while b"messages" not in buf:
                    buf += s.recv(65536)
                s.sendall(b"".join(ANSWER))
                s.unwrap().close()
            except OSError:
                continue
    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


def test_ca():
    """The reactor has no files: they come with the configuration."""
    if shutil.which("openssl") is None:
        tap.skip("CA files", "no openssl")
        return
    with tempfile.TemporaryDirectory() as tmp:
        one, two = tls.certificate(tmp, "one"), tls.certificate(tmp, "two")
        ports = tls_server(one), tls_server(two)
        ca = os.path.join(tmp, "ca.pem")
        shutil.copy(one[0], ca)
        os.chmod(ca, 0o600)
        text = [conf(f"https://127.0.0.1:{p}", up=f"ca {ca};") for p in ports]
        with Daemon(text[0]) as d:
            tap.eq(d.post(CALL).status, 200, "an upstream with its own CA")
            d.reload(text[1])
            tap.eq(d.post(CALL).status, 502, "another is not trusted")
            shutil.copy(two[0], ca)
            d.reload(text[1])
            tap.eq(d.post(CALL).status, 200, "until a reload reads its CA")


def test_pools():
    u = upstream.Raw()
    with Daemon(conf(u.url)) as d:
        u.play(*[ANSWER] * 4)
        d.post(CALL)
        one = d.metric("upstream_connects")
        d.reload(conf(u.url, up="model other; read_timeout 7s;"))
        d.post(CALL)
        tap.ok(one == 1 and d.metric("upstream_connects") == 1 and
               d.metric("upstream_reuses") == 1,
               "connections of an upstream that is the same are kept")
        d.reload(conf(u.url, up="keepalive 3;"))
        d.post(CALL)
        tap.eq(d.metric("upstream_connects"), 2,
               "those of another are not, and counters go on")
        gate.until(lambda: d.metric("upstream_connections_idle") == 1,
                   "the end of the old ones")
        tap.ok(True, "the old ones are closed")


def test_traces():
    u = upstream.Raw()
    with Daemon(conf(u.url)) as d, tempfile.TemporaryDirectory() as tmp:
        os.chmod(tmp, 0o755)
        u.play(ANSWER, ANSWER, ANSWER)
        d.post(CALL)
        d.reload(conf(u.url, trace="traces/sub/$session.jsonl"))
        d.post(CALL)
        tap.eq(len(d.records("sub/default")), 1,
               "a folder beneath the traces is taken")
        text = conf(u.url, trace=f"{tmp}/t/$session.jsonl")
        if CONFINED:
            said = d.refused(text)
            tap.ok(re.search(r"capture \"c\": trace directory \".*/t\" lies "
                             "outside", said) and "restart" in said,
                   "one elsewhere is refused by name, with the remedy", said)
            d.reload(conf(u.url))
        else:
            d.reload(text)
            tap.ok(True, "without walls one elsewhere is taken")
        d.post(CALL)
        tap.eq(d.metric("turns_failed"), 0, "every turn is on file")


def test_leaks():
    u = upstream.Raw()
    with tempfile.TemporaryDirectory() as tmp:
        key = os.path.join(tmp, "key")
        with open(key, "w", encoding="utf-8") as f:
            f.write("a-key-0123456789abcdef")
        os.chmod(key, 0o600)
        with Daemon(conf(u.url, up=f"api_key file:{key};")) as d:
            text = [conf(u.url, up=f"api_key file:{key}; keepalive {5 + i};",
                         listen="listen 127.0.0.1:0; "
                                f"listen unix:{d.tmp.name}/{i}.sock;",
                         trace=f"traces/{i}/$session.jsonl")
                    for i in range(2)]
            u.play(*[ANSWER] * 60)
            for i in range(4):
                d.reload(text[i % 2])
                d.post(CALL)
            pids = {"helper": d.p.pid, **d.children()}
            gate.until(lambda: d.metric("upstream_connections_idle") == 1,
                       "old connections to close")
            fds = {k: descriptors(p) for k, p in pids.items()}
            rss = {k: resident(p) for k, p in pids.items()}
            for i in range(50):
                d.reload(text[i % 2])
                d.post(CALL)
            tap.eq({"helper": d.p.pid, **d.children()}, pids,
                   "50 reloads: the same processes")

            def same():
                return d.metric("upstream_connections_idle") == 1 and all(
                    descriptors(p) <= fds[k] for k, p in pids.items())
            try:
                gate.until(same, "descriptors to close")
            except TimeoutError:
                pass
            tap.eq({k: max(descriptors(p), fds[k])
                    for k, p in pids.items()}, fds,
                   "no descriptor is left over")
            grown = {k: resident(p) - rss[k] for k, p in pids.items()}
            # a sanitizer keeps what was freed for a while
            tap.ok(max(grown.values()) < 64 * 1024, "nor memory", grown)
            tap.eq(len(d.records("0/default")) + len(d.records("1/default")),
                   54, "every call is on file")


def test_logs():
    """SIGUSR1: what was renamed is not written to any more."""
    u = upstream.Raw()
    with tempfile.TemporaryDirectory() as tmp:
        os.chmod(tmp, 0o755)
        log = os.path.join(tmp, "access.log")
        with Daemon(conf(u.url), main=f"access_log {log};") as d:
            total = 0
            for i in range(5):
                for _ in range(10):
                    d.get("/health")
                total += 10
                n = len(re.findall("logs are opened again", d.log()))
                os.rename(log, f"{log}.{i}")
                if i % 2:
                    subprocess.run([gate.program("sallyport"), "-c", d.conf,
                                    "-s", "reopen"], check=True)
                else:
                    d.p.send_signal(signal.SIGUSR1)
                d.said("logs are opened again", n + 1)

            def lines():
                out = []
                for name in os.listdir(tmp):
                    with open(os.path.join(tmp, name),
                              encoding="utf-8") as f:
                        out += f.read().splitlines()
                return out
            # the reactor hears of it a little later
            gate.until(lambda: d.get("/health") and os.path.getsize(log) > 0,
                       "a line in the new file")
            gate.until(lambda: len(lines()) > total, "access lines")
            tap.ok(all(json.loads(x)["status"] == 200 for x in lines()),
                   "every line of every file is whole")
            tap.ok(True, "the new file is written to")
            other = os.path.join(tmp, "other.log")
            d.reload(conf(u.url), main=f"access_log {other};")
            gate.until(lambda: d.get("/health") and
                       os.path.getsize(other) > 0, "the other log")
            tap.ok(True, "a reload takes another file")
            d.reload(conf(u.url), main="")
            size = os.path.getsize(other)
            for _ in range(3):
                d.get("/health")
            tap.eq(os.path.getsize(other), size, "and none")


def test_manager():
    """NOTIFY_SOCKET, WATCHDOG_USEC, -s reload."""
    u = upstream.Raw()
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "notify")
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.bind(path)
        s.settimeout(gate.PATIENCE)

        def hear(wanted):
            while True:
                got = s.recv(4096).decode()
                if got.split("\n")[0] == wanted:
                    return got
        with Daemon(conf(u.url), env={"NOTIFY_SOCKET": path,
                                      "WATCHDOG_USEC": "200000"}) as d:
            tap.ok(hear("READY=1"), "READY=1")
            tap.ok(hear("WATCHDOG=1") and hear("WATCHDOG=1"),
                   "WATCHDOG=1, again and again")
            subprocess.run([gate.program("sallyport"), "-c", d.conf, "-s",
                            "reload"], check=True)
            tap.ok(re.search(r"\nMONOTONIC_USEC=\d+$", hear("RELOADING=1")),
                   "RELOADING=1 with the time")
            tap.ok(hear("READY=1"), "READY=1 after it")
            d.write("nonsense;")
            d.p.send_signal(signal.SIGHUP)
            tap.ok(hear("RELOADING=1") and hear("READY=1"),
                   "also after one that was refused")
            d.write(conf(u.url))
            d.p.send_signal(signal.SIGTERM)
            tap.ok(hear("STOPPING=1"), "STOPPING=1")


class Activated(Daemon):
    """Started with sockets as descriptors 3 and on."""

    def __init__(self, text, sockets, **kw):
        self.sockets = sockets
        super().__init__(text, **kw)

    def start(self, argv, env=None, wait=True):
        sh = " ".join(f"{i + 3}<&{s.fileno()}"
                      for i, s in enumerate(self.sockets))
        for s in self.sockets:
            s.set_inheritable(True)
        popen = subprocess.Popen
        argv = ["/bin/bash", "-c",
                f"exec env LISTEN_PID=$$ LISTEN_FDS={len(self.sockets)} "
                f'"$@" {sh}', "bash", *argv]

        def keep(*a, **k):
            return popen(*a, close_fds=False, **k)
        subprocess.Popen = keep
        try:
            super().start(argv, env, wait)
        finally:
            subprocess.Popen = popen


def test_activation():
    u = upstream.Raw()
    s = socket.create_server(("127.0.0.1", 0))
    port = s.getsockname()[1]
    listen = f"listen 127.0.0.1:{port};"
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "s.sock")
        x = socket.socket(socket.AF_UNIX)
        x.bind(path)
        x.listen(8)
        os.chmod(tmp, 0o755)
        os.chmod(path, 0o666)
        both = conf(u.url, listen=f"{listen} listen unix:{path};")
        with Activated(both, [s, x]) as d:
            tap.eq(d.get("/health").status, 200, "a passed TCP socket serves")
            tap.eq(d.ask_unix(path).status, 200, "a passed unix socket, too")
            d.reload(conf(u.url, listen=listen))
            d.reload(both)
            tap.eq(d.ask_unix(path).status, 200,
                   "it may leave the configuration and come back")
        tap.ok(os.path.exists(path), "its path is the manager's to remove")
        d = Activated(conf(u.url), [s], wait=False)
        tap.eq(d.p.wait(gate.PATIENCE), 1, "one that nobody asked for")
        tap.ok(f"127.0.0.1:{port}" in d.log() and "listen" in d.log(),
               "is an error by name", d.log())
        d.tmp.cleanup()
    s.close()


def test_pid1():
    """As the first process of a container."""
    if not IS_ROOT or subprocess.run(
            ["unshare", "-pf", "--mount-proc", "true"],
            capture_output=True, check=False).returncode != 0:
        tap.skip("pid 1", "not root, or no namespaces")
        return
    u = upstream.Raw()
    with Daemon(conf(u.url), wait=False) as d:
        d.stop(signal.SIGKILL)
        os.truncate(d.log_path, 0)
        d.start(["unshare", "-pf", "--kill-child", "--mount-proc",
                 gate.program("sallyport"), "-c", d.conf])
        first = gate.until(lambda: list(d.children().values()), "pid 1")[0]
        u.play(ANSWER, ANSWER)
        tap.eq(d.post(CALL).status, 200, "serves as pid 1")
        # an orphan of somebody else's: it must not stay a zombie
        subprocess.run(["nsenter", "-p", "-m", "-t", str(first), "bash", "-c",
                        "(sleep 0.01 &) ; exit 0"], check=True)

        def kids():
            out = []
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                        rest = f.read().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                if int(rest[1]) == first:
                    out.append(rest[0])
            return out
        gate.until(lambda: len(kids()) == 2, "the orphan to be reaped")
        tap.ok("Z" not in kids(), "reaps what is not its own")
        n = len(re.findall("is reloaded", d.log()))
        os.kill(first, signal.SIGHUP)
        d.said("is reloaded", n + 1)
        tap.ok(True, "SIGHUP reaches it")
        os.kill(first, signal.SIGTERM)
        tap.eq(d.p.wait(gate.PATIENCE), 0, "and SIGTERM: it ends with 0")


def test_death():
    """A role that dies is started with the configuration of today."""
    u, v = upstream.Raw(), upstream.Raw()
    with Daemon(conf(u.url)) as d:
        d.reload(conf(v.url))
        for role in ("sallyport-recorder", "sallyport-reactor"):
            n = len(re.findall("serves again", d.log()))
            os.kill(d.children()[role], signal.SIGKILL)
            d.said("serves again", n + 1)
            v.play(ANSWER)
            gate.until(lambda: d.get("/health").status == 200, "health")
            tap.eq(d.post(CALL).status, 200,
                   f"a new {role} has the new configuration")
        n = len(re.findall("is reloaded", d.log()))
        os.kill(d.children()["sallyport-recorder"], signal.SIGKILL)
        d.p.send_signal(signal.SIGHUP)
        gate.until(lambda: "is reloaded" in d.log()[-4000:] and
                   len(re.findall("is reloaded", d.log())) > n or
                   "nothing has changed" in d.log(), "an outcome")
        v.play(ANSWER)
        gate.until(lambda: d.get("/health").status == 200, "health")
        tap.eq(d.post(CALL).status, 200, "a reload while one is down")


for test in (test_under_load, test_old_stream, test_refused, test_stop,
             test_listeners,
             test_secrets, test_certificates, test_ca, test_pools, test_traces,
             test_leaks, test_logs, test_manager, test_activation, test_pid1,
             test_death):
    if len(sys.argv) < 2 or test.__name__ in sys.argv[1:]:
        test()
tap.done()

#!/usr/bin/python3
"""sallyport-recorder, spoken to as the helper and the reactor speak to it."""
import fcntl
import hashlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "lib"))
from tap import done, eq, ok  # noqa: E402

BUILD = os.environ.get("SP_BUILDDIR", ".")
BIN = os.path.join(BUILD, "sallyport-recorder")
CTL = os.path.join(BUILD, "sallyportctl")
VERIFY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                      "contrib", "python", "verify_trace.py")
if not os.access(BIN, os.X_OK):
    sys.exit(f"{BIN} is not there: make sallyport-recorder, and name its "
             "folder in SP_BUILDDIR")
TMP = tempfile.TemporaryDirectory()

CONF, SECRET, LISTENER, LOG, PEER, TRACE_DIR, KEY_DIR, START = range(1, 9)
STOP = 11
READY, FAILED_START = 32, 33
TURN_OPEN, TURN_DATA, TURN_END, TURN_DELIVERED = range(64, 68)
PACK = 74
REC_STATE, TURN_CREDIT, TURN_DONE = range(96, 99)
(SESSION, REPLAY_DONE, SESSION_REPLY, TRACE_FILE, SESSION_PAST,
 SESSION_OVER) = range(99, 105)
CREATE, FINISH, GET, LIST = range(68, 72)
REQUEST, EVENT, ERROR, BODY = 1, 2, 3, 4
END, STATUS, UPSTREAM, CLIENT_GONE, SHUTDOWN, LOST = range(1, 7)
OK, FULL = 1, 2
REFUSED = 4
STREAM, PASS, DONE_SEEN = 1, 16, 32


def strict(line):
    def refuse(word):
        raise ValueError(f"{word} is not JSON")
    return json.loads(line, parse_constant=refuse)


def lines_of(path):
    """The records as a careless reader sees them: splitlines()."""
    with open(path, encoding="utf-8") as f:
        return [strict(line) for line in f.read().splitlines()]


def put_bytes(data):
    return struct.pack("<I", len(data)) + data


class Channel:
    def __init__(self, sock):
        self.sock = sock
        self.sent = 0

    def send(self, kind, body=b"", fd=None):
        head = struct.pack("<HHI", kind, 1, self.sent)
        self.sent += 1
        if fd is None:
            self.sock.send(head + body)
        else:
            socket.send_fds(self.sock, [head + body], [fd])

    def recv(self, timeout=20):
        """(type, body), or None at the end."""
        if not select.select([self.sock], [], [], timeout)[0]:
            raise TimeoutError("the recorder said nothing")
        try:
            data = self.sock.recv(200000)
        except ConnectionResetError:
            return None
        if not data:
            return None
        return struct.unpack("<H", data[:2])[0], data[8:]


def pair():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for s in (a, b):
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    return a, b


class Recorder:
    """One run of the program; `home` outlives it."""

    def __init__(self, home, capture="", fsize=None, keys="keys"):
        self.home = home
        self.traces = os.path.join(home, "traces")
        keys = os.path.join(home, keys)
        for d in (home, self.traces, keys):
            os.makedirs(d, mode=0o700, exist_ok=True)
        mine, theirs = pair()
        fd = theirs.fileno()

        def before_exec():
            os.dup2(fd, 3)
            if fsize is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (fsize, fsize))

        self.log = open(os.path.join(home, "log"), "ab")
        self.proc = subprocess.Popen(
            [BIN], preexec_fn=before_exec, pass_fds=(3,), stderr=self.log,
            restore_signals=False)
        theirs.close()
        self.helper = Channel(mine)
        self.helper.send(CONF, struct.pack("<I", 1), self.conf(capture))
        for kind, path in ((TRACE_DIR, self.traces), (KEY_DIR, keys)):
            d = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            self.helper.send(kind, struct.pack("<I", 0)
                             if kind == TRACE_DIR else b"", d)
            os.close(d)
        self.attach()
        self.helper.send(START, struct.pack("<IIII", 0, 0, 0, 0))
        self.first = self.helper.recv()
        self.state = self.until_state()
        self.credit = {}
        self.done = []

    def conf(self, capture):
        text = f"""
            state_dir {self.home};
            upstream u {{ server http://127.0.0.1:1/v1; }}
            capture c {{ level tokens; trace traces/$session.jsonl;
                {capture} }}
            server {{ listen 127.0.0.1:0; location /v1 {{ llm_intercept;
                upstream u; capture c; }} }}
        """.encode()
        text = (b"sallyport-conf 1\n" b"F 4 1\ntest/\n" + b"T 1 %d\n" % len(text) + text +
                b"\nE\n")
        fd = os.memfd_create("conf", os.MFD_ALLOW_SEALING)
        os.write(fd, text)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL |
                    fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW |
                    fcntl.F_SEAL_WRITE)
        return fd

    def attach(self):
        mine, theirs = pair()
        self.helper.send(PEER, b"", theirs.fileno())
        theirs.close()
        self.reactor = Channel(mine)

    def open(self, handle, session="default", meta=b"", flags=STREAM,
             capture=b"c", generation=1, episode=b""):
        self.reactor.send(TURN_OPEN, struct.pack("<II", handle, generation) +
                          put_bytes(capture) + put_bytes(session.encode()) +
                          struct.pack("<QI", 1764000000123456, flags) +
                          put_bytes(meta) + put_bytes(episode))

    @staticmethod
    def entry(handle, kind, data, more=0):
        return struct.pack("<IBB", handle, kind, more) + put_bytes(data)

    def data(self, handle, kind, data, more=0):
        self.reactor.send(TURN_DATA, self.entry(handle, kind, data, more))

    def end(self, handle, outcome=END, status=200, flags=0, error=b"",
            meta=b""):
        self.reactor.send(TURN_END, struct.pack(
            "<IBHIQQ", handle, outcome, status, flags, 1500000, 20000) +
            put_bytes(error) + put_bytes(meta))

    def delivered(self, handle, got=1):
        self.reactor.send(TURN_DELIVERED, struct.pack("<IB", handle, got))

    def wait_done(self):
        """The next (handle, result, turn, tokens, finish)."""
        while not self.done:
            kind, body = self.reactor.recv()
            if kind == TURN_CREDIT:
                for i in range(0, len(body), 8):
                    h, n = struct.unpack_from("<II", body, i)
                    self.credit[h] = self.credit.get(h, 0) + n
            elif kind == TURN_DONE:
                self.take_done(body)
            elif kind == REC_STATE:
                self.state = kind, body
        return self.done.pop(0)

    def take_done(self, body):
        i = 0
        while i < len(body):
            h, result, turn, tokens, _, n = struct.unpack_from(
                "<IBQIIB", body, i)
            i += 22
            self.done.append((h, result, turn, tokens,
                              body[i:i + n].decode()))
            i += n

    def until_state(self):
        """The first REC_STATE; what sessions there are comes before it."""
        self.sessions = []
        while True:
            got = self.reactor.recv()
            if got is None or got[0] == REC_STATE:
                return got
            self.sessions.append(got)

    def wait_state(self):
        while True:
            kind, body = self.reactor.recv()
            if kind == REC_STATE:
                return body[0]
            if kind == TURN_DONE:
                self.take_done(body)

    def turn(self, handle, text="hello", session="default", **kw):
        self.open(handle, session)
        self.data(handle, REQUEST, REQ)
        for e in events(text):
            self.data(handle, EVENT, e)
        self.end(handle, flags=DONE_SEEN, **kw)
        done = self.wait_done()
        # refused at once, or by the time that it ended
        return self.wait_done() if done[1] == REFUSED else done

    def stop(self):
        self.helper.send(STOP)
        rc = self.proc.wait(30)
        self.log.close()
        return rc

    def kill(self):
        self.proc.kill()
        self.proc.wait()

    def file(self, name="default.jsonl"):
        return os.path.join(self.traces, name)


REQ = (b'{"model":"m","temperature":0.6,"seed":9007199254740993,"messages":'
       b'[{"role":"system","content":"s"},{"role":"user","content":"q"}],'
       b'"tools":[{"type":"function"}]}')


def events(text):
    out = [json.dumps({
        "id": "c1", "created": 5, "model": "m", "prompt_token_ids": [1, 2],
        "choices": [{"index": 0, "delta": {"role": "assistant",
                                           "content": ""}}]}).encode()]
    for i, ch in enumerate(text):
        out.append(json.dumps({"id": "c1", "choices": [{
            "index": 0, "delta": {"content": ch}, "token_ids": [100 + i],
            "logprobs": {"content": [{"token": ch, "logprob": -0.5,
                                      "top_logprobs": []}]}}]}).encode())
    out.append(b'{"id":"c1","choices":[{"index":0,"delta":{},'
               b'"finish_reason":"stop"}],"usage":{"completion_tokens":%d}}'
               % len(text))
    return out


def check_chain(path, prev="0" * 64):
    """Twenty lines that verify a trace; the last hash, or None."""
    with open(path, "rb") as f:
        for line in f.read().split(b"\n")[:-1]:
            body, end = line[:-75], line[-75:]
            digest = hashlib.sha256(body).hexdigest()
            if end != b',"hash":"%s"}' % digest.encode():
                return None
            if strict(line)["prev"] != prev:
                return None
            prev = digest
    return prev


def home(name):
    return os.path.join(TMP.name, name)


def test_turn():
    r = Recorder(home("turn"))
    eq(r.first, (READY, b""), "ready")
    eq(r.state[0:1] + (r.state[1][0],), (REC_STATE, 1), "accepting")
    r.open(7, meta=b'{"path":"/v1/chat/completions"}', episode=b"ep-1")
    # the request in three pieces, events several in one message, one cut
    r.data(7, REQUEST, REQ[:10], 1)
    r.data(7, REQUEST, REQ[10:50], 1)
    r.data(7, REQUEST, REQ[50:])
    ev = events("hello")
    r.reactor.send(TURN_DATA, b"".join(r.entry(7, EVENT, e) for e in ev[:3]))
    r.data(7, EVENT, ev[3][:20], 1)
    r.data(7, EVENT, ev[3][20:])
    r.reactor.send(TURN_DATA, b"".join(r.entry(7, EVENT, e) for e in ev[4:]))
    sent = len(REQ) + sum(len(e) for e in ev)
    r.end(7, flags=DONE_SEEN, meta=b'{"client":"x"}')
    eq(r.wait_done(), (7, OK, 1, 5, "stop"), "the turn is acknowledged")
    ok(r.credit.get(7, 0) <= sent, "no more credit than was sent")
    r.delivered(7)
    rec = lines_of(r.file())[0]
    eq(list(rec)[:5], ["turn", "session", "episode", "request", "response"],
       "order of the members")
    eq(rec["episode"], "ep-1", "the episode")
    eq(rec["response"]["choices"][0]["message"]["content"], "hello",
       "the content")
    eq(rec["completion_token_ids"], [100, 101, 102, 103, 104], "the ids")
    eq(rec["per_token_logps"], [-0.5] * 5, "the log-probabilities")
    eq(rec["prompt_token_ids"], [1, 2], "the prompt's ids")
    ok(rec["aligned"] and rec["complete"] and not rec["aborted"],
       "aligned, complete, not aborted", rec)
    eq((rec["latency_s"], rec["ttft_s"], rec["timestamp"],
        rec["upstream_status"]), (1.5, 0.02, 1764000000.123456, 200),
       "the times")
    eq(rec["findings"], [], "no findings")
    m = rec["metadata"]
    eq((m["node_id"], m["client"], m["path"], m["n_messages"],
        m["has_tools"], m["sent_model"]),
       ("default/1", "x", "/v1/chat/completions", 2, True, "m"), "metadata")
    eq(m["body_sha256"], hashlib.sha256(REQ).hexdigest(), "the body's digest")
    ok(b'"seed":9007199254740993' in open(r.file(), "rb").read(),
       "numbers of the request stay as they were")
    eq(os.stat(r.file()).st_mode & 0o777, 0o600, "mode 0600")
    eq(os.stat(os.path.join(r.home, "keys", "recorder.key")).st_mode & 0o777,
       0o600, "the key's mode 0600")
    # two at once: numbers by arrival, lines by completion
    r.open(1)
    r.open(2)
    r.data(2, BODY, b'{"choices":[{"index":0,"message":{"content":"b"},'
           b'"finish_reason":"stop"}]}')
    r.end(2)
    eq(r.wait_done()[:3], (2, OK, 3), "the later one ends first")
    r.end(1, outcome=CLIENT_GONE, status=0)
    eq(r.wait_done()[:3], (1, OK, 2), "the earlier one ends later")
    recs = lines_of(r.file())
    eq([x["turn"] for x in recs], [1, 3, 2], "order of completion")
    ok(recs[2]["aborted"] and not recs[2]["complete"], "an aborted turn")
    ok(check_chain(r.file()) is not None, "the chain holds")
    r.delivered(2, 0)
    eq(r.stop(), 0, "a clean stop")
    seal = strict(open(r.file("default.seal")).read())
    eq((seal["turns"], seal["reason"]), (3, "shutdown"), "sealed")
    eq(seal["undelivered"], [2, 3],
       "turns whose end is not known to have arrived")
    eq((seal["file"], seal["bytes"]),
       ("default.jsonl", os.path.getsize(r.file())), "of the file")
    eq((seal["first_hash"], seal["first_prev"]),
       (recs[0]["hash"], "0" * 64), "the chain's beginning")
    eq(seal["last_hash"], check_chain(r.file()), "the chain's head")
    return r


def test_restart(old):
    with open(old.file(), "ab") as f:
        f.write(b'{"turn":4,"torn')
    r = Recorder(old.home)
    eq(r.turn(1)[:3], (1, OK, 4), "turn numbers go on after a restart")
    ok(check_chain(r.file()) is not None,
       "so does the chain; the torn line is gone")
    eq(open(r.file("default.jsonl.torn")).read(), '{"turn":4,"torn\n',
       "the torn line was set aside")
    r.kill()
    r = Recorder(old.home)
    eq(r.turn(1)[:3], (1, OK, 5), "and after a crash")
    eq(r.stop(), 0, "stop")
    seal = strict(open(r.file("default.seal")).read())
    eq((seal["turns"], len(seal["earlier"])), (5, 1),
       "the new seal tells of the one before")
    with open(r.file(), "r+b") as f:
        f.seek(-20, 2)
        f.write(b"0000")
    r = Recorder(old.home)
    eq(r.turn(1)[1], OK, "a changed last line does not stop the recorder")
    eq(check_chain(r.file()), None, "and shows")
    r.stop()


def test_shutdown():
    r = Recorder(home("shutdown"))
    r.open(1)
    r.data(1, REQUEST, REQ)
    for e in events("abc")[:3]:
        r.data(1, EVENT, e)
    # answered only when all before it was read
    r.open(2)
    r.end(2, outcome=UPSTREAM, status=0,
          error=b'{"error":{"type":"upstream_disconnect"}}')
    r.wait_done()
    r.open(3)
    r.end(3, outcome=UPSTREAM, status=0, error=b"plain")
    r.wait_done()
    eq(r.stop(), 0, "a stop with an open turn")
    recs = lines_of(r.file())
    last = recs[-1]
    eq((last["complete"], last["aborted"], last["findings"]),
       (False, True, ["shutdown"]), "is recorded as cut off")
    eq(last["response"]["choices"][0]["message"]["content"], "ab",
       "with what there was")
    eq((recs[0]["response"], recs[0]["upstream_error"]),
       (None, {"type": "upstream_disconnect"}), "an upstream that broke")
    eq(recs[1]["upstream_error"], "plain", "an error in plain words")


def test_reactor_gone():
    r = Recorder(home("gone"))
    r.open(1)
    r.data(1, REQUEST, REQ)
    r.data(1, EVENT, events("x")[1])
    r.reactor.sock.close()
    r.attach()
    eq(r.wait_state(), 1, "the next reactor is told the state")
    eq(lines_of(r.file())[0]["findings"], ["gateway_lost"],
       "the turn of a reactor that died is written as lost")
    eq(r.turn(1)[:3], (1, OK, 2), "its handles are free")
    r.attach()
    eq(r.wait_state(), 1, "a reactor is replaced by another")
    eq(r.turn(1)[1], OK, "which is served")
    r.stop()


def test_hostile():
    r = Recorder(home("hostile"))
    bad = {
        "unknown handle": lambda: r.data(99, EVENT, b"{}"),
        "end of an unknown turn": lambda: r.end(99),
        "a handle that is open": lambda: (r.open(1), r.open(1)),
        "no such capture": lambda: r.open(1, capture=b"nope"),
        "a session with a slash": lambda: r.open(1, session="a/b"),
        "a session with a leading dot": lambda: r.open(1, session=".a"),
        "an empty session": lambda: r.open(1, session=""),
        "a long session": lambda: r.open(1, session="a" * 129),
        "meta that is no object": lambda: r.open(1, meta=b"[1]"),
        "meta that is no JSON": lambda: r.open(1, meta=b'{"a":NaN}'),
        "an unknown kind": lambda: (r.open(1), r.data(1, 9, b"{}")),
        "kinds mixed": lambda: (r.open(1), r.data(1, EVENT, b"{", 1),
                                r.data(1, BODY, b"}")),
        "an unknown outcome": lambda: (r.open(1), r.end(1, outcome=9)),
        "delivery of an open turn": lambda: (r.open(1), r.delivered(1)),
        "a cut entry": lambda: (r.open(1), r.reactor.send(
            TURN_DATA, r.entry(1, EVENT, b"{}") + b"\1\0\0\0\2\0\xff\0\0\0")),
        "a message that is not its own": lambda: r.reactor.send(REC_STATE,
                                                                b"\1" * 5),
    }
    for name, act in bad.items():
        r.attach()
        r.wait_state()
        act()
        end = r.reactor.recv()
        while end is not None:
            end = r.reactor.recv()
        ok(True, f"hostile: {name}: the channel is closed")
    r.attach()
    r.wait_state()
    eq(r.turn(1)[1], OK, "and the recorder goes on")
    ok(check_chain(r.file()) is not None, "with a good chain")
    eq(r.stop(), 0, "hostile: stop")


def test_values():
    r = Recorder(home("values"))
    r.open(1)
    r.data(1, REQUEST, b'{"messages":[{"content":"cut \\ud83d here"}]}')
    r.data(1, EVENT, '{"choices":[{"index":0,"delta":{"content":'
           '"a\u2028b\u0085c\\u0000"},"logprobs":{"content":[{"token":"t",'
           '"logprob":NaN}]},"finish_reason":"stop"}]}'.encode())
    r.end(1)
    eq(r.wait_done()[1], OK, "odd values are recorded")
    rec = lines_of(r.file())[0]
    eq(rec["response"]["choices"][0]["message"]["content"],
       "a\u2028b\u0085c\0", "line separators and NUL survive")
    ok("lone_surrogate" in rec["findings"] and
       "nonfinite_logprobs" in rec["findings"], "and are told", rec)
    eq(rec["request"]["messages"][0]["content"], "cut \ufffd here",
       "a lone surrogate becomes U+FFFD")
    r.stop()


def test_bound():
    r = Recorder(home("bound"), "turn_max 16k;")
    eq(r.turn(1, "y" * 400)[:2], (1, OK), "a turn over its bound")
    rec = lines_of(r.file())[0]
    ok("truncated" in rec["findings"] and not rec["aligned"],
       "is recorded as truncated", rec["findings"])
    eq(rec["finish_reason"], "stop", "with its finish_reason")
    r.open(2)
    r.data(2, REQUEST, b'{"messages":"%s"}' % (b"z" * 60000))
    for e in events("ok"):
        r.data(2, EVENT, e)
    r.end(2)
    r.wait_done()
    rec = lines_of(r.file())[1]
    eq((rec["request"], rec["completion_token_ids"]), (None, [100, 101]),
       "a request over it costs the request alone")
    r.stop()


def test_roll():
    r = Recorder(home("roll"), "trace_roll 8k; trace_sync on;")
    for i in range(1, 13):
        if r.turn(i)[:3] != (i, OK, i):
            ok(False, "turn")
        r.delivered(i, 0 if i == 3 else 1)
    r.stop()
    names = sorted(os.listdir(r.traces))
    rolls = [n for n in names if n.startswith("default.jsonl.") and
             not n.endswith(".seal")]
    ok(len(rolls) >= 2, "default rolls by size", names)
    prev = "0" * 64
    undelivered = []
    for n in range(1, len(rolls) + 1):
        path = r.file(f"default.jsonl.{n}")
        seal = strict(open(path + ".seal").read())
        undelivered += seal["undelivered"]
        eq((seal["first_prev"], seal["reason"]), (prev, "roll"),
           f"roll {n} names the one before")
        prev = check_chain(path, prev)
        eq(seal["last_hash"], prev, f"roll {n} holds")
    ok(check_chain(r.file(), prev) is not None,
       "the new file goes on where the last roll ended")
    eq(undelivered, [3], "the undelivered turn is named")
    # an empty file after a roll
    last = len(rolls) + 1
    os.rename(r.file(), r.file(f"default.jsonl.{last}"))
    prev = check_chain(r.file(f"default.jsonl.{last}"), prev)
    r = Recorder(r.home, "trace_roll 8k;")
    eq(r.turn(1)[2], 13, "turn numbers go on over a missing file")
    ok(check_chain(r.file(), prev) is not None, "and so does the chain")
    r.stop()
    return r


def test_keep(r):
    old = r.file("default.jsonl.1")
    os.utime(old, (1, 1))
    # what a minute brings is done at once while room is looked for
    r = Recorder(r.home, "trace_keep 1d 1g;", fsize=1500)
    eq(r.turn(1, session="small")[1], FULL, "no room")
    for _ in range(200):
        if not os.path.exists(old + ".seal"):
            break
        select.select([], [], [], 0.1)
    ok(not os.path.exists(old), "trace_keep removes by age")
    ok(not os.path.exists(old + ".seal"), "with its seal")
    ok(os.path.exists(r.file("default.jsonl.2")), "and nothing younger")
    r.stop()


def test_full():
    r = Recorder(home("full"), fsize=6000)
    results = []
    for i in range(1, 9):
        results.append(r.turn(i, session="s1")[1])
        if results[-1] != OK:
            break
    eq(results[-1], FULL, "a full disk is told")
    ok(OK in results, "after what fitted", results)
    size = os.path.getsize(r.file("s1.jsonl"))
    ok(size <= 6000 and check_chain(r.file("s1.jsonl")) is not None,
       "no torn line stays")
    eq((r.state[1][0] if r.state else 1) and r.wait_state(), 0,
       "no calls are accepted")
    eq(r.wait_state(), 1, "until there is room")
    eq(r.turn(20, session="s2")[1], OK, "and then they are")
    eq(r.stop(), 0, "full: stop")
    ok(f"in {r.traces}: no space left" in open(r.home + "/log").read(), "told")


def end_together(r, handles):
    """Their ends come at once: one write holds all of their records."""
    for h in handles:
        r.open(h)
        r.data(h, REQUEST, REQ)
        for e in events("hello"):
            r.data(h, EVENT, e)
    r.reactor.send(PACK, b"".join(
        struct.pack("<HHII", TURN_END, 1, 0, len(body)) + body for body in (
            struct.pack("<IBHIQQ", h, END, 200, DONE_SEEN, 1500000, 20000) +
            put_bytes(b"") + put_bytes(b"") for h in handles)))
    return [r.wait_done() for h in handles]


def test_together():
    r = Recorder(home("together"))
    done = end_together(r, range(1, 40))
    eq([d[:3] for d in done], [(h, OK, h) for h in range(1, 40)],
       "turns that end together")
    ok(check_chain(r.file()) is not None, "are chained")
    eq([x["turn"] for x in lines_of(r.file())], list(range(1, 40)),
       "and all there")
    eq(r.stop(), 0, "together: stop")
    eq(strict(open(r.file("default.seal")).read())["turns"], 39,
       "and sealed")
    r = Recorder(home("together2"), fsize=6000)
    eq(r.turn(1)[1], OK, "one fits")
    size = os.path.getsize(r.file())
    eq([d[:2] for d in end_together(r, range(2, 8))],
       [(h, FULL) for h in range(2, 8)], "those that end together do not")
    eq(os.path.getsize(r.file()), size, "none of them is there")
    ok(check_chain(r.file()) is not None, "nor a torn line")
    if r.state[1][0] == 1:
        eq(r.wait_state(), 0, "no calls are accepted")
    eq(r.wait_state(), 1, "until there is room")
    eq(r.turn(9)[1], OK, "then one is")
    ok(check_chain(r.file()) is not None, "in the chain")
    r.stop()


def test_pass():
    r = Recorder(home("pass"))
    r.open(1, flags=PASS, meta=b'{"path":"/v1/responses"}')
    r.end(1)
    r.wait_done()
    rec = lines_of(r.file())[0]
    eq((rec["findings"], rec["response"], rec["complete"]),
       (["not_captured"], None, True), "a path that is not captured")
    r.open(2)
    r.data(2, BODY, b'{"error":{"message":"slow down"}}')
    r.end(2, outcome=STATUS, status=429)
    r.wait_done()
    rec = lines_of(r.file())[1]
    eq((rec["response"], rec["upstream_status"],
        rec["upstream_error"]["message"]), (None, 429, "slow down"),
       "an error status")
    r.stop()


def test_repeated():
    """A client that asks again is faster than word of what it did not get."""
    again = b'{"client":{"x_stainless_retry_count":"1"}}'
    for how in ("unknown", "known", "answered"):
        r = Recorder(home(f"repeated-{how}"))
        r.open(1)
        r.data(1, REQUEST, REQ)
        if how == "answered":
            r.end(1, flags=DONE_SEEN)
        else:
            r.end(1, outcome=UPSTREAM, status=0, error=b"reset")
        r.open(2, meta=again)
        r.data(2, REQUEST, REQ)
        if how == "known":
            r.wait_done()
            r.delivered(1, 0)
        r.end(2, flags=DONE_SEEN)
        if how != "known":
            r.wait_done()
        r.wait_done()
        eq([x["metadata"].get("retry_of") for x in lines_of(r.file())],
           [None, None if how == "answered" else 1],
           f"a turn is repeated, its delivery {how}")
        if how != "known":
            r.delivered(1, int(how == "answered"))
        r.delivered(2, 1)
        eq(r.stop(), 0, "repeated: stop")


def test_locked():
    r = Recorder(home("locked"))
    r.turn(1)
    s = Recorder(home("locked"))
    eq(s.first[0], FAILED_START, "one recorder has a registry at a time")
    s = Recorder(home("locked"), keys="keys2")
    s.open(1)
    eq(s.wait_done()[:3], (1, REFUSED, 0),
       "a file that another process has is not touched: told at once")
    s.data(1, REQUEST, REQ)
    s.end(1)
    eq(s.wait_done()[:3], (1, 3, 0), "and at the end once more")
    s.delivered(1, 0)
    s.stop()
    eq(r.turn(2)[:3], (2, OK, 2), "and the owner goes on")
    r.stop()


def session(sid, key=b"k", calls=0, metadata=b"", capture=b"c"):
    texts = [sid, capture, b"", b"", b"", b"", metadata]
    return (put_bytes(hashlib.sha256(key).digest()) +
            b"".join(put_bytes(t) for t in texts) +
            struct.pack("<QQQQQQ", calls, 0, 0, 0, 0, 0))


def ask(r, kind, rest, seq=1):
    """(result, JSON) of a question about sessions; turns may end meanwhile."""
    r.over = []
    r.reactor.send(kind, struct.pack("<I", seq) + rest)
    while True:
        kind, body = r.reactor.recv()
        if kind == TURN_DONE:
            r.take_done(body)
        if kind == SESSION_OVER:
            r.over.append(body)
        if kind == SESSION_REPLY:
            n, result, _ = struct.unpack_from("<IBI", body)
            ok(n == seq, "the answer to that question")
            return result, json.loads(body[9:]) if body[9:] else None


def test_sessions():
    r = Recorder(home("sessions"))
    eq([k for k, _ in r.sessions], [REPLAY_DONE], "no session at first")
    got = ask(r, CREATE, session(b"a", calls=2, metadata=b'{"x": [1]}'))
    eq((got[0], got[1]["metadata"], got[1]["max_model_calls"]),
       (OK, {"x": [1]}, 2), "a session is made")
    eq(ask(r, CREATE, session(b"a"))[0], 2, "once")
    eq(ask(r, CREATE, session(b"default"))[0], 4, "default is none")
    ask(r, CREATE, session(b"b", b"l"))
    eq(r.turn(1, session="a")[1], OK, "a turn of it")
    r.proc.send_signal(signal.SIGKILL)
    r.proc.wait()
    r = Recorder(home("sessions"))
    eq([k for k, _ in r.sessions], [SESSION, SESSION, REPLAY_DONE],
       "sessions outlive a kill")
    calls, tokens = struct.unpack("<QQ", r.sessions[0][1][-16:])
    eq((calls, tokens > 0), (1, True), "with what they used")
    r.open(5, "a")
    r.data(5, REQUEST, REQ)
    r.end(5, outcome=LOST)
    r.wait_done()
    eq(ask(r, GET, put_bytes(b"a"))[1]["model_calls"], 1,
       "a turn that was lost is not counted twice")
    r.delivered(5, 0)
    got = ask(r, FINISH, put_bytes(b"a") + put_bytes(b""))
    eq(r.over, [put_bytes(b"a")], "the reactor hears of an end at once")
    eq((got[0], got[1]["state"]), (OK, "ended"), "an end")
    with open(r.file("a.seal")) as f:
        seal = json.load(f)
    eq((seal["reason"], seal["undelivered"]), ("end", [2]),
       "is in the seal, with what was not delivered")
    eq(ask(r, GET, put_bytes(b"nobody"))[0], 3, "nobody")
    page = ask(r, LIST, put_bytes(b"") + struct.pack("<I", 1))[1]
    eq((page["sessions"][0]["session_id"], page["next"], page["total"]),
       ("a", "a", 2), "a page")
    bad = {
        "a session with a slash": (CREATE, session(b"a/b")),
        "a session cut short": (CREATE, session(b"c")[:-1]),
        "metadata that is no object": (CREATE, session(b"c", metadata=b"1")),
        "a limit of nothing": (LIST, put_bytes(b"") + b"\0" * 4),
        "a body with more": (GET, put_bytes(b"a") + b"x"),
    }
    for name, (kind, rest) in bad.items():
        r.attach()
        r.wait_state()
        r.reactor.send(kind, b"\1\0\0\0" + rest)
        end = r.reactor.recv()
        while end is not None:
            end = r.reactor.recv()
        ok(True, f"hostile: {name}: the channel is closed")
    r.attach()
    r.until_state()
    eq([k for k, _ in r.sessions], [SESSION_PAST, SESSION, REPLAY_DONE],
       "another reactor is told of all of them")
    eq(r.sessions[0][1], hashlib.sha256(b"k").digest(),
       "of one that ended by its key alone")
    eq(r.stop(), 0, "sessions: stop")


def content(path):
    return [x["response"]["choices"][0]["message"]["content"]
            for x in lines_of(path)]


def test_disturbed():
    """Others remove, rename, replace and write to a file that is in use."""
    r = Recorder(home("disturbed"))
    path = r.file()
    r.turn(1, "one")
    head = lines_of(path)[-1]["hash"]
    os.unlink(path)
    eq(r.turn(2, "two")[:3], (2, OK, 2), "the file was removed: it goes on")
    eq(content(path), ["two"], "in a new file")
    eq(lines_of(path)[0]["prev"], head, "whose chain goes on")
    head = check_chain(path, head)
    os.rename(path, path + ".moved")
    eq(r.turn(3, "three")[:3], (3, OK, 3), "the file was renamed: it goes on")
    eq((content(path), content(path + ".moved")), (["three"], ["two"]),
       "in a new file, the other stays as it was")
    ok(check_chain(path, head) is not None, "whose chain goes on")
    other = b'{"a":1}\n{"torn'
    with open(path + ".new", "wb") as f:
        f.write(other)
    os.rename(path + ".new", path)
    eq(r.turn(4, "four")[:3], (4, OK, 4), "the file was replaced: it goes on")
    with open(path, "rb") as f:
        got = f.read()
    ok(got.startswith(b'{"a":1}\n{"turn":4,'), "behind its last whole line",
       got[:100])
    with open(r.file("default.jsonl.torn"), "rb") as f:
        eq(f.read(), b'{"torn\n', "what was torn is set aside")
    with open(path, "ab") as f:
        f.write(b"half a li")
    eq(r.turn(5, "five")[:3], (5, OK, 5), "written to by another: it goes on")
    with open(path, "rb") as f:
        got = f.read().split(b"\n")
    eq((len(got), strict(got[2])["prev"]), (4, strict(got[1])["hash"]),
       "and nothing is glued on to that")
    r.open(6)
    r.open(7)
    os.rename(path, path + ".again")
    for h in (6, 7):
        r.end(h, flags=DONE_SEEN)
    for _ in range(2):
        r.wait_done()
    eq([x["turn"] for x in lines_of(path)], [6, 7], "two that end together")
    ok(check_chain(path, lines_of(path)[0]["prev"]) is not None,
       "and hang together")
    os.rename(path, path + ".last")
    eq(r.stop(), 0, "a stop")
    ok(not os.path.exists(path) and
       not os.path.exists(r.file("default.seal")),
       "no seal is written of what is not there", os.listdir(r.traces))
    with open(os.path.join(r.home, "log"), encoding="utf-8") as f:
        log = f.read()
    for text in ("was removed or renamed while", "was replaced while",
                 "was written to by another while", "there is no seal of"):
        ok(text in log, f"the log says: {text}", log)


def test_other_seal():
    """A seal of the file that had the name before is kept."""
    r = Recorder(home("otherseal"))
    r.turn(1, "one")
    r.stop()
    with open(r.file("default.seal"), "rb") as f:
        seal = f.read()
    os.rename(r.file(), r.file("default.jsonl.old"))
    r = Recorder(r.home)
    r.turn(1, "two")
    r.stop()
    first = lines_of(r.file("default.jsonl.old"))[0]["hash"]
    kept = r.file(f"default.of-{first[:16]}.seal")
    ok(os.path.exists(kept) and open(kept, "rb").read() == seal,
       "the seal of the file before", os.listdir(r.traces))
    with open(r.file("default.seal"), encoding="utf-8") as f:
        s = json.load(f)
    eq((s["turns"], s.get("earlier")), (1, []), "is no earlier one of this")


def test_seal_after_kill():
    """What a killed process wrote is sealed by the stop of the next."""
    r = Recorder(home("sealkill"))
    eq(ask(r, CREATE, session(b"open-1"))[0], 1, "a session")
    r.turn(1, "one", session="open-1")
    r.turn(2, "two")
    r.kill()
    r = Recorder(r.home)
    eq(r.stop(), 0, "a stop without a call")
    seals = sorted(x for x in os.listdir(r.traces) if x.endswith(".seal"))
    eq(seals, ["default.seal", "open-1.seal"], "seals what was not sealed")
    before = [open(r.file(x), "rb").read() for x in seals]
    r = Recorder(r.home)
    r.stop()
    eq([open(r.file(x), "rb").read() for x in seals], before,
       "seals that hold stay as they are")


def test_not_a_file():
    r = Recorder(home("odd"))
    os.symlink("/etc/passwd", r.file("link.jsonl"))
    os.mkfifo(r.file("fifo.jsonl"))
    os.mkdir(r.file("dir.jsonl"))
    for i, name in enumerate(("link", "fifo", "dir")):
        eq(r.turn(i, session=name)[1], 3, f"a {name} is not written to")
    with open(r.file("old.jsonl"), "w") as f:
        f.write('{"turn":41,"request":{}}\n')
    eq(r.turn(9, session="old")[:3], (9, OK, 42),
       "a trace of another program is gone on with")
    r.stop()


def verify(path):
    return subprocess.run([CTL, "trace", "--verify", path],
                          capture_output=True, text=True).returncode


def test_seals(r):
    """The seal is of these lines, as many, and of no other file."""
    os.mkdir(home("seals"))
    roll = r.file("default.jsonl.1")
    with open(roll, "rb") as f:
        lines = f.read().splitlines(keepends=True)
    here = home("seals/default.jsonl.1")
    for name in (roll + ".seal", r.file("sallyport.pub")):
        shutil.copy(name, home("seals"))

    def put(path, part):
        with open(path, "wb") as f:
            f.write(b"".join(part))
        return path

    eq(verify(put(here, lines)), 0, "a sealed file")
    link = home("link.jsonl")
    os.symlink("seals/default.jsonl.1", link)
    p = subprocess.run([CTL, "trace", "--verify", link], capture_output=True,
                       text=True)
    ok(p.returncode == 0 and "seal: good" in p.stdout,
       "a link is followed to the seal", p.stdout + p.stderr)
    shutil.copy(here + ".seal", home("seals/other.seal"))
    eq(verify(put(home("seals/other.jsonl"), lines)), 1,
       "the seal of another file")
    eq(verify(put(here, lines[:-1])), 1, "a line less")
    if os.path.exists(VERIFY):
        p = subprocess.run([sys.executable, VERIFY, here],
                           capture_output=True, text=True)
        ok(p.returncode == 1 and "shorter" in p.stderr,
           "verify_trace.py misses it, too", p.stderr)
    eq(verify(put(here, lines[1:])), 1, "without the first line")
    body = lines[-1][:-76].replace(b'"q"', b'"Q"', 1)
    digest = hashlib.sha256(body).hexdigest().encode()
    line = body + b',"hash":"' + digest + b'"}\n'
    eq(len(line), len(lines[-1]), "a last line that is hashed anew")
    ok(line != lines[-1], "with another content")
    eq(verify(put(here, lines[:-1] + [line])), 1, "is not what was sealed")


def test_readers(r):
    if os.path.exists(VERIFY):
        for name in sorted(os.listdir(r.traces)):
            if name.endswith(".seal") or name.endswith(".pub"):
                continue
            p = subprocess.run([sys.executable, VERIFY, r.file(name)],
                               capture_output=True, text=True)
            eq(p.returncode, 0, f"verify_trace.py: {name}")
        p = subprocess.run([sys.executable, VERIFY], capture_output=True,
                           text=True)
        ok(p.returncode != 0 and "usage:" in p.stderr,
           "verify_trace.py: no arguments", p.stderr)
        p = subprocess.run([sys.executable, VERIFY, r.file()],
                           capture_output=True, text=True)
        ok("line 1: it begins no chain: it goes on" in p.stdout,
           "verify_trace.py: a file that goes on says so", p.stdout)
        p = subprocess.run([sys.executable, VERIFY, VERIFY],
                           capture_output=True, text=True)
        ok(p.returncode == 1 and "line 1: it begins no chain" in p.stderr,
           "verify_trace.py: what is no trace", p.stderr)
    if not os.access(CTL, os.X_OK):
        return
    p = subprocess.run([CTL, "trace", "/etc"], capture_output=True, text=True)
    ok(p.returncode == 2 and "/etc is a directory" in p.stderr,
       "sallyportctl trace of a directory", p.stderr)
    p = subprocess.run([CTL, "trace", "--verify", r.file()],
                       capture_output=True, text=True)
    eq(p.returncode, 0, "sallyportctl trace --verify")
    p = subprocess.run([CTL, "trace", "--train", r.file()],
                       capture_output=True, text=True)
    t = [strict(x) for x in p.stdout.splitlines()]
    ok(len(t) >= 1 and t[0]["loss_mask"] == [0, 0, 1, 1, 1, 1, 1],
       "sallyportctl trace --train", p.stdout + p.stderr)
    p = subprocess.run([CTL, "trace", "--stats", r.file()],
                       capture_output=True, text=True)
    ok(f"trainable {len(t)}\n" in p.stdout, "--stats counts what --train "
       "prints", p.stdout)
    test_seals(r)
    copy = home("changed.jsonl")
    data = open(r.file(), "rb").read()
    with open(copy, "wb") as f:
        f.write(data.replace(b'"q"', b'"Q"', 1))
    p = subprocess.run([CTL, "trace", "--verify", copy],
                       capture_output=True, text=True)
    ok(p.returncode == 1 and "line 1" in p.stderr + p.stdout,
       "a changed line is named", p.stderr)
    with open(copy, "wb") as f:
        f.write(data + b'{"torn')
    p = subprocess.run([CTL, "trace", copy], capture_output=True, text=True)
    ok(p.returncode == 0 and "torn" in p.stdout + p.stderr,
       "a torn last line is told and skipped", p.stderr)


first = test_turn()
test_restart(first)
test_shutdown()
test_reactor_gone()
test_hostile()
test_values()
test_bound()
rolled = test_roll()
test_readers(rolled)
test_keep(rolled)
test_full()
test_together()
test_pass()
test_repeated()
test_locked()
test_sessions()
test_disturbed()
test_other_seal()
test_seal_after_kill()
test_not_a_file()
done()

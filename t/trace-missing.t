#!/usr/bin/python3
"""sallyportctl trace: turns that were given a number and have no record."""
import fcntl
import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
from tap import eq, ok  # noqa: E402
from upstream import Raw, chunked, events, stream_head, unary  # noqa: E402

CONF = """
upstream u {{ server {0}/v1; }}
capture c {{ level logprobs; }}
server {{ listen 127.0.0.1:0;
location /v1 {{ llm_intercept; upstream u; capture c; keys open; }} }}
"""
ASK = {"model": "m", "stream": True, "messages": []}
HI = {"choices": [{"index": 0, "delta": {"content": "hi"}}]}
ANSWER = {"id": "x", "object": "chat.completion", "model": "m",
          "choices": [{"index": 0, "finish_reason": "stop",
                       "message": {"role": "assistant", "content": "a"}}]}
ZERO = "0" * 64


def totals(path, status=0):
    """The totals as JSON, and as text."""
    out = [subprocess.run([gate.program("sallyportctl"), "trace", "--verify",
                           *how, path], capture_output=True, text=True,
                          check=False) for how in (["--json"], [])]
    eq([p.returncode for p in out], [status] * 2,
       f"status {status}: {os.path.basename(path)}")
    return json.loads(out[0].stdout), out[1].stdout


def chain(path, turns, prev=ZERO):
    """A trace of (turn, turn_high); the last hash."""
    with open(path, "wb") as f:
        for turn, high in turns:
            body = (f'{{"turn":{turn},"metadata":{{"turn_high":{high}}},'
                    f'"prev":"{prev}"').encode()
            prev = hashlib.sha256(body).hexdigest()
            f.write(body + f',"hash":"{prev}"}}\n'.encode())
    return prev


def test_numbers(folder):
    path = f"{folder}/a.jsonl"
    chain(path, [(1, 1), (3, 3), (2, 3), (4, 4)])
    got, text = totals(path)
    eq((got["missing_turns"], got["missing"], "missing" in text),
       (0, [], False), "in the order of their ends: none is missing")
    chain(path, [(4, 5), (6, 8), (9, 10)])
    got, text = totals(path)
    eq((got["missing_turns"], got["missing"], got["missing_more"],
        got["chain"], got["in_use"]),
       (7, [[1, 3], [5, 5], [7, 8], [10, 10]], 0, "good", False), "ranges")
    ok("missing 7: no record of turn 1-3, 5, 7-8, 10; open when sallyport "
       "or its recorder was killed, or not written (the log tells)\n" in text,
       "are told", text)
    with open(path, "r+b") as f:
        fcntl.fcntl(f, fcntl.F_OFD_SETLK,
                    struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        got, text = totals(path)
        ok(got["in_use"] and " 10; open still, open when " in text,
           "of a file in use, they may be open", text)
    chain(path, [(n, n) for n in range(2, 82, 2)])
    got, text = totals(path)
    eq((got["missing_turns"], len(got["missing"]), got["missing"][-1],
        got["missing_more"]), (40, 32, [63, 63], 8), "of many, the first")
    ok(", 63 and 8 more; open" in text, "and how many more", text)
    chain(path, [(2 ** 64 - 1, 2 ** 64 - 1), (2, 2 ** 64 - 1), (0, 0)])
    got, _ = totals(path)
    eq(got["missing"], [[1, 1]], "numbers that no trace has")
    chain(path, [(1, 1), (2, 2), (3, 3)])
    with open(path, "r+b") as f:
        lines = f.readlines()
        f.seek(0)
        f.truncate()
        f.writelines(lines[::2])
    got, text = totals(path, 1)
    eq((got["chain"], got["missing_turns"], "missing" in text),
       ("broken", 0, False), "a line that was taken out is another matter")
    open(path, "wb").close()
    eq(totals(path)[0]["missing"], [], "an empty file")


def test_rolls(folder):
    """A turn is in the file in which it ends."""
    path = f"{folder}/b.jsonl"
    prev = chain(f"{path}.1", [(1, 4), (6, 6)])
    prev = chain(f"{path}.2", [(3, 7)], prev)
    prev = chain(f"{path}.3", [(10, 10), (4, 10)], prev)
    chain(path, [(11, 12), (2, 12), (8, 12)], prev)
    eq({n: totals(path + n)[0]["missing"] for n in (".1", ".2", ".3", "")},
       {".1": [[5, 5]], ".2": [[7, 7]], ".3": [[9, 9]], "": [[12, 12]]},
       "each is missing once, in the file of its time")
    for n in range(1, 4):
        os.unlink(f"{path}.{n}")
    eq(totals(path)[0]["missing"], [[3, 7], [9, 10], [12, 12]],
       "without those before, from the lowest")


def stream(d, model):
    """A call whose answer does not end."""
    model.play([stream_head(), chunked(events(HI)), ("gone",)])
    r = gate.Reply(d.connect(), gate.request(ASK), read=False)
    r.head()
    r.chunk()
    return r


def test_killed():
    model = Raw()
    d = gate.Gate(CONF.format(model.url))
    try:
        calls = [stream(d, model), stream(d, model)]
        model.play(unary(ANSWER))
        eq(d.post({"model": "m", "messages": []}).status, 200, "a turn")
        got, text = totals(d.trace_path())
        eq((got["missing"], got["in_use"]), ([[1, 2]], True),
           "before it, two that are open")
        ok("open still" in text, "and said to be so", text)
        pids = d.children()
        # it may see the helper's end before it dies of it, and write them
        os.kill(pids["sallyport-recorder"], signal.SIGSTOP)
        d.stop(signal.SIGKILL)
        gate.until(lambda: not any(map(alive, pids.values())), "the end of all")
        got, text = totals(d.trace_path())
        eq((got["missing"], got["in_use"], got["chain"]),
           ([[1, 2]], False, "good"), "kill -9: they have no record")
        ok("no record of turn 1-2; open when sallyport or its recorder was "
           "killed" in text, "which is told", text)
        for r in calls:
            r.s.close()
    finally:
        d.stop()
        d.tmp.cleanup()


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def main():
    with tempfile.TemporaryDirectory() as folder:
        test_numbers(folder)
        test_rolls(folder)
    test_killed()
    tap.done()


main()

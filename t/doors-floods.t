#!/usr/bin/python3
"""
Floods of OPENENVD_EVENT_FD by a workload, and frames of a worker that means no
good: they are bounded, they are told, and a reset helps.
"""
import json
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402
import worker  # noqa: E402
import ws  # noqa: E402
from doors import TOKENS, bearer  # noqa: E402

GOOD, BAD, LARGE = 60000, 50000, 200
FRAMES = ("worker frames /usr/bin/python3 {f}/hostile_frames.py "
          "{{ factory m:f; action_class m:c; }}")
ENVIRONMENTS = {
    "flood": FRAMES + " process flooder {{ trust workload; command "
             f"/usr/bin/python3 {{f}}/flooder.py {GOOD} {BAD} {LARGE}; }}}}",
    "hostile": FRAMES,
}
LOCATIONS = """
  location /ws { lifecycle; environment hostile; token env:ORCHESTRATOR; }
  location /seen { observe; environment hostile; token env:OBSERVER;
    stream harness_events; slow_timeout 60s; }
  location /flood { observe; environment flood; token env:OBSERVER;
    stream harness_events; slow_timeout 60s; }
"""
# what a step does: the words of the cause
FATAL = {
    "huge": "longer than", "endless": "longer than",
    "binary": "no frame", "zeros": "no frame", "deep": "no frame",
    "half": "no frame", "torn": "no frame", "two": "no frame",
    "both": "no frame", "twins": "no frame", "dies": "middle of a line",
}


def observe(d, path):
    """Events as they come, as objects."""
    s = d.connect()
    s.sendall(gate.request(None, path, [
        ("Accept", "text/event-stream"),
        *bearer("OBSERVER").items()], close=False)
        .replace(b"Host: gate", b"Host: 127.0.0.1"))
    with s.makefile("rb") as f:
        tap.ok(b" 200 " in f.readline(), "an observer")
        for line in f:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def resident(d):
    with open(f"/proc/{d.children()['sallyport-reactor']}/statm",
              encoding="ascii") as f:
        return int(f.read().split()[1]) * 4096


def floods(d):
    before = resident(d)
    ep = d.create("flood")
    seen, gaps, kinds = 0, {}, []
    for e in observe(d, "/flood?since=0"):
        if e["type"] == "gap":
            kinds.append(e["data"]["reason"])
            gaps[kinds[-1]] = gaps.get(kinds[-1], 0) + e["data"]["lost"]
        elif e["data"]["source"] == "workload":
            if "mark" in e["data"]["event"]:
                break
            seen += 1
    tap.eq(seen, GOOD, "all that were events are told")
    tap.eq(gaps, {"malformed": BAD, "too large": LARGE},
           "and how many were none, or too large")
    tap.ok(len(kinds) <= (BAD + LARGE) // 1000 * 2 + 8,
           "in few words", kinds)
    grown = resident(d) - before
    print(f"# {grown >> 20} MiB more for {GOOD + LARGE * 100 >> 10} MiB")
    tap.ok(grown < 64 << 20, "memory is bounded", grown)
    tap.eq(d.settle(ep)["state"], "ready", "its worker is well")
    tap.eq(d.step(ep)["result"]["observation"], {"good": True},
           "and served meanwhile")
    d.end(ep)


def ask(c, kind, **data):
    c.send(ws.text(json.dumps({"type": kind, "data": data})))
    return json.loads(c.message())


def frames(d):
    with ws.Ws(d.port, "/ws", bearer("ORCHESTRATOR"),
               timeout=gate.PATIENCE) as c:
        tap.eq(ask(c, "reset")["type"], "observation", "an episode")
        for do, words in FATAL.items():
            got = ask(c, "step", do=do)
            why = got["data"].get("detail", {})
            tap.ok(got["type"] == "error" and why["reason"] == "worker_gone"
                   and words in why["cause"], f"{do} is told", got)
            tap.ok(len(json.dumps(got)) < 64 << 10, "and not repeated")
            again = ask(c, "step")
            tap.eq(again["type"], "error", "then nothing is done")
            got = ask(c, "reset")
            tap.eq(got["type"], "observation", "until a reset")
        for do in ("events", "large", "empty", "slow", "errors"):
            got = ask(c, "step", do=do)
            tap.eq((got["type"], got["data"].get("observation")),
                   ("observation", {"good": True}), f"{do} does no harm")
        got = ask(c, "step", do="unasked")
        tap.eq(got["type"], "observation", "an answer")
        gate.until(lambda: ask(c, "step")["type"] == "error",
                   "the end of who answers what was not asked")
        tap.eq(ask(c, "reset")["type"], "observation", "a reset helps again")


def told(d):
    """What frames said of themselves, and what was too large for that."""
    with ws.Ws(d.port, "/ws", bearer("ORCHESTRATOR"),
               timeout=gate.PATIENCE) as c:
        tap.eq(ask(c, "reset", episode_id="seen")["type"], "observation",
               "an episode")
        for do in ("events", "large", "slow"):
            ask(c, "step", do=do)
        n, gaps = 0, []
        for e in observe(d, "/seen?since=0&episode=seen"):
            if e["type"] == "gap":
                gaps.append((e["data"]["lost"], e["data"]["reason"]))
            elif e["data"]["source"] == "workload":
                n += "n" in e["data"]["event"]
                if "slow" in e["data"]["event"]:
                    break
        tap.eq((n, gaps), (20000, [(1, "too large")]),
               "each event of a frame, and the gap of one")


def main():
    walls.needed()
    with tempfile.TemporaryDirectory(prefix="sp-floods-") as folder, \
            worker.Daemon(folder, ENVIRONMENTS, locations=LOCATIONS,
                          episodes=2, environ={
                              **TOKENS, "ASAN_OPTIONS": os.environ.get(
                                  "ASAN_OPTIONS", "") +
                              ":quarantine_size_mb=1:"
                              "thread_local_quarantine_size_kb=64"}) as d:
        floods(d)
        frames(d)
        told(d)
        tap.ok(all(w not in d.log() for w in (
            "AddressSanitizer", "runtime error", "LeakSan")),
            "no sanitizer has spoken")
    tap.done()


main()

"""Cases from the field: what goes in, what must come out on each side."""
import json
import os

import gate
import tap
import upstream
from upstream import sse

ASK = {"model": "m", "stream": True, "messages": []}
UNARY = {"model": "m", "messages": []}
MISSING = object()

CONF = """
upstream up {{
    server {url}/v1;
    {up}
}}
upstream override {{ server {url}/v1; model real/model; }}
upstream keyed {{ server {url}/v1; api_key env:T_UPSTREAM_KEY; }}
upstream small {{ server {url}/v1; event_max 64k; reply_max 64k; }}
upstream hasty {{ server {url}/v1; read_timeout 1s; first_byte_timeout 1s; }}
capture tokens {{ level tokens; logprobs_refused retry; }}
capture logprobs {{ level logprobs; trace logprobs/$session.jsonl; }}
capture strictly {{ level logprobs; require_logprobs on;
    logprobs_refused fail; trace strictly/$session.jsonl; }}
capture text {{ level text; max_tokens_cap 16384;
    trace text/$session.jsonl; }}
capture forced {{ level tokens; thinking off; max_tokens_cap 16384;
    sampling temperature=1.0 top_p=1.0 top_k=-1;
    trace forced/$session.jsonl; }}
server {{
    listen 127.0.0.1:0;
    location /v1 {{ llm_intercept; upstream up; capture tokens; keys open;
        pass /v1/embeddings; }}
    location /logprobs {{ llm_intercept; upstream up; capture logprobs;
        keys open; }}
    location /strictly {{ llm_intercept; upstream up; capture strictly;
        keys open; }}
    location /text {{ llm_intercept; upstream up; capture text; keys open; }}
    location /off {{ llm_intercept; upstream up; capture off; keys open; }}
    location /forced {{ llm_intercept; upstream override; capture forced;
        keys open; }}
    location /keyed {{ llm_intercept; upstream keyed; capture text;
        keys open; }}
    location /small {{ llm_intercept; upstream small; capture tokens;
        keys open; }}
    location /hasty {{ llm_intercept; upstream hasty; capture tokens;
        keys open; }}
    location /ka {{ llm_intercept; upstream up; capture tokens; keys open;
        keepalive_comment 50ms; }}
    location /status {{ status; token env:T_STATUS_TOKEN; }}
    location /health {{ health; }}
    {server}
}}
"""
TRACES = {"v1": "traces", "small": "traces", "hasty": "traces",
          "ka": "traces", "keyed": "text"}
KEY = "upstream-key-0123456789-SECRET"
STATUS_TOKEN = "status-token-0123456789"


class Door:
    """A sallyport before an upstream that sends what it is told."""

    def __init__(self, main="", up="", server=""):
        self.up = upstream.Raw()
        self.gate = gate.Gate(
            CONF.format(url=self.up.url, up=up, server=server), main,
            env={"T_UPSTREAM_KEY": KEY, "T_STATUS_TOKEN": STATUS_TOKEN})

    def __enter__(self):
        self.gate.__enter__()
        return self

    def __exit__(self, *e):
        self.gate.__exit__(*e)

    def path(self, where):
        folder = TRACES.get(where, where)
        return os.path.join(self.gate.state, folder, "default.jsonl")

    def lines(self, where="v1"):
        try:
            with open(self.path(where), "rb") as f:
                return f.read().split(b"\n")[:-1]
        except FileNotFoundError:
            return []

    def line(self, n, where="v1"):
        gate.until(lambda: len(self.lines(where)) > n,
                   f"line {n} of the trace of {where}")
        return self.lines(where)[n]

    def call(self, play, body=ASK, where="v1", headers=(), record=True):
        """One call: the reply, with .sent (upstream's view) and .record."""
        before = len(self.lines(where))
        asked = len(self.up.requests)
        plays = play if play and isinstance(play[0], list) else [play]
        self.up.play(*plays)
        r = self.gate.post(body, f"/{where}/chat/completions"
                           if where != "v1" else "/v1/chat/completions",
                           headers)
        r.requests = self.up.requests[asked:]
        r.sent = r.requests[-1] if r.requests else None
        r.line = self.line(before, where) if record else None
        r.record = gate.strict(r.line) if record else None
        return r


def at(value, path):
    """a.0.b of nested objects and lists"""
    for part in path.split("."):
        if isinstance(value, list):
            value = value[int(part)] if int(part) < len(value) else MISSING
        elif isinstance(value, dict):
            value = value.get(part, MISSING)
        else:
            return MISSING
    return value


def shown(v):
    return "nothing" if v is MISSING else json.dumps(v)[:600]


def holds(name, record, want):
    """The record has these values; a callable judges, + is: contains."""
    for path, value in want.items():
        contains = path.startswith("+")
        without = path.startswith("-")
        got = at(record, path.lstrip("+-"))
        if callable(value):
            good, words = value(got), "another value"
        elif contains:
            good, words = got is not MISSING and value in got, value
        elif without:
            good, words = got is not MISSING and value not in got, value
        else:
            good, words = got == value, shown(value)
        if not good:
            tap.ok(False, f"{name}: trace: {path}",
                   f"     got: {shown(got)}\nexpected: {words}")
            return False
    return tap.ok(True, f"{name}: trace")


def row(door, name, data, want=None, record=None, body=ASK, where="v1",
        status=200):
    """
    One stream: data are the upstream's bytes (or pieces of a play), want the
    client's (the same, when not given), record what the trace must hold.
    """
    play = sse(data) if isinstance(data, bytes) else data
    r = door.call(play, body, where)
    if want is None:
        want = data
    if r.status != status:
        tap.ok(False, f"{name}: client",
               f"status {r.status}: {r.body[:500]!r}\n{door.gate.log()[-800:]}")
    elif r.body == want and r.whole:
        tap.ok(True, f"{name}: client")
    else:
        tap.ok(False, f"{name}: client",
               f"     got: {r.body[:1500]!r}\nexpected: {want[:1500]!r}"
               + ("" if r.whole else "\nand it was cut off: " + r.how))
    if record:
        holds(name, r.record, record)
    return r

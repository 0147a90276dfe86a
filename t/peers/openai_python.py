"""What the OpenAI SDK makes of it: BASE and DIRECT are two base URLs."""
import json
import os
import sys

import openai

BASE, DIRECT = sys.argv[1:3]
ASK = {"model": "m", "messages": [{"role": "user", "content": "h\u00e9llo"}]}


def ok(good, what, detail=None):
    print(json.dumps({"ok": bool(good), "what": what,
                      "detail": None if good else repr(detail)[:1500]}),
          flush=True)


def client(url, retries=0, script=None):
    return openai.OpenAI(
        base_url=url, api_key="none", max_retries=retries, timeout=60,
        default_headers={"X-Script": script} if script else None)


def create(url, script=None, retries=0, **kw):
    return client(url, retries, script).chat.completions.create(**ASK, **kw)


def plain(o):
    """All of it, but for what is new in each answer."""
    d = o.model_dump()
    for k in ("id", "created"):
        d.pop(k, None)
    return d


def twice(**kw):
    """The same call through the gateway and without it."""
    out = []
    for url in (BASE, DIRECT):
        r = create(url, **kw)
        out.append([plain(c) for c in r] if kw.get("stream") else plain(r))
    return out


def same():
    for what, kw in (
            ("unary", {}),
            ("unary with log-probabilities",
             {"logprobs": True, "top_logprobs": 2}),
            ("stream", {"stream": True}),
            ("stream with usage", {"stream": True, "stream_options": {
                "include_usage": True}}),
            ("stream with log-probabilities",
             {"stream": True, "logprobs": True, "top_logprobs": 2}),
            ("stream with log-probabilities, no alternatives",
             {"stream": True, "logprobs": True}),
            ("unary, token ids asked for",
             {"extra_body": {"return_token_ids": True}})):
        a, b = twice(**kw)
        ok(a == b, f"{what}: as without a gateway", (a, b))
    r = create(BASE)
    ok(r.choices[0].logprobs is None and "llo" in r.choices[0].message.content,
       "unary: no log-probabilities that were not asked for", r)
    r = create(BASE, logprobs=True, top_logprobs=2)
    ok(all(len(e.top_logprobs) == 2 for e in r.choices[0].logprobs.content),
       "unary: as many alternatives as asked for", r)
    chunks = list(create(BASE, stream=True))
    ok(all(c.usage is None and c.choices[0].logprobs is None for c in chunks)
       and chunks[-1].choices[0].finish_reason == "stop",
       "stream: neither usage nor log-probabilities", chunks)


def failures():
    try:
        create(BASE, "slow down")
        ok(False, "429 raises")
    except openai.RateLimitError as e:
        ok(e.response.headers.get("retry-after") == "1"
           and e.response.headers.get("x-request-id") == "r1",
           "429 raises RateLimitError with Retry-After", e.response.headers)
    r = create(BASE, "slow down once", retries=2)
    ok(r.choices[0].message.content == "again", "the SDK's retry succeeds", r)
    for script in ("error in the stream", "cut"):
        text = ""
        try:
            for c in create(BASE, script, stream=True):
                text += c.choices[0].delta.content or ""
            ok(False, f"{script} raises", text)
        except openai.APIError as e:
            ok(text == "some", f"{script}: what came, then APIError",
               (text, e))
    try:
        create(BASE, "empty", stream=True)
        ok(False, "an empty stream raises")
    except openai.InternalServerError as e:
        ok(e.status_code == 502 and e.code == "upstream_empty",
           "an empty stream is an error with a status", e)
    try:
        client(BASE).embeddings.create(model="m", input="x")
        ok(False, "an undeclared path raises")
    except openai.NotFoundError as e:
        ok(e.code == "unknown_url", "an undeclared path is NotFoundError", e)


def others():
    ok([m.id for m in client(BASE).models.list()] == ["scripted-model"],
       "models.list")
    with client(BASE).chat.completions.stream(**ASK) as s:
        for _ in s:
            pass
        got = s.get_final_completion()
    ok("llo" in got.choices[0].message.content, "the SDK's own assembly")


same()
failures()
others()
ok(os.environ.get("OPENAI_API_KEY") is None, "no key of anybody's was used")

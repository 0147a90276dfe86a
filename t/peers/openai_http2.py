"""The OpenAI SDK over HTTP/2: BASE, the CA's file, /status' URL."""
import asyncio
import json
import re
import ssl
import sys
import urllib.request

import openai

BASE, CA, STATUS = sys.argv[1:4]
ASK = {"model": "m", "messages": [{"role": "user", "content": "h\u00e9llo"}]}


def ok(good, what, detail=None):
    print(json.dumps({"ok": bool(good), "what": what,
                      "detail": None if good else repr(detail)[:1500]}),
          flush=True)


def metric(name):
    with urllib.request.urlopen(STATUS) as r:
        text = r.read().decode()
    found = re.search(rf"^sallyport_{name} (\S+)$", text, re.M)
    return float(found.group(1)) if found else None


def text_of(stream):
    return "".join(c.choices[0].delta.content or "" for c in stream
                   if c.choices)


async def many():
    """Tasks, not threads: the SDK's HTTP/2 is not safe among threads."""
    http = openai.DefaultAsyncHttpxClient(
        http2=True, verify=ssl.create_default_context(cafile=CA))
    room = asyncio.Semaphore(20)
    async with openai.AsyncOpenAI(base_url=BASE, api_key="none", max_retries=0,
                                  timeout=60, http_client=http) as client:
        async def one():
            async with room:
                s = await client.chat.completions.create(**ASK, stream=True)
                return "".join([c.choices[0].delta.content or ""
                                async for c in s if c.choices])
        got = await asyncio.gather(*(one() for _ in range(60)))
        return got, metric("http2_connections")


def main():
    client = openai.OpenAI(
        base_url=BASE, api_key="none", max_retries=0, timeout=60,
        http_client=openai.DefaultHttpxClient(
            http2=True, verify=ssl.create_default_context(cafile=CA)))
    create = client.chat.completions.create
    before = metric("connections_total")
    raw = client.chat.completions.with_raw_response.create(**ASK)
    want = raw.parse().choices[0].message.content
    ok(raw.http_response.http_version == "HTTP/2" and "llo" in want,
       "unary, by HTTP/2", (raw.http_response.http_version, want))
    with client.chat.completions.with_streaming_response.create(
            **ASK, stream=True) as r:
        version, lines = r.http_response.http_version, list(r.iter_lines())
    ok(version == "HTTP/2" and "data: [DONE]" in lines, "a stream, by HTTP/2",
       (version, lines[-3:]))
    got = text_of(create(**ASK, stream=True))
    ok(got == want, "the stream's text is the unary reply's", (got, want))
    ok(metric("http2_connections") == 1,
       "sallyport has one HTTP/2 connection", metric("http2_connections"))
    got, connections = asyncio.run(many())
    ok(got == [want] * 60, "60 streams, 20 at once", set(got))
    ok(connections == 2, "on one more connection", connections)
    s = create(**ASK, stream=True, extra_headers={"X-Script": "endless"})
    next(iter(s))
    s.close()
    again = create(**ASK).choices[0].message.content
    ok(again == want, "after one that was given up, the next", again)
    try:
        create(**ASK, extra_headers={"X-Script": "slow down"})
        ok(False, "429 raises")
    except openai.RateLimitError as e:
        ok(e.response.http_version == "HTTP/2"
           and e.response.headers.get("retry-after") == "1",
           "429 raises RateLimitError with Retry-After", e.response.headers)
    text = ""
    try:
        for c in create(**ASK, stream=True,
                        extra_headers={"X-Script": "cut"}):
            text += c.choices[0].delta.content or ""
        ok(False, "a stream that is cut raises", text)
    except openai.APIError as e:
        ok(text == "some", "what came of a stream that is cut, then APIError",
           (text, e))
    client.close()
    ok(metric("connections_total") - before <= 40, "connections are counted",
       (before, metric("connections_total")))


main()

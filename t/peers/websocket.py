"""Python's websockets against an echo: a JSON line for each check."""
import asyncio
import json
import sys

import websockets

URL = sys.argv[1]


def ok(good, what, detail=None):
    print(json.dumps({"ok": bool(good), "what": what,
                      "detail": repr(detail)}), flush=True)


async def main():
    async with websockets.connect(URL, max_size=None, ping_interval=0.05,
                                  subprotocols=["mcp"]) as c:
        ok(c.subprotocol == "mcp", "the subprotocol", c.subprotocol)
        for n in (0, 125, 126, 65535, 65536, 16 << 20):
            await c.send("\u00e9" * (n // 2))
            ok(await c.recv() == "\u00e9" * (n // 2), f"{n} bytes")

        async def pieces():
            for i in range(100):
                yield f"{i},"
        await c.send(pieces())
        ok(await c.recv() == "".join(f"{i}," for i in range(100)),
           "a message in pieces")
        many = [f"{i}" for i in range(1000)]
        for m in many:
            await c.send(m)
        ok([await c.recv() for _ in many] == many, "1,000 before a reply")
        await asyncio.wait_for(await c.ping(b"1234"), 10)
        ok(True, "a ping is answered")
        await asyncio.sleep(0.5)
        await c.send("still")
        ok(await c.recv() == "still", "pings both ways in silence")
    ok(c.close_code == 1000, "closed", c.close_code)
    async with websockets.connect(URL) as c:
        await c.send("close")
        try:
            ok(False, "closed by the server", await c.recv())
        except websockets.ConnectionClosed as e:
            ok((e.rcvd.code, e.rcvd.reason) == (4000, "as you like"),
               "closed by the server", e)
    async with websockets.connect(URL) as c:
        await c.send(b"\x00")
        try:
            ok(False, "a binary message", await c.recv())
        except websockets.ConnectionClosed as e:
            ok(e.rcvd.code == 1003, "a binary message", e)
    c = await websockets.connect(URL, max_size=None)
    try:
        await c.send("x" * (16 << 20) + "y")
        ok(False, "too long a message", await c.recv())
    except websockets.ConnectionClosed as e:
        ok(e.rcvd is not None and e.rcvd.code == 1009,
           "too long a message", e)
    try:
        async with websockets.connect(URL + "/nowhere"):
            ok(False, "another path")
    except websockets.WebSocketException as e:
        ok("404" in str(e), "another path", e)


asyncio.run(main())

#!/usr/bin/python3
"""An environment as a worker of sallyport: MCP over standard streams, and with
it env/reset, env/step and env/state.  The standard library is all it needs.

The task: bring the counter to the goal, in the file that everybody sees.

An agent sends what it likes, and writes in /workspace: each call is answered,
and what is opened is a plain file of a few bytes, or an error.
"""
import json
import os
import stat
import sys

FILE = "/workspace/counter"
GOAL = 3

TOOLS = [
    {"name": "increment", "description": "Adds to the counter.",
     "inputSchema": {"type": "object", "properties": {
         "by": {"type": "integer", "default": 1}}}},
    {"name": "read", "description": "The counter's value.",
     "inputSchema": {"type": "object", "properties": {}}},
    {"name": "env.goal", "description": "What it should be; not for agents.",
     "inputSchema": {"type": "object", "properties": {}}},
]
steps = 0


def opened(flags):
    """No link is followed, and no FIFO waited for."""
    fd = os.open(FILE, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o664)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{FILE} is no regular file")
    return fd


def value():
    fd = opened(os.O_RDONLY)
    try:
        return int(os.read(fd, 8192))
    finally:
        os.close(fd)


def put(n):
    text = str(n)  # refuses what has too many digits, before the file is cut
    fd = opened(os.O_WRONLY | os.O_CREAT)
    try:
        os.ftruncate(fd, 0)
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def observation():
    n = value()
    return {"observation": {"counter": n}, "reward": float(n == GOAL),
            "done": n >= GOAL}


def reset(params):
    global steps
    steps = 0
    put(int(params.get("start", 0)))
    print("reset to", value(), file=sys.stderr)
    return observation()


def step(params):
    global steps
    steps += 1
    put(value() + int(params.get("by", 1)))
    return observation()


def call(params):
    args = params.get("arguments") or {}
    if params["name"] == "increment":
        put(value() + int(args.get("by", 1)))
        text = str(value())
    elif params["name"] == "read":
        text = str(value())
    elif params["name"] == "env.goal":
        text = str(GOAL)
    else:
        raise KeyError(f"Unknown tool: {params['name']}")
    return {"content": [{"type": "text", "text": text}]}


METHODS = {
    "initialize": lambda p: {
        "protocolVersion": p["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "counter", "version": "1"}},
    "ping": lambda p: {},
    "tools/list": lambda p: {"tools": TOOLS},
    "tools/call": call,
    "env/reset": reset,
    "env/step": step,
    "env/state": lambda p: {"step_count": steps, "counter": value()},
}


def number(text):
    """Python refuses an integer of 4300 digits: here the tool does."""
    return int(text) if len(text) < 4000 else float(text)


def answer(message):
    method = METHODS.get(str(message["method"]))
    if method is None:
        return {"error": {"code": -32601, "message": "Method not found"}}
    try:
        return {"result": method(message.get("params") or {})}
    except (LookupError, ValueError, TypeError, AttributeError,
            ArithmeticError, OSError, MemoryError, RecursionError) as e:
        return {"error": {"code": -32602, "message": str(e)}}


for line in sys.stdin:
    request = json.loads(line, parse_int=number)
    if "id" in request and "method" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"],
                          **answer(request)}), flush=True)

#!/usr/bin/env python3
"""An OpenEnv environment as the worker of an episode: `worker frames`.

    worker frames /usr/bin/python3 /usr/share/sallyport/sallyport_worker.py {
        factory       my_env.server:MyEnvironment;
        action_class  my_env.models:MyAction;
    }

It runs inside the sandbox alone.  Standard input and output carry the frames,
one JSON object a line; whatever the environment prints goes to standard
error.  Only the standard library is needed, beside the environment's own
modules.  sallyport.conf(5) has the protocol, under WORKERS.
"""
import asyncio
import dataclasses
import importlib
import inspect
import json
import math
import os
import sys
import traceback

LINE_MAX = 16 * 1024 * 1024
FAILED = "environment operation failed"


class Stop(Exception):
    """What the other side sent is no frame."""


def channel():
    """The two ends, moved away: prints go to standard error from now on."""
    ends = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)
    return os.fdopen(ends[0], "rb"), os.fdopen(ends[1], "wb")


def symbol(text):
    """MODULE:ATTR"""
    module, _, attr = text.partition(":")
    out = importlib.import_module(module)
    for name in attr.split("."):
        out = getattr(out, name)
    return out


def finite(value):
    """JSON has neither NaN nor an infinity: null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return value


def dump(value, by_alias=False):
    """A model, a dataclass or a dict, as JSON has it."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=by_alias)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, dict):
        return dict(value)
    return {k: v for k, v in vars(value).items() if not k.startswith("_")}


def serialized(value):
    """As the OpenEnv that is installed sends it, if it is one of its own."""
    try:
        from openenv.core.env_server.serialization import \
            serialize_observation
        from openenv.core.env_server.types import Observation
        from pydantic_core import to_jsonable_python
    except ImportError:
        return None
    if not isinstance(value, Observation):
        return None
    return to_jsonable_python(serialize_observation(value))


def observed(value):
    """What reset and step answer: the observation, reward and done apart;
    and metadata beside them, where the OpenEnv that is installed sends it."""
    out = serialized(value)
    if out is not None:
        return out
    out = dump(value)
    if isinstance(value, dict) and set(out) == {"observation", "reward",
                                                "done"}:
        return out
    reward, done = out.pop("reward", None), out.pop("done", False)
    out.pop("metadata", None)
    return {"observation": out, "reward": reward, "done": bool(done)}


class RpcError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.answer = {"code": code, "message": message, "data": None}


class Worker:
    def __init__(self, hello):
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.action_class = symbol(hello["action_class"])
        self.env = self.wait(symbol(hello["factory"])())

    def wait(self, value):
        if inspect.isawaitable(value):
            return self.loop.run_until_complete(value)
        return value

    def action(self, data):
        try:
            from openenv.core.env_server.serialization import \
                deserialize_action
        except ImportError:
            validate = getattr(self.action_class, "model_validate", None)
            return validate(data) if validate else self.action_class(**data)
        if not hasattr(self.action_class, "model_validate"):
            return self.action_class(**data)
        return deserialize_action(data, self.action_class)

    # ---- operations ---------------------------------------------------------

    def reset(self, data):
        return observed(self.wait(self.env.reset(**data)))

    def step(self, data):
        return observed(self.wait(self.env.step(self.action(data))))

    def state(self, _):
        state = self.env.state
        return dump(self.wait(state() if callable(state) else state))

    def mcp(self, request):
        """A JSON-RPC request; only tools/list and tools/call are there."""
        out = {"jsonrpc": "2.0", "id": request.get("id")}
        params = request.get("params") or {}
        try:
            if request.get("method") == "tools/list":
                out["result"] = {"tools": self.tools()}
            elif request.get("method") == "tools/call":
                out["result"] = self.call(params.get("name"),
                                          params.get("arguments") or {})
            else:
                raise RpcError(-32601, "Method not found: "
                               f"{request.get('method')}")
        except RpcError as e:
            out["error"] = e.answer
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc()
            out["error"] = RpcError(-32603,
                                    "Environment operation failed").answer
        return out

    # ---- tools: of a FastMCP client, of the environment, or of its actions --

    async def client(self, ask):
        mcp = self.env.mcp_client
        session = getattr(self.env, "mcp_session", None)
        async with (session() if callable(session) else mcp):
            return await ask(mcp)

    def tools(self):
        if getattr(self.env, "mcp_client", None) is not None:
            listed = self.wait(self.client(lambda c: c.list_tools()))
            return [self.tool(t) for t in listed]
        if callable(getattr(self.env, "list_tools", None)):
            return [self.tool(t) for t in self.wait(self.env.list_tools())]
        try:
            self.action({"type": "list_tools"})
        except (TypeError, ValueError):
            return []  # its actions are no tools, and it has no others
        got = self.by_action({"type": "list_tools"})
        return [self.tool(t) for t in got.get("tools", [])]

    @staticmethod
    def tool(one):
        """As MCP spells it."""
        out = {k: v for k, v in dump(one, True).items() if v is not None}
        if "input_schema" in out:
            out.setdefault("inputSchema", out["input_schema"])
            del out["input_schema"]
        return out

    def call(self, name, arguments):
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise RpcError(-32602, "Invalid parameters")
        if name not in [t.get("name") for t in self.tools()]:
            raise RpcError(-32602, "Tool not found")
        if getattr(self.env, "mcp_client", None) is not None:
            return self.said(self.wait(self.client(
                lambda c: c.call_tool(name, arguments,
                                      raise_on_error=False))))
        if callable(getattr(self.env, "call_tool", None)):
            return self.said(self.wait(self.env.call_tool(name, arguments)))
        got = self.by_action({"type": "call_tool", "tool_name": name,
                              "arguments": arguments})
        error = got.get("error")
        text = json.dumps(finite(error or got.get("result")), default=str)
        return {"content": [{"type": "text", "text": text}],
                "isError": error is not None, "data": got.get("result")}

    @staticmethod
    def said(result):
        """A result of FastMCP's, or whatever the environment returned."""
        if not hasattr(result, "content"):
            text = result if isinstance(result, str) else json.dumps(
                finite(result), default=str)
            return {"content": [{"type": "text", "text": text}],
                    "isError": False, "data": result}
        out = {"content": [
            {k: v for k, v in dump(c, True).items() if v is not None}
            for c in result.content], "isError": bool(
                getattr(result, "is_error", getattr(result, "isError",
                                                    False)))}
        for name, key in (("structured_content", "structuredContent"),
                          ("data", "data")):
            value = getattr(result, name, None)
            if value is not None:
                out[key] = value
        return out

    def by_action(self, data):
        return dump(self.wait(self.env.step(self.action(data))))


def read(source):
    """One frame, or None at the end."""
    line = source.readline(LINE_MAX + 1)
    if not line:
        return None
    if len(line) > LINE_MAX or not line.endswith(b"\n"):
        raise Stop("a line that is too long, or cut")
    got = json.loads(line)
    if not isinstance(got, dict):
        raise Stop("no object")
    return got


def write(sink, frame):
    try:
        text = json.dumps(frame, allow_nan=False)
    except ValueError:
        text = json.dumps(finite(frame), allow_nan=False)
    line = text.encode() + b"\n"
    if len(line) > LINE_MAX:
        print("an answer of", len(line), "bytes is too long",
              file=sys.stderr)
        line = json.dumps({"error": FAILED}).encode() + b"\n"
    sink.write(line)
    sink.flush()


def serve(worker, frame):
    if set(frame) != {"operation", "data"} or \
            frame["operation"] not in ("reset", "step", "state", "mcp") or \
            not isinstance(frame["data"], dict):
        raise Stop("no operation")
    try:
        return {"result": getattr(worker, frame["operation"])(frame["data"])}
    except Exception:  # pylint: disable=broad-except
        traceback.print_exc()
        return {"error": FAILED}


def main():
    source, sink = channel()
    hello = read(source)
    if hello is None:
        return 0
    if set(hello) != {"factory", "action_class", "agent_policy"}:
        raise Stop("the first line names factory, action_class and "
                   "agent_policy")
    worker = Worker(hello)
    write(sink, {"result": {"ready": True}})
    try:
        while True:
            frame = read(source)
            if frame is None:
                return 0
            answer = serve(worker, frame)
            try:
                write(sink, answer)
            except (TypeError, ValueError):
                traceback.print_exc()
                write(sink, {"error": FAILED})
    finally:
        if callable(getattr(worker.env, "close", None)):
            worker.wait(worker.env.close())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Stop as e:
        sys.exit(f"sallyport_worker: {e}")

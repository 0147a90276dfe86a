"""
OpenEnv's MCPToolClient in production mode, its only one, unmodified:
openenv_session.py URL TOKEN one|two|tools.  Prints what it got.
"""
import asyncio
import json
import sys

from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.mcp_client import MCPToolClient

URL, TOKEN, WHAT = sys.argv[1:4]


def client():
    return MCPToolClient(base_url=URL, message_timeout_s=200,
                         headers={"Authorization": f"Bearer {TOKEN}"})


async def one():
    """Everything that it can do."""
    out = {}
    async with client() as c:
        r = await c.reset(seed=1, episode_id="mine")
        out["reset"] = [r.done, r.reward, (await c.state()).episode_id]
        out["tools"] = [t.name for t in await c.list_tools()]
        out["call"] = await c.call_tool("echo_message", message="é")
        r = await c.step(CallToolAction(tool_name="echo_message",
                                        arguments={"message": "ho"}))
        out["step"] = [r.done, r.observation.tool_name,
                       str(r.observation.error), "ho" in str(r.observation)]
        try:
            out["none"] = await c.call_tool("nosuch")
        except RuntimeError:
            out["none"] = "RuntimeError"
        await c.reset()
        out["again"] = (await c.state()).episode_id
        # its session stays what it is
        out["after"] = await c.call_tool("echo_message", message="x")
    return out


async def two():
    async with client() as a, client() as b:
        for n, c in enumerate((a, b)):
            await c.reset(episode_id=f"s{n}")
        got = [(await c.state()).episode_id for c in (a, b)]
        for c in (a, b):
            assert await c.call_tool("echo_message", message="x") == "x"
        try:
            async with client() as c:
                await c.reset()
            got.append("a third")
        except RuntimeError:
            got.append("full")
    return got


async def tools():
    c = client()
    got = [t.name for t in await c.list_tools()]
    got.append(await c.call_tool("echo_message", message="hi"))
    await c.close()
    return got

print(json.dumps(asyncio.run(globals()[WHAT]())))

"""
Environments as their authors write them, served by OpenEnv's own server:
openenv_server.py PORT moves|tools
"""
import sys
import uuid

import numpy as np
import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, \
    CallToolObservation
from openenv.core.env_server.types import Action, Observation, State


class Move(Action):
    by: list[float]


class Seen(Observation):
    at: list[float]


class Moves(Environment):
    """A point on a plane; what comes of it is computed with numpy."""
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.at = np.zeros(2)
        self._state = State(episode_id=None, step_count=0)

    def seen(self, done=False):
        return Seen(at=self.at.tolist(), done=done,
                    reward=float(-np.linalg.norm(self.at)))

    def reset(self, seed=None, episode_id=None, **_):
        self.at = np.random.default_rng(seed).integers(0, 9, 2).astype(float)
        self._state = State(episode_id=episode_id or str(uuid.uuid4()),
                            step_count=0)
        return self.seen()

    def step(self, action, timeout_s=None, **_):
        if len(action.by) != 2:
            raise ValueError("a move has two numbers")
        self.at = self.at + np.array(action.by)
        self._state.step_count += 1
        return self.seen(done=bool(np.allclose(self.at, 0)))

    @property
    def state(self):
        return self._state


def tools():
    from fastmcp import FastMCP
    mcp = FastMCP("tools")

    @mcp.tool
    def echo_message(message: str) -> str:
        """Says it again."""
        return message

    class Tools(MCPEnvironment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self):
            super().__init__(mcp)
            self._state = State(episode_id="t", step_count=0)

        def reset(self, seed=None, episode_id=None, **_):
            self._state = State(episode_id=episode_id or "t", step_count=0)
            return Observation(done=False, reward=0.0)

        def _step_impl(self, action, timeout_s=None, **_):
            return Observation(done=False, reward=0.0)

        @property
        def state(self):
            return self._state

    return create_fastapi_app(Tools, CallToolAction, CallToolObservation)


uvicorn.run(tools() if sys.argv[2] == "tools"
            else create_fastapi_app(Moves, Move, Seen),
            host="127.0.0.1", port=int(sys.argv[1]), log_level="info")

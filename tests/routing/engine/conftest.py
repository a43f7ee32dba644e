"""Every test with a loop runs twice: on uvloop, and on asyncio in debug mode."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop


class DebugPolicy(asyncio.DefaultEventLoopPolicy):
    """asyncio's own loop, with its checks on; slow callbacks are not what is tested here."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = super().new_event_loop()
        loop.set_debug(True)
        loop.slow_callback_duration = 60
        return loop


@pytest.fixture(params=[uvloop.EventLoopPolicy, DebugPolicy], ids=["uvloop", "asyncio"])
def event_loop_policy(request: pytest.FixtureRequest) -> Any:
    return request.param()

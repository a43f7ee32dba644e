"""Every test with a loop runs twice: on uvloop, and on asyncio in debug mode."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import uvloop


def _asyncio_in_debug_mode() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 60  # slowness is not what is tested here
    return loop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": _asyncio_in_debug_mode}

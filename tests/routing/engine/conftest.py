"""Event loops of the router's tests.

What opens connections runs twice: on uvloop, as in production, and on asyncio in debug mode. The
packages of WITHOUT_CONNECTIONS open none themselves; there uvloop alone is enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

WITHOUT_CONNECTIONS = {"access", "kvaware", "misses", "observe", "policies", "prompt", "tokens"}


def _asyncio_in_debug_mode() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 60  # slowness is not what is tested here
    return loop


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.path.relative_to(Path(__file__).parent).parts[0] in WITHOUT_CONNECTIONS:
        return {"uvloop": uvloop.new_event_loop}
    return {"uvloop": uvloop.new_event_loop, "asyncio": _asyncio_in_debug_mode}

"""uvicorn with one wake-up per second instead of ten; a signal ends its loop at once.

`python -m console.web.server.uvicorn_server` takes uvicorn's arguments.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import Any

import uvicorn

TICK_S = 1.0
"""Age of the `Date` header."""


class IdleServer(uvicorn.Server):
    _loop: asyncio.AbstractEventLoop | None = None
    _signalled: asyncio.Event

    async def main_loop(self) -> None:
        self._signalled = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._signalled.wait(), TICK_S)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._signalled.set)


def main() -> None:
    """Run uvicorn's command line with this server."""
    command_line: Any = import_module("uvicorn.main")  # `uvicorn.main` is the function
    command_line.Server = IdleServer
    command_line.main()


if __name__ == "__main__":
    main()

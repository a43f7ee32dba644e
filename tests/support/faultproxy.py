"""TCP proxy with faults: stall, cut, end, drip.

Faults apply to bytes from the target, or with `toward="there"` to bytes to it; `after` counts them
for each connection.
"""

from __future__ import annotations

import asyncio


class FaultProxy:
    """`mode`: pass, stall (nothing after `after` bytes), cut (reset both sides after `after`
    bytes), end (close both sides then), drip (one byte at a time). Can be changed while
    connections are open.
    """

    scheme = "http"  # scheme of the URL; https passes unchanged

    def __init__(
        self, host: str, port: int, mode: str = "pass", after: int = 0, toward: str = "back"
    ) -> None:
        self._target = (host, port)
        self.mode = mode
        self.after = after
        self.toward = toward
        self.port = 0
        self.connections = 0
        self.released = asyncio.Event()  # ends a stall
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> FaultProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        there, back = await asyncio.open_connection(*self._target)
        up = asyncio.create_task(self._pump(reader, back, "there"))
        down = asyncio.create_task(self._pump(there, writer, "back"))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in (up, down):
                pump.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            for side in (writer, back):
                if self.mode == "cut":
                    side.transport.abort()
                else:
                    side.close()
            self._tasks.discard(task)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str
    ) -> None:
        """Forward until end of data or the fault."""
        passed = 0
        while data := await reader.read(65_536):
            mode = self.mode if way == self.toward else "pass"
            if mode in ("stall", "cut", "end") and passed + len(data) > self.after:
                rest = data[max(self.after - passed, 0) :]
                writer.write(data[: len(data) - len(rest)])
                await writer.drain()
                if mode != "stall":
                    return
                await self.released.wait()
                data = rest
            if mode == "drip":
                for at in range(len(data)):
                    writer.write(data[at : at + 1])
                    await writer.drain()
                    await asyncio.sleep(0)
            else:
                writer.write(data)
                await writer.drain()
            passed += len(data)

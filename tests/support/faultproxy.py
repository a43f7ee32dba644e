"""A TCP proxy which breaks the wire on purpose: stall, cut, drip.

Sits between two real sockets. Faults apply to the bytes flowing back from the target; `after`
counts them for each connection.
"""

from __future__ import annotations

import asyncio


class FaultProxy:
    """`mode`: pass, stall (nothing goes back after `after` bytes), cut (reset after `after`
    bytes), drip (one byte at a time). May be changed while connections live."""

    scheme = "http"  # of what passes; https passes as it is

    def __init__(self, host: str, port: int, mode: str = "pass", after: int = 0) -> None:
        self._target = (host, port)
        self.mode = mode
        self.after = after
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
        up = asyncio.create_task(self._pump(reader, back))
        down = asyncio.create_task(self._pump_back(there, writer))
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

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()

    async def _pump_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passed = 0
        while data := await reader.read(65_536):
            if self.mode in ("stall", "cut") and passed + len(data) > self.after:
                writer.write(data[: max(self.after - passed, 0)])
                await writer.drain()
                if self.mode == "cut":
                    return
                data = data[max(self.after - passed, 0) :]
                await self.released.wait()
            if self.mode == "drip":
                for at in range(len(data)):
                    writer.write(data[at : at + 1])
                    await writer.drain()
                    await asyncio.sleep(0)
            else:
                writer.write(data)
                await writer.drain()
            passed += len(data)

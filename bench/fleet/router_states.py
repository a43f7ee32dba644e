"""State of our routers, read from their admin ports while the simulation clock waits.

Waiting for what they have applied, not for a fixed time, keeps placement independent of this
machine's speed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

_PATIENCE_S = 5.0  # real time
_POLL_S = 0.01  # a batch takes up to 20 ms; each query takes CPU from the routers


class RouterStates:
    """`late`: number of timeouts."""

    def __init__(self, admins: Sequence[int]) -> None:
        """`admins`: admin ports."""
        self._admins = admins
        self.late = 0
        self.several = len(admins) > 1

    async def read_events(self, published: Mapping[str, int]) -> None:
        """Wait until all routers have read the KV events. `published`: last batch by endpoint."""

        async def have_read() -> bool:
            for page in await self._read("/index"):
                last = {source["endpoint"]: source["last"] for source in page["kv"]["sources"]}
                if any(last[endpoint] < number for endpoint, number in published.items()):
                    return False
            return True

        await self._wait(have_read)

    async def agree(self) -> None:
        """Wait until each router has the load of all: then the last batches are applied, too."""

        async def are_equal() -> bool:
            first, *others = [_loads(page) for page in await self._read("/workers")]
            return all(other == first for other in others)

        await self._wait(are_equal)

    async def _wait(self, settled: Callable[[], Awaitable[bool]]) -> None:
        patience = perf_counter() + _PATIENCE_S
        while not await settled():
            if perf_counter() > patience:
                self.late += 1
                return
            await asyncio.sleep(_POLL_S)

    async def _read(self, page: str) -> list[dict[str, Any]]:
        return await asyncio.gather(*(_read(admin, page) for admin in self._admins))


def _loads(page: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {
        worker["id"]: (worker["in_flight"] + worker["peers_in_flight"], worker["in_flight_tokens"])
        for worker in page["workers"]
    }


async def _read(admin: int, page: str) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", admin)
    try:
        writer.write(f"GET {page} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = await reader.read()  # one answer for a connection
    finally:
        writer.close()
    found: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found

"""Workers that store the responses of /v1/responses, for requests that name one by its ID.

vLLM keeps them in the memory of one server. An ID that this router has not seen, as after its
restart or from another router, is looked for at every worker.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final
from urllib.parse import quote

from routing.engine.fleet.probe_request import ProbeError, send_probe
from routing.engine.fleet.workers import Worker, WorkerTable

PATH: Final = b"/v1/responses"
_PREFIX: Final = PATH + b"/"
_KEPT: Final = 65_536  # IDs, about 200 bytes each
_UNKNOWN_S: Final = 5.0  # a search without result is not repeated within this time
_TIMEOUT_S: Final = 2.0
_MOST_SEARCHED: Final = 64  # workers
_MAX_ID_CHARS: Final = 256


def named_response(path: bytes) -> str:
    """Return the response ID in a decoded path, or ""."""
    if not path.startswith(_PREFIX):
        return ""
    name, _, action = path[len(_PREFIX) :].partition(b"/")
    return name.decode("latin-1") if action in (b"", b"cancel") and name != b"render" else ""


class ResponseLocator:
    """Response IDs with their workers, the least recently stored are dropped first."""

    def __init__(self, table: WorkerTable) -> None:
        self._table = table
        self._workers: dict[str, str] = {}
        self._unknown: dict[str, float] = {}

    def stored(self, response_id: str, worker_id: str) -> None:
        self._workers.pop(response_id, None)
        if len(self._workers) >= _KEPT:
            del self._workers[next(iter(self._workers))]
        self._workers[response_id] = worker_id

    def worker(self, response_id: str) -> Worker | None:
        """Return the worker that has it, as far as known here."""
        return self._table.workers.get(self._workers.get(response_id, ""))

    def searches(self, response_id: str) -> bool:
        """Return True if its worker is unknown and `find` may tell it."""
        if len(self._table.workers) < 2 or len(response_id) > _MAX_ID_CHARS:
            return False
        if self.worker(response_id) is not None:
            return False
        return perf_counter() >= self._unknown.get(response_id, 0.0)

    async def find(self, response_id: str, lines: bytes) -> None:
        """Query the workers. `lines`: header lines, such as the caller's authorization."""
        workers = [worker for worker in self._table.workers.values() if worker.up]
        path = f"/v1/responses/{quote(response_id, safe='')}"

        async def has(worker: Worker) -> bool:
            try:
                status, _ = await send_probe(worker, path, _TIMEOUT_S, lines=lines)
            except ProbeError:
                return False
            return status == 200

        holds = await asyncio.gather(*map(has, workers[:_MOST_SEARCHED]))
        for worker, has_it in zip(workers, holds, strict=False):
            if has_it:
                self.stored(response_id, worker.id)
                return
        if len(self._unknown) >= _KEPT:
            self._unknown.clear()
        self._unknown[response_id] = perf_counter() + _UNKNOWN_S

"""Asks every worker, again and again, whether it is there, and what it serves.

Promises one cheap GET an interval for each worker, on a connection of its own so that a full pool
cannot make a worker look dead, and no check outliving its worker. Must not know what a verdict
means: the table does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson

from routing.engine.config import HealthConfig
from routing.engine.http1 import ChunkedBody, ProtocolError, parse_response
from routing.engine.workers import Worker

_MAX_BYTES = 4 * 1024 * 1024
MODELS_EVERY_S = 30.0  # LoRA adapters come and go while a worker runs


class ProbeError(Exception):
    """The worker gave no good answer; `refused`: nothing listens there."""

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


async def get(host: str, port: int, path: str, timeout_s: float) -> tuple[int, bytes]:
    """GET on a new connection; raises ProbeError."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                name = f"[{host}]" if ":" in host else host
                request = f"GET {path} HTTP/1.1\r\nhost: {name}:{port}\r\nconnection: close\r\n\r\n"
                writer.write(request.encode())
                return await _answer(reader)
            finally:
                writer.close()
    except TimeoutError:
        raise ProbeError("no answer in time") from None
    except ConnectionRefusedError:
        raise ProbeError("connection refused", refused=True) from None
    except (OSError, asyncio.IncompleteReadError) as error:
        raise ProbeError(f"connection failed: {error}") from None
    except (ProtocolError, asyncio.LimitOverrunError) as error:
        raise ProbeError(f"not HTTP: {error}") from None


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = parse_response((await reader.readuntil(b"\r\n\r\n"))[:-2])
    if head.chunked:
        chunks = ChunkedBody()
        pieces: list[bytes] = []
        while not chunks.done:
            data = await reader.read(65_536)
            if not data:
                raise ProbeError("the answer broke off")
            chunks.feed(data)
            pieces += chunks.pieces
            if sum(map(len, pieces)) > _MAX_BYTES:
                raise ProbeError("the answer is too large")
        return head.status, b"".join(pieces)
    if head.length > _MAX_BYTES:
        raise ProbeError("the answer is too large")
    if head.length >= 0:
        return head.status, await reader.readexactly(head.length)
    return head.status, await reader.read(_MAX_BYTES)


Verdict = Callable[[Worker, str, bool], None]


class Health:
    """One task for each worker; `follow` starts and ends them as the workers change."""

    def __init__(self, verdict: Verdict, learned: Callable[[], None]) -> None:
        self._verdict = verdict
        self._learned = learned
        self._tasks: dict[Worker, asyncio.Task[None]] = {}
        self.config = HealthConfig()

    def follow(self, workers: list[Worker], config: HealthConfig) -> None:
        self.config = config
        for worker in set(self._tasks) - set(workers):
            self._tasks.pop(worker).cancel()
        for worker in workers:
            if worker not in self._tasks:
                self._tasks[worker] = asyncio.create_task(self._watch(worker))

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, worker: Worker) -> None:
        models_due = 0.0
        loop = asyncio.get_running_loop()
        while True:
            await self._probe(worker)
            if worker.up and loop.time() >= models_due:
                if await self._ask_models(worker):
                    models_due = loop.time() + MODELS_EVERY_S
            elif not worker.up:
                models_due = 0.0
            await asyncio.sleep(self.config.interval_s)

    async def _probe(self, worker: Worker) -> None:
        config = self.config
        address = worker.address
        try:
            status, _ = await get(address.host, address.port, config.path, config.timeout_s)
        except ProbeError as error:
            self._verdict(worker, f"health check: {error}", error.refused)
            return
        error_text = "" if status == 200 else f"health check: answered {status}"
        self._verdict(worker, error_text, False)

    async def _ask_models(self, worker: Worker) -> bool:
        """Learn /v1/models; a worker without it (or with a key of its own) is fine too."""
        address = worker.address
        try:
            status, body = await get(
                address.host, address.port, "/v1/models", self.config.timeout_s
            )
            data = orjson.loads(body) if status == 200 else {}
        except (ProbeError, orjson.JSONDecodeError):
            return False
        items = data.get("data") if isinstance(data, dict) else None
        if isinstance(items, list):
            worker.models = [item for item in items[:1000] if isinstance(item, dict)]
            self._learned()
        return True

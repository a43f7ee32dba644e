"""LoRA adapters loaded and unloaded through the endpoint, at all of its workers.

A worker keeps its adapters in memory only. What was loaded through a router is loaded again into
workers that join or restart, until it is unloaded or no worker has it any more. Routers find each
other's adapters, and their own after a restart, by the spelling of their paths.
"""

from __future__ import annotations

import asyncio
import posixpath
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import orjson

from routing.engine.errors import Refusal
from routing.engine.fleet.probe_request import ProbeError, send_probe
from routing.engine.fleet.workers import Worker, WorkerTable
from routing.engine.observe.logs import Log

LOAD: Final = b"/v1/load_lora_adapter"
UNLOAD: Final = b"/v1/unload_lora_adapter"
_TIMEOUT_S: Final = 300.0  # weights may come from a slow disk or hub
_SHOWN_CHARS: Final = 200
_VERSION_BITS: Final = 48
_SPELLINGS: Final = {"0": "/.", "1": "//."}

Answer = tuple[int, bytes]  # status, body; 0: no answer, the body says why


def _adapter_names(worker: Worker) -> set[str]:
    return {str(model.get("id")) for model in worker.models if model.get("parent")}


def _spelled_paths(worker: Worker) -> dict[str, str]:
    """Return the paths of the adapters that routers have loaded, by name."""
    return {
        str(model.get("id")): str(model["root"])
        for model in worker.models
        if model.get("parent") and str(model.get("root")).endswith("/.")
    }


def _parse_order(body: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal("invalid_json", f"The body is not valid JSON: {error}.") from None
    if type(data) is not dict or type(data.get("lora_name")) is not str:
        raise Refusal("bad_request", "lora_name must be the adapter's name.", "lora_name")
    return data


def _version_path(data: dict[str, Any]) -> bytes:
    """Return the order with its path spelled in a way that no order had before.

    vLLM's block hashes contain an adapter's path: weights that were replaced under it would read
    the KV of those before, on the device, in L1 and in L2. `/.` and `//.` change no path.
    """
    path = data.get("lora_path")
    if type(path) is not str or not path.startswith("/"):
        return orjson.dumps(data)
    bits = f"{secrets.randbits(_VERSION_BITS):0{_VERSION_BITS}b}"
    return orjson.dumps({**data, "lora_path": path + "".join(_SPELLINGS[bit] for bit in bits)})


def with_plain_path(model: dict[str, object]) -> dict[str, object]:
    """Return an entry of /v1/models with an adapter's path as its caller wrote it."""
    root = model.get("root")
    if not model.get("parent") or type(root) is not str or not root.endswith("/."):
        return model
    return {**model, "root": posixpath.normpath(root)}


class AdapterLoader:
    """Orders for adapters and the workers they have reached.

    `learn_models` refreshes the model list of a worker; set by the server.
    """

    learn_models: Callable[[Worker], Awaitable[bool]]

    def __init__(self, table: WorkerTable, log: Log) -> None:
        self._table = table
        self._log = log
        self._orders: dict[str, bytes] = {}  # body of the load request, by adapter
        self._joining: dict[Worker, asyncio.Task[None]] = {}
        self._listed: dict[Worker, tuple[float | None, set[str]]] = {}  # process start, paths
        self._unloaded: set[str] = set()  # paths that some workers still list
        self._lock = asyncio.Lock()  # orders apply in turn

    async def apply(self, path: bytes, body: bytes, lines: bytes) -> Answer:
        """Send an order to every worker that is up; return one answer for all. Raise Refusal.

        `lines`: header lines for the workers.
        """
        data = _parse_order(body)
        name = data["lora_name"]
        async with self._lock:
            if path == LOAD:
                repeats = name in self._orders and not data.get("load_inplace")
                body = self._orders[name] if repeats else _version_path(data)
            workers = [worker for worker in self._table.workers.values() if worker.up]
            if not workers:
                raise Refusal("no_healthy_worker", "No worker can accept this request.")
            had = {worker.id for worker in workers if name in _adapter_names(worker)}
            answers = await self._send(workers, path, body, lines)
            done = {
                worker.id
                for worker, (status, _) in zip(workers, answers, strict=True)
                if status == 200 or _is_done(path, status, worker.id in had)
            }
            if path == UNLOAD:
                self._orders.pop(name, None)
            elif done:
                self._orders[name] = body
            await asyncio.gather(*(self.learn_models(worker) for worker in workers))
        self._log.event("info", "adapter_order", path=path.decode(), adapter=name, done=len(done))
        return self._summary(name, workers, answers, done)

    @staticmethod
    async def _send(
        workers: Sequence[Worker], path: bytes, body: bytes, lines: bytes = b""
    ) -> list[Answer]:
        async def order(worker: Worker) -> Answer:
            try:
                return await send_probe(worker, path.decode(), _TIMEOUT_S, body, lines)
            except ProbeError as error:
                return 0, str(error).encode()

        return await asyncio.gather(*map(order, workers))

    @staticmethod
    def _summary(
        name: str, workers: Sequence[Worker], answers: Sequence[Answer], done: set[str]
    ) -> Answer:
        """Return the workers' answer if they agree. Raise Refusal that names those that fail."""
        first = next((answer for answer in answers if answer[0] == 200), answers[0])
        if first[0] == 200 and len(done) == len(workers):
            return first
        if not done and first[0] and len({status for status, _ in answers}) == 1:
            return first
        failed = [
            f"{worker.id}: {status or 'no answer'} "
            f"{answer.decode('utf-8', 'replace')[:_SHOWN_CHARS]}"
            for worker, (status, answer) in zip(workers, answers, strict=True)
            if worker.id not in done
        ]
        if not failed:  # every worker was in the requested state before
            return first
        text = (
            f"Adapter {name[:100]!r}: {len(done)} of {len(workers)} workers have applied the "
            f"request. Failed at {'; '.join(failed[:8])}. Workers that fail to load it are retried."
        )
        raise Refusal("adapter_incomplete", text)

    def learn(self) -> None:
        """Load what workers lack by their model lists; drop what none lists any more."""
        workers = [worker for worker in self._table.workers.values() if worker.up and worker.models]
        self._adopt(workers)
        listed = set().union(*map(_adapter_names, workers))
        for name in [name for name in self._orders if name not in listed]:
            if workers:
                del self._orders[name]
        for worker in workers:
            if worker not in self._joining and self._orders.keys() - _adapter_names(worker):
                task = asyncio.get_running_loop().create_task(self._catch_up(worker))
                self._joining[worker] = task

    def _adopt(self, workers: Sequence[Worker]) -> None:
        """Adopt adapters that a router has loaded and none unloaded.

        A path that a worker no longer lists, although its process is the same, was unloaded.
        """
        before, self._listed = self._listed, {}
        adapters: dict[str, str] = {}
        for worker in workers:
            paths = _spelled_paths(worker)
            started, former = before.get(worker, (None, set()))
            if started == worker.started:
                self._unloaded |= former - set(paths.values())
            self._listed[worker] = (worker.started, set(paths.values()))
            adapters |= paths
        self._unloaded &= set().union(*(paths for _, paths in self._listed.values()))
        for name, path in adapters.items():
            if path not in self._unloaded:
                document = orjson.loads(self._orders.get(name, b"{}"))
                if document.get("lora_path") != path:
                    self._orders[name] = orjson.dumps({"lora_name": name, "lora_path": path})
            elif name in self._orders and orjson.loads(self._orders[name])["lora_path"] == path:
                del self._orders[name]

    async def _catch_up(self, worker: Worker) -> None:
        """Load what this worker lacks, once for each model list that it reports."""
        try:
            async with self._lock:
                workers = [other for other in self._table.workers.values() if other.up]
                await asyncio.gather(*map(self.learn_models, workers))
                missing = sorted(self._orders.keys() - _adapter_names(worker))
                for name in missing:
                    order = self._orders[name]
                    ((status, answer),) = await self._send([worker], LOAD, order)
                    event = "adapter_loaded" if status == 200 else "adapter_not_loaded"
                    self._log.event(
                        "info" if status == 200 else "warning",
                        event,
                        worker=worker.id,
                        adapter=name,
                        answer=answer.decode("utf-8", "replace")[:_SHOWN_CHARS],
                    )
                    if status == 200:
                        await self.learn_models(worker)
        finally:
            self._joining.pop(worker, None)


def _is_done(path: bytes, status: int, had: bool) -> bool:
    """Return True for an error by which a worker says that it already is in the wanted state."""
    if path == LOAD:
        return status == 400 and had  # "has already been loaded"
    return status == 404 and not had

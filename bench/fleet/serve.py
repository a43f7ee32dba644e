"""Simulated workers behind sockets: vLLM's HTTP API over insight.whatif.simulation.worker.

As in vLLM the head is sent at once and the first event with the first token; the rest follows with
the last token, since intermediate tokens are not measured. The driver provides the clock: a request
arrives at its `now`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from bench.fleet import prompts
from dashboards.insight.whatif.simulation.arrivals import PlannedRequest
from dashboards.insight.whatif.simulation.hardware import Hardware
from dashboards.insight.whatif.simulation.worker import FleetWorker, Job

_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_EVENT = b'data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[%b]%b}\n\n'
_TOKEN = _EVENT % (b'{"index":0,"delta":{"content":"x"},"finish_reason":null}', b"")
_STOP = _EVENT % (b'{"index":0,"delta":{},"finish_reason":"stop"}', b"")
_MODELS = {"object": "list", "data": [{"id": prompts.MODEL, "object": "model", "owned_by": "vllm"}]}


class ServedFleet:
    """Workers on local ports, for one workload."""

    def __init__(
        self, hardware: Hardware, ports: Sequence[int], asks: Sequence[PlannedRequest]
    ) -> None:
        self.asks = asks
        self.now = 0.0
        # Serves /render (as with vLLM's --enable-scale-out) and /tokenize.
        self.ids: prompts.Ids | None = None
        self.workers = [FleetWorker(hardware) for _ in ports]
        self.jobs: list[Job | None] = [None] * len(asks)
        self.on_arrival: Callable[[int], None] = lambda _number: None
        self._faces: dict[object, Face] = {}
        self._ports = ports
        self._servers: list[asyncio.Server] = []

    async def __aenter__(self) -> ServedFleet:
        loop = asyncio.get_running_loop()
        for worker, port in zip(self.workers, self._ports, strict=True):
            made = partial(Face, self, worker)
            self._servers.append(await loop.create_server(made, "127.0.0.1", port))
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()

    def arrived(self, number: int, worker: FleetWorker, face: Face) -> None:
        ask = self.asks[number]
        job = Job(number, ask.chain, ask.prompt_tokens, ask.answer_tokens, ask.session)
        self.jobs[number] = job
        self._faces[number] = face
        worker.submit(job, self.now)
        self.on_arrival(number)

    def advance(self, worker: FleetWorker) -> tuple[list[Job], list[Job]]:
        """End this worker's step and write the results; return the same jobs as FleetWorker."""
        first, done = worker.advance(self.now)
        for job in first:
            self._faces[job.tag].first()
        for job in done:
            self._faces.pop(job.tag).done(job)
        return first, done


class Face(asyncio.Protocol):
    """Connection of a router."""

    def __init__(self, fleet: ServedFleet, worker: FleetWorker) -> None:
        self._fleet = fleet
        self._worker = worker
        self._data = bytearray()
        self._need = 0  # missing bytes of the current request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while self._data and len(self._data) >= self._need:
            if self._need:
                request = bytes(self._data[: self._need])
                del self._data[: self._need]
                self._need = 0
                method, target, _ = request.split(b" ", 2)
                self._answer(method, target, request)
                continue
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._data[:end]).lower()
            at = head.find(b"\ncontent-length:")
            length = int(head[at + 16 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            self._need = end + 4 + length

    def _answer(self, method: bytes, target: bytes, request: bytes) -> None:
        path = target.partition(b"?")[0]
        fleet = self._fleet
        if method == b"POST" and path == b"/v1/chat/completions":
            self._write(_HEAD)
            fleet.arrived(prompts.number(request), self._worker, self)
        elif fleet.ids is not None and path.endswith((b"/render", b"/tokenize")):
            number = prompts.number(request)
            name = b"token_ids" if path.endswith(b"/render") else b"tokens"
            ids = fleet.ids.json(number, fleet.asks[number])
            self._plain(200, b'{"%b":%b}' % (name, ids), b"application/json")
        elif path == b"/health":
            self._plain(200, b"", b"text/plain")
        elif path == b"/v1/models":
            self._json(_MODELS)
        elif path == b"/metrics":
            self._plain(200, self._metrics(), b"text/plain")
        else:
            self._plain(404, b'{"detail":"Not Found"}', b"application/json")

    def _metrics(self) -> bytes:
        blocks = self._worker.hardware.cache_tokens // 16
        return (
            b"# TYPE vllm:cache_config_info gauge\n"
            b'vllm:cache_config_info{block_size="16",num_gpu_blocks="%d",engine="0"} 1.0\n' % blocks
        )

    def _json(self, value: object) -> None:
        self._plain(200, json.dumps(value).encode(), b"application/json")

    def _plain(self, status: int, body: bytes, kind: bytes) -> None:
        self._write(
            b"HTTP/1.1 %d OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
            % (status, kind, len(body), body)
        )

    def _write(self, data: bytes) -> None:
        # router disconnected: the model still computes everything
        if not self._transport.is_closing():
            self._transport.write(data)

    def first(self) -> None:
        self._write(b"%x\r\n%b\r\n" % (len(_TOKEN), _TOKEN))

    def done(self, job: Job) -> None:
        usage = (
            b',"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,'
            b'"prompt_tokens_details":{"cached_tokens":%d}}'
        ) % (
            job.prompt_tokens,
            job.answer_tokens,
            job.prompt_tokens + job.answer_tokens,
            job.cached,
        )
        end = b"%b%bdata: [DONE]\n\n" % (_STOP, _EVENT % (b"", usage))
        self._write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(end), end))

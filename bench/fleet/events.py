"""KV events of the simulated workers, as vLLM 0.32 publishes them over ZMQ.

Framing: topic, sequence, msgpack of [ts, events, rank]. Events are sent after the step that caused
them, with the token ids of `prompts.Ids`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
import zmq

from bench.fleet import prompts
from cachetier.simulation.block_cache import NOTHING
from dashboards.insight.whatif.simulation.worker import FleetWorker


class Publisher:
    """One worker's socket; publishes its cache journal on demand."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        port: int,
        worker: FleetWorker,
        ids: prompts.Ids,
    ) -> None:
        self._socket = context.socket(zmq.PUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self._socket.bind(self.endpoint)
        self.sequence = 0  # batches so far
        self._worker = worker
        self._ids = ids
        worker.follow()

    def publish(self) -> bool:
        news = self._worker.news
        if not news:
            return False
        events = [_event(block, before, self._ids) for block, before in news]
        news.clear()
        payload = msgspec.msgpack.encode([time.time(), events, 0])
        self._socket.send_multipart([b"", self.sequence.to_bytes(8, "big"), payload])
        self.sequence += 1
        return True

    def close(self) -> None:
        self._socket.close()


def _event(block: int, before: int | None, ids: prompts.Ids) -> dict[str, object]:
    if before is None:
        return {"type": "BlockRemoved", "block_hashes": [block + 1], "medium": "GPU"}
    return {
        "type": "BlockStored",
        "block_hashes": [block + 1],
        "parent_block_hash": None if before == NOTHING else before + 1,
        "token_ids": ids.block(block),
        "block_size": ids.a_block,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None],
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }


class Publishers:
    def __init__(
        self, ports: Sequence[int], workers: Sequence[FleetWorker], ids: prompts.Ids
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._all = [
            Publisher(self._context, port, worker, ids)
            for port, worker in zip(ports, workers, strict=True)
        ]

    def publish(self) -> bool:
        """Return whether there were new events."""
        # a list: any() must not stop at the first
        news = [publisher.publish() for publisher in self._all]
        return any(news)

    @property
    def last(self) -> dict[str, int]:
        """Return the last batch of each endpoint; -1: none yet."""
        return {publisher.endpoint: publisher.sequence - 1 for publisher in self._all}

    def close(self) -> None:
        for publisher in self._all:
            publisher.close()
        self._context.term()

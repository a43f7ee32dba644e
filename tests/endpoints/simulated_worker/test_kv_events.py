"""KV events of the simulated worker in vLLM's encoding: frames, maps, sequence numbers, replays."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from endpoints.simulated_worker.kv_events import CPU, GPU, KvLog, event_hash
from endpoints.simulated_worker.tokens import chain_hashes
from tests.support.ports import free_ports
from tests.support.simulated import SimulatedWorker
from tests.support.waiting import until

HUNDRED = list(range(1000, 1100))  # 3 full blocks of 32 and 4 tokens
Events = list[dict[str, Any]]


class Listener:
    """A subscriber and a replay client; both wait for at most a minute."""

    def __init__(self, events: int, replay: int) -> None:
        self._context = zmq.Context()
        self.sub = self._context.socket(zmq.SUB)
        self.sub.subscribe(b"")
        self.sub.connect(f"tcp://127.0.0.1:{events}")
        self.dealer = self._context.socket(zmq.DEALER)
        self.dealer.connect(f"tcp://127.0.0.1:{replay}")
        for socket in (self.sub, self.dealer):
            socket.rcvtimeo = 60_000

    def replayed(self, start: int = 0) -> list[tuple[int, float, Events]]:
        self.dealer.send_multipart([b"", start.to_bytes(8, "big")])
        found = []
        while True:
            empty, _topic, number, payload = self.dealer.recv_multipart()
            assert empty == b""
            if number == b"\xff" * 8:
                assert (_topic, payload) == (b"", b"")
                return found
            ts, events, rank = msgspec.msgpack.decode(payload)
            assert rank == 0
            found.append((int.from_bytes(number, "big"), ts, events))

    def live(self) -> tuple[bytes, int, Events]:
        topic, number, payload = self.sub.recv_multipart()
        return topic, int.from_bytes(number, "big"), msgspec.msgpack.decode(payload)[1]

    def close(self) -> None:
        self._context.destroy(linger=0)


class Publishing:
    def __init__(self, folder: Path, *flags: str) -> None:
        events, replay = free_ports(2)
        self.worker = SimulatedWorker(
            folder,
            *("--kv-events", f"tcp://*:{events}", "--kv-replay", f"tcp://*:{replay}"),
            *("--kv-topic", "kv@w1@demo", *flags),
        )
        self.ports = (events, replay)
        self.listener = Listener(events, replay)

    def received(self) -> Events:
        return [event for _, _, events in self.listener.replayed() for event in events]

    def close(self) -> None:
        self.listener.close()
        self.worker.close()


@pytest.fixture
def publish(tmp_path: Path) -> Iterator[Any]:
    begun: list[Publishing] = []

    def begin(*flags: str) -> Publishing:
        begun.append(Publishing(tmp_path, *flags))
        return begun[-1]

    yield begin
    for item in begun:
        item.close()


def kinds(events: Events) -> list[tuple[str, str | None, int]]:
    return [
        (event["type"], event.get("medium"), len(event.get("block_hashes", ()))) for event in events
    ]


def test_prefill_is_one_event_in_vllm_encoding(publish: Any) -> None:
    publishing = publish()
    publishing.worker.complete(HUNDRED)
    ((number, ts, (event,)),) = publishing.listener.replayed()
    assert number == 0
    assert ts > 1_700_000_000
    assert list(event) == [
        "type",
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
        "extra_keys",
        "group_idx",
        "kv_cache_spec_kind",
    ]
    assert event["token_ids"] == HUNDRED[:96]
    assert event["parent_block_hash"] is None
    assert event["extra_keys"] == [None, None, None]
    assert event["block_hashes"] == [event_hash(item) for item in chain_hashes(HUNDRED, 32)]


def test_discovery_lists_the_addresses(publish: Any) -> None:
    publishing = publish()
    status, body = publishing.worker.get("/kv_event_sources")
    events, replay = publishing.ports
    source = json.loads(body)["0"]
    assert status == 200
    assert source["endpoint"] == f"tcp://*:{events}"
    assert source["replay_endpoint"] == f"tcp://*:{replay}"
    assert source["topic"] == "kv@w1@demo"
    assert source["enable_kv_cache_events"] is True


def test_source_is_absent_without_events(worker: SimulatedWorker) -> None:
    assert worker.get("/kv_event_sources") == (200, b"{}")


def test_live_messages_have_topic_and_sequence(publish: Any) -> None:
    publishing = publish()
    sub = publishing.listener.sub
    sub.rcvtimeo = 100

    seeds = itertools.count(1)

    def has_event() -> bool:
        """A subscription takes a moment: ask until something comes."""
        publishing.worker.complete([next(seeds), *HUNDRED])
        return bool(sub.poll(200))

    until(has_event, what="a live message")
    topic, number, events = publishing.listener.live()
    assert topic == b"kv@w1@demo"
    assert kinds(events) == [("BlockStored", "GPU", 3)]
    assert publishing.listener.replayed(number)[0][0] == number


def test_hit_publishes_nothing_and_new_blocks_chain_on_it(publish: Any) -> None:
    publishing = publish()
    publishing.worker.complete(HUNDRED)
    publishing.worker.complete(HUNDRED)
    assert len(publishing.received()) == 1
    longer = [*HUNDRED, *range(60)]
    publishing.worker.complete(longer)
    event = publishing.received()[-1]
    assert event["parent_block_hash"] == event_hash(chain_hashes(HUNDRED, 32)[2])
    assert event["token_ids"] == longer[96:160]


def test_decoding_publishes_blocks_one_by_one(publish: Any) -> None:
    publishing = publish()
    publishing.worker.complete(HUNDRED[:60], max_tokens=40, ignore_eos=True)
    events = publishing.received()
    assert kinds(events) == [("BlockStored", "GPU", 1)] * 3
    assert events[1]["parent_block_hash"] == events[0]["block_hashes"][0]


def test_evictions_precede_the_new_blocks_deepest_first(publish: Any) -> None:
    publishing = publish("--device-blocks", "5")
    publishing.worker.complete(HUNDRED)  # 4 blocks, 3 named
    publishing.worker.complete([7, *HUNDRED])
    first = [event_hash(item) for item in chain_hashes(HUNDRED, 32)]
    assert len(publishing.listener.replayed()) == 2
    events = publishing.listener.replayed()[1][2]
    removed = [event["block_hashes"][0] for event in events[:-1]]
    assert removed == first[::-1][: len(removed)]
    assert len(removed) >= 2
    assert kinds(events)[-1] == ("BlockStored", "GPU", 3)


def test_salts_are_published_and_change_the_hashes(publish: Any) -> None:
    publishing = publish()
    publishing.worker.complete(HUNDRED, cache_salt="tenant1")
    publishing.worker.complete(HUNDRED)
    salted, plain = publishing.received()
    assert salted["extra_keys"] == [["tenant1"], None, None]
    assert salted["token_ids"] == plain["token_ids"]
    assert not set(salted["block_hashes"]) & set(plain["block_hashes"])


@pytest.mark.parametrize("policy", ["lru", "arc"])
def test_l1_events_equal_those_of_the_vllm_connector(publish: Any, policy: str) -> None:
    block_bytes = 32 * 46080
    publishing = publish("--l1-bytes", str(4 * block_bytes), "--l1-policy", policy)
    publishing.worker.complete(HUNDRED)
    events = publishing.received()
    assert kinds(events) == [("BlockStored", "GPU", 3), ("BlockStored", "CPU", 3)]
    assert "extra_keys" not in events[1]  # as the real connector: not even for salts
    assert events[1]["token_ids"] == events[0]["token_ids"]
    publishing.worker.complete([7, *HUNDRED])
    later = kinds(publishing.received())[2:]
    assert later[0] == ("BlockStored", "GPU", 3)
    assert later.count(("BlockRemoved", "CPU", 1)) == 2  # four fit, six were stored
    stored = [count for kind, medium, count in later if (kind, medium) == ("BlockStored", "CPU")]
    assert sum(stored) == 3


def test_reset_is_published_with_the_next_step(
    publish: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "VLLM_SERVER_DEV_MODE", "1")
    publishing = publish()
    publishing.worker.complete(HUNDRED)
    assert publishing.worker.post("/reset_prefix_cache", b"") == (200, {"success": True})
    assert len(publishing.received()) == 1
    assert publishing.worker.cached(HUNDRED) == 0
    assert kinds(publishing.received())[1:] == [
        ("AllBlocksCleared", None, 0),
        ("BlockStored", "GPU", 3),
    ]


def test_reset_needs_developer_mode(worker: SimulatedWorker) -> None:
    assert worker.post("/reset_prefix_cache", b"")[0] == 404


def test_reused_blocks_are_published_again_on_request(publish: Any) -> None:
    publishing = publish()
    publishing.worker.complete(HUNDRED)
    publishing.worker.complete(HUNDRED, vllm_xargs={"kv_cache_report_mode": "full"})
    first, again = publishing.received()
    assert again == first


def test_freed_blocks_are_forgotten() -> None:
    log = KvLog(2, lambda _events: None)
    hashes = chain_hashes([1, 2, 3, 4], 2)
    log.know([1, 2, 3, 4], hashes, 0, "")
    log.stored(hashes[0], GPU)
    log.stored(hashes[0], CPU)
    log.forget(hashes)
    assert list(log._blocks) == hashes[:1]
    log.removed(hashes[0], GPU)
    log.removed(hashes[0], CPU)
    log.removed(hashes[0], CPU)
    assert log._blocks == {}

"""Circuit breaker, slow start, and worker metrics."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from time import perf_counter

import pytest

from routing.engine.config import Address, HealthConfig, WorkerConfig
from routing.engine.fleet.circuit import CLOSED, HALF_OPEN, OPEN, TRIAL_S, Circuit
from routing.engine.fleet.health import Vitals, parse_vitals
from routing.engine.fleet.load import RequestCharge
from routing.engine.fleet.workers import SLOW_START_SHARE, SMALL_FLEET, Worker, WorkerTable
from routing.engine.policies.prefixaware import PrefixAware
from tests.routing.engine.harness import (
    Client,
    admin,
    ask,
    chat,
    metric,
    post,
    router,
    until,
    workers,
)
from tests.support.fake_worker import Conversation, FakeWorker, event

RULES = HealthConfig(eject_after=2, eject_s=1.0, eject_longest_s=4.0)
STATE = "emberline_router_worker_circuit_state"


def opened(now: float = 0.0) -> Circuit:
    circuit = Circuit()
    assert not circuit.failed(now, RULES)
    assert circuit.failed(now, RULES)
    return circuit


def test_circuit_opens_only_after_consecutive_failures() -> None:
    circuit = Circuit()
    for _ in range(5):
        assert not circuit.failed(0.0, RULES)
        assert not circuit.answered()
    assert circuit.state == CLOSED
    assert opened().state == OPEN
    assert not opened().admits


def test_one_trial_request_is_allowed_after_the_pause() -> None:
    circuit = opened()
    assert not circuit.tick(0.9, idle=True)
    assert circuit.tick(1.0, idle=True)
    assert (circuit.state, circuit.admits) == (HALF_OPEN, True)
    assert circuit.sent(1.0)
    assert not circuit.admits
    assert not circuit.sent(1.1), "only the first is the trial"
    assert circuit.answered()
    assert (circuit.state, circuit.admits) == (CLOSED, True)


def test_failed_trial_doubles_the_pause_up_to_a_limit() -> None:
    circuit = opened()
    now = 0.0
    for pause in (1.0, 2.0, 4.0, 4.0, 4.0):
        assert not circuit.tick(now + pause - 0.1, idle=True)
        now += pause
        assert circuit.tick(now, idle=True)
        assert circuit.sent(now)
        assert circuit.failed(now, RULES), "one failure is enough now"
        assert circuit.state == OPEN
    circuit.tick(now + 4.0, idle=True)
    assert circuit.answered()
    assert not circuit.answered()
    assert not circuit.failed(now, RULES), "trusted again: one failure is not enough"
    assert circuit.failed(now, RULES)
    assert circuit.tick(now + 1.0, idle=True), "and the first pause is short again"


def test_trial_without_a_result_frees_the_trial_slot() -> None:
    circuit = opened()
    circuit.tick(1.0, idle=True)
    circuit.sent(1.0)
    assert not circuit.tick(2.0, idle=False), "it is still under way"
    assert circuit.tick(2.5, idle=True), "its client hung up"
    assert circuit.admits
    circuit.sent(3.0)
    assert not circuit.tick(3.0 + TRIAL_S - 1, idle=False)
    assert circuit.tick(3.0 + TRIAL_S, idle=False), "it takes too long to keep others waiting"


async def test_started_stream_passes_the_trial() -> None:
    """Half open, one request is let through; the others go elsewhere until its first byte."""
    step, begin = asyncio.Event(), asyncio.Event()

    async def stream(talk: Conversation) -> None:
        await begin.wait()
        await talk.stream_head()
        await talk.chunk(event("one"))
        await step.wait()
        await talk.stream_end()

    async with FakeWorker() as one, FakeWorker() as two:
        one.script = lambda talk: talk.json({}, 503)
        health = {"interval_s": 0.05, "eject_after": 1, "eject_s": 0.01, "slow_start_s": 0}
        async with router(one, two, health=health, strategy="roundrobin") as server:
            worker = server.router.table.workers["w0"]
            while worker.circuit.state == CLOSED:
                assert (await ask(server, post(chat("x")))).status == 200
            failed = len(one.requests)
            one.script = stream
            await until(lambda: worker.circuit.state == HALF_OPEN)
            assert await metric(server, STATE, worker="w0") == 2
            listed = (await admin(server, "/workers")).json["workers"]
            assert [item["circuit"] for item in listed] == ["half_open", "closed"]
            async with await Client.to(server.listen) as client:
                await client.send(post(chat("x", stream=True)))
                await one.until(lambda: len(one.requests) == failed + 1)
                for _ in range(4):
                    answer = await ask(server, post(chat("x")))
                    assert answer.headers["x-emberline-worker"] == "w1"
                assert len(one.requests) == failed + 1
                begin.set()
                await until(lambda: worker.circuit.state == CLOSED)
                step.set()
            assert await metric(server, STATE, worker="w0") == 0


# -- many workers


def test_large_fleets_admit_recovering_workers_together() -> None:
    received: list[str] = []
    table = WorkerTable(lambda worker, what: received.append(f"{worker.id} {what}"))
    found = [made(table, f"w{index}") for index in range(SMALL_FLEET + 3)]
    for worker in found[: SMALL_FLEET + 1]:
        table.probed(worker, "", False, 3)
    assert len(table.eligible) == len(received) == SMALL_FLEET + 1, "few: each at once"
    late, lost = found[-2:]
    table.probed(late, "", False, 3)
    table.probed(lost, "", False, 3)
    table.probed(lost, "gone again", True, 3)
    assert len(received) == SMALL_FLEET + 2, "who goes is out at once"
    assert late in table.eligible, "and whoever waited comes in with any change"
    assert lost not in table.eligible
    table.tick(perf_counter())
    assert received[-2:] == [f"{lost.id} lost", f"{late.id} up"]


# -- slow start


def made(table: WorkerTable, name: str) -> Worker:
    address = Address("127.0.0.1", 1)
    worker = Worker(WorkerConfig(name, "http://127.0.0.1:1", address))
    table.add(worker)
    return worker


def test_recovering_worker_has_more_weight_for_a_while() -> None:
    table = WorkerTable(lambda _worker, _what: None)
    table.rules = HealthConfig(slow_start_s=10.0)
    old = made(table, "old")
    table.probed(old, "", False, 3)
    assert old.weight == 1.0, "the router itself is new: nobody is"
    table._began -= 10.0
    new = made(table, "new")
    table.probed(new, "", False, 3)
    assert new.weight == pytest.approx(1 / SLOW_START_SHARE)
    charges = [RequestCharge(worker, 100) for worker in (old, new)]
    assert new.load == pytest.approx(old.load / SLOW_START_SHARE)
    now = new.slow_since
    seen = []
    for second in (5.0, 9.0, 11.0):
        table.tick(now + second)
        seen.append(new.weight)
    assert seen[0] == pytest.approx(2.0, rel=0.01)
    assert sorted(seen, reverse=True) == seen
    assert new.weight == 1.0
    assert new.load == old.load
    for charge in charges:
        charge.end()
    assert (new.load, old.load) == (0.0, 0.0)


def test_without_slow_start_all_workers_weigh_alike() -> None:
    table = WorkerTable(lambda _worker, _what: None)
    table.rules = HealthConfig(slow_start_s=0)
    table._began -= 10.0
    new = made(table, "new")
    table.probed(new, "", False, 3)
    assert new.weight == 1.0


async def test_worker_in_slow_start_keeps_its_prefixes() -> None:
    """Unwell and back, it weighs more, and still gets what it has cached."""
    async with FakeWorker() as one, FakeWorker() as two:
        health = {"interval_s": 0.05, "slow_start_s": 600}
        async with router(one, two, health=health) as server:
            home = (await ask(server, post(chat("same " * 500)))).headers["x-emberline-worker"]
            fake = one if home == "w0" else two
            worker = server.router.table.workers[home]
            server.router.table._began -= 600
            fake.healthy = False
            await until(lambda: not worker.up)
            fake.healthy = True
            await until(lambda: worker.up)
            assert worker.weight > 1
            for _ in range(3):
                answer = await ask(server, post(chat("same " * 500)))
                assert answer.headers["x-emberline-worker"] == home


# -- metrics of workers

VLLM = """# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",odd="a\\"}b",engine="0",%s} 1.0
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
process_start_time_seconds %s
"""


def vllm(labels: str, started: float = 1.7e9) -> str:
    return VLLM % (labels, started)


@pytest.mark.parametrize(
    ("text", "vitals"),
    [
        (vllm('num_gpu_blocks="1000"'), Vitals(16_000, 1.7e9, 16)),
        (vllm('num_gpu_blocks="1000",kv_cache_size_tokens="15984"'), Vitals(15_984, 1.7e9, 16)),
        (vllm('num_gpu_blocks="None"'), Vitals(None, 1.7e9, 16)),
        (vllm('num_gpu_blocks="10"') * 2, Vitals(320, 1.7e9, 16)),
        (vllm(f'num_gpu_blocks="{10**14}"'), Vitals(None, 1.7e9, 16)),
        ("process_start_time_seconds soon\n", Vitals(None, None)),
        ("", Vitals(None, None)),
        ("# vllm:cache_config_info{} 1\nother 2\n", Vitals(None, None)),
        ('vllm:cache_config_info{num_gpu_blocks="2",block_size="4"} 1', Vitals(8, None, 4)),
        ("process_start_time_seconds 5", Vitals(None, 5.0)),
    ],
)
def test_worker_metrics_are_parsed(text: str, vitals: Vitals) -> None:
    assert parse_vitals(text.encode()) == vitals


async def test_cache_size_is_read_from_metrics_unless_configured(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    async with FakeWorker() as one, FakeWorker() as two:
        one.metrics = two.metrics = vllm('num_gpu_blocks="1000"')
        listed = [workers(one, two)[0], {**workers(one, two)[1], "cache_tokens": 5}]
        async with router(one, two, workers=listed, path=path) as server:
            table = server.router.table.workers
            await until(lambda: table["w0"].cache_tokens == 16_000)
            await until(lambda: table["w1"].started)
            assert table["w1"].cache_tokens == 5
            assert await metric(server, "emberline_router_worker_cache_tokens") == 16_005
            data = json.loads(path.read_text())
            data["workers"][1]["cache_tokens"] = 7
            path.write_text(json.dumps(data))
            server.reload(False)
            assert table["w1"].cache_tokens == 7


async def test_new_process_at_an_address_starts_with_an_empty_cache() -> None:
    async with FakeWorker() as one, router(one) as server:
        await ask(server, post(chat("same " * 200)))
        policy = server.router.policy
        worker = server.router.table.workers["w0"]
        server.router.roster.learn_vitals(worker, Vitals(None, 1000.0))
        server.router.roster.learn_vitals(worker, Vitals(None, 1000.5))
        server.router.roster.learn_vitals(worker, Vitals(None, None))
        assert policy.sizes()["w0"] > 0
        server.router.roster.learn_vitals(worker, Vitals(None, 2000.0))
        assert policy.sizes() == {}


async def test_health_checks_reuse_one_connection() -> None:
    async with FakeWorker() as one, router(one, health={"interval_s": 0.05}) as server:
        probes = 0
        real = one._answer

        async def counting(*arguments: object) -> None:
            nonlocal probes
            probes += 1
            await real(*arguments)  # type: ignore[arg-type]

        one._answer = counting  # type: ignore[method-assign]
        await until(lambda: probes >= 20)
        assert one.connections == 1
        # It closes between two checks: a new connection is made, and no worker is marked down.
        for writer in list(one._writers):
            writer.close()
        before = probes
        await until(lambda: probes >= before + 5)
        assert one.connections == 2
        assert server.router.table.workers["w0"].last_error == ""


async def test_configured_capacity_survives_the_loss_of_its_worker() -> None:
    async with FakeWorker() as one:
        listed = [{**workers(one)[0], "cache_tokens": 640}]
        async with router(one, workers=listed) as server:
            policy = server.router.policy
            assert isinstance(policy, PrefixAware)
            assert policy._capacities == {"w0": 640}
            await one.stop()
            await until(lambda: not server.router.table.eligible)
            assert policy._capacities == {}
            await one.start()
            await until(lambda: server.router.table.eligible)
            assert policy._capacities == {"w0": 640}


async def test_idle_connection_closed_on_use_does_not_mark_the_worker_down() -> None:
    """It answers once per connection, and closes it at the next request."""
    probes = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal probes
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        probes += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    one = [{"id": "w0", "url": f"http://127.0.0.1:{port}"}]
    async with router(workers=one, ready=1, health={"interval_s": 0.05, "fall": 1}) as server:
        await until(lambda: probes >= 8)
        assert server.router.table.workers["w0"].last_error == ""
    listener.close()

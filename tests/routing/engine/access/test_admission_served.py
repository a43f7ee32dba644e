"""Limits in a running router: responses, worker load and records."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from routing.engine.server import RouterServer
from tests.routing.engine.access.test_keys import bearer, key_file
from tests.routing.engine.harness import Client, admin, ask, chat, metric, post, router, until
from tests.support.fake_worker import Conversation, FakeWorker

ERRORS = "emberline_router_request_errors_total"
QUEUE = "emberline_router_queue_duration_seconds"


class Gate:
    """A worker's script that answers on release and records the requests in progress."""

    def __init__(self, worker: FakeWorker) -> None:
        self.worker = worker
        self.inside: list[Conversation] = []
        self.most = 0
        self._open = asyncio.Semaphore(0)
        worker.script = self._script

    async def _script(self, talk: Conversation) -> None:
        self.inside.append(talk)
        self.most = max(self.most, len(self.inside))
        await self._open.acquire()
        self.inside.remove(talk)
        await self.worker._default(talk)

    def let(self, count: int = 1) -> None:
        for _ in range(count):
            self._open.release()


async def waiting(server: RouterServer, count: int) -> None:
    await until(lambda: server.router.admission.depth == count, f"{count} waiting")


def text_of(talk: Conversation) -> str:
    return str(talk.request.json["messages"][0]["content"])


async def test_a_request_waits_for_a_slot_and_its_wait_is_recorded() -> None:
    async with FakeWorker() as worker, router(worker, admission={"max_in_flight": 1}) as server:
        gate = Gate(worker)
        first = asyncio.create_task(ask(server, post(chat("one", stream=True))))
        await until(lambda: gate.inside)
        second = asyncio.create_task(ask(server, post(chat("two", stream=True))))
        await waiting(server, 1)
        assert await metric(server, "emberline_router_queue_depth") == 1
        assert await metric(server, "emberline_router_queue_limit") == 1000
        assert len(worker.requests) == 1
        gate.let(2)
        answers = [await first, await second]
        assert [answer.status for answer in answers] == [200, 200]
        shown = [
            (await admin(server, f"/decisions/{answer.headers['x-emberline-decision']}")).json
            for answer in answers
        ]
        assert shown[0]["queued_s"] == 0
        assert 0 < shown[1]["queued_s"] <= shown[1]["ttft_s"], "the wait is part of it"
        assert await metric(server, f"{QUEUE}_count") == 2
        assert await metric(server, f"{QUEUE}_bucket", le="0.0") == 1
        assert await metric(server, "emberline_router_queue_depth") == 0


async def test_without_limits_nothing_enters_the_queue() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        assert (await ask(server, post(chat("hi")))).status == 200
        assert await metric(server, f"{QUEUE}_count") == 0
        assert await metric(server, "emberline_router_queue_limit") == 0
        assert (await admin(server, "/admission")).json["active"] is False


async def test_a_full_queue_answers_429_and_the_connection_stays() -> None:
    limits = {"max_in_flight": 1, "queue": {"depth": 1}}
    async with FakeWorker() as worker, router(worker, admission=limits) as server:
        gate = Gate(worker)
        held = [asyncio.create_task(ask(server, post(chat(f"{n}")))) for n in range(2)]
        await waiting(server, 1)
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("third")))
            answer = await client.response()
            assert (answer.status, answer.code) == (429, "queue_full")
            assert int(answer.headers["retry-after"]) >= 1
            assert "x-emberline-decision" in answer.headers
            assert await metric(server, ERRORS, reason="queue_full") == 1
            gate.let(3)
            assert [(await task).status for task in held] == [200, 200]
            await client.send(post(chat("third")))
            assert (await client.response()).status == 200


async def test_queue_timeout_returns_429() -> None:
    limits = {"max_in_flight": 1, "queue": {"timeout_s": 0.5}}
    async with FakeWorker() as worker, router(worker, admission=limits) as server:
        gate = Gate(worker)
        held = asyncio.create_task(ask(server, post(chat("one"))))
        await until(lambda: gate.inside)
        answer = await ask(server, post(chat("two")))
        assert (answer.status, answer.code) == (429, "queue_timeout")
        assert "retry-after" in answer.headers
        assert await metric(server, ERRORS, reason="queue_timeout") == 1
        gate.let()
        assert (await held).status == 200
        assert server.router.admission.in_flight == 0


async def test_a_client_which_hangs_up_leaves_the_queue_at_once() -> None:
    async with FakeWorker() as worker, router(worker, admission={"max_in_flight": 1}) as server:
        gate = Gate(worker)
        held = asyncio.create_task(ask(server, post(chat("one"))))
        await until(lambda: gate.inside)
        gone = await Client.to(server.listen)
        await gone.send(post(chat("gone")))
        await waiting(server, 1)
        last = asyncio.create_task(ask(server, post(chat("last"))))
        await waiting(server, 2)
        gone.writer.transport.abort()
        await waiting(server, 1)
        assert await metric(server, ERRORS, reason="client_cancelled") == 1
        gate.let(2)
        assert [(await held).status, (await last).status] == [200, 200]
        assert len(worker.requests) == 2, "the worker never heard of it"
        assert server.router.admission.in_flight == 0


async def test_a_waiting_upload_whose_client_hangs_up_leaves_too() -> None:
    settings: dict[str, Any] = {"admission": {"max_in_flight": 1}, "limits": {"hold_bytes": 1000}}
    async with FakeWorker() as worker, router(worker, **settings) as server:
        gate = Gate(worker)
        held = asyncio.create_task(ask(server, post(chat("one"))))
        await until(lambda: gate.inside)
        gone = await Client.to(server.listen)
        await gone.send(post(chat("x" * 100_000)))
        await waiting(server, 1)
        gone.writer.transport.abort()
        await waiting(server, 0)
        gate.let()
        assert (await held).status == 200
        assert len(worker.requests) == 1


async def test_a_waiting_upload_goes_through_whole() -> None:
    settings: dict[str, Any] = {"admission": {"max_in_flight": 1}, "limits": {"hold_bytes": 1000}}
    async with FakeWorker() as worker, router(worker, **settings) as server:
        gate = Gate(worker)
        held = asyncio.create_task(ask(server, post(chat("one"))))
        await until(lambda: gate.inside)
        body = chat("x" * 200_000)
        upload = asyncio.create_task(ask(server, post(body)))
        await waiting(server, 1)
        gate.let(2)
        assert [(await held).status, (await upload).status] == [200, 200]
        assert worker.requests[1].json == body


async def test_workers_are_never_given_more_than_their_limit() -> None:
    async with FakeWorker() as one, FakeWorker() as two:
        urls = [{"id": "w0", "url": one.url, "max_in_flight": 1}, {"id": "w1", "url": two.url}]
        limits = {"worker_max_in_flight": 2}
        async with router(workers=urls, admission=limits) as server:
            gates = [Gate(one), Gate(two)]
            requested = [asyncio.create_task(ask(server, post(chat("same")))) for _ in range(6)]
            await waiting(server, 3)
            await until(lambda: (len(gates[0].inside), len(gates[1].inside)) == (1, 2))
            for gate in gates:
                gate.let(10)
            assert {(await task).status for task in requested} == {200}
            assert [gate.most for gate in gates] == [1, 2]
            assert server.router.admission.in_flight == 0


async def test_queued_requests_are_admitted_when_a_worker_comes_up() -> None:
    async with FakeWorker() as one, FakeWorker() as two:
        two.healthy = False
        async with router(one, two, ready=1, admission={"worker_max_in_flight": 1}) as server:
            gate, other = Gate(one), Gate(two)
            requested = [asyncio.create_task(ask(server, post(chat(f"{n}")))) for n in range(2)]
            await waiting(server, 1)
            assert server._ticker is not None
            server._ticker.cancel()  # it must not need the clock
            two.healthy = True
            await until(lambda: other.inside)
            assert server.router.admission.depth == 0
            gate.let()
            other.let()
            assert {(await task).status for task in requested} == {200}


async def test_queued_requests_fail_when_no_worker_is_left() -> None:
    async with FakeWorker() as worker:
        async with router(worker, admission={"worker_max_in_flight": 1}) as server:
            gate = Gate(worker)
            requested = [asyncio.create_task(ask(server, post(chat(f"{n}")))) for n in range(4)]
            await until(lambda: gate.inside)
            await waiting(server, 3)
            await worker.stop()
            answers = [await task for task in requested]
            assert {answer.status for answer in answers} <= {502, 503}
            assert server.router.admission.in_flight == server.router.admission.depth == 0


async def test_flood_of_one_key_does_not_delay_another(tmp_path: Path) -> None:
    file = key_file(tmp_path, flood={}, quiet={})
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=file, admission={"max_in_flight": 1}) as server:
            gate = Gate(worker)
            order: list[str] = []

            async def send_request(name: str) -> None:
                await ask(server, post(chat(name), authorization=bearer(name)))
                order.append(name)

            tasks = [asyncio.create_task(send_request("flood")) for _ in range(40)]
            await waiting(server, 39)
            tasks.append(asyncio.create_task(send_request("quiet")))
            await waiting(server, 40)
            gate.let(41)
            await asyncio.gather(*tasks)
            assert order.index("quiet") <= 2
            shown = (await admin(server, "/admission")).json
            assert {entry["id"] for entry in shown["keys"]} == {"flood", "quiet"}


async def test_rates_of_keys_and_of_the_endpoint(tmp_path: Path) -> None:
    file = key_file(tmp_path, a={}, b={"limits": {"requests_per_minute": 3}})
    limits = {"requests_per_minute": 5, "per_key": {"requests_per_minute": 1}}
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=file, admission=limits) as server:
            answers = [
                await ask(server, post(chat("hi"), authorization=bearer(name))) for name in "aabbbb"
            ]
            assert [answer.status for answer in answers] == [200, 429, 200, 200, 200, 429]
            for answer in (answers[1], answers[5]):
                assert (answer.code, answer.json["error"]["type"]) == (
                    "rate_limit_exceeded",
                    "requests",
                )
            assert 50 < int(answers[1].headers["retry-after"]) <= 60
            assert 10 < int(answers[5].headers["retry-after"]) <= 20
            assert await metric(server, ERRORS, reason="key_rate_limit_requests") == 2
            assert len(worker.requests) == 4


async def test_tokens_are_charged_by_engine_usage() -> None:
    async with FakeWorker(words=900) as worker:
        async with router(worker, admission={"tokens_per_minute": 1000}) as server:
            assert (await ask(server, post(chat("hi")))).status == 200
            left = (await admin(server, "/admission")).json["tokens_left"]
            assert left < 100
            answer = await ask(server, post(chat("hi")))
            assert (answer.status, answer.json["error"]["type"]) == (429, "tokens")
            assert await metric(server, ERRORS, reason="rate_limit_tokens") == 1


async def test_limits_change_while_requests_are_queued(tmp_path: Path) -> None:
    path = tmp_path / "router.json"
    async with FakeWorker() as worker:
        async with router(worker, path=path, admission={"max_in_flight": 1}) as server:
            gate = Gate(worker)
            requested = [asyncio.create_task(ask(server, post(chat(f"{n}")))) for n in range(5)]
            await waiting(server, 4)

            def configure(**admission: Any) -> None:
                data = json.loads(path.read_text())
                data["admission"] = admission
                path.write_text(json.dumps(data))
                server.reload(True)

            configure(max_in_flight=3)
            await waiting(server, 2)
            await until(lambda: len(gate.inside) == 3)
            configure(max_in_flight=3, queue={"depth": 1})
            assert server.router.admission.depth == 1
            configure()
            await until(lambda: len(gate.inside) == 4)
            gate.let(10)
            codes = sorted([(await task).status for task in requested])
            assert codes == [200] * 4 + [429]
            assert server.router.admission.in_flight == 0


async def test_admin_paths_and_pins_skip_the_queue(tmp_path: Path) -> None:
    file = key_file(tmp_path, user={}, root={"admin": True, "pin": True})
    async with FakeWorker() as worker:
        async with router(
            worker, api_keys_file=file, open_paths=[], admission={"max_in_flight": 1}
        ) as server:
            gate = Gate(worker)
            held = asyncio.create_task(ask(server, post(chat("one"), authorization=bearer("user"))))
            await until(lambda: gate.inside)
            root = bearer("root")
            more = [
                asyncio.create_task(ask(server, post(b"", "/sleep", authorization=root))),
                asyncio.create_task(
                    ask(server, post(chat("pinned"), authorization=root, x_emberline_pin="w0"))
                ),
            ]
            await until(lambda: len(gate.inside) == 3)
            gate.let(3)
            assert {(await task).status for task in (held, *more)} == {200}
            assert server.router.admission.in_flight == 0


async def test_a_retry_keeps_its_slot() -> None:
    async with FakeWorker() as one, FakeWorker() as two:
        async with router(one, two, admission={"worker_max_in_flight": 1}) as server:

            async def die(talk: Conversation) -> None:
                talk.cut()

            one.script = die
            for number in range(6):
                assert (await ask(server, post(chat(f"{number}")))).status == 200
            assert server.router.admission.in_flight == 0


async def test_pipelined_requests_are_queued_separately() -> None:
    limits = {"max_in_flight": 1, "queue": {"depth": 2}}
    async with FakeWorker() as worker, router(worker, admission=limits) as server:
        async with await Client.to(server.listen) as client:
            await client.send(b"".join(post(chat(f"{n}")) for n in range(20)))
            for _ in range(20):
                assert (await client.response()).status == 200
        assert server.router.admission.in_flight == 0


@pytest.mark.parametrize(
    ("admission", "field"),
    [
        ({"max_in_flight": -1}, "admission.max_in_flight"),
        ({"tokens_per_minute": "many"}, "admission.tokens_per_minute"),
        ({"per_key": {"weight": 1}}, "admission.per_key.weight"),
        ({"queue": {"timeout_s": 0}}, "admission.queue.timeout_s"),
        ({"queue": 5}, "admission.queue"),
        ({"queues": {}}, "admission.queues"),
    ],
)
def test_invalid_limits_are_rejected_by_name(admission: Any, field: str) -> None:
    from routing.engine.config import ConfigError, parse

    with pytest.raises(ConfigError) as caught:
        parse({"listen": "127.0.0.1:1", "admission": admission}, Path())
    assert caught.value.field == field

"""Killed engine process of a real vLLM: its requests are retried on another worker.

The other worker is a fake, which answers at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.routing.engine.harness import ask, metric, post, router, until
from tests.support.fake_worker import FakeWorker
from tests.support.vllm.worker import Worker

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

REQUESTS = 4


@pytest.fixture
def vllm(tmp_path: Path) -> Iterator[Worker]:
    worker = Worker(
        tmp_path,
        "vllm",
        None,
        # The server outlives its engine: the hardest case for health checks.
        {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "1"},
    )
    try:
        worker.wait_ready()
        yield worker
    finally:
        worker.kill()


def engine_of(worker: Worker) -> int:
    """The process id of its engine."""
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            ours = os.getpgid(int(folder.name)) == worker.process.pid
            if ours and b"EngineCore" in (folder / "cmdline").read_bytes():
                return int(folder.name)
    raise AssertionError(f"no engine process: {worker.log.read_text()[-2000:]}")


async def test_requests_of_a_killed_engine_are_retried_elsewhere(vllm: Worker) -> None:
    engine = engine_of(vllm)
    async with FakeWorker() as other:
        entries = [{"id": "vllm", "url": vllm.url}, {"id": "other", "url": other.url}]
        async with router(workers=entries, ready=2, strategy="roundrobin") as server:
            os.kill(engine, signal.SIGSTOP)  # it can make no token: of streams only heads are out
            requests = []
            for stream in (False, True):
                body = {"model": "m", "prompt": "Once", "max_tokens": 200, "stream": stream}
                wire = post(body, "/v1/completions", content_type="application/json")
                requests += [asyncio.create_task(ask(server, wire)) for _ in range(REQUESTS * 2)]
            real = server.router.table.workers["vllm"]
            await until(lambda: real.in_flight == REQUESTS * 2)
            ring = server.router.ring
            await until(
                lambda: (
                    sum(
                        one.chosen == "vllm" and one.status == 200
                        for one in ring.newest(len(requests))
                    )
                    == REQUESTS
                ),
                "heads of streams",
            )
            os.kill(engine, signal.SIGKILL)
            answers = await asyncio.gather(*requests)
            assert [answer.status for answer in answers] == [200] * len(requests)
            assert {answer.headers["x-emberline-worker"] for answer in answers} == {"other"}
            retries = "emberline_router_retries_total"
            assert await metric(server, retries, reason="engine_died") == REQUESTS * 2
            assert real.state == "down"

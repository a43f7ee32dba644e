"""Simulated routers that share their state."""

from __future__ import annotations

from dashboards.insight.whatif.simulation.hardware import BLOCK_TOKENS, LLAMA_70B
from dashboards.insight.whatif.simulation.routers import RouterChooser, RouterSetting
from dashboards.insight.whatif.simulation.worker import FleetWorker, Job


def test_prefill_progress_reaches_all_routers_without_a_request() -> None:
    chooser = RouterChooser(RouterSetting("kvaware", routers=2, shared=True), 1, LLAMA_70B, 1)
    worker = FleetWorker(LLAMA_70B)
    chooser.observe([worker])
    job = Job(0, range(100), 100 * BLOCK_TOKENS, 50)
    chooser.choose(job, 0.0)
    worker.submit(job, 0.0)
    for _ in range(3):
        worker.advance(worker.next_at)
    reported = 3 * LLAMA_70B.step_tokens
    chooser._advance(worker.next_at)
    backlogs = {router.table.workers["w0"].backlog for router in chooser._routers}
    assert backlogs == {job.prompt_tokens - reported}

"""Background tasks of the cache proof and the calibration. Each waits within its own deadline."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


# Acknowledged early: a run may exceed the broker's redelivery timeout, and a second concurrent
# proof would warm its own cache. Three requests of 90 s and the waits between them fit into the
# limit.
@shared_task(
    base=BaseTask,
    acks_late=False,
    soft_time_limit=330,
    time_limit=345,
    name="dashboards.tasks.run_proof",
)
def run_proof(run_id: str) -> None:
    from dashboards.endpoint_runs import run_proof as run

    run(run_id)


@shared_task(
    base=BaseTask,
    acks_late=False,
    soft_time_limit=690,
    time_limit=700,
    name="dashboards.tasks.run_calibration",
)
def run_calibration(run_id: str) -> None:
    from dashboards.endpoint_runs import run_calibration as run

    run(run_id)

"""Background tasks: cache proof and calibration, each with its own deadline, and scrape targets."""

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


def _have_targets_changed() -> bool:
    from dashboards.prometheus.targets import TargetsFile

    file = TargetsFile.of_installation()
    return file is not None and not file.is_current()


@shared_task(
    base=BaseTask,
    has_work=staticmethod(_have_targets_changed),
    name="dashboards.tasks.update_targets",
)
def update_targets() -> None:
    """Write the scrape targets for the Prometheus of this machine."""
    from dashboards.prometheus.targets import TargetsFile

    file = TargetsFile.of_installation()
    if file is not None:
        file.update()

"""Ask, then judge: the one call for pages, REST and the command line."""

from __future__ import annotations

from collections.abc import Iterable

from routing.doctor.checks import CHECKS
from routing.doctor.facts import Facts
from routing.doctor.findings import Examination
from routing.doctor.inspection import Limits, Named, gather


def examine(
    endpoint: str,
    admin_url: str,
    workers: Iterable[Named] | None = None,
    limits: Limits | None = None,
) -> Examination:
    """Ends within the limits, whoever does not answer."""
    return judge(gather(endpoint, admin_url, workers, limits))


def judge(facts: Facts) -> Examination:
    """Every check on these facts."""
    return Examination(
        endpoint=facts.endpoint,
        strategy=facts.router.strategy,
        workers=tuple(worker.name for worker in facts.workers),
        seconds=facts.seconds,
        outcomes=tuple(check.made(facts) for check in CHECKS),
    )

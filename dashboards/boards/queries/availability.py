"""What is scraped, what is exported, what fires: asked once for a page, at one moment. Pure."""

from __future__ import annotations

from dashboards.boards.queries.promql import JOBS, NAME, Scope, Times, named


@named("targets_known")
def targets_known(scope: Scope, _times: Times) -> str:
    return f"count by (job) (up{_scraped(scope)})"


@named("targets_up")
def targets_up(scope: Scope, _times: Times) -> str:
    return f"sum by (job) (up{_scraped(scope)})"


def _scraped(scope: Scope) -> str:
    return scope.engines(job_re="|".join(JOBS))


def last_up(scope: Scope, jobs: tuple[str, ...]) -> str:
    """When a target of these jobs last answered, to the minute, within a day. For jobs that are
    away: over thousands of living targets it would be dear."""
    if not set(jobs) <= set(JOBS):
        raise ValueError(f"{jobs} are not among {JOBS}")
    answered = f"timestamp(up{scope.engines(job_re='|'.join(jobs))} == 1)"
    return f"max by (job) (max_over_time({answered}[1d:1m]))"


def scraped(scope: Scope) -> str:
    """How many targets, whether or not they answer."""
    return f"count(up{_scraped(scope)})"


def scraped_every(scope: Scope) -> str:
    """Seconds between two samples of a target: of half of them it is no more."""
    sampled = f"timestamp(up{_scraped(scope)})[2m:1s]"
    apart = f"(max_over_time({sampled}) - min_over_time({sampled})) / (changes({sampled}) > 0)"
    return f"quantile(0.5, {apart})"


def exported(metrics: tuple[str, ...], braces: str) -> str:
    """Which of these metrics exist now, as series with their name."""
    for metric in metrics:
        if not NAME.fullmatch(metric):
            raise ValueError(f"{metric!r} is not the name of a metric")
    names = f'{{__name__=~"{"|".join(metrics)}"'
    inside = braces.strip("{}")
    return (
        f"count by (__name__) ({names},{inside}}})"
        if inside
        else f"count by (__name__) ({names}}})"
    )


def alerts(scope: Scope) -> str:
    """Those which fire; rules give every alert the label `endpoint`."""
    return f"ALERTS{scope.router(alertstate='firing')}"


def alerts_of(name: str, scope: Scope) -> str:
    """Those of one rule, while they fire."""
    return f"ALERTS{scope.router(alertstate='firing', alertname=name)}"


def alerts_active(scope: Scope) -> str:
    """Those which fire, and those whose condition has not held for long enough."""
    return f"ALERTS{scope.router()}"


def alerts_since(scope: Scope) -> str:
    """Since when, in epoch seconds, each alert's condition has held."""
    return f"ALERTS_FOR_STATE{scope.router()}"

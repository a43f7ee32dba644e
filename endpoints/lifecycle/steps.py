"""Progress steps of an endpoint's start, rollout or deletion.

Steps follow from the same facts as the phase; their times are carried from pass to pass as ISO 8601
texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from endpoints.choices import Phase, ProgressState, ProgressStep, Stage
from endpoints.lifecycle.facts import LifecycleFacts

DONE, ACTIVE, WAITING, FAILED = (
    ProgressState.DONE,
    ProgressState.ACTIVE,
    ProgressState.WAITING,
    ProgressState.FAILED,
)


@dataclass(frozen=True, slots=True)
class StepNow:
    code: ProgressStep
    state: ProgressState
    message: str = ""


def build_steps(facts: LifecycleFacts, phase: Phase) -> tuple[StepNow, ...]:
    if facts.deleting:
        return _deletion_steps(facts)
    if facts.wanted == 0:
        return (StepNow(ProgressStep.ACCEPTED, DONE), _stop_steps(facts))
    steps = [StepNow(ProgressStep.ACCEPTED, DONE)]
    if facts.cache is not None:
        steps.append(_cache(facts))
    steps += _stage_steps(facts) if facts.staged else [_worker_start_steps(facts)]
    steps += [_ready(facts), _router(facts), *_exposure(facts), _serving(facts)]
    if phase is Phase.FAILED:
        return _with_failure(steps)
    return tuple(steps)


def merge_steps(
    before: Iterable[Mapping[str, Any]], now_at: datetime, now: Iterable[StepNow], *, anew: bool
) -> list[dict[str, Any]]:
    """Return the steps with their times. `anew`: a new generation restarts the clock."""
    old = {} if anew else {step["code"]: step for step in before}
    return [_with_times(old.get(str(step.code)), step, now_at.isoformat()) for step in now]


def _with_times(old: Mapping[str, Any] | None, step: StepNow, now: str) -> dict[str, Any]:
    same = old is not None and old["state"] == step.state
    begun = old["started_at"] if old and (same or old["state"] == ACTIVE) else ""
    started = "" if step.state is WAITING else begun or now
    ended = step.state in (DONE, FAILED)
    finished = (old["finished_at"] if old and same else now) if ended else ""
    return {
        "code": str(step.code),
        "state": str(step.state),
        "started_at": started,
        "finished_at": finished,
        "message": step.message,
    }


def _cache(facts: LifecycleFacts) -> StepNow:
    cache = facts.cache
    ready = cache is not None and cache.ready
    return StepNow(
        ProgressStep.CACHE_TIER, DONE if ready else ACTIVE, cache.message if cache else ""
    )


def _worker_start_steps(facts: LifecycleFacts) -> StepNow:
    text = f"{facts.current}/{facts.wanted}"
    if facts.cache is not None and not facts.cache.usable and not facts.workers:
        return StepNow(ProgressStep.WORKERS_STARTED, WAITING)
    state = DONE if facts.current >= facts.wanted else ACTIVE
    return StepNow(ProgressStep.WORKERS_STARTED, state, text)


_PASSED = {
    ProgressStep.SCHEDULED: Stage.PULLING,
    ProgressStep.IMAGE_PULLED: Stage.PREPARING,
    ProgressStep.PREPARED: Stage.LOADING,
    ProgressStep.LOADED: Stage.READY,
}
"""First stage after each step."""


def _stage_steps(facts: LifecycleFacts) -> list[StepNow]:
    """Return startup stages of the workers with the desired spec; the first blocked one gives the
    reason.
    """
    order = list(Stage)
    coming = [w for w in facts.living if w.current]
    stages = [order.index(Stage(w.stage)) for w in coming]
    waiting = facts.cache is not None and not facts.cache.usable and not facts.workers
    stage_steps = []
    begun = not waiting
    for step, stage in _PASSED.items():
        passed = sum(index >= order.index(stage) for index in stages)
        if passed >= facts.wanted:
            stage_steps.append(StepNow(step, DONE, f"{passed}/{facts.wanted}"))
        elif not begun:
            stage_steps.append(StepNow(step, WAITING))
        else:
            held = next((w for w in coming if w.stage == order[order.index(stage) - 1]), None)
            why = (held.message or held.reason) if held else ""
            text = f"{passed}/{facts.wanted}{f'. {why}' if why else ''}"
            stage_steps.append(StepNow(step, ACTIVE, text))
        begun = begun and passed > 0
    return stage_steps


_EXPOSURE = {"certificate": ProgressStep.CERTIFICATE_READY}


def _exposure(facts: LifecycleFacts) -> list[StepNow]:
    steps: dict[ProgressStep, StepNow] = {}
    for part in sorted(facts.exposure, key=lambda part: part.ready):
        step = next((s for word, s in _EXPOSURE.items() if word in part.name.lower()), None)
        step = step or ProgressStep.ROUTE_READY
        steps.setdefault(step, StepNow(step, DONE if part.ready else ACTIVE, part.message))
    return [steps[step] for step in ProgressStep if step in steps]


def _ready(facts: LifecycleFacts) -> StepNow:
    if facts.enough:
        return StepNow(ProgressStep.WORKERS_READY, DONE, f"{facts.wanted}/{facts.wanted}")
    state = ACTIVE if facts.workers else WAITING
    return StepNow(ProgressStep.WORKERS_READY, state, f"{facts.current_ready}/{facts.wanted}")


def _router(facts: LifecycleFacts) -> StepNow:
    absent = facts.absent
    if absent is None:
        return StepNow(ProgressStep.ROUTER_READY, DONE if facts.enough else ACTIVE)
    return StepNow(ProgressStep.ROUTER_READY, ACTIVE, absent.message)


def _serving(facts: LifecycleFacts) -> StepNow:
    if facts.proven and facts.enough:
        return StepNow(ProgressStep.SERVING, DONE)
    if facts.enough and facts.absent is None and facts.hidden is None:
        return StepNow(ProgressStep.SERVING, ACTIVE, facts.proof_error)
    return StepNow(ProgressStep.SERVING, WAITING)


def _stop_steps(facts: LifecycleFacts) -> StepNow:
    if facts.workers:
        return StepNow(ProgressStep.WORKERS_STOPPED, ACTIVE, f"{len(facts.workers)} left")
    return StepNow(ProgressStep.WORKERS_STOPPED, DONE)


def _deletion_steps(facts: LifecycleFacts) -> tuple[StepNow, ...]:
    removed = StepNow(ProgressStep.ROUTER_REMOVED, ACTIVE if facts.components_left else DONE)
    if facts.components_left:
        return (removed, StepNow(ProgressStep.WORKERS_STOPPED, WAITING))
    return (removed, _stop_steps(facts))


def _with_failure(found: list[StepNow]) -> tuple[StepNow, ...]:
    marked: list[StepNow] = []
    failed = False
    for step in found:
        if not failed and step.state is not DONE:
            failed = True
            marked.append(StepNow(step.code, FAILED, step.message))
        else:
            marked.append(StepNow(step.code, WAITING) if failed else step)
    return tuple(marked)

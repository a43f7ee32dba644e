"""Phase of an endpoint, computed from desired and observed state by a table without side effects.

`TABLE` is evaluated top down; the first row whose condition holds decides. `Ready` requires every
part to be up and a successful request through the router. Three marks carry state between passes:

    served        this generation has served a request
    served_once   some generation has, since the endpoint was created or last resumed
    proven        the present processes have served a request (required for Ready)

The first two distinguish what a missing part means:

    not served_once             first deployment: a missing part is in progress (Provisioning)
    served_once and not served  rollout: Provisioning, the old workers still serve
    served                      a missing part is a loss (Degraded)

A worker newly requested by an autoscaler is no loss: `stood` is the number of workers when all
desired ones last served, and only fewer are Degraded. Losing every worker is Degraded too, since
they are restarted. Failed means that recovery needs manual intervention: crash loop, deadline
exceeded, permanent error. The reconciler keeps observing a Failed endpoint at a low rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from endpoints.choices import Phase, PhaseReason
from endpoints.lifecycle.facts import (
    Impairment,
    LifecycleFacts,
    ObservedComponent,
    ObservedWorker,
    Trouble,
)

__all__ = [
    "TABLE",
    "Impairment",
    "LifecycleFacts",
    "ObservedComponent",
    "ObservedWorker",
    "PhaseDecision",
    "PhaseRule",
    "Trouble",
    "decide",
]


@dataclass(frozen=True, slots=True)
class PhaseDecision:
    """`remedy` "" stands for the reason's default (see remedies)."""

    phase: Phase
    reason: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class PhaseRule:
    when: Callable[[LifecycleFacts], bool]
    phase: Phase
    reason: Callable[[LifecycleFacts], str]
    message: Callable[[LifecycleFacts], str]
    remedy: Callable[[LifecycleFacts], str] = lambda _facts: ""


def decide(facts: LifecycleFacts) -> PhaseDecision:
    row = next(row for row in TABLE if row.when(facts))
    return PhaseDecision(row.phase, row.reason(facts), row.message(facts), row.remedy(facts))


def _constant(text: str) -> Callable[[LifecycleFacts], str]:
    return lambda _facts: str(text)


def _trouble_reason(facts: LifecycleFacts) -> str:
    return facts.trouble.reason if facts.trouble else ""


def _trouble_message(facts: LifecycleFacts) -> str:
    return facts.trouble.message if facts.trouble else ""


def _refused(facts: LifecycleFacts) -> bool:
    return facts.trouble is not None and facts.trouble.permanent


def _ready_of(facts: LifecycleFacts) -> str:
    return f"{facts.current_ready} of {facts.wanted} workers are ready."


def _looping(facts: LifecycleFacts) -> str:
    names = ", ".join(worker.name for worker in facts.looping)
    last = next((worker.message for worker in facts.looping if worker.message), "")
    deaths = max(worker.crashes for worker in facts.looping)
    times = f"crashed {deaths} times" if deaths else "stopped"
    return f"{names} {times} without becoming ready. {last}".strip()


def _is_scaled_by_drift(facts: LifecycleFacts) -> bool:
    """Return whether the count exceeds the spec because of drift, which is reported separately."""
    return facts.drifted is not None and facts.current_ready >= facts.wanted


def _missing_message(facts: LifecycleFacts) -> str:
    gone = facts.wanted - facts.current_ready
    if gone <= 0:
        return f"{len(facts.living)} workers are there, and {facts.wanted} are wanted."
    details = "; ".join(worker.summary for worker in facts.workers if not worker.ready)
    return f"{gone} of {facts.wanted} workers are not ready{f' ({details})' if details else ''}."


def _stuck_reason(facts: LifecycleFacts) -> str:
    if facts.stalled is not None:
        return facts.stalled.reason
    return facts.stuck.reason if facts.stuck else ""


def _stuck(facts: LifecycleFacts) -> str:
    if facts.stalled is not None:
        return f"{_ready_of(facts)} {facts.stalled.message}"
    if facts.stuck is None:
        return _ready_of(facts)
    return f"{_ready_of(facts)} {facts.stuck.name}: {facts.stuck.message or facts.stuck.reason}"


def _failed_reason(facts: LifecycleFacts) -> str:
    return facts.failed.reason if facts.failed else ""


def _failed(facts: LifecycleFacts) -> str:
    said = facts.failed.message if facts.failed else ""
    return f"{_ready_of(facts)} {said}".strip()


def _hidden(facts: LifecycleFacts) -> str:
    part = facts.hidden
    return (part.message or f"The {part.name} is not ready.") if part else ""


def _router_reason(otherwise: PhaseReason) -> Callable[[LifecycleFacts], str]:
    """Return the exposure's reason where its address is missing, else `otherwise`."""

    def reason(facts: LifecycleFacts) -> str:
        told = facts.absent.reason if facts.absent else ""
        known = (PhaseReason.PODS_UNREACHABLE, PhaseReason.ROUTER_PORT_TAKEN)
        return told if told in known else str(otherwise)

    return reason


def _absent(facts: LifecycleFacts) -> str:
    part = facts.absent
    if part is None:
        return ""
    return part.message or f"The {part.name} is not ready."


def _cache(facts: LifecycleFacts) -> str:
    return facts.cache.message if facts.cache and facts.cache.message else "L2 does not answer."


def _impaired(field: str) -> Callable[[LifecycleFacts], str]:
    return lambda facts: str(getattr(facts.impairment, field, ""))


def _updating(facts: LifecycleFacts) -> str:
    text = f"{facts.current_ready} of {facts.wanted} workers run the new revision"
    if facts.ready:
        return f"{text}; {facts.ready} serve meanwhile."
    old = "; ".join(w.summary for w in facts.living if not w.current)
    return f"{text}; none serves until the next is ready{f' ({old})' if old else ''}."


def _rolling_out(facts: LifecycleFacts) -> bool:
    return not facts.served


TABLE: tuple[PhaseRule, ...] = (
    # Deletion: the router first, so that no request reaches a stopped worker.
    PhaseRule(
        lambda f: f.deleting and f.components_left,
        Phase.DELETING,
        _constant(PhaseReason.REMOVING_ROUTER),
        _constant("The router finishes its requests and goes."),
    ),
    PhaseRule(
        lambda f: f.deleting,
        Phase.DELETING,
        _constant(PhaseReason.STOPPING_WORKERS),
        lambda f: f"{len(f.workers)} workers are stopping.",
    ),
    # Nothing observable: report that instead of the last known state.
    PhaseRule(
        lambda f: not f.observed and f.served_once,
        Phase.DEGRADED,
        _trouble_reason,
        _trouble_message,
    ),
    PhaseRule(
        lambda f: not f.observed and not _refused(f),
        Phase.PROVISIONING,
        _trouble_reason,
        _trouble_message,
    ),
    # Permanent errors.
    PhaseRule(
        lambda f: _refused(f) and f.ready > 0, Phase.DEGRADED, _trouble_reason, _trouble_message
    ),
    PhaseRule(_refused, Phase.FAILED, _trouble_reason, _trouble_message),
    # Zero replicas.
    PhaseRule(
        lambda f: f.wanted == 0 and bool(f.workers),
        Phase.PROVISIONING,
        _constant(PhaseReason.PAUSING),
        lambda f: f"{len(f.workers)} workers finish their requests and stop.",
    ),
    PhaseRule(
        lambda f: f.wanted == 0 and f.autoscaled,
        Phase.PAUSED,
        _constant(PhaseReason.SCALED_TO_ZERO),
        _constant(
            "The autoscaler wants no worker now; it wants some again as soon as a trigger says."
        ),
    ),
    PhaseRule(
        lambda f: f.wanted == 0,
        Phase.PAUSED,
        _constant(PhaseReason.PAUSED),
        _constant("No worker is wanted. The configuration is kept."),
    ),
    # Not fixed by waiting.
    PhaseRule(
        lambda f: bool(f.looping) and f.ready == 0,
        Phase.FAILED,
        _constant(PhaseReason.WORKERS_CRASH_LOOPING),
        _looping,
    ),
    PhaseRule(
        lambda f: bool(f.looping),
        Phase.DEGRADED,
        _constant(PhaseReason.WORKERS_CRASH_LOOPING),
        _looping,
    ),
    PhaseRule(
        lambda f: f.failed is not None and f.ready == 0 and not f.complete,
        Phase.FAILED,
        _failed_reason,
        _failed,
    ),
    PhaseRule(
        lambda f: f.failed is not None and not f.complete,
        Phase.DEGRADED,
        _failed_reason,
        _failed,
    ),
    PhaseRule(
        lambda f: f.overdue and not f.served and f.ready == 0,
        Phase.FAILED,
        _constant(PhaseReason.DEADLINE_EXCEEDED),
        lambda f: f"Not ready within the deadline: {_ready_of(f)}",
    ),
    PhaseRule(
        lambda f: f.overdue and not f.served,
        Phase.DEGRADED,
        _constant(PhaseReason.DEADLINE_EXCEEDED),
        lambda f: f"Not finished within the deadline: {_ready_of(f)} {_absent(f) or f.proof_error}",
    ),
    # First deployment or rollout.
    PhaseRule(
        lambda f: _rolling_out(f) and f.cache is not None and not f.cache.usable,
        Phase.PROVISIONING,
        _constant(PhaseReason.WAITING_FOR_CACHE_TIER),
        _cache,
    ),
    PhaseRule(
        lambda f: _rolling_out(f) and bool(f.draining),
        Phase.PROVISIONING,
        _constant(PhaseReason.DRAINING),
        lambda f: f"Finishing requests before they stop: {', '.join(f.draining)}.",
    ),
    PhaseRule(
        lambda f: _rolling_out(f) and bool(f.stuck or f.stalled) and not f.complete,
        Phase.PROVISIONING,
        _stuck_reason,
        _stuck,
    ),
    PhaseRule(
        lambda f: _rolling_out(f) and f.served_once and any(not w.current for w in f.living),
        Phase.PROVISIONING,
        _constant(PhaseReason.UPDATING_WORKERS),
        _updating,
    ),
    PhaseRule(
        lambda f: _rolling_out(f) and f.current < f.wanted,
        Phase.PROVISIONING,
        _constant(PhaseReason.STARTING_WORKERS),
        lambda f: f"{f.current} of {f.wanted} workers are started.",
    ),
    PhaseRule(
        lambda f: _rolling_out(f) and f.current_ready == f.wanted < len(f.living),
        Phase.PROVISIONING,
        _constant(PhaseReason.STOPPING_WORKERS),
        lambda f: f"{len(f.living) - f.wanted} workers stop; {f.wanted} serve.",
    ),
    PhaseRule(
        lambda f: _rolling_out(f) and not f.complete,
        Phase.PROVISIONING,
        _constant(PhaseReason.WAITING_FOR_WORKERS),
        _ready_of,
    ),
    PhaseRule(
        lambda f: _rolling_out(f) and f.absent is not None,
        Phase.PROVISIONING,
        _router_reason(PhaseReason.WAITING_FOR_ROUTER),
        _absent,
    ),
    PhaseRule(
        lambda f: _rolling_out(f) and f.hidden is not None,
        Phase.PROVISIONING,
        _constant(PhaseReason.EXPOSURE_UNAVAILABLE),
        _hidden,
    ),
    PhaseRule(
        _rolling_out,
        Phase.PROVISIONING,
        _constant(PhaseReason.PROVING),
        lambda f: f.proof_error or "A first request is sent through the router.",
    ),
    # Was serving: which part is missing?
    PhaseRule(
        lambda f: f.ready == 0 and f.scaling,
        Phase.PROVISIONING,
        _constant(PhaseReason.SCALING),
        _stuck,
    ),
    PhaseRule(
        lambda f: f.blocked is not None and not f.complete and not f.scaling,
        Phase.DEGRADED,
        lambda f: f.blocked.reason if f.blocked else "",
        _missing_message,
    ),
    PhaseRule(
        lambda f: f.ready == 0,
        Phase.DEGRADED,
        _constant(PhaseReason.NO_WORKER_AVAILABLE),
        _missing_message,
    ),
    PhaseRule(
        lambda f: not f.complete and f.stalled is not None,
        Phase.DEGRADED,
        _stuck_reason,
        _stuck,
    ),
    PhaseRule(
        lambda f: not f.complete and not f.scaling and not _is_scaled_by_drift(f),
        Phase.DEGRADED,
        _constant(PhaseReason.WORKER_UNAVAILABLE),
        _missing_message,
    ),
    PhaseRule(
        lambda f: f.absent is not None,
        Phase.DEGRADED,
        _router_reason(PhaseReason.ROUTER_UNAVAILABLE),
        _absent,
    ),
    PhaseRule(
        lambda f: f.hidden is not None,
        Phase.DEGRADED,
        _constant(PhaseReason.EXPOSURE_UNAVAILABLE),
        _hidden,
    ),
    PhaseRule(
        lambda f: f.complete and not f.proven,
        Phase.DEGRADED,
        _constant(PhaseReason.NOT_SERVING),
        lambda f: f.proof_error or "The workers changed; a request is sent to try them.",
    ),
    PhaseRule(
        lambda f: f.cache is not None and not f.cache.ready,
        Phase.DEGRADED,
        _constant(PhaseReason.L2_UNAVAILABLE),
        _cache,
    ),
    PhaseRule(
        lambda f: f.impairment is not None,
        Phase.DEGRADED,
        _impaired("reason"),
        _impaired("message"),
        _impaired("remedy"),
    ),
    PhaseRule(
        lambda f: f.scaling,
        Phase.READY,
        _constant(PhaseReason.SCALING),
        lambda f: (
            f"{f.current_ready} workers serve; the autoscaler wants {f.wanted}. "
            f"{f.blocked.summary if f.blocked else ''}".strip()
        ),
    ),
    PhaseRule(
        lambda _facts: True,
        Phase.READY,
        _constant(PhaseReason.SERVING),
        lambda f: f"{f.wanted} of {f.wanted} workers serve.",
    ),
)

"""Phase of an endpoint, computed from desired and observed state by a table without side effects.

`TABLE` is evaluated top down; the first row whose condition holds decides. `Ready` requires every
part to be up and a successful request through the router. Three marks carry state between passes:

    served        this generation has served a request
    served_once   some generation has, since the endpoint was created or last resumed
    proven        the present processes have served a request (required for Ready)

The first two distinguish what a missing part means:

    not served_once             first deployment: a missing part is in progress (Provisioning)
    served_once and not served  rollout: Updating, the old workers still serve
    served                      a missing part is a loss (Degraded)

The latter two are Unavailable while no worker serves. A worker newly requested by an autoscaler is
no loss: `stood` is the number of workers when all desired ones last served, and only fewer are
Degraded. Failed means that recovery needs manual intervention: crash loop, deadline exceeded,
permanent error. The reconciler keeps observing a Failed endpoint at a low rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from endpoints.choices import Phase, PhaseReason
from endpoints.lifecycle.facts import LifecycleFacts, count_workers

Condition = Callable[[LifecycleFacts], bool]
Text = Callable[[LifecycleFacts], str]


@dataclass(frozen=True, slots=True)
class PhaseDecision:
    """Phase of an endpoint with its reason. `remedy` "" stands for the reason's default (see
    remedies).
    """

    phase: Phase
    reason: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class PhaseRule:
    when: Condition
    phase: Phase
    reason: Text
    message: Text
    remedy: Text = lambda _facts: ""


def decide(facts: LifecycleFacts) -> PhaseDecision:
    row = next(row for row in TABLE if row.when(facts))
    phase = _by_service(row.phase, facts)
    return PhaseDecision(phase, row.reason(facts), row.message(facts), row.remedy(facts))


def _by_service(phase: Phase, facts: LifecycleFacts) -> Phase:
    """Return the row's phase, or what it is called for callers of an endpoint that served once."""
    incomplete = phase in (Phase.PROVISIONING, Phase.DEGRADED)
    if not incomplete or not facts.served_once or not facts.observed or facts.scaling:
        return phase
    if not facts.ready:
        return Phase.UNAVAILABLE
    return Phase.UPDATING if phase is Phase.PROVISIONING else phase


def _of(part: str, field: str) -> Text:
    """Return the text of a part of the facts, "" without that part."""
    return lambda facts: str(getattr(getattr(facts, part), field, ""))


def _refused(facts: LifecycleFacts) -> bool:
    return facts.trouble is not None and facts.trouble.permanent


def _ready_of(facts: LifecycleFacts) -> str:
    previous = sum(worker.ready and not worker.current for worker in facts.living)
    if previous:
        text = f"{facts.current_ready}/{facts.wanted} updated workers ready"
        return f"{text}; {count_workers(previous)} of the previous revision serving."
    return f"{facts.current_ready}/{facts.wanted} workers ready."


def _stopping(facts: LifecycleFacts) -> str:
    return f"{count_workers(len(facts.workers))} finishing requests before stopping."


def _looping(facts: LifecycleFacts) -> str:
    names = ", ".join(worker.name for worker in facts.looping)
    last = next((worker.message for worker in facts.looping if worker.message), "")
    crashes = max(worker.crashes for worker in facts.looping)
    times = f"{crashes} time{'' if crashes == 1 else 's'}"
    what = f"crashed {times}" if crashes else "stopped"
    return f"{names} {what} before becoming ready. {last}".strip()


def _is_scaled_by_drift(facts: LifecycleFacts) -> bool:
    """Return whether somebody else set another count: nothing restarts what is missing."""
    healthy = all(worker.ready for worker in facts.living)
    return facts.scaled_by_drift and healthy and not facts.enough


def _serving(facts: LifecycleFacts) -> str:
    text = f"{facts.wanted}/{facts.wanted} workers ready."
    more = len(facts.living) - facts.wanted
    if more <= 0:
        return text
    previous = sum(not worker.current for worker in facts.living)
    of = " of the previous revision" if previous else ""
    return f"{text} {count_workers(more)}{of} stopping."


def _missing_message(facts: LifecycleFacts) -> str:
    gone = facts.wanted - facts.current_ready
    details = "; ".join(worker.summary.rstrip(".") for worker in facts.workers if not worker.ready)
    return f"{gone}/{facts.wanted} workers not ready{f' ({details})' if details else ''}."


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


def _failed(facts: LifecycleFacts) -> str:
    message = facts.failed.message if facts.failed else ""
    return f"{_ready_of(facts)} {message}".strip()


def _hidden(facts: LifecycleFacts) -> str:
    part = facts.hidden
    return (part.message or f"The {part.name} is not ready.") if part else ""


def _router_reason(otherwise: PhaseReason) -> Text:
    """Return the exposure's reason where its address is missing, else `otherwise`."""

    def reason(facts: LifecycleFacts) -> str:
        absence = facts.absent.reason if facts.absent else ""
        named_reasons = (PhaseReason.PODS_UNREACHABLE, PhaseReason.ROUTER_PORT_TAKEN)
        return absence if absence in named_reasons else str(otherwise)

    return reason


def _absent(facts: LifecycleFacts) -> str:
    part = facts.absent
    if part is None:
        return ""
    return part.message or f"The {part.name} is not ready."


def _cache(facts: LifecycleFacts) -> str:
    return facts.cache.message if facts.cache and facts.cache.message else "L2 is unreachable."


def _updating(facts: LifecycleFacts) -> str:
    text = f"{facts.current_ready}/{facts.wanted} workers updated"
    if facts.ready:
        return f"{text}; {facts.ready} serving during the update."
    old = "; ".join(w.summary for w in facts.living if not w.current)
    return f"{text}; none serves until the next one is ready{f' ({old})' if old else ''}."


def _rule(
    phase: Phase, when: Condition, reason: str | Text, message: str | Text, remedy: str | Text = ""
) -> PhaseRule:
    texts = (
        (lambda _facts, text=text: str(text)) if isinstance(text, str) else text
        for text in (reason, message, remedy)
    )
    return PhaseRule(when, phase, *texts)


def _rollout(when: Condition, reason: str | Text, message: str | Text) -> PhaseRule:
    """Return the row of a first deployment or rollout."""
    return _provisioning(lambda facts: not facts.served and when(facts), reason, message)


_deleting = partial(_rule, Phase.DELETING)
_provisioning = partial(_rule, Phase.PROVISIONING)
_pausing = partial(_rule, Phase.PAUSING)
_paused = partial(_rule, Phase.PAUSED)
_degraded = partial(_rule, Phase.DEGRADED)
_broken = partial(_rule, Phase.FAILED)
_ready = partial(_rule, Phase.READY)

_TROUBLE = _of("trouble", "reason"), _of("trouble", "message")
_FAILURE = _of("failed", "reason"), _failed
_STUCK = _stuck_reason, _stuck

TABLE: tuple[PhaseRule, ...] = (
    # Deletion: the router first, so that no request reaches a stopped worker.
    _deleting(
        lambda f: f.deleting and f.components_left,
        PhaseReason.REMOVING_ROUTER,
        "The router finishes its requests, then is removed.",
    ),
    _deleting(
        lambda f: f.deleting,
        PhaseReason.STOPPING_WORKERS,
        lambda f: f"{count_workers(len(f.workers))} stopping.",
    ),
    # Nothing observable: report that instead of the last known state.
    _degraded(lambda f: not f.observed and f.served_once, *_TROUBLE),
    _provisioning(lambda f: not f.observed and not _refused(f), *_TROUBLE),
    # Permanent errors.
    _degraded(lambda f: _refused(f) and f.ready > 0, *_TROUBLE),
    _broken(_refused, *_TROUBLE),
    # Zero replicas.
    _pausing(
        lambda f: f.wanted == 0 and bool(f.workers) and f.autoscaled,
        PhaseReason.SCALING,
        lambda f: f"The autoscaler scales to 0 workers. {_stopping(f)}",
    ),
    _pausing(
        lambda f: f.wanted == 0 and bool(f.workers),
        PhaseReason.PAUSING,
        lambda f: f"New requests are rejected. {_stopping(f)}",
    ),
    _paused(
        lambda f: f.wanted == 0 and f.autoscaled,
        PhaseReason.SCALED_TO_ZERO,
        "The autoscaler scaled to 0 workers. It starts workers when a trigger fires.",
    ),
    _paused(
        lambda f: f.wanted == 0,
        PhaseReason.PAUSED,
        "Scaled to 0 workers; requests are rejected. The configuration is kept.",
    ),
    # Not fixed by waiting.
    _broken(
        lambda f: bool(f.looping) and f.ready == 0, PhaseReason.WORKERS_CRASH_LOOPING, _looping
    ),
    _degraded(lambda f: bool(f.looping), PhaseReason.WORKERS_CRASH_LOOPING, _looping),
    _broken(lambda f: f.failed is not None and f.ready == 0 and not f.complete, *_FAILURE),
    _degraded(lambda f: f.failed is not None and not f.complete, *_FAILURE),
    _broken(
        lambda f: f.overdue and not f.served and f.ready == 0,
        PhaseReason.DEADLINE_EXCEEDED,
        lambda f: f"Rollout deadline exceeded: {_ready_of(f)}",
    ),
    _degraded(
        lambda f: f.overdue and not f.served,
        PhaseReason.DEADLINE_EXCEEDED,
        lambda f: (
            f"Rollout deadline exceeded: {_ready_of(f)} {_absent(f) or f.proof_error}".strip()
        ),
    ),
    # First deployment or rollout.
    _rollout(
        lambda f: f.cache is not None and not f.cache.usable,
        PhaseReason.WAITING_FOR_CACHE_TIER,
        _cache,
    ),
    _rollout(
        lambda f: bool(f.draining),
        PhaseReason.DRAINING,
        lambda f: f"Draining: {', '.join(f.draining)}.",
    ),
    _rollout(lambda f: bool(f.stuck or f.stalled) and not f.complete, *_STUCK),
    _rollout(
        lambda f: f.served_once and any(not w.current for w in f.living),
        PhaseReason.UPDATING_WORKERS,
        _updating,
    ),
    _rollout(
        lambda f: f.current < f.wanted,
        PhaseReason.STARTING_WORKERS,
        lambda f: f"{f.current}/{f.wanted} workers started.",
    ),
    _rollout(
        lambda f: f.current_ready == f.wanted < len(f.living),
        PhaseReason.STOPPING_WORKERS,
        lambda f: f"{count_workers(len(f.living) - f.wanted)} stopping; {f.wanted} serving.",
    ),
    _rollout(lambda f: not f.complete, PhaseReason.WAITING_FOR_WORKERS, _ready_of),
    _rollout(
        lambda f: f.absent is not None, _router_reason(PhaseReason.WAITING_FOR_ROUTER), _absent
    ),
    _rollout(lambda f: f.hidden is not None, PhaseReason.EXPOSURE_UNAVAILABLE, _hidden),
    _rollout(
        lambda _facts: True,
        PhaseReason.PROVING,
        lambda f: f.proof_error or "Sending a test request through the router.",
    ),
    # Was serving: which part is missing?
    _provisioning(lambda f: f.ready == 0 and f.scaling, PhaseReason.SCALING, _stuck),
    _degraded(
        lambda f: f.blocked is not None and not f.complete and not f.scaling,
        _of("blocked", "reason"),
        _missing_message,
    ),
    _degraded(
        _is_scaled_by_drift,
        PhaseReason.DRIFTED,
        lambda f: f"{_ready_of(f)} {f.drifted.message if f.drifted else ''}".strip(),
        _of("drifted", "remedy"),
    ),
    _degraded(lambda f: f.ready == 0, PhaseReason.NO_WORKER_AVAILABLE, _missing_message),
    _degraded(lambda f: not f.complete and f.stalled is not None, *_STUCK),
    _degraded(
        lambda f: not f.enough and not f.scaling, PhaseReason.WORKER_UNAVAILABLE, _missing_message
    ),
    _degraded(
        lambda f: f.absent is not None, _router_reason(PhaseReason.ROUTER_UNAVAILABLE), _absent
    ),
    _degraded(lambda f: f.hidden is not None, PhaseReason.EXPOSURE_UNAVAILABLE, _hidden),
    _degraded(
        lambda f: f.enough and not f.proven,
        PhaseReason.NOT_SERVING,
        lambda f: f.proof_error or "The workers changed; a test request is pending.",
    ),
    _degraded(
        lambda f: f.cache is not None and not f.cache.ready, PhaseReason.L2_UNAVAILABLE, _cache
    ),
    _degraded(
        lambda f: f.impairment is not None,
        _of("impairment", "reason"),
        _of("impairment", "message"),
        _of("impairment", "remedy"),
    ),
    _ready(
        lambda f: f.scaling,
        PhaseReason.SCALING,
        lambda f: (
            f"{count_workers(f.current_ready)} serving; the autoscaler desires {f.wanted}. "
            f"{f.blocked.summary if f.blocked else ''}".strip()
        ),
    ),
    _ready(lambda _facts: True, PhaseReason.SERVING, _serving),
)

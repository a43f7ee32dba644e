"""The phase of an endpoint, from what is wanted and what is seen: a table without side effects.

Promises that the same facts always give the same phase, reason and steps, and that `Ready` is said
only of an endpoint whose every part stands and which has answered a request. Must not know Django,
the database, the clock or how anything is run.

Theory of operation. `TABLE` is read from the top; the first row whose condition holds decides. Two
marks carry what earlier passes have learnt:

    served        this generation has answered a request
    served_once   some generation has, since the endpoint was created or last paused

They tell apart three lives, in which the same gap means different things (a third mark, `proven`,
says that the processes which run now have answered: Ready needs it, also after a restart):

    not served_once             first deployment: a missing part is work in progress (Provisioning)
    served_once and not served  a change rolls out: Provisioning, the old workers still serve
    served                      it stood before: a missing part is a loss (Degraded)

A worker which an autoscaler has just asked for is no loss: `stood` says how many served when last
all wanted ones did, and only fewer than that are Degraded.

A loss of everything that serves is still Degraded, since the parts are supervised and come back.
Failed means that coming back is not to be expected without a person: workers which die again and
again, a deadline passed, a refusal that will repeat. The reconciler goes on looking at a Failed
endpoint, slowly; when its parts stand after all, the table says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from endpoints.choices import Phase, Reason
from endpoints.lifecycle.facts import Facts, Impairment, PartSeen, Trouble, WorkerSeen

__all__ = [
    "TABLE",
    "Facts",
    "Impairment",
    "PartSeen",
    "Row",
    "Trouble",
    "Verdict",
    "WorkerSeen",
    "decide",
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`remedy` is "" where the reason's own is meant (see remedies)."""

    phase: Phase
    reason: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    when: Callable[[Facts], bool]
    phase: Phase
    reason: Callable[[Facts], str]
    message: Callable[[Facts], str]
    remedy: Callable[[Facts], str] = lambda _facts: ""


def decide(facts: Facts) -> Verdict:
    """What to say of an endpoint."""
    row = next(row for row in TABLE if row.when(facts))
    return Verdict(row.phase, row.reason(facts), row.message(facts), row.remedy(facts))


def _says(text: str) -> Callable[[Facts], str]:
    return lambda _facts: str(text)


def _trouble_reason(facts: Facts) -> str:
    return facts.trouble.reason if facts.trouble else ""


def _trouble_message(facts: Facts) -> str:
    return facts.trouble.message if facts.trouble else ""


def _refused(facts: Facts) -> bool:
    return facts.trouble is not None and facts.trouble.permanent


def _ready_of(facts: Facts) -> str:
    return f"{facts.current_ready} of {facts.wanted} workers are ready."


def _looping(facts: Facts) -> str:
    names = ", ".join(worker.name for worker in facts.looping)
    last = next((worker.message for worker in facts.looping if worker.message), "")
    deaths = max(worker.crashes for worker in facts.looping)
    times = f"crashed {deaths} times" if deaths else "stopped"
    return f"{names} {times} without becoming ready. {last}".strip()


def _more_by_drift(facts: Facts) -> bool:
    """Nothing is missing: somebody else wants more of them, and is named as drift."""
    return facts.drifted is not None and facts.current_ready >= facts.wanted


def _away(facts: Facts) -> str:
    gone = facts.wanted - facts.current_ready
    if gone <= 0:
        return f"{len(facts.living)} workers are there, and {facts.wanted} are wanted."
    details = "; ".join(worker.summary for worker in facts.workers if not worker.ready)
    return f"{gone} of {facts.wanted} workers are not ready{f' ({details})' if details else ''}."


def _stuck_reason(facts: Facts) -> str:
    if facts.stalled is not None:
        return facts.stalled.reason
    return facts.stuck.reason if facts.stuck else ""


def _stuck(facts: Facts) -> str:
    if facts.stalled is not None:
        return f"{_ready_of(facts)} {facts.stalled.message}"
    if facts.stuck is None:
        return _ready_of(facts)
    return f"{_ready_of(facts)} {facts.stuck.name}: {facts.stuck.message or facts.stuck.reason}"


def _failed_reason(facts: Facts) -> str:
    return facts.failed.reason if facts.failed else ""


def _failed(facts: Facts) -> str:
    said = facts.failed.message if facts.failed else ""
    return f"{_ready_of(facts)} {said}".strip()


def _hidden(facts: Facts) -> str:
    part = facts.hidden
    return (part.message or f"The {part.name} is not ready.") if part else ""


def _router_reason(otherwise: Reason) -> Callable[[Facts], str]:
    """Where no address can be reached or had, that is what has to be fixed, not the router."""

    def reason(facts: Facts) -> str:
        told = facts.absent.reason if facts.absent else ""
        known = (Reason.PODS_UNREACHABLE, Reason.ROUTER_PORT_TAKEN)
        return told if told in known else str(otherwise)

    return reason


def _absent(facts: Facts) -> str:
    part = facts.absent
    if part is None:
        return ""
    return part.message or f"The {part.name} is not ready."


def _cache(facts: Facts) -> str:
    return facts.cache.message if facts.cache and facts.cache.message else "L2 does not answer."


def _impaired(field: str) -> Callable[[Facts], str]:
    return lambda facts: str(getattr(facts.impairment, field, ""))


def _updating(facts: Facts) -> str:
    text = f"{facts.current_ready} of {facts.wanted} workers run the new revision"
    if facts.ready:
        return f"{text}; {facts.ready} serve meanwhile."
    old = "; ".join(w.summary for w in facts.living if not w.current)
    return f"{text}; none serves until the next is ready{f' ({old})' if old else ''}."


def _rolling_out(facts: Facts) -> bool:
    return not facts.served


TABLE: tuple[Row, ...] = (
    # Going away: the router first, so that no caller meets a worker that is gone.
    Row(
        lambda f: f.deleting and f.components_left,
        Phase.DELETING,
        _says(Reason.REMOVING_ROUTER),
        _says("The router finishes its requests and goes."),
    ),
    Row(
        lambda f: f.deleting,
        Phase.DELETING,
        _says(Reason.STOPPING_WORKERS),
        lambda f: f"{len(f.workers)} workers are stopping.",
    ),
    # Nothing could be looked at: say so rather than repeat what was true before.
    Row(
        lambda f: not f.observed and f.served_once,
        Phase.DEGRADED,
        _trouble_reason,
        _trouble_message,
    ),
    Row(
        lambda f: not f.observed and not _refused(f),
        Phase.PROVISIONING,
        _trouble_reason,
        _trouble_message,
    ),
    # Refused in a way that will repeat.
    Row(lambda f: _refused(f) and f.ready > 0, Phase.DEGRADED, _trouble_reason, _trouble_message),
    Row(_refused, Phase.FAILED, _trouble_reason, _trouble_message),
    # No worker wanted.
    Row(
        lambda f: f.wanted == 0 and bool(f.workers),
        Phase.PROVISIONING,
        _says(Reason.PAUSING),
        lambda f: f"{len(f.workers)} workers finish their requests and stop.",
    ),
    Row(
        lambda f: f.wanted == 0 and f.autoscaled,
        Phase.PAUSED,
        _says(Reason.SCALED_TO_ZERO),
        _says("The autoscaler wants no worker now; it wants some again as soon as a trigger says."),
    ),
    Row(
        lambda f: f.wanted == 0,
        Phase.PAUSED,
        _says(Reason.PAUSED),
        _says("No worker is wanted. The configuration is kept."),
    ),
    # Not to be mended by waiting.
    Row(
        lambda f: bool(f.looping) and f.ready == 0,
        Phase.FAILED,
        _says(Reason.WORKERS_CRASH_LOOPING),
        _looping,
    ),
    Row(
        lambda f: bool(f.looping),
        Phase.DEGRADED,
        _says(Reason.WORKERS_CRASH_LOOPING),
        _looping,
    ),
    Row(
        lambda f: f.failed is not None and f.ready == 0 and not f.complete,
        Phase.FAILED,
        _failed_reason,
        _failed,
    ),
    Row(
        lambda f: f.failed is not None and not f.complete,
        Phase.DEGRADED,
        _failed_reason,
        _failed,
    ),
    Row(
        lambda f: f.overdue and not f.served and f.ready == 0,
        Phase.FAILED,
        _says(Reason.DEADLINE_EXCEEDED),
        lambda f: f"Not ready within the deadline: {_ready_of(f)}",
    ),
    Row(
        lambda f: f.overdue and not f.served,
        Phase.DEGRADED,
        _says(Reason.DEADLINE_EXCEEDED),
        lambda f: f"Not finished within the deadline: {_ready_of(f)} {_absent(f) or f.proof_error}",
    ),
    # On the way up: the first deployment, or a change.
    Row(
        lambda f: _rolling_out(f) and f.cache is not None and not f.cache.usable,
        Phase.PROVISIONING,
        _says(Reason.WAITING_FOR_CACHE_TIER),
        _cache,
    ),
    Row(
        lambda f: _rolling_out(f) and bool(f.draining),
        Phase.PROVISIONING,
        _says(Reason.DRAINING),
        lambda f: f"Finishing requests before they stop: {', '.join(f.draining)}.",
    ),
    Row(
        lambda f: _rolling_out(f) and bool(f.stuck or f.stalled) and not f.complete,
        Phase.PROVISIONING,
        _stuck_reason,
        _stuck,
    ),
    Row(
        lambda f: _rolling_out(f) and f.served_once and any(not w.current for w in f.living),
        Phase.PROVISIONING,
        _says(Reason.UPDATING_WORKERS),
        _updating,
    ),
    Row(
        lambda f: _rolling_out(f) and f.current < f.wanted,
        Phase.PROVISIONING,
        _says(Reason.STARTING_WORKERS),
        lambda f: f"{f.current} of {f.wanted} workers are started.",
    ),
    Row(
        lambda f: _rolling_out(f) and f.current_ready == f.wanted < len(f.living),
        Phase.PROVISIONING,
        _says(Reason.STOPPING_WORKERS),
        lambda f: f"{len(f.living) - f.wanted} workers stop; {f.wanted} serve.",
    ),
    Row(
        lambda f: _rolling_out(f) and not f.complete,
        Phase.PROVISIONING,
        _says(Reason.WAITING_FOR_WORKERS),
        _ready_of,
    ),
    Row(
        lambda f: _rolling_out(f) and f.absent is not None,
        Phase.PROVISIONING,
        _router_reason(Reason.WAITING_FOR_ROUTER),
        _absent,
    ),
    Row(
        lambda f: _rolling_out(f) and f.hidden is not None,
        Phase.PROVISIONING,
        _says(Reason.EXPOSURE_UNAVAILABLE),
        _hidden,
    ),
    Row(
        _rolling_out,
        Phase.PROVISIONING,
        _says(Reason.PROVING),
        lambda f: f.proof_error or "A first request is sent through the router.",
    ),
    # It stood before: what is away now?
    Row(lambda f: f.ready == 0 and f.scaling, Phase.PROVISIONING, _says(Reason.SCALING), _stuck),
    Row(
        lambda f: f.blocked is not None and not f.complete and not f.scaling,
        Phase.DEGRADED,
        lambda f: f.blocked.reason if f.blocked else "",
        _away,
    ),
    Row(lambda f: f.ready == 0, Phase.DEGRADED, _says(Reason.NO_WORKER_AVAILABLE), _away),
    Row(
        lambda f: not f.complete and f.stalled is not None,
        Phase.DEGRADED,
        _stuck_reason,
        _stuck,
    ),
    Row(
        lambda f: not f.complete and not f.scaling and not _more_by_drift(f),
        Phase.DEGRADED,
        _says(Reason.WORKER_UNAVAILABLE),
        _away,
    ),
    Row(
        lambda f: f.absent is not None,
        Phase.DEGRADED,
        _router_reason(Reason.ROUTER_UNAVAILABLE),
        _absent,
    ),
    Row(
        lambda f: f.hidden is not None,
        Phase.DEGRADED,
        _says(Reason.EXPOSURE_UNAVAILABLE),
        _hidden,
    ),
    Row(
        lambda f: f.complete and not f.proven,
        Phase.DEGRADED,
        _says(Reason.NOT_SERVING),
        lambda f: f.proof_error or "The workers changed; a request is sent to try them.",
    ),
    Row(
        lambda f: f.cache is not None and not f.cache.ready,
        Phase.DEGRADED,
        _says(Reason.L2_UNAVAILABLE),
        _cache,
    ),
    Row(
        lambda f: f.impairment is not None,
        Phase.DEGRADED,
        _impaired("reason"),
        _impaired("message"),
        _impaired("remedy"),
    ),
    Row(
        lambda f: f.scaling,
        Phase.READY,
        _says(Reason.SCALING),
        lambda f: (
            f"{f.current_ready} workers serve; the autoscaler wants {f.wanted}. "
            f"{f.blocked.summary if f.blocked else ''}".strip()
        ),
    ),
    Row(
        lambda _facts: True,
        Phase.READY,
        _says(Reason.SERVING),
        lambda f: f"{f.wanted} of {f.wanted} workers serve.",
    ),
)

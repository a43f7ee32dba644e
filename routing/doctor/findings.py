"""Doctor checks, their preconditions and findings: passed, failed or skipped.

Codes are stable (used by API, alerts and scripts); skipped checks never count as passed. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from routing.doctor.facts import FleetFacts, Statement, WorkerFacts


class Severity(StrEnum):
    """Severity of a finding. `error`: broken. `warning`: degraded. `info`: no action needed."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


_ORDER = tuple(Severity)


class CheckState(StrEnum):
    PASSED = "passed"
    FOUND = "found"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """Problem found by a check, with `evidence` lines and `fix`; `code` is the check's."""

    severity: Severity
    what: str
    fix: str
    evidence: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    code: str = ""

    def data(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": str(self.severity),
            "what": self.what,
            "evidence": list(self.evidence),
            "fix": self.fix,
            "workers": list(self.workers),
        }


def worker_finding(
    severity: Severity, what: str, fix: str, reasons: Mapping[str, object]
) -> Iterator[DoctorFinding]:
    """Yield one finding with the reason of each worker; none without workers."""
    if reasons:
        lines = tuple(f"{name}: {why}" for name, why in reasons.items())
        yield DoctorFinding(severity, what, fix, lines, tuple(reasons))


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One check. `skip` returns why it cannot run, "" if it can. `kv` checks matter to kvaware only
    and are reduced to info under other strategies.
    """

    code: str
    title: str
    run: CheckFunction
    skip: Callable[[FleetFacts], str]
    kv: bool = True

    def made(self, facts: FleetFacts) -> CheckOutcome:
        why = self.skip(facts)
        if why:
            return CheckOutcome(self.code, self.title, CheckState.SKIPPED, why)
        coded = tuple(replace(finding, code=self.code) for finding in self.run(facts))
        if self.kv and facts.router.strategy != KVAWARE:
            coded = tuple(replace(finding, severity=Severity.INFO) for finding in coded)
        return CheckOutcome(
            self.code, self.title, CheckState.FOUND if coded else CheckState.PASSED, "", coded
        )


KVAWARE = "kvaware"


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    code: str
    title: str
    state: CheckState
    why: str = ""
    findings: tuple[DoctorFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class Examination:
    """Results of all checks; `seconds` is the time spent gathering facts."""

    endpoint: str
    strategy: str
    workers: tuple[str, ...]
    seconds: float
    outcomes: tuple[CheckOutcome, ...]

    @property
    def findings(self) -> tuple[DoctorFinding, ...]:
        """Return findings, most severe first."""
        findings_found = [finding for outcome in self.outcomes for finding in outcome.findings]
        return tuple(sorted(findings_found, key=lambda finding: _ORDER.index(finding.severity)))

    @property
    def passed(self) -> tuple[CheckOutcome, ...]:
        return tuple(o for o in self.outcomes if o.state is CheckState.PASSED)

    @property
    def skipped(self) -> tuple[CheckOutcome, ...]:
        return tuple(o for o in self.outcomes if o.state is CheckState.SKIPPED)

    @property
    def worst(self) -> Severity | None:
        return next((finding.severity for finding in self.findings), None)

    @property
    def exit_code(self) -> int:
        """Return 0 without problems, 1 for warnings, 2 for errors."""
        return {Severity.ERROR: 2, Severity.WARNING: 1}.get(self.worst or Severity.INFO, 0)

    def data(self) -> dict[str, Any]:
        return {
            "endpoint": self.endpoint,
            "strategy": self.strategy,
            "workers": list(self.workers),
            "verdict": str(self.worst or "ok"),
            "seconds": round(self.seconds, 3),
            "findings": [finding.data() for finding in self.findings],
            "checks": [
                {"code": o.code, "title": o.title, "state": str(o.state), "why": o.why}
                for o in self.outcomes
            ],
        }


def groups(values: Iterable[tuple[str, Any]]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield (value, names) groups, largest first, ties in order of appearance."""
    names_by_value: dict[Any, list[str]] = {}
    for name, value in values:
        names_by_value.setdefault(value, []).append(name)
    for value, names in sorted(names_by_value.items(), key=lambda item: -len(item[1])):
        yield value, tuple(names)


def always_runs(_facts: FleetFacts) -> str:
    return ""


def require_router(facts: FleetFacts) -> str:
    return "The router did not respond." if facts.router.error else ""


def require_kvaware(facts: FleetFacts) -> str:
    """Require that the router uses the KV index."""
    if facts.router.error:
        return require_router(facts)
    if facts.router.strategy != KVAWARE:
        return f"Strategy {facts.router.strategy} uses no KV index."
    if facts.router.kv is None:
        return f"The router reports no KV index. {facts.router.kv_error}".rstrip()
    return ""


def require_workers(facts: FleetFacts) -> str:
    if not facts.workers:
        return "No workers."
    return "" if any(worker.answers for worker in facts.workers) else "No worker responded."


def _require_known(
    part: Callable[[WorkerFacts], Statement[Any]], count: int, why_not: str
) -> Callable[[FleetFacts], str]:
    """Return a precondition that so many workers reported this part."""

    def skip(facts: FleetFacts) -> str:
        known_count = sum(part(worker).found is not None for worker in facts.workers)
        return require_workers(facts) or ("" if known_count >= count else why_not)

    return skip


def require_two(part: Callable[[WorkerFacts], Statement[Any]]) -> Callable[[FleetFacts], str]:
    return _require_known(part, 2, "Fewer than two workers to compare.")


def require_one(
    part: Callable[[WorkerFacts], Statement[Any]], what: str
) -> Callable[[FleetFacts], str]:
    return _require_known(part, 1, f"No worker reported {what}.")


CheckFunction = Callable[[FleetFacts], Iterable[DoctorFinding]]


def doctor_check(
    code: str, title: str, skip: Callable[[FleetFacts], str] = require_kvaware, *, kv: bool = True
) -> Callable[[CheckFunction], DoctorCheck]:
    """Return a decorator that makes a check of a function."""
    return lambda run: DoctorCheck(code, title, run, skip, kv)

"""What an examination says: of each check whether it passed, found something or could not be made.

Promises stable codes (the API, alerts and people's scripts know them), and that a check which could
not be made is never counted as passed. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from routing.doctor.facts import FleetFacts


class Severity(StrEnum):
    """`error`: it does not work. `warning`: it works worse. `info`: worth knowing, nothing more."""

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
    """`what` is wrong, in a sentence; `evidence`: what was seen, a line each; `fix`: what to do.
    `code` is its check's, set when it is found."""

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


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """`skip` says why the check cannot be made with these facts, "" if it can. `kv`: it matters to
    kvaware alone, and is worth no more than a note while another strategy is in force."""

    code: str
    title: str
    look: Callable[[FleetFacts], Iterable[DoctorFinding]]
    skip: Callable[[FleetFacts], str]
    kv: bool = True

    def made(self, facts: FleetFacts) -> CheckOutcome:
        why = self.skip(facts)
        if why:
            return CheckOutcome(self.code, self.title, CheckState.SKIPPED, why)
        found = tuple(replace(one, code=self.code) for one in self.look(facts))
        if self.kv and facts.router.strategy != KVAWARE:
            found = tuple(replace(one, severity=Severity.INFO) for one in found)
        return CheckOutcome(
            self.code, self.title, CheckState.FOUND if found else CheckState.PASSED, "", found
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
    """`seconds`: how long the questions took."""

    endpoint: str
    strategy: str
    workers: tuple[str, ...]
    seconds: float
    outcomes: tuple[CheckOutcome, ...]

    @property
    def findings(self) -> tuple[DoctorFinding, ...]:
        """The worst first."""
        found = [finding for outcome in self.outcomes for finding in outcome.findings]
        return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.severity)))

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
        """0: nothing that must be mended. 1: warnings. 2: errors."""
        return {Severity.ERROR: 2, Severity.WARNING: 1}.get(self.worst or Severity.INFO, 0)

    def data(self) -> dict[str, Any]:
        """For JSON."""
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
    """Names which share a value, the largest group first; of equal ones, the first seen."""
    found: dict[Any, list[str]] = {}
    for name, value in values:
        found.setdefault(value, []).append(name)
    for value, names in sorted(found.items(), key=lambda item: -len(item[1])):
        yield value, tuple(names)

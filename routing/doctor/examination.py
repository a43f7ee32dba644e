"""Routing doctor entry point for pages, REST and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from routing.doctor.checks import CHECKS
from routing.doctor.facts import FleetFacts
from routing.doctor.findings import CheckOutcome, CheckState, DoctorFinding, Examination, Severity
from routing.doctor.inspection import Limits, NamedWorker, gather_facts


def examine(
    endpoint: str,
    admin_urls: Sequence[str],
    workers: Iterable[NamedWorker] | None = None,
    limits: Limits | None = None,
) -> Examination:
    """Gather facts within the limits and run every check."""
    return run_checks(gather_facts(endpoint, admin_urls, workers, limits))


def run_checks(facts: FleetFacts) -> Examination:
    """Run each check for every router."""
    each = [replace(facts, router=router) for router in facts.routers or (facts.router,)]
    strategies = {
        examination.router.strategy: None for examination in each if examination.router.strategy
    }
    return Examination(
        endpoint=facts.endpoint,
        strategy=", ".join(strategies),
        workers=tuple(worker.name for worker in facts.workers),
        seconds=facts.seconds,
        outcomes=tuple(
            _merge([(examination.router.name, check.made(examination)) for examination in each])
            for check in CHECKS
        ),
    )


def _merge(made: Sequence[tuple[str, CheckOutcome]]) -> CheckOutcome:
    """Return a check's outcome for all routers. Evidence that is not the same at every router that
    could be checked names the router.
    """
    checked = [(name, outcome) for name, outcome in made if outcome.state is not CheckState.SKIPPED]
    if not checked or len(made) == 1:
        return made[0][1]
    merged: dict[tuple[Severity, str, str], dict[str, DoctorFinding]] = {}
    for name, outcome in checked:
        for finding in outcome.findings:
            merged.setdefault((finding.severity, finding.what, finding.fix), {})[name] = finding
    findings = tuple(_merge_finding(of, len(checked)) for of in merged.values())
    state = CheckState.FOUND if findings else CheckState.PASSED
    return replace(checked[0][1], state=state, findings=findings)


def _merge_finding(of_routers: dict[str, DoctorFinding], routers: int) -> DoctorFinding:
    first = next(iter(of_routers.values()))
    same = all(router.evidence == first.evidence for router in of_routers.values())
    if same and len(of_routers) == routers:
        return first
    evidence = tuple(
        f"Router {name}: {line}" if line else f"Router {name}"
        for name, router in of_routers.items()
        for line in router.evidence or ("",)
    )
    workers = dict.fromkeys(name for router in of_routers.values() for name in router.workers)
    return replace(first, evidence=evidence, workers=tuple(workers))


_MARKS = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.INFO: "·"}
_EVIDENCE = 8


def format_examination(found: Examination) -> str:
    lines: list[str] = []
    for finding in found.findings:
        lines += [*_format_finding(finding), ""]
    if found.skipped:
        width = max(len(outcome.code) for outcome in found.skipped)
        lines += ["Skipped checks:"]
        lines += [f"  {outcome.code:{width}}  {outcome.why}" for outcome in found.skipped]
        lines += [""]
    return "\n".join([*lines, summarize(found)])


def summarize(found: Examination) -> str:
    counts = {
        severity: sum(f.severity is severity for f in found.findings) for severity in Severity
    }
    if any(counts.values()):
        words = [
            f"{count} {severity}{'s' if count != 1 else ''}"
            for severity, count in counts.items()
            if count
        ]
        verdict = ", ".join(words)
    else:
        verdict = "no problems"
    left = f", {len(found.skipped)} skipped" if found.skipped else ""
    name = found.endpoint or "The router"
    return (
        f"{name}: {verdict}. {len(found.passed)} of {len(found.outcomes)} checks passed{left}; "
        f"{len(found.workers)} workers, strategy {found.strategy or 'unknown'}, "
        f"{found.seconds:.1f} s."
    )


def _format_finding(finding: DoctorFinding) -> Iterator[str]:
    yield f"{_MARKS[finding.severity]} {finding.severity} {finding.code}: {finding.what}"
    for line in finding.evidence[:_EVIDENCE]:
        yield f"    {line}"
    if len(finding.evidence) > _EVIDENCE:
        yield f"    and {len(finding.evidence) - _EVIDENCE} more"
    yield f"  → {finding.fix}"

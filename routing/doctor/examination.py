"""Routing doctor entry point for pages, REST and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from routing.doctor.checks import CHECKS
from routing.doctor.facts import FleetFacts
from routing.doctor.findings import DoctorFinding, Examination, Severity
from routing.doctor.inspection import Limits, NamedWorker, gather_facts


def examine(
    endpoint: str,
    admin_url: str,
    workers: Iterable[NamedWorker] | None = None,
    limits: Limits | None = None,
) -> Examination:
    """Gather facts within the limits and run every check."""
    return run_checks(gather_facts(endpoint, admin_url, workers, limits))


def run_checks(facts: FleetFacts) -> Examination:
    return Examination(
        endpoint=facts.endpoint,
        strategy=facts.router.strategy,
        workers=tuple(worker.name for worker in facts.workers),
        seconds=facts.seconds,
        outcomes=tuple(check.made(facts) for check in CHECKS),
    )


_MARKS = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.INFO: "·"}
_EVIDENCE = 8


def format_examination(found: Examination) -> str:
    lines: list[str] = []
    for finding in found.findings:
        lines += [*_format_finding(finding), ""]
    if found.skipped:
        width = max(len(outcome.code) for outcome in found.skipped)
        lines += ["Skipped checks:"]
        lines += [f"  {one.code:{width}}  {one.why}" for one in found.skipped]
        lines += [""]
    return "\n".join([*lines, summarize(found)])


def summarize(found: Examination) -> str:
    counts = {one: sum(f.severity is one for f in found.findings) for one in Severity}
    if any(counts.values()):
        words = [
            f"{count} {one}{'s' if count != 1 else ''}" for one, count in counts.items() if count
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

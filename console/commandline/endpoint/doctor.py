"""`endpoint doctor NAME`, with the verdict as exit code, and `doctor` for the console itself.

Exit codes for an endpoint: 0 no errors or warnings, 1 warnings, 2 errors or no such endpoint. For
the console: 1 if a requirement is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.client import NotFound
from console.client.documents import DoctorFinding, Examination
from console.commandline import output
from console.commandline.context import FAILED, USAGE, CommandContext, CommandError, CommandResult
from console.commandline.verbs import add_verb

_VERDICTS = {"error": 2, "warning": 1}
_MARKS = {"error": "✗", "warning": "!", "info": "·"}
_EVIDENCE = 8


def add_to(verbs: Any) -> None:
    add_verb(
        verbs,
        "doctor",
        examine_endpoint,
        "look for everything that can keep kvaware from work",
        "name",
        listing=False,
    )


def add_room(rooms: Any) -> None:
    text = "whether the console has what it needs; exit 1 where it has not (on its own machine)"
    add_verb(rooms, "doctor", preflight, text)


def preflight(asked: CommandContext) -> str:
    if asked.here is None:
        text = "The doctor of a console runs on its own machine: kubectl exec, or log in there."
        raise CommandError(text, USAGE)
    text, well = asked.here.doctor()
    if not well:
        raise CommandError(text, FAILED)
    return text


def examine_endpoint(asked: CommandContext) -> CommandResult:
    try:
        found = asked.client.endpoints.doctor(asked.name)
    except NotFound as error:
        raise CommandError(str(error), _VERDICTS["error"]) from None
    form = asked.options["output"]
    text = _text(found) if form == output.TABLE else output.format_data(found, form)
    return CommandResult(text, _VERDICTS.get(found["verdict"], 0))


def _text(found: Examination) -> str:
    lines: list[str] = []
    for finding in found["findings"]:
        lines += [*_finding(finding), ""]
    skipped = [check for check in found["checks"] if check["state"] == "skipped"]
    if skipped:
        width = max(len(check["code"]) for check in skipped)
        lines += ["Not made:", *(f"  {one['code']:{width}}  {one['why']}" for one in skipped), ""]
    return "\n".join([*lines, _summary(found, len(skipped))])


def _summary(found: Examination, skipped: int) -> str:
    severities = [finding["severity"] for finding in found["findings"]]
    counts = {one: severities.count(one) for one in _MARKS}
    words = [f"{count} {one}{'s' if count != 1 else ''}" for one, count in counts.items() if count]
    passed = sum(check["state"] == "passed" for check in found["checks"])
    left = f", {skipped} not made" if skipped else ""
    return (
        f"{found['endpoint']}: {', '.join(words) or 'nothing found'}. "
        f"{passed} of {len(found['checks'])} checks passed{left}; "
        f"{len(found['workers'])} workers, strategy {found['strategy'] or 'unknown'}, "
        f"{found['seconds']:.1f} s."
    )


def _finding(finding: DoctorFinding) -> Iterator[str]:
    severity, evidence = finding["severity"], finding["evidence"]
    yield f"{_MARKS.get(severity, '?')} {severity} {finding['code']}: {finding['what']}"
    for line in evidence[:_EVIDENCE]:
        yield f"    {line}"
    if len(evidence) > _EVIDENCE:
        yield f"    and {len(evidence) - _EVIDENCE} more"
    yield f"  → {finding['fix']}"

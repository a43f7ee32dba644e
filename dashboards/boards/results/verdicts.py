"""State of a panel, with the reason and the fix for missing values."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from dashboards.boards.panels.declarations import Factor, Panel
from dashboards.boards.panels.exporters import EXPORTERS
from dashboards.boards.queries import metric_names as n
from dashboards.prometheus.http.client import Fault, FaultKind

State = Literal[
    "ok",
    "zero",
    "quiet",
    "stale",
    "not_scraped",
    "absent",
    "needs",
    "unpriced",
    "bad_query",
    "too_slow",
    "prometheus",
]

# Job to display names: one, many.
JOBS = {
    "vllm": ("worker", "workers"),
    "router": ("router", "routers"),
    "l2": ("cache node", "cache nodes"),
}
# Metrics that every worker exports since a version, regardless of its arguments; newest first.
VERSION_MARKERS = (
    ("0.32", f"{n.PREEMPTED}_count"),
    ("0.24", n.WAITING_WHY),
    ("0.19", n.FLOPS),
    ("0.16", n.CACHED_ALL),
    ("0.13", f"{n.COMPUTED_TOKENS}_count"),
)
_SINCE = re.compile(r"vLLM (\d+\.\d+)(?:, (.*))?")
_MAX_NAMED_ENDPOINTS = 5


@dataclass(frozen=True, slots=True)
class Message:
    level: Literal["info", "warning", "danger"]
    title: str
    text: str
    fix: str


@dataclass(frozen=True, slots=True)
class JobTargets:
    """Targets of one job in Prometheus. `last_up` in epoch seconds within the last day."""

    known: int = 0
    up: int = 0
    last_up: float | None = None


@dataclass(frozen=True, slots=True)
class PanelFacts:
    jobs: Mapping[str, JobTargets]
    exported: frozenset[str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Values over the whole range for a panel without values in its chart. `whole`: non-zero values
    as text; `caused`: count of its cause, None without one; `fault`: why neither is known.
    """

    whole: tuple[str, ...] = ()
    caused: float | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Points:
    """All values of a panel, the time of the newest (epoch seconds) and the step in seconds."""

    numbers: tuple[float, ...] = ()
    last_at: int | None = None
    step_s: int = 0


NO_EVIDENCE: Final = Evidence()


def judge(
    panel: Panel,
    points: Points,
    facts: PanelFacts,
    fault: Fault | None,
    evidence: Evidence = NO_EVIDENCE,
) -> tuple[State, Message | None]:
    numbers = points.numbers
    if fault is not None:
        states: dict[FaultKind, State] = {
            FaultKind.BAD_QUERY: "bad_query",
            FaultKind.TOO_SLOW: "too_slow",
            FaultKind.TOO_EXPENSIVE: "too_slow",
        }
        return states.get(fault.kind, "prometheus"), make_fault_message(fault)
    job = facts.jobs.get(panel.job, JobTargets())
    if panel.job and job.up == 0:
        message = _make_not_scraped_message(panel, job, points.last_at or job.last_up)
        return ("stale" if numbers else "not_scraped"), message
    if any(numbers) or (numbers and panel.unit == "seconds"):
        return "ok", None
    if evidence.whole or evidence.fault:
        return "ok" if evidence.whole else "quiet", _make_not_drawn_message(evidence)
    if not numbers and not facts.exported.intersection(panel.metrics):
        if panel.job == "router" and panel.cause is not None and evidence.caused == 0:
            return "quiet", _make_nothing_message(
                panel, evidence
            )  # our own metrics have no version dependency
        if panel.job:
            return "absent", _make_absent_message(panel, job, facts.exported)
        return _without_exporter(panel, facts.exported)
    if panel.needs and not numbers:
        return "needs", _make_other_pods_message(panel)
    if numbers and not panel.of_events:
        text = f"The value is 0 at every point of the chart, one every {points.step_s} s."
        return "zero", Message("info", "Zero in this range", text, panel.zero)
    return "quiet", _make_nothing_message(panel, evidence)


def _make_not_drawn_message(evidence: Evidence) -> Message:
    if evidence.fault:
        text = f"Whether anything was counted in this range is not known. {evidence.fault}"
        return Message("warning", "Not known", text, "Choose a shorter range.")
    text = f"Over the whole range: {', '.join(evidence.whole)}. No point of the chart shows it."
    fix = "It was counted while scrapes failed or between two points: choose a shorter range."
    return Message("info", "Not in the chart", text, fix)


def _make_nothing_message(panel: Panel, evidence: Evidence) -> Message:
    own = panel.empty or "No point of this chart has a value."
    if panel.cause is None:
        return Message("info", "No data in this range", own, "")
    if not evidence.caused:
        return Message("info", "No data in this range", panel.cause.none, panel.cause.fix)
    text = f"{evidence.caused:,.0f} {panel.cause.some}"
    return Message("info", "No data in this range", text, own)


def make_price_message(factor: Factor, endpoints: Collection[str]) -> Message:
    names = sorted(endpoints)
    shown = ", ".join(names[:_MAX_NAMED_ENDPOINTS])
    more = (
        f" and {len(names) - _MAX_NAMED_ENDPOINTS} more"
        if len(names) > _MAX_NAMED_ENDPOINTS
        else ""
    )
    if factor == "worker_usd_hour":
        text = f"The instance type of {shown}{more} has no price, so its workers are not included."
        return Message("info", "No price", text, "Enter the price (USD/h) on the Costs page.")
    text = f"{shown}{more}: no calibrated prefill time or no price, so not included."
    fix = "See Costs, Calibration; a calibration starts automatically while the workers are idle."
    return Message("info", "Not calibrated", text, fix)


def make_fault_message(fault: Fault) -> Message:
    if fault.kind is FaultKind.NOT_CONFIGURED:
        fix = "Set PROMETHEUS_URL to its address and restart, or use `make up`, which starts one."
        return Message("warning", "No Prometheus", fault.detail, fix)
    if fault.kind is FaultKind.BAD_QUERY:
        fix = "Emberline asks for Prometheus 2.42 or newer. With that, this is our bug: report it."
        return Message("danger", "Prometheus refused the question", fault.detail, fix)
    if fault.kind is FaultKind.TOO_SLOW:
        fix = "Choose a shorter range, or give Prometheus more processor time."
        return Message("warning", "Too much to add up in time", fault.detail, fix)
    if fault.kind is FaultKind.TOO_EXPENSIVE:
        fix = "Choose a shorter range or a single endpoint, or raise the limit of that Prometheus."
        return Message("warning", "Query too expensive", fault.detail, fix)
    if fault.kind is FaultKind.REFUSED:
        fix = "Give this console a token, password or certificate it takes: Settings, Metrics."
        return Message("danger", "Prometheus does not let us in", fault.detail, fix)
    if fault.kind is FaultKind.NOT_PROMETHEUS:
        fix = "Correct PROMETHEUS_URL: the address, and the path if it is behind a proxy."
        return Message("danger", "Not a Prometheus", fault.detail, fix)
    fix = (
        "Routers and workers go on without it. Start it again (its log is var/log/prometheus.log), "
        "or correct PROMETHEUS_URL."
    )
    return Message("danger", "Prometheus does not answer", fault.detail, fix)


def detect_version(exported: Collection[str]) -> tuple[str, str]:
    """Derive the newest worker's version bounds (from, below) from its metrics; "" if unknown."""
    before = ""
    for since, metric in VERSION_MARKERS:
        if metric in exported:
            return since, before
        before = since
    return "", before


def format_clock(moment: float, *, seconds: bool = False) -> str:
    when = datetime.fromtimestamp(moment, UTC)
    return f"{when:%H:%M:%S} UTC" if seconds else f"{when:%b} {when.day}, {when:%H:%M} UTC"


def _make_not_scraped_message(panel: Panel, job: JobTargets, last: float | None) -> Message:
    one, many = JOBS[panel.job]
    since = f" since {format_clock(last)}" if last is not None else ""
    title = f"No data{since}"
    if job.known == 0:
        fix = (
            f"It learns of {many} from this console, at /prometheus/targets, seconds after their "
            "start. If they run, its configuration lacks that address or the token."
        )
        if panel.job == "l2":
            fix = f"A tier starts with the first endpoint that turns L2 on. {fix}"
        return Message("warning", title, f"Prometheus scrapes no {one} here.", fix)
    away = f"the {one}" if job.known == 1 else f"any of {job.known} {many}"
    fix = f"See on the endpoint's page whether the {one} runs, and its log."
    if panel.job == "l2":
        fix = "See on the Cache page whether the node runs, and its log."
    return Message("warning", title, f"Prometheus cannot reach {away}.", fix)


def _make_absent_message(panel: Panel, job: JobTargets, exported: Collection[str]) -> Message:
    """A missing labelled counter proves no version: it exists only after its first count."""
    one, many = JOBS[panel.job]
    who, verb = (f"The {one} is", "does") if job.known == 1 else (f"The {many} are", "do")
    text = f"{who} scraped but {verb} not export {panel.metric} now."
    needed, when = _parse_since(panel.since)
    since, before = detect_version(exported)
    if panel.job == "vllm" and needed and before and _number(before) <= _number(needed):
        text += f" By what is exported, {'it is' if job.known == 1 else 'the newest is'} "
        text += _format_value(since, before)
        fix = f"It exists since {panel.since}: update the workers."
        return Message("warning", "Not in this version", text, fix)
    fix = f"It is exported by {panel.since}, once there is something to count."
    if needed and when:
        fix = f"It is exported since vLLM {needed}, {when}, once there is something to count."
    return Message("info", "Not exported", text, fix)


def _parse_since(text: str) -> tuple[str, str]:
    """Split `since` into vLLM's version and the required arguments; "" if it is not about vLLM."""
    found = _SINCE.fullmatch(text)
    return (found[1], found[2] or "") if found else ("", "")


def _format_value(since: str, before: str) -> str:
    if not since:
        return f"older than vLLM {before}."
    return f"vLLM {since} or newer{f', but before {before}' if before else ''}."


def _number(version_: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version_.split("."))


def _without_exporter(panel: Panel, exported: Collection[str]) -> tuple[State, Message]:
    exporter = EXPORTERS[panel.needs]
    if exporter.sign in exported:
        text = f"{exporter.name} is scraped but exports no {panel.metric} now."
        return "absent", Message("info", "Not exported", text, exporter.more)
    text = f"No target of this Prometheus exports {panel.metric} now."
    return "needs", Message("info", f"Needs {exporter.name}", text, exporter.how)


def _make_other_pods_message(panel: Panel) -> Message:
    """The exporter covers other pods: one endpoint's GPUs must not make another's look idle."""
    exporter = EXPORTERS[panel.needs]
    text = f"{exporter.name} exports {panel.metric}, but not of the workers shown here."
    return Message("info", f"Needs {exporter.name}", text, exporter.how)

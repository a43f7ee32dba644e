"""State of a panel, with the reason and the fix for missing values."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from console.core.local_time import format_clock
from dashboards.boards.panels.declarations import Factor, Panel
from dashboards.boards.panels.exporters import EXPORTERS
from dashboards.boards.results.targets import JOBS, VERSION_MARKERS, JobTargets, PanelFacts
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

_SINCE = re.compile(r"vLLM (\d+\.\d+)(?:, (.*))?")
_MAX_NAMED_ENDPOINTS = 5


@dataclass(frozen=True, slots=True)
class Message:
    level: Literal["info", "warning", "danger"]
    title: str
    text: str
    fix: str


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
    """All values of a panel, and the time of the newest (epoch seconds)."""

    numbers: tuple[float, ...] = ()
    last_at: int | None = None


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
    if facts.suffice(panel, numbers):
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
        return "zero", Message("info", "All values are zero", panel.zero, "")
    return "quiet", _make_nothing_message(panel, evidence)


def _make_not_drawn_message(evidence: Evidence) -> Message:
    if evidence.fault:
        text = f"The range could not be checked for events. {evidence.fault}"
        return Message("warning", "Unknown", text, "Choose a shorter range.")
    text = f"Over the whole range: {', '.join(evidence.whole)}. No chart point shows it."
    fix = "Counted during failed scrapes or between two points. Choose a shorter range."
    return Message("info", "Not in the chart", text, fix)


def _make_nothing_message(panel: Panel, evidence: Evidence) -> Message:
    own = panel.empty or "No values in this chart."
    if panel.cause is None:
        return Message("info", "No data in this range", own, "")
    if not evidence.caused:
        return Message("info", "No data in this range", panel.cause.none, panel.cause.fix)
    text = f"{own} {panel.cause.some}: {evidence.caused:,.0f}."
    return Message("info", "No data in this range", text, "")


def make_price_message(factor: Factor, endpoints: Collection[str]) -> Message:
    names = sorted(endpoints)
    listed = ", ".join(names[:_MAX_NAMED_ENDPOINTS])
    more = (
        f" and {len(names) - _MAX_NAMED_ENDPOINTS} more"
        if len(names) > _MAX_NAMED_ENDPOINTS
        else ""
    )
    if factor == "worker_usd_hour":
        text = f"The instance type of {listed}{more} has no price, so its workers are not included."
        return Message("info", "No price", text, "Enter the price (USD/h) on the Costs page.")
    text = f"{listed}{more}: no calibrated prefill time or no price, so not included."
    fix = "See Costs, Calibration; a calibration starts automatically while the workers are idle."
    return Message("info", "Not calibrated", text, fix)


def make_fault_message(fault: Fault) -> Message:
    if fault.kind is FaultKind.NOT_CONFIGURED:
        text = "Charts, figures and alerts have no data. Endpoints are not affected."
        fix = (
            "Add a source under Settings, Metrics sources, or set PROMETHEUS_URL and restart; "
            "`make up` starts a Prometheus."
        )
        return Message("info", "No Prometheus configured", text, fix)
    if fault.kind is FaultKind.BAD_QUERY:
        fix = (
            "Emberline requires Prometheus 2.42 or newer. With that version, report this as a bug."
        )
        return Message("danger", "Prometheus rejected the query", fault.detail, fix)
    if fault.kind is FaultKind.TOO_SLOW:
        fix = "Choose a shorter range, or give Prometheus more CPU."
        return Message("warning", "Query timed out", fault.detail, fix)
    if fault.kind is FaultKind.TOO_EXPENSIVE:
        fix = "Choose a shorter range or a single endpoint, or raise Prometheus' query limit."
        return Message("warning", "Query too expensive", fault.detail, fix)
    if fault.kind is FaultKind.REFUSED:
        fix = "Set a valid token, password or certificate under Settings, Metrics sources."
        return Message("danger", "Access to Prometheus denied", fault.detail, fix)
    if fault.kind is FaultKind.NOT_PROMETHEUS:
        fix = "Correct PROMETHEUS_URL, including the path behind a proxy."
        return Message("danger", "Not a Prometheus server", fault.detail, fix)
    fix = (
        "Routers and workers are not affected. Correct the source under Settings, Metrics sources; "
        "the bundled Prometheus logs to var/log/prometheus.log."
    )
    return Message("danger", "Prometheus is unreachable", fault.detail, fix)


def detect_version(exported: Collection[str]) -> tuple[str, str]:
    """Derive the newest worker's version bounds (from, below) from its metrics; "" if unknown."""
    before = ""
    for since, metric in VERSION_MARKERS:
        if metric in exported:
            return since, before
        before = since
    return "", before


def _make_not_scraped_message(panel: Panel, job: JobTargets, last: float | None) -> Message:
    singular, many = JOBS[panel.job]
    since = f" since {format_clock(last)}" if last is not None else ""
    title = f"No data{since}"
    if job.known == 0:
        fix = (
            f"Prometheus discovers {many} at /prometheus/targets of this console, the bundled one "
            "in var/prometheus/targets.json. If they run, its configuration lacks that address and "
            "the token, or that file."
        )
        if panel.job == "l2":
            fix = f"An L2 tier starts with the first endpoint that enables L2. {fix}"
        else:
            fix += " Endpoints with metrics disabled (monitoring.enabled) are not scraped."
        return Message("warning", title, f"Prometheus scrapes no {many} here.", fix)
    away = f"the {singular}" if job.known == 1 else f"any of {job.known} {many}"
    fix = f"Check the {singular}'s state and log on the endpoint page."
    if panel.job == "l2":
        fix = "Check the node's state and log on the Cache page."
    return Message("warning", title, f"Prometheus cannot reach {away}.", fix)


def _make_absent_message(panel: Panel, job: JobTargets, exported: Collection[str]) -> Message:
    """A missing labelled counter proves no version: it exists only after its first count."""
    singular, many = JOBS[panel.job]
    who, verb = (f"The {singular} is", "does") if job.known == 1 else (f"The {many} are", "do")
    text = f"{who} scraped but {verb} not export {panel.metric}."
    needed, when = _parse_since(panel.since)
    since, before = detect_version(exported)
    if panel.job == "vllm" and needed and before and _number(before) <= _number(needed):
        text += f" Detected version: {_format_value(since, before)}"
        fix = f"Available since {panel.since}. Update the workers."
        return Message("warning", "Not in this version", text, fix)
    fix = f"Exported by {panel.since} after the first event."
    if needed and when:
        fix = f"Exported since vLLM {needed}, {when}, after the first event."
    return Message("info", "Not exported", text, fix)


def _parse_since(text: str) -> tuple[str, str]:
    """Split `since` into vLLM's version and the required arguments; "" if it is not about vLLM."""
    match = _SINCE.fullmatch(text)
    return (match[1], match[2] or "") if match else ("", "")


def _format_value(since: str, before: str) -> str:
    if not since:
        return f"before vLLM {before}."
    return f"vLLM {since} or newer{f', before {before}' if before else ''}."


def _number(version_: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version_.split("."))


def _without_exporter(panel: Panel, exported: Collection[str]) -> tuple[State, Message]:
    exporter = EXPORTERS[panel.needs]
    if exporter.sign in exported:
        text = f"{exporter.name} is scraped but does not export {panel.metric}."
        return "absent", Message("info", "Not exported", text, exporter.more)
    text = f"No target exports {panel.metric}."
    return "needs", Message("info", f"Requires {exporter.name}", text, exporter.how)


def _make_other_pods_message(panel: Panel) -> Message:
    """The exporter covers other pods: one endpoint's GPUs must not make another's look idle."""
    exporter = EXPORTERS[panel.needs]
    text = f"{exporter.name} exports {panel.metric}, but not for these workers."
    return Message("info", f"Requires {exporter.name}", text, exporter.how)

"""Examine a metrics source within 10 s: reachability, server type, metrics and missing labels."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from django.db import DatabaseError

from console.system.preflight import PreflightResult
from dashboards.boards.queries.metric_names import L2_CAPACITY, REQUESTS, RUNNING
from dashboards.boards.results.board import make_fault_message
from dashboards.prometheus.config.scrape_config import RELABELLING
from dashboards.prometheus.http.client import Deadlines, Prometheus, QueryResult, Question
from dashboards.prometheus.http.session import NoReplyError, Reply, exchange
from dashboards.prometheus.sources import selectors
from dashboards.prometheus.sources.selectors import MetricsSourceRef

_DEADLINE_S = 4.0
_SKEW_S = 15.0
_SHOWN = 100
_SEVERITIES = ("danger", "warning")
# Metric family names for display, each with a metric that marks its presence.
_FAMILIES: Mapping[str, tuple[str, ...]] = {
    "vLLM workers": (RUNNING,),
    "Emberline routers": (REQUESTS,),
    "Emberline cache nodes": (L2_CAPACITY,),
    "LMCache in the worker": (
        "lmcache:num_lookup_tokens_total",
        "lmcache_num_lookup_tokens_total",
    ),
    "LMCache server": ("lmcache_mp_lookup_requested_tokens_total",),
    "GPUs (DCGM exporter)": ("DCGM_FI_DEV_GPU_UTIL",),
    "Kubernetes objects (kube-state-metrics)": ("kube_pod_info",),
}
LABELS = ("namespace", "endpoint_name", "pod")
COLONLESS = RUNNING.replace(":", "_", 1)


@dataclass(frozen=True, slots=True)
class SourceDiagnosis:
    level: str
    title: str
    text: str
    fix: str = ""


def examine(source: MetricsSourceRef) -> dict[str, Any]:
    """Return JSON-ready results; `verdict` is ok, warning or danger."""
    found: dict[str, Any] = {
        "software": "",
        "skew_s": None,
        "jobs": [],
        "families": [],
        "endpoints": [],
    }
    findings = list(_query_facts(source, found))
    levels = {one.level for one in findings}
    found["verdict"] = next((level for level in _SEVERITIES if level in levels), "ok")
    found["findings"] = [
        {"level": one.level, "title": one.title, "text": one.text, "fix": one.fix}
        for one in findings
    ]
    return found


def _query_facts(source: MetricsSourceRef, found: dict[str, Any]) -> Sequence[SourceDiagnosis]:
    if source.why_not:
        fix = "Give it again, or put the file where the console looks for it."
        return [SourceDiagnosis("danger", "A secret is missing", source.why_not, fix)]
    findings = _server(source, found)
    if not any(one.level == "danger" for one in findings):
        findings += _contents(source, found)
    if source.alertmanager_url:
        findings += _alertmanager(source, found)
    return findings


def _server(source: MetricsSourceRef, found: dict[str, Any]) -> list[SourceDiagnosis]:
    """Identify the server; servers that only speak the protocol have no build information."""
    began = time.time()
    url = f"{source.url.rstrip('/')}/api/v1/status/buildinfo"
    try:
        reply = exchange(source.login, "GET", url, deadline_s=_DEADLINE_S)
    except NoReplyError as error:
        fix = "Correct the address or the CA, and see whether a network policy is in between."
        return [SourceDiagnosis("danger", "No answer", str(error), fix)]
    if reply.leads_to:
        text = f"It answers HTTP {reply.status} and leads to {reply.leads_to[:200]}."
        fix = "Give that address: the console follows no redirect, since its login would go along."
        return [SourceDiagnosis("danger", "It leads elsewhere", text, fix)]
    if reply.status in (401, 403):
        fix = "Correct the token, password, keys, certificate or tenant, or what they may there."
        text = f"It answers HTTP {reply.status}: {_describe(reply)}"
        return [SourceDiagnosis("danger", "It does not let the console in", text, fix)]
    found["software"] = _software(reply)
    return _skew(reply, (began + time.time()) / 2, found)


def _software(reply: Reply) -> str:
    try:
        told = json.loads(reply.body)["data"]
        return f"{told.get('application') or 'Prometheus'} {told['version']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _describe(reply: Reply) -> str:
    return reply.body[:200].decode("utf-8", "replace").strip() or "no words."


def _skew(reply: Reply, at: float, found: dict[str, Any]) -> list[SourceDiagnosis]:
    try:
        there = parsedate_to_datetime(reply.headers.get("date", "")).timestamp()
    except (ValueError, TypeError):
        return []
    found["skew_s"] = round(there + 0.5 - at, 1)  # the Date header truncates to whole seconds
    if abs(found["skew_s"]) <= _SKEW_S:
        return []
    ahead = "ahead of" if found["skew_s"] > 0 else "behind"
    text = f"Its clock is {abs(found['skew_s']):.0f} s {ahead} the console's."
    fix = "Let both follow a time server: charts end too early or show holes at their right edge."
    return [SourceDiagnosis("warning", "The clocks differ", text, fix)]


def _contents(source: MetricsSourceRef, found: dict[str, Any]) -> list[SourceDiagnosis]:
    client = Prometheus(
        source.url, Deadlines(read_s=_DEADLINE_S, page_s=_DEADLINE_S + 1), source.login
    )
    at = int(time.time())
    asked = {
        "known": "count by (job) (up)",
        "up": "sum by (job) (up)",
        "families": render_families(),
        "endpoints": f'count by (endpoint_name) ({RUNNING}{{endpoint_name!=""}})',
        **{f"no {label}": f'count ({RUNNING}{{{label}=""}})' for label in LABELS},
    }
    try:
        answers = client.ask({name: Question(query, at) for name, query in asked.items()})
    finally:
        client.close()
    fault = next((answer.fault for answer in answers.values() if answer.fault), None)
    if fault is not None:
        message = make_fault_message(fault)
        return [SourceDiagnosis("danger", message.title, message.text, message.fix)]
    return _diagnose_contents(answers, found)


def render_families() -> str:
    names = sorted({name for names in _FAMILIES.values() for name in names} | {COLONLESS})
    return f'count by (__name__) ({{__name__=~"{"|".join(names)}"}})'


def _diagnose_contents(
    answers: Mapping[str, QueryResult], found: dict[str, Any]
) -> list[SourceDiagnosis]:
    up = _by(answers["up"], "job")
    known = _by(answers["known"], "job")
    found["jobs"] = [
        {"name": job, "targets": int(count), "up": int(up.get(job, 0))}
        for job, count in sorted(known.items())[:_SHOWN]
    ]
    there = _by(answers["families"], "__name__")
    found["families"] = [
        {"name": name, "series": int(sum(there.get(metric, 0) for metric in metrics))}
        for name, metrics in _FAMILIES.items()
    ]
    found["endpoints"] = sorted(_by(answers["endpoints"], "endpoint_name"))[:_SHOWN]
    lacking = {
        label: int(sum(series.latest or 0 for series in answers[f"no {label}"].series))
        for label in LABELS
    }
    return [*_missing_metrics(found, there), *_missing_labels(lacking)]


def _missing_metrics(found: dict[str, Any], there: Mapping[str, float]) -> list[SourceDiagnosis]:
    if there.get(COLONLESS):
        text = f"vLLM's metrics are there as {COLONLESS}, without their colon."
        fix = "Scrape /metrics without a slash at its end, where vLLM keeps its names."
        return [SourceDiagnosis("danger", "Names of metrics lost their colon", text, fix)]
    if not found["jobs"]:
        text = "It answers, but scrapes nothing (no series `up`)."
        fix = "Let it ask the console what to scrape, with the configuration on this page."
        return [SourceDiagnosis("warning", "Nothing is scraped", text, fix)]
    if not found["families"][0]["series"]:
        text = "It scrapes, but no vLLM worker is among its targets now."
        fix = "If workers run, let it ask the console what to scrape: the configuration is below."
        return [SourceDiagnosis("warning", "No workers yet", text, fix)]
    return []


def _missing_labels(lacking: Mapping[str, int]) -> list[SourceDiagnosis]:
    return [
        SourceDiagnosis(
            "danger",
            f"Workers' series lack the label {label}",
            f"{count} series have none, so they belong to no endpoint or worker here.",
            f"Add under relabel_configs of that job:\n{RELABELLING[label]}",
        )
        for label, count in lacking.items()
        if count
    ]


def _by(answer: QueryResult, label: str) -> dict[str, float]:
    return {series.label(label): series.latest or 0.0 for series in answer.series}


def _alertmanager(source: MetricsSourceRef, found: dict[str, Any]) -> list[SourceDiagnosis]:
    url = f"{source.alertmanager_url.rstrip('/')}/api/v2/status"
    fix = "Correct its address; it is asked with the same login as the source."
    try:
        reply = exchange(source.login, "GET", url, deadline_s=_DEADLINE_S)
    except NoReplyError as error:
        return [SourceDiagnosis("danger", "No answer of the Alertmanager", str(error), fix)]
    try:
        found["alertmanager"] = f"Alertmanager {json.loads(reply.body)['versionInfo']['version']}"
    except (ValueError, KeyError, TypeError):
        text = f"It answers HTTP {reply.status}, but not as Alertmanager's API v2 does."
        return [SourceDiagnosis("danger", "That is no Alertmanager", text, fix)]
    return []


def ask() -> Iterator[PreflightResult]:
    try:
        found = selectors.list_in_use()
    except DatabaseError:
        return  # the database check reports this
    question = {"up": Question("count (up)", int(time.time()))}
    begun = [(one, one.asker().begin(question)) for one in found]
    for one, answers in begun:
        answer = answers()["up"]
        subject = f"metrics source {one.name}"
        if answer.fault is not None:
            message = make_fault_message(answer.fault)
            yield PreflightResult(subject, False, message.text, message.fix, needed=False)
            continue
        targets = int(sum(series.latest or 0 for series in answer.series))
        remedy = "Let it ask the console what to scrape: the configuration is on its page."
        yield PreflightResult(
            subject, targets > 0, f"scrapes {targets} targets.", remedy, needed=False
        )

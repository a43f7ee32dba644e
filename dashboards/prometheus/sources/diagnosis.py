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
    "LMCache in the worker": ("lmcache:num_lookup_tokens_total", "lmcache_num_lookup_tokens_total"),
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
    report: dict[str, Any] = {
        "software": "",
        "skew_s": None,
        "jobs": [],
        "families": [],
        "endpoints": [],
    }
    findings = list(_query_facts(source, report))
    levels = {finding.level for finding in findings}
    report["verdict"] = next((level for level in _SEVERITIES if level in levels), "ok")
    report["findings"] = [
        {"level": finding.level, "title": finding.title, "text": finding.text, "fix": finding.fix}
        for finding in findings
    ]
    return report


def _query_facts(source: MetricsSourceRef, found: dict[str, Any]) -> Sequence[SourceDiagnosis]:
    if source.why_not:
        fix = "Enter the secret again, or provide the file in the console's secrets folder."
        return [SourceDiagnosis("danger", "Missing secret", source.why_not, fix)]
    findings = _server(source, found)
    if not any(finding.level == "danger" for finding in findings):
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
        fix = (
            "Correct the URL or the CA certificate, and check for a network policy that blocks "
            "the connection."
        )
        return [SourceDiagnosis("danger", "No response", str(error), fix)]
    if reply.leads_to:
        text = f"The server returned HTTP {reply.status} with a redirect to {reply.leads_to[:200]}."
        fix = (
            "Enter that URL. Redirects are not followed, because they would receive the "
            "credentials."
        )
        return [SourceDiagnosis("danger", "Redirect", text, fix)]
    if reply.status in (401, 403):
        fix = "Correct the token, password, keys, certificate or tenant, or grant them read access."
        text = f"The server returned HTTP {reply.status}: {_describe(reply)}"
        return [SourceDiagnosis("danger", "Access denied", text, fix)]
    found["software"] = _software(reply)
    return _skew(reply, (began + time.time()) / 2, found)


def _software(reply: Reply) -> str:
    try:
        data = json.loads(reply.body)["data"]
        return f"{data.get('application') or 'Prometheus'} {data['version']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _describe(reply: Reply) -> str:
    return reply.body[:200].decode("utf-8", "replace").strip() or "empty response."


def _skew(reply: Reply, at: float, found: dict[str, Any]) -> list[SourceDiagnosis]:
    try:
        there = parsedate_to_datetime(reply.headers.get("date", "")).timestamp()
    except (ValueError, TypeError):
        return []
    found["skew_s"] = round(there + 0.5 - at, 1)  # the Date header truncates to whole seconds
    if abs(found["skew_s"]) <= _SKEW_S:
        return []
    ahead = "ahead of" if found["skew_s"] > 0 else "behind"
    text = f"The server's clock is {abs(found['skew_s']):.0f} s {ahead} the console's."
    fix = "Synchronize both clocks (NTP). Charts end early or have gaps at the right edge."
    return [SourceDiagnosis("warning", "Clock skew", text, fix)]


def _contents(source: MetricsSourceRef, found: dict[str, Any]) -> list[SourceDiagnosis]:
    client = Prometheus(
        source.url, Deadlines(read_s=_DEADLINE_S, page_s=_DEADLINE_S + 1), source.login
    )
    now = int(time.time())
    queries = {
        "known": "count by (job) (up)",
        "up": "sum by (job) (up)",
        "families": render_families(),
        "endpoints": f'count by (endpoint_name) ({RUNNING}{{endpoint_name!=""}})',
        **{f"no {label}": f'count ({RUNNING}{{{label}=""}})' for label in LABELS},
    }
    try:
        answers = client.ask({name: Question(query, now) for name, query in queries.items()})
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
    samples = _by(answers["known"], "job")
    found["jobs"] = [
        {"name": job, "targets": int(count), "up": int(up.get(job, 0))}
        for job, count in sorted(samples.items())[:_SHOWN]
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
        text = f"vLLM metrics are stored as {COLONLESS}, without the colon."
        fix = "Scrape /metrics without a trailing slash."
        return [SourceDiagnosis("danger", "Metric names without colon", text, fix)]
    if not found["jobs"]:
        text = "The server responds but has no scrape targets (no series `up`)."
        fix = "Add the scrape configuration on this page: it discovers the console's targets."
        return [SourceDiagnosis("warning", "No scrape targets", text, fix)]
    if not found["families"][0]["series"]:
        text = "No vLLM worker is among the current scrape targets."
        fix = (
            "If workers run, add the scrape configuration below: it discovers the console's "
            "targets."
        )
        return [SourceDiagnosis("warning", "No workers scraped", text, fix)]
    return []


def _missing_labels(lacking: Mapping[str, int]) -> list[SourceDiagnosis]:
    return [
        SourceDiagnosis(
            "danger",
            f"Worker series without the label {label}",
            f"{count} series lack it and cannot be assigned to an endpoint or worker.",
            f"Add to relabel_configs of that job:\n{RELABELLING[label]}",
        )
        for label, count in lacking.items()
        if count
    ]


def _by(answer: QueryResult, label: str) -> dict[str, float]:
    return {series.label(label): series.latest or 0.0 for series in answer.series}


def _alertmanager(source: MetricsSourceRef, found: dict[str, Any]) -> list[SourceDiagnosis]:
    url = f"{source.alertmanager_url.rstrip('/')}/api/v2/status"
    fix = "Correct its URL. The credentials are those of the metrics source."
    try:
        reply = exchange(source.login, "GET", url, deadline_s=_DEADLINE_S)
    except NoReplyError as error:
        return [SourceDiagnosis("danger", "No response from Alertmanager", str(error), fix)]
    try:
        found["alertmanager"] = f"Alertmanager {json.loads(reply.body)['versionInfo']['version']}"
    except (ValueError, KeyError, TypeError):
        text = (
            f"The server returned HTTP {reply.status}, which is not an Alertmanager API v2 "
            "response."
        )
        return [SourceDiagnosis("danger", "Not an Alertmanager", text, fix)]
    return []


def ask() -> Iterator[PreflightResult]:
    try:
        sources = selectors.list_in_use()
    except DatabaseError:
        return  # the database check reports this
    question = {"up": Question("count (up)", int(time.time()))}
    begun = [(source, source.asker().begin(question)) for source in sources]
    for source, answers in begun:
        answer = answers()["up"]
        subject = f"metrics source {source.name}"
        if answer.fault is not None:
            message = make_fault_message(answer.fault)
            yield PreflightResult(subject, False, message.text, message.fix, needed=False)
            continue
        targets = int(sum(series.latest or 0 for series in answer.series))
        remedy = "Add the scrape configuration on its page: it discovers the console's targets."
        yield PreflightResult(
            subject, targets > 0, f"{targets} scrape targets up.", remedy, needed=False
        )

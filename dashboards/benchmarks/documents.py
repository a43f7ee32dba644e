"""Documents of benchmarks for pages and the API. Reads only."""

from __future__ import annotations

from typing import Any

from dashboards.benchmarks import lifecycle, selectors
from dashboards.benchmarks.generator.comparison import list_differences
from dashboards.benchmarks.generator.job import FIELDS, MODES, RATE, TRACE, WORKLOADS, applies_to
from dashboards.benchmarks.generator.report_text import ENDS, list_doubts
from dashboards.benchmarks.models import Benchmark
from dashboards.boards.charts import inline_chart
from endpoints.runs import RunState
from routing.analysis.label_names import get_name

_ERRORS = {
    "timeout": "Timeout",
    "connect": "Connection failed",
    "connect_timeout": "Connection timeout",
    "broken": "Stream interrupted",
    "protocol": "Invalid HTTP response",
    "no_token": "Empty response",
    "cut_at_the_end": "Cut off at the end",
    "closed_idle": "Idle connection closed",
}


def summarize_run(row: Benchmark) -> dict[str, Any]:
    result = row.result
    return {
        "run": row,
        "what": describe_job(row),
        "requests": result.get("requests"),
        "failed": result.get("failed"),
        "ttft_p50": _of(result, "ttft", "p50"),
        "ttft_p90": _of(result, "ttft", "p90"),
        "cached_share": result.get("cached_share"),
        "tokens_s": result.get("completion_tokens_s"),
    }


def describe_job(row: Benchmark) -> str:
    job = row.job
    speed = f"{job['concurrency']} users"
    if job["mode"] == RATE:
        speed = f"{job['speed']:g} x" if job["workload"] == TRACE else f"{job['rate']:g}/s"
    return f"{WORKLOADS[job['workload']]}, {speed}, {job['duration_s']:g} s"


def build_page(row: Benchmark) -> dict[str, Any]:
    progress = lifecycle.read_current_progress(row)
    failures = progress.get("errors", {})
    examples = progress.get("examples", {})
    shown_progress = {**progress, "result": row.result} if row.result else progress
    return {
        **summarize_run(row),
        "progress": progress,
        "result": row.result,
        "facts": row.endpoint_facts,
        "job": list_settings(row),
        "share": min(100, round(100 * progress.get("elapsed_s", 0) / row.job["duration_s"])),
        "failures": [
            {"code": code, "label": _label(code), "count": count, "text": examples.get(code, "")}
            for code, count in failures.items()
        ],
        "failed_now": sum(failures.values()),
        "elapsed_s": progress.get("elapsed_s", 0.0),
        "ttft_now": _get_ttft(row, progress),
        "ended_by": ENDS.get(progress.get("stopped_by", ""), ""),
        "doubts": list_doubts(shown_progress) if progress.get("generator") else [],
        "charts": inline_chart.make_run_charts(progress.get("series", {})),
        "tiers": _tiers(progress),
        "others": _list_paired_runs(row),
        "measures": _measures(row.result),
    }


def list_settings(row: Benchmark) -> list[tuple[str, str]]:
    job = row.job
    settings = [("Load", MODES[job["mode"]]), ("API", job["api"])]
    for field in FIELDS:
        if applies_to(field, job["workload"], job["mode"]):
            unit = f" {field.unit}" if field.unit else ""
            settings.append((field.label, f"{job.get(field.name, field.default):g}{unit}"))
    return settings


def list_caveats(a: Benchmark, b: Benchmark) -> list[str]:
    caveats = []
    other = list_differences(a.job, b.job)
    if other or a.trace_digest != b.trace_digest:
        listed = "; ".join(other) or "different trace"
        caveats.append(f"The runs have different parameters: {listed}.")
    for which, row in (("A", a), ("B", b)):
        if row.state != RunState.DONE:
            caveats.append(f"{which} did not finish ({row.get_state_display().lower()}).")
        if row.progress.get("stopped_by") == "errors" or row.result.get("failed"):
            caveats.append(f"{which} had failed requests: {row.result.get('failed', 0)}.")
        if row.progress.get("generator", {}).get("late"):
            caveats.append(f"The load generator of {which} was late, which affects its times.")
    if a.simulated != b.simulated:
        caveats.append("One run used simulated workers, whose times are not representative.")
    if a.job["mode"] != RATE:
        caveats.append(
            "At fixed concurrency the faster endpoint receives more requests. Compare at a fixed "
            "request rate for a verdict on latency."
        )
    return caveats


def build_document(row: Benchmark) -> dict[str, Any]:
    return {
        "id": str(row.pk),
        "endpoint": row.endpoint.name,
        "title": row.title,
        "state": row.state,
        "stage": row.stage,
        "message": row.message,
        "simulated": row.simulated,
        "after": str(row.after_id) if row.after_id else None,
        "job": row.job,
        "trace_digest": row.trace_digest,
        "endpoint_facts": row.endpoint_facts,
        "progress": lifecycle.read_current_progress(row),
        "result": row.result or None,
        "started_by": row.started_by.get_username() if row.started_by else "system",
        "created_at": row.created_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
    }


def _get_ttft(row: Benchmark, progress: dict[str, Any]) -> dict[str, float | None]:
    """Return TTFT percentiles of the whole run, or of the latest requests while it runs."""
    result = row.result or progress.get("now", {})
    return {key: _of(result, "ttft", key) for key in ("p50", "p90")}


def _measures(result: dict[str, Any]) -> list[dict[str, Any]]:
    labels = (
        ("ttft", "TTFT", "from the scheduled send time"),
        ("tpot", "TPOT", "time per output token, mean per response"),
        ("duration", "E2E latency", "from the scheduled send time"),
        ("lag", "Send delay", "of the load generator, included in the times above"),
    )
    return [
        {"label": label, "about": about, **result[name]}
        for name, label, about in labels
        if name in result
    ]


def _tiers(progress: dict[str, Any]) -> list[dict[str, Any]]:
    tiers = progress.get("tiers", {})
    everything = sum(tiers.values())
    return [
        {
            "key": key,
            "label": get_name("tier", key),
            "tokens": tiers[key],
            "share": tiers[key] / everything,
        }
        for key in ("device", "l1", "l2", "computed")
        if key in tiers and everything
    ]


def _list_paired_runs(row: Benchmark) -> list[dict[str, Any]]:
    paired = [*selectors.list_followers(row)]
    if row.after is not None:
        paired.insert(0, row.after)
    return [{"run": other, "both_done": not other.live and not row.live} for other in paired]


def _label(code: str) -> str:
    if code.startswith("http_"):
        return f"HTTP {code.removeprefix('http_')}"
    return _ERRORS.get(code, code.replace("_", " "))


def _of(result: dict[str, Any], name: str, key: str) -> float | None:
    number = result.get(name, {}).get(key)
    return None if number is None else float(number)

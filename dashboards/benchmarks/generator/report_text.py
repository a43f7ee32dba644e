"""Text reports of a run: a progress line and a final summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENDS = {
    "duration_s": "Ended: duration reached.",
    "max_requests": "Ended: request limit reached.",
    "max_tokens": "Ended: token limit reached.",
    "trace": "Ended: end of the trace.",
    "errors": "Ended: error limit reached.",
    "aborted": "Aborted.",
}


def line(seen: Mapping[str, Any]) -> str:
    ttft = seen["now"]["ttft"]
    failed = sum(seen["errors"].values())
    return (
        f"{seen['elapsed_s']:7.1f} s  sent {seen['sent']}  done {seen['done']}  failed {failed}"
        f"  in flight {seen['in_flight']}  TTFT p50 {ms(ttft['p50'])}"
        f" p90 {ms(ttft['p90'])}"
    )


def report(seen: Mapping[str, Any]) -> str:
    result = seen["result"]
    lines = [
        ENDS.get(seen["stopped_by"], ""),
        f"{result['requests']} requests completed, {result['failed']} failed, "
        f"{result['not_counted']} excluded, in {result['seconds']:g} s",
        f"throughput      {result['requests_s']:g} requests/s, "
        f"{result['prompt_tokens_s']:g} prompt "
        f"and {result['completion_tokens_s']:g} output tokens/s",
    ]
    for name, label in (("ttft", "TTFT"), ("tpot", "TPOT"), ("duration", "E2E latency")):
        summary = result[name]
        parts = ", ".join(f"{p} {ms(summary[p])}" for p in ("p50", "p90", "p99", "max"))
        lines.append(f"{label:15} {parts}")
    if result["cached_share"] is not None:
        lines.append(f"hit rate        {result['cached_share']:.1%} of prompt tokens")
    if seen["tiers"]:
        lines.append("by tier         " + ", ".join(f"{k} {v}" for k, v in seen["tiers"].items()))
    lines += [f"failed          {code}: {seen['examples'].get(code, '')} ({count})"
              for code, count in seen["errors"].items()]  # fmt: skip
    lines += list_doubts(seen)
    return "\n".join(line for line in lines if line)


def list_doubts(seen: Mapping[str, Any]) -> list[str]:
    own, doubts = seen["generator"], []
    if own["late"]:
        lag = seen.get("result", seen["now"])["lag"]
        doubts.append(
            f"The load generator was late (up to {ms(lag['max'])}) and below the rate. "
            "The delay is included in the times above."
        )
    if own["busy"]:
        doubts.append(
            f"The load generator used {own['cpu_share']:.0%} of a core, which may affect the times."
        )
    if seen["not_sent"]:
        doubts.append(f"{seen['not_sent']} scheduled requests were not sent: too many in flight.")
    return doubts


def ms(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"

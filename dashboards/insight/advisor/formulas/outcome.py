"""Comparison of recorded requests before and after an applied change with what was promised. Pure.

Each interval is of resampled sessions. Requests of other lengths or rates are no comparison.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

from dashboards.insight.traces.trace import TraceRequest
from dashboards.insight.whatif.model.outcome import Estimate, interval

MIN_REQUESTS = 100  # with a TTFT, before and after
MAX_MIX_CHANGE = 0.25
CAME, MISSED, UNTOLD = "came", "did_not_come", "cannot_be_told"
WAITING = "waiting"
NOT_APPLIED = "not_applied"  # of a prompt layout, which callers change
LABELS = {
    NOT_APPLIED: "Not applied yet",
    WAITING: "Waiting",
    CAME: "Gain came",
    MISSED: "Gain did not come",
    UNTOLD: "Cannot be told",
}
_DRAWS = 200
_MEASURES = {"ttft_p50_s": "TTFT p50", "ttft_p90_s": "TTFT p90", "hit_rate": "Hit rate"}
_MIX = {
    "requests_per_s": "requests/s",
    "prompt_tokens": "prompt tokens per request",
    "output_tokens": "output tokens per request",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    verdict: str
    text: str


def summarize(requests: Sequence[TraceRequest], seed: int = 0) -> dict[str, Any]:
    """Return JSON: figures, figures of resampled sessions, and the mix of the requests. Samples
    that are compared need different seeds: equal ones would draw sessions in pairs.
    """
    timed = sum(request.ttft_s is not None for request in requests)
    summary: dict[str, Any] = {"requests": len(requests), "timed": timed}
    if timed < MIN_REQUESTS:
        return summary
    groups: dict[object, list[TraceRequest]] = {}
    for number, request in enumerate(requests):
        groups.setdefault(request.session or number, []).append(request)
    listed = list(groups.values())
    ordered = sorted(
        (request.ttft_s, index)
        for index, group in enumerate(listed)
        for request in group
        if request.ttft_s is not None
    )
    sums = [
        (
            sum(request.cached_tokens for request in group if request.cached_tokens is not None),
            sum(request.prompt_tokens for request in group if request.cached_tokens is not None),
        )
        for group in listed
    ]
    chance = random.Random(seed)
    draws = [_figures(ordered, sums, [1] * len(listed))]
    for _ in range(_DRAWS):
        weights = [0] * len(listed)
        for choice in chance.choices(range(len(listed)), k=len(listed)):
            weights[choice] += 1
        draws.append(_figures(ordered, sums, weights))
    count = len(requests)
    span = requests[-1].arrived_s - requests[0].arrived_s
    return {
        **summary,
        "figures": {name: draws[0][name] for name in _MEASURES},
        "draws": {name: [draw[name] for draw in draws[1:]] for name in _MEASURES},
        "mix": {
            "requests_per_s": count / max(span, 1e-9),
            "prompt_tokens": sum(request.prompt_tokens for request in requests) / count,
            "output_tokens": sum(request.output_tokens for request in requests) / count,
        },
    }


def _figures(
    ordered: Sequence[tuple[float, int]], sums: Sequence[tuple[int, int]], weights: Sequence[int]
) -> dict[str, float | None]:
    heights = list(accumulate(weights[index] for _, index in ordered))
    total = heights[-1]
    figures: dict[str, float | None] = {}
    for name, part in (("ttft_p50_s", 0.5), ("ttft_p90_s", 0.9)):
        place = next((index for index, height in enumerate(heights) if height > part * total), -1)
        figures[name] = ordered[place][0]
    cached, prompt = (
        sum(weight * figure[part] for weight, figure in zip(weights, sums, strict=True))
        for part in (0, 1)
    )
    figures["hit_rate"] = cached / prompt if prompt else None
    return figures


def measure_changes(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    expected: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None,
) -> dict[str, Estimate]:
    """Return relative changes of TTFT and the difference of the hit rate, with intervals.

    `expected`: the same requests as a model answers them without the change; what differs there is
    taken off, draw by draw, since draws of the same seed have the same sessions.
    """
    estimates = {}
    for name in _MEASURES:
        samples = [_sample(phase, name) for phase in (before, after, *(expected or ()))]
        if any(value is None for value in chain.from_iterable(samples)):
            continue
        changes = [_change(name, *triple) for triple in zip(*samples, strict=True)]
        low, high = interval(changes[1:])
        estimates[name] = Estimate(changes[0], min(low, changes[0]), max(high, changes[0]))
    return estimates


def _sample(summary: Mapping[str, Any], name: str) -> list[Any]:
    return [summary["figures"][name], *summary["draws"][name]]


def _change(
    name: str, old: float, new: float, old_expected: float = 1.0, new_expected: float = 1.0
) -> float:
    if name == "hit_rate":
        return new - old - (new_expected - old_expected)
    return new / old * (old_expected / max(new_expected, 1e-9)) - 1


def describe_drift(drift: Mapping[str, Estimate]) -> str:
    parts = [f"{_MEASURES[name]} {_text(name, estimate)}" for name, estimate in drift.items()]
    return f"Taken off as the effect of other requests, by the model: {', '.join(parts)}."


def describe_mix(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return what differs too much for a comparison, "" if nothing does."""
    changed = []
    for name, label in _MIX.items():
        old, new = before["mix"][name], after["mix"][name]
        change = new / old - 1 if old else 0.0
        if abs(change) > MAX_MIX_CHANGE:
            changed.append(f"{label} {change:+.0%}")
    return ", ".join(changed)


def judge_change(
    promise: Mapping[str, Estimate], measured: Mapping[str, Estimate], exact_money: bool
) -> Verdict:
    """Compare with the promised changes. `exact_money`: the gain is a smaller bill, which needs no
    measurement; TTFT must not be worse than promised.
    """
    parts, gained, missed = [], [], []
    for name, label in _MEASURES.items():
        if name not in promise or name not in measured:
            continue
        hoped, real = promise[name], measured[name]
        sign = 1 if name == "hit_rate" else -1
        parts.append(f"{label} {_text(name, real)}, promised {_text(name, hoped)}")
        if (real.high if sign > 0 else -real.low) < (hoped.low if sign > 0 else -hoped.high):
            missed.append(label)
        if (hoped.low if sign > 0 else -hoped.high) > 0:
            gained.append((real.low if sign > 0 else -real.high) > 0)
    text = "; ".join(parts)
    if not parts:
        return Verdict(UNTOLD, "Nothing that was promised was measured.")
    if missed:
        return Verdict(MISSED, f"{text}. Worse than promised: {', '.join(missed)}.")
    if (gained and all(gained)) or (exact_money and not gained):
        return Verdict(CAME, f"{text}.")
    return Verdict(UNTOLD, f"{text}. The interval of the measurement includes no gain.")


def _text(name: str, one: Estimate) -> str:
    low, high = 100 * one.low, 100 * one.high
    if name == "hit_rate":
        return f"{100 * one.value:+.1f} points ({low:+.1f} to {high:+.1f})"
    return f"{100 * one.value:+.0f} % ({low:+.0f} to {high:+.0f})"

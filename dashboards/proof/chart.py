"""Rows with bars for a proof's three requests, rendered without script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TITLES = {"cold": "Cold", "again": "The same again", "other": "The same, at another worker"}
# Colour by the main token source; the table lists all sources.
_NEAREST = ("L2", "L1", "device")


@dataclass(frozen=True, slots=True)
class ProofRow:
    """`width` is in percent of the slowest; `source` is display text."""

    title: str
    worker: str
    ttft_s: float | None
    cached_tokens: int | None
    prompt_tokens: int | None
    source: str
    tier: str
    ratio_percent: int | None
    same_text: bool | None
    decision: str
    width: float
    error: str


def make_rows(shots: Sequence[Mapping[str, Any]]) -> list[ProofRow]:
    slowest = max((shot.get("ttft_s") or 0 for shot in shots), default=0)
    return [_row(shot, slowest) for shot in shots]


def _row(shot: Mapping[str, Any], slowest: float) -> ProofRow:
    sources = shot.get("sources")
    ttft = shot.get("ttft_s")
    ratio = shot.get("ratio")
    return ProofRow(
        title=TITLES.get(str(shot.get("step")), str(shot.get("step"))),
        worker=str(shot.get("worker") or ""),
        ttft_s=ttft,
        cached_tokens=shot.get("cached_tokens"),
        prompt_tokens=shot.get("prompt_tokens"),
        source=_source(sources),
        tier=_tier(sources),
        ratio_percent=None if ratio is None else round(100 * ratio),
        same_text=shot.get("same_text"),
        decision=str(shot.get("decision") or ""),
        # Minimum width: an invisible bar would look missing.
        width=max(1.0, round(100 * ttft / slowest, 1)) if ttft and slowest else 0.0,
        error=str(shot.get("error") or ""),
    )


def _source(sources: Any) -> str:
    if sources is None:
        return "not measured"
    return ", ".join(f"{tier} {tokens}" for tier, tokens in sources.items()) or "computed"


def _tier(sources: Any) -> str:
    if not sources:
        return "computed"
    most = max(_NEAREST, key=lambda tier: sources.get(tier, 0))
    return most.lower()

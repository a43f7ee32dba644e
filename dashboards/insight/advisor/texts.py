"""Texts of an advice row: change, gains with their intervals, and what it costs. Pure."""

from __future__ import annotations

from typing import Any

from console.core.money import format_usd
from dashboards.insight.advisor.formulas.gains import TRADE_OFF, WORSE, AdviceRow
from dashboards.insight.whatif.model.outcome import Estimate

KINDS = {
    "strategy": "Strategy",
    "replicas": "Replicas",
    "cache": "Cache sizes",
    "layout": "Prompt layout",
    "salts": "Cache salts",
}
_COLOURS = {"high": "green", "medium": "blue", "low": "orange"}


def describe_row(row: AdviceRow) -> dict[str, Any]:
    kind = KINDS[row.kind]
    changes = [
        f"{label} {_value(before)} → {_value(after)}" for label, before, after in row.changes
    ]
    alone = len(changes) == 1 and changes[0].startswith(kind)
    return {
        "row": row,
        "kind": kind,
        "title": changes[0] if alone else kind,
        "changes": [] if alone else changes,
        "money": _money(row.money),
        "ttft": _relative(row.ttft_p90),
        "ttft_p50": _relative(row.ttft_p50),
        "seconds": None
        if row.seconds is None
        else f"{format_seconds(row.seconds[0])} → {format_seconds(row.seconds[1])}",
        "hit_rate": _points(row.hit_rate),
        "costs": _costs(row),
        "colour": _COLOURS.get(row.confidence, "secondary"),
        "worse": row.verdict == WORSE,
        "trade_off": row.verdict == TRADE_OFF,
    }


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def format_seconds(value: float) -> str:
    return f"{value * 1000:,.0f} ms" if value < 1 else f"{value:,.2f} s"


def _money(one: Estimate | None) -> tuple[str, str] | None:
    """Return the gain and its interval; that of an exact one is empty."""
    if one is None:
        return None
    if one.low == one.high:
        return _signed(one.value), ""
    return _signed(one.value), f"{_signed(one.low)} to {_signed(one.high)}"


def _signed(amount: float) -> str:
    amount = 0.0 if abs(amount) < 0.005 else amount
    text = format_usd(amount)
    return f"+{text}" if amount > 0 else text


def _relative(one: Estimate | None) -> tuple[str, str] | None:
    if one is None:
        return None
    return f"{_zero(one.value):+.1%}", f"{_zero(one.low):+.1%} to {_zero(one.high):+.1%}"


def _points(one: Estimate | None) -> tuple[str, str] | None:
    if one is None:
        return None
    value, low, high = (f"{_zero(100 * part):+.1f}" for part in (one.value, one.low, one.high))
    return f"{value} points", f"{low} to {high}"


def _zero(value: float) -> float:
    return round(value, 4) + 0.0  # no "-0.0"


def _costs(row: AdviceRow) -> str:
    parts = []
    if row.kind == "replicas":
        before, after = row.changes[0][1:]
        many = abs(after - before)
        word = "worker" if many == 1 else "workers"
        parts.append(f"{many} {word} {'more' if after > before else 'fewer'}")
    if abs(row.memory_gib) >= 0.05:
        parts.append(f"{row.memory_gib:+,.1f} GiB memory")
    if row.bill is not None and abs(row.bill) >= 0.005:
        parts.append(f"{_signed(row.bill)}/month")
    return ", ".join(parts) or "nothing"

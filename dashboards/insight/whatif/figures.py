"""Rows of the pages: figures with intervals, backtest and constants as text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from console.core.money import format_usd

Estimated = Mapping[str, float]


def _seconds(value: float) -> str:
    return f"{value * 1000:,.0f} ms" if value < 1 else f"{value:,.2f} s"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _number(value: float) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


# Figure: label, text of a value, better direction (-1: lower), text of a change.
_Form = Callable[[float], str]
LABELS: dict[str, tuple[str, _Form, int]] = {
    "ttft_p50_s": ("TTFT p50", _seconds, -1),
    "ttft_p90_s": ("TTFT p90", _seconds, -1),
    "ttft_p99_s": ("TTFT p99", _seconds, -1),
    "hit_rate": ("Hit rate", _percent, 1),
    "device_hit_rate": ("Hit rate, device", _percent, 0),
    "l1_hit_rate": ("Hit rate, L1", _percent, 0),
    "l2_hit_rate": ("Hit rate, L2", _percent, 0),
    "requests_per_s": ("Requests/s", _number, 0),
    "output_tokens_per_s": ("Output tokens/s", _number, 0),
    "cost_per_hour": ("Cost (USD/h)", format_usd, -1),
    "cost_per_million_tokens": ("Cost per million tokens (USD)", format_usd, -1),
}
_RATES = ("hit_rate", "device_hit_rate", "l1_hit_rate", "l2_hit_rate")
_CONSTANTS = {
    "step_s": ("Engine step", 1e3, "ms"),
    "prefill_s": ("Prefill per prompt token", 1e6, "µs"),
    "context_s": ("Attention per prompt and context token", 1e9, "ns"),
    "decode_s": ("Step time per decoding request", 1e3, "ms"),
    "overhead_s": ("Overhead per request", 1e3, "ms"),
    "l1_load_s": ("Load per token from L1", 1e6, "µs"),
    "l2_load_s": ("Load per token from L2", 1e6, "µs"),
}


@dataclass(frozen=True, slots=True)
class FigureCell:
    text: str
    interval: str
    verdict: str = ""  # better, worse, or "" if the interval includes no change


@dataclass(frozen=True, slots=True)
class FigureRow:
    label: str
    cells: tuple[FigureCell, ...]


def _cell(estimate: Estimated | None, form: _Form) -> FigureCell:
    if estimate is None:
        return FigureCell("–", "")
    return FigureCell(
        form(estimate["value"]), f"{form(estimate['low'])} to {form(estimate['high'])}"
    )


def _change(name: str, estimate: Estimated | None) -> FigureCell:
    if estimate is None:
        return FigureCell("–", "")
    points = name in _RATES

    def form(value: float) -> str:
        value = round(value, 3) + 0.0  # no "-0.0"
        return f"{100 * value:+.1f} points" if points else f"{value:+.1%}"

    direction = LABELS[name][2]
    verdict = ""
    if direction and (estimate["low"] > 0 or estimate["high"] < 0):
        verdict = "better" if (estimate["value"] > 0) == (direction > 0) else "worse"
    interval = f"{form(estimate['low']).removesuffix(' points')} to {form(estimate['high'])}"
    return FigureCell(form(estimate["value"]), interval, verdict)


def _shows(side: Mapping[str, Estimated], name: str) -> bool:
    """Return whether a side has the figure; tiers that hit nothing are left out."""
    return name in side and (name not in ("l1_hit_rate", "l2_hit_rate") or side[name]["high"] > 0)


def list_figures(result: Mapping[str, Any]) -> list[FigureRow]:
    """Return present, candidate and change of each figure; empty without an answer."""
    present, candidate = result.get("present"), result.get("candidate")
    change = result.get("change") or {}
    if not present or not candidate:
        return []
    return [
        FigureRow(
            label,
            (
                _cell(present.get(name), form),
                _cell(candidate.get(name), form),
                _change(name, change.get(name)),
            ),
        )
        for name, (label, form, _) in LABELS.items()
        if any(_shows(side, name) for side in (present, candidate))
    ]


QUEUEING = 0.2  # spread of TTFT p90 between runs from which the page states it


def describe_queues(result: Mapping[str, Any]) -> str:
    """Return why times are uncertain near saturation; "" where they are not."""
    spread = result.get("ttft_p90_spread") or 0.0
    if spread < QUEUEING:
        return ""
    return (
        f"Queues form: TTFT p90 differs by {spread:.0%} between simulations with almost equal "
        "constants, because single placements decide how long requests wait. The intervals of "
        "TTFT are wide accordingly. More replicas or a lower rate give a definite answer."
    )


def list_candidates(results: Sequence[Mapping[str, Any]]) -> list[FigureRow]:
    """Return each figure of several analyses' candidates."""
    sides = [result.get("candidate") or {} for result in results]
    return [
        FigureRow(label, tuple(_cell(side.get(name), form) for side in sides))
        for name, (label, form, _) in LABELS.items()
        if any(_shows(side, name) for side in sides)
    ]


def list_backtest(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for row in result.get("backtest", {}).get("rows", ()):
        label, form, _ = LABELS[row["name"]]
        rate = row["name"] in _RATES
        bound = "–"
        if row["bound"] is not None:
            bound = f"±{100 * row['bound']:.0f} points" if rate else f"±{row['bound']:.0%}"
        rows.append(
            {
                "label": label,
                "predicted": form(row["predicted"]),
                "measured": form(row["measured"]),
                "error": f"{100 * row['error']:+.1f} points" if rate else f"{row['error']:+.1%}",
                "bound": bound,
                "holds": row["holds"],
            }
        )
    return rows


def list_constants(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return label, value and interval of each fitted constant."""
    constants = []
    for name, values in result.get("calibration", {}).get("constants", {}).items():
        label, factor, unit = _CONSTANTS[name]
        texts = [f"{values[key] * factor:.3g}" for key in ("value", "low", "high")]
        constants.append((f"{label} ({unit})", texts[0], f"{texts[1]} to {texts[2]}"))
    return constants


@dataclass(frozen=True, slots=True)
class ScopeRow:
    """Effect of a cache isolation on one API key or key group. `cells`: hit rate now and
    isolated (interval: isolated), its change; TTFT p50 and p90, prefill and cost as changes.
    """

    label: str
    requests: int
    elsewhere: int
    cells: tuple[FigureCell, ...]

    @property
    def named_cells(self) -> list[tuple[str, FigureCell]]:
        return list(zip(ISOLATION_COLUMNS, self.cells, strict=True))


ISOLATION_COLUMNS = (
    "Hit rate",
    "Change",
    "TTFT p50",
    "TTFT p90",
    "Prefill (s/h)",
    "Cost (USD/month)",
)


def list_scopes(result: Mapping[str, Any]) -> list[ScopeRow]:
    """Return the rows of an isolation preview; the first has all requests."""
    scopes = []
    for row in (result.get("isolation") or {}).get("rows", ()):
        now = _cell(row["present"].get("hit_rate"), _percent)
        isolated = _cell(row["candidate"].get("hit_rate"), _percent)
        cells = [
            FigureCell(f"{now.text} → {isolated.text}", isolated.interval),
            *(_change(name, row["change"].get(name)) for name in ("hit_rate", *_TIMES)),
            _added(row["added_prefill_s_per_hour"], lambda value: f"{value:+,.3g}"),
            _added(row["added_usd_per_month"], lambda value: f"{value:+,.2f}"),
        ]
        elsewhere = row["first_sent_elsewhere_tokens"]
        scopes.append(ScopeRow(_scope_label(row), row["requests"], elsewhere, tuple(cells)))
    return scopes


_TIMES = ("ttft_p50_s", "ttft_p90_s")


def _added(estimate: Estimated | None, form: _Form) -> FigureCell:
    cell = _cell(estimate, form)
    if estimate is None or estimate["low"] <= 0 <= estimate["high"]:
        return cell
    return FigureCell(cell.text, cell.interval, "worse" if estimate["value"] > 0 else "better")


def _scope_label(row: Mapping[str, Any]) -> str:
    if not row["scope"]:
        return "All requests"
    kind, _, digest = row["scope"].partition(" ")
    if not digest:
        return "Other keys and groups"
    title = "Key group" if kind == "group" else "Key"
    return f"{title} {row.get('name') or digest[:8]}"

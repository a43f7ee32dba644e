"""Gains of replayed candidates in money and TTFT, and the verdict on each. Pure.

Money of a change of replicas is what the workers cost less. Money of any other change is the worth
of the prompt tokens that need not be computed, at the price of a worker, less loads and memory: the
same convention as on the page Costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dashboards.insight.advisor.formulas.candidates import LABELS, changed_fields
from dashboards.insight.whatif.model.outcome import Estimate

HOURS_A_MONTH = 730.0
HOUR_S = 3600.0
MAX_SLOWER = 0.05  # TTFT p50 and p90 of a change that is advised for its money
MIN_FASTER = 0.02  # TTFT p90 of a change that is advised for its TTFT
ADVISED, TRADE_OFF, UNCLEAR, WORSE = "advised", "trade_off", "no_clear_gain", "worse"
MOST_SLOWER = 1.0  # TTFT p50 and p90 of a trade-off
_SAME = 0.01  # TTFT gains that differ by less are alike


@dataclass(frozen=True, slots=True)
class AdviceRow:
    """One row of advice with its gains. `money`: gain in USD per month. `bill`: change of what
    workers and tiers cost, USD per month. `ttft_p50`, `ttft_p90`, `hit_rate`: changes, `seconds`:
    TTFT p90 before and after. `changes`: label, before, after. `fields`: changed values of the
    what-if model.
    """

    key: str
    kind: str
    changes: tuple[tuple[str, Any, Any], ...]
    verdict: str = UNCLEAR
    confidence: str = ""
    why: str = ""
    money: Estimate | None = None
    bill: float | None = None
    ttft_p50: Estimate | None = None
    ttft_p90: Estimate | None = None
    hit_rate: Estimate | None = None
    seconds: tuple[float, float] | None = None
    memory_gib: float = 0.0
    fields: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices that gains are computed with. `l2`: of a GiB of L2 (USD/h). None: unknown; `why`
    states what is missing.
    """

    l2: float | None = None
    why: str = ""


def bill_per_hour(values: Mapping[str, Any], prices: Prices) -> float | None:
    """Return the price of the workers and of L2."""
    each = values["price_usd_hour"]
    if each is None or (values["l2_gib"] and prices.l2 is None):
        return None
    return float(each * values["replicas"] + values["l2_gib"] * (prices.l2 or 0.0))


def bill_change(
    present: Mapping[str, Any], values: Mapping[str, Any], prices: Prices
) -> float | None:
    """Return USD per month; an unknown price of L2 matters only where its size changes."""
    if values["l2_gib"] == present["l2_gib"]:
        prices = replace(prices, l2=0.0)
    before, after = bill_per_hour(present, prices), bill_per_hour(values, prices)
    return None if before is None or after is None else (after - before) * HOURS_A_MONTH


def worth(
    result: Mapping[str, Any], change: Mapping[str, Estimate], price: float | None
) -> Estimate | None:
    """Return the worth of the tokens that a change saves, USD per month at the replayed rate."""
    if price is None or not result["seconds"]:
        return None
    constants = result["calibration"]["constants"]
    hourly = result["prompt_tokens"] / result["seconds"] * HOUR_S
    usd = hourly / HOUR_S * price * HOURS_A_MONTH  # of a worker second for each prompt token
    loads = sum(
        change[f"{tier}_hit_rate"].value * constants[f"{tier}_load_s"]["value"]
        for tier in ("l1", "l2")
    )
    rate, prefill = change["hit_rate"], constants["prefill_s"]
    ends = prefill["low"], prefill["high"]
    bounds = [bound * seconds for bound in (rate.low, rate.high) for seconds in ends]
    value = rate.value * prefill["value"]
    return Estimate(
        *(usd * (share - loads) for share in (value, min(*bounds, value), max(*bounds, value)))
    )


def evaluate(
    present: Mapping[str, Any],
    values: Mapping[str, Any],
    figures: Mapping[str, Any],
    result: Mapping[str, Any],
    prices: Prices,
) -> AdviceRow:
    """`figures`: of the candidate in the result of its survey."""
    change = {name: Estimate(**estimates) for name, estimates in figures["change"].items()}
    fields = changed_fields(present, values)
    kind = "cache" if "l1_gib" in fields or "l2_gib" in fields else next(iter(fields))
    bill = bill_change(present, values, prices)
    if kind == "replicas":
        money = None if bill is None else Estimate(-bill, -bill, -bill)
    else:
        saved = worth(result, change, present["price_usd_hour"])
        money = None if saved is None or bill is None else _shift(saved, -bill)
    memory = (values["l1_gib"] - present["l1_gib"]) * present["replicas"]
    memory += values["l2_gib"] - present["l2_gib"]
    row = AdviceRow(
        ",".join(f"{name}={value}" for name, value in fields.items()),
        kind,
        tuple((LABELS[name], present[name], value) for name, value in fields.items()),
        money=money,
        bill=bill,
        ttft_p50=change.get("ttft_p50_s"),
        ttft_p90=change.get("ttft_p90_s"),
        hit_rate=change.get("hit_rate"),
        seconds=(
            result["present"]["ttft_p90_s"]["value"],
            figures["candidate"]["ttft_p90_s"]["value"],
        ),
        memory_gib=memory,
        fields=fields,
        note=prices.why if bill is None else "",
    )
    verdict = judge(row)
    confidence, why = rate_confidence(row, result["backtest"]["rows"])
    return replace(row, verdict=verdict, confidence=confidence, why=why)


def _shift(one: Estimate, by: float) -> Estimate:
    return Estimate(one.value + by, one.low + by, one.high + by)


def judge(row: AdviceRow) -> str:
    cheaper, dearer = _money_signs(row)
    times = [change for change in (row.ttft_p50, row.ttft_p90) if change is not None]
    slower = any(change.low > 0 and change.value > MIN_FASTER for change in times)
    bounded = all(change.high <= MAX_SLOWER for change in times)
    p90 = row.ttft_p90
    faster = p90 is not None and p90.high < 0 and p90.value <= -MIN_FASTER and not slower
    if (cheaper and bounded) or (faster and not dearer):
        return ADVISED
    bearable = all(change.value <= MOST_SLOWER for change in times)
    if (cheaper and bearable) or (faster and dearer):
        return TRADE_OFF
    return WORSE if slower or dearer else UNCLEAR


def _money_signs(row: AdviceRow) -> tuple[bool, bool]:
    """Return whether the change certainly gains money, and whether it certainly costs some.

    Without a price, workers and memory still have a sign.
    """
    if row.money is not None:
        return row.money.low > 0, row.money.high < 0
    if row.kind == "replicas":
        more = next(iter(row.changes))[2] > next(iter(row.changes))[1]
        return not more, more
    return False, row.memory_gib > 0


def rate_confidence(row: AdviceRow, tested: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return high, medium or low, and the reason: error of the backtest, width of the interval."""
    errors = [abs(test["error"]) / test["bound"] for test in tested if test["bound"]]
    worst = max(errors, default=1.0)
    gain = row.money if row.kind == "cache" and row.money is not None else row.ttft_p90
    width = 9.9
    if gain is not None and gain.value:
        width = (gain.high - gain.low) / 2 / abs(gain.value)
    text = f"Backtest error {worst:.0%} of its limit; interval ±{min(width, 9.99):.0%} of the gain."
    if worst <= 0.5 and width <= 0.5:
        return "high", text
    return ("medium" if width <= 1 else "low"), text


def sort_key(row: AdviceRow) -> tuple[float, float]:
    """Most money first, then the largest gain in TTFT."""
    ttft = row.ttft_p90.value if row.ttft_p90 is not None else 0.0
    return (-row.money.value if row.money is not None else 0.0, ttft)


def choose_rows(rows: Sequence[AdviceRow]) -> list[AdviceRow]:
    """Return the rows to list: of the cache sizes only the best for money and for TTFT."""
    sizes = [row for row in rows if row.kind == "cache"]
    chosen = [row for row in rows if row.kind != "cache"]
    for verdict in (ADVISED, TRADE_OFF):
        matching = sorted((row for row in sizes if row.verdict == verdict), key=sort_key)
        if not matching:
            continue
        fastest = min((_ttft(row) for row in matching), default=0.0)
        quick = [row for row in matching if _ttft(row) <= fastest + _SAME]
        small = min(quick, key=lambda row: (row.memory_gib, sort_key(row)))
        best = matching[0] if matching[0].money is not None else small
        chosen.append(best)
        if small is not best and _ttft(small) < _ttft(best) - MIN_FASTER:
            chosen.append(small)
    if sizes and not any(row.kind == "cache" for row in chosen):
        chosen.append(min(sizes, key=lambda row: (row.verdict == WORSE, *sort_key(row))))
    return sorted(chosen, key=sort_key)


def _ttft(row: AdviceRow) -> float:
    return row.ttft_p90.value if row.ttft_p90 is not None else 0.0

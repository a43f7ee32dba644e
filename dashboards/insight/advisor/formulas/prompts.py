"""Advice from the miss ledger: layouts of prompt templates, and cache salts. Pure.

Both change what callers send or share, so that no replay of recorded prompts can show them; their
gains are sums of the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.insight.advisor.formulas.gains import (
    ADVISED,
    HOUR_S,
    HOURS_A_MONTH,
    TRADE_OFF,
    UNCLEAR,
    AdviceRow,
    sort_key,
)
from dashboards.insight.whatif.model.outcome import Estimate

MIN_HOURS = 1.0
MIN_TOKENS = 1000  # of a template or of salts, in the ledger's range
MAX_TEMPLATES = 5
SALTS = "salts"  # key of the row
_ERROR_UNKNOWN = 0.5


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """Worker seconds and USD of a computed prompt token; `error`: relative."""

    seconds: float | None
    usd: float | None
    error: float
    source: str


def price_tokens(
    misses: Mapping[str, Any], result: Mapping[str, Any], worker_usd_hour: float | None
) -> TokenPrice:
    """Return the calibration of the costs, else that of the survey."""
    if misses["seconds_token"]:
        error = misses["price_error"]
        return TokenPrice(
            misses["seconds_token"],
            misses["usd_token"],
            _ERROR_UNKNOWN if error is None else error,
            "calibration under Costs",
        )
    prefill_s = result.get("calibration", {}).get("constants", {}).get("prefill_s")
    if not prefill_s or result["backtest"]["refusal"]:
        return TokenPrice(None, None, _ERROR_UNKNOWN, "")
    error = (
        (prefill_s["high"] - prefill_s["low"]) / 2 / prefill_s["value"]
        if prefill_s["value"]
        else 0.0
    )
    usd = None if worker_usd_hour is None else prefill_s["value"] * worker_usd_hour / HOUR_S
    return TokenPrice(prefill_s["value"], usd, error, "calibration of this advice")


def list_prompt_rows(facts: Mapping[str, Any], price: TokenPrice) -> list[AdviceRow]:
    misses = facts["misses"]
    if misses["error"] or not misses["hours"]:
        return []
    rows = [
        _layout_row(template, misses, price)
        for template in misses["templates"]
        if template["computed"] >= MIN_TOKENS
    ]
    rows.sort(key=sort_key)
    del rows[MAX_TEMPLATES:]
    if misses["salted_tokens"] >= MIN_TOKENS:
        rows.append(_salt_row(facts, price))
    return rows


def _money(tokens: Estimate, hours: float, price: TokenPrice) -> Estimate | None:
    if price.usd is None:
        return None
    each = price.usd * HOURS_A_MONTH / max(hours, MIN_HOURS)
    return Estimate(
        tokens.value * each,
        tokens.low * each * max(1 - price.error, 0.0),
        tokens.high * each * (1 + price.error),
    )


def _faster(tokens: float, requests: int, price: TokenPrice) -> str:
    if price.seconds is None or not requests:
        return ""
    return f" Their TTFT falls by {1000 * tokens * price.seconds / requests:,.0f} ms on average."


def _layout_row(one: Mapping[str, Any], misses: Mapping[str, Any], price: TokenPrice) -> AdviceRow:
    saved = float(one["saved"])
    # The replay is a lower bound; at most everything behind the change was cached.
    money = _money(Estimate(saved, saved, float(one["computed"])), misses["hours"], price)
    part = f", {one['part']}" if one["part"] else ""
    text = (
        f"{one['cause']} at token {one['offset']:,}{part}, before {one['stable']:,} tokens that "
        f"stay the same: move the changing part behind them. {one['saved']:,} of "
        f"{one['computed']:,} computed tokens of {one['requests']:,} requests would have been "
        f"cached.{_faster(saved, one['requests'], price)}"
    )
    return AdviceRow(
        f"layout={one['code']}",
        "layout",
        (("Prompt template", one["code"], "stable part first"),),
        verdict=ADVISED if saved >= MIN_TOKENS else UNCLEAR,
        confidence="medium" if one["saved"] * 2 >= one["computed"] else "low",
        why=_why("replay of the ledger on the same workers, a lower bound", misses, price),
        money=money,
        bill=0.0,
        text=text,
        fields={"decision": one["decision"]},
        note="" if money else misses["price_why"],
    )


def _salt_row(facts: Mapping[str, Any], price: TokenPrice) -> AdviceRow:
    misses = facts["misses"]
    tokens = float(misses["salted_tokens"])
    isolation = facts["isolation"]
    shared = isolation == "shared"
    # Equal prompts were there under another salt; whether on the worker that was chosen is unknown.
    money = _money(Estimate(tokens, tokens / 2, tokens), misses["hours"], price)
    prompt = misses.get("prompt", 0)  # unknown in earlier advice
    names = ", ".join(sorted(misses["salted"], key=lambda name: -misses["salted"][name])[:3])
    text = (
        f"{misses['salted_tokens']:,} of {misses['computed']:,} computed tokens were cached under "
        f"another salt{f', most of them of {names}' if names else ''}. "
    )
    text += (
        "Callers send salts of their own (cache_salt): use one for prompts that may be shared."
        if shared
        else "Share the cache among keys that trust each other; response times of a shared cache "
        "tell one key what another has sent."
    )
    return AdviceRow(
        SALTS,
        "salts",
        ()
        if shared
        else (("Cache isolation", isolation, "group" if isolation == "key" else "shared"),),
        verdict=TRADE_OFF,
        confidence="low",
        why=_why("half of these tokens to all of them", misses, price),
        money=money,
        bill=0.0,
        hit_rate=Estimate(tokens / prompt, tokens / 2 / prompt, tokens / prompt)
        if prompt
        else None,
        text=text,
        note="" if money else misses["price_why"],
    )


def _why(evidence: str, misses: Mapping[str, Any], price: TokenPrice) -> str:
    source = f"; prefill time per token: {price.source}" if price.source else ""
    return f"Miss ledger, {misses['hours']:.0f} h: {evidence}{source}."

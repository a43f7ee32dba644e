"""Fleet summary for the Overview: recent cache hit rate by tier and TTFT."""

from __future__ import annotations

from dataclasses import dataclass

from dashboards.boards.charts.series import format_value
from dashboards.boards.queries import Scope
from dashboards.boards.results import evidence
from dashboards.boards.results.board import make_fault_message
from dashboards.prometheus.http.client import Asker
from routing.analysis.label_names import get_name

RECENT_S = 900
NO_PROMPT = "No prompts of callers in the last 15 minutes."
TIERS = tuple((key, get_name("tier", key)) for key in ("device", "l1", "l2", "beyond", "computed"))


@dataclass(frozen=True, slots=True)
class TierShare:
    key: str
    label: str
    percent: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of the fleet. `why` explains missing values; "" if there are none."""

    tiers: tuple[TierShare, ...] = ()
    ttft_p50_s: float | None = None
    ttft_p90_s: float | None = None
    requests_s: float | None = None
    why: str = ""

    @property
    def requests_words(self) -> str:
        return format_value("per_s", self.requests_s).removesuffix("/s")

    @property
    def reused_percent(self) -> float | None:
        if not self.tiers:
            return None
        return sum(share.percent for share in self.tiers if share.key != "computed")


def summarize_fleet(prometheus: Asker, scope: Scope) -> Summary:
    names = ("prompt_share_by_source", "ttft_p50", "ttft_p90", "requests_total")
    answers = evidence.ask_recent_totals(prometheus, scope, names, RECENT_S)
    fault = next((answer.fault for answer in answers.values() if answer.fault), None)
    if fault is not None:
        message = make_fault_message(fault)
        return Summary(why=f"{message.title}: {message.text} {message.fix}")
    shares = {
        series.label("tier"): series.latest for series in answers["prompt_share_by_source"].series
    }
    tiers = tuple(
        TierShare(key, label, 100 * (shares.get(key) or 0))
        for key, label in TIERS
        if key != "beyond" or shares.get(key)
    )
    missing = sorted({absence.detail for answer in answers.values() for absence in answer.missing})
    if not any(share.percent for share in tiers):
        return Summary(why=" ".join(missing) or NO_PROMPT)
    p50, p90, requests_s = (
        next((series.latest for series in answers[name].series), None)
        for name in ("ttft_p50", "ttft_p90", "requests_total")
    )
    return Summary(tiers, p50, p90, requests_s)

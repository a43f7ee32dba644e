"""Comparison of the model's prediction with what was measured in the same time. Pure.

The constants come from the requests before; the prediction then replays all of them with the
product's policies, so that caches are as full as they were, and only the later ones are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dashboards.insight.traces.trace import Trace, TraceRequest
from dashboards.insight.whatif.model.outcome import TTFT, RunTable

MIN_REQUESTS = 100
MAX_TTFT_ERROR = 0.25  # relative, of p50 and p90
MAX_HIT_RATE_ERROR = 0.05
BOUNDS = {TTFT[0]: MAX_TTFT_ERROR, TTFT[1]: MAX_TTFT_ERROR, "hit_rate": MAX_HIT_RATE_ERROR}
CHANGED_PACE = 1.2
NOISY = 0.3
_PARTS = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class BacktestRow:
    """Figure of the backtest. `error`: predicted / measured - 1; of the hit rate the difference.
    `bound` None: none.
    """

    name: str
    predicted: float
    measured: float
    error: float
    bound: float | None

    @property
    def holds(self) -> bool:
        return self.bound is None or abs(self.error) <= self.bound


@dataclass(frozen=True)
class Backtest:
    requests: int
    rows: tuple[BacktestRow, ...]
    refusal: str  # "" if the errors are within their bounds
    reported: int = 0  # requests whose cached tokens are known

    @property
    def hit_rate_holds(self) -> bool:
        """Return whether the hit rate of enough requests was predicted."""
        rates = [row for row in self.rows if row.name == "hit_rate"]
        return self.reported >= MIN_REQUESTS and bool(rates) and rates[0].holds

    def without_times(self, why: str) -> Backtest:
        """Return the hit rate alone, refused: the constants are not those of the workers."""
        rows = tuple(row for row in self.rows if row.name == "hit_rate")
        wrong = "".join(
            f" The model misses the measured hit rate by {row.error:+.0%} (limit ±{row.bound:.0%})."
            for row in rows
            if not row.holds
        )
        return replace(self, rows=rows, refusal=why + wrong)

    def errors(self) -> dict[str, float]:
        return {row.name: row.error for row in self.rows}


def split_trace(trace: Trace) -> tuple[Trace, float]:
    """Return the first half of the requests, and the warm-up share that ends with it."""
    count = len(trace.requests)
    half = count // 2
    early = Trace(trace.block_tokens, trace.requests[:half], trace.began_at)
    return early, (half + 0.5) / count if count else 0.0


def measure(requests: Sequence[TraceRequest]) -> dict[str, float]:
    """Return the measured figures; those without data are absent."""
    ttft = sorted(request.ttft_s for request in requests if request.ttft_s is not None)
    result: dict[str, float] = {}
    if ttft:
        for name, part in zip(TTFT, _PARTS, strict=True):
            result[name] = ttft[min(len(ttft) - 1, int(part * len(ttft)))]
    reported = [request for request in requests if request.cached_tokens is not None]
    prompts = sum(request.prompt_tokens for request in reported)
    if prompts:
        result["hit_rate"] = sum(request.cached_tokens or 0 for request in reported) / prompts
    return result


def backtest(
    predicted: RunTable, requests: Sequence[TraceRequest], slower: float = 1.0, noise: float = 0.0
) -> Backtest:
    """Compare the prediction with the same requests as measured. `slower`: time of the workers for
    the same work, relative to the requests that the constants come from; `noise`: relative error
    of single times there.
    """
    figures, measured = predicted.figures(), measure(requests)
    rows = []
    for name in (*TTFT, "hit_rate"):
        if name not in measured:
            continue
        model, real = figures[name], measured[name]
        error = model - real if name == "hit_rate" else model / max(real, 1e-9) - 1
        rows.append(BacktestRow(name, model, real, error, BOUNDS.get(name)))
    reported = sum(request.cached_tokens is not None for request in requests)
    return Backtest(len(requests), tuple(rows), _refusal(rows, requests, slower, noise), reported)


def _refusal(
    rows: Sequence[BacktestRow], requests: Sequence[TraceRequest], slower: float, noise: float
) -> str:
    timed = sum(request.ttft_s is not None for request in requests)
    if timed < MIN_REQUESTS:
        return (
            f"Only {timed} requests with a TTFT are in the backtest; {MIN_REQUESTS} are needed. "
            "Record more traffic or choose a longer period."
        )
    names = {TTFT[0]: "TTFT p50", TTFT[1]: "TTFT p90", "hit_rate": "hit rate"}
    wrong = [
        f"{names[row.name]} by {row.error:+.0%} (limit ±{row.bound:.0%})"
        for row in rows
        if not row.holds and row.bound is not None
    ]
    if not wrong:
        return ""
    cause = (
        "Check the workers' memory settings, or choose a period without restarts or configuration "
        "changes."
    )
    if any(not row.holds and row.name in TTFT for row in rows):
        if max(slower, 1 / max(slower, 1e-9)) >= CHANGED_PACE:
            cause = (
                f"For the same work, the workers took {slower:.1f} times as long as in the first "
                "half: other load on their machines, throttling or a restart. Choose a period "
                "without it."
            )
        elif noise >= NOISY:
            cause = (
                f"For the same work, single times differ by {noise:.0%}: the workers are "
                "saturated, or share their machines with other load. Choose a calmer period."
            )
    return (
        f"The model misses the measured {', '.join(wrong)}, so its answers are not shown. {cause}"
    )

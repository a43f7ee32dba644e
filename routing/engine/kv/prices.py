"""Value of a cached token: load time per tier relative to compute time.

Starts from defaults measured with vLLM 0.32 on CPU (800 tokens: cold 5.06 s, from L1 0.29 s, from
L2 0.55 s; loading is relatively more expensive on a GPU) and learns from answers of idle workers,
whose TTFT contains no queueing.
"""

from __future__ import annotations

GPU_SHARE = 0.0
L1_SHARE = 0.05
L2_SHARE = 0.1
_MIN_TOKENS = 64  # of one kind, for an answer to be used
_MAX_MIXED = 0.2  # largest share of another kind
_LEARN = 0.1
_OUTLIER = 3.0  # clamp factor of a sample


class AverageRate:
    """EWMA of seconds per token; 0 before the first sample."""

    __slots__ = ("count", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.count = 0

    def learn(self, seconds: float) -> None:
        self.count += 1
        if self.count == 1 or not self.seconds:
            self.seconds = seconds
            return
        low, high = self.seconds / _OUTLIER, self.seconds * _OUTLIER
        self.seconds += _LEARN * (min(max(seconds, low), high) - self.seconds)


class LoadPrices:
    __slots__ = ("_l1", "_l2", "compute", "l1_share", "l2_share")

    def __init__(self) -> None:
        self.compute = AverageRate()
        self._l1 = AverageRate()
        self._l2 = AverageRate()
        self.l1_share = L1_SHARE
        self.l2_share = L2_SHARE

    def saved(self, gpu: int, l1: int, l2: int) -> int:
        return int(gpu * (1 - GPU_SHARE) + l1 * (1 - self.l1_share) + l2 * (1 - self.l2_share))

    def learn(self, prompt: int, cached: int, tiers: tuple[int, int, int], ttft_s: float) -> None:
        """Learn from an answer of an idle worker.

        `prompt`, `cached`: as reported by the engine; `tiers`: as predicted, used only to attribute
        the cached tokens.
        """
        computed = prompt - cached
        if ttft_s <= 0 or prompt < _MIN_TOKENS:
            return
        if cached <= _MAX_MIXED * prompt:
            if computed >= _MIN_TOKENS:
                self.compute.learn(ttft_s / computed)
        elif self.compute.seconds and cached >= _MIN_TOKENS:
            # The price of the computed part includes the fixed cost; the rest is load time.
            loading = max(ttft_s - computed * self.compute.seconds, 0.0) / cached
            _, l1, l2 = tiers
            most = (1 - _MAX_MIXED) * sum(tiers)
            if l1 and l1 >= most:
                self._l1.learn(loading)
                self.l1_share = self._share(self._l1)
            elif l2 and l2 >= most:
                self._l2.learn(loading)
                self.l2_share = self._share(self._l2)

    def _share(self, rate: AverageRate) -> float:
        return min(rate.seconds / self.compute.seconds, 1.0)

    def show(self) -> dict[str, float | int]:
        return {
            "compute_s_per_token": self.compute.seconds,
            "l1_share": round(self.l1_share, 4),
            "l2_share": round(self.l2_share, 4),
            "answers_compute": self.compute.count,
            "answers_l1": self._l1.count,
            "answers_l2": self._l2.count,
        }

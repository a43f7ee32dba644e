"""Work of each worker over time, from recorded requests: what its first tokens and decode times
were spent on. Pure.

Prompts are computed in order of arrival, so the time between two first tokens of a busy worker goes
to the prompts between them; every answer token is one engine step.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.insight.whatif.model.least_squares import Observation

SERIES = 8  # prompts of a busy worker in one observation


@dataclass(frozen=True, slots=True)
class Sample:
    """A recorded request; `tiers`: tokens from device, L1 and L2."""

    arrived_s: float
    prompt_tokens: int
    answer_tokens: int
    tiers: tuple[int, int, int]
    worker: str
    session: str
    ttft_s: float
    decode_s: float | None

    @property
    def first_s(self) -> float:
        return self.arrived_s + self.ttft_s

    @property
    def computed(self) -> int:
        return max(self.prompt_tokens - sum(self.tiers), 1)

    @property
    def positions(self) -> float:
        """Return the context tokens of all computed tokens together."""
        return self.computed * (self.prompt_tokens - self.computed / 2)


class Integral:
    """Piecewise linear function of time, from intervals that each add an amount evenly."""

    def __init__(self, intervals: Sequence[tuple[float, float, float]]) -> None:
        """`intervals`: begin, end, amount."""
        changes: list[tuple[float, float]] = []
        for begin, end, amount in intervals:
            slope = amount / max(end - begin, 1e-9)
            changes += [(begin, slope), (max(end, begin + 1e-9), -slope)]
        changes.sort()
        self._times = [changed_at for changed_at, _ in changes]
        self._values: list[float] = []
        self._slopes: list[float] = []
        value = slope = last = 0.0
        for changed_at, change in changes:
            value += slope * (changed_at - last)
            slope += change
            last = changed_at
            self._values.append(value)
            self._slopes.append(slope)

    def __call__(self, at: float) -> float:
        place = bisect_right(self._times, at) - 1
        if place < 0:
            return 0.0
        return self._values[place] + self._slopes[place] * (at - self._times[place])

    def between(self, begin: float, end: float) -> float:
        return self(end) - self(begin)


# Parts of an observation, in this order: engine steps, prompt tokens, their positions, decoding
# requests over steps, requests, tokens from L1, tokens from L2.
Row = tuple[Observation, str]  # with its session


def list_observations(samples: Sequence[Sample], step_tokens: int) -> list[Row]:
    """Return observations of all workers; `step_tokens`: prompt tokens of one step at most."""
    by_worker: dict[str, list[Sample]] = {}
    for sample in samples:
        by_worker.setdefault(sample.worker, []).append(sample)
    rows: list[Row] = []
    for observation in by_worker.values():
        rows += _of_worker(sorted(observation, key=lambda sample: sample.first_s), step_tokens)
    return rows


def _of_worker(samples: Sequence[Sample], step_tokens: int) -> list[Row]:
    """`samples`: of one worker, by first token."""
    answers = Integral(
        [(s.first_s, s.first_s + s.decode_s, s.decode_s) for s in samples if s.decode_s]
    )
    starts: list[float] = []  # of each prompt's computation
    last = -math.inf
    for sample in samples:
        starts.append(max(sample.arrived_s, last))
        last = max(last, sample.first_s)
    prompts = Integral(
        [(begin, s.first_s, s.computed) for begin, s in zip(starts, samples, strict=True)]
    )
    positions = Integral(
        [(begin, s.first_s, s.positions) for begin, s in zip(starts, samples, strict=True)]
    )
    rows = _first_tokens(samples, answers, step_tokens)
    for sample in samples:
        if sample.decode_s is None:
            continue
        begin, end = sample.first_s, sample.first_s + sample.decode_s
        steps = sample.answer_tokens - 1
        parts = (
            float(steps),
            prompts.between(begin, end),
            positions.between(begin, end),
            steps * answers.between(begin, end) / sample.decode_s,
            0.0,
            0.0,
            0.0,
        )
        rows.append((Observation(sample.decode_s, parts, sample.decode_s), sample.session))
    return rows


def _first_tokens(samples: Sequence[Sample], answers: Integral, step_tokens: int) -> list[Row]:
    """Join prompts that waited for each other; a series ends when the worker has none left."""
    rows: list[Row] = []
    series: list[Sample] = []
    idle = True  # the series begins with an arrival, not behind another one
    begin = 0.0
    for sample in samples:
        end = series[-1].first_s if series else -math.inf
        if series and (sample.arrived_s >= end or len(series) >= SERIES):
            rows.append(_series(series, begin, idle, answers, step_tokens))
            idle = sample.arrived_s >= end
            begin = sample.arrived_s if idle else end
            series = []
        elif not series:
            begin = sample.arrived_s
        series.append(sample)
        begin = min(begin, sample.arrived_s) if idle else begin
    if series:
        rows.append(_series(series, begin, idle, answers, step_tokens))
    return rows


def _series(
    series: Sequence[Sample], begin: float, idle: bool, answers: Integral, step_tokens: int
) -> Row:
    end = series[-1].first_s
    seconds = max(end - begin, 1e-6)
    computed = sum(sample.computed for sample in series)
    finished = 1 + sum(
        after.first_s - before.first_s > 1e-3 for before, after in itertools.pairwise(series)
    )
    batch = answers.between(begin, end) / seconds
    # An arrival waits for the end of the current step: half a step, if one is under way.
    waited = 0.5 * min(batch, 1.0) if idle else 0.0
    steps = max(math.ceil(computed / step_tokens), finished) + waited
    parts = (
        steps,
        float(computed),
        sum(sample.positions for sample in series),
        steps * batch,
        1.0 if idle else 0.0,
        float(sum(sample.tiers[1] for sample in series)),
        float(sum(sample.tiers[2] for sample in series)),
    )
    return Observation(seconds, parts, seconds), series[0].session

"""Constants of an endpoint's workers, fitted to recorded requests. Pure.

Robust least squares on the seconds between first tokens and on decode times against the work done
in them (observed_work). Uncertainty: bootstrap over sessions.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dashboards.insight.traces.trace import Trace, TraceRequest
from dashboards.insight.whatif.model import least_squares
from dashboards.insight.whatif.model.least_squares import Normal, Observation
from dashboards.insight.whatif.model.observed_work import Row, Sample, list_observations
from dashboards.insight.whatif.simulation.hardware import Hardware, TierModel

MIN_SAMPLES = 100
MAX_SAMPLES = 20_000  # the latest
DRAWS = 60
MIN_NOISE = 30  # prompts
_MIN_TIER_SHARE = 0.02  # of prompt tokens, for a tier's load time to be fitted
_UNLOADED_TIER = 0.02  # load time over prefill time, where nothing was loaded
_SEED = 7

STEP, PREFILL, CONTEXT, DECODE, OVERHEAD = (
    "step_s",
    "prefill_s",
    "context_s",
    "decode_s",
    "overhead_s",
)
L1_LOAD, L2_LOAD = "l1_load_s", "l2_load_s"
NAMES = (STEP, PREFILL, CONTEXT, DECODE, OVERHEAD, L1_LOAD, L2_LOAD)
Constants = dict[str, float]


class CalibrationError(Exception):
    """The recorded requests do not allow a calibration; the message has the remedy."""


@dataclass(frozen=True)
class Calibration:
    """Calibrated constants of a worker. `draws`: constants fitted to resampled sessions. `error`:
    robust relative error of the observations. `noise`: factors by which times of the same work
    differ.
    """

    constants: Constants
    draws: list[Constants]
    requests: int
    error: float
    noise: Sequence[float] = ()

    def bounds(self, name: str) -> tuple[float, float]:
        """Return the 5 % and 95 % quantiles of a constant's draws."""
        ordered = sorted(draw[name] for draw in self.draws)
        return ordered[len(ordered) // 20], ordered[-1 - len(ordered) // 20]


# For replays of which only hit rates count: an 8B model on an H100 (simulation.hardware).
_NOMINAL = dict(zip(NAMES, (0.0084, 32e-6, 1.1e-9, 0.7e-3, 0.0, 6e-7, 1.3e-6), strict=True))
UNCALIBRATED = Calibration(_NOMINAL, [_NOMINAL], 0, 0.0)


def apply_constants(hardware: Hardware, constants: Constants) -> Hardware:
    """Return the hardware with these constants; tiers keep their size and policy."""

    def tier(model: TierModel | None, name: str) -> TierModel | None:
        if model is None or name not in constants:
            return model
        return replace(model, load_s=constants[name])

    return replace(
        hardware,
        step_s=constants[STEP],
        prefill_s=constants[PREFILL],
        context_s=constants[CONTEXT],
        decode_s=constants[DECODE],
        overhead_s=constants[OVERHEAD],
        l1=tier(hardware.l1, L1_LOAD),
        l2=tier(hardware.l2, L2_LOAD),
    )


def collect_samples(requests: Iterable[TraceRequest]) -> list[Sample]:
    """Return the requests that have a worker and a measured TTFT, in order of arrival."""
    samples = []
    for request in requests:
        if not request.worker or not request.ttft_s or request.ttft_s <= 0:
            continue
        tiers = _split(request)
        duration = request.duration_s
        decode = None
        if duration is not None and request.output_tokens > 1 and duration > request.ttft_s:
            decode = duration - request.ttft_s
        samples.append(
            Sample(
                request.arrived_s,
                max(request.prompt_tokens, 1),
                max(request.output_tokens, 1),
                tiers,
                request.worker,
                request.session,
                request.ttft_s,
                decode,
            )
        )
    return samples


def _split(request: TraceRequest) -> tuple[int, int, int]:
    """Split the cached tokens that the engine reported by the tiers that the router expected."""
    most = max(request.prompt_tokens - 1, 0)
    expected = request.tiers or (0, 0, 0)
    cached = sum(expected) if request.cached_tokens is None else request.cached_tokens
    left = min(cached, most)
    if not sum(expected):
        return left, 0, 0
    l2 = min(expected[2], max(0, left - expected[0] - expected[1]) or 0)
    l1 = min(expected[1], max(0, left - expected[0] - l2))
    return left - l1 - l2, l1, l2


def calibrate(trace: Trace, step_tokens: int) -> Calibration:
    """Fit the constants; `step_tokens`: prompt tokens of an engine step at most. Raise
    CalibrationError.
    """
    samples = collect_samples(trace.requests)[-MAX_SAMPLES:]
    if len(samples) < MIN_SAMPLES:
        raise CalibrationError(
            f"Only {len(samples)} requests of the recording's first half have a worker and a TTFT; "
            f"{MIN_SAMPLES} are needed in each half. Only streamed answers have a TTFT. Record "
            "more traffic or choose a longer period."
        )
    prior = _rough_values(samples)
    prompts = sum(sample.prompt_tokens for sample in samples)
    loaded = [
        sum(sample.tiers[tier] for sample in samples) >= _MIN_TIER_SHARE * prompts
        for tier in (1, 2)
    ]
    rows = list_observations(samples, step_tokens)
    if not all(loaded):
        rows = [(_without(observation, loaded), session) for observation, session in rows]
    fitted, error = least_squares.fit([observation for observation, _ in rows], prior)
    constants = dict(zip(NAMES, fitted, strict=True))
    draws = _draws(rows, fitted, error, prior)
    return Calibration(constants, draws, len(samples), error, _noise(rows, constants))


def relative_time(
    requests: Iterable[TraceRequest], step_tokens: int, constants: Constants
) -> float | None:
    """Return the median of measured over modelled times of prompts that found no other one waiting;
    None without such prompts.
    """
    ratios = _ratios(list_observations(collect_samples(requests), step_tokens), constants)
    return statistics.median(ratio for ratio, _ in ratios) if ratios else None


def _ratios(rows: Iterable[Row], constants: Constants) -> list[tuple[float, float]]:
    """Return measured over modelled time of each prompt that found no other one waiting, and the
    variance of that ratio from the step under way at its arrival, whose end it waits for.
    """
    coefficients = [constants[name] for name in NAMES]
    ratios = []
    for observation, _ in rows:
        modelled = sum(
            part * each for part, each in zip(observation.parts, coefficients, strict=True)
        )
        if modelled > 0 and observation.parts[NAMES.index(OVERHEAD)]:
            batch = observation.parts[NAMES.index(DECODE)] / observation.parts[NAMES.index(STEP)]
            step = (constants[STEP] + batch * constants[DECODE]) / modelled
            busy = min(batch, 1.0)  # probability of a step; the wait is even within it
            ratios.append((observation.value / modelled, step**2 * (busy / 3 - busy**2 / 4)))
    return ratios


def _noise(rows: Iterable[Row], constants: Constants) -> list[float]:
    """Return factors with median 1, without the part of the spread that a replay has anyway."""
    ratios = _ratios(rows, constants)
    if len(ratios) < MIN_NOISE:
        return []
    middle = statistics.median(ratio for ratio, _ in ratios)
    spread = least_squares.deviation([ratio / middle - 1 for ratio, _ in ratios])
    waited = statistics.mean(variance for _, variance in ratios)
    share = math.sqrt(max(0.0, 1 - waited / max(spread**2, 1e-12)))
    return [(ratio / middle) ** share for ratio, _ in ratios]


def _without(one: Observation, loaded: Sequence[bool]) -> Observation:
    """Leave out tiers that hardly loaded anything: their load times stay at the prior."""
    l1, l2 = (part if used else 0.0 for part, used in zip(one.parts[-2:], loaded, strict=True))
    return replace(one, parts=(*one.parts[:-2], l1, l2))


def _rough_values(samples: Sequence[Sample]) -> list[float]:
    rates = [s.ttft_s / s.computed for s in samples if sum(s.tiers) < s.prompt_tokens / 2]
    prefill = 0.5 * statistics.median(rates or [s.ttft_s / s.prompt_tokens for s in samples])
    paces = [s.decode_s / (s.answer_tokens - 1) for s in samples if s.decode_s is not None]
    step = 0.7 * statistics.median(paces) if paces else 0.01
    overhead = max(0.2 * min(s.ttft_s for s in samples), 1e-4)
    unloaded = prefill * _UNLOADED_TIER
    return [step, prefill, prefill * 1e-5, step * 0.03, overhead, unloaded, 2 * unloaded]


def _draws(
    rows: Sequence[Row], found: Sequence[float], error: float, prior: Sequence[float]
) -> list[Constants]:
    """Return the solutions of resampled sessions."""
    groups: dict[object, list[Observation]] = {}
    for number, (observation, session) in enumerate(rows):
        groups.setdefault(session or number, []).append(observation)
    parts: list[Normal] = [least_squares.normal(group, found, error) for group in groups.values()]
    chance = random.Random(_SEED)
    draws = []
    for _ in range(DRAWS):
        total = least_squares.add(chance.choices(parts, k=len(parts)), len(prior))
        values = least_squares.solve_normal(total, prior, error)
        draws.append(dict(zip(NAMES, values, strict=True)))
    return draws

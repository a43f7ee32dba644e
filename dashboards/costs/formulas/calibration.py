"""Measure the worker seconds for an additional prompt token: the slope between two prompt lengths.

Only requests without cached tokens count, on one worker, repeated; otherwise the result states the
problem.

Why a slope: each engine step has a fixed cost, which a ratio attributes to the tokens. On eight
cold and eight warm requests the ratio overstated the cache saving by 27 to 49 %.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from dashboards.proof.cache_proof import prompt
from endpoints.prompt.client import PromptAnswer

ROUNDS = 3
SHORT_LINES = 6
LEAST_MORE_TOKENS = 200
"""Minimum length difference of the two prompts; below it, noise dominates the slope."""

Ask = Callable[[str, str], PromptAnswer]
"""Send a prompt to the named worker, "" for any."""
Progress = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class CalibrationSample:
    tokens: int
    ttft_s: float


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """Result of a calibration run. `seconds_per_token` is None if the measurement failed; `problem`
    holds the reason.
    """

    worker: str = ""
    samples: tuple[CalibrationSample, ...] = ()
    seconds_per_token: float | None = None
    problem: str = ""


def calibrate(worker: str, ask: Ask, progress: Progress) -> CalibrationResult:
    """Send `ROUNDS` pairs of new prompts to one worker."""
    samples: list[CalibrationSample] = []
    _send("warm-up", worker, ask, short=True)  # a process's first request is an outlier
    for number in range(ROUNDS):
        for short in (True, False):
            kind = "short" if short else "long"
            progress(f"Sending a new {kind} prompt ({number + 1} of {ROUNDS})")
            sample, problem = _send(kind, worker, ask, short=short)
            if sample is None:
                return CalibrationResult(worker, tuple(samples), problem=problem)
            samples.append(sample)
    return fit_slope(worker, tuple(samples))


def fit_slope(worker: str, samples: tuple[CalibrationSample, ...]) -> CalibrationResult:
    """Return the slope of the medians, which are robust against single outliers."""
    short, long = samples[::2], samples[1::2]
    more = median(s.tokens for s in long) - median(s.tokens for s in short)
    if more < LEAST_MORE_TOKENS:
        text = f"The long prompt had only {more:.0f} tokens more than the short one."
        return CalibrationResult(worker, samples, problem=text)
    later = median(s.ttft_s for s in long) - median(s.ttft_s for s in short)
    if later <= 0:
        text = "TTFT of long prompts was not above that of short ones: the worker was not idle."
        return CalibrationResult(worker, samples, problem=f"{text} Start it again when it is idle.")
    return CalibrationResult(worker, samples, later / more)


def _send(kind: str, worker: str, ask: Ask, *, short: bool) -> tuple[CalibrationSample | None, str]:
    answer = ask(prompt_text(secrets.token_hex(8), short=short), worker)
    if not answer.ok:
        return None, f"The {kind} request failed: {answer.error}"
    if answer.worker != worker:
        return None, f"The {kind} request was routed to {answer.worker} instead of {worker}."
    if answer.ttft_s is None or answer.prompt_tokens is None:
        return None, f"{worker} reported no prompt length or no time to first token."
    if answer.cached_tokens:
        return None, f"The {kind} request was not cold: {answer.cached_tokens} tokens were cached."
    return CalibrationSample(answer.prompt_tokens, answer.ttft_s), ""


def prompt_text(nonce: str, *, short: bool) -> str:
    """Return the prompt of the cache proof, or its beginning."""
    lines = prompt(nonce).splitlines()
    return "\n".join([*lines[:SHORT_LINES], lines[-1]] if short else lines)

"""What a stricter cache isolation changes, for each API key or key group. Pure.

A scope is an API key or a key group whose requests share KV cache. Under a stricter isolation the
replay gives each scope blocks of its own; the rest of the replay is that of any configuration.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dashboards.insight.traces.trace import Trace, TraceError, TraceRequest
from dashboards.insight.whatif.model import outcome
from dashboards.insight.whatif.model.outcome import Comparison, Estimate
from dashboards.insight.whatif.simulation.hardware import Hardware
from dashboards.insight.whatif.simulation.replay import SimulatedRun
from dashboards.insight.whatif.simulation.worker import Job

STRICTNESS = ("shared", "group", "key")
MAX_SCOPES = 20  # rows; those with the fewest tokens are summed up
MAX_PREFIXES = 10
OTHERS = "others"
HOURS_A_MONTH = 730.0
_SEED = 13


@dataclass(frozen=True)
class ReplayPair:
    """Runs of both configurations with equal constants, and the workers of each."""

    present: SimulatedRun
    candidate: SimulatedRun
    before: Hardware
    after: Hardware

    def parts(
        self, jobs: Sequence[tuple[Job, Job]]
    ) -> tuple[tuple[SimulatedRun, Hardware], tuple[SimulatedRun, Hardware]]:
        """Return both runs with these jobs only."""
        before, after = ([job[side] for job in jobs] for side in (0, 1))
        return (
            (replace(self.present, jobs=before, warm=0), self.before),
            (replace(self.candidate, jobs=after, warm=0), self.after),
        )


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """A prefix, such as a system prompt, that several scopes sent."""

    tokens: int
    scopes: int
    requests: int


@dataclass(frozen=True)
class Sharing:
    """Sharing of prefixes between scopes. `first_elsewhere`: prompt tokens by scope whose prefix
    only other scopes had sent before.
    """

    first_elsewhere: dict[str, int]
    prefixes: list[SharedPrefix]


@dataclass(frozen=True)
class ScopeEffect:
    """Effect of isolation on one scope. `replay_tokens`: added computed tokens in the whole replay,
    which begins with empty caches; the other figures are of its counted part. `added_usd_per_month`
    None: no price.
    """

    scope: str  # "": all
    requests: int
    prompt_tokens: int
    first_elsewhere: int
    replay_tokens: int
    comparison: Comparison
    added_prefill_s_per_hour: Estimate
    added_usd_per_month: Estimate | None


def scope_of(request: TraceRequest, isolation: str) -> str:
    """Return the scope of a request's KV cache; "": shared with all."""
    if isolation == "group" and request.key_group:
        return f"group {request.key_group}"
    return f"key {request.key}" if isolation in ("group", "key") else ""


def check_recording(trace: Trace, wanted: Sequence[str]) -> None:
    """Raise TraceError if the trace cannot show these isolations."""
    if not trace.isolation:
        raise TraceError(
            "The recording does not name the API keys of its requests: it was imported, or "
            "recorded by an earlier version. Record traffic with this version and start again."
        )
    recorded = STRICTNESS.index(trace.isolation)
    for scope in wanted:
        if STRICTNESS.index(scope) < recorded:
            raise TraceError(
                f"The traffic was recorded under isolation {trace.isolation!r}: prompts that would "
                f"share blocks under {scope!r} have different hashes. Choose a period that was "
                f"recorded under {scope!r}."
            )


def measure_sharing(trace: Trace, isolation: str) -> Sharing:
    """Return what prompts share across scopes, with caches that keep everything."""
    size = trace.block_tokens
    first: dict[int, str] = {}  # scope by block
    users: dict[int, set[str]] = {}  # of blocks that several scopes sent
    own: set[tuple[str, int]] = set()
    elsewhere: dict[str, int] = {}
    for request in trace.requests:
        scope = scope_of(request, isolation)
        for block in request.blocks[: request.prompt_tokens // size]:
            before = first.setdefault(block, scope)
            if before != scope:
                users.setdefault(block, {before}).add(scope)
            if before != scope and (scope, block) not in own:
                elsewhere[scope] = elsewhere.get(scope, 0) + size
            own.add((scope, block))
    by_last_block: dict[int, tuple[int, int]] = {}  # length and requests by last shared block
    for request in trace.requests:
        length = 0
        for block in request.blocks[: request.prompt_tokens // size]:
            if block not in users:
                break
            length += 1
        if length:
            last = request.blocks[length - 1]
            by_last_block[last] = (length, by_last_block.get(last, (0, 0))[1] + 1)
    prefixes = [
        SharedPrefix(length * size, len(users[last]), requests)
        for last, (length, requests) in by_last_block.items()
    ]
    prefixes.sort(key=lambda one: -one.tokens * one.requests)
    return Sharing(elsewhere, prefixes[:MAX_PREFIXES])


def compare_scopes(
    trace: Trace,
    isolation: str,
    pairs: Sequence[ReplayPair],
    model_error: Mapping[str, float],
    hourly_price: float | None,
    sharing: Sharing,
    noise: Sequence[float] = (),
    step: Callable[[], None] = lambda: None,
) -> list[ScopeEffect]:
    """Return the effect on all requests, then on each scope, most prompt tokens first. `pairs`: the
    first with the fitted constants. `hourly_price`: of one worker. `step` may raise to cancel.
    """
    scopes = [scope_of(request, isolation) for request in trace.requests]
    sizes: dict[str, int] = {}
    for scope, request in zip(scopes, trace.requests, strict=True):
        sizes[scope] = sizes.get(scope, 0) + request.prompt_tokens
    order = sorted(sizes, key=lambda scope: -sizes[scope])
    if len(order) > MAX_SCOPES:
        names = set(order[: MAX_SCOPES - 1])
        scopes = [scope if scope in names else OTHERS for scope in scopes]
        order = [*order[: MAX_SCOPES - 1], OTHERS]
    elsewhere: dict[str, int] = {}
    for scope, tokens in sharing.first_elsewhere.items():
        label = scope if scope in order else OTHERS
        elsewhere[label] = elsewhere.get(label, 0) + tokens
    counted: list[dict[str, list[tuple[Job, Job]]]] = []
    whole: dict[str, list[int]] = {}  # requests, prompt tokens, added computed tokens
    for number, pair in enumerate(pairs):
        later = {job.tag: job for job in pair.candidate.jobs}
        split: dict[str, list[tuple[Job, Job]]] = {"": [], **{scope: [] for scope in order}}
        for index, job in enumerate(pair.present.jobs):
            other, scope = later[job.tag], scopes[job.tag]
            if index >= pair.present.warm:
                split[""].append((job, other))
                split[scope].append((job, other))
            if not number:
                for name in ("", scope):
                    sums = whole.setdefault(name, [0, 0, 0])
                    sums[0] += 1
                    sums[1] += job.prompt_tokens
                    sums[2] += job.cached - other.cached
        counted.append(split)
    effects = []
    for scope in ("", *order):
        step()
        if not counted[0][scope]:
            continue  # in the warm-up only
        parts = [pair.parts(split[scope]) for pair, split in zip(pairs, counted, strict=True)]
        before, after = (
            outcome.resample_runs([part[side] for part in parts], None, noise, side)
            for side in (0, 1)
        )
        seconds = _added_seconds([split[scope] for split in counted], pairs)
        money = None
        if hourly_price is not None:
            money = _scaled(seconds, hourly_price / 3600 * HOURS_A_MONTH)
        requests, tokens, added = whole[scope]
        effects.append(
            ScopeEffect(
                scope,
                requests,
                tokens,
                elsewhere.get(scope, 0) if scope else sum(elsewhere.values()),
                added,
                outcome.compare(before, after, model_error),
                seconds,
                money,
            )
        )
    return effects


def _added_seconds(
    runs: Sequence[Sequence[tuple[Job, Job]]], pairs: Sequence[ReplayPair]
) -> Estimate:
    """Return the added prefill seconds per hour, with an interval over sessions and constants."""
    chance = random.Random(_SEED)
    values: list[float] = []
    first = 0.0
    for number, (jobs, pair) in enumerate(zip(runs, pairs, strict=True)):
        counted = pair.present.counted
        hours = max(counted[-1].arrived - counted[0].arrived, 1e-9) / 3600
        groups: dict[object, float] = {}
        for before, after in jobs:
            key: object = before.session if before.session >= 0 else ("request", before.tag)
            added = _prefill_s(after, pair.after) - _prefill_s(before, pair.before)
            groups[key] = groups.get(key, 0.0) + added / hours
        sums = list(groups.values())
        if not number:
            first = sum(sums)
        draws = range(max(2, outcome.RESAMPLES // len(runs)))
        values.extend(sum(chance.choices(sums, k=len(sums))) for _ in draws)
    low, high = outcome.interval(values)
    return Estimate(first, min(low, first), max(high, first))


def _prefill_s(job: Job, hardware: Hardware) -> float:
    """Return the computing time of the part that was not cached, without the engine's steps."""
    positions = (job.prompt_tokens**2 - job.cached**2) / 2
    tokens = job.prompt_tokens - job.cached
    return hardware.prefill_s * tokens + hardware.context_s * positions


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(estimate.value * factor, estimate.low * factor, estimate.high * factor)


_WITHOUT_TIMES = ("hit_rate", "device_hit_rate", "l1_hit_rate", "l2_hit_rate")
_SHOWN = ("ttft_p50_s", "ttft_p90_s", *_WITHOUT_TIMES)


def show_effects(
    effects: Sequence[ScopeEffect], sharing: Sharing, isolation: str, calibrated: bool
) -> dict[str, Any]:
    """Return the effects as JSON; times and money are null without a calibration."""
    names = _SHOWN if calibrated else _WITHOUT_TIMES
    return {
        "isolation": isolation,
        "calibrated": calibrated,
        "rows": [_show_effect(effect, names, calibrated) for effect in effects],
        "prefixes": [asdict(prefix) for prefix in sharing.prefixes],
    }


def _show_effect(effect: ScopeEffect, names: Sequence[str], calibrated: bool) -> dict[str, Any]:
    seconds, money = effect.added_prefill_s_per_hour, effect.added_usd_per_month
    document: dict[str, Any] = {
        "scope": effect.scope,
        "requests": effect.requests,
        "prompt_tokens": effect.prompt_tokens,
        "first_sent_elsewhere_tokens": effect.first_elsewhere,
        "added_tokens_in_replay": effect.replay_tokens,
        "added_prefill_s_per_hour": asdict(seconds) if calibrated else None,
        "added_usd_per_month": asdict(money) if calibrated and money else None,
    }
    for side in ("present", "candidate", "change"):
        figures = getattr(effect.comparison, side)
        document[side] = {name: asdict(figures[name]) for name in names if name in figures}
    return document

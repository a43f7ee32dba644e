"""KV index display rows, one per worker. Pure.

Every state has a description, so that engine codes are not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from routing.analysis.kv_index import NO_SOURCE, KvIndex, KvSource, PredictionAccuracy, Probe
from routing.analysis.label_names import get_name

TIERS = tuple((key, get_name("tier", key)) for key in ("gpu", "l1", "l2"))

# state -> (label, level, description); level: good, busy, bad.
_STATES = {
    "following": ("following", "good", "KV events are received; the index is current."),
    "catching_up": ("catching up", "busy", "Missed KV events are being replayed."),
    "connecting": ("connecting", "bad", "No connection to its KV event endpoint yet."),
    "waiting": ("waiting", "busy", "Connecting to its KV event endpoint."),
    "disconnected": ("disconnected", "bad", "The connection was lost; reconnecting."),
    NO_SOURCE: ("no events", "bad", "Requests are routed to it by load only."),
}
_UNDISCOVERED = "Its KV event endpoint has not been discovered yet."
_SKIPPED = {
    "busy": "skipped: the worker is busy",
    "down": "skipped: the worker is down",
    "not_followed": "skipped: no KV events",
    "several_ranks": "skipped: several engines share its address",
}


@dataclass(frozen=True, slots=True)
class TierShare:
    key: str
    label: str
    blocks: int
    percent: float  # relative to the largest worker, to compare bars


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """Worker row; `level` is good, busy or bad. `lag_s` is None without an event source."""

    name: str
    state: str
    level: str
    why: str
    endpoint: str
    blocks: int
    tiers: tuple[TierShare, ...]
    parked: int
    lag_s: float | None
    gaps: int
    lost: int
    replays: int
    restarts: int
    honesty: PredictionAccuracy | None
    probe: Probe | None
    probe_at: datetime | None
    probe_skipped: str


@dataclass(frozen=True, slots=True)
class FallbackReason:
    reason: str
    words: str
    count: int


def worker_rows(index: KvIndex) -> tuple[WorkerRow, ...]:
    names = sorted({source.worker for source in index.sources})
    blocks = {name: _tiers(index, name) for name in names}
    largest = max((sum(held.values()) for held in blocks.values()), default=0)
    return tuple(_row(index, name, blocks[name], largest) for name in names)


def fallback_reasons(counts: Mapping[str, int]) -> tuple[FallbackReason, ...]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        FallbackReason(reason, get_name("reason", reason), count) for reason, count in ordered
    )


def _row(index: KvIndex, name: str, held: Mapping[str, int], largest: int) -> WorkerRow:
    sources = index.of(name)
    levels = ("good", "busy", "bad")
    worst = max(sources, key=lambda source: levels.index(_describe_state(source.state)[1]))
    state, level, why = _state(worst)
    honesty = index.honesty.get(name)
    if honesty is not None and not honesty.believed:
        state, level = "not trusted", "bad"
        why = "Predicted blocks were not in its cache; routed by load until its index is rebuilt."
    elif worst.partial and worst.following:
        why += " Events before the router connected are partly unknown."
    counted = [source.counts for source in sources]
    probe = index.probes.get(name)
    return WorkerRow(
        name=name,
        state=state,
        level=level,
        why=why,
        endpoint=", ".join(_brief_address(s.endpoint) for s in sources if s.endpoint),
        blocks=sum(source.blocks for source in sources),
        tiers=tuple(
            TierShare(key, label, held.get(key, 0), _percent(held.get(key, 0), largest))
            for key, label in TIERS
        ),
        parked=sum(source.parked for source in sources),
        lag_s=max(s.lag_s for s in sources) if any(s.batches for s in sources) else None,
        gaps=sum(counts.get("gap", 0) for counts in counted),
        lost=sum(source.lost for source in sources),
        replays=sum(counts.get("replay", 0) for counts in counted),
        restarts=sum(source.restarts for source in sources),
        honesty=honesty,
        probe=probe,
        probe_at=datetime.fromtimestamp(probe.at, UTC) if probe is not None and probe.at else None,
        probe_skipped=_SKIPPED.get(index.skipped.get(name, ""), ""),
    )


def _brief_address(address: str) -> str:
    """Return an address for people: of a socket's path its last folder and name."""
    path = address.removeprefix("ipc://")
    return address if path == address else f"ipc: {'/'.join(path.split('/')[-2:])}"


def _tiers(index: KvIndex, name: str) -> Mapping[str, int]:
    """Return tokens per tier; routers that do not separate tiers report device blocks."""
    tiers = index.tiers.get(name)
    return tiers if tiers is not None else {"gpu": sum(s.blocks for s in index.of(name))}


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def _describe_state(state: str) -> tuple[str, str, str]:
    return _STATES.get(state, (state or "unknown", "bad", ""))


def _state(source: KvSource) -> tuple[str, str, str]:
    word, level, sentence = _describe_state(source.state)
    if source.state != NO_SOURCE:
        return word, level, sentence
    if source.reason == "undiscovered":
        return "discovering", "busy", _UNDISCOVERED
    return word, level, f"{sentence} {source.message or source.reason}"

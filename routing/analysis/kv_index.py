"""Parser of the router's `/index` reply. Pure.

Accepts replies of any version: missing or mistyped values become None, empty or "".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Readers = Mapping[str, Callable[[Any], Any]]  # by annotation

FOLLOWING = "following"
NO_SOURCE = "none"
HIT = "hit"
_NONE: Mapping[str, int] = MappingProxyType({})

# Resync reasons during which part of a worker's cache was unknown.
LOSS_TURNS = ("gap_lost", "rebuild_useless", "replay_hole", "held_overflow")
RESTART_TURNS = ("restart_sequence", "restart_replay", "restart_process", "restart_unverified")


@dataclass(frozen=True, slots=True)
class KvSource:
    """KV event source of one worker rank, or the `reason` it has none."""

    worker: str
    state: str
    rank: int = 0
    endpoint: str = ""
    replay: str = ""
    reason: str = ""
    message: str = ""
    partial: bool = False
    blocks: int = 0
    parked: int = 0
    batches: int = 0
    lag_s: float = 0.0
    counts: Mapping[str, int] = field(default_factory=lambda: _NONE)
    errors: Mapping[str, int] = field(default_factory=lambda: _NONE)
    skipped: Mapping[str, int] = field(default_factory=lambda: _NONE)

    @property
    def following(self) -> bool:
        return self.state == FOLLOWING

    @property
    def lost(self) -> int:
        return sum(self.counts.get(reason, 0) for reason in LOSS_TURNS)

    @property
    def restarts(self) -> int:
        return sum(self.counts.get(reason, 0) for reason in RESTART_TURNS)


@dataclass(frozen=True, slots=True)
class PredictionAccuracy:
    """Shares of tokens: predicted but missing, and reported but not predicted."""

    answers: int = 0
    missing: float = 0.0
    unforeseen: float = 0.0
    believed: bool = True
    demotions: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    probe: str
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Recent:
    """Requests of the last `window_s` seconds, and their fallbacks."""

    window_s: float
    requests: int
    fallbacks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Probe:
    """Probe sent twice to a worker: was the second hit predicted and found? `at` is epoch s."""

    result: str
    at: float = 0.0
    path: str = ""
    prompt_tokens: int = 0
    predicted: int = 0
    reported: int | None = None
    error: str = ""
    remedy: str = ""

    @property
    def hit(self) -> bool:
        return self.result == HIT


@dataclass(frozen=True, slots=True)
class KvIndex:
    """KV block index as a router reports it. `compared`: result of the tokenizer comparison, "" if
    none yet; `trust`: its effect on routing. `tiers`: blocks by worker and tier. `skipped`: why a
    worker's last probe was skipped. `recent` is None if not reported.
    """

    telling: bool
    blocks: int
    block_sizes: tuple[int, ...]
    pending: int
    sources: tuple[KvSource, ...]
    honesty: Mapping[str, PredictionAccuracy]
    fallbacks: Mapping[str, int]
    tokenizer: str
    problem: str
    compared: str
    differences: tuple[Difference, ...]
    trust: str
    recent: Recent | None
    tiers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    probe_interval_s: float = 0.0
    probes: Mapping[str, Probe] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)

    def of(self, worker: str) -> tuple[KvSource, ...]:
        return tuple(source for source in self.sources if source.worker == worker)


def read_index(answer: Mapping[str, Any]) -> KvIndex | None:
    """Parse the reply; None if the strategy uses no KV index."""
    kv = answer.get("kv")
    if not isinstance(kv, Mapping):
        return None
    tokenizer, tokens = as_object(kv.get("tokenizer")), as_object(kv.get("tokens"))
    probes, recent = as_object(kv.get("probes")), kv.get("recent")
    return KvIndex(
        telling=kv.get("telling") is True,
        blocks=_whole(kv.get("blocks")),
        block_sizes=tuple(_whole(size) for size in as_list(kv.get("block_sizes"))),
        pending=_whole(kv.get("pending_blocks")),
        sources=tuple(read_fields(KvSource, item, _READERS) for item in as_list(kv.get("sources"))),
        honesty={str(n): _accuracy(item) for n, item in as_object(kv.get("honesty")).items()},
        fallbacks=_counts(kv.get("fallbacks")),
        tokenizer=_text(tokenizer.get("path")),
        problem=_text(tokenizer.get("problem")),
        compared=_text(tokenizer.get("compared")),
        differences=tuple(
            read_fields(Difference, item, _READERS) for item in as_list(tokenizer.get("findings"))
        ),
        trust=_text(tokens.get("trust")),
        recent=read_fields(Recent, recent, _READERS) if isinstance(recent, Mapping) else None,
        tiers={str(name): _counts(item) for name, item in as_object(kv.get("tiers")).items()},
        probe_interval_s=_number(probes.get("interval_s")),
        probes={str(name): _probe(item) for name, item in as_object(probes.get("workers")).items()},
        skipped={str(n): _text(why) for n, why in as_object(probes.get("skipped")).items()},
    )


def _accuracy(item: Any) -> PredictionAccuracy:
    item = as_object(item)
    return read_fields(
        PredictionAccuracy,
        item,
        _READERS,
        missing=_number(item.get("promised_and_missing")),
        unforeseen=_number(item.get("reported_and_unforeseen")),
        believed=item.get("believed") is not False,
    )


def _probe(item: Any) -> Probe:
    reported = as_object(item).get("reported")
    return read_fields(
        Probe, item, _READERS, reported=None if reported is None else _whole(reported)
    )


def read_fields(kind: type[T], item: Any, readers: Readers, **given: Any) -> T:
    """Build a dataclass from an object of a reply, each field by the reader of its annotation;
    `given` fields are read already.
    """
    item = as_object(item)
    for spec in fields(kind):
        if spec.name not in given:
            given[spec.name] = readers[str(spec.type)](item.get(spec.name))
    return kind(**given)


def as_object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good and isfinite(value) else 0.0


def _whole(value: Any) -> int:
    return int(_number(value))


def _counts(value: Any) -> Mapping[str, int]:
    return {str(name): _whole(count) for name, count in as_object(value).items() if _whole(count)}


_READERS: Readers = {
    "str": _text,
    "int": _whole,
    "float": _number,
    "bool": lambda value: value is True,
    "Mapping[str, int]": _counts,
}

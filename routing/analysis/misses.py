"""Computed prompt tokens by cause, summed over routers and hours, and the remedies. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from routing.analysis.choices import RoutingDecision, as_number
from routing.analysis.label_names import get_name
from routing.engine.misses.remedies import NO_REMEDY, REMEDIES
from routing.engine.misses.sums import SLOT_S

Tokens = Counter[str]


@dataclass(slots=True)
class TemplateTotals:
    """Prompts of one template, which change early. `causes`: tokens computed because of it;
    `saved`: estimate of those that a stable layout would have had cached. The others are of its
    latest request: first changed token, stable tokens behind the change. `prefixes`: first blocks
    of some of its prompts, one an hour and router.
    """

    requests: int = 0
    saved: int = 0
    causes: Tokens = field(default_factory=Counter)
    offset: int = 0
    stable: int = 0
    part: str = ""
    decision: str = ""
    prefixes: set[str] = field(default_factory=set)

    @property
    def tokens(self) -> int:
        return sum(self.causes.values())

    @property
    def main_cause(self) -> str:
        return self.causes.most_common(1)[0][0] if self.causes else ""

    def add(self, sums: Mapping[str, Any], latest: bool) -> None:
        self.requests += _whole(sums.get("requests"))
        self.saved += _whole(sums.get("saved_tokens"))
        self.causes += _tokens(sums.get("causes"))
        if prefix := str(sums.get("prefix") or ""):
            self.prefixes.add(prefix)
        if latest:
            self.offset = _whole(sums.get("changed_offset"))
            self.stable = _whole(sums.get("stable_tokens"))
            self.part = str(sums.get("changed_part") or "")
            self.decision = str(sums.get("decision") or "")


@dataclass(slots=True)
class MissTotals:
    """Computed prompt tokens by cause. `keys` and `prefixes`: tokens by cause of each API key and
    of each first prompt block, with `prefix_requests`; routers of earlier versions do not count
    those. `hours`: by start of the hour; `since`: begin of the sums, at the earliest the start of
    the first router (Unix time, s). `unreported`: answers without cached tokens. `templates`: those
    whose prompts change early, by ID.
    """

    requests: int = 0
    unreported: int = 0
    prompt: int = 0
    cached: int = 0
    skipped: int = 0
    since: int = 0
    causes: Tokens = field(default_factory=Counter)
    keys: dict[str, Tokens] = field(default_factory=dict)
    prefixes: dict[str, Tokens] = field(default_factory=dict)
    prefix_requests: Counter[str] = field(default_factory=Counter)
    hours: dict[int, Tokens] = field(default_factory=dict)
    templates: dict[str, TemplateTotals] = field(default_factory=dict)

    @property
    def computed(self) -> int:
        return sum(self.causes.values())


@dataclass(frozen=True, slots=True)
class MissExample:
    """A decision with `tokens` of a cause. `age_s`: since the lost part was last used; `offset`:
    first changed token, in `part`; `displaced_by`: the decision that the worker was computing as it
    removed the block.
    """

    decision: RoutingDecision
    tokens: int
    age_s: float | None
    offset: int | None
    part: str
    displaced_by: str


def add_slots(replies: Iterable[Mapping[str, Any]], since: float) -> MissTotals:
    """Add up the slots from that of `since` on; unknown fields and values of other versions are
    skipped.
    """
    total = MissTotals(since=int(since // SLOT_S) * SLOT_S)
    latest: dict[str, int] = {}
    started = []
    for reply in replies:
        started.append(_whole(reply.get("started")))
        total.skipped += _whole(reply.get("comparisons_skipped"))
        for slot in _list(reply.get("slots")):
            start = _whole(slot.get("start"))
            if start < total.since:
                continue
            hour = start // 3600 * 3600
            total.requests += _whole(slot.get("requests"))
            total.unreported += _whole(slot.get("unreported"))
            total.prompt += _whole(slot.get("prompt_tokens"))
            total.cached += _whole(slot.get("cached_tokens"))
            causes = _tokens(slot.get("causes"))
            total.causes += causes
            total.hours[hour] = total.hours.get(hour, Counter()) + causes
            for name, into in (("keys", total.keys), ("prefixes", total.prefixes)):
                for label, sums in _dict(slot.get(name)).items():
                    into[label] = into.get(label, Counter()) + _tokens(sums)
            total.prefix_requests += _tokens(slot.get("prefix_requests"))
            for label, sums in _dict(slot.get("templates")).items():
                template = total.templates.setdefault(label, TemplateTotals())
                template.add(_dict(sums), start >= latest.get(label, 0))
                latest[label] = max(start, latest.get(label, 0))
    total.since = max(total.since, min(started, default=0))
    return total


def find_causes(decision: RoutingDecision) -> list[tuple[str, str, int]]:
    """Return code, label and tokens of a decision's causes, most tokens first."""
    causes = _tokens(_dict(decision.raw.get("misses")).get("causes"))
    return [(code, get_name("cause", code), count) for code, count in causes.most_common()]


def explain_miss(decision: RoutingDecision) -> str:
    """Return the main cause and its remedy if less than half of the prompt was cached, else ""."""
    cached, prompt = decision.cached_tokens, decision.prompt_tokens
    if cached is None or not prompt or 2 * cached >= prompt:
        return ""
    for code, label, tokens in find_causes(decision)[:1]:
        remedy = find_remedy(code).text.removeprefix(NO_REMEDY)
        return f"{label}: {tokens} of {prompt} prompt tokens. {remedy[:1].upper()}{remedy[1:]}"
    return ""


def find_examples(decisions: Sequence[RoutingDecision], cause: str, most: int) -> list[MissExample]:
    """Return decisions with this cause, those with the most tokens first."""
    examples = []
    for decision in decisions:
        misses = _dict(decision.raw.get("misses"))
        tokens = _tokens(misses.get("causes"))[cause]
        if tokens:
            number = as_number(misses.get("evicted_at"))
            offset = as_number(misses.get("changed_offset"))
            examples.append(
                MissExample(
                    decision,
                    tokens,
                    as_number(misses.get("age_s")),
                    None if offset is None else int(offset),
                    str(misses.get("changed_part") or ""),
                    "" if number is None else _active_at(decisions, decision.chosen, number),
                )
            )
    examples.sort(key=lambda item: -item.tokens)
    return examples[:most]


def _active_at(decisions: Sequence[RoutingDecision], worker: str, at: float) -> str:
    """Return the decision with the most computed tokens that the worker was serving then."""
    best, most = "", 0
    for decision in decisions:
        if decision.chosen != worker or decision.time is None:
            continue
        began = decision.time.timestamp()
        computed = sum(_tokens(_dict(decision.raw.get("misses")).get("causes")).values())
        if began <= at <= began + (decision.duration_s or 0.0) and computed > most:
            best, most = decision.id, computed
    return best


@dataclass(frozen=True, slots=True)
class MissRemedy:
    """Remedy of a cause of misses. `page`: URL name of the page that carries it out, `button` its
    label.
    """

    text: str
    button: str = ""
    page: str = ""


_PAGES = {  # button and URL name of the page that carries the remedy out
    "other_salt": ("Keys", "endpoints:access"),
    "placed_load": ("Edit", "endpoints:edit"),
    "placed_worker_down": ("Workers", "endpoints:workers"),
    "placed_strategy": ("Strategy", "routing:strategy"),
    "evicted_device": ("Edit cache", "endpoints:edit"),
    "evicted_l1": ("Edit cache", "endpoints:edit"),
    "evicted_l2": ("Edit cache", "endpoints:edit"),
    "expired_l2": ("Edit cache", "endpoints:edit"),
    "evicted_unknown": ("Edit cache", "endpoints:edit"),
    "lost_restart": ("Workers", "endpoints:workers"),
    "lost_rollout": ("Edit", "endpoints:edit"),
    "lost_scale_down": ("Edit", "endpoints:edit"),
    "index_stale": ("Doctor", "routing:doctor"),
    "not_hashed": ("Strategy", "routing:strategy"),
}


def find_remedy(cause: str) -> MissRemedy:
    return MissRemedy(REMEDIES.get(cause, ""), *_PAGES.get(cause, ()))


def _whole(value: Any) -> int:
    return int(as_number(value) or 0)


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _tokens(value: Any) -> Tokens:
    return Counter({str(cause): _whole(tokens) for cause, tokens in _dict(value).items()})

"""What requests met over time: revisions of the endpoint, and the sizes of its L2 tier."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from cachetier import selectors as cache_tiers
from cachetier.tier.spec import GIB, TierSpec
from dashboards.insight.advisor import selectors
from dashboards.insight.advisor.formulas import gains
from dashboards.insight.advisor.formulas.gains import AdviceRow
from dashboards.insight.advisor.models import Advice
from endpoints import selectors as endpoints
from endpoints.spec.endpoint_spec import flatten, parse

_HARMLESS = ("routing.record_", "tags", "manifest")
_TIER = "cache tier "  # prefix of a tier's fields
_SIZES = frozenset(
    f"{_TIER}{name}"
    for name in ("memory_bytes", "disk_bytes", "node_count", "copies", "memory_limit_bytes")
)
_SAME_SIZE = 0.02  # forms round sizes


@dataclass(frozen=True, slots=True)
class TimedConfiguration:
    """Configuration in force from a moment on. `flat`: fields of the revision and, where L2 is on
    the advised tier, of that tier. `l2_gib`: size of that tier for distinct values, 0 without one.
    `tier`: its name if its change, not the revision, began this configuration.
    """

    at: datetime
    revision: int
    flat: Mapping[str, Any]
    l2_gib: float
    tier: str = ""


def list_configurations(advice: Advice) -> list[TimedConfiguration]:
    """Return those since the advice, the one that it was computed for first."""
    later = endpoints.revisions(advice.endpoint).filter(number__gte=advice.generation)
    revisions = list(later.order_by("number"))
    name = (advice.facts["l2"] or {}).get("tier", "")
    specs = cache_tiers.list_specs(name, advice.created_at) if name else []
    if not revisions:
        return []
    spec = specs.pop(0)[1] if specs and specs[0][0] <= advice.created_at else None
    events: list[tuple[datetime, Any]] = [
        (revision.created_at, revision) for revision in revisions[1:]
    ]
    events = sorted([*events, *specs], key=lambda one: one[0])
    revision = revisions[0]
    configurations = [_configuration(revision.created_at, revision, spec, name)]
    for moment, what in events:
        if isinstance(what, TierSpec):
            spec = what
        else:
            revision = what
        configurations.append(_configuration(moment, revision, spec, name, what is spec))
    return configurations


def _configuration(
    at: datetime, revision: Any, spec: TierSpec | None, name: str, is_tier: bool = False
) -> TimedConfiguration:
    flat = flatten(revision.spec)
    size = 0.0
    if spec is not None:
        size = spec.usable_bytes / GIB
        config = parse(revision.spec)
        if config.needs_cache_tier and config.cache.l2.tier == name:
            flat |= {f"{_TIER}{field}": value for field, value in asdict(spec).items()}
    return TimedConfiguration(at, revision.number, flat, size, name if is_tier else "")


@dataclass(frozen=True, slots=True)
class AdvisedChange:
    """Advised change that may have been applied. `fields`: values of the spec. `l2_gib`: size of
    the tier, 0 if that stays; reached by it or more if it `grows`, else by it or less.
    """

    row: AdviceRow
    fields: Mapping[str, Any]
    l2_gib: float
    grows: bool

    def is_met(self, now: TimedConfiguration) -> bool:
        if any(now.flat.get(path) != value for path, value in self.fields.items()):
            return False
        if not self.l2_gib:
            return bool(self.fields)
        if f"{_TIER}memory_bytes" not in now.flat:
            return False
        if self.grows:
            return now.l2_gib >= self.l2_gib * (1 - _SAME_SIZE)
        return now.l2_gib <= self.l2_gib * (1 + _SAME_SIZE)

    def distance(self, now: TimedConfiguration) -> float:
        if not self.l2_gib or not now.l2_gib:
            return 0.0
        return abs(math.log(now.l2_gib / self.l2_gib))

    def describe_size(self, now: TimedConfiguration) -> str:
        """Return the size of L2 if it is another one than advised."""
        if self.distance(now) <= _SAME_SIZE:
            return ""
        return f"L2 has {now.l2_gib:.4g} GiB instead of {self.l2_gib:.4g}. "


def list_advised_changes(advice: Advice) -> list[AdvisedChange]:
    """Return the changes that a configuration can show."""
    present = advice.run.present["l2_gib"]
    advised_changes = []
    for row in [*selectors.list_replayed(advice), *selectors.list_prompt_changes(advice)]:
        if row.verdict in (gains.ADVISED, gains.TRADE_OFF):
            size = row.fields.get("l2_gib", 0.0)
            fields = selectors.list_spec_changes(advice, row)
            advised_changes.append(AdvisedChange(row, fields, size, size > present))
    return advised_changes


def find_applications(
    changes: Sequence[AdvisedChange],
    configurations: Sequence[TimedConfiguration],
    listed: frozenset[str],
) -> Iterator[tuple[int, AdvisedChange]]:
    """Yield the number of each configuration that first met a change, and that change: of several
    the one with the most fields, then the closest size, then a listed one.
    """
    open_changes = {change.row.key: change for change in changes}
    for index in range(1, len(configurations)):
        before, now = configurations[index - 1], configurations[index]
        met = [
            change
            for change in open_changes.values()
            if change.is_met(now) and not change.is_met(before)
        ]
        if met:
            best = max(
                met,
                key=lambda one: (
                    len(one.fields) + bool(one.l2_gib),
                    -one.distance(now),
                    one.row.key in listed,
                    one.row.key,
                ),
            )
            del open_changes[best.row.key]
            yield index, best


def list_differences(
    before: Mapping[str, Any], after: Mapping[str, Any], wanted: AdvisedChange | None = None
) -> list[str]:
    """Return the other fields that differ and change what requests meet."""
    both = f"{_TIER}memory_bytes" in before and f"{_TIER}memory_bytes" in after
    ignored = frozenset(wanted.fields) if wanted else frozenset()
    if wanted and wanted.l2_gib:
        ignored |= _SIZES
    return sorted(
        path
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path)
        and path not in ignored
        and not path.startswith(_HARMLESS)
        and (both or not path.startswith(_TIER))
    )

"""What a panel, a board and a range are. Pure; knows no panel and no PromQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["lines", "stacked", "bars", "heatmap", "numbers"]
Unit = Literal[
    "per_s",
    "seconds",
    "share",
    "count",
    "tokens",
    "tokens_per_s",
    "bytes",
    "bytes_per_s",
    "usd",
    "usd_hour",
    "celsius",
    "watts",
]
Job = Literal["vllm", "router", "l2", ""]
Factor = Literal["", "worker_usd_hour", "saved_usd_token"]
Drill = Literal["", "worker", "endpoint"]


@dataclass(frozen=True, slots=True)
class Cause:
    """What must happen before a panel has anything to measure. `query` counts it over a range;
    `none` states that it did not happen, and `some` begins with how often it did."""

    query: str
    none: str
    some: str
    fix: str


@dataclass(frozen=True, slots=True)
class Style:
    """`hatch` is Plotly's fill pattern, for stacked areas."""

    label: str
    colour: str
    dash: str = "solid"
    hatch: str = ""


@dataclass(frozen=True, slots=True)
class PanelLine:
    """The series of one query: named by the value of label `by`, or all of them `name`.
    `factor`: each value is multiplied by what the console knows of the series' endpoint (its label
    `endpoint_name`): what a worker of it costs an hour, or what a token found in a cache saves,
    both in US dollars. Unknown: no line, and the panel says whose price is missing."""

    query: str
    by: str = ""
    name: str = ""
    factor: Factor = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """`job` exports `metric`, or one of `or_metrics` which is the same by another name; where all
    are missing, `since` says which version has it. `job` "" is what none of our own targets
    export: then `needs` names the exporter to install. `cause`: what must have happened before
    there can be numbers; `empty` says what it means that it did and there are none, `zero` that all
    which was measured is 0. Each is true of the panel's own counters, whatever others count.
    `styles` go by series name; names without
    one get one in turn. A share that is not `of_whole` is drawn as large as it is, not against
    100 %. `drill`: the names of the lines are workers (or endpoints), and lead to their boards."""

    id: str
    title: str
    about: str
    lines: tuple[PanelLine, ...]
    unit: Unit
    job: Job
    metric: str
    since: str
    empty: str = ""
    cause: Cause | None = None
    kind: Kind = "lines"
    styles: Mapping[str, Style] = field(default_factory=dict)
    of_whole: bool = True
    or_metrics: tuple[str, ...] = ()
    needs: str = ""
    drill: Drill = ""
    zero: str = ""

    @property
    def of_events(self) -> bool:
        """Zero is that nothing happened; of all else zero is a measure like any other."""
        return self.kind == "heatmap" or self.unit in ("per_s", "tokens_per_s", "bytes_per_s")

    @property
    def hides_zeros(self) -> bool:
        """Every reason and tier exists from the start; those never met only fill the legend. Of a
        few large figures a zero is as good as any."""
        return (bool(self.styles) or self.kind == "bars") and self.kind != "numbers"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Any of which will do."""
        return (self.metric, *self.or_metrics)


@dataclass(frozen=True, slots=True)
class PanelSection:
    """Panels under one heading; "" for none."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Documented:
    """A metric as elsewhere's documentation names it: what is said there, what it truly counts,
    the panel that shows it, and what stands for it where LMCache is a server of its own."""

    name: str
    said: str
    true: str
    panel: str
    as_server: str = "The same."


@dataclass(frozen=True, slots=True)
class Board:
    """`fleet` and `one`: its sections for many endpoints and for a single one; () where there is no
    such board. `documented`: names a reader may have met elsewhere, as a table below."""

    key: str
    title: str
    about: str
    icon: str
    fleet: tuple[PanelSection, ...]
    one: tuple[PanelSection, ...]
    documented: tuple[Documented, ...] = ()

    def sections(self, *, one: bool) -> tuple[PanelSection, ...]:
        return self.one if one else self.fleet

    def panels(self, *, one: bool) -> tuple[Panel, ...]:
        return tuple(panel for section in self.sections(one=one) for panel in section.panels)


@dataclass(frozen=True, slots=True)
class Range:
    """`step_s` keeps a line under 600 points; `poll_s` is how often the page asks again."""

    key: str
    label: str
    length_s: int
    step_s: int
    poll_s: int


RANGES: Mapping[str, Range] = {
    choice.key: choice
    for choice in (
        Range("15m", "15 minutes", 900, 5, 5),
        Range("1h", "1 hour", 3600, 10, 5),
        Range("6h", "6 hours", 6 * 3600, 60, 10),
        Range("24h", "24 hours", 24 * 3600, 300, 10),
        Range("7d", "7 days", 7 * 86400, 1800, 60),
        Range("30d", "30 days", 30 * 86400, 7200, 60),
    )
}
DEFAULT_RANGE = RANGES["15m"]

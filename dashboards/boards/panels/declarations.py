"""Types of panel declarations: Panel, Board, Range and their parts."""

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
_DRILLS: Mapping[str, Drill] = {
    **dict.fromkeys(("pod", "worker"), "worker"),
    **dict.fromkeys(("endpoint", "endpoint_name"), "endpoint"),
}


@dataclass(frozen=True, slots=True)
class Cause:
    """Precondition of a panel's metrics. `query` counts it over a range; `none` states that it did
    not happen, `some` is the noun phrase of its count.
    """

    query: str
    none: str
    some: str
    fix: str = "Send a request through the router or choose a longer range."


@dataclass(frozen=True, slots=True)
class Style:
    label: str
    colour: str
    dash: str = "solid"
    hatch: str = ""


@dataclass(frozen=True, slots=True)
class PanelLine:
    """The series of one query, named by label `by`, or all `name`.

    `factor`: name of a price that multiplies each value, by the series' label `endpoint_name`: the
    hourly cost of a worker, or the saving per cached token (USD). Without a price there is no line,
    and the panel names the endpoints.
    """

    query: str
    by: str = ""
    name: str = ""
    factor: Factor = ""
    style: Style | None = None


@dataclass(frozen=True, slots=True)
class UnpricedPanel:
    """Replacement of a panel with a factor while no endpoint has one: the raw quantity."""

    title: str
    unit: Unit
    about: str


@dataclass(frozen=True, slots=True)
class Panel:
    """Declaration of a panel. `job` exports `metric`, or one of the equivalent `or_metrics`; if all
    are missing, `since` is the version that has them. `job` "" means an exporter outside the
    console's targets, named by `needs`. `cause` is the precondition of any value; `empty` explains
    no value despite the cause, `zero` explains values that are all 0. Both hold for the panel's own
    counters.

    `styles` go by series name, beside those of single lines; other names get one in turn. A share
    that is not `of_whole` is scaled to its values, not to 100 %. `unpriced` replaces the notice
    about a missing price.

    Derived: `legend` has the declared styles by series name; with `hides_zeros` charts omit zero
    series, because every reason and tier is exported from the start and would fill the legend (big
    numbers keep theirs); `metrics` are `metric` and its equivalents.
    """

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
    zero: str = ""
    unpriced: UnpricedPanel | None = None
    # Derived once: requests read them for each line.
    legend: Mapping[str, Style] = field(init=False, repr=False, compare=False)
    hides_zeros: bool = field(init=False, repr=False, compare=False)
    metrics: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        legend = {**self.styles, **{line.name: line.style for line in self.lines if line.style}}
        of_codes = bool(legend) or any("reason" in line.by for line in self.lines)
        hides_zeros = (of_codes or self.kind == "bars") and self.kind != "numbers"
        object.__setattr__(self, "legend", legend)
        object.__setattr__(self, "hides_zeros", hides_zeros)
        object.__setattr__(self, "metrics", (self.metric, *self.or_metrics))

    @property
    def drill(self) -> Drill:
        """Lines named by workers or endpoints link to their boards."""
        return _DRILLS.get(self.lines[0].by, "")

    @property
    def of_events(self) -> bool:
        """Whether zero means that nothing happened, rather than a measured value."""
        return self.kind == "heatmap" or self.unit in ("per_s", "tokens_per_s", "bytes_per_s")


@dataclass(frozen=True, slots=True)
class PanelSection:
    """Section of a board. `anchor` keeps the links of a section whose title was reworded; "" is the
    title's slug.
    """

    title: str
    panels: tuple[Panel, ...]
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Documented:
    """A metric by its name in other projects' documentation: the documented meaning, the actual
    one, the panel that shows it, and its equivalent in LMCache's multi-process mode.
    """

    name: str
    documented: str
    true: str
    panel: str
    as_server: str = "The same."


@dataclass(frozen=True, slots=True)
class Board:
    """Declaration of a board. `fleet` and `one`: sections for many endpoints and for one; ()
    without such a board. `documented`: metric names from other documentation, listed in a table.
    """

    key: str
    title: str
    about: str
    icon: str
    fleet: tuple[PanelSection, ...]
    one: tuple[PanelSection, ...]
    documented: tuple[Documented, ...] = ()
    fleet_panels: tuple[Panel, ...] = field(init=False, repr=False, compare=False)
    one_panels: tuple[Panel, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, sections in (("fleet_panels", self.fleet), ("one_panels", self.one)):
            panels = tuple(panel for section in sections for panel in section.panels)
            object.__setattr__(self, name, panels)

    def sections(self, *, one: bool) -> tuple[PanelSection, ...]:
        return self.one if one else self.fleet

    def panels(self, *, one: bool) -> tuple[Panel, ...]:
        return self.one_panels if one else self.fleet_panels


@dataclass(frozen=True, slots=True)
class Range:
    """Time range of a board. `step_s` keeps a line under 600 points; `poll_s` is the page's refresh
    interval.
    """

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

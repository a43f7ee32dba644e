"""What an alert rule is, and how Prometheus reads it. Pure.

Promises that every alert says whom it is about, what it means and what to do, and that a rule with
other numbers for some endpoints judges every endpoint exactly once. Must not know Django or HTTP.

The texts hold places: `<measured>` is the rule's own value, `<only>` in a selector says which
endpoints, any other is a parameter. PromQL has no such signs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dashboards.alerts.rules.parameter import Parameter, duration, seconds_of
from dashboards.boards import queries as q

PAGE, TICKET = "page", "ticket"
SEVERITIES: Final = (PAGE, TICKET)
_PLACE = re.compile(r"<(\w+)>")
_ENDPOINTS: Final = ("endpoint", "endpoint_name")
_EMPTY = re.compile(r",(?=\})|\{\}")


@dataclass(frozen=True, slots=True)
class Only:
    """Which endpoints: these, or all `without` these. Without names: all."""

    names: tuple[str, ...] = ()
    without: bool = False

    def matcher(self, label: str) -> str:
        """Names of endpoints hold nothing that a pattern knows."""
        if not self.names:
            return ""
        if len(self.names) == 1:
            return f'{label}{"!=" if self.without else "="}"{self.names[0]}"'
        return f'{label}{"!~" if self.without else "=~"}"{"|".join(self.names)}"'

    def around(self, expr: str) -> str:
        """For what is known by the label of its result alone."""
        if not self.names:
            return expr
        named = (f'label_replace(vector(0), "endpoint", "{one}", "", "")' for one in self.names)
        return (
            f"({expr}) {'unless' if self.without else 'and'} on (endpoint) ({' or '.join(named)})"
        )


ALL: Final = Only()


@dataclass(frozen=True, slots=True)
class Setting:
    """What somebody set of a rule; what is left out is as the next wider one has it."""

    values: Mapping[str, float] = field(default_factory=dict)
    lasting_s: int | None = None
    severity: str = ""
    enabled: bool | None = None

    def over(self, wider: Setting) -> Setting:
        return Setting(
            {**wider.values, **self.values},
            wider.lasting_s if self.lasting_s is None else self.lasting_s,
            self.severity or wider.severity,
            wider.enabled if self.enabled is None else self.enabled,
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """`lasting` as Prometheus writes it. `about` is the label which names whom it is about; an
    endpoint is named by the label `endpoint` of the alert, whatever the metric calls it.
    `needs`: the exporter without which it can never fire, "" when our own parts are enough.
    `unit`: of what is measured."""

    name: str
    measured: str
    condition: str
    lasting: str
    severity: str
    says: str
    remedy: str
    about: str = "endpoint"
    needs: str = ""
    parameters: tuple[Parameter, ...] = ()
    unit: str = ""

    @property
    def per_endpoint(self) -> bool:
        """Whether an endpoint may have numbers of its own."""
        return self.about in _ENDPOINTS or self.by_result

    @property
    def by_result(self) -> bool:
        """Whether its endpoint is known by the label of its result alone."""
        return self.about not in _ENDPOINTS and '"endpoint", "$1"' in self.condition + self.measured

    @property
    def defaults(self) -> Setting:
        values = {one.name: one.default for one in self.parameters}
        return Setting(values, seconds_of(self.lasting), self.severity, True)

    @property
    def expr(self) -> str:
        return self.expression(self.defaults)

    @property
    def summary(self) -> str:
        return self.told(self.defaults)

    def expression(self, setting: Setting, only: Only = ALL) -> str:
        return self._filled(self.condition, setting, only)

    def value(self, setting: Setting, only: Only = ALL) -> str:
        """What is compared, as a question of its own."""
        return self._filled("<measured>", setting, only)

    def told(self, setting: Setting) -> str:
        """What it means, with these numbers."""
        values = setting.over(self.defaults).values
        shown = {one.name: one.shown(values[one.name]) for one in self.parameters}
        return _PLACE.sub(lambda found: shown[found[1]], self.says)

    def _filled(self, text: str, setting: Setting, only: Only) -> str:
        values = setting.over(self.defaults).values
        written = {one.name: one.written(values[one.name]) for one in self.parameters}
        label = self.about if self.about in _ENDPOINTS else ""
        written["only"] = only.matcher(label) if label else ""
        text = _PLACE.sub(lambda found: self.measured if found[1] == "measured" else found[0], text)
        expr = _EMPTY.sub("", _PLACE.sub(lambda found: written[found[1]], text))
        return only.around(expr) if self.by_result else expr

    def data(
        self, setting: Setting | None = None, only: Only = ALL, runbook: str = ""
    ) -> dict[str, Any]:
        """As a rule file has it."""
        chosen = (setting or Setting()).over(self.defaults)
        whose = f"{{{{ $labels.{self.about} }}}}" if self.about else "All endpoints"
        labels = {"severity": chosen.severity}
        if self.about in _ENDPOINTS:
            labels["endpoint"] = whose
        annotations = {
            "summary": f"{whose}: {self.told(chosen)}",
            "description": f"{self.remedy} (now {{{{ $value | humanize }}}})",
        }
        if runbook:
            annotations["runbook_url"] = runbook
        return {
            "alert": self.name,
            "expr": self.expression(chosen, only),
            "for": duration(chosen.lasting_s or 0),
            "labels": labels,
            "annotations": annotations,
        }


def chosen(metric: str, inner: str = "") -> str:
    """A selector of whichever endpoints are looked at."""
    return f"{metric}{{{inner},<only>}}" if inner else f"{metric}{{<only>}}"


def rate(metric: str, by: str, window: str, inner: str = "", offset: str = "") -> str:
    return f"sum by ({by}) (rate({chosen(metric, inner)}[{window}]{offset}))"


def unless_expected(label: str, kinds: str = "start|update|stop") -> str:
    """Return the clause that leaves out endpoints in transition of these `kinds`; `label` names
    the endpoint in the result. Without the console's metrics nothing is left out."""
    series = f'{q.ENDPOINT_TRANSITION}{{kind=~"{kinds}"}}'
    return f"unless on ({label}) {_relabelled(series, 'endpoint_name', label)}"


def unless_starting() -> str:
    """Return the clause that leaves out workers before their first readiness."""
    return (
        f"unless on (endpoint_name, pod) {_relabelled(q.WORKER_STARTING, 'worker', 'pod')} "
        f"{unless_expected('endpoint_name', 'stop')}"
    )


def _relabelled(series: str, source: str, target: str) -> str:
    if source == target:
        return series
    return f'label_replace({series}, "{target}", "$1", "{source}", "(.+)")'


def quantile(share: float, metric: str, by: str, window: str, inner: str = "") -> str:
    """Of a histogram; `by` without `le`."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', f'le, {by}', window, inner)})"


def window(default: str, low: str = "1m", high: str = "6h") -> Parameter:
    """Over which time is looked."""
    first, least, most = (float(seconds_of(one) or 0) for one in (default, low, high))
    return Parameter("window", "Looked at over", first, least, most, "window")

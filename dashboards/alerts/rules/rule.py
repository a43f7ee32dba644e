"""Definition of an alert rule and its rendering for Prometheus.

Every alert names its subject, meaning and remedy. With settings for single endpoints, each endpoint
is still evaluated exactly once.

Placeholders in texts: `<measured>` is the rule's measure, `<only>` in a selector the endpoint
matcher, any other a parameter. PromQL has no such syntax.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dashboards.alerts.rules.parameter import Parameter, Unit, format_duration, parse_duration
from dashboards.boards.queries import metric_names as q

PAGE, TICKET = "page", "ticket"
SEVERITIES: Final = (PAGE, TICKET)
_PLACE = re.compile(r"<(\w+)>")
_ENDPOINTS: Final = ("endpoint", "endpoint_name")
_EMPTY = re.compile(r",(?=\})|\{\}")


@dataclass(frozen=True, slots=True)
class EndpointSelection:
    """Selected endpoints: `names`, or all but `names` if `without`. Without names: all."""

    names: tuple[str, ...] = ()
    without: bool = False

    def matcher(self, label: str) -> str:
        """Return the label matcher. Endpoint names contain no regular expression characters."""
        if not self.names:
            return ""
        if len(self.names) == 1:
            return f'{label}{"!=" if self.without else "="}"{self.names[0]}"'
        return f'{label}{"!~" if self.without else "=~"}"{"|".join(self.names)}"'

    def around(self, expr: str) -> str:
        """Filter an expression whose endpoint label only exists in the result."""
        if not self.names:
            return expr
        named = (f'label_replace(vector(0), "endpoint", "{name}", "", "")' for name in self.names)
        return (
            f"({expr}) {'unless' if self.without else 'and'} on (endpoint) ({' or '.join(named)})"
        )


ALL_ENDPOINTS: Final = EndpointSelection()


@dataclass(frozen=True, slots=True)
class Setting:
    """User settings of a rule; unset fields inherit from the next wider setting."""

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
    """Built-in alert rule. `lasting`: the `for` duration in Prometheus syntax. `about`: label that
    identifies the subject; alerts on endpoints have the label `endpoint` whatever the metric's
    label is. `needs`: exporter required, empty for our own metrics. `measured_in`: unit of the
    measure; None: that of the threshold.
    """

    name: str
    measured: str
    lasting: str
    summary_template: str
    remedy: str
    condition: str = "<measured> > <threshold>"
    severity: str = TICKET
    about: str = "endpoint"
    needs: str = ""
    parameters: tuple[Parameter, ...] = ()
    measured_in: str | None = None

    @property
    def unit(self) -> str:
        if self.measured_in is not None:
            return self.measured_in
        return next(
            (parameter.unit for parameter in self.parameters if parameter.name == "threshold"), ""
        )

    @property
    def per_endpoint(self) -> bool:
        """Return whether the rule accepts settings for single endpoints."""
        return self.about in _ENDPOINTS or self.by_result

    @property
    def by_result(self) -> bool:
        """Return whether the endpoint label only exists in the result."""
        return self.about not in _ENDPOINTS and '"endpoint", "$1"' in self.condition + self.measured

    @property
    def defaults(self) -> Setting:
        values = {parameter.name: parameter.default for parameter in self.parameters}
        return Setting(values, parse_duration(self.lasting), self.severity, True)

    def expression(self, setting: Setting, only: EndpointSelection = ALL_ENDPOINTS) -> str:
        return self._filled(self.condition, setting, only)

    def value(self, setting: Setting, only: EndpointSelection = ALL_ENDPOINTS) -> str:
        """Return the PromQL of the measure."""
        return self._filled("<measured>", setting, only)

    def summarize(self, setting: Setting) -> str:
        """Return the summary with the values of the setting."""
        values = setting.over(self.defaults).values
        values_shown = {
            parameter.name: parameter.shown(values[parameter.name]) for parameter in self.parameters
        }
        return _PLACE.sub(lambda found: values_shown[found[1]], self.summary_template)

    def _filled(self, text: str, setting: Setting, only: EndpointSelection) -> str:
        values = setting.over(self.defaults).values
        written = {
            parameter.name: parameter.written(values[parameter.name])
            for parameter in self.parameters
        }
        label = self.about if self.about in _ENDPOINTS else ""
        written["only"] = only.matcher(label) if label else ""
        text = _PLACE.sub(lambda found: self.measured if found[1] == "measured" else found[0], text)
        expr = _EMPTY.sub("", _PLACE.sub(lambda found: written[found[1]], text))
        return only.around(expr) if self.by_result else expr

    def data(
        self,
        setting: Setting | None = None,
        only: EndpointSelection = ALL_ENDPOINTS,
        runbook: str = "",
    ) -> dict[str, Any]:
        effective = (setting or Setting()).over(self.defaults)
        whose = f"{{{{ $labels.{self.about} }}}}" if self.about else "All endpoints"
        labels = {"severity": effective.severity}
        if self.about in _ENDPOINTS:
            labels["endpoint"] = whose
        annotations = {
            "summary": f"{whose}: {self.summarize(effective)}",
            "description": f"{self.remedy} (now {{{{ $value | humanize }}}})",
        }
        if runbook:
            annotations["runbook_url"] = runbook
        return {
            "alert": self.name,
            "expr": self.expression(effective, only),
            "for": format_duration(effective.lasting_s or 0),
            "labels": labels,
            "annotations": annotations,
        }


def select(metric: str, inner: str = "") -> str:
    """Return a selector with the `<only>` placeholder."""
    return f"{metric}{{{inner},<only>}}" if inner else f"{metric}{{<only>}}"


def rate(metric: str, by: str, window: str, inner: str = "", offset: str = "") -> str:
    return f"sum by ({by}) (rate({select(metric, inner)}[{window}]{offset}))"


def unless_expected(label: str, kinds: str = "start|update|stop") -> str:
    """Return the clause that excludes endpoints in transition of these `kinds`.

    `label` names the endpoint in the result. Without the console's metrics nothing is excluded.
    """
    series = f'{q.ENDPOINT_TRANSITION}{{kind=~"{kinds}"}}'
    return f"unless on ({label}) {relabelled(series, 'endpoint_name', label)}"


def unless_starting() -> str:
    """Return the clause that excludes workers before their first readiness."""
    return (
        f"unless on (endpoint_name, pod) {relabelled(q.WORKER_STARTING, 'worker', 'pod')} "
        f"{unless_expected('endpoint_name', 'stop')}"
    )


def relabelled(series: str, source: str, target: str) -> str:
    if source == target:
        return series
    return f'label_replace({series}, "{target}", "$1", "{source}", "(.+)")'


def quantile(share: float, metric: str, by: str, window: str, inner: str = "") -> str:
    """Return the quantile of a histogram; `by` without `le`."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', f'le, {by}', window, inner)})"


def threshold(label: str, default: float, low: float, high: float, unit: Unit = "") -> Parameter:
    return Parameter("threshold", label, default, low, high, unit)


def window(default: str, low: str = "1m", high: str = "6h") -> Parameter:
    first, least, most = (float(parse_duration(duration) or 0) for duration in (default, low, high))
    return Parameter("window", "Window", first, least, most, "window")

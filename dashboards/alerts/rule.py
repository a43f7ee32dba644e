"""What an alert rule is, and how Prometheus reads it. Pure.

Promises that every alert says whom it is about, what it means and what to do. Must not know Django
or HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

PAGE, TICKET = "page", "ticket"
_ENDPOINTS: Final = ("endpoint", "endpoint_name")


@dataclass(frozen=True, slots=True)
class Rule:
    """`lasting` as Prometheus writes it. `about` is the label which names whom it is about; an
    endpoint is named by the label `endpoint` of the alert, whatever the metric calls it.
    `needs`: the exporter without which it can never fire, "" when our own parts are enough."""

    name: str
    expr: str
    lasting: str
    severity: str
    summary: str
    remedy: str
    about: str = "endpoint"
    needs: str = ""

    def data(self) -> dict[str, Any]:
        whose = f"{{{{ $labels.{self.about} }}}}" if self.about else "All endpoints"
        labels = {"severity": self.severity}
        if self.about in _ENDPOINTS:
            labels["endpoint"] = whose
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.lasting,
            "labels": labels,
            "annotations": {
                "summary": f"{whose}: {self.summary}",
                "description": f"{self.remedy} (now {{{{ $value | humanize }}}})",
            },
        }


def rate(metric: str, by: str, window: str, braces: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{braces}[{window}]))"


def quantile(share: float, metric: str, by: str, window: str, braces: str = "") -> str:
    """Of a histogram; `by` without `le`."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', f'le, {by}', window, braces)})"

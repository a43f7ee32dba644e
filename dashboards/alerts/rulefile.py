"""All rules together, and the file of them which Prometheus loads. Pure."""

from __future__ import annotations

from typing import Any, Final

import yaml

from dashboards.alerts import about_cache, about_cluster, about_engines, about_routing
from dashboards.alerts.rule import Rule

GROUPS: Final[dict[str, tuple[Rule, ...]]] = {
    "emberline-routing": about_routing.RULES,
    "emberline-engines": about_engines.RULES,
    "emberline-cache": about_cache.RULES,
    "emberline-cluster": about_cluster.RULES,
}
RULES: Final = tuple(rule for rules in GROUPS.values() for rule in rules)
BY_NAME: Final = {rule.name: rule for rule in RULES}


def groups() -> list[dict[str, Any]]:
    return [
        {"name": name, "rules": [rule.data() for rule in rules]} for name, rules in GROUPS.items()
    ]


def render() -> str:
    """A rule file."""
    head = "# Written by Emberline at every start; changes here are lost.\n"
    return head + yaml.safe_dump({"groups": groups()}, sort_keys=False, width=1000)

"""Collection of all alert rules, and the Prometheus rule file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from dashboards.alerts.rules import cache, cluster, console, cost, routing, workers
from dashboards.alerts.rules.rule import Rule
from dashboards.alerts.rules.settings import DEFAULT_SETTINGS, Settings

GROUPS: Final[dict[str, tuple[Rule, ...]]] = {
    "emberline-routing": routing.RULES,
    "emberline-engines": workers.RULES,
    "emberline-cache": cache.RULES,
    "emberline-cluster": cluster.RULES,
    "emberline-cost": cost.RULES,
    "emberline-console": console.RULES,
}
OWN_GROUP: Final = "emberline-own"
CONSOLE_GROUPS: Final = ("budget", "path")
"""What a rule can be about that the console's own numbers alone tell."""
RULES: Final = tuple(rule for rules in GROUPS.values() for rule in rules)
BY_NAME: Final = {rule.name: rule for rule in RULES}


def build_groups(settings: Settings = DEFAULT_SETTINGS) -> list[dict[str, Any]]:
    """Return the rule groups; groups without enabled rules are omitted, as Prometheus rejects
    them."""
    found = [
        {"name": name, "rules": [one for rule in rules for one in settings.rendered(rule)]}
        for name, rules in GROUPS.items()
    ]
    own = [one.data(settings.runbook(one.name)) for one in settings.own if one.enabled]
    return [group for group in [*found, {"name": OWN_GROUP, "rules": own}] if group["rules"]]


def cluster_groups(
    settings: Settings, labels: Mapping[str, str], *, with_console: bool
) -> list[dict[str, Any]]:
    """Return the groups that a cluster's Prometheus can evaluate from its own scrapes.

    These are rules on endpoints, pools and pods, user-written rules and, `with_console`, rules on
    the console. `labels` are added to every alert.
    """
    elsewhere = {rule.name for rule in RULES if rule.about in CONSOLE_GROUPS and not with_console}
    found = []
    for group in build_groups(settings):
        rules = [
            {**one, "labels": {**one["labels"], **labels}}
            for one in group["rules"]
            if one["alert"] not in elsewhere
        ]
        if rules:
            found.append({**group, "rules": rules})
    return found


def render(settings: Settings = DEFAULT_SETTINGS) -> str:
    """Return the rule file as YAML."""
    head = "# Written by Emberline; changes here are lost. Rules are set on its page Alerts.\n"
    return head + yaml.safe_dump({"groups": build_groups(settings)}, sort_keys=False, width=1000)


def render_object(settings: Settings = DEFAULT_SETTINGS, name: str = "emberline-rules") -> str:
    """Return the rules as a PrometheusRule object in YAML."""
    made = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "emberline"}},
        "spec": {"groups": build_groups(settings)},
    }
    return yaml.safe_dump(made, sort_keys=False, width=1000)

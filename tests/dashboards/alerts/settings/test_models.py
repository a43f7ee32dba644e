"""Rows of an earlier version."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from dashboards.alerts.rules.workers import RULES
from dashboards.alerts.settings.models import RuleSetting

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def before() -> Any:
    executor = MigrationExecutor(connection)
    latest = executor.loader.graph.leaf_nodes()
    executor.migrate([("alerting", "0001_alert_rules")])
    yield executor.loader.project_state([("alerting", "0001_alert_rules")]).apps
    MigrationExecutor(connection).migrate(latest)


def test_targets_move_to_the_next_bound_of_the_routers_histogram(before: Any) -> None:
    settings = before.get_model("alerting", "RuleSetting").objects
    settings.create(rule="TTFTBudgetBurnFast", values={"target": 2.5, "burn": 6.0})
    settings.create(rule="HighITL", values={"threshold": 0.25})
    MigrationExecutor(connection).migrate([("alerting", "0002_ttft_targets")])
    values = dict(RuleSetting.objects.values_list("rule", "values"))
    assert values == {
        "TTFTBudgetBurnFast": {"target": 3.0, "burn": 6.0},
        "HighITL": {"threshold": 0.25},
    }
    (rule,) = (rule for rule in RULES if rule.name == "TTFTBudgetBurnFast")
    assert 3.0 in rule.parameters[0].choices

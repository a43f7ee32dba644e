"""Change settings of alert rules and user-written rules: validate, write, record.

Settings of one endpoint need the operator role on it, platform-wide ones on the platform.
Prometheus checks the PromQL of user-written rules. Each change triggers an update of the rule file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from console.accounts.credentials import stored_actor as account
from console.accounts.permissions import require
from console.audit.record import diff, record
from console.core.errors import Problem, Refused, expect_generation
from dashboards.alerts.rules.rule import Setting
from dashboards.alerts.settings import selectors, tasks, validation
from dashboards.alerts.settings.models import OwnRule, RuleSetting
from dashboards.prometheus.http.user_query import check_series
from dashboards.prometheus.sources import selectors as connections
from endpoints import selectors as endpoints

MOST_ALERTS = 1000  # limit for a user-written rule when it is saved
SettingFields = Mapping[str, Any]


def set_rule(
    actor: Any,
    name: str,
    endpoint: str,
    fields: SettingFields,
    *,
    expected_generation: int | None = None,
) -> RuleSetting:
    """Change a rule's setting; an empty `endpoint` means platform-wide.

    Fields missing from `fields` keep their values; None resets a field.
    """
    rule = selectors.built_in(name)
    whose = endpoints.get(endpoint, viewer=actor) if endpoint else None
    require(actor, "operator", of=whose)
    if whose is not None and not rule.per_endpoint:
        text = f"{name} has no settings per endpoint."
        raise Refused(
            Problem("endpoint", endpoint, text, "Set it for all endpoints.", "not_per_endpoint")
        )
    with transaction.atomic():
        rows = RuleSetting.objects.select_for_update(no_key=True)
        row = rows.filter(rule=name, endpoint=whose).first()
        expect_generation(name, row.generation if row else 0, expected_generation)
        before = selectors.as_setting(row)
        after = validation.validate_setting(rule, before, fields)
        if row is None:
            row = RuleSetting(rule=name, endpoint=whose, generation=0)
        if after != before:
            _keep(actor, row, after)
            target = f"endpoint/{endpoint}" if endpoint else f"alert-rule/{name}"
            changes = diff(_facts(before), _facts(after))
            record(actor, "alert-rule.update", target, {"rule": name, **changes})
            tasks.load.nudge()
    return row


def reset_rule(
    actor: Any, name: str, endpoint: str, *, expected_generation: int | None = None
) -> RuleSetting:
    """Reset the setting to the platform-wide one, or to the defaults."""
    every = {parameter.name: None for parameter in selectors.built_in(name).parameters}
    fields = {**every, "for": None, "severity": None, "enabled": None}
    return set_rule(actor, name, endpoint, fields, expected_generation=expected_generation)


def _keep(actor: Any, found: RuleSetting, after: Setting) -> None:
    found.values, found.lasting_s = dict(after.values), after.lasting_s
    found.severity, found.enabled = after.severity, after.enabled
    found.generation += 1
    found.changed_at, found.changed_by = timezone.now(), account(actor)
    try:
        with transaction.atomic():
            found.save()
    except IntegrityError:  # created concurrently
        expect_generation(found.rule, 1, 0)


def _facts(setting: Setting) -> dict[str, Any]:
    common = {"for_s": setting.lasting_s, "severity": setting.severity or None}
    return {**setting.values, **common, "enabled": setting.enabled}


def create_user_rule(actor: Any, fields: SettingFields) -> OwnRule:
    require(actor, "operator")
    columns = validation.validate_user_rule(fields, whole=True)
    name = columns["name"]
    if selectors.rule_exists(name):
        raise Refused(
            Problem("name", name, "A rule with this name exists.", "Choose another.", "taken")
        )
    _check(columns["expr"])
    with transaction.atomic():
        made = OwnRule.objects.create(changed_by=account(actor), **columns)
        record(actor, "create", f"alert-rule/{name}", diff({}, user_rule_facts(made)))
        tasks.load.nudge()
    return made


def change_user_rule(
    actor: Any, name: str, fields: SettingFields, *, expected_generation: int | None = None
) -> OwnRule:
    """Set the given fields; omitted fields keep their values."""
    require(actor, "operator")
    columns = validation.validate_user_rule(fields, whole=False)
    if columns.get("expr", selectors.user_rule(name).expr) != selectors.user_rule(name).expr:
        _check(columns["expr"])
    with transaction.atomic():
        own_rule = _lock_user_rule(name)
        expect_generation(name, own_rule.generation, expected_generation)
        before = user_rule_facts(own_rule)
        for column, value in columns.items():
            setattr(own_rule, column, value)
        changes = diff(before, user_rule_facts(own_rule))
        if changes:
            own_rule.generation += 1
            own_rule.changed_at, own_rule.changed_by = timezone.now(), account(actor)
            own_rule.save()
            record(actor, "update", f"alert-rule/{name}", changes)
            tasks.load.nudge()
    return own_rule


def delete_user_rule(actor: Any, name: str, *, expected_generation: int | None = None) -> None:
    require(actor, "operator")
    with transaction.atomic():
        rule = _lock_user_rule(name)
        expect_generation(name, rule.generation, expected_generation)
        rule.delete()
        record(actor, "delete", f"alert-rule/{name}")
        tasks.load.nudge()


def _lock_user_rule(name: str) -> OwnRule:
    row = OwnRule.objects.select_for_update(no_key=True).filter(name=name).first()
    if row is None:
        raise selectors.rule_not_found(name)
    return row


def user_rule_facts(found: OwnRule) -> dict[str, Any]:
    columns = ("expr", "lasting_s", "severity", "summary", "remedy", "enabled")
    return {column: getattr(found, column) for column in columns}


def _check(expr: str) -> None:
    """Raise `Refused` if the expression is too expensive for continuous evaluation."""
    check_series(connections.fleet(), expr, "expr", MOST_ALERTS, ", one alert each")

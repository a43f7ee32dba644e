"""Dry runs of rules for pages and REST.

Rejects what saving would reject, with the same texts, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from console.accounts.permissions import require
from console.core.errors import Problem, Refused
from dashboards.alerts.evaluation import measure as evaluation_measure
from dashboards.alerts.evaluation.dry_run import (
    DEFAULT,
    MOST_CONDITIONS,
    RANGES,
    Condition,
    ConditionValues,
    DryRun,
    dry_run,
    excess_series,
)
from dashboards.alerts.rules.rule import EndpointSelection, Rule, Setting
from dashboards.alerts.rules.rule_file import BY_NAME, Settings
from dashboards.alerts.settings import selectors, validation
from dashboards.prometheus.http.user_query import AGGREGATE_REMEDY, MOST_SERIES, check_series
from dashboards.prometheus.sources import selectors as connections
from endpoints import selectors as endpoints

SettingFields = Mapping[str, Any]
_WORDS = ("name", "summary", "remedy")  # optional in a dry run


def run_trial(actor: Any, name: str, endpoint: str, fields: SettingFields) -> DryRun:
    """Run a rule with the settings in `fields`, platform-wide or for one endpoint.

    An empty `name` means a new user-written rule. `range` in the fields is the period.
    """
    whose = endpoints.get(endpoint, viewer=actor) if endpoint else None
    require(actor, "operator", of=whose)
    fields = dict(fields)
    key = _range(fields.pop("range", None))
    if name not in BY_NAME:
        return _own(name, fields, key)
    rule = BY_NAME[name]
    if whose is not None and not rule.per_endpoint:
        text = f"{name} has no settings per endpoint."
        raise Refused(
            Problem("endpoint", endpoint, text, "Run it for all endpoints.", "not_per_endpoint")
        )
    settings = selectors.settings()
    after = validation.validate_setting(
        rule, selectors.as_setting(selectors.row(name, endpoint)), fields
    )
    draft = _with(settings, name, endpoint, after)
    only = EndpointSelection((endpoint,)) if endpoint else EndpointSelection()
    measure = evaluation_measure.built_in_measure(rule, draft.of(rule, endpoint), only)
    asker = connections.connect_endpoint(endpoint) if endpoint else connections.fleet()
    new, now = (_numbers(rule, setting, endpoint) for setting in (draft, settings))
    return dry_run(asker, new, now, measure, key)


def _with(settings: Settings, name: str, endpoint: str, setting: Setting) -> Settings:
    if not endpoint:
        return replace(settings, everywhere={**settings.everywhere, name: setting})
    mine = {**settings.of_endpoints.get(name, {}), endpoint: setting}
    return replace(settings, of_endpoints={**settings.of_endpoints, name: mine})


def _numbers(rule: Rule, settings: Settings, endpoint: str) -> ConditionValues:
    """Return the conditions; endpoints with own settings have conditions of their own."""
    if endpoint:
        mine = settings.of(rule, endpoint)
        only = EndpointSelection((endpoint,))
        return ConditionValues((_condition(rule, mine, only),), bool(mine.enabled))
    (wide, rest), *apart = settings.split(rule)
    on = [(setting, only) for setting, only in apart if setting.enabled]
    pairs = [(wide, rest), *on][:MOST_CONDITIONS]
    conditions = tuple(_condition(rule, setting, only) for setting, only in pairs)
    return ConditionValues(conditions, bool(wide.enabled), len(on) + 1 - len(pairs))


def _condition(rule: Rule, setting: Setting, only: EndpointSelection) -> Condition:
    return Condition(rule.expression(setting, only), setting.lasting_s or 0)


def _own(name: str, fields: SettingFields, key: str) -> DryRun:
    row = selectors.user_rule(name) if name else None
    judged = {field: value for field, value in fields.items() if field not in _WORDS}
    columns = validation.validate_user_rule(judged, whole=False)
    expr = columns.get("expr", row.expr if row else "")
    if not expr:
        raise Refused(
            Problem(
                "expr", expr, "The condition is empty.", "Enter a PromQL expression.", "required"
            )
        )
    before = row.lasting_s if row else validation.LASTING_S
    lasting_s = columns.get("lasting_s", before)
    enabled = columns.get("enabled", row.enabled if row else True)
    asker = connections.fleet()
    check_series(asker, expr, "expr", MOST_SERIES, " in a dry run")
    many = excess_series(asker, expr, key)
    if many:
        text = f"The condition matches {many} series. Limit of a dry run: {MOST_SERIES}."
        raise Refused(Problem("expr", None, text, AGGREGATE_REMEDY, "too_many_series"))
    draft = ConditionValues((Condition(expr, lasting_s),), enabled)
    now = ConditionValues((Condition(row.expr, row.lasting_s),), row.enabled) if row else None
    return dry_run(asker, draft, now, evaluation_measure.user_rule_measure(expr), key)


def _range(given: Any) -> str:
    if given in (None, ""):
        return DEFAULT
    if not isinstance(given, str) or given not in RANGES:
        remedy = f"Choose one of {', '.join(RANGES)}."
        raise Refused(Problem("range", given, "Unknown range.", remedy, "unknown_choice"))
    return given

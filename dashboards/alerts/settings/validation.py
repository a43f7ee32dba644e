"""Validate submitted rule settings field by field, for forms, REST and command line.

Each problem names the field, the submitted value and the allowed values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from console.core.errors import Problem, Refused
from dashboards.alerts.rules.parameter import parse_duration
from dashboards.alerts.rules.rule import SEVERITIES, Rule, Setting
from dashboards.alerts.rules.rule_file import BY_NAME
from dashboards.prometheus.http.user_query import refuse_unselective

LONGEST_S: Final = 7 * 86_400
LASTING_S: Final = 300  # default of user-written rules
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,79}")
OWN_FIELDS: Final = ("expr", "for", "severity", "summary", "remedy", "enabled")
_COMMON: Final = ("for", "severity", "enabled")
_LONGEST: Final = {"expr": 4000, "summary": 200, "remedy": 2000}


def validate_setting(rule: Rule, before: Setting, fields: Mapping[str, Any]) -> Setting:
    """Return `before` with the submitted fields; None resets a field. Raise `Refused`."""
    parameters = {parameter.name: parameter for parameter in rule.parameters}
    values = dict(before.values)
    problems = _unknown(fields, (*parameters, *_COMMON))
    for name in [name for name in fields if name in parameters]:
        values.pop(name, None)
        value, parameter = _number(fields[name]), parameters[name]
        if value is None:
            continue
        text = parameter.fault(value)
        if text:
            problems.append(Problem(name, fields[name], text, parameter.bounds, "out_of_bounds"))
        else:
            values[name] = float(value)
    common, more = _common(fields, before)
    if problems or more:
        raise Refused(*problems, *more)
    return Setting(values, common.lasting_s, common.severity, common.enabled)


def validate_user_rule(name: str, fields: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """Return the columns of a user-written rule; `whole`: a new one. Raise `Refused`."""
    problems = _unknown(fields, OWN_FIELDS)
    if whole and not NAME.fullmatch(name):
        text = "Enter 3 to 80 letters, digits or underscores, not starting with a digit."
        problems.append(Problem("name", name[:100], text, "Example: LongPrompts.", "name"))
    if whole and name in BY_NAME:
        remedy = "Choose another name, or change the parameters of that rule."
        problems.append(Problem("name", name, "A built-in rule has this name.", remedy, "taken"))
    columns: dict[str, Any] = {}
    for field in ("expr", "summary", "remedy"):
        value = fields.get(field, "" if whole else None)
        if value is None:
            continue
        problems += _text(field, value)
        columns[field] = value.strip() if isinstance(value, str) else ""
    vague = refuse_unselective(columns.get("expr", ""), "expr")
    if vague:
        problems.append(vague)
    common, more = _common(fields, Setting())
    if problems or more:
        raise Refused(*problems, *more)
    value = {"lasting_s": common.lasting_s, "severity": common.severity or None}
    columns |= {key: value for key, value in value.items() if value is not None}
    return columns | ({} if common.enabled is None else {"enabled": common.enabled})


def _text(field: str, given: Any) -> list[Problem]:
    if not isinstance(given, str):
        return [Problem(field, given, "Not a string.", "Send a string.", "type")]
    if field != "remedy" and not given.strip():
        return [Problem(field, given, "This field is required.", "Enter a value.", "required")]
    if len(given) > _LONGEST[field]:
        remedy = f"Enter at most {_LONGEST[field]} characters."
        return [Problem(field, given[:80], "The text is too long.", remedy, "too_long")]
    return []


def _common(fields: Mapping[str, Any], before: Setting) -> tuple[Setting, list[Problem]]:
    problems = []
    lasting, severity, enabled = before.lasting_s, before.severity, before.enabled
    if "for" in fields:
        lasting = _seconds(fields["for"])
        if fields["for"] not in (None, "") and (lasting is None or lasting > LONGEST_S):
            text, remedy = "Enter a duration up to 7 days.", "Examples: 90s, 5m, 1h."
            problems.append(Problem("for", fields["for"], text, remedy, "duration"))
    if "severity" in fields:
        severity = fields["severity"] or ""
        if severity not in ("", *SEVERITIES):
            remedy = f"Choose one of {', '.join(SEVERITIES)}."
            text = "Unknown severity."
            problems.append(Problem("severity", severity, text, remedy, "unknown_choice"))
    if "enabled" in fields:
        enabled = fields["enabled"]
        if enabled is not None and not isinstance(enabled, bool):
            text, remedy = "Not a boolean.", "Send true or false."
            problems.append(Problem("enabled", enabled, text, remedy, "type"))
    return Setting({}, lasting, severity, enabled), problems


def _unknown(fields: Mapping[str, Any], known: tuple[str, ...]) -> list[Problem]:
    remedy = f"Known fields: {', '.join(known)}."
    return [
        Problem(str(name)[:80], None, "Unknown field.", remedy, "unknown_field")
        for name in fields
        if name not in known
    ]


def _number(given: Any) -> Any:
    """Parse numbers and durations given as text: forms and shells submit texts."""
    if given is None or given == "":
        return None
    if not isinstance(given, str):
        return given
    try:
        return float(given)
    except ValueError:
        duration = parse_duration(given)
        return given if duration is None else duration


def _seconds(given: Any) -> int | None:
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    return parse_duration(given) if isinstance(given, str) else None

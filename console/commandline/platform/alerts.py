"""`emberline alert ...` and `silence ...`: alerts, rules and silences."""

from __future__ import annotations

from typing import Any

from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.input import parse_facts
from console.commandline.verbs import OUTPUT_DATA, Table, Verbs

_CLUSTER_FIELDS = 'rules=true receivers=true namespace=... labels=\'{"release": "prometheus"}\''
_FIELDS = "such as threshold=3 for=20m severity=page enabled=false; null restores the default"

_SHOWN_APART = ("alertname", "severity", "endpoint", "endpoint_name", "namespace", "written_by")


def _subject(endpoint: str, *alerts: dict[str, str]) -> str:
    """Return the endpoint and the labels that are no column of their own."""
    labels = (pair for alert in alerts for pair in alert.items() if pair[0] not in _SHOWN_APART)
    return " ".join(
        [*filter(None, [endpoint]), *(f"{key}={text}" for key, text in dict.fromkeys(labels))]
    )


def _alert(one: dict[str, Any]) -> tuple[str, ...]:
    value = "" if one["value"] is None else output.format_figure(one["value"])
    subject = _subject(one["endpoint"], one["labels"])
    return (
        *(one["state"], one["severity"], one["alert"], subject, value),
        *(output.format_time(one["since"]), one["summary"]),
    )


def _rule(one: dict[str, Any]) -> tuple[str, ...]:
    numbers = ", ".join(f"{each['name']} {each['shown']}" for each in one["parameters"])
    name = one.get("name") or one["rule"]
    return name, "yes" if one["enabled"] else "no", one["severity"], f"{one['for_s']} s", numbers


def _rule_path(context: CommandContext, *rule: str) -> tuple[str, ...]:
    """Return the path of all rules or one; with --endpoint, of the rules of that endpoint."""
    endpoint = context.options["endpoint"]
    return (*(("endpoints", endpoint) if endpoint else ()), "alert-rules", *rule)


def try_rule(context: CommandContext) -> Any:
    words: list[str] = context.options["words"]
    name = "" if "=" in words[0] else words[0]
    fields = parse_facts(words[1:] if name else words)
    fields["range"] = context.options["range"]
    path = _rule_path(context, name) if name else _rule_path(context)
    return context.client.post(*path, "dry-run", data=fields)


def _format_trial(found: dict[str, Any]) -> list[str]:
    lines = [_verdict("With these parameters", found)]
    if found["now"] is not None:
        lines.append(_verdict("With the current parameters", found["now"]))
    lines += _missing_fields(found)
    fired = [entry for entry in found["about"] if entry["times"]]
    return [*lines, *([_FIRED.text(fired)] if fired else [])]


def _verdict(head: str, one: dict[str, Any]) -> str:
    off = "" if one["enabled"] else " (the rule is disabled)"
    times = f"{one['times']} time{'' if one['times'] == 1 else 's'}"
    return f"{head}: fired {times}, {one['firing_s']} s in total{off}."


def _missing_fields(found: dict[str, Any]) -> list[str]:
    lines = [f"Resolution {found['step_s']} s: shorter alerts may be missing."]
    if found["unsure"]:
        lines.append(f"Uncertain: {found['unsure']} more, near the rule's duration.")
    whole = {"24h": 86_400, "7d": 604_800}[found["range"]]
    if found["known_s"] < 0.98 * whole:
        lines.append(f"Prometheus has samples for {found['known_s']} of {whole} s.")
    if found["measured_s"] == 0:
        lines.append("The measured metric had no samples.")
    if found["left"]:
        lines.append(f"{found['left']} groups of endpoints were not evaluated.")
    return [*lines, *found["missing"]]


def _format_firings(one: dict[str, Any]) -> tuple[str, ...]:
    last = f"{output.format_time(one['last'])}{' (still)' if one['firing'] else ''}"
    return one["about"], str(one["times"]), str(one["firing_s"]), str(one["longest_s"]), last


def _interval(one: dict[str, Any]) -> tuple[str, ...]:
    end = output.format_time(one["end"]) if one["end"] else "ongoing"
    return (
        *(one["severity"], one["alert"], _subject(one["endpoint"], *one["alerts"])),
        *(output.format_time(one["start"]), end, str(one["duration_s"])),
    )


def change(context: CommandContext) -> Any:
    fields = parse_facts(context.options["fields"])
    return context.client.patch(*_rule_path(context, context.name), data=fields)


def reset(context: CommandContext) -> str:
    endpoint, path = context.options["endpoint"], _rule_path(context, context.name)
    is_own = not endpoint and context.client.get(*path)["origin"] == "own"
    context.client.delete(*path)
    if is_own:
        return f"Rule {context.name} deleted."
    return f"{context.name}{f' of {endpoint}' if endpoint else ''} reset to its defaults."


def rule_file(context: CommandContext) -> str:
    content = context.client.get("alert-rule-file")
    text: str = content["prometheus_rule" if context.options["object"] else "rule_file"]
    return text.rstrip()


def _cluster(one: dict[str, Any]) -> tuple[str, ...]:
    states = ("yes" if one[name] else "no" for name in ("rules", "receivers"))
    return (
        *(one["cluster"], one["namespace"], *states, one["phase"], one["reason"]),
        *(str(one["corrected"]), one["message"]),
    )


def _kept(made: dict[str, Any]) -> str:
    parts = " and ".join(name for name in ("rules", "receivers") if made[name])
    if not parts:
        return f"Syncing to {made['cluster']} is off; the objects there are removed."
    return f"{parts.capitalize()} are synced to {made['cluster']}, namespace {made['namespace']}."


_ALERTS = Table(
    ("STATE", "SEVERITY", "ALERT", "SUBJECT", "VALUE", "SINCE", "SUMMARY"),
    _alert,
    "No active alerts.",
    names=False,
)
_RULES = Table(("RULE", "ENABLED", "SEVERITY", "FOR", "PARAMETERS"), _rule)
_FIRED = Table(("SUBJECT", "TIMES", "TOTAL (s)", "LONGEST (s)", "LAST"), _format_firings)
_HISTORY = Table(
    ("SEVERITY", "ALERT", "SUBJECT", "START", "END", "DURATION (s)"),
    _interval,
    "No alerts in this range.",
    names=False,
)
_CLUSTERS = Table(
    ("CLUSTER", "NAMESPACE", "RULES", "RECEIVERS", "STATE", "REASON", "REVERTED", "MESSAGE"),
    _cluster,
    "No clusters.",
)


def add_alerts(rooms: Verbs) -> None:
    verbs = rooms.group("alert", "active alerts, their history and rules")
    verb = verbs.verb("list", "firing and pending alerts", call="GET alerts/", show=_ALERTS)
    verb.add("--endpoint", default="", help="only this endpoint")
    verb = verbs.verb(
        "history", "past and ongoing alerts, latest first", call="GET alert-history/", show=_HISTORY
    )
    verb.add("--range", choices=("1h", "6h", "24h", "7d", "30d"), default="24h", help="(24h)")
    verb.add("--alert", default="", help="only this rule")
    verb.add("--endpoint", default="", help="only this endpoint")
    verb = verbs.verb(
        "acknowledge",
        "stop notifications of a firing alert until it is resolved",
        "alert",
        call="CREATE acknowledgements/",
        form={},
        show=lambda made: f"{made['id']} acknowledges {', '.join(made['matchers'])}.",
    )
    verb.add("--endpoint", default="", help="endpoint of the alert")
    verb.add("--note", default="", help="shown beside the alert")
    verb.add("--for", dest="duration", help="longest time, such as 2h (default 7d)")
    verbs.verb(
        "unacknowledge",
        "undo an acknowledgement; ID from silence list",
        "id",
        call="DELETE acknowledgements/{id}/",
        show="Acknowledgement undone. Repeat notifications resume.",
    )
    verb = verbs.verb(
        "rules",
        "all rules with their parameters",
        call=lambda context: context.client.pages(*_rule_path(context)),
        show=_RULES,
    )
    verb.add("--endpoint", default="", help="effective values for this endpoint")
    verb = verbs.verb(
        "get",
        "one rule with its settings",
        "name",
        call=lambda context: context.client.get(*_rule_path(context, context.name)),
        form=OUTPUT_DATA,
        show=output.format_json,
    )
    verb.add("--endpoint", default="", help="effective values for this endpoint")

    verb = verbs.verb(
        "set",
        "set parameters of a rule, for all endpoints or one",
        "name",
        call=change,
        form={},
        show=lambda made: f"{', '.join(_rule(made)[2:])}: {made['summary']}.",
    )
    verb.fields(_FIELDS)
    verb.add("--endpoint", default="", help="only for this endpoint")
    verb = verbs.verb(
        "try", "dry run: how often a rule would have fired", call=try_rule, show=_format_trial
    )
    verb.add(
        "words",
        nargs="+",
        metavar="NAME|FIELD=VALUE",
        help=f"rule name and fields, {_FIELDS}; without a name: a new rule",
    )
    verb.add("--endpoint", default="", help="only for this endpoint")
    verb.add("--range", choices=("24h", "7d"), default="24h", help="range (default 24h)")
    verb = verbs.verb(
        "create",
        "create a custom rule: expr=... summary=...",
        "name",
        call="CREATE alert-rules/",
        show="Rule {name} created. Prometheus loads it within seconds.",
    )
    verb.fields("expr, summary, for, ...")
    verb = verbs.verb("reset", "restore the defaults; a custom rule is deleted", "name", call=reset)
    verb.ask_first("Resetting {name} discards its changed values; a custom rule is deleted.")
    verb.add("--endpoint", default="", help="restore the platform-wide values of this endpoint")
    verb = verbs.verb("file", "export all rules as a Prometheus rule file", call=rule_file)
    verb.add("--object", action="store_true", help="as a PrometheusRule")
    text, path = "clusters to which rules and receivers are synced", "alert-clusters/"
    verbs.verb("clusters", text, call=f"GET {path}", show=_CLUSTERS)
    text, call = "sync rules and receivers to a cluster", f"PATCH {path}{{name}}/"
    verb = verbs.verb("keep", text, call=call, form={}, show=_kept)
    verb.add("name", metavar="CLUSTER")
    verb.fields(_CLUSTER_FIELDS)


def _silence(one: dict[str, Any]) -> tuple[str, ...]:
    alerts = ", ".join(one["matchers"])
    return (
        *(one["id"], one["kind"], one["state"], alerts),
        *(output.format_time(one["ends_at"]), one["author"], one["comment"]),
    )


def _format_silence(made: dict[str, Any]) -> str:
    alerts = ", ".join(made["matchers"])
    return f"{made['id']} silences {alerts} until {output.format_time(made['ends_at'])}."


def list_silences(context: CommandContext) -> Any:
    filters = {} if context.options["all"] else {"state": ["active", "pending"]}
    return context.client.pages("silences", **filters)


_SILENCES = Table(
    ("ID", "KIND", "STATE", "ALERTS", "UNTIL", "AUTHOR", "COMMENT"), _silence, "No silences."
)


def add_silences(rooms: Verbs) -> None:
    verbs = rooms.group("silence", "suppress notifications for a time")
    verb = verbs.verb(
        "list",
        "active and pending silences and acknowledgements",
        call=list_silences,
        show=_SILENCES,
    )
    verb.add("--all", action="store_true", help="include expired ones")
    verb = verbs.verb(
        "add",
        "silence the alerts that match all matchers",
        call="CREATE silences/",
        form={},
        show=_format_silence,
    )
    verb.add(
        "matchers",
        nargs="+",
        metavar="LABEL=VALUE",
        help="matcher with =, !=, =~ or !~, such as endpoint=chat",
    )
    verb.add("--for", dest="duration", default="2h", help="such as 30m, 2h (default), 1d")
    verb.add("--comment", required=True, help="reason, shown with the silence")
    verb = verbs.verb(
        "edit",
        "change a silence; omitted fields are kept",
        "id",
        call="PATCH silences/{id}/",
        form={},
        show=_format_silence,
    )
    verb.add("matchers", nargs="*", metavar="LABEL=VALUE", help="replaces the matchers")
    verb.add("--for", dest="duration", help="from now, such as 30m, 2h, 1d")
    verb.add("--until", dest="ends_at", help="end time, such as 2026-11-21T18:00:00Z")
    verb.add("--comment", help="reason")
    verbs.verb(
        "expire", "end a silence now", "id", call="DELETE silences/{id}/", show="Silence ended."
    )

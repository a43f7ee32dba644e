"""`emberline alert ...` and `silence ...`: alerts, rules and silences."""

from __future__ import annotations

from typing import Any

from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.input import parse_facts
from console.commandline.verbs import OUTPUT_DATA, Table, Verbs

_CLUSTER_FIELDS = 'rules=true receivers=true namespace=... labels=\'{"release": "prometheus"}\''
_FIELDS = "such as threshold=3 for=20m severity=page enabled=false; null takes one back"


def _alert(one: dict[str, Any]) -> tuple[str, ...]:
    value = "" if one["value"] is None else f"{one['value']:.4g}"
    return (
        *(one["state"], one["severity"], one["alert"], one["endpoint"], value),
        *(output.format_time(one["since"]), one["summary"]),
    )


def _rule(one: dict[str, Any]) -> tuple[str, ...]:
    numbers = ", ".join(f"{each['name']} {each['shown']}" for each in one["parameters"])
    name = one.get("name") or one["rule"]
    return name, "yes" if one["enabled"] else "no", one["severity"], f"{one['for_s']} s", numbers


def try_rule(asked: CommandContext) -> dict[str, Any]:
    words: list[str] = asked.options["words"]
    name = "" if "=" in words[0] else words[0]
    wish = parse_facts(words[1:] if name else words)
    wish["range"] = asked.options["range"]
    return asked.client.alerts.dry_run(name, wish, asked.options["endpoint"])


def _format_trial(found: dict[str, Any]) -> list[str]:
    told = [_verdict("With these numbers", found)]
    if found["now"] is not None:
        told.append(_verdict("As it is set now", found["now"]))
    told += _missing_fields(found)
    fired = [one for one in found["about"] if one["times"]]
    return [*told, *([_FIRED.text(fired)] if fired else [])]


def _verdict(head: str, one: dict[str, Any]) -> str:
    off = "" if one["enabled"] else ", if it were on"
    return f"{head}: fired {one['times']} times, for {one['firing_s']} s in all{off}."


def _missing_fields(found: dict[str, Any]) -> list[str]:
    told = [f"Looked at every {found['step_s']} s: what was shorter may be missing."]
    if found["unsure"]:
        told.append(f"{found['unsure']} times more it held too briefly to tell.")
    whole = {"24h": 86_400, "7d": 604_800}[found["range"]]
    if found["known_s"] < 0.98 * whole:
        told.append(f"Prometheus has numbers for {found['known_s']} of {whole} s only.")
    if found["measured_s"] == 0:
        told.append("Nothing of what it measures was there.")
    if found["left"]:
        told.append(f"{found['left']} groups of endpoints are not in this.")
    return [*told, *found["missing"]]


def _format_firings(one: dict[str, Any]) -> tuple[str, ...]:
    last = f"{output.format_time(one['last'])}{' (still)' if one['firing'] else ''}"
    return one["about"], str(one["times"]), str(one["firing_s"]), str(one["longest_s"]), last


def create(asked: CommandContext) -> dict[str, Any]:
    wish = {"name": asked.name, **parse_facts(asked.options["fields"])}
    return asked.client.alerts.create(wish)


def reset(asked: CommandContext) -> str:
    endpoint = asked.options["endpoint"]
    asked.client.alerts.reset(asked.name, endpoint)
    return f"{asked.name}{f' of {endpoint}' if endpoint else ''} is reset."


def rule_file(asked: CommandContext) -> str:
    found = asked.client.alerts.file()
    text: str = found["prometheus_rule" if asked.options["object"] else "rule_file"]
    return text.rstrip()


def _cluster(one: dict[str, Any]) -> tuple[str, ...]:
    kept = ("yes" if one[name] else "no" for name in ("rules", "receivers"))
    return (
        *(one["cluster"], one["namespace"], *kept, one["phase"], one["reason"]),
        *(str(one["corrected"]), one["message"]),
    )


def _kept(made: dict[str, Any]) -> str:
    kept = " and ".join(name for name in ("rules", "receivers") if made[name])
    if not kept:
        return f"Nothing is kept in {made['cluster']} any more; what was there is removed."
    return f"{kept.capitalize()} are kept in {made['cluster']}, namespace {made['namespace']}."


_ALERTS = Table(
    ("STATE", "SEVERITY", "ALERT", "ENDPOINT", "VALUE", "SINCE", "MEANS"),
    _alert,
    "No alert fires.",
    names=False,
)
_RULES = Table(("RULE", "ON", "SEVERITY", "FOR", "NUMBERS"), _rule)
_FIRED = Table(("ABOUT", "TIMES", "SECONDS", "LONGEST", "LAST"), _format_firings)
_CLUSTERS = Table(
    ("CLUSTER", "NAMESPACE", "RULES", "RECEIVERS", "STATE", "REASON", "SET BACK", "MESSAGE"),
    _cluster,
    "No cluster is known.",
)


def add_alerts(rooms: Verbs) -> None:
    verbs = rooms.group("alert", "what fires, and the rules that say so", client="alerts")
    verb = verbs.verb("list", "what fires now, or will if it goes on", call="active", show=_ALERTS)
    verb.add("--endpoint", default="", help="only of this endpoint")
    verb = verbs.verb("rules", "every rule with its numbers", show=_RULES)
    verb.add("--endpoint", default="", help="as they count for this endpoint")
    verb = verbs.verb(
        "get",
        "one rule with all that is set of it",
        "name",
        form=OUTPUT_DATA,
        show=output.format_json,
    )
    verb.add("--endpoint", default="", help="as it counts for this endpoint")

    verb = verbs.verb(
        "set",
        "numbers of a rule, for all endpoints or for one",
        "name",
        form={},
        show=lambda made: f"{', '.join(_rule(made)[2:])}: {made['summary']}.",
    )
    verb.fields(_FIELDS)
    verb.add("--endpoint", default="", help="for this endpoint alone")
    verb = verbs.verb(
        "try",
        "how often a rule would have fired; changes nothing",
        call=try_rule,
        show=_format_trial,
    )
    verb.add(
        "words",
        nargs="+",
        metavar="NAME|FIELD=VALUE",
        help=f"a rule's name and its fields, {_FIELDS}; without a name one that is not written yet",
    )
    verb.add("--endpoint", default="", help="for this endpoint alone")
    verb.add("--range", choices=("24h", "7d"), default="24h", help="(24h)")
    verb = verbs.verb(
        "create",
        "a rule of your own: expr=... summary=...",
        "name",
        call=create,
        show="{name} is written. Prometheus reads it within seconds.",
    )
    verb.fields("expr, summary, for, ...")
    verb = verbs.verb(
        "reset", "as it was built in; a rule of your own is deleted", "name", call=reset
    )
    verb.add("--endpoint", default="", help="as all endpoints have it")
    verb = verbs.verb("file", "all rules as a file, for a Prometheus of your own", call=rule_file)
    verb.add("--object", action="store_true", help="as a PrometheusRule")
    verbs.verb("clusters", "where rules and receivers are kept as objects", show=_CLUSTERS)
    verb = verbs.verb("keep", "what of them is kept in a cluster", form={}, show=_kept)
    verb.add("name", metavar="CLUSTER")
    verb.fields(_CLUSTER_FIELDS)


def _silence(one: dict[str, Any]) -> tuple[str, ...]:
    alerts = ", ".join(one["matchers"])
    return (
        *(one["id"], one["state"], alerts),
        *(output.format_time(one["ends_at"]), one["author"], one["comment"]),
    )


def add_silence(asked: CommandContext) -> dict[str, Any]:
    conditions = asked.options["conditions"]
    return asked.client.silences.add({"matchers": conditions, **asked.given("duration", "comment")})


def edit_silence(asked: CommandContext) -> dict[str, Any]:
    facts = asked.given("duration", "ends_at", "comment")
    if asked.options["conditions"]:
        facts["matchers"] = asked.options["conditions"]
    return asked.client.silences.change(asked.options["id"], facts)


def _format_silence(made: dict[str, Any]) -> str:
    alerts = ", ".join(made["matchers"])
    return f"{made['id']} silences {alerts} until {output.format_time(made['ends_at'])}."


def list_silences(asked: CommandContext) -> Any:
    filters = {} if asked.options["all"] else {"state": ["active", "pending"]}
    return asked.client.silences.list(**filters)


_SILENCES = Table(("ID", "STATE", "ALERTS", "UNTIL", "BY", "WHY"), _silence, "Nothing is silenced.")


def add_silences(rooms: Verbs) -> None:
    verbs = rooms.group("silence", "alerts nobody is told of for a while", client="silences")
    verb = verbs.verb("list", "those which hold now or later", call=list_silences, show=_SILENCES)
    verb.add("--all", action="store_true", help="also those which have ended")
    verb = verbs.verb(
        "add",
        "silence the alerts that meet all conditions",
        call=add_silence,
        form={},
        show=_format_silence,
    )
    verb.add(
        "conditions", nargs="+", metavar="LABEL=VALUE", help="or !=, =~, !~, as in endpoint=chat"
    )
    verb.add("--for", dest="duration", default="2h", help="such as 30m, 2h (that), 1d")
    verb.add("--comment", required=True, help="why: whoever wonders reads it")
    verb = verbs.verb(
        "edit", "what is left out stays", "id", call=edit_silence, form={}, show=_format_silence
    )
    verb.add("conditions", nargs="*", metavar="LABEL=VALUE", help="instead of those it has")
    verb.add("--for", dest="duration", help="from now on, such as 30m, 2h, 1d")
    verb.add("--until", dest="ends_at", help="such as 2026-11-21T18:00:00Z")
    verb.add("--comment", help="why")
    verbs.verb("expire", "end one now", "id", show="The silence is ended.")

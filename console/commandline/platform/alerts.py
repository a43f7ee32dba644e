"""`emberline alert ...`: active alerts and their rules."""

from __future__ import annotations

import argparse
from typing import Any

from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.verbs import add_group, add_verb

_ROWS = ("CLUSTER", "NAMESPACE", "RULES", "RECEIVERS", "STATE", "REASON", "SET BACK", "MESSAGE")
_CLUSTER_FIELDS = 'rules=true receivers=true namespace=... labels=\'{"release": "prometheus"}\''
_ALERTS = ("STATE", "SEVERITY", "ALERT", "ENDPOINT", "VALUE", "SINCE", "MEANS")
_RULES = ("RULE", "ON", "SEVERITY", "FOR", "NUMBERS")
_FIRED = ("ABOUT", "TIMES", "SECONDS", "LONGEST", "LAST")
_FIELDS = "such as threshold=3 for=20m severity=page enabled=false; null takes one back"


def add_to(rooms: Any) -> None:
    verbs = add_group(rooms, "alert", "what fires, and the rules that say so")
    listed = add_verb(verbs, "list", list_all, "what fires now, or will if it goes on")
    _add_endpoint_option(listed, "only of this endpoint")
    output.add_output(listed)
    rules = add_verb(verbs, "rules", list_rules, "every rule with its numbers")
    _add_endpoint_option(rules, "as they count for this endpoint")
    output.add_output(rules, names=True)
    one = add_verb(verbs, "get", get, "one rule with all that is set of it", "name")
    _add_endpoint_option(one, "as it counts for this endpoint")
    one.add_argument(
        "-o", "--output", choices=(output.YAML, output.JSON), default=output.YAML, help="(yaml)"
    )
    said = add_verb(
        verbs, "set", set_rule, "numbers of a rule, for all endpoints or for one", "name"
    )
    said.add_argument("fields", nargs="+", metavar="FIELD=VALUE", help=_FIELDS)
    _add_endpoint_option(said, "for this endpoint alone")
    tried = add_verb(verbs, "try", try_rule, "how often a rule would have fired; changes nothing")
    tried.add_argument(
        "words",
        nargs="+",
        metavar="NAME|FIELD=VALUE",
        help=f"a rule's name and its fields, {_FIELDS}; without a name one that is not written yet",
    )
    _add_endpoint_option(tried, "for this endpoint alone")
    tried.add_argument("--range", choices=("24h", "7d"), default="24h", help="(24h)")
    output.add_output(tried)
    written = add_verb(verbs, "create", create, "a rule of your own: expr=... summary=...", "name")
    written.add_argument("fields", nargs="+", metavar="FIELD=VALUE", help="expr, summary, for, ...")
    back = add_verb(
        verbs, "reset", reset, "as it was built in; a rule of your own is deleted", "name"
    )
    _add_endpoint_option(back, "as all endpoints have it")
    file = add_verb(verbs, "file", as_file, "all rules as a file, for a Prometheus of your own")
    file.add_argument("--object", action="store_true", help="as a PrometheusRule")
    add_clusters_to(verbs)


def _add_endpoint_option(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--endpoint", default="", help=text)


def list_all(asked: CommandContext) -> str:
    wanted = {"endpoint": asked.options["endpoint"]} if asked.options["endpoint"] else {}
    found = asked.client.alerts.active(**wanted)
    return output.rows(found, asked.options["output"], _ALERTS, _alert, none="No alert fires.")


def _alert(one: dict[str, Any]) -> tuple[str, ...]:
    value = "" if one["value"] is None else f"{one['value']:.4g}"
    return (
        *(one["state"], one["severity"], one["alert"], one["endpoint"], value),
        *(output.format_time(one["since"]), one["summary"]),
    )


def list_rules(asked: CommandContext) -> str:
    found = asked.client.alerts.rules(asked.options["endpoint"])
    key = "rule" if asked.options["endpoint"] else "name"
    return output.rows(found, asked.options["output"], _RULES, _rule, key=key)


def _rule(one: dict[str, Any]) -> tuple[str, ...]:
    numbers = ", ".join(f"{each['name']} {each['shown']}" for each in one["parameters"])
    name = one.get("name") or one["rule"]
    return name, "yes" if one["enabled"] else "no", one["severity"], f"{one['for_s']} s", numbers


def get(asked: CommandContext) -> str:
    found = asked.client.alerts.get(asked.name, asked.options["endpoint"])
    return output.format_data(found, asked.options["output"])


def set_rule(asked: CommandContext) -> str:
    wish = commandline_input.parse_facts(asked.options["fields"])
    made = asked.client.alerts.set(asked.name, wish, asked.options["endpoint"])
    return f"{', '.join(_rule(made)[2:])}: {made['summary']}."


def try_rule(asked: CommandContext) -> str:
    words: list[str] = asked.options["words"]
    name = "" if "=" in words[0] else words[0]
    wish = {
        **commandline_input.parse_facts(words[1:] if name else words),
        "range": asked.options["range"],
    }
    found = asked.client.alerts.dry_run(name, wish, asked.options["endpoint"])
    if asked.options["output"] != output.TABLE:
        return output.format_data(found, asked.options["output"])
    told = [_verdict("With these numbers", found)]
    if found["now"] is not None:
        told.append(_verdict("As it is set now", found["now"]))
    told += _missing_fields(found)
    fired = [one for one in found["about"] if one["times"]]
    return "\n".join(
        [*told, *([output.table(_FIRED, map(_format_firings, fired))] if fired else [])]
    )


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


def create(asked: CommandContext) -> str:
    wish = {"name": asked.name, **commandline_input.parse_facts(asked.options["fields"])}
    made = asked.client.alerts.create(wish)
    return f"{made['name']} is written. Prometheus reads it within seconds."


def reset(asked: CommandContext) -> str:
    asked.client.alerts.reset(asked.name, asked.options["endpoint"])
    whose = f" of {asked.options['endpoint']}" if asked.options["endpoint"] else ""
    return f"{asked.name}{whose} is reset."


def as_file(asked: CommandContext) -> str:
    found = asked.client.alerts.file()
    text: str = found["prometheus_rule" if asked.options["object"] else "rule_file"]
    return text.rstrip()


def add_clusters_to(verbs: Any) -> None:
    add_verb(
        verbs,
        "clusters",
        list_clusters,
        "where rules and receivers are kept as objects",
        listing=True,
    )
    said = add_verb(verbs, "keep", keep, "what of them is kept in a cluster")
    said.add_argument("name", metavar="CLUSTER")
    said.add_argument("fields", nargs="+", metavar="FIELD=VALUE", help=_CLUSTER_FIELDS)


def list_clusters(asked: CommandContext) -> str:
    found = asked.client.alerts.clusters()
    none = "No cluster is known."
    return output.rows(found, asked.options["output"], _ROWS, _row, none=none, key="cluster")


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    kept = ("yes" if one[name] else "no" for name in ("rules", "receivers"))
    return (
        *(one["cluster"], one["namespace"], *kept, one["phase"], one["reason"]),
        *(str(one["corrected"]), one["message"]),
    )


def keep(asked: CommandContext) -> str:
    made = asked.client.alerts.keep(
        asked.name, commandline_input.parse_facts(asked.options["fields"])
    )
    kept = " and ".join(name for name in ("rules", "receivers") if made[name])
    if not kept:
        return f"Nothing is kept in {made['cluster']} any more; what was there is removed."
    return f"{kept.capitalize()} are kept in {made['cluster']}, namespace {made['namespace']}."

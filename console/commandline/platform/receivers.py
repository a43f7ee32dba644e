"""`emberline receiver ...`: alert receivers and the routes that select their alerts.

URLs and secrets are read from files or standard input, because arguments are visible to every user
of a machine.
"""

from __future__ import annotations

from typing import Any

from console.commandline.context import FAILED, USAGE, CommandContext, CommandError, CommandResult
from console.commandline.input import parse_facts, read_text
from console.commandline.verbs import Table, Verb, Verbs

_FIELDS = "kind=webhook|email|slack|pagerduty|..., url=..., to=a@b.c, everything=true"


def _receiver(one: dict[str, Any]) -> tuple[str, ...]:
    words = ("yes" if one[name] else "no" for name in ("enabled", "send_resolved"))
    return (one["name"], one["kind"], one["shown"], *words)


def create(context: CommandContext) -> Any:
    fields = {"name": context.name, **_facts(context)}
    made = context.client.post("receivers", data=fields, once=True)
    if not fields.get("everything"):
        context.report(
            f"{context.name} has no route and receives no alerts. Add one: "
            f"emberline receiver route {context.name} LABEL=VALUE"
        )
    return made


def update(context: CommandContext) -> Any:
    fields = _facts(context)
    if not fields:
        raise CommandError("No field given. Enter fields such as enabled=false.", USAGE)
    return context.client.patch("receivers", context.name, data=fields)


def _facts(context: CommandContext) -> dict[str, Any]:
    sources = {name: context.options[f"{name}_from"] for name in ("url", "secret")}
    for source in context.options["from"] or ():
        name, equals, path = source.partition("=")
        if not (name and equals and path):
            raise CommandError(f"--from {source}: expected FIELD=FILE.", USAGE)
        sources[name] = path
    if list(sources.values()).count("-") > 1:
        raise CommandError("Only one field can be read from standard input.", USAGE)
    fields: dict[str, Any] = {
        name: read_text(path).strip() for name, path in sources.items() if path is not None
    }
    return parse_facts(context.options["fields"]) | fields


def try_receiver(context: CommandContext) -> str | CommandResult:
    sent = context.client.post("receivers", context.name, "test")
    if sent["sent"]:
        return str(sent["message"])
    return CommandResult(sent["message"], FAILED)


def receiver_file(context: CommandContext) -> str:
    content = context.client.get("alertmanager-config")
    text: str = content["alertmanager_config" if context.options["object"] else "alertmanager_yml"]
    return text.rstrip()


def _route(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        *(one["id"], one["receiver"], ", ".join(one["matchers"]) or "(all alerts)"),
        *(", ".join(one["group_by"]), one["group_wait"], one["repeat_interval"]),
    )


def _format_route(made: dict[str, Any]) -> str:
    alerts = ", ".join(made["matchers"]) or "all alerts"
    return f"Route {made['id']} sends {alerts} to {made['receiver']}."


_RECEIVERS = Table(
    ("NAME", "KIND", "DESTINATION", "ENABLED", "SENDS RESOLVED"),
    _receiver,
    "No alert receivers configured. Add one: emberline receiver create NAME kind=webhook url=...",
)
_ROUTES = Table(
    ("ID", "RECEIVER", "MATCHERS", "GROUP BY", "GROUP WAIT", "REPEAT INTERVAL"),
    _route,
    "No alert routes. Create one: emberline receiver route NAME LABEL=VALUE",
)


def add_receivers(rooms: Verbs) -> None:
    verbs = rooms.group("receiver", "manage alert receivers and routes")
    verbs.verb("list", "list receivers", call="GET receivers/", show=_RECEIVERS)
    text = "Receiver {name} created. Send a test: emberline receiver test {name}"
    verb = verbs.verb("create", "create a receiver", "name", call=create, form={}, show=text)
    _add_facts(verb)
    verb = verbs.verb(
        "update",
        "change the given fields",
        "name",
        call=update,
        form={},
        show="Receiver {name} changed.",
    )
    _add_facts(verb)
    text, done = "delete a receiver and its routes", "Receiver {name} and its routes deleted."
    verb = verbs.verb("delete", text, "name", call="DELETE receivers/{name}/", show=done)
    verb.ask_first("Deleting receiver {name} deletes its routes; it gets no further alerts.")
    verbs.verb("test", "send a test message now", "name", call=try_receiver)
    verb = verbs.verb("file", "print receivers and routes for alertmanager.yml", call=receiver_file)
    verb.add("--object", action="store_true", help="as an AlertmanagerConfig object")
    verbs.verb("routes", "list alert routes", call="GET alert-routes/", show=_ROUTES)
    verb = verbs.verb(
        "route",
        "send matching alerts to a receiver",
        "receiver",
        call="CREATE alert-routes/",
        form={},
        show=_format_route,
    )
    text = "or !=, =~, !~, for example severity=page; none: all alerts"
    verb.add("matchers", nargs="*", metavar="LABEL=VALUE", help=text)
    verb = verbs.verb(
        "unroute",
        "delete an alert route",
        call="DELETE alert-routes/{id}/",
        show="Route {id} deleted.",
    )
    verb.add("id", help="route ID in the output of routes")
    verb.ask_first("Deleting route {id} stops sending its alerts to the receiver.")


def _add_facts(verb: Verb) -> None:
    verb.fields(_FIELDS, nargs="*")
    text = "file with the URL; - reads standard input"
    verb.add("--url-from", metavar="FILE", help=text)
    text = "file with the bearer token of a webhook; - reads standard input"
    verb.add("--secret-from", metavar="FILE", help=text)
    text = "file with another secret field, such as routing_key=FILE"
    verb.add("--from", metavar="FIELD=FILE", action="append", help=text)

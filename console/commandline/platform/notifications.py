"""`emberline silence ...` and `emberline receiver ...`: alert notifications."""

from __future__ import annotations

from typing import Any

from console.commandline import output
from console.commandline.context import FAILED, CommandContext, CommandResult
from console.commandline.verbs import add_verb

_SILENCES = ("ID", "STATE", "ALERTS", "UNTIL", "BY", "WHY")
_RECEIVERS = ("NAME", "KIND", "WHERE", "ENABLED", "SIGNED")


def add_to(rooms: Any) -> None:
    _silences(rooms.add_parser("silence", help="alerts nobody is told of for a while"))
    _receivers(rooms.add_parser("receiver", help="who is told of alerts"))


def _silences(room: Any) -> None:
    verbs = room.add_subparsers(dest="verb", required=True, metavar="VERB")
    listed = add_verb(verbs, "list", list_silences, "those which hold now or later")
    listed.add_argument("--all", action="store_true", help="also those which have ended")
    output.add_output(listed, names=True)
    made = add_verb(verbs, "add", add_silence, "silence the alerts that meet all conditions")
    made.add_argument(
        *("conditions",),
        nargs="+",
        metavar="LABEL=VALUE",
        help="or !=, =~, !~, as in endpoint=chat",
    )
    made.add_argument("--for", dest="duration", default="2h", help="such as 30m, 2h (that), 1d")
    made.add_argument("--comment", required=True, help="why: whoever wonders reads it")
    changed = add_verb(verbs, "edit", edit_silence, "what is left out stays")
    changed.add_argument("id")
    changed.add_argument(
        "conditions", nargs="*", metavar="LABEL=VALUE", help="instead of those it has"
    )
    changed.add_argument("--for", dest="duration", help="from now on, such as 30m, 2h, 1d")
    changed.add_argument("--until", dest="ends_at", help="such as 2026-11-21T18:00:00Z")
    changed.add_argument("--comment", help="why")
    over = add_verb(verbs, "expire", expire, "end one now")
    over.add_argument("id")


def _receivers(room: Any) -> None:
    verbs = room.add_subparsers(dest="verb", required=True, metavar="VERB")
    add_verb(verbs, "list", list_receivers, "all receivers", listing=True)
    add_verb(verbs, "test", try_receiver, "send one a test, now", "name")
    file = add_verb(verbs, "file", as_file, "receivers and routes as a part of alertmanager.yml")
    file.add_argument("--object", action="store_true", help="as an AlertmanagerConfig")


def list_silences(asked: CommandContext) -> str:
    filters = {} if asked.options["all"] else {"state": ["active", "pending"]}
    found = asked.client.silences.list(**filters)
    none = "Nothing is silenced."
    return output.rows(found, asked.options["output"], _SILENCES, _cells, none=none, key="id")


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    alerts = ", ".join(one["matchers"])
    return (
        *(one["id"], one["state"], alerts),
        *(output.format_time(one["ends_at"]), one["author"], one["comment"]),
    )


def add_silence(asked: CommandContext) -> str:
    facts = {
        "matchers": asked.options["conditions"],
        "duration": asked.options["duration"],
        "comment": asked.options["comment"],
    }
    return _format_silence(asked.client.silences.add(facts))


def _format_silence(made: dict[str, Any]) -> str:
    alerts = ", ".join(made["matchers"])
    return f"{made['id']} silences {alerts} until {output.format_time(made['ends_at'])}."


def edit_silence(asked: CommandContext) -> str:
    given = {name: asked.options[name] for name in ("duration", "ends_at", "comment")}
    facts = {name: value for name, value in given.items() if value is not None}
    if asked.options["conditions"]:
        facts["matchers"] = asked.options["conditions"]
    return _format_silence(asked.client.silences.change(asked.options["id"], facts))


def expire(asked: CommandContext) -> str:
    asked.client.silences.expire(asked.options["id"])
    return "The silence is ended."


def list_receivers(asked: CommandContext) -> str:
    none = "No alert receivers configured. Add a receiver under Alerts, Receivers."
    found = asked.client.receivers.list()
    return output.rows(found, asked.options["output"], _RECEIVERS, _facts, none=none)


def _facts(one: dict[str, Any]) -> tuple[str, ...]:
    words = ("yes" if one[name] else "no" for name in ("enabled", "signed"))
    return (one["name"], one["kind"], one["shown"], *words)


def try_receiver(asked: CommandContext) -> str | CommandResult:
    sent = asked.client.receivers.test(asked.name)
    if sent["state"] == "sent":
        return f"{asked.name} has taken the test."
    return CommandResult(f"The test did not reach {asked.name}. {sent['error']}", FAILED)


def as_file(asked: CommandContext) -> str:
    found = asked.client.receivers.file()
    text: str = found["alertmanager_config" if asked.options["object"] else "alertmanager_yml"]
    return text.rstrip()

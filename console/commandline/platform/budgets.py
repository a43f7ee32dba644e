"""`emberline budget ...` and `emberline tier-price ...`: budgets and cache tier prices."""

from __future__ import annotations

from typing import Any

from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import NOT_FOUND, CommandContext, CommandError

_BUDGETS = ("NAME", "FOR", "USD/MONTH", "SPENT", "FORESEEN", "USED")
_PRICES = ("TIER", "FROM", "USD/HOUR", "RUNS ON", "DISK USD/GIB/MONTH", "SOURCE")


def add_to(rooms: Any) -> None:
    verbs = rooms.add_parser("budget", help="what may be spent a month").add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )
    listed = verbs.add_parser("list", help="all, with what is spent and foreseen")
    output.add_output(listed, names=True)
    listed.set_defaults(run=budgets)
    said = verbs.add_parser("set", help="keep it, or change it")
    said.add_argument("name")
    said.add_argument("usd", type=float, help="US dollars a month")
    whose = said.add_mutually_exclusive_group()
    whose.add_argument("--team", default="", help="its slug")
    whose.add_argument("--tag", default="", metavar="KEY=VALUE", help="of endpoints")
    whose.add_argument("--endpoint", default="", help="its name")
    said.set_defaults(run=keep)
    ending = verbs.add_parser("delete", help="and what it passed")
    ending.add_argument("name")
    ending.set_defaults(run=delete)
    _add_prices(rooms)


def _add_prices(rooms: Any) -> None:
    verbs = rooms.add_parser("tier-price", help="what cache tiers cost").add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )
    listed = verbs.add_parser("list", help="what was said of it")
    output.add_output(listed, names=True)
    listed.set_defaults(run=prices)
    told = verbs.add_parser("history", help="what was said of one, and from which day on")
    told.add_argument("name")
    output.add_output(told)
    told.set_defaults(run=history)
    said = verbs.add_parser("set", help="say it, or change what is given of it")
    said.add_argument("name", help="the tier's name, or redis:HOST:PORT")
    said.add_argument("fields", nargs="+", metavar="FIELD=VALUE", help="such as usd_hour=0.4")
    said.set_defaults(run=price)
    forgotten = verbs.add_parser("forget", help="what was said of one")
    forgotten.add_argument("name")
    forgotten.set_defaults(run=forget)


def budgets(asked: CommandContext) -> str:
    room = asked.client.budgets
    found = [{**one, **room.state(one["id"])} for one in room.list()]
    none = "No budget yet: emberline budget set NAME USD."
    return output.rows(found, asked.options["output"], _BUDGETS, _budget, none=none)


def _budget(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["name"],
        f"{one['whose']} {one['subject']}".strip(),
        output.number(one["usd"]),
        output.number(one["spent_usd"]),
        output.number(one["foreseen_usd"]),
        f"{one['used_ratio']:.0%}",
    )


def keep(asked: CommandContext) -> str:
    options, room = asked.options, asked.client.budgets
    facts: dict[str, Any] = {"name": asked.name, "usd": options["usd"]}
    for whose in ("team", "tag", "endpoint"):
        if options[whose]:
            facts |= {"whose": whose, "subject": options[whose]}
    known = room.named(asked.name)
    made = room.change(known["id"], facts) if known else room.create(facts)
    held = f"{made['whose']} {made['subject']}".strip()
    return f"{made['name']}: {output.number(made['usd'])} USD a month for {held}."


def delete(asked: CommandContext) -> str:
    known = asked.client.budgets.named(asked.name)
    if known is None:
        raise CommandError(f"There is no budget {asked.name}.", NOT_FOUND)
    asked.client.budgets.delete(known["id"])
    return f"The budget {asked.name} is gone."


def prices(asked: CommandContext) -> str:
    found = asked.client.tier_prices.list()
    none = "Nothing was said: tiers of this machine cost their part of its memory."
    return output.rows(found, asked.options["output"], _PRICES, _price, none=none)


def _price(one: dict[str, Any]) -> tuple[str, ...]:
    disk = output.number(one["disk_usd_gib_month"])
    usd = output.number(one["usd_hour"])
    return one["name"], one["since"], usd, one["machine"] or "-", disk, one["source"]


def history(asked: CommandContext) -> str:
    found = asked.client.tier_prices.history(asked.name)
    return output.rows(found, asked.options["output"], _PRICES, _price)


def price(asked: CommandContext) -> str:
    made = asked.client.tier_prices.set(
        asked.name, commandline_input.facts(asked.options["fields"])
    )
    where = made["machine"] or "-"
    usd, since = output.number(made["usd_hour"]), made["since"]
    return f"{made['name']} from {since} on: {usd} USD an hour, nodes on {where}."


def forget(asked: CommandContext) -> str:
    asked.client.tier_prices.forget(asked.name)
    return f"What was said of {asked.name} is forgotten."

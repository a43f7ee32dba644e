"""`emberline budget ...` and `emberline tier-price ...`: budgets and cache tier prices."""

from __future__ import annotations

from typing import Any

from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import NOT_FOUND, CommandContext, CommandError
from console.commandline.verbs import add_group, add_verb

_BUDGETS = ("NAME", "FOR", "USD/MONTH", "SPENT", "FORESEEN", "USED")
_PRICES = ("TIER", "FROM", "USD/HOUR", "RUNS ON", "DISK USD/GIB/MONTH", "SOURCE")


def add_to(rooms: Any) -> None:
    verbs = add_group(rooms, "budget", "what may be spent a month")
    add_verb(verbs, "list", budgets, "all, with what is spent and foreseen", listing=True)
    said = add_verb(verbs, "set", keep, "keep it, or change it", "name")
    said.add_argument("usd", type=float, help="US dollars a month")
    whose = said.add_mutually_exclusive_group()
    whose.add_argument("--team", default="", help="its slug")
    whose.add_argument("--tag", default="", metavar="KEY=VALUE", help="of endpoints")
    whose.add_argument("--endpoint", default="", help="its name")
    add_verb(verbs, "delete", delete, "and what it passed", "name")
    _add_prices(rooms)


def _add_prices(rooms: Any) -> None:
    verbs = add_group(rooms, "tier-price", "what cache tiers cost")
    add_verb(verbs, "list", prices, "what was said of it", listing=True)
    add_verb(
        verbs,
        "history",
        history,
        "what was said of one, and from which day on",
        "name",
        listing=False,
    )
    said = add_verb(verbs, "set", price, "say it, or change what is given of it")
    said.add_argument("name", help="the tier's name, or redis:HOST:PORT")
    said.add_argument("fields", nargs="+", metavar="FIELD=VALUE", help="such as usd_hour=0.4")
    add_verb(verbs, "forget", forget, "what was said of one", "name")


def budgets(asked: CommandContext) -> str:
    room = asked.client.budgets
    found = [{**one, **room.state(one["id"])} for one in room.list()]
    none = "No budget yet: emberline budget set NAME USD."
    return output.rows(found, asked.options["output"], _BUDGETS, _budget, none=none)


def _budget(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["name"],
        f"{one['whose']} {one['subject']}".strip(),
        output.format_number(one["usd"]),
        output.format_number(one["spent_usd"]),
        output.format_number(one["foreseen_usd"]),
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
    return f"{made['name']}: {output.format_number(made['usd'])} USD a month for {held}."


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
    disk = output.format_number(one["disk_usd_gib_month"])
    usd = output.format_number(one["usd_hour"])
    return one["name"], one["since"], usd, one["machine"] or "-", disk, one["source"]


def history(asked: CommandContext) -> str:
    found = asked.client.tier_prices.history(asked.name)
    return output.rows(found, asked.options["output"], _PRICES, _price)


def price(asked: CommandContext) -> str:
    made = asked.client.tier_prices.set(
        asked.name, commandline_input.parse_facts(asked.options["fields"])
    )
    where = made["machine"] or "-"
    usd, since = output.format_number(made["usd_hour"]), made["since"]
    return f"{made['name']} from {since} on: {usd} USD an hour, nodes on {where}."


def forget(asked: CommandContext) -> str:
    asked.client.tier_prices.forget(asked.name)
    return f"What was said of {asked.name} is forgotten."

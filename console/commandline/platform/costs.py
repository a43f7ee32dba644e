"""`emberline cost`, `budget ...`, `tier-price ...` and `instance-type ...`: prices, spending and
budgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.client.documents import InstanceType
from console.commandline import output
from console.commandline.context import NOT_FOUND, USAGE, CommandContext, CommandError
from console.commandline.verbs import OUTPUT, OUTPUT_DATA, Table, Verbs

# A selection; -o json has all columns.
_COLUMNS = (
    *("endpoint", "usd_hour_now", "cost_usd", "saved_usd", "requests"),
    *("prompt_tokens", "generated_tokens", "usd_per_million_tokens", "why"),
)
_SUMS = (
    *("workers_usd", "idle_usd", "tier_usd", "total_usd", "saved_usd"),
    *("requests", "prompt", "cached", "generated"),
)


def costs(asked: CommandContext) -> Any:
    options = asked.options
    if not options["month"]:
        return asked.client.costs(options["range"])
    found = asked.client.cost_reports.get(options["month"])
    groups = found["groups"]
    if options["output"] != output.TABLE:
        return found
    if options["by"] not in groups:
        raise CommandError(f"There is no such grouping. Known: {', '.join(groups)}.", USAGE)
    return {**found, "rows": groups[options["by"]]}


def _format_costs(found: dict[str, Any]) -> Iterator[str]:
    if "groups" in found:
        yield from _format_month(found)
        return
    yield (
        f"Now {output.format_number(found['usd_hour_now'])} USD an hour; in {found['range']} "
        f"{output.format_number(found['cost_usd'])} USD spent, "
        f"{output.format_number(found['saved_usd'])} saved."
    )
    if found["problem"]:
        yield found["problem"]
    rows = found["endpoints"]
    if rows:
        yield _table([column for column in _COLUMNS if column in rows[0]], rows)


def _format_month(found: dict[str, Any]) -> Iterator[str]:
    if found["missing"]:
        yield f"Not in these sums: {found['missing']}."
    yield _table(["name", *_SUMS], [*found["rows"], {**found["total"], "name": "together"}])


def _table(columns: list[str], rows: list[dict[str, Any]]) -> str:
    head = [column.upper().replace("_", " ") for column in columns]
    return output.table(head, [[_cell(row.get(column)) for column in columns] for row in rows])


def _cell(value: Any) -> str:
    if value is None:
        return "?"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def add_cost(rooms: Verbs) -> None:
    verb = rooms.verb(
        "cost", "what endpoints cost, and what their caches saved", call=costs, show=_format_costs
    )
    verb.add("--range", default="", help="such as 1h, 1d, 7d")
    verb.add("--month", default="", help="such as 2026-11: the report of that month")
    verb.add(
        "--by", default="endpoint", help="of a month: endpoint, team, model, machine or tag:KEY"
    )


def budgets(asked: CommandContext) -> Iterator[dict[str, Any]]:
    for one in asked.client.budgets.list():
        yield {**one, **asked.client.budgets.state(one["id"])}


def _budget(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["name"],
        f"{one['whose']} {one['subject']}".strip(),
        output.format_number(one["usd"]),
        output.format_number(one["spent_usd"]),
        output.format_number(one["foreseen_usd"]),
        f"{one['used_ratio']:.0%}",
    )


_BUDGETS = Table(
    ("NAME", "FOR", "USD/MONTH", "SPENT", "FORESEEN", "USED"),
    _budget,
    "No budget yet: emberline budget set NAME USD.",
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


def delete(asked: CommandContext) -> None:
    known = asked.client.budgets.named(asked.name)
    if known is None:
        raise CommandError(f"There is no budget {asked.name}.", NOT_FOUND)
    asked.client.budgets.delete(known["id"])


def add_budgets(rooms: Verbs) -> None:
    verbs = rooms.group("budget", "what may be spent a month")
    verbs.verb("list", "all, with what is spent and foreseen", call=budgets, show=_BUDGETS)
    verb = verbs.verb("set", "keep it, or change it", "name", call=keep)
    verb.add("usd", type=float, help="US dollars a month")
    either = verb.one_of()
    either.add_argument("--team", default="", help="its slug")
    either.add_argument("--tag", default="", metavar="KEY=VALUE", help="of endpoints")
    either.add_argument("--endpoint", default="", help="its name")
    verbs.verb(
        "delete", "and what it passed", "name", call=delete, show="The budget {name} is gone."
    )


def _price(one: dict[str, Any]) -> tuple[str, ...]:
    disk = output.format_number(one["disk_usd_gib_month"])
    usd = output.format_number(one["usd_hour"])
    return one["name"], one["since"], usd, one["machine"] or "-", disk, one["source"]


_PRICES = Table(
    ("TIER", "FROM", "USD/HOUR", "RUNS ON", "DISK USD/GIB/MONTH", "SOURCE"),
    _price,
    "Nothing was said: tiers of this machine cost their part of its memory.",
)


def _new_price(made: dict[str, Any]) -> str:
    name, since, usd, machine, *_ = _price(made)
    return f"{name} from {since} on: {usd} USD an hour, nodes on {machine}."


def add_tier_prices(rooms: Verbs) -> None:
    verbs = rooms.group("tier-price", "what cache tiers cost", client="tier_prices")
    verbs.verb("list", "what was said of it", show=_PRICES)
    verbs.verb(
        "history", "what was said of one, and from which day on", "name", form=OUTPUT, show=_PRICES
    )
    verb = verbs.verb("set", "say it, or change what is given of it", form={}, show=_new_price)
    verb.add("name", help="the tier's name, or redis:HOST:PORT")
    verb.fields("such as usd_hour=0.4")
    verbs.verb(
        "forget", "what was said of one", "name", show="What was said of {name} is forgotten."
    )


def _instance_type(one: InstanceType) -> tuple[str, ...]:
    gpus = f"{one['gpus']} x {one['gpu']}" if one["gpus"] else "-"
    return (
        one["name"],
        str(one["vcpus"]),
        f"{one['memory_gib']:g} GiB",
        gpus,
        output.format_number(one["price_usd_hour"]),
        one["price_date"] or "-",
        one["origin"],
    )


_INSTANCE_TYPES = Table(
    ("NAME", "VCPUS", "MEMORY", "GPUS", "USD/HOUR", "AS OF", "ORIGIN"), _instance_type
)


def _new_instance_type(made: InstanceType) -> str:
    name, vcpus, memory, gpus, price, _date, origin = _instance_type(made)
    return f"{name} ({origin}): {vcpus} vCPUs, {memory}, GPUs {gpus}, USD/hour {price}."


def add_instance_types(rooms: Verbs) -> None:
    verbs = rooms.group("instance-type", "what machines hold and cost", client="instance_types")
    verbs.verb("list", "all instance types", show=_INSTANCE_TYPES)
    verbs.verb("get", "one instance type", "name", form=OUTPUT_DATA, show=output.format_json)
    verb = verbs.verb(
        "set", "add it, or change what is given of it", "name", form={}, show=_new_instance_type
    )
    verb.fields("such as vcpus=8")
    verbs.verb(
        "forget",
        "what was said of it; a built-in one comes back",
        "name",
        show="What was said of {name} is forgotten.",
    )

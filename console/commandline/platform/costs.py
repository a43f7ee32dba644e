"""`emberline cost`, `budget ...`, `tier-price ...` and `instance-type ...`: prices, spending and
budgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.commandline import output
from console.commandline.context import NOT_FOUND, USAGE, CommandContext, CommandError
from console.commandline.input import confirm
from console.commandline.verbs import OUTPUT, OUTPUT_DATA, Table, Verbs
from console.core.money import format_usd, format_usd_hour

# A selection; -o json has all columns.
_COLUMNS = (
    *("endpoint", "usd_hour_now", "cost_usd", "saved_usd", "requests"),
    *("prompt_tokens", "generated_tokens", "usd_per_million_tokens", "why"),
)
_SUMS = (
    *("workers_usd", "idle_usd", "tier_usd", "total_usd", "saved_usd"),
    *("requests", "prompt", "cached", "generated"),
)


def costs(context: CommandContext) -> Any:
    options = context.options
    if not options["month"]:
        if options["by"]:
            raise CommandError("--by groups a month: add --month.", USAGE)
        return context.client.get("costs", range=options["range"])
    report = context.client.get("cost-reports", options["month"])
    groups, by = report["groups"], options["by"] or "endpoint"
    if by not in groups:
        raise CommandError(f"Unknown grouping. Use one of: {', '.join(groups)}.", USAGE)
    return report if options["output"] != output.TABLE else {**report, "rows": groups[by]}


def _format_costs(found: dict[str, Any]) -> Iterator[str]:
    if "groups" in found:
        yield from _format_month(found)
        return
    yield (
        f"Current hourly cost: {format_usd_hour(found['usd_hour_now'])}. Last {found['range']}: "
        f"cost {format_usd(found['cost_usd'])}, saved by the cache "
        f"{format_usd(found['saved_usd'])}."
    )
    if found["problem"]:
        yield found["problem"]
    rows = found["endpoints"]
    if rows:
        yield _table([column for column in _COLUMNS if column in rows[0]], rows)


def _format_month(found: dict[str, Any]) -> Iterator[str]:
    if found["missing"]:
        yield f"Not included: {found['missing']}."
    yield _table(["name", *_SUMS], [*found["rows"], {**found["total"], "name": "total"}])


def _table(columns: list[str], rows: list[dict[str, Any]]) -> str:
    head = [column.upper().replace("_", " ") for column in columns]
    cells = [[_cell(column, row.get(column)) for column in columns] for row in rows]
    return output.table(head, cells)


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "?"
    if not isinstance(value, float):
        return str(value)
    return format_usd(value) if "usd" in column else f"{value:,.0f}"


def add_cost(rooms: Verbs) -> None:
    verb = rooms.verb("cost", "endpoint costs and cache savings", call=costs, show=_format_costs)
    either = verb.one_of()
    verb.add("--range", default="", help="1h, 24h (default), 7d or 30d", to=either)
    verb.add("--month", default="", help="cost report of a month, such as 2026-11", to=either)
    text = "grouping of a month: endpoint (default), team, model, machine or tag:KEY"
    verb.add("--by", default="", help=text)


def budgets(context: CommandContext) -> Iterator[dict[str, Any]]:
    for budget in context.client.pages("budgets"):
        yield {**budget, **context.client.get("budgets", budget["id"], "state")}


def _budget_named(context: CommandContext) -> dict[str, Any] | None:
    rows = context.client.pages("budgets")
    return next((row for row in rows if row["name"] == context.name), None)


def _budget(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["name"],
        f"{one['whose']} {one['subject']}".strip(),
        format_usd(one["usd"]),
        format_usd(one["spent_usd"]),
        format_usd(one["foreseen_usd"]),
        f"{one['used_ratio']:.0%}",
    )


_BUDGETS = Table(
    ("NAME", "SCOPE", "USD/MONTH", "SPENT", "FORECAST", "USED"),
    _budget,
    "No budgets. Create one: emberline budget set NAME USD.",
)


def keep(context: CommandContext) -> str:
    options, client = context.options, context.client
    fields: dict[str, Any] = {"name": context.name, "usd": options["usd"]}
    for whose in ("team", "tag", "endpoint"):
        if options[whose]:
            fields |= {"whose": whose, "subject": options[whose]}
    if existing := _budget_named(context):
        made = client.patch("budgets", existing["id"], data=fields)
    else:
        made = client.post("budgets", data=fields, once=True)
    held = f"{made['whose']} {made['subject']}".strip()
    return f"{made['name']}: {format_usd(made['usd'])} per month, scope {held}."


def delete(context: CommandContext) -> None:
    budget = _budget_named(context)
    if budget is None:
        raise CommandError(f"Budget {context.name} does not exist.", NOT_FOUND)
    text = f"Deleting budget {context.name} deletes its history."
    confirm(context, context.name, text)
    context.client.delete("budgets", budget["id"])


def add_budgets(rooms: Verbs) -> None:
    verbs = rooms.group("budget", "monthly budgets")
    verbs.verb("list", "all budgets, with spending and forecast", call=budgets, show=_BUDGETS)
    verb = verbs.verb("set", "create or change a budget", "name", call=keep)
    verb.add("usd", type=float, help="USD per month")
    either = verb.one_of()
    verb.add("--team", default="", help="team slug", to=either)
    verb.add("--tag", default="", metavar="KEY=VALUE", help="tag of endpoints", to=either)
    verb.add("--endpoint", default="", help="endpoint name", to=either)
    text = "delete a budget and its history"
    verb = verbs.verb("delete", text, "name", call=delete, show="Budget {name} deleted.")
    verb.ask_first()


def _price(one: dict[str, Any]) -> tuple[str, ...]:
    disk = format_usd(one["disk_usd_gib_month"])
    usd = format_usd(one["usd_hour"])
    return one["name"], one["since"], usd, one["machine"] or "-", disk, one["source"]


_PRICES = Table(
    ("TIER", "FROM", "USD/HOUR", "INSTANCE TYPE", "DISK USD/GIB/MONTH", "SOURCE"),
    _price,
    "No tier prices set. Tiers on this machine cost their share of its memory.",
)


def _new_price(made: dict[str, Any]) -> str:
    name, since, usd, machine, *_ = _price(made)
    return f"{name} from {since} on: {usd}/h, instance type {machine}."


def add_tier_prices(rooms: Verbs) -> None:
    verbs, path = rooms.group("tier-price", "prices of cache tiers"), "tier-prices/{name}/"
    verbs.verb("list", "current prices", call="GET tier-prices/", show=_PRICES)
    text, call = "all prices of a tier and their dates", f"GET {path}prices/"
    verbs.verb("history", text, "name", call=call, form=OUTPUT, show=_PRICES)
    text = "set or change the price of a tier"
    verb = verbs.verb("set", text, call=f"PUT {path}", form={}, show=_new_price)
    verb.add("name", help="the tier's name, or redis:HOST:PORT")
    verb.fields("such as usd_hour=0.4")
    text = "remove the price of a tier"
    done = "Price of {name} removed."
    verb = verbs.verb("forget", text, "name", call=f"DELETE {path}", show=done)
    verb.ask_first("Removing the price of tier {name} leaves its costs unknown from today on.")


def _instance_type(one: dict[str, Any]) -> tuple[str, ...]:
    gpus = f"{one['gpus']} x {one['gpu']}" if one["gpus"] else "-"
    return (
        one["name"],
        str(one["vcpus"]),
        f"{one['memory_gib']:g} GiB",
        gpus,
        format_usd(one["price_usd_hour"]),
        one["price_date"] or "-",
        one["origin"],
    )


_INSTANCE_TYPES = Table(
    ("NAME", "VCPUS", "MEMORY", "GPUS", "USD/HOUR", "AS OF", "ORIGIN"), _instance_type
)


def _new_instance_type(made: dict[str, Any]) -> str:
    name, vcpus, memory, gpus, price, _date, origin = _instance_type(made)
    return f"{name} ({origin}): {vcpus} vCPUs, {memory}, GPUs {gpus}, {price}/h."


def add_instance_types(rooms: Verbs) -> None:
    verbs = rooms.group("instance-type", "size and price of machines")
    path = "instance-types/{name}/"
    verbs.verb("list", "all instance types", call="GET instance-types/", show=_INSTANCE_TYPES)
    show = output.format_json
    verbs.verb("get", "one instance type", "name", call=f"GET {path}", form=OUTPUT_DATA, show=show)
    text = "add or change an instance type"
    verb = verbs.verb("set", text, "name", call=f"PUT {path}", form={}, show=_new_instance_type)
    verb.fields("such as vcpus=8")
    verb = verbs.verb(
        "forget",
        "remove an added type; reset a built-in one",
        "name",
        call=f"DELETE {path}",
        show="Instance type {name} removed or reset.",
    )
    verb.ask_first("Size and price entered for instance type {name} are deleted.")


def _missing_price(one: dict[str, Any]) -> tuple[str, ...]:
    offers = (f"{each['name']} {format_usd_hour(each['usd_hour'])}" for each in one["list_prices"])
    endpoints = str(len(one["endpoints"]))
    return one["instance_type"], one["holds"] or "?", endpoints, ", ".join(offers) or "-"


_MISSING_PRICES = Table(
    ("NAME", "SIZE", "ENDPOINTS", "LIST PRICES OF SIMILAR MACHINES"),
    _missing_price,
    "All instance types in use have a price.",
    names=False,
)


def _new_price_of_type(made: dict[str, Any]) -> str:
    price = format_usd_hour(made["usd_hour"])
    return f"{made['instance_type']}: {price} from {made['since']} on ({made['price_source']})."


def add_prices(rooms: Verbs) -> None:
    verbs = rooms.group("price", "prices of instance types in use")
    text = "instance types without a price"
    verbs.verb("list", text, call="GET costs/prices/", show=_MISSING_PRICES)
    text, call = "set the price of an instance type", "PUT costs/prices/{name}/"
    verb = verbs.verb("set", text, "name", call=call, form={}, show=_new_price_of_type)
    text, either = "USD per hour of the whole machine", verb.one_of(required=True)
    verb.add("usd_hour", metavar="usd", type=float, nargs="?", help=text, to=either)
    text = "use the list price of this type"
    verb.add("--list-price", metavar="TYPE", help=text, to=either)


def _calibration(one: dict[str, Any]) -> Iterator[str]:
    each = one["seconds_per_token"]
    value = "-" if each is None else f"{1e6 * each:,.0f} us of prefill per prompt token"
    kind = "automatic" if one["automatic"] else "manual"
    yield f"{one['endpoint']}: {one['state']} ({kind}, {one['created_at']}): {value}"
    if one["stage"] or one["message"]:
        yield one["stage"] or one["message"]


_AUTO = {"on": True, "off": False, "default": None}


def switch_calibration(context: CommandContext) -> str:
    enabled, name = _AUTO[context.options["auto"]], context.options["endpoint"]
    if enabled is None and not name:
        raise CommandError("default is for one endpoint: add --endpoint NAME.", USAGE)
    path = ("endpoints", name) if name else ("costs",)
    made = context.client.patch(*path, "auto-calibration", data={"auto_calibration": enabled})
    subject = f" of {name}" if name else ""
    return f"Automatic calibration{subject} is {'on' if made['effective'] else 'off'}."


def add_calibrations(rooms: Verbs) -> None:
    text = "prefill time per prompt token, the base of cache savings"
    verbs, path = rooms.group("calibration", text), "endpoints/{name}/calibration/"
    text = "latest calibration of an endpoint"
    verbs.verb("get", text, "name", call=f"GET {path}", show=_calibration)
    text = "calibrate an endpoint now"
    verbs.verb("start", text, "name", call=f"POST {path}", show=_calibration)
    verb = verbs.verb("auto", "switch automatic calibration", call=switch_calibration)
    verb.add("auto", choices=tuple(_AUTO), help="on, off, or default for one endpoint")
    verb.add("--endpoint", default="", help="only for this endpoint")

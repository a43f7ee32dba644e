"""`emberline instance-type ...`: capacity and price of machines."""

from __future__ import annotations

from typing import Any

from console.client.documents import InstanceType
from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.verbs import add_group, add_verb

_HEAD = ("NAME", "VCPUS", "MEMORY", "GPUS", "USD/HOUR", "AS OF", "ORIGIN")


def add_to(rooms: Any) -> None:
    verbs = add_group(rooms, "instance-type", "what machines hold and cost")
    add_verb(verbs, "list", list_all, "all instance types", listing=True)
    one = add_verb(verbs, "get", get, "one instance type", "name")
    one.add_argument(
        "-o", "--output", choices=(output.YAML, output.JSON), default=output.YAML, help="(yaml)"
    )
    said = add_verb(verbs, "set", set_, "add it, or change what is given of it", "name")
    said.add_argument("fields", nargs="+", metavar="FIELD=VALUE", help="such as vcpus=8")
    add_verb(verbs, "forget", forget, "what was said of it; a built-in one comes back", "name")


def list_all(asked: CommandContext) -> str:
    found = asked.client.instance_types.list()
    return output.rows(found, asked.options["output"], _HEAD, _cells)


def _cells(one: InstanceType) -> tuple[str, ...]:
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


def get(asked: CommandContext) -> str:
    return output.format_data(asked.client.instance_types.get(asked.name), asked.options["output"])


def set_(asked: CommandContext) -> str:
    made = asked.client.instance_types.set(
        asked.name, commandline_input.parse_facts(asked.options["fields"])
    )
    vcpus, memory, gpus, price = _cells(made)[1:5]
    facts = f"{vcpus} vCPUs, {memory}, GPUs {gpus}, USD/hour {price}"
    return f"{made['name']} ({made['origin']}): {facts}."


def forget(asked: CommandContext) -> str:
    asked.client.instance_types.forget(asked.name)
    return f"What was said of {asked.name} is forgotten."

"""`emberline instance-type ...`: capacity and price of machines."""

from __future__ import annotations

from typing import Any

from console.client.documents import InstanceType
from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import CommandContext

_HEAD = ("NAME", "VCPUS", "MEMORY", "GPUS", "USD/HOUR", "AS OF", "ORIGIN")


def add_to(rooms: Any) -> None:
    verbs = rooms.add_parser("instance-type", help="what machines hold and cost").add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )
    listed = verbs.add_parser("list", help="all instance types")
    output.add_output(listed, names=True)
    listed.set_defaults(run=list_all)
    one = verbs.add_parser("get", help="one instance type")
    one.add_argument("name")
    one.add_argument(
        "-o", "--output", choices=(output.YAML, output.JSON), default=output.YAML, help="(yaml)"
    )
    one.set_defaults(run=get)
    said = verbs.add_parser("set", help="add it, or change what is given of it")
    said.add_argument("name")
    said.add_argument("fields", nargs="+", metavar="FIELD=VALUE", help="such as vcpus=8")
    said.set_defaults(run=set_)
    forgotten = verbs.add_parser("forget", help="what was said of it; a built-in one comes back")
    forgotten.add_argument("name")
    forgotten.set_defaults(run=forget)


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
        output.number(one["price_usd_hour"]),
        one["price_date"] or "-",
        one["origin"],
    )


def get(asked: CommandContext) -> str:
    return output.written(asked.client.instance_types.get(asked.name), asked.options["output"])


def set_(asked: CommandContext) -> str:
    made = asked.client.instance_types.set(
        asked.name, commandline_input.facts(asked.options["fields"])
    )
    vcpus, memory, gpus, price = _cells(made)[1:5]
    facts = f"{vcpus} vCPUs, {memory}, GPUs {gpus}, USD/hour {price}"
    return f"{made['name']} ({made['origin']}): {facts}."


def forget(asked: CommandContext) -> str:
    asked.client.instance_types.forget(asked.name)
    return f"What was said of {asked.name} is forgotten."

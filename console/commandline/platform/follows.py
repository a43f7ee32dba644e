"""`emberline follow ...`: namespaces whose InferenceEndpointConfig objects define endpoints."""

from __future__ import annotations

from typing import Any

from console.commandline import output
from console.commandline.context import NOT_FOUND, CommandContext, CommandError
from console.commandline.verbs import add_group, add_verb

_HEAD = ("CLUSTER", "NAMESPACE", "PHASE", "OBJECTS", "WHY")


def add_to(rooms: Any) -> None:
    verbs = add_group(
        rooms, "follow", "make endpoints of InferenceEndpointConfig objects of a namespace"
    )
    add_verb(verbs, "list", list_all, "followed namespaces", listing=False)
    adding = add_verb(verbs, "add", add, "install the definition and follow a namespace")
    _place(adding)
    adding.add_argument(
        "--foreign", action="store_true", help="also where somebody else installed the definition"
    )
    removing = add_verb(verbs, "remove", remove, "let its objects go; their endpoints stay")
    _place(removing)


def _place(parser: Any) -> None:
    parser.add_argument("cluster")
    parser.add_argument("namespace")


def list_all(asked: CommandContext) -> str:
    none = "No namespace is followed. Follow one: emberline follow add CLUSTER NAMESPACE"
    found = asked.client.follows.list()
    return output.rows(found, asked.options["output"], _HEAD, _cells, none=none)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    why = f"{row['reason']} {row['message']}".strip()
    return row["cluster"], row["namespace"], row["phase"], str(row["objects"]), why


def add(asked: CommandContext) -> str:
    options = asked.options
    made = asked.client.follows.add(
        options["cluster"], options["namespace"], foreign=options["foreign"]
    )
    return f"{made['cluster']}/{made['namespace']} is followed. See: emberline follow list"


def remove(asked: CommandContext) -> str:
    cluster, namespace = asked.options["cluster"], asked.options["namespace"]
    for row in asked.client.follows.list():
        if (row["cluster"], row["namespace"]) == (cluster, namespace):
            asked.client.follows.remove(row["id"])
            text = f"{cluster}/{namespace} is let go."
            return f"{text} Its endpoints stay, and are the console's own."
    text = f"{cluster}/{namespace} is not followed. See what is: emberline follow list"
    raise CommandError(text, NOT_FOUND)

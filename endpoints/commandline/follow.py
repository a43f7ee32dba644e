"""`emberline follow ...`: namespaces whose objects say what endpoints there are."""

from __future__ import annotations

from typing import Any

from endpoints.actions import SYSTEM
from endpoints.commandline.show import add_output, table, written
from endpoints.controller import actions, selectors


def add_to(rooms: Any) -> None:
    verbs = rooms.add_parser(
        "follow", help="make endpoints of InferenceEndpointConfig objects of a namespace"
    ).add_subparsers(dest="verb", required=True, metavar="VERB")
    shown = verbs.add_parser("list", help="followed namespaces")
    add_output(shown)
    shown.set_defaults(run=listed)
    adding = verbs.add_parser("add", help="install the definition and follow a namespace")
    _place(adding)
    adding.add_argument(
        "--foreign", action="store_true", help="also where somebody else installed the definition"
    )
    adding.set_defaults(run=add)
    removing = verbs.add_parser("remove", help="let its objects go; their endpoints stay")
    _place(removing)
    removing.set_defaults(run=remove)


def _place(parser: Any) -> None:
    parser.add_argument("cluster")
    parser.add_argument("namespace")


def listed(options: dict[str, Any]) -> str:
    rows = [selectors.document(row) for row in selectors.follows()]
    if options["output"] != "text":
        return written(rows, options["output"])
    if not rows:
        return "No namespace is followed. Follow one: emberline follow add CLUSTER NAMESPACE"
    return table(
        ("CLUSTER", "NAMESPACE", "PHASE", "OBJECTS", "WHY"),
        [
            (
                row["cluster"],
                row["namespace"],
                row["phase"],
                str(row["objects"]),
                f"{row['reason']} {row['message']}".strip(),
            )
            for row in rows
        ],
    )


def add(options: dict[str, Any]) -> str:
    made = actions.follow(
        SYSTEM, options["cluster"], options["namespace"], foreign=options["foreign"]
    )
    return f"{made} is followed. See: emberline follow list"


def remove(options: dict[str, Any]) -> str:
    found = selectors.named(options["cluster"], options["namespace"])
    if found is None:
        raise actions.not_followed()
    actions.unfollow(SYSTEM, str(found.pk))
    return f"{found} is let go. Its endpoints stay, and are the console's own."

"""`emberline alert clusters|keep`: rules and receivers kept as objects in clusters."""

from __future__ import annotations

from typing import Any

from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import Asked

_ROWS = ("CLUSTER", "NAMESPACE", "RULES", "RECEIVERS", "STATE", "REASON", "SET BACK", "MESSAGE")
_FIELDS = 'rules=true receivers=true namespace=... labels=\'{"release": "prometheus"}\''


def add_to(verbs: Any) -> None:
    listed = verbs.add_parser("clusters", help="where rules and receivers are kept as objects")
    output.add_output(listed, names=True)
    listed.set_defaults(run=list_all)
    said = verbs.add_parser("keep", help="what of them is kept in a cluster")
    said.add_argument("name", metavar="CLUSTER")
    said.add_argument("fields", nargs="+", metavar="FIELD=VALUE", help=_FIELDS)
    said.set_defaults(run=keep)


def list_all(asked: Asked) -> str:
    found = asked.client.alerts.clusters()
    none = "No cluster is known."
    return output.rows(found, asked.options["output"], _ROWS, _row, none=none, key="cluster")


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    kept = ("yes" if one[name] else "no" for name in ("rules", "receivers"))
    return (
        *(one["cluster"], one["namespace"], *kept, one["phase"], one["reason"]),
        *(str(one["corrected"]), one["message"]),
    )


def keep(asked: Asked) -> str:
    made = asked.client.alerts.keep(asked.name, commandline_input.facts(asked.options["fields"]))
    kept = " and ".join(name for name in ("rules", "receivers") if made[name])
    if not kept:
        return f"Nothing is kept in {made['cluster']} any more; what was there is removed."
    return f"{kept.capitalize()} are kept in {made['cluster']}, namespace {made['namespace']}."

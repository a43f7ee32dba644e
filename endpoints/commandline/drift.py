"""drift, heal, adopt: what others changed in a cluster, and the two answers to it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from endpoints import drift_actions, selectors
from endpoints.actions import SYSTEM
from endpoints.commandline.show import add_output, table, written
from endpoints.worker_spec import workload_name

_LONGEST = 60


def add_to(verbs: Any) -> None:
    shown = verbs.add_parser("drift", help="what others changed of it in the cluster")
    shown.add_argument("name")
    add_output(shown)
    shown.set_defaults(run=drift)
    healed = verbs.add_parser("heal", help="set what others changed as wanted again")
    healed.add_argument("name")
    healed.add_argument("--workload", default="", help="of which; the workers' if none is named")
    healed.set_defaults(run=heal)
    adopted = verbs.add_parser("adopt", help="keep what others changed")
    adopted.add_argument("name")
    adopted.add_argument("key", help="as drift shows it")
    adopted.set_defaults(run=adopt)


def drift(options: dict[str, Any]) -> str:
    """As found at the last look."""
    endpoint = selectors.get(options["name"])
    rows = endpoint.status.drift
    if options["output"] != "text":
        return written(rows, options["output"])
    if not rows:
        return f"Nothing of {endpoint.name} differs from what is wanted."
    return table(
        ("KEY", "WANTED", "FOUND", "BY", "SINCE", "WORKLOAD"),
        [
            (
                row["key"],
                _value(row["wanted"]),
                _value(row["found"]),
                row["manager"] or "nobody",
                _when(row["since"]),
                row["workload"],
            )
            for row in rows
        ],
    )


def heal(options: dict[str, Any]) -> str:
    name, workload = options["name"], options["workload"]
    drift_actions.heal(SYSTEM, name, workload)
    return (
        f"{workload or workload_name(name)} is made as wanted again. "
        f"See: emberline endpoint drift {name}"
    )


def adopt(options: dict[str, Any]) -> str:
    name, key = options["name"], options["key"]
    drift_actions.adopt(SYSTEM, name, key)
    return f"{key} is left as it was found. See: emberline endpoint drift {name}"


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _when(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S") if epoch else ""

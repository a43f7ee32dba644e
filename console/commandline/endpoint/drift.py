"""`endpoint drift | heal | adopt`: fields changed by others in the cluster, and both responses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from console.client.documents import Drift
from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.verbs import add_verb

_HEAD = ("KEY", "WANTED", "FOUND", "BY", "SINCE", "WORKLOAD")


def add_to(verbs: Any) -> None:
    add_verb(
        verbs, "drift", drift, "what others changed of it in the cluster", "name", listing=False
    )
    healed = add_verb(verbs, "heal", heal, "set what others changed as wanted again", "name")
    healed.add_argument("--workload", default="", help="of which; the workers' if none is named")
    adopted = add_verb(verbs, "adopt", adopt, "keep what others changed", "name")
    adopted.add_argument("key", help="as drift shows it")


def drift(asked: CommandContext) -> str:
    found = asked.client.endpoints.drift(asked.name)
    none = f"Nothing of {asked.name} differs from what is wanted."
    return output.rows(found, asked.options["output"], _HEAD, _cells, none=none)


def _cells(row: Drift) -> tuple[str, ...]:
    return (
        row["key"],
        output.truncate(row["wanted"]),
        output.truncate(row["found"]),
        row["manager"] or "nobody",
        _since(row["since"]),
        row["workload"],
    )


def heal(asked: CommandContext) -> str:
    workload = asked.options["workload"]
    asked.client.endpoints.heal(asked.name, workload)
    return (
        f"{workload or f'{asked.name}-worker'} is made as wanted again. "
        f"See: emberline endpoint drift {asked.name}"
    )


def adopt(asked: CommandContext) -> str:
    key = asked.options["key"]
    asked.client.endpoints.adopt(asked.name, key)
    return f"{key} is left as it was found. See: emberline endpoint drift {asked.name}"


def _since(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S") if epoch else ""

"""`emberline audit`: list the audit log and verify its integrity.

`audit verify` exits with 1 if a row was changed. `verify`, `prune` and `reseal` run on the
console's own machine.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from console.commandline import output
from console.commandline.context import USAGE, CommandContext, CommandError
from console.commandline.verbs import add_verb

_HEAD = ("WHEN", "WHO", "WHAT", "ON", "CHANGES", "NOTE")
_FILTERS = {
    "actor": "who, by the whole name",
    "verb": "what, from its beginning",
    "target": "on what, from its beginning: endpoint/demo",
    "team": "of this team, by its slug",
    "since": "from this moment on: 2026-01-31T12:00:00Z",
    "until": "before this moment",
}


def add_to(rooms: Any) -> None:
    parser = add_verb(rooms, "audit", audit, "who did what, latest last; verify the log")
    text = "verify: every seal; prune: delete old rows; reseal: accept the rows as they are"
    parser.add_argument("verb", nargs="?", choices=("verify", "prune", "reseal"), help=text)
    parser.add_argument("--head", default="", help="verify: the head an earlier run printed")
    parser.add_argument("--before", default="", help="prune: rows older than this day, 2026-01-31")
    for name, text in _FILTERS.items():
        parser.add_argument(f"--{name}", default="", help=text)
    parser.add_argument("--limit", type=int, default=50, help="so many of the latest (50)")
    output.add_output(parser)


def audit(asked: CommandContext) -> str:
    verb = asked.options["verb"]
    if verb:
        if asked.here is None:
            raise CommandError(
                f"audit {verb} runs on the console's own machine: run it there.", USAGE
            )
        return asked.here.audit(verb, asked.options["head" if verb == "verify" else "before"])
    rows = asked.client.audit.list(**{name: asked.options[name] for name in _FILTERS})
    latest = list(islice(rows, max(asked.options["limit"], 0)))
    none = "No audit log entry matches."
    return output.rows(reversed(latest), asked.options["output"], _HEAD, _cells, none=none)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    changes = "; ".join(f"{field}: {_pair(pair)}" for field, pair in sorted(row["changes"].items()))
    shown = changes if len(changes) <= 100 else f"{changes[:99]}…"
    return (
        output.format_time(row["at"]),
        row["actor"],
        row["verb"],
        row["target"],
        shown,
        row.get("note", ""),
    )


def _pair(pair: Any) -> str:
    if isinstance(pair, list) and len(pair) == 2:
        return f"{output.truncate(pair[0], 30)} -> {output.truncate(pair[1], 30)}"
    return output.truncate(pair, 30)

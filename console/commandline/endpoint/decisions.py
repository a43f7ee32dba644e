"""endpoint decisions | decision: how the router chose, as its own records tell it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from console.commandline import output
from console.commandline.context import Asked

_HEAD = ("ID", "TIME", "STRATEGY", "CHOSEN", "REASON", "PROMPT", "CACHED", "TTFT", "STATUS")


def add_to(verbs: Any) -> None:
    listed = verbs.add_parser("decisions", help="the router's latest, latest first")
    listed.add_argument("name")
    listed.add_argument("--limit", type=int, default=50, help="1 to 500 (50)")
    output.add_output(listed)
    listed.set_defaults(run=decisions)
    one = verbs.add_parser("decision", help="one with its candidates and their scores")
    one.add_argument("name")
    one.add_argument("id", help="as decisions shows it, or an answer's x-emberline-decision")
    output.add_output(one)
    one.set_defaults(run=decision)


def decisions(asked: Asked) -> str:
    found = asked.client.endpoints.decisions(asked.name, asked.options["limit"])
    none = f"The router of {asked.name} has decided nothing yet."
    return output.rows(found, asked.options["output"], _HEAD, _cells, none=none)


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    ttft, cached = one.get("ttft_s"), one.get("cached_tokens")
    return tuple(
        str(cell) if cell is not None else ""
        for cell in (
            one.get("id"),
            _moment(one.get("time")),
            one.get("strategy"),
            one.get("chosen"),
            one.get("reason"),
            one.get("prompt_tokens"),
            one.get("predicted_cached_tokens") if cached is None else cached,
            f"{ttft * 1000:.0f} ms" if isinstance(ttft, (int, float)) else "",
            one.get("status"),
        )
    )


def decision(asked: Asked) -> str:
    found = asked.client.endpoints.decision(asked.name, asked.options["id"])
    form = asked.options["output"]
    return told(found) if form == output.TABLE else output.written(found, form)


def told(found: dict[str, Any]) -> str:
    """A record of the router as lines, its candidates as a table."""
    candidates = found.get("candidates") or []
    facts = [
        f"{key}: {value if isinstance(value, str) else output.short(value, 200)}"
        for key, value in found.items()
        if key != "candidates" and value not in (None, "", [], {})
    ]
    return "\n".join([*facts, *_candidates(candidates, found.get("chosen"))])


def _candidates(found: list[dict[str, Any]], chosen: Any) -> list[str]:
    if not found:
        return []
    columns = list(dict.fromkeys(key for one in found for key in one))
    rows = [
        [
            "→" if chosen in (one.get("worker"), one.get("id")) else "",
            *(output.cell(one.get(key)) for key in columns),
        ]
        for one in found
    ]
    return [output.table(["", *(key.upper() for key in columns)], rows)]


def _moment(epoch: Any) -> str:
    """The router counts seconds."""
    if not isinstance(epoch, (int, float)):
        return str(epoch or "")
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S")

"""`emberline cost`: costs of endpoints and cache savings, recent or per month."""

from __future__ import annotations

from typing import Any

from console.commandline import output
from console.commandline.context import USAGE, CommandContext, CommandError
from console.commandline.verbs import add_verb

# A selection; -o json has all columns.
_COLUMNS = (
    *("endpoint", "usd_hour_now", "cost_usd", "saved_usd", "requests"),
    *("prompt_tokens", "generated_tokens", "usd_per_million_tokens", "why"),
)
_SUMS = (
    *("workers_usd", "idle_usd", "tier_usd", "total_usd", "saved_usd"),
    *("requests", "prompt", "cached", "generated"),
)


def add_to(rooms: Any) -> None:
    parser = add_verb(rooms, "cost", costs, "what endpoints cost, and what their caches saved")
    parser.add_argument("--range", default="", help="such as 1h, 1d, 7d")
    parser.add_argument("--month", default="", help="such as 2026-11: the report of that month")
    parser.add_argument(
        "--by", default="endpoint", help="of a month: endpoint, team, model, machine or tag:KEY"
    )
    output.add_output(parser)


def month(asked: CommandContext) -> str:
    found = asked.client.cost_reports.get(asked.options["month"])
    form = asked.options["output"]
    if form != output.TABLE:
        return output.format_data(found, form)
    groups = found["groups"]
    if asked.options["by"] not in groups:
        raise CommandError(f"There is no such grouping. Known: {', '.join(groups)}.", USAGE)
    lines = [f"Not in these sums: {found['missing']}."] if found["missing"] else []
    rows = [*groups[asked.options["by"]], {**found["total"], "name": "together"}]
    cells = [[row["name"], *(_cell(row[column]) for column in _SUMS)] for row in rows]
    head = ["NAME", *(column.upper().replace("_", " ") for column in _SUMS)]
    return "\n".join([*lines, output.table(head, cells)])


def costs(asked: CommandContext) -> str:
    if asked.options["month"]:
        return month(asked)
    found = asked.client.costs(asked.options["range"])
    form = asked.options["output"]
    if form != output.TABLE:
        return output.format_data(found, form)
    lines = [
        f"Now {output.format_number(found['usd_hour_now'])} USD an hour; in {found['range']} "
        f"{output.format_number(found['cost_usd'])} USD spent, "
        f"{output.format_number(found['saved_usd'])} saved."
    ]
    if found["problem"]:
        lines.append(found["problem"])
    rows: list[dict[str, Any]] = found["endpoints"]
    if rows:
        columns = [column for column in _COLUMNS if column in rows[0]]
        cells = [[_cell(row.get(column)) for column in columns] for row in rows]
        head = [column.upper().replace("_", " ") for column in columns]
        lines.append(output.table(head, cells))
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "?"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""Markdown table of the commands for docs/reference/cache-commands.md.

`python -m cachetier.wire.handbook PAGE` rewrites the part between the page's markers.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cachetier.wire.commands import TABLE, Command

BEGIN = "<!-- commands: written by python -m cachetier.wire.handbook -->"
END = "<!-- end of commands -->"
_TITLES = {"connection": "Connection", "string": "Values", "generic": "Keys", "server": "Node"}
_TITLES |= {"emberline": "Reading without copying, on the same host"}


def render_table() -> str:
    """Return the Markdown table, each command once, in Redis' groups."""
    parts = []
    for group, title in _TITLES.items():
        rows = [
            row for command in TABLE.values() if command.group == group for row in _rows(command)
        ]
        head = ["| command | what it does | unlike Redis |", "|---|---|---|"]
        parts.append("\n".join([f"### {title}", "", *head, *rows]))
    return "\n\n".join(parts)


def _rows(command: Command) -> list[str]:
    if not command.subcommands:
        return [_row(command.name, command)]
    name = command.name
    rows = [_row(name, command)] if command.arity == -1 or command.differs else []
    subcommands = [subcommand for subcommand in command.subcommands if subcommand.name != "help"]
    return rows + [_row(f"{name} {subcommand.name}", subcommand) for subcommand in subcommands]


def _row(name: str, command: Command) -> str:
    usage = f" {command.usage}" if command.usage else ""
    words = f"`{name.upper()}{usage}`".replace("|", "\\|")
    return f"| {words} | {command.summary} | {command.differs} |"


def renew_page(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{render_table()}\n\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(renew_page(path.read_text(encoding="utf-8")), encoding="utf-8")

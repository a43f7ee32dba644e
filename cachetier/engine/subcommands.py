"""Commands which are nothing without a second word: which handler, how many words, HELP.

All of it is read from the table, so that a subcommand which is not listed there does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping

from cachetier.engine.net.session import CommandError, Handler, Rest, Session
from cachetier.wire import replies
from cachetier.wire.commands import TABLE, Command


def container(name: str, handlers: Mapping[str, Handler]) -> Handler:
    """The handler of `name`, which hands on to `handlers` without the subcommand's own word."""
    table = TABLE[name]

    def run(session: Session, words: list[bytes]) -> Rest | None:
        asked = words[0][:64].decode(errors="replace")
        found = table.subcommand(asked.lower())
        if found is None:
            raise CommandError(f"ERR unknown subcommand '{asked}'. Try {name.upper()} HELP.")
        if not found.accepts(len(words) + 1):
            raise CommandError(f"ERR wrong number of arguments for '{name}|{found.name}' command")
        if found.name == "help":
            session.reply(_help(table))
            return None
        return handlers[found.name](session, words[1:])

    return run


def _help(table: Command) -> bytes:
    name = table.name.upper()
    lines = [f"{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    for one in table.subcommands:
        lines += [f"{one.name.upper()} {one.usage}".rstrip(), f"    {one.summary}"]
    return replies.array([replies.simple(line) for line in lines])

"""COMMAND command: the command table as a reply."""

from __future__ import annotations

from cachetier.engine.commands.arguments import SYNTAX, make_container
from cachetier.engine.net.session import ClientSession, CommandError, Handler, ReplySteps
from cachetier.wire import replies
from cachetier.wire.commands import TABLE, Command


def command(session: ClientSession, words: list[bytes]) -> ReplySteps | None:
    return _SUBCOMMANDS(session, words) if words else info(session, words)


def count(session: ClientSession, _words: list[bytes]) -> None:
    session.reply(replies.integer(len(TABLE)))


def list_(session: ClientSession, words: list[bytes]) -> None:
    if words:
        raise CommandError(SYNTAX)
    session.reply(replies.array([replies.text(name) for name in TABLE]))


def info(session: ClientSession, words: list[bytes]) -> ReplySteps | None:
    if words:
        return _reply_named_entries(session, words)
    session.reply(
        replies.array([_encode_entry(session, command, command.name) for command in TABLE.values()])
    )
    return None


def _reply_named_entries(session: ClientSession, words: list[bytes]) -> ReplySteps:
    """Yield entries for all given names, duplicates included, as the client reads them."""
    session.reply(replies.array_head(len(words)))
    for word in words:
        session.reply(_encode_named_entry(session, word))
        yield


def docs(session: ClientSession, words: list[bytes]) -> None:
    commands = (_find_command(word) for word in words)
    named = {command.name: command for command in commands if command} if words else TABLE
    pairs = [
        (replies.text(name), _encode_documentation(session, command))
        for name, command in named.items()
    ]
    session.reply(replies.mapping(pairs, session.version))


def getkeys(session: ClientSession, words: list[bytes]) -> None:
    command = _find_command(words[0])
    if command is None:
        raise CommandError("ERR Invalid command specified")
    if not command.first_key:
        raise CommandError("ERR The command has no key arguments")
    if not command.accepts(len(words)):
        raise CommandError("ERR Invalid number of arguments specified for command")
    last = command.last_key if command.last_key > 0 else len(words) - 1
    keys = words[command.first_key : last + 1 : command.step]
    session.reply(replies.array([replies.bulk(key) for key in keys]))


def _find_command(word: bytes) -> Command | None:
    return TABLE.get(word.decode(errors="replace").lower())


def _encode_named_entry(session: ClientSession, word: bytes) -> bytes:
    """Return the entry of a command, or of a subcommand such as `client|id`."""
    name, _, second = word.decode(errors="replace").lower().partition("|")
    subcommand = TABLE.get(name)
    if subcommand is not None and second:
        subcommand = subcommand.subcommand(second)
    if subcommand is None:
        return replies.null(session.version)
    return _encode_entry(session, subcommand, f"{name}|{second}" if second else name)


def _encode_entry(session: ClientSession, one: Command, name: str) -> bytes:
    subcommands = [_encode_entry(session, sub, f"{name}|{sub.name}") for sub in one.subcommands]
    return replies.array(
        [
            replies.text(name),
            replies.integer(one.arity),
            replies.members([replies.simple(flag) for flag in one.flags], session.version),
            replies.integer(one.first_key),
            replies.integer(one.last_key),
            replies.integer(one.step),
            replies.members([], session.version),  # ACL categories
            replies.members([], session.version),  # tips
            replies.members([], session.version),  # key specifications
            replies.array(subcommands),
        ]
    )


def _encode_documentation(session: ClientSession, one: Command, parent: str = "") -> bytes:
    pairs = [
        (replies.text("summary"), replies.text(one.summary)),
        (replies.text("since"), replies.text(one.since)),
        (replies.text("group"), replies.text(one.group)),
    ]
    if one.usage:
        pairs.append((replies.text("syntax"), replies.text(f"{parent}{one.name} {one.usage}")))
    if one.subcommands:
        parts = [
            (
                replies.text(f"{one.name}|{sub.name}"),
                _encode_documentation(session, sub, f"{one.name} "),
            )
            for sub in one.subcommands
        ]
        pairs.append((replies.text("subcommands"), replies.mapping(parts, session.version)))
    return replies.mapping(pairs, session.version)


_SUBCOMMANDS = make_container(
    "command", {"count": count, "docs": docs, "getkeys": getkeys, "info": info, "list": list_}
)
HANDLERS: dict[str, Handler] = {"command": command}

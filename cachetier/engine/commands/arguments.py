"""Command argument parsing: integers, SET options, lifetimes, subcommands. Reads only the wall
clock.

Absolute times (EXAT, EXPIREAT) are converted to seconds from now on arrival, so later clock
changes do not affect expiry.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cachetier.engine.net.session import ClientSession, CommandError, Handler, ReplySteps
from cachetier.engine.store import Condition
from cachetier.wire import replies
from cachetier.wire.commands import TABLE, Command

SYNTAX = "ERR syntax error"
NOT_INTEGER = "ERR value is not an integer or out of range"
# Maximum lifetime: a hundred years, which keeps arithmetic exact.
MAX_TTL_S = 100 * 365 * 86400.0
_MAX_DIGITS = 20
_LIFETIME_UNITS = {
    b"EX": (1.0, False),
    b"PX": (0.001, False),
    b"EXAT": (1.0, True),
    b"PXAT": (0.001, True),
}


def parse_integer(word: bytes) -> int:
    """Parse a Redis integer: 64 bits in canonical form (no spaces, plus signs, leading zeros)."""
    if len(word) > _MAX_DIGITS or not word.removeprefix(b"-").isdigit():
        raise CommandError(NOT_INTEGER)
    value = int(word)
    if b"%d" % value != word or not -(2**63) <= value < 2**63:
        raise CommandError(NOT_INTEGER)
    return value


@dataclass(slots=True)
class SetOptions:
    """SET options. `ttl_s`: None without expiry (or with `keep_ttl`), 0.0 if already expired."""

    condition: Condition = Condition.ALWAYS
    ttl_s: float | None = None
    keep_ttl: bool = False


def parse_set_options(words: Sequence[bytes]) -> SetOptions:
    """Parse the words after key and value in SET."""
    set_options = SetOptions()
    options = iter(words)
    for option in options:
        name = option.upper()
        has_life = set_options.ttl_s is not None or set_options.keep_ttl
        if name in _LIFETIME_UNITS and not has_life:
            unit_s, is_moment = _LIFETIME_UNITS[name]
            word = next(options, None)
            if word is None:
                raise CommandError(SYNTAX)
            set_options.ttl_s = parse_lifetime(word, unit_s, "set", is_moment=is_moment)
        elif name == b"KEEPTTL" and not has_life:
            set_options.keep_ttl = True
        elif name in (b"NX", b"XX") and set_options.condition is Condition.ALWAYS:
            set_options.condition = Condition.ABSENT if name == b"NX" else Condition.PRESENT
        elif name == b"GET":
            raise CommandError("ERR SET with GET is not known to this node, read the key first")
        else:
            raise CommandError(SYNTAX)
    return set_options


def parse_lifetime(word: bytes, unit_s: float, command: str, *, is_moment: bool = False) -> float:
    """Return seconds from now; 0.0 for a time in the past."""
    number = parse_integer(word)
    if number <= 0 or number * unit_s > 2**53:
        raise CommandError(f"ERR invalid expire time in '{command}' command")
    seconds = number * unit_s - (time.time() if is_moment else 0.0)
    return min(max(seconds, 0.0), MAX_TTL_S)


def may_expire(options: Sequence[bytes], left_s: float, wanted_s: float) -> bool:
    """Return whether NX, XX, GT, LT allow `wanted_s` for a key with `left_s` (inf: none)."""
    names = {option.upper() for option in options}
    for option in options:
        if option.upper() not in (b"NX", b"XX", b"GT", b"LT"):
            raise CommandError(f"ERR Unsupported option {option[:32].decode(errors='replace')}")
    if b"NX" in names and len(names) > 1:
        raise CommandError("ERR NX and XX, GT or LT options at the same time are not compatible")
    if {b"GT", b"LT"} <= names:
        raise CommandError("ERR GT and LT options at the same time are not compatible")
    has_end = left_s != math.inf
    return not (
        (b"NX" in names and has_end)
        or (b"XX" in names and not has_end)
        or (b"GT" in names and wanted_s <= left_s)
        or (b"LT" in names and wanted_s >= left_s)
    )


def make_container(name: str, handlers: Mapping[str, Handler]) -> Handler:
    """Return a handler of `name` that dispatches the remaining words to `handlers`."""
    table = TABLE[name]

    def run(session: ClientSession, words: list[bytes]) -> ReplySteps | None:
        subcommand = words[0][:64].decode(errors="replace")
        command = table.subcommand(subcommand.lower())
        if command is None:
            raise CommandError(f"ERR unknown subcommand '{subcommand}'. Try {name.upper()} HELP.")
        if not command.accepts(len(words) + 1):
            raise CommandError(f"ERR wrong number of arguments for '{name}|{command.name}' command")
        if command.name == "help":
            session.reply(_encode_help(table))
            return None
        return handlers[command.name](session, words[1:])

    return run


def _encode_help(table: Command) -> bytes:
    name = table.name.upper()
    lines = [f"{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    for subcommand in table.subcommands:
        lines += [
            f"{subcommand.name.upper()} {subcommand.usage}".rstrip(),
            f"    {subcommand.summary}",
        ]
    return replies.array([replies.simple(line) for line in lines])

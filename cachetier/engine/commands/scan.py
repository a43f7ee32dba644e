"""SCAN and KEYS: pattern matching over the keys in slices, so that other clients are served."""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from re import Pattern

from cachetier.engine.commands.arguments import SYNTAX, parse_integer
from cachetier.engine.net.session import ClientSession, CommandError, Handler, ReplySteps
from cachetier.wire import replies

MAX_PATTERN_BYTES = 1024
_MATCH_NOTHING = b"(?!)"
_ANY_BYTE = b"."


def compile_glob(pattern: bytes) -> Pattern[bytes]:
    """Compile a glob for `fullmatch`; raise CommandError if it is too long."""
    if len(pattern) > MAX_PATTERN_BYTES:
        raise CommandError(
            f"ERR a pattern of {len(pattern)} bytes is longer than {MAX_PATTERN_BYTES}"
        )
    pieces: list[list[bytes]] = [[]]
    place = 0
    while place < len(pattern):
        byte = pattern[place : place + 1]
        place += 1
        if byte == b"*":
            pieces.append([])
        elif byte == b"?":
            pieces[-1].append(_ANY_BYTE)
        elif byte == b"[":
            element, place = _translate_bracket(pattern, place)
            pieces[-1].append(element)
        else:
            if byte == b"\\" and place < len(pattern):
                byte = pattern[place : place + 1]
                place += 1
            pieces[-1].append(re.escape(byte))
    first, *rest = [b"".join(piece) for piece in pieces]
    if not rest:
        return re.compile(first, re.DOTALL)
    *middle, last = rest
    jumps = b"".join(b"(?>.*?%b)" % piece for piece in middle if piece)
    return re.compile(first + jumps + b".*" + last, re.DOTALL)


def _translate_bracket(pattern: bytes, place: int) -> tuple[bytes, int]:
    """Translate a bracket, closed by the pattern's end at the latest; return (regex, position)."""
    negated = pattern[place : place + 1] == b"^"
    place += negated
    chosen: set[int] = set()
    while place < len(pattern):
        if pattern[place] == ord("\\") and place + 1 < len(pattern):
            chosen.add(pattern[place + 1])
            place += 2
        elif pattern[place] == ord("]"):
            place += 1
            break
        elif pattern[place + 1 : place + 2] == b"-" and place + 2 < len(pattern):
            low, high = sorted((pattern[place], pattern[place + 2]))
            chosen.update(range(low, high + 1))
            place += 3
        else:
            chosen.add(pattern[place])
            place += 1
    if not chosen:
        return (_ANY_BYTE if negated else _MATCH_NOTHING), place
    members = b"".join(b"\\x%02x" % byte for byte in sorted(chosen))
    return (b"[^%b]" if negated else b"[%b]") % members, place


# Keys per reply, to bound the time other clients wait.
_MAX_COUNT = 10_000


def scan(session: ClientSession, words: list[bytes]) -> ReplySteps:
    cursor = _parse_cursor(words[0])
    glob, count, is_string = b"", 10, True
    options = iter(words[1:])
    for option in options:
        name, word = option.upper(), next(options, None)
        if word is None:
            raise CommandError(SYNTAX)
        if name == b"MATCH":
            glob = word
        elif name == b"COUNT":
            count = parse_integer(word)
            if count < 1:
                raise CommandError(SYNTAX)
        elif name == b"TYPE":
            is_string = word.lower() == b"string"
        else:
            raise CommandError(SYNTAX)
    pattern = compile_glob(glob) if glob else None
    page = session.node.walk(cursor, min(count, _MAX_COUNT))
    if page is None:  # an empty result would pass for a complete scan
        raise CommandError("ERR unknown or expired cursor, restart with cursor 0")
    return _reply_part(session, page[0], page[1] if is_string else [], pattern)


def _reply_part(
    session: ClientSession, cursor: int, keys: list[bytes], pattern: Pattern[bytes] | None
) -> ReplySteps:
    items = [replies.bulk(key) for key in (yield from _filter_existing(session, keys, pattern))]
    session.reply(replies.array([replies.text(str(cursor)), replies.array(items)]))


def _parse_cursor(word: bytes) -> int:
    if not word.isdigit() or len(word) > 20 or int(word) >= 1 << 64:
        raise CommandError("ERR invalid cursor")
    return int(word)


def keys(session: ClientSession, words: list[bytes]) -> ReplySteps:
    return _reply_all(session, compile_glob(words[0]))


def _reply_all(session: ClientSession, pattern: Pattern[bytes]) -> ReplySteps:
    keys = yield from _filter_existing(session, list(session.node.store.keys()), pattern)
    session.reply(replies.array_head(len(keys)))
    for key in keys:
        session.reply(replies.bulk(key))
        yield


def _filter_existing(
    session: ClientSession, candidates: list[bytes], pattern: Pattern[bytes] | None
) -> Generator[None, None, list[bytes]]:
    store, existing = session.node.store, []
    for key in candidates:
        is_match = pattern is None or pattern.fullmatch(key)
        if is_match and store.ttl(key, time.monotonic()) is not None:
            existing.append(key)
        yield
    return existing


HANDLERS: dict[str, Handler] = {"scan": scan, "keys": keys}

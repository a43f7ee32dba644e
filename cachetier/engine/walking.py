"""SCAN and KEYS: walking over what is stored, by pattern."""

from __future__ import annotations

import time
from re import Pattern

from cachetier.engine.globs import compile_glob
from cachetier.engine.lifetimes import SYNTAX, integer
from cachetier.engine.session import CommandError, Handler, Session
from cachetier.wire import replies

# More keys than this in one reply would hold up everybody else.
_MAX_COUNT = 10_000


def scan(session: Session, words: list[bytes]) -> None:
    cursor = _cursor(words[0])
    pattern, count, is_string = None, 10, True
    options = iter(words[1:])
    for option in options:
        name, word = option.upper(), next(options, None)
        if word is None:
            raise CommandError(SYNTAX)
        if name == b"MATCH":
            pattern = compile_glob(word)
        elif name == b"COUNT":
            count = integer(word)
            if count < 1:
                raise CommandError(SYNTAX)
        elif name == b"TYPE":
            is_string = word.lower() == b"string"
        else:
            raise CommandError(SYNTAX)
    found = session.node.walk(cursor, min(count, _MAX_COUNT))
    if found is None:  # not "0, nothing": who asked would take half the keys for all of them
        raise CommandError("ERR this walk is not known (any more), begin again with cursor 0")
    cursor, keys = found
    items = [replies.bulk(key) for key in _alive(session, keys, pattern)] if is_string else []
    session.reply(replies.array([replies.text(str(cursor)), replies.array(items)]))


def _cursor(word: bytes) -> int:
    if not word.isdigit() or len(word) > 20 or int(word) >= 1 << 64:
        raise CommandError("ERR invalid cursor")
    return int(word)


def keys(session: Session, words: list[bytes]) -> None:
    found = _alive(session, list(session.node.store.keys()), compile_glob(words[0]))
    session.reply(replies.array([replies.bulk(key) for key in found]))


def _alive(
    session: Session, candidates: list[bytes], pattern: Pattern[bytes] | None
) -> list[bytes]:
    now, store = time.monotonic(), session.node.store
    return [
        key
        for key in candidates
        if (pattern is None or pattern.fullmatch(key)) and store.ttl(key, now) is not None
    ]


HANDLERS: dict[str, Handler] = {"scan": scan, "keys": keys}

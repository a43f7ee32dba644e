"""SCAN and KEYS: walking over what is stored, by pattern, in slices between which others run."""

from __future__ import annotations

import time
from collections.abc import Generator
from re import Pattern

from cachetier.engine.commands.arguments import SYNTAX, integer
from cachetier.engine.globs import compile_glob
from cachetier.engine.net.session import CommandError, Handler, Rest, Session
from cachetier.wire import replies

# More keys than this in one reply would hold up everybody else.
_MAX_COUNT = 10_000


def scan(session: Session, words: list[bytes]) -> Rest:
    cursor = _cursor(words[0])
    glob, count, is_string = b"", 10, True
    options = iter(words[1:])
    for option in options:
        name, word = option.upper(), next(options, None)
        if word is None:
            raise CommandError(SYNTAX)
        if name == b"MATCH":
            glob = word
        elif name == b"COUNT":
            count = integer(word)
            if count < 1:
                raise CommandError(SYNTAX)
        elif name == b"TYPE":
            is_string = word.lower() == b"string"
        else:
            raise CommandError(SYNTAX)
    pattern = compile_glob(glob) if glob else None
    found = session.node.walk(cursor, min(count, _MAX_COUNT))
    if found is None:  # not "0, nothing": who asked would take half the keys for all of them
        raise CommandError("ERR this walk is not known (any more), begin again with cursor 0")
    return _reply_part(session, found[0], found[1] if is_string else [], pattern)


def _reply_part(
    session: Session, cursor: int, keys: list[bytes], pattern: Pattern[bytes] | None
) -> Rest:
    items = [replies.bulk(key) for key in (yield from _alive(session, keys, pattern))]
    session.reply(replies.array([replies.text(str(cursor)), replies.array(items)]))


def _cursor(word: bytes) -> int:
    if not word.isdigit() or len(word) > 20 or int(word) >= 1 << 64:
        raise CommandError("ERR invalid cursor")
    return int(word)


def keys(session: Session, words: list[bytes]) -> Rest:
    return _reply_all(session, compile_glob(words[0]))


def _reply_all(session: Session, pattern: Pattern[bytes]) -> Rest:
    found = yield from _alive(session, list(session.node.store.keys()), pattern)
    session.reply(replies.array_head(len(found)))
    for key in found:
        session.reply(replies.bulk(key))
        yield


def _alive(
    session: Session, candidates: list[bytes], pattern: Pattern[bytes] | None
) -> Generator[None, None, list[bytes]]:
    store, found = session.node.store, []
    for key in candidates:
        is_match = pattern is None or pattern.fullmatch(key)
        if is_match and store.ttl(key, time.monotonic()) is not None:
            found.append(key)
        yield
    return found


HANDLERS: dict[str, Handler] = {"scan": scan, "keys": keys}

"""Redis' patterns for keys: `*`, `?`, `[a-z]`, `[^x]`, a backslash before what is meant as it is.

Becomes a regular expression that never goes back past a star: everything between two stars has a
fixed length, so the first place where it fits is as good as any, and matching a key costs at most
the pattern's length times the key's. Both are bounded, to some milliseconds together.
"""

from __future__ import annotations

import re
from re import Pattern

from cachetier.engine.net.session import CommandError

MAX_PATTERN_BYTES = 1024
_NOTHING = b"(?!)"
_ANY = b"."


def compile_glob(pattern: bytes) -> Pattern[bytes]:
    """To be used with `fullmatch`; raises CommandError for a pattern that is too long."""
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
            pieces[-1].append(_ANY)
        elif byte == b"[":
            one, place = _choice(pattern, place)
            pieces[-1].append(one)
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


def _choice(pattern: bytes, place: int) -> tuple[bytes, int]:
    """One of several bytes, and the place after its bracket; no bracket closes it: the end does."""
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
        return (_ANY if negated else _NOTHING), place
    members = b"".join(b"\\x%02x" % byte for byte in sorted(chosen))
    return (b"[^%b]" if negated else b"[%b]") % members, place

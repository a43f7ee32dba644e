"""Reference RESP reader: all bytes at once, stateless, written from the specification.

Also Redis' glob matching, and a parser of replies.
"""

from __future__ import annotations

from cachetier.wire.frames import Limits

Word = bytes | tuple[str, int]
_WORD_BYTES = 8  # limit of the reduced reader
_LONGEST_LINE = 24

_VERBS = (b"CONNECT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"POST", b"PRI", b"PUT", b"TRACE")


class _Closed(Exception):
    pass


class _Short(Exception):
    """Raised when more bytes are needed."""


def read(wire: bytes, limits: Limits, direct: int) -> tuple[list[list[Word]], str, bool]:
    """Return the requests, "closed" if followed by invalid RESP, and whether all bytes were
    consumed.
    """
    found: list[list[Word]] = []
    at = 0
    while at < len(wire):
        try:
            request, at = _request(wire, at, limits, direct)
        except _Short:
            return found, "", False
        except _Closed:
            return found, "closed", False
        if request:
            found.append(request)
    return found, "", True


def _request(wire: bytes, at: int, limits: Limits, direct: int) -> tuple[list[Word], int]:
    if wire[at] != ord("*"):
        end = wire.find(b"\n", at)
        if end < 0:
            if len(wire) - at > direct:
                raise _Closed
            raise _Short
        if end - at > direct:
            raise _Closed
        line = wire[at:end].split()
        if line and (
            line[0].upper() in _VERBS or b":" in line[0] or line[-1].upper()[:5] == b"HTTP/"
        ):
            raise _Closed
        return list(line), end + 1
    count, at = _number(wire, at)
    if count > limits.max_args:
        raise _Closed
    words: list[Word] = []
    whole = short = 0
    for _ in range(count):
        if at == len(wire):
            raise _Short
        if wire[at] != ord("$"):
            raise _Closed
        length, at = _number(wire, at)
        if not 0 <= length <= limits.max_bulk_bytes:
            raise _Closed
        word: Word = wire[at : at + length]
        if length > limits.max_value_bytes:
            word = "too_large", length
        else:
            whole += length
            if length < direct:
                short += length + _WORD_BYTES
            if whole > limits.max_request_bytes or short > limits.max_short_bytes:
                raise _Closed
            if length >= direct and length % 7 == 0:
                word = "backpressure", length
        if len(wire) < at + length + 2:
            raise _Short
        if wire[at + length : at + length + 2] != b"\r\n":
            raise _Closed
        words.append(word)
        at += length + 2
    return words, at


def _number(wire: bytes, at: int) -> tuple[int, int]:
    end = wire.find(b"\r\n", at, at + _LONGEST_LINE)
    if end < 0:
        if len(wire) - at >= _LONGEST_LINE:
            raise _Closed
        raise _Short
    digits = wire[at + 1 : end]
    if not digits.removeprefix(b"-").isdigit():
        raise _Closed
    return int(digits), end + 2


# -- replies


def kinds(data: bytes) -> list[str]:
    """Return the nested types of the replies; all of them must be complete."""
    found, at = [], 0
    while at < len(data):
        kind, at = _reply(data, at)
        found.append(kind)
    return found


def _reply(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\r\n", at)
    kind, rest = chr(data[at]), data[at + 1 : end]
    at = end + 2
    if kind == "-":
        return f"-{rest.decode(errors='replace')[:12]}", at
    if kind in "+_":
        return kind, at
    number = int(rest)
    if kind == ":" or number < 0:
        return kind, at
    if kind in "$=":
        assert data[at + number : at + number + 2] == b"\r\n", "a string of another length"
        return kind, at + number + 2
    assert kind in "*~%", kind
    parts = []
    for _ in range(number * (2 if kind == "%" else 1)):
        part, at = _reply(data, at)
        parts.append(part)
    # The number of facts in a text or list may depend on timing.
    return f"{kind}{number}", at


# -- patterns


def glob(pattern: bytes, text: bytes) -> bool:
    """Match like Redis' stringmatchlen, with a table instead of recursion."""
    tokens = _tokens(pattern)
    alive = {0}
    for place in range(len(text) + 1):
        alive = _past_stars(alive, tokens)
        if place == len(text):
            break
        following = set()
        for state in alive:
            if state < len(tokens):
                token = tokens[state]
                if token is None:
                    following.add(state)
                elif text[place] in token:
                    following.add(state + 1)
        alive = following
    return len(tokens) in alive


def _past_stars(alive: set[int], tokens: list[frozenset[int] | None]) -> set[int]:
    found = set(alive)
    for state in range(len(tokens)):
        if state in found and tokens[state] is None:
            found.add(state + 1)
    return found


def _tokens(pattern: bytes) -> list[frozenset[int] | None]:
    """Return None for a star, else the set of matching bytes."""
    everything = frozenset(range(256))
    found: list[frozenset[int] | None] = []
    rest = list(pattern)
    while rest:
        byte = rest.pop(0)
        if byte == ord("*"):
            found.append(None)
        elif byte == ord("?"):
            found.append(everything)
        elif byte == ord("["):
            found.append(_members(rest))
        else:
            if byte == ord("\\") and rest:
                byte = rest.pop(0)
            found.append(frozenset({byte}))
    return found


def _members(rest: list[int]) -> frozenset[int]:
    negated = bool(rest) and rest[0] == ord("^")
    if negated:
        rest.pop(0)
    chosen: set[int] = set()
    while rest:
        byte = rest.pop(0)
        if byte == ord("\\") and rest:
            chosen.add(rest.pop(0))
        elif byte == ord("]"):
            break
        elif len(rest) >= 2 and rest[0] == ord("-"):
            rest.pop(0)
            other = rest.pop(0)
            chosen.update(range(min(byte, other), max(byte, other) + 1))
        else:
            chosen.add(byte)
    return frozenset(range(256)) - chosen if negated else frozenset(chosen)

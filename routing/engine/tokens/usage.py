"""Token usage of answers, parsed from a bounded part of the body.

`read` handles the tail of a stream, `UsageReader` JSON answers. `StreamFilter` removes a usage
event that only the router requested. Only engine-reported numbers are returned.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Final, NamedTuple, Protocol

import orjson

TAIL_BYTES: Final = 8192
TAIL_PIECES: Final = 6  # the last event, [DONE], and split pieces

# Quotes inside JSON strings are escaped, so `"usage"` can only be a key.
_MARK: Final = b'"usage"'
# A usage object holds numbers and nested objects only, so braces can be matched without a parser.
_OBJECT: Final = re.compile(rb"\s*+:\s*+(\{(?:[^{}]++|\{[^{}]*+\})*+\})")
_MAX_OBJECT_BYTES: Final = 2048
_MAX_TOKENS: Final = 10**12

_EVENT_END: Final = re.compile(rb"\r?\n\r?\n")
_DATA: Final = re.compile(rb"^data: ?(.*?)\r?$", re.MULTILINE)
_FINISH: Final = b'"finish_reason":'
_TERMINAL: Final = b'"finish_reason":"'
_FINGERPRINT: Final = b'"system_fingerprint"'
_DONE: Final = b"data: [DONE]"
_MAX_EVENT_BYTES: Final = 16_384  # longer ones are no usage events
_MAX_WAITING_BYTES: Final = 65_536


class TokenUsage(NamedTuple):
    """Token counts from the engine; None: not reported."""

    prompt: int | None
    completion: int | None
    cached: int | None


def _token_count(usage: dict[str, Any], *names: str) -> int | None:
    """Return the first of these fields that is a token count."""
    for name in names:
        value = usage.get(name)
        if value is not None:
            return value if type(value) is int and 0 <= value < _MAX_TOKENS else None
    return None


def _parse_counts(usage: dict[str, Any]) -> TokenUsage:
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    details = usage.get("prompt_tokens_details")
    if type(prompt) is int and type(completion) is int and type(details) is dict and details:
        cached = details.get("cached_tokens")  # the usual shape
        if type(cached) is int and 0 <= prompt < _MAX_TOKENS and 0 <= completion < _MAX_TOKENS:
            return TokenUsage(prompt, completion, cached if 0 <= cached < _MAX_TOKENS else None)
    return _parse_any_counts(usage)


def _parse_any_counts(usage: dict[str, Any]) -> TokenUsage:
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    if type(details) is dict:
        cached = _token_count(details, "cached_tokens")
    else:
        cached = _token_count(usage, "cached_tokens", "cache_read_input_tokens")
    prompt = _token_count(usage, "prompt_tokens", "input_tokens")
    if prompt is not None and "prompt_tokens" not in usage:
        # Anthropic's input_tokens exclude cache reads and writes.
        prompt += _token_count(usage, "cache_read_input_tokens") or 0
        prompt += _token_count(usage, "cache_creation_input_tokens") or 0
    return TokenUsage(prompt, _token_count(usage, "completion_tokens", "output_tokens"), cached)


def read_usage(tail: bytes) -> TokenUsage | None:
    """Return the last usage object in the tail, or None."""
    index = tail.rfind(_MARK)
    while index >= 0:
        match = _OBJECT.match(tail, index + len(_MARK), index + _MAX_OBJECT_BYTES)
        if match is not None:
            try:
                return _parse_counts(orjson.loads(match[1]))
            except orjson.JSONDecodeError:
                pass  # an earlier one may be complete
        index = tail.rfind(_MARK, 0, index)
    return None


class UsageReader:
    """Find the last usage object of a body read in pieces."""

    __slots__ = ("last", "size", "usage")

    def __init__(self) -> None:
        self.usage: TokenUsage | None = None
        self.size = 0
        self.last = b""

    def feed(self, piece: bytes) -> None:
        self.size += len(piece)
        data = piece
        if self.last:
            data = _unfinished_tail(self.last) + piece
        self.usage = read_usage(data) or self.usage
        self.last = data


def _unfinished_tail(data: bytes) -> bytes:
    """Return the end of the data that may become a usage object."""
    index = data.rfind(_MARK)
    if (
        index < 0
        or len(data) - index >= _MAX_OBJECT_BYTES
        or _OBJECT.match(data, index + len(_MARK))
    ):
        index = max(len(data) - len(_MARK) + 1, 0)
    return data[index:]


class EngineFingerprint(Protocol):
    """Fingerprint of an engine. `fingerprint`: the worker's `system_fingerprint`, "" for none, None
    while unknown.
    """

    fingerprint: str | None


class StreamFilter:
    """Remove the usage event of `include_usage`; the rest stays byte-identical to a stream without
    it.

    vLLM writes `system_fingerprint` into the last event: the usage event, or without the option
    those with a finish_reason. It is moved back there. Until a worker's fingerprint is known,
    events with a finish_reason wait for the usage event, which follows at once. Only whole
    events pass; events with neither key are not parsed.
    """

    __slots__ = ("_engine", "_held", "_long", "_off", "_waiting", "aligned", "usage")

    def __init__(self, engine: EngineFingerprint) -> None:
        self.usage: TokenUsage | None = None
        self.aligned = True
        self._engine = engine
        self._held = b""
        self._long = False  # inside an event over the size limit
        self._off = False
        self._waiting: list[bytes] = []  # events waiting for the fingerprint

    @property
    def between(self) -> bool:
        return not self._long

    def lets(self, wire: bytes, events: int) -> bool:
        """Return True if these bytes, ending at a chunk boundary, may pass unchanged."""
        if not self.aligned or self._held or self._waiting or self._long:
            return False
        if events == 1 and wire.endswith(b"]}\n\n\r\n"):
            # A single event is tested at its end.
            index = wire.rfind(_FINISH)
            if index > 0 and wire.startswith(b"null", index + len(_FINISH)):
                return True
        whole = wire.endswith(b"\n\n\r\n")
        return whole and (self._off or (_MARK not in wire and _TERMINAL not in wire))

    def feed(self, pieces: list[bytes]) -> list[bytes]:
        out: list[bytes] = []
        data = self._held + b"".join(pieces)
        start = 0
        for end in _EVENT_END.finditer(data):
            event, start = data[start : end.end()], end.end()
            if self._long:
                self._long = False
                out.append(event)
            else:
                self._take(event, out)
        self._held = data[start:]
        if self._long or len(self._held) > _MAX_EVENT_BYTES:
            out += self.release()
            out.append(self._held[:-3])  # the rest may be the start of its end
            self._held, self._long = self._held[-3:], True
        return [piece for piece in out if piece]

    def _is_terminal(self, event: bytes) -> bool:
        return (
            self._engine.fingerprint != ""
            and _TERMINAL in event
            and _FINGERPRINT not in event
            and not self._off
        )

    def _take(self, event: bytes, out: list[bytes]) -> None:
        if _MARK in event and not self._off and self._is_usage(event):
            out += self.release()
            return
        if self._is_terminal(event):
            if self._engine.fingerprint is None:
                self._waiting.append(event)
                return
            event = _add_fingerprint(event, self._engine.fingerprint)
        if self._waiting:
            self._waiting.append(event)
            if event.startswith(_DONE) or sum(map(len, self._waiting)) > _MAX_WAITING_BYTES:
                out += self.release()
            return
        out.append(event)

    def _is_usage(self, event: bytes) -> bool:
        lines = _DATA.findall(event)
        try:
            data = orjson.loads(b"\n".join(lines)) if lines else None
        except orjson.JSONDecodeError:
            return False
        if type(data) is not dict or type(data.get("usage")) is not dict:
            return False
        if data.get("choices") != []:
            self._off = True  # the worker always reports usage (--enable-force-include-usage)
            return False
        self.usage = _parse_counts(data["usage"])
        fingerprint = data.get("system_fingerprint")
        self._engine.fingerprint = fingerprint if type(fingerprint) is str else ""
        return True

    def release(self) -> list[bytes]:
        """Return the waiting events, with fingerprint if known."""
        events, self._waiting = self._waiting, []
        fingerprint = self._engine.fingerprint
        if not fingerprint:
            return events
        return [
            _add_fingerprint(event, fingerprint) if self._is_terminal(event) else event
            for event in events
        ]

    def end(self) -> list[bytes]:
        """Return everything held, at the regular end of the stream."""
        rest, self._held = self._held, b""
        return [*self.release(), rest] if rest else self.release()


def _add_fingerprint(event: bytes, fingerprint: str) -> bytes:
    end = event.rindex(b"}") if b"}" in event else len(event)
    return b'%b,"system_fingerprint":%b%b' % (event[:end], orjson.dumps(fingerprint), event[end:])


class AnswerTokens:
    """Token usage of an answer in progress.

    `events`: events of a stream so far. `filter`: set if the router requested the usage.
    """

    __slots__ = ("_reader", "_tail", "events", "filter", "streams")

    def __init__(self, streams: bool, of_stream: StreamFilter | None) -> None:
        self.streams = streams
        self.filter = of_stream
        self.events = 0
        if streams:
            self._tail: deque[bytes] = deque(maxlen=TAIL_PIECES)
        else:
            self._reader = UsageReader()

    def feed(self, pieces: list[bytes]) -> int:
        """Return how many events ended in these pieces."""
        if not self.streams:
            for piece in pieces:
                self._reader.feed(piece)
            return 0
        tail = self._tail
        events = 0
        for piece in pieces:
            tail.append(piece if len(piece) <= TAIL_BYTES else piece[-TAIL_BYTES:])
            events += piece.count(b"\n\n") or piece.count(b"\n\r\n")
        self.events += events
        return events

    def passes(self, wire: bytes, piece: bytes) -> bool:
        """Count a stream's chunk that may pass unchanged; return False, without effect, if it needs
        `feed` and the filter.
        """
        events = piece.count(b"\n\n")
        stream = self.filter
        if stream is None:
            events = events or piece.count(b"\n\r\n")
        elif events != 1 or not stream.lets(wire, 1):
            return False
        self._tail.append(piece)
        self.events += events
        return True

    @property
    def tail(self) -> bytes:
        return b"".join(self._tail) if self.streams else self._reader.last

    @property
    def size(self) -> int:
        return 0 if self.streams else self._reader.size

    @property
    def final(self) -> bool:
        return self.filter is not None and self.filter.usage is not None

    def usage(self) -> TokenUsage | None:
        if not self.streams:
            return self._reader.usage
        if self.filter is not None and self.filter.usage is not None:
            return self.filter.usage
        return read_usage(self.tail[-TAIL_BYTES:])


NO_ANSWER: Final = AnswerTokens(False, None)


INITIAL_RATIO: Final = 4.0  # English text with common tokenizers
MIN_RATIO, MAX_RATIO = 1.0, 16.0  # Chinese as bytes; whitespace in code
MIN_PROMPT_BYTES: Final = 256  # template tokens distort shorter prompts
RATIO_WEIGHT: Final = 0.02  # EWMA weight after the first samples
MAX_MODELS: Final = 256


class BytesPerToken:
    def __init__(self) -> None:
        self._known: dict[str, tuple[float, int]] = {}
        self._all: tuple[float, int] = (INITIAL_RATIO, 0)

    def of(self, model: str) -> float:
        filter_known = self._known.get(model)
        return self._all[0] if filter_known is None else filter_known[0]

    def learn(self, model: str, size: int, tokens: int) -> None:
        """Learn from a prompt of `size` bytes and `tokens`; `model` is a served name."""
        if size < MIN_PROMPT_BYTES or tokens <= 0:
            return
        ratio = size / tokens
        if not MIN_RATIO <= ratio <= MAX_RATIO:
            ratio = MIN_RATIO if ratio < MIN_RATIO else MAX_RATIO
        self._all = _update_ratio(self._all, ratio)
        filter_known = self._known.get(model)
        if filter_known is not None or len(self._known) < MAX_MODELS:
            self._known[model] = _update_ratio(filter_known or (ratio, 0), ratio)


def _update_ratio(before: tuple[float, int], ratio: float) -> tuple[float, int]:
    value, count = before
    count += 1
    weight = RATIO_WEIGHT if count * RATIO_WEIGHT > 1 else 1 / count
    return value + (ratio - value) * weight, count

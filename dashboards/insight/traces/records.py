"""Reader of recorded traffic (`routing.engine.observe.traffic`): pieces to a trace. Pure.

Routers hash blocks of bytes; a trace has blocks of 16 tokens, or of 64 where prompts are long. The
token position of a hashed block is set by the first request that contains it, from its measured
length, so that later requests share a block exactly as far as they share its prefix: whole hashed
blocks, and what the engine reused after them: of the next block, or of the prompt's rest and the
answer of a request that it goes on from. Where the engine did not hold the whole blocks, it is what
earlier requests reused after theirs on average.
"""

from __future__ import annotations

import base64
import gzip
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from dashboards.insight.traces.joined import JoinedRequests
from dashboards.insight.traces.trace import Trace, TraceError, TraceRequest
from routing.engine.observe.traffic import FORMAT_VERSION, HASH_BYTES

BLOCK_TOKENS = 16
_LONG_PROMPT = 3072  # tokens on average from which blocks are four times as large
_JOINED = 4
_HASH_BITS = 8 * HASH_BYTES
_FIELDS = {1: 13, 2: 15, FORMAT_VERSION: 16}  # of a row, by version
_STRICTNESS = ("shared", "group", "key")
_MOST_TOKENS = 100_000_000
_MIN_BLOCK_TOKENS = 1.0
_DAMAGE = (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, IndexError)


class _Known:
    """Hashed blocks of all streams. A block is known by its hash and the block before it; blocks
    that one request brought follow each other.
    """

    def __init__(self) -> None:
        self.ids: dict[int, int] = {}
        self.ends = array("d")  # token position of each block's end
        self.firsts: list[int] = []  # first block of each request that brought some
        self.owners: list[int] = []  # those requests
        self.lasts: set[int] = set()  # last block of each request
        # Requests that reused all their known blocks, and the tokens that they reused after them:
        # of those that go on where another one ended, and of the others.
        self._reused = {True: [0, 0.0], False: [0, 0.0]}

    def owner(self, block: int) -> int:
        return self.owners[bisect_right(self.firsts, block) - 1]

    def match(self, before: int, step: float, cached: int | None, earlier: int) -> float:
        """Return the tokens that a request shares which has the blocks up to `before` and differs
        within the next `step` tokens, or goes on from a request of `earlier` tokens with its
        answer.
        """
        if before < 0:
            return 0.0
        end, goes_on = self.ends[before], before in self.lasts
        reused, most = self._reused[goes_on], self.ends[before] + step
        if goes_on:
            most = max(most, earlier)
        if cached is None or cached < end:
            return min(end + reused[1] / max(reused[0], 1), most)
        if cached < most:
            reused[0] += 1
            reused[1] += cached - end
            return cached
        return most if goes_on else end

    def follow(self, before: int, names: Sequence[int]) -> list[int]:
        """Return the known blocks of these names after `before`."""
        requests = []
        for name in names:
            after = self.ids.get((before + 1) << _HASH_BITS | name)
            if after is None:
                break
            requests.append(before := after)
        return requests

    def add(self, before: int, names: Sequence[int], owner: int, tokens: int) -> list[int]:
        """Add blocks after `before`, up to a prompt's length in tokens; return their ids."""
        start = self.ends[before] if before >= 0 else 0.0
        # Half a block is not hashed, on average.
        step = max((tokens - start) / (len(names) + 0.5), _MIN_BLOCK_TOKENS)
        first = len(self.ends)
        self.firsts.append(first)
        self.owners.append(owner)
        for position, name in enumerate(names):
            self.ids[(before + 1) << _HASH_BITS | name] = before = first + position
            self.ends.append(start + step * (position + 1))
        return list(range(first, first + len(names)))


class RecordedRequests(JoinedRequests):
    """Requests of all streams, with new blocks where they share none."""

    _fresh = 0

    @property
    def block_tokens(self) -> int:
        return BLOCK_TOKENS * self._joined

    def add(self, facts: TraceRequest, head: int, shared: int) -> int:
        """Add a request that has its first `shared` blocks from request `head`; return its
        number.
        """
        whole = -(-facts.prompt_tokens // BLOCK_TOKENS)
        answer = -(-(facts.prompt_tokens + facts.output_tokens) // BLOCK_TOKENS) - whole
        shared_count = min(shared, whole, self.length(head) if head >= 0 else 0)
        first, self._fresh = self._fresh, self._fresh + whole + answer - shared_count
        return self.append(facts, head, shared_count, range(first, self._fresh), answer)

    def tokens(self, number: int) -> int:
        """Return the length of a request with its answer."""
        return self._facts[number].prompt_tokens + self._facts[number].output_tokens

    def sort(self, begin: float, end: float) -> None:
        """Keep arrivals from `begin` until before `end`, in order, as seconds since `begin`. Long
        prompts get large blocks.
        """
        keys = self._facts
        numbers = [n for n, fact in enumerate(keys) if begin <= fact.arrived_s < end]
        self.order_by_arrival(numbers)
        for number in numbers:
            keys[number] = replace(keys[number], arrived_s=round(keys[number].arrived_s - begin, 3))
        tokens = sum(keys[number].prompt_tokens for number in numbers)
        self._joined = _JOINED if tokens > _LONG_PROMPT * len(numbers) else 1


def read_streams(streams: Iterable[Sequence[bytes]], begin: float, end: float) -> Trace:
    """Return the requests that arrived in [begin, end), Unix times. A stream is the pieces (gzip)
    of one recording in order; what follows a missing piece is left out. Raise TraceError.
    """
    names_known, recorded = _Known(), RecordedRequests()
    isolations: set[str] = set()
    for pieces in streams:
        _read_stream(pieces, names_known, recorded, isolations)
    recorded.sort(begin, end)
    whole = bool(isolations) and isolations <= set(_STRICTNESS)
    isolation = max(isolations, key=_STRICTNESS.index) if whole else ""
    return Trace(recorded.block_tokens, recorded, begin, isolation)


def _read_stream(
    pieces: Sequence[bytes], known: _Known, found: RecordedRequests, isolations: set[str]
) -> None:
    numbers: list[int] = []  # known blocks by their number in the stream
    for data in pieces:
        try:
            lines = gzip.decompress(data).splitlines()
            head, rows = orjson.loads(lines[0]), map(orjson.loads, lines[1:])
            if head["version"] not in _FIELDS:
                raise TraceError(
                    f"The recording has format {head['version']}; this version reads "
                    f"up to {FORMAT_VERSION}. Update the console."
                )
            if head["known_blocks"] != len(numbers):
                return  # a piece before it is missing
            isolations.add(head.get("isolation", ""))
            for row in rows:
                if len(row) != _FIELDS[head["version"]]:
                    raise ValueError("another number of fields")
                _read_row(row, float(head["hour"]), numbers, known, found)
        except TraceError:
            raise
        except _DAMAGE as error:
            raise TraceError("A recorded piece is damaged. Delete its hour.") from error


def _read_row(
    row: list[Any], hour: float, numbers: list[int], known: _Known, found: RecordedRequests
) -> None:
    at_ms, session, parent, hashes, prompt, output, cached, tiers, ttft, took = row[:10]
    prompt = min(prompt, _MOST_TOKENS)
    names = _names(hashes)
    way = known.follow(numbers[parent] if parent >= 0 else -1, names)
    numbers += way
    before = numbers[-1] if way else numbers[parent] if parent >= 0 else -1
    end = known.ends[before] if before >= 0 else 0.0
    step = (prompt - end) / (len(names) - len(way) + 0.5)
    head = known.owner(before) if before >= 0 else -1
    earlier = found.tokens(head) if head >= 0 else 0
    shared = int(known.match(before, step, cached, earlier) // BLOCK_TOKENS)
    request = TraceRequest(
        hour + at_ms / 1000,
        prompt,
        min(output or 0, _MOST_TOKENS),
        (),
        session,
        row[11],
        None if ttft is None else ttft / 1000,
        cached,
        None if took is None else took / 1000,
        None if tiers is None else (tiers[0], tiers[1], tiers[2]),
        row[10] or 0,
        row[12],
        *row[13:],
    )
    number = found.add(request, head, shared)
    if len(way) < len(names):
        numbers += known.add(before, names[len(way) :], number, prompt)
        before = numbers[-1]
    known.lasts.add(before)


def _names(hashes: str) -> list[int]:
    data = base64.b64decode(hashes)
    return [
        int.from_bytes(data[index : index + HASH_BYTES], "big")
        for index in range(0, len(data), HASH_BYTES)
    ]

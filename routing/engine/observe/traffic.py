"""Recording of traffic: arrivals, keyed prefix hashes, lengths and outcomes, never text.

Off by default. Requests are encoded in a thread into compressed pieces that stay in memory until
the console collects them; beyond a limit, requests are counted as lost. A stream (one hour at most)
stores each prompt block once: a request names the last block that it shares with earlier requests,
and the hashes of those after it, and the strategy that placed it, which differs between the arms
of a canary. API keys and key groups are keyed hashes too; a piece names the
cache isolation under which its prompts were hashed. The console's insight reads pieces.
"""

from __future__ import annotations

import base64
import gzip
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from routing.engine.config import RecordingConfig
from routing.engine.observe.background_thread import BackgroundThread, yield_gil
from routing.engine.prompt.engine_request import path_uses_model

if TYPE_CHECKING:
    from routing.engine.observe.decisions import Decision
    from routing.engine.request import RoutedRequest

QUEUE_LIMIT = 2_000  # a queued request holds its hashes, 13 KB for 100k tokens
STREAM_BLOCKS = 262_144  # blocks of a stream known to the thread, about 30 MB
HASH_BYTES = 5  # blocks are compared only with those after the same block
NO_BLOCK = -1
FORMAT_VERSION = 3  # 1: without API keys, key groups and isolation; 2: without strategies
HOUR_S = 3600
_BATCH_SIZE = 64
_PIECE_BYTES = 1024 * 1024  # of text; compressed to about a third
_REPLY_BYTES = 4 * 1024 * 1024
_UNYIELDED_BLOCKS = 256
Digest = Callable[[bytes], str]


@dataclass(frozen=True, slots=True)
class CacheScopes:
    """Scopes of cache reuse. `isolation`: scope of KV cache reuse in force. `groups`: key group by
    API key.
    """

    isolation: str = "shared"
    groups: Mapping[str, str] = field(default_factory=dict)


_SHARED = CacheScopes()
Item = tuple["Decision | None", Sequence[int]]
_CLOSE: Item = (None, ())  # closes the open piece


class Piece(NamedTuple):
    """Encoded requests. `first`, `last`: arrivals (Unix time). `lost`: requests not recorded since
    the piece before. `data`: gzip of JSON lines, in base64.
    """

    number: int
    stream: int
    hour: int
    first: float
    last: float
    requests: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    lost: int
    data: str


class TrafficRecording:
    """Switch, queue and uncollected pieces of a router."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.on = False
        self._applied = (RecordingConfig(), 0, "")
        self._thread: TrafficEncoder | None = None
        self._pieces = PieceBuffer()

    def configure(
        self,
        config: RecordingConfig,
        block_bytes: int,
        digest: Digest,
        scopes: CacheScopes = _SHARED,
    ) -> None:
        """Apply a configuration; pieces already recorded stay until they are collected."""
        settings_now = (config, block_bytes, scopes.isolation)
        if settings_now == self._applied and self._thread is not None:
            self._thread.digest, self._thread.scopes = digest, scopes
            return
        self.stop()
        self._applied, self.on = settings_now, config.enabled
        if config.enabled:
            self._thread = TrafficEncoder(self._pieces, config, block_bytes, digest, scopes)

    def stop(self) -> None:
        """End the thread after its queue. Does not block."""
        thread, self._thread, self.on = self._thread, None, False
        if thread is not None:
            thread.close_piece()
            thread.stop()

    def add(self, exchange: RoutedRequest) -> None:
        head = exchange.head
        if self._thread is not None and head.method == b"POST" and path_uses_model(head.path):
            self._thread.add((exchange.decision, exchange.facts.chain))

    def collect(self, instance: str, after: int) -> dict[str, Any]:
        """Return pieces, and forget those that were collected: up to number `after` of `instance`,
        which may be an earlier process. The open piece is closed for the next call.
        """
        pieces = self._pieces
        newer = pieces.after(after if instance == self.instance else 0)
        if self._thread is not None:
            self._thread.close_piece()
        return {
            "instance": self.instance,
            "recording": self.on,
            "pieces": [piece._asdict() for piece in newer],
            "waiting_bytes": pieces.size,
            "lost": pieces.lost + (0 if self._thread is None else self._thread.uncounted()),
        }


class PieceBuffer:
    """Numbered pieces until they are collected. Shared by the loop and the thread."""

    def __init__(self) -> None:
        self.size = 0
        self.lost = 0  # requests not recorded, in all
        self._number = 0
        self._stream = 0
        self._pieces: deque[Piece] = deque()
        self._lock = Lock()

    def next_stream(self) -> int:
        with self._lock:
            self._stream += 1
            return self._stream

    def add(self, **values: Any) -> None:
        with self._lock:
            self._number += 1
            piece = Piece(number=self._number, **values)
            self.lost += piece.lost
            self._pieces.append(piece)
            self.size += len(piece.data)

    def after(self, number: int) -> list[Piece]:
        with self._lock:
            while self._pieces and self._pieces[0].number <= number:
                self.size -= len(self._pieces.popleft().data)
            pieces_after: list[Piece] = []
            size = 0
            for piece in self._pieces:
                size += len(piece.data)
                if pieces_after and size > _REPLY_BYTES:
                    break
                pieces_after.append(piece)
            return pieces_after


class TrafficEncoder(BackgroundThread[Item]):
    def __init__(
        self,
        pieces: PieceBuffer,
        config: RecordingConfig,
        block_bytes: int,
        digest: Digest,
        scopes: CacheScopes = _SHARED,
    ) -> None:
        self.digest = digest
        self.scopes = scopes
        self._pieces = pieces
        self._config = config
        self._block_bytes = block_bytes
        self._limited = 0  # requests beyond a size limit
        self._counted = 0  # lost requests that `pieces` has counted
        self._hour = -1
        self._hour_size = 0
        self._stream = 0
        self._known: dict[int, int] = {}  # blocks of the stream by hash
        self._before = 0  # of them, before the open piece
        self._rows: list[bytes] = []
        self._size = 0
        self._arrivals: list[float] = []
        self._sums = [0, 0, 0]  # prompt, cached and output tokens
        super().__init__("traffic", QUEUE_LIMIT, _BATCH_SIZE)

    def counts(self) -> dict[str, int]:
        return {"limited": self._limited, "dropped": self.dropped}

    def uncounted(self) -> int:
        return self._limited + self.dropped - self._counted

    def close_piece(self) -> None:
        self._queue.put(_CLOSE)

    # -- runs in the thread

    def work(self, items: list[Item]) -> None:
        for decision, chain in items:
            if decision is None:
                self._close()
            else:
                self._write(decision, chain)
                yield_gil()

    def _write(self, decision: Decision, chain: Sequence[int]) -> None:
        hour = int((decision.time + (decision.duration_s or 0.0)) // HOUR_S)
        if hour > self._hour:
            self._close()
            self._hour, self._hour_size, self._stream = hour, 0, 0
        if (
            self._hour_size >= self._config.hour_bytes
            or self._pieces.size >= self._config.buffer_bytes
        ):
            self._limited += 1
            return
        if not self._stream or len(self._known) + len(chain) > STREAM_BLOCKS:
            self._close()
            self._stream = self._pieces.next_stream()
            self._known.clear()
            self._before = 0
        shared = self._shared(chain)
        row = orjson.dumps(
            (
                round((decision.time - self._hour * HOUR_S) * 1000),
                self.digest(b"session:" + decision.session) if decision.session else "",
                self._known[chain[shared - 1]] if shared else NO_BLOCK,
                self._new_blocks(chain, shared),
                decision.prompt_tokens,
                decision.completion_tokens,
                decision.cached_tokens,
                _tiers(decision),
                _milliseconds(decision.ttft_s),
                _milliseconds(decision.duration_s),
                decision.status,
                decision.chosen,
                _main_cause(decision),
                *self._scope(decision.key_id),
                decision.strategy,
            ),
            option=orjson.OPT_APPEND_NEWLINE,
        )
        self._rows.append(row)
        self._size += len(row)
        self._arrivals.append(decision.time)
        self._sums[0] += decision.prompt_tokens
        self._sums[1] += min(decision.cached_tokens or 0, decision.prompt_tokens)
        self._sums[2] += decision.completion_tokens or 0
        if self._size >= _PIECE_BYTES:
            self._close()

    def _scope(self, key_id: str) -> tuple[str, str]:
        """Return the keyed hashes of an API key and of its group, "" for none."""
        group = self.scopes.groups.get(key_id, "")
        return (
            key_digest(self.digest, key_id) if key_id else "",
            group_digest(self.digest, group) if group else "",
        )

    def _shared(self, chain: Sequence[int]) -> int:
        """Return the number of known blocks: with a block, all before it are known."""
        hashes = self._known
        low, high = 0, len(chain)
        while low < high:
            middle = (low + high + 1) // 2
            if chain[middle - 1] in hashes:
                low = middle
            else:
                high = middle - 1
        return low

    def _new_blocks(self, chain: Sequence[int], shared: int) -> str:
        hashes, digest = self._known, self.digest
        names = []
        for position in range(shared, len(chain)):
            block = chain[position]
            hashes[block] = len(hashes)
            names.append(digest(block.to_bytes(8, "big"))[: 2 * HASH_BYTES])
            if not len(names) % _UNYIELDED_BLOCKS:
                yield_gil()
        return base64.b64encode(bytes.fromhex("".join(names))).decode() if names else ""

    def _close(self) -> None:
        if not self._rows:
            return
        head = {
            "version": FORMAT_VERSION,
            "hour": self._hour * HOUR_S,
            "block_bytes": self._block_bytes,
            "isolation": self.scopes.isolation,
            "known_blocks": self._before,
        }
        text = orjson.dumps(head, option=orjson.OPT_APPEND_NEWLINE) + b"".join(self._rows)
        data = base64.b64encode(gzip.compress(text, 2, mtime=0)).decode()
        lost = self.uncounted()
        self._counted += lost
        self._hour_size += len(data)
        prompt, cached, output = self._sums
        self._pieces.add(
            stream=self._stream,
            hour=self._hour * HOUR_S,
            first=min(self._arrivals),
            last=max(self._arrivals),
            requests=len(self._rows),
            prompt_tokens=prompt,
            cached_tokens=cached,
            output_tokens=output,
            lost=lost,
            data=data,
        )
        self._rows, self._arrivals, self._sums, self._size = [], [], [0, 0, 0], 0
        self._before = len(self._known)


def key_digest(digest: Digest, key_id: str) -> str:
    return digest(b"key:" + key_id.encode())


def group_digest(digest: Digest, group: str) -> str:
    return digest(b"group:" + group.encode())


def _tiers(decision: Decision) -> tuple[int, int, int] | None:
    """Return the tokens per tier that KV events reported for the worker."""
    tier_tokens = None if decision.tiers is None else decision.tiers.get(decision.chosen)
    return None if tier_tokens is None else (tier_tokens.gpu, tier_tokens.l1, tier_tokens.l2)


def _milliseconds(value: float | None) -> int | None:
    return None if value is None else round(value * 1000)


def _main_cause(decision: Decision) -> str:
    misses = decision.misses
    if misses is None or not misses.tokens:
        return ""
    return max(misses.tokens, key=misses.tokens.__getitem__)

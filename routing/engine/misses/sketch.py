"""Find the earlier prompt that a new one repeats after an early change, and the kind of change.

A sketch holds hashes of a prompt's lines and sentences, no text. Comparing takes about 20 ns per
byte, so it is limited to a share of one core and to prompts with a large unknown part.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Final

import orjson
import xxhash

from routing.engine.misses import attribution as causes
from routing.engine.prompt import canonical

if TYPE_CHECKING:
    from routing.engine.prompt.identity import Identity

SKETCHES_KEPT: Final = 256
MAX_BYTES = 65_536  # of a prompt that are compared
MAX_PIECES: Final = 512
MAX_SHARE: Final = 0.01  # of one core
_BURST_S: Final = 0.1
_MIN_PIECE: Final = 12  # shorter ones are no evidence
_MIN_EVIDENCE: Final = 3  # pieces
_MIN_SHARE: Final = 0.5  # of the bytes up to the last repeated piece
_LONG: Final = 2  # bit of a hash: the piece is long enough to be evidence
_ANCHOR_BITS: Final = _LONG | 1  # every second long piece is indexed

# Boundaries depend on content only: an inserted text shifts them, but does not change them.
_PIECES: Final = re.compile(rb"[\n\x1c-\x1f]|(?<=[.!?;]) | (?=[tT]h)|(?<=\}),(?=\{)")
# Numbers, dates, IDs. Starts at a word's first byte and never steps back: linear in any text.
_VARIABLE: Final = re.compile(rb"(?<![\w:.+-])[A-Za-z_:.+-]*+\d[\w:.+-]*+")
_TIMESTAMP: Final = re.compile(
    rb"\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?:\d\d|\b1[4-9]\d{8}(?:\d{3})?\b"
    rb"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? \d",
    re.IGNORECASE,
)
_SPACES: Final = b" \t\r\n\x0b\x0c"
_digest = xxhash.xxh3_64_intdigest

TIMESTAMP, ID, ORDER, WHITESPACE, TEXT = "timestamp", "id", "order", "whitespace", "text"
SALT, MODEL, TEMPLATE = "salt", "model", "template"
CAUSES: Final = {
    TIMESTAMP: causes.CHANGED_TIMESTAMP,
    ID: causes.CHANGED_ID,
    ORDER: causes.CHANGED_ORDER,
    WHITESPACE: causes.CHANGED_WHITESPACE,
    TEXT: causes.CHANGED_TEXT,
    SALT: causes.OTHER_SALT,
    MODEL: causes.OTHER_MODEL,
    TEMPLATE: causes.OTHER_TEMPLATE,
}


@dataclass(frozen=True, slots=True)
class PromptSeed:
    """What changes a prompt's blocks from the first one: model, salt, template arguments."""

    model: str
    salt: int
    template: int


def make_seed(model: str, arguments: bytes) -> PromptSeed:
    """Return the seed of a prompt; `arguments` of its template as JSON (canonical.py), or empty."""
    extra = orjson.loads(arguments) if arguments else {}
    salt = extra.pop("cache_salt", None)
    return PromptSeed(model, _digest_of(salt), _digest_of(extra or None))


def read_prompt(path: bytes, identity: Identity) -> tuple[bytes, PromptSeed, bool] | None:
    """Return a prompt's bytes, what changes it from its start, and True for a chat; None for token
    IDs and unread bodies.
    """
    if identity.sent is None:
        return None
    data, name, ids, _ = canonical.read(path, identity.sent, identity.model)
    if ids or not data:
        return None
    return data, make_seed(identity.model, name[2]), name[0] == b"chat"


def _digest_of(value: Any) -> int:
    return 0 if value is None else _digest(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)) or 1


@dataclass(frozen=True, slots=True)
class PromptChange:
    """Change between two prompts. `end`: bytes up to which the earlier prompt is repeated after the
    change at `offset`; `stable`: the repeated ones of them. `foreign`: another API key sent the
    earlier prompt. `template`: what the prompts of one template share, 0 for a change of their
    seed.
    """

    kind: str
    offset: int
    end: int
    place: str
    stable: int = 0
    foreign: bool = False
    template: int = 0


@dataclass(slots=True, eq=False)
class PromptSketch:
    seed: PromptSeed
    size: int
    raw: array[int]
    soft: array[int]  # without numbers and ids
    plain: array[int]  # without white space
    owner: str = ""  # API key
    template: int = 0  # PromptChange.template
    other: PromptSketch | None = None  # one like it with another seed, such as another salt

    def anchors(self) -> list[int]:
        piece = [piece for piece in self.raw if piece & _ANCHOR_BITS == _LONG]
        return piece or [piece for piece in self.raw if piece & _LONG][:1]


class SketchBook:
    """The latest sketches. `skipped`: prompts not compared, since the share was used up."""

    def __init__(self) -> None:
        self._kept: dict[PromptSketch, None] = {}
        self._anchors: dict[int, PromptSketch] = {}
        self._left = _BURST_S
        self._at = perf_counter()
        self.skipped = 0
        self.compared = 0

    def __len__(self) -> int:
        return len(self._kept)

    def has_time(self) -> bool:
        now = perf_counter()
        self._left = min(self._left + (now - self._at) * MAX_SHARE, _BURST_S)
        self._at = now
        if self._left <= 0:
            self.skipped += 1
            return False
        return True

    def compare(
        self, data: bytes, seed: PromptSeed, known: int, owner: str = ""
    ) -> PromptChange | None:
        """Return the change against an earlier prompt, and keep this one. `known`: bytes of its
        start that earlier prompts have.
        """
        began = thread_time()  # without the time in which other processes ran
        sketch, pieces = make_sketch(data, seed, owner)
        latest = self._find(sketch)
        before, old = None, latest
        while old is not None and old.seed != seed:  # what shares its seed could have been a hit
            before, old = old, old.other
        sketch.other = latest if old is not latest else latest and latest.other
        change = None
        if old is not None:
            change = find_change(sketch, old, pieces, data, known)
            if change is not None:
                sketch.template = change.template
                if before is not None:
                    before.other = old.other
                self._drop(old)
        if change is None and latest is not old and latest is not None:
            change = find_change(sketch, latest, pieces, data, known)
        self._keep(sketch)
        self.compared += 1
        self._left -= thread_time() - began
        return change

    def _find(self, sketch: PromptSketch) -> PromptSketch | None:
        votes: Counter[PromptSketch] = Counter()
        for anchor in sketch.anchors():
            old = self._anchors.get(anchor)
            if old is not None:
                votes[old] += 1
        return votes.most_common(1)[0][0] if votes else None

    def _keep(self, sketch: PromptSketch) -> None:
        self._kept[sketch] = None
        for anchor in sketch.anchors():
            self._anchors[anchor] = sketch
        while len(self._kept) > SKETCHES_KEPT:
            self._drop(next(iter(self._kept)))

    def _drop(self, sketch: PromptSketch) -> None:
        self._kept.pop(sketch, None)
        sketch.other = None
        for anchor in sketch.anchors():
            if self._anchors.get(anchor) is sketch:
                del self._anchors[anchor]


def make_sketch(data: bytes, seed: PromptSeed, owner: str = "") -> tuple[PromptSketch, list[bytes]]:
    """Return the sketch of a prompt, and its pieces."""
    pieces = _PIECES.split(data[:MAX_BYTES], MAX_PIECES)[:MAX_PIECES]
    raw, soft, plain = array("Q"), array("Q"), array("Q")
    for piece in pieces:
        bare = piece.translate(None, _SPACES)
        mark = _digest(piece)
        raw.append(mark | _LONG if len(bare) >= _MIN_PIECE else mark & ~_LONG)
        soft.append(_digest(_VARIABLE.sub(b"", piece)))
        plain.append(_digest(bare))
    return PromptSketch(seed, len(data), raw, soft, plain, owner), pieces


def first_difference(new: PromptSketch, old: PromptSketch) -> int:
    """Return the number of equal pieces at the start."""
    first = 0
    most = min(len(new.raw), len(old.raw))
    while first < most and new.raw[first] == old.raw[first]:
        first += 1
    return first


def piece_starts(pieces: list[bytes]) -> list[int]:
    starts = [0]
    for piece in pieces:
        starts.append(starts[-1] + len(piece) + 1)
    return starts


def find_change(
    new: PromptSketch,
    old: PromptSketch,
    pieces: list[bytes],
    data: bytes,
    known: int,
    evidence: int = _MIN_EVIDENCE,
) -> PromptChange | None:
    """Return the early change of a prompt, of which `pieces` and `data` are given, after which at
    least `evidence` pieces of the old one are repeated.
    """
    starts = piece_starts(pieces)
    where = find_places(old)
    first = first_difference(new, old)
    seeds = seed_change(new.seed, old.seed)
    begin = 0 if seeds else first
    repeated = [
        index
        for index in range(begin, len(new.raw))
        if new.raw[index] & _LONG and new.raw[index] in where
    ]
    if len(repeated) < evidence and not (repeated and seeds and new.raw == old.raw):
        return None
    last = repeated[-1]
    while last + 1 < len(new.raw) and new.raw[last + 1] in where:
        last += 1
    end = min(starts[last + 1], new.size)
    tokens_repeated = sum(len(pieces[index]) + 1 for index in repeated)
    offset = 0 if seeds else starts[first]
    if tokens_repeated < _MIN_SHARE * (end - offset) or end <= known:
        return None
    if last == len(pieces) - 1 and new.size > starts[-1]:
        end = min(new.size, max(old.size, end))  # both go on behind the compared part
    foreign = new.owner != old.owner
    between = range(repeated[0], last + 1)  # with the short pieces
    stable = sum(len(pieces[index]) + 1 for index in between if new.raw[index] in where)
    if seeds:
        return PromptChange(seeds, 0, end, "", stable, foreign)
    kind = _kind(new, old, pieces, where, first)
    template = old.template or min(new.raw[index] for index in repeated)
    return PromptChange(kind, offset, end, find_part(data, offset), stable, foreign, template)


def seed_change(new: PromptSeed, old: PromptSeed) -> str:
    if new.model != old.model:
        return MODEL
    if new.salt != old.salt:
        return SALT
    return TEMPLATE if new.template != old.template else ""


def find_places(old: PromptSketch) -> dict[int, int]:
    """Return the first place of each piece."""
    return {piece: index for index, piece in reversed(list(enumerate(old.raw)))}


def find_resumption(
    new: PromptSketch, old: PromptSketch, where: dict[int, int], first: int
) -> tuple[int, int]:
    """Return the piece from which the new prompt repeats the old one again, in both."""
    for index in range(first, len(new.raw)):
        place = where.get(new.raw[index], -1)
        if place >= first and new.raw[index] & _LONG:
            return index, place
    return len(new.raw), len(old.raw)


def _kind(
    new: PromptSketch, old: PromptSketch, pieces: list[bytes], where: dict[int, int], first: int
) -> str:
    resumed, there = find_resumption(new, old, where, first)
    skipped = [piece for piece in old.raw[first:there] if piece & _LONG]
    later = set(new.raw[first:])
    if skipped and 2 * sum(piece in later for piece in skipped) >= len(skipped):
        return ORDER
    changed, before = range(first, resumed), range(first, there)
    if _same(new.plain, old.plain, changed, before):
        return WHITESPACE
    if _same(new.soft, old.soft, changed, before):
        text = b" ".join(pieces[first:resumed])
        return TIMESTAMP if _TIMESTAMP.search(text) else ID
    return TEXT


_EMPTY: Final = _digest(b"")


def _same(new: array[int], old: array[int], changed: range, before: range) -> bool:
    mine = [new[index] for index in changed if new[index] != _EMPTY]
    return mine == [old[index] for index in before if old[index] != _EMPTY]


def find_part(data: bytes, offset: int) -> str:
    """Return which part of the prompt contains a byte (canonical.py): tools, a role, the text."""
    begin = data.rfind(b"\x1e", 0, offset + 1)
    if begin < 0:
        return "tools" if data[:1] == b"\x1d" else "text"
    number = data.count(b"\x1e", 0, offset + 1)
    role = data[begin + 1 : begin + 24].partition(b"\x1f")[0]
    name = role.decode("latin-1") if role in _ROLES else "other"
    return f"message {number} ({name})"


_ROLES: Final = (b"system", b"developer", b"user", b"assistant", b"tool", b"function")

"""Requests for cache diagnostics, and the comparison of a prompt with that of an earlier answer.

Added on request only, by the router's header or by the vendors' fields. An earlier answer is
compared if the same API key received it from this router. What is kept of it: hashes of its first
blocks (the decision), and a sketch if its request selected diagnostics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from routing.engine.misses import sketch
from routing.engine.misses.annotation import MESSAGES, RESPONSES
from routing.engine.misses.diagnosis import Comparison, Diagnosis

if TYPE_CHECKING:
    from routing.engine.misses.sketch import PromptSketch
    from routing.engine.observe.decisions import Decision, DecisionRing
    from routing.engine.prompt.identity import Identity
    from routing.engine.request import RoutedRequest

CACHE = "cache"
SKETCHES_KEPT = 256
VENDOR_PATHS = frozenset((MESSAGES, RESPONSES))
_MAX_ID = 256


class AnswerDiagnostics:
    """Requests for diagnostics, and the sketches of those that made one."""

    def __init__(self, ring: DecisionRing) -> None:
        self.ring = ring
        self._sketched: deque[Decision] = deque()

    def arrived(self, exchange: RoutedRequest, identity: Identity) -> None:
        """Compare with the earlier answer that a request for diagnostics names."""
        if not exchange.head.diagnostics and exchange.ask.path not in VENDOR_PATHS:
            return
        diagnosis = exchange.diagnosis = self._requested(exchange, identity)
        if diagnosis is not None:
            self._compare(diagnosis, exchange, identity)

    @staticmethod
    def _requested(exchange: RoutedRequest, identity: Identity) -> Diagnosis | None:
        """Return the diagnostics the request selected; None: none."""
        own, _, rest = exchange.head.diagnostics.decode("latin-1").partition(";")
        name, _, value = rest.strip().partition("=")
        number = value.strip().strip('"') if name.strip() == "previous" else ""
        is_requested = own.strip().lower() == CACHE
        vendor, field = _vendor_field(exchange.ask.path, identity.data)
        if not is_requested and not vendor:
            return None
        return Diagnosis(is_requested, vendor, (number or field)[:_MAX_ID])

    @staticmethod
    def _sketch(exchange: RoutedRequest, identity: Identity) -> SketchedPrompt | None:
        try:
            read = sketch.read_prompt(exchange.head.path, identity)
        except (UnicodeEncodeError, TypeError):  # the engine rejects it too
            return None
        if read is None:
            return None
        data, seed, chat = read
        return SketchedPrompt(*sketch.make_sketch(data, seed, exchange.decision.key_id), data, chat)

    def _compare(self, found: Diagnosis, exchange: RoutedRequest, identity: Identity) -> None:
        """Compare with the earlier answer, and keep this prompt's sketch for the next."""
        decision, prompt = exchange.decision, self._sketch(exchange, identity)
        if found.number:
            old = _find(self.ring, found.number, decision)
            if old is None:
                found.compared = Comparison(found.number, found=False)
            else:
                found.compared = _compare(found.number, exchange, prompt, old)
        if prompt is not None:
            decision.sketch = prompt.sketch
            self._sketched.append(decision)
            if len(self._sketched) > SKETCHES_KEPT:
                self._sketched.popleft().sketch = None


@dataclass(frozen=True, slots=True)
class SketchedPrompt:
    """Sketch of a prompt with its text. `chat`: messages, whose ends are exact; a text may go on
    within its last line.
    """

    sketch: PromptSketch
    pieces: list[bytes]
    data: bytes
    chat: bool


def _vendor_field(path: bytes, data: Mapping[str, Any] | None) -> tuple[bytes, str]:
    """Return the path if the vendor's field is there, and the earlier answer's ID."""
    if data is None or path not in VENDOR_PATHS:
        return b"", ""
    name, key = (
        ("diagnostics", "previous_message_id")
        if path == MESSAGES
        else ("prompt_cache_options", "comparison_response_id")
    )
    options = data.get(name)
    if type(options) is not dict:
        return b"", ""
    number = options.get(key)
    number = number if type(number) is str else ""
    # OpenAI's other prompt cache options ask for nothing.
    return (path if number or path == MESSAGES else b""), number


def _find(ring: DecisionRing, number: str, now: Decision) -> Decision | None:
    """Return the decision of an earlier answer to the same API key: by the answer's ID, in which
    vLLM repeats the request ID, or by the decision's.
    """
    names = (number, number.partition("-")[2])
    for decision in ring.newest(ring.keep):
        if (
            decision.key_id == now.key_id
            and decision is not now
            and decision.status == 200
            and (number in (decision.answer_id, decision.id) or decision.request_id in names)
        ):
            return decision
    return None


def _compare(
    number: str, exchange: RoutedRequest, prompt: SketchedPrompt | None, old: Decision
) -> Comparison:
    total = old.prompt_tokens
    if prompt is not None and old.sketch is not None:
        return _compare_sketches(number, prompt, old.sketch, total)
    chain = exchange.facts.chain
    if old.requested != exchange.decision.requested:
        return Comparison(number, total, 0, total, "", sketch.MODEL)
    if not chain or not old.prefix:
        return Comparison(number, total, known=False)
    same = 0
    for mine, other in zip(chain, old.prefix, strict=False):
        if mine != other:
            break
        same += 1
    if same == len(old.prefix):
        return Comparison(number, total, known=same == old.blocks)
    offset = min(round(same * total / max(old.blocks, 1)), total)
    part = ""
    if prompt is not None:
        block = len(prompt.data) // len(chain)
        part = sketch.find_part(prompt.data, same * block)
    return Comparison(number, total, offset, total - offset, part)


def _compare_sketches(
    number: str, prompt: SketchedPrompt, old: PromptSketch, total: int
) -> Comparison:
    new = prompt.sketch
    seeds = sketch.seed_change(new.seed, old.seed)
    if seeds:
        return Comparison(number, total, 0, total, "", seeds)
    first = sketch.first_difference(new, old)
    last = len(old.raw) - (0 if prompt.chat else 1)
    if first >= last:
        return Comparison(number, total, known=old.size <= sketch.MAX_BYTES)
    start = sketch.piece_starts(prompt.pieces)[first]
    offset = min(round(start * total / max(old.size, 1)), total)
    change = sketch.find_change(new, old, prompt.pieces, prompt.data, 0, evidence=1)
    kind = "" if change is None else change.kind
    part = sketch.find_part(prompt.data, min(start, len(prompt.data)))
    return Comparison(number, total, offset, total - offset, part, kind)

"""Cache diagnostics of one answer: why its prefix was or was not cached.

Added on request only, by the router's header or by the vendors' fields. An earlier answer is
compared if the same API key received it from this router. What is kept of it: hashes of its first
blocks (the decision), and a sketch if it asked for diagnostics itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from routing.engine.misses import attribution as causes
from routing.engine.misses import sketch
from routing.engine.misses.annotation import MESSAGES, RESPONSES, EventAnnotator
from routing.engine.misses.remedies import REMEDIES

if TYPE_CHECKING:
    from routing.engine.misses.sketch import PromptSketch
    from routing.engine.observe.decisions import Decision, DecisionRing
    from routing.engine.prompt.identity import Identity
    from routing.engine.protocols import RoutedRequest

HEADER = "x-emberline-diagnostics"
FIELD = "emberline_diagnostics"
CACHE = "cache"
SKETCHES_KEPT = 256
VENDOR_PATHS = frozenset((MESSAGES, RESPONSES))
_MAX_ID = 256
_SEED_CAUSES = {
    sketch.MODEL: causes.OTHER_MODEL,
    sketch.SALT: causes.OTHER_SALT,
    sketch.TEMPLATE: causes.OTHER_TEMPLATE,
}
_FOREIGN = frozenset(
    (
        *(causes.CHANGED_TIMESTAMP, causes.CHANGED_ID, causes.CHANGED_ORDER),
        *(causes.CHANGED_WHITESPACE, causes.CHANGED_TEXT),
        *(causes.OTHER_SALT, causes.OTHER_MODEL, causes.OTHER_TEMPLATE),
    )
)
_ANTHROPIC = {sketch.MODEL: "model_changed", sketch.SALT: "unavailable"}
_OPENAI = {sketch.MODEL: "model_changed", sketch.SALT: "prompt_cache_key_changed"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of comparing with an earlier answer. `offset`: first differing token, None if the
    earlier prompt is repeated as a whole; `lost`: its tokens from there on; `kind` of the change:
    "" if unknown; `known`: False if the kept part of it is too short to tell.
    """

    number: str
    prompt: int = 0
    offset: int | None = None
    lost: int = 0
    part: str = ""
    kind: str = ""
    found: bool = True
    known: bool = True

    def show(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"id": self.number, "found": self.found}
        if self.found:
            shown |= {
                "first_difference": self.offset,
                "part": self.part,
                "kind": self.kind,
                "lost_tokens": self.lost,
                "conclusive": self.known,
            }
        return shown


class Diagnosis:
    """What one request asked for, and what is known before its answer. `own`: the router's header;
    `vendor`: path of the API whose own field asked.
    """

    def __init__(self, own: bool, vendor: bytes, number: str) -> None:
        self.own = own
        self.vendor = vendor
        self.number = number
        self.compared: Comparison | None = None
        self.foreign = False  # another key sent the prompt that the ledger compared with
        self.reset()

    def reset(self) -> None:
        """Forget an answer that another attempt replaces."""
        self.events: EventAnnotator | None = None
        self.holds = False  # the whole body, since its length changes
        self.held: list[bytes] = []

    def opening(self) -> dict[str, Any]:
        """Return the fields that the first event of a stream has."""
        return {"diagnostics": self._anthropic()} if self.vendor == MESSAGES else {}

    def fields(self, decision: Decision, streams: bool) -> dict[str, Any]:
        """Return the fields of an ended answer; `streams`: without those of its first event."""
        found: dict[str, Any] = {}
        if self.vendor == MESSAGES and not streams:
            found = self.opening()
        elif self.vendor == RESPONSES and self.number:
            found = {"prompt_cache_diagnostics": self._openai(decision)}
        if self.own:
            found[FIELD] = self._own(decision)
        return found

    def _anthropic(self) -> dict[str, Any] | None:
        compared = self.compared
        if compared is None:
            return None  # first turn
        if not compared.found:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        if compared.offset is None:
            return None if compared.known else {"cache_miss_reason": {"type": "unavailable"}}
        reason = _ANTHROPIC.get(compared.kind, "")
        if not reason:
            part = compared.part
            reason = "messages_changed"
            if part == "tools":
                reason = "tools_changed"
            elif part.endswith(("(system)", "(developer)")):
                reason = "system_changed"
            elif compared.kind == sketch.TEMPLATE:
                reason = "unavailable"
        if reason == "unavailable":
            return {"cache_miss_reason": {"type": reason}}
        lost = {"type": reason, "cache_missed_input_tokens": compared.lost}
        return {"cache_miss_reason": lost}

    def _openai(self, decision: Decision) -> dict[str, Any]:
        compared = self.compared
        if compared is None or not compared.found:
            return {"type": "comparison_response_not_found"}
        if compared.offset is None:
            cached = decision.cached_tokens
            # Up to two blocks may be lost at the end of the earlier prompt.
            hit = cached is not None and cached >= 0.9 * compared.prompt - 32
            return {"type": "cache_hit" if compared.known and hit else "unavailable"}
        if compared.kind == sketch.TEMPLATE:
            return {"type": "unavailable"}
        reason = _OPENAI.get(compared.kind, "")
        reason = reason or ("tools_changed" if compared.part == "tools" else "input_changed")
        return {
            "type": "cache_miss",
            "reason": reason,
            "comparison_reusable_tokens": compared.prompt,
            "cache_missed_tokens": compared.lost,
        }

    def _own(self, decision: Decision) -> dict[str, Any]:
        prompt, cached = decision.prompt_tokens, decision.cached_tokens
        misses = decision.misses
        tokens = dict(misses.tokens) if misses is not None else {}
        changed = misses is not None and misses.offset is not None and not self.foreign
        if self.foreign:  # another key's prompts are no news for this one
            hidden = sum(tokens.pop(cause, 0) for cause in _FOREIGN)
            if hidden:
                tokens[causes.FIRST_SEEN] = tokens.get(causes.FIRST_SEEN, 0) + hidden
        main = max(tokens, key=lambda cause: tokens[cause]) if tokens else ""
        shown: dict[str, Any] = {
            "decision": decision.id,
            "worker": decision.chosen,
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "cached_by_tier": self._by_tier(decision),
            "computed_tokens": None if cached is None else max(prompt - cached, 0),
            "causes": tokens,
            "main_cause": main,
            "remedy": REMEDIES.get(main, ""),
            "changed_at": None,
        }
        if changed and misses is not None:
            shown["changed_at"] = {"token": misses.offset, "part": misses.place}
        if self.compared is not None:
            shown["compared"] = self.compared.show()
        return shown

    @staticmethod
    def _by_tier(decision: Decision) -> dict[str, int] | None:
        """Return the cached tokens by tier, as KV events predicted them; None: no events."""
        cached = decision.cached_tokens
        found = None if decision.tiers is None else decision.tiers.get(decision.chosen)
        if cached is None or found is None:
            return None
        shown: dict[str, int] = {}
        for tier, tokens in (("device", found.gpu), ("l1", found.l1), ("l2", found.l2)):
            shown[tier] = min(tokens, cached)
            cached -= shown[tier]
        return {**shown, "unknown": cached}


class AnswerDiagnostics:
    """Requests for diagnostics, and the sketches of those that made one."""

    def __init__(self) -> None:
        self._sketched: deque[Decision] = deque()

    def requested(self, exchange: RoutedRequest, identity: Identity) -> Diagnosis | None:
        """Return what the request asked for; None: nothing."""
        own, _, rest = exchange.head.diagnostics.decode("latin-1").partition(";")
        name, _, value = rest.strip().partition("=")
        number = value.strip().strip('"') if name.strip() == "previous" else ""
        wanted = own.strip().lower() == CACHE
        vendor, given = _vendor_field(exchange.ask.path, identity.data)
        if not wanted and not vendor:
            return None
        return Diagnosis(wanted, vendor, (number or given)[:_MAX_ID])

    def compare(
        self, found: Diagnosis, exchange: RoutedRequest, prompt: SketchedPrompt | None,
        ring: DecisionRing,
    ) -> None:  # fmt: skip
        """Compare with the earlier answer, and keep this prompt's sketch for the next."""
        decision = exchange.decision
        if found.number:
            old = _find(ring, found.number, decision)
            if old is None:
                found.compared = Comparison(found.number, found=False)
            else:
                found.compared = _compare(found.number, exchange, prompt, old)
        change = None if exchange.seen is None else exchange.seen.change
        found.foreign = change is not None and change.foreign
        if prompt is not None:
            decision.sketch = prompt.sketch
            self._sketched.append(decision)
            if len(self._sketched) > SKETCHES_KEPT:
                self._sketched.popleft().sketch = None


@dataclass(frozen=True, slots=True)
class SketchedPrompt:
    """`chat`: messages, whose ends are exact; a text may go on within its last line."""

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
    for one in ring.newest(ring.keep):
        if (
            one.key_id == now.key_id
            and one is not now
            and one.status == 200
            and (number in (one.answer_id, one.id) or one.request_id in names)
        ):
            return one
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

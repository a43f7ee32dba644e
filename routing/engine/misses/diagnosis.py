"""Cache diagnostics of one answer: what its request selected, and the fields that answer it.

The vendors' fields: https://platform.claude.com/docs/en/build-with-claude/cache-diagnostics and
https://developers.openai.com/api/docs/guides/prompt-caching/diagnostics
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from routing.engine.misses import attribution as causes
from routing.engine.misses import sketch
from routing.engine.misses.annotation import MESSAGES, RESPONSES
from routing.engine.misses.remedies import REMEDIES

if TYPE_CHECKING:
    from routing.engine.observe.decisions import Decision

FIELD: Final = "emberline_diagnostics"
_FOREIGN: Final = frozenset(sketch.CAUSES.values())
_ANTHROPIC: Final = {sketch.MODEL: "model_changed", sketch.SALT: "unavailable"}
_OPENAI: Final = {sketch.MODEL: "model_changed", sketch.SALT: "prompt_cache_key_changed"}


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
        document: dict[str, Any] = {"id": self.number, "found": self.found}
        if self.found:
            document |= {
                "first_difference": self.offset,
                "part": self.part,
                "kind": self.kind,
                "lost_tokens": self.lost,
                "conclusive": self.known,
            }
        return document


class Diagnosis:
    """What one request selected, and what is known before its answer. `own`: the router's header;
    `vendor`: path of the API whose own field selected it.
    """

    def __init__(self, own: bool, vendor: bytes, number: str) -> None:
        self.own = own
        self.vendor = vendor
        self.number = number
        self.compared: Comparison | None = None
        self.foreign = False  # another key sent the prompt that the ledger compared with

    def opening(self) -> dict[str, Any]:
        """Return the fields that the first event of a stream has."""
        return {"diagnostics": self._anthropic()} if self.vendor == MESSAGES else {}

    def fields(self, decision: Decision, streams: bool) -> dict[str, Any]:
        """Return the fields of an ended answer; `streams`: without those of its first event."""
        document: dict[str, Any] = {}
        if self.vendor == MESSAGES and not streams:
            document = self.opening()
        elif self.vendor == RESPONSES and self.number:
            document = {"prompt_cache_diagnostics": self._openai(decision)}
        if self.own:
            document[FIELD] = self._own(decision)
        return document

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
        document: dict[str, Any] = {
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
            document["changed_at"] = {"token": misses.offset, "part": misses.place}
        if self.compared is not None:
            document["compared"] = self.compared.show()
        return document

    @staticmethod
    def _by_tier(decision: Decision) -> dict[str, int] | None:
        """Return the cached tokens by tier, as KV events predicted them; None: no events."""
        cached = decision.cached_tokens
        tier_tokens = None if decision.tiers is None else decision.tiers.get(decision.chosen)
        if cached is None or tier_tokens is None:
            return None
        by_tier: dict[str, int] = {}
        for tier, tokens in (
            ("device", tier_tokens.gpu),
            ("l1", tier_tokens.l1),
            ("l2", tier_tokens.l2),
        ):
            by_tier[tier] = min(tokens, cached)
            cached -= by_tier[tier]
        return {**by_tier, "unknown": cached}

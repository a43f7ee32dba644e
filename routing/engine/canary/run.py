"""Canary of the running configuration: the arm of each request and its outcome.

All routers of an endpoint assign a session to the same arm: by a hash keyed with the endpoint's
hash key and the canary's ID. A session is the configured session ID of an API key; without one, the
head of the prompt, which the turns of a conversation share.
"""

from __future__ import annotations

import hashlib
from time import monotonic, time
from typing import Any

import orjson
import xxhash

from routing.engine.canary.statistics import CanaryStatistics
from routing.engine.config import CanaryConfig, Config
from routing.engine.policies.base import PINNED
from routing.engine.policies.canary import CANDIDATE, CONTROL
from routing.engine.prompt.identity import Identity
from routing.engine.request import RoutedRequest

ARMS = ("control", "candidate")
GENERATION_PATHS = frozenset(
    (b"/v1/chat/completions", b"/v1/completions", b"/v1/responses", b"/v1/messages")
)
_HEAD_MESSAGES = 8
_HEAD_CHARS = 1024


class Canary:
    def __init__(self, config: CanaryConfig, strategy: str, hash_key: bytes) -> None:
        self.config = config
        self.strategies = (strategy, config.strategy)
        self.is_kvaware = tuple(name == "kvaware" for name in self.strategies)
        seed = hashlib.blake2b(config.id.encode(), digest_size=8, key=hash_key[:64]).digest()
        self._seed = int.from_bytes(seed, "big")
        self._threshold = int(config.share * 2**64)
        self.statistics = CanaryStatistics(config.settle_s)
        self._began = time()

    @classmethod
    def build(cls, config: Config) -> Canary | None:
        if config.canary is None:
            return None
        return cls(config.canary, config.strategy, config.hash_key)

    def assign(self, key_id: str, session: bytes) -> tuple[int, int]:
        """Return the arm and the hash of a session."""
        unit = xxhash.xxh3_64_intdigest(key_id.encode() + b"\x00" + session, self._seed)
        return (CANDIDATE if unit < self._threshold else CONTROL), unit

    def arrived(self, exchange: RoutedRequest, identity: Identity) -> None:
        """Set the arm of a request; requests without a session are the control's, uncounted."""
        decision, data = exchange.decision, identity.data
        session = b""
        if exchange.ask.path in GENERATION_PATHS:
            session = exchange.facts.session or (b"" if data is None else prompt_head(data))
        arm = CONTROL
        if session:
            arm, decision.unit = self.assign(decision.key_id, session)
        else:
            self.statistics.unassigned += 1
        exchange.facts.arm = arm
        decision.arm = ARMS[arm]
        decision.strategy = self.strategies[arm]

    def ended(self, exchange: RoutedRequest) -> None:
        """Count the outcome: not that of pinned or refused requests, which no arm placed."""
        decision = exchange.decision
        if not decision.unit or not decision.attempts or decision.reason == PINNED:
            return
        if decision.time < self._began:  # assigned by an earlier canary
            return
        failed = decision.failed and not 400 <= (decision.status or 0) < 500
        self.statistics.add(
            decision.unit,
            ARMS.index(decision.arm),
            monotonic(),
            decision.ttft_s,
            decision.prompt_tokens,
            decision.cached_tokens,
            failed,
        )

    def show(self) -> dict[str, Any]:
        config = self.config
        return {
            "id": config.id,
            "strategy": config.strategy,
            "control": self.strategies[CONTROL],
            "share": config.share,
            **self.statistics.show(monotonic()),
        }


def prompt_head(data: dict[str, Any]) -> bytes:
    """Return what all turns of a conversation begin with: everything up to the first message of the
    user; of a plain prompt its first characters. b"": not recognized.
    """
    messages = data.get("messages")
    if messages is None:
        messages = data.get("input")
    if type(messages) is list and messages:
        head = [_brief(data.get("system")), _brief(data.get("instructions"))]
        for message in messages[:_HEAD_MESSAGES]:
            if type(message) is not dict:
                head.append(_brief(message))
                continue
            head.append(_brief(message.get("content")))
            if message.get("role") == "user":
                break
        return b"\x00".join(head)
    prompt = data.get("prompt") if messages is None else messages
    return _brief(prompt)


def _brief(value: Any) -> bytes:
    if not value:
        return b""
    if type(value) is str:
        return value[:_HEAD_CHARS].encode("utf-8", "surrogatepass")
    if type(value) is list:
        value = value[:_HEAD_CHARS]
    try:
        return orjson.dumps(value)[: 4 * _HEAD_CHARS]
    except (TypeError, ValueError):
        return repr(value)[:_HEAD_CHARS].encode("utf-8", "surrogatepass")

"""Parse the canary: a candidate strategy for a share of the sessions."""

from __future__ import annotations

from typing import Annotated

from routing.engine.config import syntax
from routing.engine.config.schema import CanaryConfig, Label, Strategy
from routing.engine.config.validation import ConfigError, Section, between


class CanaryFields(Section, frozen=True):
    id: Label
    strategy: Strategy
    share: Annotated[float, between(0.01, 0.99)] = 0.1
    session_key: str = ""
    prefix_memory_blocks: Annotated[int, between(0, 100_000_000)] = 0
    settle_s: Annotated[float, between(0, 3600)] = 60.0


def parse_canary(fields: CanaryFields, strategy: str, memory_blocks: int) -> CanaryConfig:
    """Raise ConfigError unless the candidate differs from the configured strategy."""
    same_memory = fields.prefix_memory_blocks in (0, memory_blocks)
    if fields.strategy == strategy and (strategy != "prefixaware" or same_memory):
        raise ConfigError(
            "canary.strategy",
            strategy,
            "is already the strategy of the endpoint",
            "Choose another one.",
        )
    session_key = None
    if fields.session_key:
        session_key = syntax.parse_session_key(fields.session_key)
        if strategy == "session":
            raise ConfigError(
                "canary.session_key",
                fields.session_key,
                "cannot differ while the strategy of the endpoint is session",
                "Leave it out.",
            )
    return CanaryConfig(
        fields.id,
        fields.strategy,
        fields.share,
        session_key,
        fields.prefix_memory_blocks,
        fields.settle_s,
    )

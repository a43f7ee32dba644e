"""Presets of the endpoint form: field values per use case, with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PresetSetting:
    """`value` of the field at `path`. `cluster`: True for clusters, False for this machine, None
    for both.
    """

    path: str
    value: Any
    why: str
    cluster: bool | None = None


@dataclass(frozen=True, slots=True)
class Preset:
    key: str
    title: str
    text: str
    icon: str
    settings: tuple[PresetSetting, ...]

    def here(self, *, cluster: bool) -> tuple[PresetSetting, ...]:
        return tuple(one for one in self.settings if one.cluster in (None, cluster))

    def over(self, flat: Mapping[str, Any], *, cluster: bool) -> dict[str, Any]:
        return {**flat, **{one.path: one.value for one in self.here(cluster=cluster)}}


_L1_ON = PresetSetting(
    "cache.l1.enabled", True, "What was computed stays when a worker needs the room for others."
)

CHAT = Preset(
    "chat",
    "Chat",
    "Many conversations of short turns, each going on where it stopped.",
    "message",
    (
        PresetSetting(
            "routing.strategy",
            "prefixaware",
            "A turn goes to the worker that was sent the conversation so far; callers need send "
            "no session.",
        ),
        _L1_ON,
        PresetSetting("cache.l1.policy", "lru", "Who spoke last will speak next."),
        PresetSetting("cache.l1.chunk_tokens", 32, "Small, so that a short turn is found whole."),
        PresetSetting(
            "cache.l2.enabled",
            True,
            "When a conversation's worker is busy or gone, another one finds what it had computed.",
        ),
        PresetSetting("cache.l2.ttl_s", 3600, "An hour: people come back from lunch."),
    ),
)
DOCUMENTS = Preset(
    "documents",
    "Long documents",
    "Few long texts, and many questions about each.",
    "file-text",
    (
        PresetSetting(
            "routing.strategy",
            "kvaware",
            "A long prompt is dear to compute twice: it goes where its KV really is, also after "
            "evictions and with several routers.",
        ),
        _L1_ON,
        PresetSetting(
            "cache.l1.size_gib",
            16.0,
            "64,000 tokens of a model of 8 billion parameters take about 8 GiB.",
            cluster=True,
        ),
        PresetSetting(
            "cache.l1.size_gib", 1.0, "As much as a small machine can spare.", cluster=False
        ),
        PresetSetting(
            "cache.l1.policy",
            "arc",
            "A text that is asked about again is not pushed out by those which are read once.",
        ),
        PresetSetting(
            "cache.l1.chunk_tokens", 256, "Large: a document is found as a whole or not."
        ),
        PresetSetting(
            "cache.l2.enabled", True, "One worker reads a document, all answer about it."
        ),
        PresetSetting("cache.l2.ttl_s", 86_400, "A day: questions come all day."),
    ),
)
BATCH = Preset(
    "batch",
    "Batch",
    "A great many prompts at once; nobody waits for the first word.",
    "stack-2",
    (
        PresetSetting(
            "routing.strategy",
            "prefixaware",
            "Prompts with the same instruction share it; the others go to the least busy worker.",
        ),
        _L1_ON,
        PresetSetting("cache.l1.policy", "lru", "What is done does not come back."),
        PresetSetting(
            "cache.l2.enabled",
            False,
            "Each prompt is read once: keeping it for others costs more than it finds.",
        ),
        PresetSetting(
            "worker_args",
            ("--max-num-batched-tokens=16384",),
            "Larger steps: more tokens a second, a later first one.",
            cluster=True,
        ),
        PresetSetting(
            "rollout.drain_s", 300, "Answers are long: a leaving worker may end its own.", True
        ),
    ),
)

STARTS = (CHAT, DOCUMENTS, BATCH)
BY_KEY = {start.key: start for start in STARTS}

"""Presets of the endpoint form: field values per use case, with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PresetSetting:
    """Setting of a preset. `value` of the field at `path`. `cluster`: True for clusters, False for
    this machine, None for both.
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
        return tuple(setting for setting in self.settings if setting.cluster in (None, cluster))

    def over(self, flat: Mapping[str, Any], *, cluster: bool) -> dict[str, Any]:
        return {**flat, **{setting.path: setting.value for setting in self.here(cluster=cluster)}}


_L1_ON = PresetSetting("cache.l1.enabled", True, "Evicted device blocks stay in L1.")

CHAT = Preset(
    "chat",
    "Chat",
    "Many conversations with short turns.",
    "message",
    (
        PresetSetting(
            "routing.strategy",
            "prefixaware",
            "A turn goes to the worker that was sent the conversation so far; no session key is "
            "needed.",
        ),
        _L1_ON,
        PresetSetting("cache.l1.policy", "lru", "Recent conversations continue."),
        PresetSetting("cache.l1.chunk_tokens", 32, "Small chunks match short turns."),
        PresetSetting(
            "cache.l2.enabled",
            True,
            "Another worker reuses the conversation if its own is busy or down.",
        ),
        PresetSetting("cache.l2.ttl_s", 3600, "1 h: typical pause in a conversation."),
    ),
)
DOCUMENTS = Preset(
    "documents",
    "Long documents",
    "Few long documents with many questions about each.",
    "file-text",
    (
        PresetSetting(
            "routing.strategy",
            "kvaware",
            "Long prefills are expensive: requests go to the worker that holds the KV, also after "
            "evictions and with several routers.",
        ),
        _L1_ON,
        PresetSetting(
            "cache.l1.size_gib",
            16.0,
            "64,000 tokens of an 8B model take about 8 GiB.",
            cluster=True,
        ),
        PresetSetting("cache.l1.size_gib", 1.0, "Fits a small machine.", cluster=False),
        PresetSetting(
            "cache.l1.policy", "arc", "Documents used once do not evict documents used often."
        ),
        PresetSetting("cache.l1.chunk_tokens", 256, "Large chunks cost less for long prefixes."),
        PresetSetting(
            "cache.l2.enabled", True, "All workers reuse a document that one has computed."
        ),
        PresetSetting("cache.l2.ttl_s", 86_400, "24 h: documents are used all day."),
    ),
)
BATCH = Preset(
    "batch",
    "Batch",
    "Many prompts at once; throughput matters more than TTFT.",
    "stack-2",
    (
        PresetSetting(
            "routing.strategy",
            "prefixaware",
            "Prompts with a common instruction share its KV; others go to the least loaded worker.",
        ),
        _L1_ON,
        PresetSetting("cache.l1.policy", "lru", "Completed prompts are not reused."),
        PresetSetting(
            "cache.l2.enabled",
            False,
            "Each prompt is computed once; writes to L2 would cost more than they save.",
        ),
        PresetSetting(
            "worker_args",
            ("--max-num-batched-tokens=16384",),
            "Larger batches: more tokens/s, higher TTFT.",
            cluster=True,
        ),
        PresetSetting(
            "rollout.drain_s", 300, "Long responses complete before a worker terminates.", True
        ),
    ),
)

STARTS = (CHAT, DOCUMENTS, BATCH)
BY_KEY = {start.key: start for start in STARTS}

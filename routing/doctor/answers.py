"""Parsing of worker and router responses into facts. Pure.

An unexpected response becomes an error text, never an exception.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from console.processkit import metrics
from routing.doctor.facts import (
    CacheConfig,
    Model,
    PlacementFacts,
    Publisher,
    RoutingFacts,
    Statement,
)

T = TypeVar("T")

# Exceptions raised while parsing an unexpected response.
UNEXPECTED_REPLY_ERRORS = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
)
_OFFLOAD = "vllm:kv_offload_"
_MAX_QUOTED = 200  # maximum characters quoted from a response


def parse_reply(said: Statement[bytes], path: str, read: Callable[[bytes], T]) -> Statement[T]:
    """Apply `read` to a 200 response; convert anything else to an error text."""
    if said.found is None:
        return Statement(error=said.error, status=said.status)
    if said.status != 200:
        told = said.found[:_MAX_QUOTED].decode(errors="replace").strip()
        return Statement(error=f"{path} answered {said.status}: {told}", status=said.status)
    try:
        return Statement(read(said.found), status=200)
    except UNEXPECTED_REPLY_ERRORS:
        return Statement(error=f"{path} answered something else than expected", status=200)


def version(body: bytes) -> str:
    return str(json.loads(body)["version"])[:_MAX_QUOTED]


def models(body: bytes) -> tuple[Model, ...]:
    return tuple(
        Model(
            id=str(item["id"]),
            root=str(item.get("root") or ""),
            parent=str(item.get("parent") or ""),
            max_length=int(item.get("max_model_len") or 0),
        )
        for item in json.loads(body)["data"]
    )


def cache(body: bytes) -> CacheConfig:
    samples = metrics.parse_samples(body.decode(errors="replace"), "vllm:")
    labels = next((s.labels for s in samples if s.name == "vllm:cache_config_info"), {})
    return CacheConfig(
        engine=bool(samples),
        block_size=labels.get("block_size", ""),
        hash_algorithm=labels.get("prefix_caching_hash_algo", ""),
        prefix_caching=labels.get("enable_prefix_caching", ""),
        offloads=any(sample.name.startswith(_OFFLOAD) for sample in samples),
    )


def publishers(body: bytes) -> tuple[Publisher, ...]:
    data: dict[str, dict[str, Any]] = json.loads(body)
    return tuple(
        Publisher(
            rank=str(rank),
            enabled=item.get("enable_kv_cache_events") is not False
            and item.get("publisher") != "null",
            endpoint=str(item.get("endpoint") or ""),
            replay=str(item.get("replay_endpoint") or ""),
            buffer_steps=int(item.get("buffer_steps") or 0),
        )
        for rank, item in sorted(data.items())
    )


def tokens(body: bytes) -> tuple[int, ...]:
    return tuple(int(token) for token in json.loads(body)["tokens"])


def names(body: bytes) -> frozenset[str]:
    return frozenset(sample.name for sample in metrics.parse_samples(body.decode(errors="replace")))


def parse_routing_facts(data: dict[str, Any]) -> tuple[RoutingFacts, ...]:
    return tuple(
        RoutingFacts(
            name=str(item["id"]),
            url=str(item["url"]),
            state=str(item["state"]),
            last_error=str(item.get("last_error") or ""),
        )
        for item in data["workers"]
    )


def parse_placement(item: dict[str, Any]) -> PlacementFacts:
    cached = item.get("cached_tokens")
    return PlacementFacts(
        time=float(item.get("time") or 0),
        reason=str(item.get("reason") or ""),
        fallback=str(item.get("fallback") or ""),
        status=int(item.get("status") or 0),
        cached_tokens=cached if type(cached) is int else None,
        prompt_tokens=int(item.get("prompt_tokens") or 0),
    )


def decisions(data: dict[str, Any]) -> tuple[PlacementFacts, ...]:
    return tuple(parse_placement(item) for item in data["decisions"])


def as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

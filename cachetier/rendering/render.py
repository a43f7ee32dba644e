"""Dispatch of `render` to the connector's renderer."""

from __future__ import annotations

import json

from cachetier.client.address import AddressError
from cachetier.client.node_list import Nodes
from cachetier.rendering import external, sizes
from cachetier.rendering.spec import CacheSpec, Connector, Rendered, RenderError, Volume
from cachetier.vllm_connector.settings import (
    PASSWORD_ENV,
    PLATFORMS,
    L2Target,
    kv_transfer_config,
)

SHM = "/dev/shm"  # noqa: S108  (where vLLM puts L1)


def render(spec: CacheSpec) -> Rendered:
    """Render the spec; raise RenderError naming the invalid field, its value and the fix."""
    _check_spec(spec)
    match spec.connector:
        case Connector.NATIVE:
            return _render_native(spec)
        case Connector.LMCACHE:
            return external.render_lmcache(spec)
        case Connector.LMCACHE_SERVER:
            return external.render_lmcache_server(spec)
        case Connector.MOONCAKE:
            return external.render_mooncake(spec)


def _check_spec(spec: CacheSpec) -> None:
    if spec.l1.size_bytes <= 0:
        raise RenderError(f"l1.size_bytes: {spec.l1.size_bytes} is not a size: give some bytes")
    if spec.shape.platform not in PLATFORMS:
        known = ", ".join(PLATFORMS)
        raise RenderError(f"shape.platform: {spec.shape.platform!r} is not one of {known}")
    if spec.shape.ranks < 1:
        raise RenderError(f"shape.ranks: {spec.shape.ranks} is less than 1: give the GPUs a worker")
    chunk = spec.l1.chunk_tokens
    if chunk % spec.shape.block_tokens:
        raise RenderError(
            f"l1.chunk_tokens: {chunk} is not a multiple of vLLM's blocks of "
            f"{spec.shape.block_tokens} tokens: use {chunk - chunk % spec.shape.block_tokens or 16}"
        )
    if spec.l2 is not None and spec.l2.url:
        try:
            Nodes.parse(spec.l2.url)
        except AddressError as exc:
            raise RenderError(f"l2.url: {exc}") from None


def _render_native(spec: CacheSpec) -> Rendered:
    l2 = spec.l2
    target = None
    if l2 is not None:
        if l2.url_file:
            raise RenderError("l2.url_file: only LMCache needs one: give l2.url and password_file")
        target = L2Target(url=l2.url, model_id=l2.model_id, ttl_s=l2.ttl_s)
    try:
        config = kv_transfer_config(
            spec.l1.size_bytes,
            spec.l1.policy,
            target,
            spec.shape.platform,
            chunk_tokens=spec.l1.chunk_tokens,
        )
    except ValueError as exc:
        raise RenderError(str(exc)) from None
    found = sizes.compute_rows(spec.l1, spec.shape)
    shm = sizes.shared_memory_bytes(found.used_bytes, spec.shape)
    secret = {PASSWORD_ENV: l2.password_file} if l2 is not None and l2.password_file else {}
    return Rendered(
        args=("--kv-transfer-config", json.dumps(config, sort_keys=True, separators=(",", ":"))),
        secret_env=secret,
        volumes=(Volume("l1", SHM, shm),),
        memory_bytes=shm,
        sizes=sizes.explain_sizes(spec.l1, spec.shape, found, shm),
    )

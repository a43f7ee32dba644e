"""Renderers by connector: vLLM's tiering, LMCache and Mooncake Store.

LMCache and Mooncake settings follow their documentation and vLLM's connectors; neither was run here
(see docs/cache-workers.md).
"""

from __future__ import annotations

import json
from typing import Any

from cachetier.client.address import AddressError
from cachetier.client.node_list import Nodes
from cachetier.rendering import sizes
from cachetier.rendering.spec import (
    CacheSpec,
    Connector,
    Rendered,
    RenderedFile,
    RenderError,
    Volume,
)
from cachetier.vllm_connector.settings import PASSWORD_ENV, PLATFORMS, L2Target, kv_transfer_config

SHM = "/dev/shm"  # noqa: S108  (shared memory's own place)


def render(spec: CacheSpec) -> Rendered:
    """Render the spec; raise RenderError naming the invalid field, its value and the fix."""
    _check_spec(spec)
    match spec.connector:
        case Connector.NATIVE:
            return _render_native(spec)
        case Connector.LMCACHE:
            return render_lmcache(spec)
        case Connector.LMCACHE_SERVER:
            return render_lmcache_server(spec)
        case Connector.MOONCAKE:
            return render_mooncake(spec)


def _check_spec(spec: CacheSpec) -> None:
    if spec.l1.size_bytes <= 0:
        raise RenderError(
            f"l1.size_bytes: {spec.l1.size_bytes} is not a size above 0: set a number of bytes"
        )
    if spec.shape.platform not in PLATFORMS:
        platforms = ", ".join(PLATFORMS)
        raise RenderError(f"shape.platform: {spec.shape.platform!r} is not one of {platforms}")
    if spec.shape.ranks < 1:
        raise RenderError(
            f"shape.ranks: {spec.shape.ranks} is less than 1: set the number of GPUs per worker"
        )
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
            raise RenderError("l2.url_file: only LMCache requires it: set l2.url and password_file")
        target = L2Target(
            url=l2.url,
            model_id=l2.model_id,
            ttl_s=l2.ttl_s,
            model_arguments=l2.model_arguments,
            adapters=l2.adapters,
            revision=l2.revision,
        )
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
    rows = sizes.compute_rows(spec.l1, spec.shape)
    shm = sizes.shared_memory_bytes(rows.used_bytes, spec.shape)
    secret = {PASSWORD_ENV: l2.password_file} if l2 is not None and l2.password_file else {}
    return Rendered(
        args=_transfer(config),
        secret_env=secret,
        volumes=(Volume("l1", SHM, shm),),
        memory_bytes=shm,
        sizes=sizes.explain_sizes(spec.l1, spec.shape, rows, shm),
    )


# All workers must hash alike to find each other's blocks.
_SEED = {"PYTHONHASHSEED": "0"}
_YAML = "lmcache.yaml"
_MOONCAKE = "mooncake.json"
_MOONCAKE_BUFFER = 512 * 1024**2


def render_lmcache(spec: CacheSpec) -> Rendered:
    """Render LMCache inside the worker: one object per rank and chunk, a separate L1 per rank."""
    _require_gpu(spec)
    _require_lru(spec)
    each = sizes.per_rank(spec.l1.size_bytes, spec.shape)
    values: dict[str, Any] = {
        "chunk_size": spec.l1.chunk_tokens or sizes.LMCACHE_CHUNK_TOKENS,
        "local_cpu": True,
        "max_local_cpu_size": _to_gib(each),
    }
    secret: dict[str, str] = {}
    if spec.l2 is not None:
        values["remote_serde"] = "naive"
        if spec.l2.url_file:
            secret["LMCACHE_REMOTE_URL"] = spec.l2.url_file
        else:
            values["remote_url"] = _remote_url(spec)
    env, files = _render_settings(values, in_yaml=spec.in_yaml)
    lines = (
        (
            f"LMCache keeps {sizes.format_size(each)} for each of {spec.shape.ranks} "
            f"ranks, {sizes.format_size(spec.l1.size_bytes)} in total; the memory is "
            "pinned at worker start, which fails if the pod has less."
        ),
        f"A chunk is {values['chunk_size']} tokens, one L2 object per rank.",
    )
    return Rendered(
        args=_transfer({"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}),
        env=_SEED | env,
        secret_env=secret,
        files=files,
        memory_bytes=each * spec.shape.ranks,
        sizes=lines,
    )


def render_lmcache_server(spec: CacheSpec) -> Rendered:
    """Render LMCache as a separate process, whose size is shared by the machine's workers."""
    _require_gpu(spec)
    _require_lru(spec)
    host, _, port = spec.server.rpartition(":")
    if not host or not port.isdigit():
        raise RenderError(f"server: {spec.server!r} is not HOST:PORT, such as localhost:5555")
    companion = ["lmcache", "server", "--l1-size-gb", str(_to_gib(spec.l1.size_bytes))]
    if spec.l2 is not None:
        node = _one_node(spec)
        adapter = {"type": "resp", "host": node.host, "port": node.port}
        companion += ["--l2-adapter", _json(adapter)]
        if spec.l2.password_file or spec.l2.url_file:
            raise RenderError(
                "l2.password_file: LMCache's server accepts no password file: use a node "
                "without one inside the cluster's network, or the connector native"
            )
    config = {
        "kv_connector": "LMCacheMPConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "lmcache.mp.host": f"tcp://{host}",
            "lmcache.mp.port": int(port),
        },
    }
    shm = sizes.shared_memory_bytes(spec.l1.size_bytes, spec.shape)
    lines = (
        (
            f"LMCache's server keeps {sizes.format_size(spec.l1.size_bytes)} for all "
            "workers of its host."
        ),
        f"Workers and the server share /dev/shm, which must hold "
        f"{sizes.format_size(shm)}: both pods mount the machine's, or run as one pod.",
    )
    return Rendered(
        args=_transfer(config),
        env=_SEED,
        volumes=(Volume("lmcache", SHM, shm),),
        companion=tuple(companion),
        memory_bytes=shm,
        sizes=lines,
    )


def render_mooncake(spec: CacheSpec) -> Rendered:
    """Render Mooncake: every rank contributes memory to one pool managed by a master."""
    _require_gpu(spec)
    store = spec.mooncake
    if store is None or ":" not in store.master:
        raise RenderError("mooncake.master: is missing: set HOST:PORT of mooncake_master")
    if store.protocol not in ("rdma", "tcp"):
        raise RenderError(f"mooncake.protocol: {store.protocol!r} is not one of rdma, tcp")
    if spec.l2 is not None:
        raise RenderError("l2: Mooncake Store is the shared tier: remove l2")
    each = sizes.per_rank(spec.l1.size_bytes, spec.shape)
    content = {
        "mode": "embedded",
        "metadata_server": store.metadata,
        "master_server_address": store.master,
        "protocol": store.protocol,
        "device_name": store.device,
        "global_segment_size": each,
        "local_buffer_size": _MOONCAKE_BUFFER,
    }
    total = (each + _MOONCAKE_BUFFER) * spec.shape.ranks
    lines = (
        f"Each of {spec.shape.ranks} ranks gives {sizes.format_size(each)} to the pool and keeps "
        f"{sizes.format_size(_MOONCAKE_BUFFER)} for transfers: "
        f"{sizes.format_size(total)} a worker.",
        "With rdma the memory is registered with the network card: the pod needs the device and "
        "no limit on locked memory.",
    )
    return Rendered(
        args=_transfer({"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"}),
        env=_SEED | {"MOONCAKE_CONFIG_PATH": f"{{dir}}/{_MOONCAKE}"},
        files=(RenderedFile(_MOONCAKE, json.dumps(content, indent=2) + "\n"),),
        memory_bytes=total,
        sizes=lines,
    )


def _render_settings(
    values: dict[str, Any], *, in_yaml: bool
) -> tuple[dict[str, str], tuple[RenderedFile, ...]]:
    """Return settings as LMCACHE_<KEY> variables or one YAML file (JSON values are valid YAML)."""
    if in_yaml:
        text = "".join(f"{name}: {json.dumps(value)}\n" for name, value in values.items())
        return {"LMCACHE_CONFIG_FILE": f"{{dir}}/{_YAML}"}, (RenderedFile(_YAML, text),)
    env = {
        f"LMCACHE_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
    }
    return env, ()


def _remote_url(spec: CacheSpec) -> str:
    assert spec.l2 is not None
    if spec.l2.password_file:
        raise RenderError(
            "l2.password_file: LMCache accepts a password only in its URL: set l2.url_file, a "
            "file with the complete URL"
        )
    node = _one_node(spec)
    return f"{'rediss' if node.tls else 'redis'}://{node.host}:{node.port}"


def _one_node(spec: CacheSpec) -> Any:
    assert spec.l2 is not None
    if not spec.l2.url:
        raise RenderError("l2.url: is missing: set redis://HOST:PORT")
    nodes = Nodes.parse(spec.l2.url)
    if nodes.kind != "list" or len(nodes.addresses) != 1:
        raise RenderError(
            f"l2.url: {nodes} has several nodes, and LMCache's connector supports one: use one "
            "node, or the connector native"
        )
    return nodes.addresses[0]


def _require_gpu(spec: CacheSpec) -> None:
    if spec.shape.platform != "cuda":
        raise RenderError(
            f"connector: {spec.connector} needs a GPU: use the connector native on a CPU worker"
        )


def _require_lru(spec: CacheSpec) -> None:
    if spec.l1.policy != "lru":
        raise RenderError(
            f"l1.policy: {spec.l1.policy!r} is not supported by LMCache here: use lru"
        )


def _to_gib(count: int) -> float:
    return round(count / sizes.GIB, 3)


def _transfer(config: dict[str, Any]) -> tuple[str, ...]:
    return ("--kv-transfer-config", _json(config))


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))

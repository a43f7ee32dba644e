"""Worker cache spec and rendering result. Frozen values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class RenderError(ValueError):
    """Spec cannot be rendered; the message names the field, its value and the fix."""


class Connector(StrEnum):
    """Implementation that moves KV between worker memory, L1 and L2."""

    NATIVE = "native"  # vLLM's tiering, L2 through the Emberline plug-in
    LMCACHE = "lmcache"  # LMCache inside the worker
    LMCACHE_SERVER = "lmcache_server"  # LMCache as a separate process per machine
    MOONCAKE = "mooncake"  # Mooncake Store: memory pool across workers, RDMA if available


@dataclass(frozen=True, slots=True)
class L1:
    """Memory of one worker.

    `size_bytes` covers all tensor-parallel ranks. `chunk_tokens` is the storage unit of L1 and L2;
    0 selects the connector's default.
    """

    size_bytes: int
    policy: str = "lru"
    chunk_tokens: int = 0


@dataclass(frozen=True, slots=True)
class L2:
    """L2 cache of the workers to render. `url` is a `cachetier.client.node_list` URL. `model_id`
    names the model, `model_arguments`, `adapters` and `revision` what its KV may depend on (see
    `L2Target`). `password_file` holds the password; `url_file` a whole URL with password, needed by
    LMCache only.
    """

    url: str = ""
    model_id: str = ""
    ttl_s: int = 0
    password_file: str = ""
    url_file: str = ""
    model_arguments: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of one worker. `kv_bytes_per_token` is per rank (0: unknown, no rounding);
    `block_tokens` is vLLM's --block-size.
    """

    platform: str = "cuda"
    ranks: int = 1
    kv_bytes_per_token: int = 0
    block_tokens: int = 16


@dataclass(frozen=True, slots=True)
class Mooncake:
    """Mooncake Store as the L2 cache. `master` is HOST:PORT of mooncake_master; `device` an RDMA
    device ("" = auto).
    """

    master: str
    protocol: str = "rdma"
    device: str = ""
    metadata: str = "P2PHANDSHAKE"


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """Worker cache spec. `in_yaml` writes LMCache settings to a file instead of the environment;
    `server` is HOST:PORT of LMCache's own process.
    """

    l1: L1
    l2: L2 | None = None
    shape: Shape = field(default_factory=Shape)
    connector: Connector = Connector.NATIVE
    in_yaml: bool = False
    server: str = "localhost:5555"
    mooncake: Mooncake | None = None


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """File in the worker's folder, written as `{dir}`."""

    name: str
    content: str


@dataclass(frozen=True, slots=True)
class Volume:
    """Memory-backed mount; in a pod an `emptyDir` with medium Memory."""

    name: str
    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """Rendered cache configuration of a worker. `secret_env` maps a variable to the file with its
    value. `companion` is the argv of a process needed beside the machine's workers. `memory_bytes`
    is the pod's additional memory for the cache. `sizes` explains the numbers.
    """

    args: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, str] = field(default_factory=dict)
    files: tuple[RenderedFile, ...] = ()
    volumes: tuple[Volume, ...] = ()
    companion: tuple[str, ...] = ()
    memory_bytes: int = 0
    sizes: tuple[str, ...] = ()

"""A worker's cache as it is wanted, and what rendering makes of it. Frozen values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class RenderError(ValueError):
    """The spec cannot be rendered; the text names the field, its value and what to do."""


class Connector(StrEnum):
    """Whose code moves KV between a worker's memory, L1 and L2."""

    NATIVE = "native"  # vLLM's own tiering, L2 through our plug-in
    LMCACHE = "lmcache"  # LMCache inside the worker
    LMCACHE_SERVER = "lmcache_server"  # LMCache in a process of its own, one a machine
    MOONCAKE = "mooncake"  # Mooncake Store: a pool over the workers' memory, RDMA if there is


@dataclass(frozen=True, slots=True)
class L1:
    """Memory of one worker. `size_bytes` is for all its tensor-parallel ranks together.
    `chunk_tokens` is the unit L1 and L2 store; 0 leaves it to the connector."""

    size_bytes: int
    policy: str = "lru"
    chunk_tokens: int = 0


@dataclass(frozen=True, slots=True)
class L2:
    """`url` as `cachetier.client.node_list` reads it: one node, several, a name, a cluster; our own
    nodes and Redis or Valkey alike. `model_id` names the weights. `password_file` holds the
    password; `url_file` holds a whole URL with a password in it, which only LMCache needs."""

    url: str = ""
    model_id: str = ""
    ttl_s: int = 0
    password_file: str = ""
    url_file: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one worker. `kv_bytes_per_token` is of one rank (0: not known, so nothing is rounded);
    `block_tokens` is vLLM's --block-size."""

    platform: str = "cuda"
    ranks: int = 1
    kv_bytes_per_token: int = 0
    block_tokens: int = 16


@dataclass(frozen=True, slots=True)
class Mooncake:
    """`master` is HOST:PORT of mooncake_master; `device` names an RDMA device ("" lets it look)."""

    master: str
    protocol: str = "rdma"
    device: str = ""
    metadata: str = "P2PHANDSHAKE"


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """`in_yaml` puts LMCache's settings in a file instead of the environment; `server` is where
    LMCache's own process listens, HOST:PORT."""

    l1: L1
    l2: L2 | None = None
    shape: Shape = field(default_factory=Shape)
    connector: Connector = Connector.NATIVE
    in_yaml: bool = False
    server: str = "localhost:5555"
    mooncake: Mooncake | None = None


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """In the worker's own folder, which `{dir}` stands for."""

    name: str
    content: str


@dataclass(frozen=True, slots=True)
class Volume:
    """Memory mounted as a folder; a pod's `emptyDir` with medium Memory."""

    name: str
    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """`secret_env` maps a variable to the file with its value. `companion` is the argv of a process
    which must run beside the workers of a machine. `memory_bytes` is what a pod needs for the
    cache on top of its worker. `sizes` says in sentences where the numbers come from."""

    args: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, str] = field(default_factory=dict)
    files: tuple[RenderedFile, ...] = ()
    volumes: tuple[Volume, ...] = ()
    companion: tuple[str, ...] = ()
    memory_bytes: int = 0
    sizes: tuple[str, ...] = ()

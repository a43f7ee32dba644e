"""Cache node list URLs, in four forms:

    redis://a:6400,b:6400,c:6400          static list
    redis://cache.ns.svc:6400?nodes=dns   all addresses of a name (headless Service), re-resolved
    file:///etc/cache/nodes               one URL per line, reread when the file changes
    redis://a:6379,b:6379?nodes=cluster   Redis Cluster, discovered through any of these seeds

`replicas=2` keeps each value on two nodes (not for a cluster, which replicates itself). `rediss://`
and the options of `Address` apply to every node. Pure except `look_up` and `read_list`.
"""

from __future__ import annotations

import dataclasses
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cachetier.client.address import OPTIONS, Address, AddressError, parse_query_options

KINDS = ("list", "dns", "cluster")
MAX_NODES = 1024
_POOL_OPTIONS = frozenset({"nodes", "replicas"})


@dataclass(frozen=True, slots=True)
class Nodes:
    """Parsed list; `addresses` are static nodes, cluster seeds or the single DNS name."""

    kind: str
    addresses: tuple[Address, ...] = ()
    path: str = ""
    replicas: int = 1

    @classmethod
    def parse(cls, url: str) -> Nodes:
        parts = urlsplit(url)
        if parts.scheme == "file":
            options = parse_query_options(parts.query, frozenset({"replicas"}))
            if parts.netloc or not parts.path.startswith("/"):
                raise AddressError("a node file needs an absolute path: file:///PATH")
            return cls("file", path=parts.path, replicas=_parse_replicas(options))
        options = parse_query_options(parts.query, OPTIONS | _POOL_OPTIONS)
        own = {name: options.pop(name) for name in _POOL_OPTIONS & set(options)}
        query = "&".join(f"{name}={value}" for name, value in sorted(options.items()))
        kind = own.get("nodes", "list")
        hosts = parts.netloc.split(",")
        _reject_bad_list(kind, hosts, options, own)
        addresses = tuple(
            Address.parse(f"{parts.scheme}://{host}{parts.path}" + (f"?{query}" if query else ""))
            for host in hosts
        )
        _reject_duplicates(addresses)
        return cls(kind, addresses, replicas=_parse_replicas(own))

    def __str__(self) -> str:
        """Return the addresses without credentials, for logs."""
        if self.kind == "file":
            return f"file://{self.path}"
        first = self.addresses[0]
        hosts = ",".join(f"{address.host}:{address.port}" for address in self.addresses)
        suffix = "" if self.kind == "list" else f"?nodes={self.kind}"
        return f"{'rediss' if first.tls else 'redis'}://{hosts}/{first.database}{suffix}"


def _reject_bad_list(
    kind: str, hosts: list[str], options: dict[str, str], own: dict[str, str]
) -> None:
    if kind not in KINDS:
        raise AddressError(f"nodes={kind} is not one of {', '.join(KINDS)}")
    if len(hosts) > 1 and kind == "dns":
        raise AddressError("nodes=dns needs a single host name: give one host or remove nodes=dns")
    if len(hosts) > 1 and "name" in options:
        raise AddressError("name= is for one node: list named nodes in a file (file:///PATH)")
    if kind == "cluster" and _parse_replicas(own) > 1:
        raise AddressError("replicas= does not apply to a cluster, which manages its own replicas")


def _parse_replicas(options: dict[str, str]) -> int:
    text = options.get("replicas", "1")
    if text not in ("1", "2"):
        raise AddressError(f"replicas={text} is not 1 or 2")
    return int(text)


def _reject_duplicates(addresses: tuple[Address, ...]) -> None:
    labels = [address.label for address in addresses]
    twins = sorted({label for label in labels if labels.count(label) > 1})
    if twins:
        raise AddressError(f"{', '.join(twins)} is listed twice")
    if len(labels) > MAX_NODES:
        raise AddressError(f"{len(labels)} nodes exceed the maximum of {MAX_NODES}")


def read_list(path: str) -> tuple[Address, ...]:
    """Read the nodes in a file; raise AddressError (with the line number) or OSError."""
    nodes = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            nodes.append(Address.parse(text))
        except AddressError as exc:
            raise AddressError(f"line {number} of {path}: {exc}") from None
    addresses = tuple(nodes)
    _reject_duplicates(addresses)
    return addresses


def resolve_addresses(name: Address) -> tuple[Address, ...]:
    """Resolve a name to all its addresses, in a stable order; raise OSError on failure.

    `server_name` stays the name: certificates name the Service, not the pod's address.
    """
    entries = socket.getaddrinfo(name.host, name.port, type=socket.SOCK_STREAM)
    hosts = sorted({str(entry[4][0]) for entry in entries})
    return tuple(
        dataclasses.replace(name, host=host, server_name=name.server_name or name.host)
        for host in hosts[:MAX_NODES]
    )

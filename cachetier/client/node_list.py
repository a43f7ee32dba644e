"""Which nodes make up a cache, as one URL says it; four ways, the same client behind all:

    redis://a:6400,b:6400,c:6400          these nodes
    redis://cache.ns.svc:6400?nodes=dns   every address behind a name (a headless Service), asked
                                          for again and again
    file:///etc/cache/nodes               one URL a line; read again when the file changes
    redis://a:6379,b:6379?nodes=cluster   a Redis Cluster, found through any of these

`replicas=2` keeps every value on two nodes (not for a cluster, which has its own). `rediss://` and
the options of `Address` hold for every node. Pure but for `look_up` and `read_list`.
"""

from __future__ import annotations

import dataclasses
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cachetier.client.address import OPTIONS, Address, AddressError, query_options

KINDS = ("list", "dns", "cluster")
MAX_NODES = 1024
_POOL_OPTIONS = frozenset({"nodes", "replicas"})


@dataclass(frozen=True, slots=True)
class Nodes:
    """`addresses` are the nodes of a list, the seeds of a cluster, or the one name of "dns"."""

    kind: str
    addresses: tuple[Address, ...] = ()
    path: str = ""
    replicas: int = 1

    @classmethod
    def parse(cls, url: str) -> Nodes:
        parts = urlsplit(url)
        if parts.scheme == "file":
            options = query_options(parts.query, frozenset({"replicas"}))
            if parts.netloc or not parts.path.startswith("/"):
                raise AddressError("a file of nodes is named with its whole path: file:///PATH")
            return cls("file", path=parts.path, replicas=_replicas(options))
        options = query_options(parts.query, OPTIONS | _POOL_OPTIONS)
        own = {name: options.pop(name) for name in _POOL_OPTIONS & set(options)}
        query = "&".join(f"{name}={value}" for name, value in sorted(options.items()))
        kind = own.get("nodes", "list")
        hosts = parts.netloc.split(",")
        _refuse(kind, hosts, options, own)
        addresses = tuple(
            Address.parse(f"{parts.scheme}://{host}{parts.path}" + (f"?{query}" if query else ""))
            for host in hosts
        )
        _refuse_twins(addresses)
        return cls(kind, addresses, replicas=_replicas(own))

    def __str__(self) -> str:
        """For logs: where, never as whom."""
        if self.kind == "file":
            return f"file://{self.path}"
        first = self.addresses[0]
        hosts = ",".join(f"{one.host}:{one.port}" for one in self.addresses)
        suffix = "" if self.kind == "list" else f"?nodes={self.kind}"
        return f"{'rediss' if first.tls else 'redis'}://{hosts}/{first.database}{suffix}"


def _refuse(kind: str, hosts: list[str], options: dict[str, str], own: dict[str, str]) -> None:
    if kind not in KINDS:
        raise AddressError(f"nodes={kind} is not one of {', '.join(KINDS)}")
    if len(hosts) > 1 and kind == "dns":
        raise AddressError("nodes=dns asks for one name: give one host, or leave nodes=dns out")
    if len(hosts) > 1 and "name" in options:
        raise AddressError("name= is for one node: list named nodes in a file (file:///PATH)")
    if kind == "cluster" and _replicas(own) > 1:
        raise AddressError("replicas= is not for a cluster, which keeps replicas of its own")


def _replicas(options: dict[str, str]) -> int:
    text = options.get("replicas", "1")
    if text not in ("1", "2"):
        raise AddressError(f"replicas={text} is not 1 or 2")
    return int(text)


def _refuse_twins(addresses: tuple[Address, ...]) -> None:
    labels = [address.label for address in addresses]
    twins = sorted({label for label in labels if labels.count(label) > 1})
    if twins:
        raise AddressError(f"{', '.join(twins)} is listed twice")
    if len(labels) > MAX_NODES:
        raise AddressError(f"{len(labels)} nodes are more than {MAX_NODES}")


def read_list(path: str) -> tuple[Address, ...]:
    """The nodes in a file; AddressError (with the line's number) or OSError if it cannot be."""
    found = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            found.append(Address.parse(text))
        except AddressError as exc:
            raise AddressError(f"line {number} of {path}: {exc}") from None
    addresses = tuple(found)
    _refuse_twins(addresses)
    return addresses


def look_up(name: Address) -> tuple[Address, ...]:
    """Every address behind a name, in a stable order; OSError if it cannot be resolved.

    A server's certificate names the Service, not a pod's address: `server_name` stays the name.
    """
    entries = socket.getaddrinfo(name.host, name.port, type=socket.SOCK_STREAM)
    hosts = sorted({str(entry[4][0]) for entry in entries})
    return tuple(
        dataclasses.replace(name, host=host, server_name=name.server_name or name.host)
        for host in hosts[:MAX_NODES]
    )

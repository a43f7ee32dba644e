"""Cache node address: `redis://HOST[:PORT][/0]`, or `rediss://` for TLS, without a password."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

DEFAULT_PORT = 6379
MAX_WEIGHT = 1_000_000.0
OPTIONS = frozenset({"ca_file", "cert_file", "key_file", "server_name", "user", "name", "weight"})
_TLS_ONLY = frozenset({"ca_file", "cert_file", "key_file", "server_name"})


class AddressError(ValueError):
    """Invalid URL; the message does not repeat the URL, which may contain a secret."""


@dataclass(frozen=True, slots=True)
class Address:
    """Parsed address.

    `database` is 0 unless a plain Redis is shared. `ca_file` "" selects the system CAs,
    `server_name` "" the host; `cert_file` and `key_file` are the client certificate for mutual TLS.
    `user` is an ACL user ("" logs in with the password alone). `name` identifies a node whose
    address changes (see rendezvous). `weight` is its share of the keys beside the others', such as
    its memory in GiB.
    """

    host: str
    port: int
    tls: bool = False
    database: int = 0
    ca_file: str = ""
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    user: str = ""
    name: str = ""
    weight: float = 1.0

    @classmethod
    def parse(cls, url: str) -> Address:
        parts = urlsplit(url)
        tls = scheme_is_tls(parts.scheme)
        if "@" in parts.netloc:
            raise AddressError("a cache URL must not contain credentials: use a password file")
        if not parts.hostname:
            raise AddressError("a cache URL needs a host")
        try:
            port = DEFAULT_PORT if parts.port is None else parts.port
            database = int(parts.path.strip("/") or 0)
        except ValueError:
            raise AddressError("the cache URL has an invalid port or database") from None
        options = parse_query_options(parts.query, OPTIONS)
        reject_contradictions(options, tls=tls)
        weight = parse_weight(options.pop("weight", "1"))
        return cls(
            host=parts.hostname, port=port, tls=tls, database=database, weight=weight, **options
        )

    @property
    def label(self) -> str:
        """Return the node name used in logs, metrics and key placement."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.name or f"{host}:{self.port}"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}/{self.database}"


def scheme_is_tls(scheme: str) -> bool:
    if scheme not in ("redis", "rediss"):
        raise AddressError("a cache URL must begin with redis:// or rediss://")
    return scheme == "rediss"


def parse_query_options(query: str, known: frozenset[str]) -> dict[str, str]:
    try:
        parameters = parse_qs(query, strict_parsing=bool(query))
    except ValueError:
        raise AddressError("cache URL options are name=value, joined by &") from None
    unknown = sorted(set(parameters) - known)
    if unknown:
        raise AddressError(
            f"unknown cache URL option {', '.join(unknown)}: use {', '.join(sorted(known))}"
        )
    return {name: values[-1] for name, values in parameters.items()}


def parse_weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 0.0 < weight <= MAX_WEIGHT:
        raise AddressError(f"weight={text[:20]} is not a number above 0: use the node's memory")
    return weight


def reject_contradictions(options: dict[str, str], *, tls: bool) -> None:
    unused = sorted(_TLS_ONLY & set(options))
    if unused and not tls:
        raise AddressError(f"{', '.join(unused)} mean TLS: write rediss://, or leave them out")
    if ("cert_file" in options) != ("key_file" in options):
        raise AddressError("cert_file and key_file belong together: set both or neither")

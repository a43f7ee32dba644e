"""Where a cache is: `redis://HOST[:PORT][/0]`, `rediss://` for TLS; no password in it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

DEFAULT_PORT = 6379


class AddressError(ValueError):
    """The URL cannot be used; the text says why, without repeating what may be a secret."""


@dataclass(frozen=True, slots=True)
class Address:
    """`database` is 0 unless a plain Redis is shared with others. `ca_file` "" means the
    system's authorities; `server_name` "" means `host`."""

    host: str
    port: int
    tls: bool = False
    database: int = 0
    ca_file: str = ""
    server_name: str = ""

    @classmethod
    def parse(cls, url: str) -> Address:
        parts = urlsplit(url)
        if parts.scheme not in ("redis", "rediss"):
            raise AddressError("the URL of a cache begins with redis:// or rediss://")
        if parts.username or parts.password:
            raise AddressError("the URL of a cache must not hold credentials: use a password file")
        if not parts.hostname:
            raise AddressError("the URL of a cache needs a host")
        try:
            port = parts.port or DEFAULT_PORT
            database = int(parts.path.strip("/") or 0)
        except ValueError:
            raise AddressError("the URL of a cache holds a wrong port or database") from None
        query = parse_qs(parts.query, strict_parsing=bool(parts.query))
        unknown = sorted(set(query) - {"ca_file", "server_name"})
        if unknown:
            raise AddressError(f"the URL of a cache knows no option {', '.join(unknown)}")
        return cls(
            host=parts.hostname,
            port=port,
            tls=parts.scheme == "rediss",
            database=database,
            ca_file=query.get("ca_file", [""])[0],
            server_name=query.get("server_name", [""])[0],
        )

    def __str__(self) -> str:
        return f"{'rediss' if self.tls else 'redis'}://{self.host}:{self.port}/{self.database}"

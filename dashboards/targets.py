"""What Prometheus shall scrape, from the database, as http_sd reads it.

Promises that only who knows the token is answered (compared in constant time) and that nothing
but addresses and names is told.
"""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Any

from cachetier import selectors as cache_selectors
from endpoints import selectors as endpoint_selectors
from routing import selectors as routing_selectors


def document() -> list[dict[str, Any]]:
    """One entry for each process."""
    workers = [
        _entry(
            target.address,
            job="vllm",
            namespace=target.namespace,
            endpoint_name=target.endpoint,
            pod=target.worker,
        )
        for target in endpoint_selectors.prometheus_targets_workers()
    ]
    routers = [
        _entry(
            target.address,
            job="router",
            namespace=target.namespace,
            endpoint_name=target.endpoint,
            pod=f"{target.endpoint}-router",
        )
        for target in routing_selectors.targets()
    ]
    nodes = [
        _entry(target.address, job="l2", pod=target.name, tier=target.tier)
        for target in cache_selectors.targets()
    ]
    return [*workers, *routers, *nodes]


def _entry(address: str, **labels: str) -> dict[str, Any]:
    return {"targets": [address], "labels": labels}


def allowed(authorization: str, token_file: Path) -> bool:
    """Whether the header holds the token. Without a token file nobody is allowed."""
    kind, _, given = authorization.partition(" ")
    try:
        token = token_file.read_text(encoding="utf-8").strip()
    except OSError:
        return False
    if kind.lower() != "bearer" or not token:
        return False
    return hmac.compare_digest(given.strip().encode(), token.encode())

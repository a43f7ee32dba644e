"""Questions and orders to the admin port of nodes, each with a deadline; for actions and passes.

Promises that a node which does not answer is a fact, not an error. Must not know rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx

from cachetier.credentials import password_file
from console.fetch import fetch

FLUSH_DEADLINE_S = 5.0
_MAX_BYTES = 1024**2
_AT_ONCE = 8


def flush(nodes: Iterable[tuple[str, str]], namespace: str) -> tuple[int, list[str]]:
    """(values dropped, names of nodes that did not do it) over (name, admin URL) pairs."""
    found = list(nodes)
    query = f"?namespace={quote(namespace, safe='')}" if namespace else ""
    token = password_file().read_text().strip()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda node: _order(f"{node[1]}/flush{query}", token), found))
    silent = [name for (name, _), dropped in zip(found, answers, strict=True) if dropped is None]
    return sum(dropped or 0 for dropped in answers), silent


def _order(url: str, token: str) -> int | None:
    try:
        status, body = fetch(
            "POST",
            url,
            deadline_s=FLUSH_DEADLINE_S,
            max_bytes=_MAX_BYTES,
            headers={"authorization": f"Bearer {token}"},
        )
        said: Any = json.loads(body) if status == 200 else {}
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None
    dropped = said.get("dropped") if isinstance(said, dict) else None
    return dropped if isinstance(dropped, int) else None

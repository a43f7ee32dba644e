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
from console.core.fetch import fetch

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


def hand_over(admin_url: str, heirs: Iterable[str]) -> bool:
    """Whether the node is at handing what is hot to the heirs (HOST:PORT), begun now if it was not.

    False once it has ended, well or not, and for a node that does not answer: it holds up nobody.
    """
    status, said = _ask("GET", f"{admin_url}/stats")
    if status != 200:
        return False
    found = said.get("handover")
    if isinstance(found, dict):
        return found.get("state") == "running"
    to = quote(",".join(heirs), safe=":,")
    return bool(to) and _ask("POST", f"{admin_url}/drain?to={to}")[0] == 202


def _order(url: str, token: str) -> int | None:
    status, said = _ask("POST", url, token)
    dropped = said.get("dropped") if status == 200 else None
    return dropped if isinstance(dropped, int) else None


def _ask(method: str, url: str, token: str = "") -> tuple[int, dict[str, Any]]:
    """Status and what was said; (0, {}) for a node that cannot be understood."""
    secret = token or password_file().read_text().strip()
    try:
        status, body = fetch(
            method,
            url,
            deadline_s=FLUSH_DEADLINE_S,
            max_bytes=_MAX_BYTES,
            headers={"authorization": f"Bearer {secret}"},
        )
        said = json.loads(body)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return 0, {}
    return (status, said) if isinstance(said, dict) else (0, {})

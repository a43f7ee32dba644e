"""Client of the cache nodes' admin port, and the password and node list files.

Every call has a deadline; a node that does not respond is a result, not an error.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
from django.conf import settings

from cachetier.client.address import AddressError
from cachetier.client.node_list import read_list
from console.core.environment import generated_secret
from console.core.fetch import fetch
from console.provisioners.base import ReplicaObservation, ReplicaState


def password_file() -> Path:
    """Return the path of the password file; create it (mode 0600) unless one is configured."""
    path: Path = settings.EMBERLINE.l2_password_file
    generated_secret(path, 32)
    return path


def node_list_file(tier: str) -> Path:
    path: Path = settings.EMBERLINE.var / "cache" / f"{tier}.nodes"
    return path


FLUSH_DEADLINE_S = 5.0
_MAX_BYTES = 1024**2
_MAX_CONCURRENT = 8


def flush(nodes: Iterable[tuple[str, str]], namespace: str) -> tuple[int, list[str]]:
    """Flush the (name, admin URL) nodes; return (values dropped, names of nodes that failed)."""
    node_list = list(nodes)
    query = f"?namespace={quote(namespace, safe='')}" if namespace else ""
    token = password_file().read_text().strip()
    with ThreadPoolExecutor(_MAX_CONCURRENT) as pool:
        answers = list(
            pool.map(lambda node: _post_order(f"{node[1]}/flush{query}", token), node_list)
        )
    silent = [
        name for (name, _), dropped in zip(node_list, answers, strict=True) if dropped is None
    ]
    return sum(dropped or 0 for dropped in answers), silent


def hand_over(admin_url: str, heirs: Iterable[str]) -> bool:
    """Start a handover of hot values to `heirs` if none runs; return whether it is running.

    `heirs` are lines of the node list: keys are placed by the names in it.

    False once it has ended, successfully or not, and for a node that does not respond.
    """
    status, body = _send_request("GET", f"{admin_url}/stats")
    if status != 200:
        return False
    handover = body.get("handover")
    if isinstance(handover, dict):
        return handover.get("state") == "running"
    to = quote(",".join(heirs), safe=":,/")
    return bool(to) and _send_request("POST", f"{admin_url}/drain?to={to}")[0] == 202


def _post_order(url: str, token: str) -> int | None:
    status, body = _send_request("POST", url, token)
    dropped = body.get("dropped") if status == 200 else None
    return dropped if isinstance(dropped, int) else None


def _send_request(method: str, url: str, token: str = "") -> tuple[int, dict[str, Any]]:
    """Return (status, JSON body), or (0, {}) if the node is unreachable or the body is invalid."""
    secret = token or password_file().read_text().strip()
    try:
        status, body = fetch(
            method,
            url,
            deadline_s=FLUSH_DEADLINE_S,
            max_bytes=_MAX_BYTES,
            headers={"authorization": f"Bearer {secret}"},
        )
        document = json.loads(body)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return 0, {}
    return (status, document) if isinstance(document, dict) else (0, {})


def node_list_url(path: Path, copies: int) -> str:
    suffix = "" if copies == 1 else f"?replicas={copies}"
    return f"file://{path}{suffix}"


def node_list_lines(
    replicas: Iterable[ReplicaObservation], port: str, wanted: int, listed: Collection[str] = ()
) -> list[str]:
    """Return addresses of ready nodes, and of nodes already `listed`: a restarting node keeps its
    keys, and a new one takes keys once it serves.
    """
    return [
        f"redis://{urlsplit(replica.urls[port]).netloc}/0?name={replica.name}"
        for replica in sorted(replicas, key=lambda one: one.index)
        if replica.index < wanted
        and replica.urls.get(port)
        and (replica.state is ReplicaState.READY or replica.name in listed)
    ]


def read_listed_names(path: Path) -> set[str]:
    """Return the names in the node list file, none if it is absent or invalid."""
    try:
        return {address.label for address in read_list(str(path))}
    except (OSError, AddressError):
        return set()


def write_node_list(path: Path, found: list[str]) -> bool:
    """Write the node list; return whether the file changed."""
    text = "".join(f"{line}\n" for line in found)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
    return True

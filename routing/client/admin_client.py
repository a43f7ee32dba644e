"""Client of the router's admin port.

Returns a reply or raises `RouterSilent` within the deadline, nothing else.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import httpx

from console.core.fetch import TooLargeError, fetch
from routing.analysis.kv_index import KvIndex, read_index

T = TypeVar("T")
DEADLINE_S = 2.0
DECISIONS_PER_REQUEST = 50  # decisions per request; their hashes take a router about 10 ms
_MAX_BYTES = 16 * 1024**2
_MAX_CONCURRENT = 16


class RouterSilentError(Exception):
    """The router did not respond; the message states why. `code` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class RouterWorker:
    """Worker as seen by the router. `state` is up, down or draining."""

    id: str
    url: str
    state: str
    in_flight: int = 0
    served: int = 0
    failures: int = 0
    last_error: str = ""
    in_flight_tokens: int = 0  # load as weighed by strategies (policies.cost.load)
    cache_tokens: int = 0  # cache capacity; 0: not reported
    circuit: str = ""
    slow_start: bool = False
    pace: float = 1.0  # time for the same work relative to the fastest workers
    failed_requests: int = 0  # requests that ended in an error here; `failures` counts attempts


STATES = ("up", "draining", "down")  # of a worker, the worst last


def merge_workers(reports: Sequence[Sequence[RouterWorker]]) -> tuple[RouterWorker, ...]:
    """Merge the reports of several routers into one row per worker. Pure."""
    merged: dict[str, RouterWorker] = {}
    for worker in (worker for report in reports for worker in report):
        before = merged.get(worker.id)
        if before is None:
            merged[worker.id] = worker
            continue
        worse = max(before, worker, key=_severity)
        merged[worker.id] = replace(
            worse,
            slow_start=before.slow_start or worker.slow_start,
            in_flight=before.in_flight + worker.in_flight,
            pace=max(before.pace, worker.pace),
            served=before.served + worker.served,
            failures=before.failures + worker.failures,
            failed_requests=before.failed_requests + worker.failed_requests,
            in_flight_tokens=before.in_flight_tokens + worker.in_flight_tokens,
        )
    return tuple(merged.values())


def _severity(worker: RouterWorker) -> tuple[int, bool]:
    rank = STATES.index(worker.state) if worker.state in STATES else len(STATES)
    return rank, worker.circuit not in ("", "closed")


@dataclass(frozen=True, slots=True)
class RunningConfig:
    """Active configuration; `keys` None: open. `refused`: why a newer file was rejected."""

    strategy: str
    session_key: str
    keys: tuple[Mapping[str, Any], ...] | None
    refused: str


def workers(admin_url: str, deadline_s: float | None = None) -> tuple[RouterWorker, ...]:
    data = fetch_page(admin_url, "/workers", deadline_s)
    try:
        return read_workers(data)
    except (KeyError, TypeError, ValueError) as error:
        raise _invalid_reply() from error


def read_workers(data: Mapping[str, Any]) -> tuple[RouterWorker, ...]:
    """Parse a reply; raise KeyError, TypeError or ValueError for one of another version."""
    return tuple(
        RouterWorker(
            id=str(item["id"]),
            url=str(item["url"]),
            state=str(item["state"]),
            in_flight=int(item.get("in_flight", 0)),
            served=int(item.get("served", 0)),
            failures=int(item.get("failures", 0)),
            last_error=str(item.get("last_error") or ""),
            in_flight_tokens=int(item.get("in_flight_tokens") or 0),
            pace=float(item.get("pace") or 1.0),
            cache_tokens=int(item.get("cache_tokens") or 0),
            circuit=str(item.get("circuit") or ""),
            slow_start=bool(item.get("slow_start")),
            failed_requests=int(item.get("failed_requests") or 0),
        )
        for item in data["workers"]
    )


def config(admin_url: str, deadline_s: float | None = None) -> RunningConfig:
    data = fetch_page(admin_url, "/config", deadline_s)
    running = data.get("config")
    if not isinstance(running, dict):
        raise _invalid_reply()
    keys = running.get("keys")
    return RunningConfig(
        strategy=str(running.get("strategy", "")),
        session_key=str(running.get("session_key", "")),
        keys=None if keys is None else tuple(keys),
        refused=str(data.get("refused") or ""),
    )


def decisions(
    admin_url: str, limit: int, deadline_s: float | None = None, *, brief: bool = False
) -> list[dict[str, Any]]:
    """Return newest decisions in small pages (`brief`: no candidates), as they cost router time."""
    step = limit if brief else DECISIONS_PER_REQUEST
    decisions_by_id: dict[str, dict[str, Any]] = {}
    while len(decisions_by_id) < limit:
        path = f"/decisions?limit={min(step, limit - len(decisions_by_id))}"
        path += f"&skip={len(decisions_by_id)}" if decisions_by_id else ""
        page = fetch_page(admin_url, path + ("&brief=1" if brief else ""), deadline_s).get(
            "decisions"
        )
        if not isinstance(page, list) or not all(isinstance(item, dict) for item in page):
            raise _invalid_reply()
        before = len(decisions_by_id)
        for item in page:
            decisions_by_id.setdefault(str(item.get("id")), item)
        if len(decisions_by_id) == before or len(page) < step:
            break
    return list(decisions_by_id.values())


def decision(admin_url: str, number: str, deadline_s: float | None = None) -> dict[str, Any] | None:
    """Return the decision, None if the router does not have it."""
    try:
        return fetch_page(admin_url, f"/decisions/{quote(number, safe='')}", deadline_s)
    except RouterSilentError as error:
        if error.code == "http_404":
            return None
        raise


def explain(
    admin_url: str,
    body: dict[str, Any],
    deadline_s: float | None = None,
    *,
    strategy: str = "",
    key: str = "",
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the worker ranking for a request (JSON body and headers) without sending it.

    Optionally by another strategy that the router can evaluate, or as if sent with `key`.
    """
    parameters = {name: value for name, value in (("strategy", strategy), ("key", key)) if value}
    path = f"/explain?{urlencode(parameters)}" if parameters else "/explain"
    return _call("POST", admin_url, path, deadline_s, body, headers)


def index(admin_url: str, deadline_s: float | None = None) -> KvIndex | None:
    """Return the KV index; None if the strategy uses none."""
    return read_index(fetch_page(admin_url, "/index", deadline_s))


def usage(admin_url: str, deadline_s: float | None = None) -> dict[str, Any]:
    page = fetch_page(admin_url, "/usage", deadline_s)
    if not isinstance(page.get("instance"), str) or not isinstance(page.get("keys"), dict):
        raise _invalid_reply()
    return page


def misses(admin_url: str, deadline_s: float | None = None) -> dict[str, Any]:
    """Return computed prompt tokens by cause and hour."""
    page = fetch_page(admin_url, "/misses", deadline_s)
    if not isinstance(page.get("slots"), list):
        raise _invalid_reply()
    return page


def canary(admin_url: str, deadline_s: float | None = None) -> dict[str, Any]:
    """Return the router's process ID and the statistics of its canary, null without one."""
    page = fetch_page(admin_url, "/canary", deadline_s)
    statistics = page.get("canary")
    if not isinstance(page.get("instance"), str) or not isinstance(statistics, dict | None):
        raise _invalid_reply()
    return page


def recording(
    admin_url: str, instance: str, after: int, deadline_s: float | None = None
) -> dict[str, Any]:
    """Return recorded traffic beyond piece `after` of the router process `instance`."""
    query = urlencode({"instance": instance, "after": after})
    page = fetch_page(admin_url, f"/recording?{query}", deadline_s)
    if not isinstance(page.get("instance"), str) or not isinstance(page.get("pieces"), list):
        raise _invalid_reply()
    return page


def send_budgets(
    admin_url: str,
    instance: str,
    budgets: Mapping[str, Mapping[str, Any]],
    deadline_s: float | None = None,
) -> None:
    """Send the remaining budgets of keys to the router process `instance`."""
    body = {"instance": instance, "keys": budgets}
    _call("POST", admin_url, "/budgets", deadline_s, body)


def fetch_page(admin_url: str, path: str, deadline_s: float | None = None) -> dict[str, Any]:
    return _call("GET", admin_url, path, deadline_s)


def _call(
    method: str,
    admin_url: str,
    path: str,
    deadline_s: float | None,
    body: dict[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    timeout_s = DEADLINE_S if deadline_s is None else deadline_s
    if not admin_url:
        raise RouterSilentError("no_router", "The endpoint has no router yet.")
    try:
        status, content = fetch(
            method,
            admin_url.rstrip("/") + path,
            deadline_s=timeout_s,
            max_bytes=_MAX_BYTES,
            json=body,
            headers=headers,
        )
    except httpx.ConnectError as error:
        text = "The router does not respond: nothing listens on its admin port. It may be starting."
        raise RouterSilentError("refused", text) from error
    except httpx.TimeoutException as error:
        text = f"The router did not respond within {timeout_s:g} s."
        raise RouterSilentError("timeout", text) from error
    except TooLargeError as error:
        raise _invalid_reply() from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        text = f"The router could not be queried ({type(error).__name__})."
        raise RouterSilentError("broken", text) from error
    if status != 200:
        raise RouterSilentError(f"http_{status}", _error_text(status, content))
    try:
        data = json.loads(content)
    except ValueError as error:
        raise _invalid_reply() from error
    if not isinstance(data, dict):
        raise _invalid_reply()
    return data


def _error_text(status: int, content: bytes) -> str:
    """Return the router's error message, if any."""
    try:
        return f"Router error: {json.loads(content)['error']['message']}"[:500]
    except (ValueError, KeyError, TypeError):
        return f"The router returned HTTP {status}."


def _invalid_reply() -> RouterSilentError:
    text = "The router's response is not valid. Router and console may have different versions."
    return RouterSilentError("odd_answer", text)


# ---- all routers of an endpoint, each within the deadline of a single one


@dataclass(frozen=True, slots=True)
class RouterReply(Generic[T]):
    """Reply of one router: `answer`, or `error` without an answer."""

    url: str
    answer: T | None = None
    error: str = ""


def query_routers(
    urls: Sequence[str], question: Callable[[str], T], budget_s: float = math.inf
) -> list[RouterReply[T]]:
    """Return replies in the order of `urls`; `question` may raise RouterSilent. Routers that are
    not reached within `budget_s` count as silent.
    """
    until = time.monotonic() + budget_s
    if len(urls) == 1:
        return [_query_router(urls[0], question)]
    if not urls:
        return []
    with ThreadPoolExecutor(min(_MAX_CONCURRENT, len(urls))) as pool:
        return list(pool.map(lambda url: _query_router(url, question, until), urls))


def _query_router(
    url: str, question: Callable[[str], T], until: float = math.inf
) -> RouterReply[T]:
    if time.monotonic() > until:
        return RouterReply(url, error="Not queried in time.")
    try:
        return RouterReply(url, question(url))
    except RouterSilentError as silence:
        return RouterReply(url, error=silence.message)


def describe_missing(words: Sequence[RouterReply[T]]) -> str:
    """Return why the result is incomplete: "" if every router responded."""
    bad = [word for word in words if word.error]
    if not bad:
        return ""
    if len(words) == 1:
        return bad[0].error
    return f"{len(bad)} of {len(words)} routers did not respond. {bad[0].error}"

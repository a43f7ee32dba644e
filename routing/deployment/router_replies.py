"""Concurrent requests to all routers of an endpoint.

Each router yields one reply or error, within the time limit of a single one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from routing.deployment.admin_client import RouterSilentError

T = TypeVar("T")
MAX_CONCURRENT = 16


@dataclass(frozen=True, slots=True)
class RouterReply(Generic[T]):
    """Reply of one router: `answer`, or `error` without an answer."""

    url: str
    answer: T | None = None
    error: str = ""


def query_routers(urls: Sequence[str], question: Callable[[str], T]) -> list[RouterReply[T]]:
    """Return replies in the order of `urls`; `question` may raise RouterSilent."""
    if len(urls) == 1:
        return [_query_router(urls[0], question)]
    if not urls:
        return []
    with ThreadPoolExecutor(min(MAX_CONCURRENT, len(urls))) as pool:
        return list(pool.map(lambda url: _query_router(url, question), urls))


def _query_router(url: str, question: Callable[[str], T]) -> RouterReply[T]:
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
    return f"{len(bad)} of {len(words)} routers did not answer. {bad[0].error}"

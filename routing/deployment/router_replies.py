"""One question to every router of an endpoint at once. Must not know Django.

Promises one word from each, its answer or why there is none, within the time one of them may take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from routing.deployment.admin_client import RouterSilent

T = TypeVar("T")
AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class RouterReply(Generic[T]):
    """What one router said: `answer`, or `error` (and then no answer)."""

    url: str
    answer: T | None = None
    error: str = ""


def each(urls: Sequence[str], question: Callable[[str], T]) -> list[RouterReply[T]]:
    """In the order of `urls`. `question` gets a router's admin URL and may raise RouterSilent."""
    if len(urls) == 1:
        return [_word(urls[0], question)]
    if not urls:
        return []
    with ThreadPoolExecutor(min(AT_ONCE, len(urls))) as pool:
        return list(pool.map(lambda url: _word(url, question), urls))


def _word(url: str, question: Callable[[str], T]) -> RouterReply[T]:
    try:
        return RouterReply(url, question(url))
    except RouterSilent as silence:
        return RouterReply(url, error=silence.message)


def silent(words: Sequence[RouterReply[T]]) -> str:
    """Why what is shown is not all of it: "" when every router has answered."""
    bad = [word for word in words if word.error]
    if not bad:
        return ""
    if len(words) == 1:
        return bad[0].error
    return f"{len(bad)} of {len(words)} routers did not answer. {bad[0].error}"

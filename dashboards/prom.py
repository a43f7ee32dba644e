"""Asks Prometheus. The only file that talks HTTP to it, behind typed values.

Promises never to raise for what Prometheus does or fails to do (`Answer.problem` says which of
three things went wrong), a deadline on every question, and that one page's questions cost one
round of waiting at most when Prometheus hangs. Must not know Django or any metric.

Facts about prometheus-api-client which this file lives with: without a Retry of its own a refused
port takes six seconds to fail; without a timeout it waits for ever; times are rounded to whole
seconds but not aligned to the step; it may not share one session between threads.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Protocol

CONNECT_S = 1.0
READ_S = 4.0
# A page waits so long for all of its questions together.
PAGE_S = 6.0
CACHE_S = 5.0
# After Prometheus was away nobody else waits for it for so long.
PAUSE_S = 3.0
MAX_POINTS = 600
_CACHE_ENTRIES = 512
_THREADS = 6
_SHOWN_ERROR = 300


class Problem(StrEnum):
    NOT_CONFIGURED = "not_configured"
    UNREACHABLE = "unreachable"
    BAD_QUERY = "bad_query"


@dataclass(frozen=True, slots=True)
class Series:
    """One line: `times` in epoch seconds, `values` None where Prometheus said NaN or infinity."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float | None, ...]

    @property
    def last(self) -> float | None:
        """The newest value there is."""
        return next((value for value in reversed(self.values) if value is not None), None)

    @property
    def last_time(self) -> float | None:
        pairs = zip(reversed(self.times), reversed(self.values), strict=True)
        return next((moment for moment, value in pairs if value is not None), None)


@dataclass(frozen=True, slots=True)
class Answer:
    series: tuple[Series, ...] = ()
    problem: Problem | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """A range whose ends lie on the step, so that the same minute gives the same points."""

    start: int
    end: int
    step: int

    @classmethod
    def ending_now(cls, range_s: int, step: int, now: float | None = None) -> Window:
        if range_s / step > MAX_POINTS:
            raise ValueError(f"{range_s} s in steps of {step} s are more than {MAX_POINTS} points")
        moment = time.time() if now is None else now
        end = math.floor(moment / step) * step
        return cls(end - range_s, end, step)


class Source(Protocol):
    """What pages need of Prometheus."""

    def range(self, queries: Iterable[str], window: Window) -> dict[str, Answer]: ...

    def instant(self, queries: Iterable[str]) -> dict[str, Answer]: ...


class NoPrometheus:
    """Stands in where none is configured."""

    def range(self, queries: Iterable[str], window: Window) -> dict[str, Answer]:  # noqa: ARG002
        return dict.fromkeys(queries, _NOT_CONFIGURED)

    def instant(self, queries: Iterable[str]) -> dict[str, Answer]:
        return dict.fromkeys(queries, _NOT_CONFIGURED)


_NOT_CONFIGURED = Answer(problem=Problem.NOT_CONFIGURED, message="No Prometheus is configured.")
_Key = tuple[str, Window | None]


@dataclass(slots=True)
class _Memory:
    """Answers of the last seconds, and until when asking is not worth a try."""

    answers: OrderedDict[_Key, tuple[float, Answer]] = field(default_factory=OrderedDict)
    away_until: float = 0.0
    away: Answer | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def recall(self, key: _Key) -> Answer | None:
        now = time.monotonic()
        with self.lock:
            if self.away is not None and now < self.away_until:
                return self.away
            found = self.answers.get(key)
            return found[1] if found is not None and now - found[0] < CACHE_S else None

    def keep(self, key: _Key, answer: Answer) -> None:
        with self.lock:
            if answer.problem is Problem.UNREACHABLE:
                self.away, self.away_until = answer, time.monotonic() + PAUSE_S
                return
            self.answers[key] = (time.monotonic(), answer)
            self.answers.move_to_end(key)
            while len(self.answers) > _CACHE_ENTRIES:
                self.answers.popitem(last=False)


class Prometheus:
    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._memory = _Memory()
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="prometheus")

    def range(self, queries: Iterable[str], window: Window) -> dict[str, Answer]:
        """An answer for each query."""
        return self._ask_all(list(dict.fromkeys(queries)), window)

    def instant(self, queries: Iterable[str]) -> dict[str, Answer]:
        """As `range`, with one point in each series: now."""
        return self._ask_all(list(dict.fromkeys(queries)), None)

    def _ask_all(self, queries: Sequence[str], window: Window | None) -> dict[str, Answer]:
        found: dict[str, Answer] = {}
        asked = {}
        for query in queries:
            known = self._memory.recall((query, window))
            if known is not None:
                found[query] = known
            else:
                asked[query] = self._pool.submit(self._ask, query, window)
        deadline = time.monotonic() + PAGE_S
        for query, future in asked.items():
            try:
                answer = future.result(max(0.0, deadline - time.monotonic()))
            except TooLate:
                future.cancel()
                answer = self._silent(f"it did not answer within {PAGE_S:g} s")
                self._memory.keep((query, window), answer)
            found[query] = answer
        return {query: found[query] for query in queries}

    def _ask(self, query: str, window: Window | None) -> Answer:
        key = (query, window)
        # Another of this page's questions may have found out meanwhile that nobody answers.
        known = self._memory.recall(key)
        if known is not None:
            return known
        answer = self._fetch(query, window)
        self._memory.keep(key, answer)
        return answer

    def _fetch(self, query: str, window: Window | None) -> Answer:
        from prometheus_api_client.exceptions import PrometheusApiClientException
        from requests import RequestException

        params = {"timeout": f"{READ_S:g}s"}
        try:
            client = self._client()
            if window is None:
                raw = client.custom_query(query, params=params)
            else:
                raw = client.custom_query_range(
                    query,
                    datetime.fromtimestamp(window.start, UTC),
                    datetime.fromtimestamp(window.end, UTC),
                    str(window.step),
                    params=params,
                )
            return Answer(tuple(_series(item) for item in raw))
        except PrometheusApiClientException as error:
            return self._refused(str(error))
        except RequestException as error:
            return self._silent(_plainly(error))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return self._silent("what answers there is not Prometheus")

    def _client(self) -> Any:
        """This thread's own client."""
        client = getattr(self._local, "client", None)
        if client is None:
            from prometheus_api_client import PrometheusConnect
            from requests import Session
            from urllib3.util.retry import Retry

            session = Session()
            session.trust_env = False  # a proxy of the environment is not for 127.0.0.1
            client = PrometheusConnect(
                self._url, retry=Retry(total=0), session=session, timeout=(CONNECT_S, READ_S)
            )
            self._local.client = client
        return client

    def _refused(self, text: str) -> Answer:
        """400 and 422 are about the query; anything else means Prometheus is not itself."""
        code = text.removeprefix("HTTP Status Code ")[:3]
        if code in ("400", "422"):
            return Answer(
                problem=Problem.BAD_QUERY,
                message=f"Prometheus refused the query: {text[:_SHOWN_ERROR]}",
            )
        return self._silent(f"it answers HTTP {code}")

    def _silent(self, why: str) -> Answer:
        return Answer(
            problem=Problem.UNREACHABLE, message=f"Prometheus at {self._url} is away: {why}."
        )


@lru_cache(maxsize=4)
def connect(url: str) -> Source:
    """The one client of this process for the URL; "" gives one that says it is not configured."""
    return Prometheus(url) if url else NoPrometheus()


def _series(item: Mapping[str, Any]) -> Series:
    pairs = item["values"] if "values" in item else [item["value"]]
    return Series(
        labels={str(name): str(value) for name, value in item["metric"].items()},
        times=tuple(float(moment) for moment, _ in pairs),
        values=tuple(_value(text) for _, text in pairs),
    )


def _value(text: str) -> float | None:
    """Prometheus sends text; NaN and infinities have no place in JSON or on a chart."""
    number = float(text)
    return number if math.isfinite(number) else None


def _plainly(error: Exception) -> str:
    """Without addresses, object names and stack: those are in nobody's interest."""
    name = type(error).__name__
    if "Timeout" in name or "timed out" in str(error):
        return f"it did not answer within {READ_S:g} s"
    if "Connection" in name:
        return "nothing listens there"
    return name


def relabelled(series: Series, **labels: str) -> Series:
    """The same line under other labels."""
    return replace(series, labels=labels)

"""Prometheus client with deadlines, a result cache and typed faults.

Every query returns within its deadline: series on a grid of whole steps, or a fault; never an
exception, never NaN. An unreachable Prometheus is not queried again for `cache_s`; a slow or
rejected query does not mark the server as down. User-written queries run on separate threads.

Retries are off: with the library's defaults a refused port costs 6 s and a hanging server 15 s.
Each session is used by one thread only (`requests` does not guarantee thread safety).
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, Literal, Protocol
from urllib.parse import unquote, urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from console.core.outbound import ForbiddenAddressError
from dashboards.prometheus.http.login import Auth, Login, LoginError
from dashboards.prometheus.http.session import (
    GuardedAdapter,
    LivenessProbe,
    make_session,
    parse_refusal,
)

log = logging.getLogger(__name__)

MAX_POINTS = 600  # per series; Prometheus rejects more than 11,000
_LONG_S = 60  # s; longer steps use a finer grid
_THREADS = 6  # concurrent queries; Prometheus runs 20 by default, the local one 10
_HEAVY_THREADS = 2
_CACHED = 512
_MAX_SERIES = 20_000  # per result, where the server supports `limit` (3.0 and newer)
_FREE_QUERY = "vector(1)"
_LIMIT_ERROR = re.compile(
    r"too many (?:samples|series|chunks|bytes|outstanding)"
    r"|maximum (?:number|limit) (?:of|on) (?:samples|series|chunks|bytes)"
    r"|exceed\w* (?:the )?(?:\w+ )?(?:samples|series|chunks|bytes)?\s*limit",
    re.IGNORECASE,
)


Join = Literal["apart", "sum", "max"]


class FaultKind(StrEnum):
    NOT_CONFIGURED = "not_configured"
    UNREACHABLE = "unreachable"
    NOT_PROMETHEUS = "not_prometheus"
    BAD_QUERY = "bad_query"
    TOO_SLOW = "too_slow"
    TOO_EXPENSIVE = "too_expensive"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Fault:
    """Reason why a query failed. `detail` is shown to users; it never contains a password from the
    URL.
    """

    kind: FaultKind
    detail: str


@dataclass(frozen=True, slots=True)
class Window:
    """Epoch seconds (UTC). `ending` aligns to whole steps so that results can be shared; long steps
    align to a finer grid, or the newest values would be up to one step old.
    """

    start: int
    end: int
    step: int

    @classmethod
    def ending(cls, now: float, length_s: int, step_s: int) -> Window:
        if step_s < 1 or length_s // step_s >= MAX_POINTS:
            raise ValueError(f"{length_s} s in steps of {step_s} s is not 1 to {MAX_POINTS} points")
        grid = step_s if step_s <= _LONG_S else step_s // 12
        end = int(now) // grid * grid
        return cls(end - length_s // step_s * step_s, end, step_s)

    @property
    def previous(self) -> Window:
        return Window(self.start - self.length_s, self.start, self.step)

    @property
    def points(self) -> int:
        return (self.end - self.start) // self.step + 1

    @property
    def length_s(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Series:
    """Series of a query's result. `values[i]` is the value at `start + i * step`; None where there
    is none.
    """

    labels: tuple[tuple[str, str], ...]
    values: tuple[float | None, ...]

    def label(self, name: str) -> str:
        return dict(self.labels).get(name, "")

    @property
    def latest(self) -> float | None:
        return next((value for value in reversed(self.values) if value is not None), None)

    @property
    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield first and last index of consecutive values."""
        first: int | None = None
        for place, value in enumerate((*self.values, None)):
            if value is not None and first is None:
                first = place
            elif value is None and first is not None:
                yield first, place - 1
                first = None


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A fault, or series sorted by labels (possibly none). `missing`: faults of the sources that
    did not answer in a federated query.
    """

    series: tuple[Series, ...] = ()
    fault: Fault | None = None
    missing: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """Query to Prometheus. `window` None evaluates at `at` only. `join` merges series with equal
    labels from several sources; `apart` adds the label `metrics_source` instead. `heavy`: a
    user-written query of unknown cost.
    """

    query: str
    at: int
    window: Window | None = None
    join: Join = "apart"
    heavy: bool = False


@dataclass(frozen=True, slots=True)
class Deadlines:
    connect_s: float = 1.0
    read_s: float = 5.0
    page_s: float = 8.0
    cache_s: float = 5.0
    frozen_s: float = 2.0


class Asker(Protocol):
    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]: ...


class Prometheus:
    def __init__(
        self,
        url: str,
        deadlines: Deadlines | None = None,
        login: Login | None = None,
        name: str = "",
    ) -> None:
        self.url, self.login = _split_login(url.rstrip("/"), login or Login(own=True))
        self.name = name
        self.shown_url = hide_login(self.url)
        self.deadlines = deadlines or Deadlines()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="prometheus")
        self._heavy = ThreadPoolExecutor(_HEAVY_THREADS, thread_name_prefix="prometheus-heavy")
        query = f"{self.url}/api/v1/query?query={_FREE_QUERY}"
        self._probe = LivenessProbe(self.login, query, self.deadlines.connect_s)
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._results: OrderedDict[Question, tuple[float, Future[QueryResult]]] = OrderedDict()
        self._away: tuple[float, Fault] | None = None

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        """Run all queries concurrently; a query that misses the deadline gets a fault."""
        return self.begin(questions)()

    def begin(self, questions: Mapping[str, Question]) -> Callable[[], dict[str, QueryResult]]:
        """Send the queries; return a function that waits for the results."""
        if not self.url:
            fault = Fault(FaultKind.NOT_CONFIGURED, "No Prometheus is configured.")
            nothing = dict.fromkeys(questions, QueryResult(fault=fault))
            return lambda: nothing
        futures = {name: self._submit(question) for name, question in questions.items()}
        return partial(self._gathered, futures, time.monotonic() + self.deadlines.page_s)

    def _gathered(
        self, futures: Mapping[str, Future[QueryResult]], end: float
    ) -> dict[str, QueryResult]:
        answers = {}
        late = self._unreachable("did not respond in time")
        soon = time.monotonic() + self.deadlines.frozen_s
        if soon < end and self._is_frozen(futures.values()):
            end = 0.0
        for name, future in futures.items():
            try:
                answers[name] = future.result(max(0.0, end - time.monotonic()))
            except (FutureTimeout, CancelledError):
                future.cancel()  # spare the server a query without a reader
                answers[name] = QueryResult(fault=late)
        if any(answer.fault is late for answer in answers.values()) and self._probe.is_alive():
            slow = QueryResult(fault=Fault(FaultKind.TOO_SLOW, late.detail))
            return {
                key: slow if answer.fault is late else answer for key, answer in answers.items()
            }
        if answers and all(answer.fault is late for answer in answers.values()):
            self._leave_alone(late)
        return answers

    def _is_frozen(self, futures: Collection[Future[QueryResult]]) -> bool:
        """Return whether no query ended soon and the server does not answer the cheapest one
        either: then nobody has to wait for the deadlines.
        """
        done, _ = wait(futures, self.deadlines.frozen_s, FIRST_COMPLETED)
        return bool(futures) and not done and not self._probe.is_alive()

    def close(self) -> None:
        self._probe.close()
        for pool in (self._pool, self._heavy):
            pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, question: Question) -> Future[QueryResult]:
        now = time.monotonic()
        with self._lock:
            result = self._results.get(question)
            is_fresh = result is not None and now - result[0] < self.deadlines.cache_s
            if result is not None and is_fresh and not result[1].cancelled():
                return result[1]
            if result is None and len(self._results) >= _CACHED:
                self._results.popitem(last=False)
            pool = self._heavy if question.heavy else self._pool
            future = pool.submit(self._answer, question)
            self._results[question] = (now, future)
            self._results.move_to_end(question)
            return future

    def _answer(self, question: Question) -> QueryResult:
        away = self._away
        if away is not None and time.monotonic() < away[0]:
            return QueryResult(fault=away[1])
        try:
            with self._retyped():
                return QueryResult(series=_parse(self._fetch(question), question.window))
        except _QueryError as error:
            failed, fault = error, error.fault
        if fault.kind is FaultKind.UNREACHABLE:
            if not self._probe.is_alive():
                self._leave_alone(fault)
            elif failed.is_late:
                fault = Fault(FaultKind.TOO_SLOW, fault.detail)
        log.warning("Prometheus query failed (%s): %s", fault.kind, fault.detail)
        return QueryResult(fault=fault)

    def _leave_alone(self, fault: Fault) -> None:
        """Suspend queries for `cache_s`: a page sends several in sequence."""
        self._away = (time.monotonic() + self.deadlines.cache_s, fault)

    def _fetch(self, question: Question) -> Any:
        try:
            client = self._client()
        except LoginError as error:
            raise _QueryError(self._unreachable(f"cannot be asked. {error}")) from error
        except ValueError as error:
            raise _QueryError(self._unreachable("has an invalid address")) from error
        # The server's timeout is shorter than ours: a slow query is then not mistaken for a dead
        # server.
        limit = {"timeout": f"{self.deadlines.read_s * 0.8:g}s", "limit": str(_MAX_SERIES)}
        window = question.window
        if window is None:
            return client.custom_query(question.query, params={"time": question.at, **limit})
        return client.custom_query_range(
            question.query,
            datetime.fromtimestamp(window.start, UTC),
            datetime.fromtimestamp(window.end, UTC),
            str(window.step),
            params=limit,
        )

    def _client(self) -> PrometheusConnect:
        client: PrometheusConnect | None = getattr(self._mine, "client", None)
        if client is None:
            asking = make_session(self.login)
            client = PrometheusConnect(
                url=self.url,
                session=asking,
                retry=Retry(total=0),
                timeout=(self.deadlines.connect_s, self.deadlines.read_s),
            )
            # replaces the adapter the client mounted there
            asking.mount(self.url, GuardedAdapter(self.login))
            self._mine.client = client
        return client

    @contextmanager
    def _retyped(self) -> Iterator[None]:
        try:
            yield
        except PrometheusApiClientException as error:
            raise _QueryError(self._refused(str(error))) from error
        except (ForbiddenAddressError, LoginError) as error:
            raise _QueryError(self._unreachable(f"cannot be asked. {error}")) from error
        except requests.Timeout as error:
            late = not isinstance(error, requests.ConnectTimeout)
            fault = self._unreachable("did not respond in time")
            raise _QueryError(fault, is_late=late) from error
        except requests.exceptions.JSONDecodeError as error:
            raise _QueryError(self._strange()) from error
        except requests.ConnectionError as error:
            raise _QueryError(self._unreachable("is unreachable")) from error
        except requests.RequestException as error:
            reason = f"cannot be asked ({type(error).__name__})"
            raise _QueryError(self._unreachable(reason)) from error
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise _QueryError(self._strange()) from error

    def _refused(self, text: str) -> Fault:
        status, kind, detail = parse_refusal(text)
        if kind == "timeout" or status == 429:
            text = (
                detail
                or f"{self._who()} rejected the query: too many concurrent queries (HTTP 429)."
            )
            return Fault(FaultKind.TOO_SLOW, text)
        if kind and _LIMIT_ERROR.search(detail):
            return Fault(FaultKind.TOO_EXPENSIVE, detail)
        if kind and status in (400, 422):
            return Fault(FaultKind.BAD_QUERY, detail)
        if status in (401, 403):
            text = f"{self._who()} denied access (HTTP {status})."
            return Fault(FaultKind.REFUSED, text)
        if not kind and 300 <= status < 400:
            return self._strange(f" It answered HTTP {status}: redirects are not followed.")
        if not kind and status < 500:
            return self._strange(f" It answered HTTP {status}.")
        return self._unreachable(f"answers HTTP {status}")

    def _unreachable(self, what: str) -> Fault:
        return Fault(FaultKind.UNREACHABLE, f"{self._who()} {what.rstrip('.')}.")

    def _who(self) -> str:
        return f"Prometheus {f'{self.name} ' if self.name else ''}at {self.shown_url}"

    def _strange(self, more: str = "") -> Fault:
        return Fault(
            FaultKind.NOT_PROMETHEUS, f"The server at {self.shown_url} is not Prometheus.{more}"
        )


@lru_cache(maxsize=64)
def connect(url: str, login: Login | None = None, name: str = "") -> Prometheus:
    """Return the process-wide client of that Prometheus, so that all pages share its cache. Another
    secret makes another client.
    """
    return Prometheus(url, login=login, name=name)


class _QueryError(Exception):
    """Failed query. `is_late`: the server was reached but exceeded the deadline."""

    def __init__(self, fault: Fault, *, is_late: bool = False) -> None:
        super().__init__(fault.detail)
        self.fault = fault
        self.is_late = is_late


def _parse(result: Any, window: Window | None) -> tuple[Series, ...]:
    if not isinstance(result, list):
        raise TypeError("expected a list of series")
    all_series = [_series(item, window) for item in result]
    return tuple(sorted(all_series, key=lambda series: series.labels))


def _series(item: Any, window: Window | None) -> Series:
    labels = tuple(sorted((str(name), str(value)) for name, value in item["metric"].items()))
    if window is None:
        return Series(labels, (_number(item["value"][1]),))
    # Most of a board's CPU time, so without calls for each sample.
    start, step, points, is_finite = window.start, window.step, window.points, math.isfinite
    values: list[float | None] = [None] * points
    for moment, text in item["values"]:
        place = round((float(moment) - start) / step)
        if 0 <= place < points:
            value = float(text)
            values[place] = value if is_finite(value) else None
    return Series(labels, tuple(values))


def _number(text: Any) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _split_login(url: str, login: Login) -> tuple[str, Login]:
    try:
        parts = urlsplit(url)
        has_login = parts.username or parts.password
    except ValueError:
        return url, login
    if not has_login or login.auth is not Auth.NONE:
        return url, login
    who, secret = unquote(parts.username or ""), unquote(parts.password or "")
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return bare, replace(login, auth=Auth.BASIC, username=who, secret=secret)


def hide_login(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the address in PROMETHEUS_URL"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

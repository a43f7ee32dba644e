"""Collection of facts for the checks from routers and workers.

Ends within the deadline even if nothing responds, changes nothing and triggers no inference (the
only prompts sent are fixed texts, to /tokenize). A missing fact has an error text.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import httpx

from console.core.fetch import TooLargeError, fetch
from console.processkit import metrics
from routing.analysis.kv_index import as_list, as_object, read_index
from routing.client import admin_client
from routing.client.admin_client import RouterSilentError
from routing.client.router_reports import read_exchange, router_name
from routing.doctor.facts import (
    CacheConfig,
    FleetFacts,
    Model,
    PlacementFacts,
    Publisher,
    RouterFacts,
    Statement,
    WorkerFacts,
)

PLAIN, CHAT = "a plain text", "a chat"

_SYSTEM = {"role": "system", "content": "Be brief."}
_USER = {"role": "user", "content": "Naïve 你好, it's  1234567?"}
# Probe name -> /tokenize body, without the model.
PROBES: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {"prompt": _USER["content"]},
    CHAT: {"messages": [_SYSTEM, _USER]},
}


T = TypeVar("T")

_MAX_BYTES = 8 * 1024**2
_THREADS = 16
DECISIONS = 200
# Exceptions raised while parsing an unexpected response.
_UNEXPECTED_REPLY = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
_OFFLOAD = "vllm:kv_offload_"
_MAX_QUOTED = 200  # maximum characters quoted from a response


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts in seconds: per request, and in total."""

    question_s: float = 2.0
    all_s: float = 8.0


@dataclass(frozen=True, slots=True)
class NamedWorker:
    """Known worker. `leaving`: the router may have removed it already."""

    name: str
    url: str
    leaving: bool = False


def gather_facts(
    endpoint: str,
    admin_urls: Sequence[str],
    workers: Iterable[NamedWorker] | None = None,
    limits: Limits | None = None,
) -> FleetFacts:
    """Gather facts; `workers` None uses those known to the routers."""
    limits = limits or Limits()
    begun = time.monotonic()
    end = begun + limits.all_s
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="doctor")
    try:
        queried = [_query_router(pool, url, limits) for url in admin_urls]
        routers = tuple(_router(futures, end) for futures in queried)
        named = {worker.name: worker.url for worker in workers or ()}
        for router_worker in (worker for router in routers for worker in router.workers):
            named.setdefault(router_worker.id, router_worker.url)
        futures = {
            name: pool.submit(_worker, name, url, limits.question_s, end)
            for name, url in named.items()
        }
        workers_seen = tuple(
            _wait(futures[name], end, _unreachable_worker(name, url, "not queried in time"))
            for name, url in named.items()
        )
    finally:
        # Late requests are ignored; each thread ends by its own deadline.
        pool.shutdown(wait=False, cancel_futures=True)
    names = None if workers is None else frozenset(w.name for w in workers if not w.leaving)
    return FleetFacts(
        endpoint=endpoint,
        router=routers[0],
        routers=routers,
        workers=workers_seen,
        wanted=names,
        now=time.time(),
        seconds=time.monotonic() - begun,
    )


_LATE: Statement[Any] = Statement(error="No response in time.")
_WORKERS, _CONFIG, _INDEX, _PEERS = "/workers", "/config", "/index", "/peers"
_DECISIONS = f"/decisions?limit={DECISIONS}"


@dataclass(frozen=True, slots=True)
class _Queried:
    name: str
    pages: Mapping[str, Future[Statement[dict[str, Any]]]]
    metrics: Future[Statement[bytes]]


def _query_router(pool: ThreadPoolExecutor, url: str, limits: Limits) -> _Queried:
    paths = (_WORKERS, _CONFIG, _INDEX, _PEERS, _DECISIONS)
    pages = {path: pool.submit(_page, url, path, limits.question_s) for path in paths}
    counted = pool.submit(_send_request, "GET", url + "/metrics", limits.question_s)
    return _Queried(router_name(url), pages, counted)


def _router(router: _Queried, end: float) -> RouterFacts:
    page = {path: _wait(future, end, _LATE) for path, future in router.pages.items()}
    config, index = page[_CONFIG], page[_INDEX]
    workers = _understood(page[_WORKERS], admin_client.read_workers)
    if workers.found is None or config.found is None:
        return RouterFacts(name=router.name, error=workers.error or config.error)
    settings = config.found
    return RouterFacts(
        name=router.name,
        strategy=str(as_object(settings.get("config")).get("strategy") or ""),
        refused=str(settings.get("refused") or ""),
        needs_restart=tuple(str(name) for name in as_list(settings.get("needs_restart"))),
        workers=workers.found,
        kv=read_index(index.found) if index.found is not None else None,
        kv_error=index.error,
        exchange=_understood(page[_PEERS], read_exchange).found,
        decisions=_understood(page[_DECISIONS], _read_decisions).found or (),
        metrics=_parse_reply(_wait(router.metrics, end, _LATE), "/metrics", _read_metric_names),
    )


def _page(url: str, path: str, deadline_s: float) -> Statement[dict[str, Any]]:
    try:
        return Statement(admin_client.fetch_page(url, path, deadline_s), status=200)
    except RouterSilentError as silence:
        return Statement(error=silence.message)


def _understood(page: Statement[dict[str, Any]], reader: Callable[[Any], T]) -> Statement[T]:
    if page.found is None:
        return Statement(error=page.error)
    try:
        return Statement(reader(page.found), status=200)
    except _UNEXPECTED_REPLY:
        return Statement(error="Router and doctor have different versions.")


def _worker(name: str, url: str, deadline_s: float, end: float) -> WorkerFacts:
    """Query one worker sequentially, to limit the load on it."""

    def ask(path: str, reader: Callable[[bytes], T], body: Any = None) -> Statement[T]:
        left = min(deadline_s, end - time.monotonic())
        if left <= 0:
            return Statement(error=f"{path} was not queried in time")
        method = "GET" if body is None else "POST"
        reply = _send_request(method, url.rstrip("/") + path, left, body)
        return _parse_reply(reply, path, reader)

    version = ask("/version", _read_version)
    if not version.status:  # unreachable: further requests would time out too
        return _unreachable_worker(name, url, version.error)
    models = ask("/v1/models", _read_models)
    worker_facts = WorkerFacts(
        name=name,
        url=url,
        version=version,
        models=models,
        cache=ask("/metrics", _read_cache),
        publishers=ask("/kv_event_sources", _read_publishers),
    )
    if not models.found:
        return worker_facts
    model = models.found[0].id
    tokens: dict[str, tuple[int, ...] | None] = {}
    for probe, body in PROBES.items():
        reply = ask("/tokenize", _read_tokens, {"model": model, **body})
        if reply.found is None and reply.status not in (400, 422):
            return replace(worker_facts, tokens=Statement(error=reply.error, status=reply.status))
        tokens[probe] = reply.found
    return replace(worker_facts, tokens=Statement(tokens, status=200))


def _unreachable_worker(name: str, url: str, error: str) -> WorkerFacts:
    nothing: Statement[Any] = Statement(error=error)
    return WorkerFacts(name, url, nothing, nothing, nothing, nothing, nothing)


def _send_request(method: str, url: str, deadline_s: float, body: Any = None) -> Statement[bytes]:
    try:
        status, content = fetch(method, url, deadline_s=deadline_s, max_bytes=_MAX_BYTES, json=body)
    except httpx.TimeoutException:
        return Statement(error=f"no response within {deadline_s:.1f} s")
    except TooLargeError:
        return Statement(error="the response is too large", status=200)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Statement(error=f"is unreachable ({type(error).__name__})")
    return Statement(content, status=status)


def _wait(future: Future[T], end: float, late: T) -> T:
    try:
        return future.result(max(0.0, end - time.monotonic()))
    except FutureTimeout:
        return late


# ---- parsing: an unexpected response becomes an error text, never an exception


def _parse_reply(reply: Statement[bytes], path: str, read: Callable[[bytes], T]) -> Statement[T]:
    """Apply `read` to a 200 response; convert anything else to an error text."""
    if reply.found is None:
        return Statement(error=reply.error, status=reply.status)
    if reply.status != 200:
        text = reply.found[:_MAX_QUOTED].decode(errors="replace").strip()
        return Statement(error=f"{path} returned HTTP {reply.status}: {text}", status=reply.status)
    try:
        return Statement(read(reply.found), status=200)
    except _UNEXPECTED_REPLY:
        return Statement(error=f"{path} returned an unexpected response", status=200)


def _read_version(body: bytes) -> str:
    return str(json.loads(body)["version"])[:_MAX_QUOTED]


def _read_models(body: bytes) -> tuple[Model, ...]:
    return tuple(
        Model(
            id=str(item["id"]),
            root=str(item.get("root") or ""),
            parent=str(item.get("parent") or ""),
            max_length=int(item.get("max_model_len") or 0),
        )
        for item in json.loads(body)["data"]
    )


def _read_cache(body: bytes) -> CacheConfig:
    samples = metrics.parse_samples(body.decode(errors="replace"), "vllm:")
    labels = next((s.labels for s in samples if s.name == "vllm:cache_config_info"), {})
    return CacheConfig(
        engine=bool(samples),
        block_size=labels.get("block_size", ""),
        hash_algorithm=labels.get("prefix_caching_hash_algo", ""),
        prefix_caching=labels.get("enable_prefix_caching", ""),
        offloads=any(sample.name.startswith(_OFFLOAD) for sample in samples),
    )


def _read_publishers(body: bytes) -> tuple[Publisher, ...]:
    data: dict[str, dict[str, Any]] = json.loads(body)
    return tuple(
        Publisher(
            rank=str(rank),
            enabled=item.get("enable_kv_cache_events") is not False
            and item.get("publisher") != "null",
            endpoint=str(item.get("endpoint") or ""),
            replay=str(item.get("replay_endpoint") or ""),
            buffer_steps=int(item.get("buffer_steps") or 0),
        )
        for rank, item in sorted(data.items())
    )


def _read_tokens(body: bytes) -> tuple[int, ...]:
    return tuple(int(token) for token in json.loads(body)["tokens"])


def _read_metric_names(body: bytes) -> frozenset[str]:
    return frozenset(sample.name for sample in metrics.parse_samples(body.decode(errors="replace")))


def _read_placement(item: dict[str, Any]) -> PlacementFacts:
    cached = item.get("cached_tokens")
    return PlacementFacts(
        time=float(item.get("time") or 0),
        reason=str(item.get("reason") or ""),
        fallback=str(item.get("fallback") or ""),
        status=int(item.get("status") or 0),
        cached_tokens=cached if type(cached) is int else None,
        prompt_tokens=int(item.get("prompt_tokens") or 0),
    )


def _read_decisions(data: dict[str, Any]) -> tuple[PlacementFacts, ...]:
    return tuple(_read_placement(item) for item in data["decisions"])

"""Reports of an endpoint's routers about themselves, and where they disagree. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from routing.analysis.kv_index import KvIndex
from routing.client.admin_client import RouterWorker

_BLOCK_SLACK = 256  # of one worker: events in flight
_BLOCK_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class ExchangeState:
    """A router's exchange of state with the others through a store.

    `id`: of the router among `peers`. `rejected`: messages of others by reason. `lag_s`: time of a
    heartbeat through the store, None if not known. `lost`: placements dropped or ignored.
    """

    id: str
    store: str
    connected: bool
    error: str = ""
    reason: str = ""
    remedy: str = ""
    away_since: datetime | None = None
    lag_s: float | None = None
    peers: tuple[str, ...] = ()
    failures: int = 0
    waiting: int = 0
    lost: int = 0
    budget_checks_alone: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RouterReport:
    """State that a router reports. `error` is "" if it responded. `kv` is None if its strategy uses
    no KV index; `exchange` is None if no state store is configured.
    """

    name: str = ""
    error: str = ""
    strategy: str = ""
    workers: tuple[RouterWorker, ...] = ()
    kv: KvIndex | None = None
    exchange: ExchangeState | None = None

    @property
    def in_flight(self) -> int:
        return sum(worker.in_flight for worker in self.workers)

    @property
    def followed(self) -> int:
        """Return the number of workers whose KV events it receives."""
        sources = self.kv.sources if self.kv is not None else ()
        return len({source.worker for source in sources if source.following})

    @property
    def exchange_words(self) -> str:
        """Return the state of the exchange as a word."""
        if self.error:
            return "unknown"
        if self.exchange is None:
            return "off"
        return "connected" if self.exchange.connected else "away"

    def data(self) -> dict[str, Any]:
        exchange, kv = self.exchange, self.kv
        return {
            "name": self.name,
            "error": self.error,
            "strategy": self.strategy,
            "in_flight": self.in_flight,
            "workers": {worker.id: worker.state for worker in self.workers},
            "kv_blocks": None if kv is None else kv.blocks,
            "kv_workers_followed": None if kv is None else self.followed,
            "exchange": None
            if exchange is None
            else {
                "id": exchange.id,
                "store": exchange.store,
                "connected": exchange.connected,
                "error": exchange.error,
                "reason": exchange.reason,
                "remedy": exchange.remedy,
                "away_since": exchange.away_since,
                "lag_s": exchange.lag_s,
                "peers": list(exchange.peers),
                "failures": exchange.failures,
                "waiting_placements": exchange.waiting,
                "lost_placements": exchange.lost,
                "budget_checks_alone": exchange.budget_checks_alone,
                "rejected_messages": dict(exchange.rejected),
            },
        }


def router_name(url: str) -> str:
    """Return HOST:PORT of its admin port."""
    return urlsplit(url).netloc or url


def read_exchange(data: Mapping[str, Any]) -> ExchangeState | None:
    """Parse a `/peers` reply; raise KeyError, TypeError or ValueError for an invalid one."""
    exchange = data["exchange"]
    if exchange is None:
        return None
    since, lag = exchange.get("away_since"), exchange.get("lag_s")
    messages = {str(name): int(n) for name, n in (exchange.get("messages") or {}).items()}
    return ExchangeState(
        id=str(exchange["router"]),
        store=str(exchange["store"]),
        connected=bool(exchange["connected"]),
        error=str(exchange["error"]),
        reason=str(exchange.get("reason", "")),
        remedy=str(exchange.get("remedy", "")),
        away_since=datetime.fromtimestamp(float(since), UTC) if since else None,
        lag_s=None if lag is None else float(lag),
        peers=tuple(str(peer["router"]) for peer in exchange["peers"]),
        failures=int(exchange.get("failures", 0)),
        waiting=int(exchange["waiting_placements"]),
        lost=int(exchange["dropped_placements"]) + int(exchange["ignored_placements"]),
        budget_checks_alone=int(exchange.get("budget_checks_alone", 0)),
        rejected={name: n for name, n in messages.items() if n and name != "applied"},
    )


def disagreements(reports: Sequence[RouterReport]) -> tuple[str, ...]:
    """Return what the routers that responded report differently, one line per fact."""
    answered = [report for report in reports if not report.error]
    texts = [*_difference("strategy", {report.name: report.strategy for report in answered})]
    for worker_id in sorted({worker.id for report in answered for worker in report.workers}):
        states = {
            report.name: next((w.state for w in report.workers if w.id == worker_id), "unknown")
            for report in answered
        }
        texts += _difference(worker_id, states)
    return (*texts, *index_disagreements(reports))


def index_disagreements(reports: Sequence[RouterReport]) -> tuple[str, ...]:
    """Return where the KV indexes of the routers that responded differ."""
    indexed = {report.name: report.kv for report in reports if report.kv is not None}
    texts: list[str] = []
    for worker_id in sorted({s.worker for kv in indexed.values() for s in kv.sources}):
        sources = {
            name: [source for source in kv.sources if source.worker == worker_id]
            for name, kv in indexed.items()
        }
        events = {
            name: "followed" if any(s.following for s in of) else "not followed"
            for name, of in sources.items()
        }
        blocks = {name: sum(s.blocks for s in of) for name, of in sources.items()}
        most, least = max(blocks.values()), min(blocks.values())
        different = [*_difference(f"KV events of {worker_id}", events)]
        if not different and most - least > max(_BLOCK_SLACK, _BLOCK_SHARE * most):
            different = [*_difference(f"indexed blocks of {worker_id}", blocks)]
        texts += different
    return tuple(texts)


def _difference(what: str, values: Mapping[str, object]) -> Iterator[str]:
    if len(set(values.values())) > 1:
        yield f"{what}: " + ", ".join(f"{value} at {name}" for name, value in values.items())


def unheard(reports: Sequence[RouterReport]) -> tuple[str, ...]:
    """Return which connected routers do not hear another one that is connected, too."""
    joined = [
        (report.name, report.exchange)
        for report in reports
        if report.exchange and report.exchange.connected
    ]
    return tuple(
        f"{name} does not hear {other_name}"
        for name, exchange in joined
        for other_name, other in joined
        if other.id != exchange.id and other.id not in exchange.peers
    )

"""Merge configured and discovered workers into the table.

On duplicate ids or addresses the configured worker wins, then the one discovered first.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Protocol

from routing.engine.config import Config, WorkerConfig, WorkerTlsConfig
from routing.engine.config.tls import worker_context
from routing.engine.fleet.connection_pool import ConnectionPool
from routing.engine.fleet.health import Vitals
from routing.engine.fleet.pace import PaceMeter
from routing.engine.fleet.workers import NO_LIMIT, Worker, WorkerTable
from routing.engine.misses.ledger import MissLedger
from routing.engine.observe.logs import Log
from routing.engine.observe.metrics import Metrics
from routing.engine.policies import base
from routing.engine.policies.base import RoutingPolicy


class RosterOwner(Protocol):
    config: Config
    log: Log
    metrics: Metrics
    misses: MissLedger
    pace: PaceMeter
    policy: RoutingPolicy
    table: WorkerTable

    def note_worker_change(self, worker: Worker, what: str) -> None: ...


def merge_workers(*groups: Iterable[WorkerConfig]) -> dict[str, WorkerConfig]:
    """Merge by id; a later entry with a known id or address is dropped."""
    merged: dict[str, WorkerConfig] = {}
    places = set()
    for group in groups:
        for worker in group:
            # The configuration may list an address twice on purpose; discovery may not.
            repeated = worker.address in places and worker.source != "config"
            if worker.id not in merged and not repeated:
                merged[worker.id] = worker
                places.add(worker.address)
    return merged


class Roster:
    """Sole owner of additions to and removals from the table."""

    def __init__(self, router: RosterOwner) -> None:
        self._router = router
        self.routers = 1  # that divide the limits of workers; 1: not divided
        self._discovered: tuple[WorkerConfig, ...] = ()
        self._policy: RoutingPolicy | None = None
        self._tls: WorkerTlsConfig | None = None
        self._context: ssl.SSLContext | None = None

    def discovered(self, workers: tuple[WorkerConfig, ...]) -> None:
        self._discovered = workers
        self.take_over(self._router.config)

    def take_over(self, config: Config) -> None:
        table = self._router.table
        table.rules = config.health
        workers = merge_workers(config.workers, self._discovered)
        for worker in list(table.workers.values()):
            new = workers.get(worker.id)
            if new is None or (new.address, new.tls_name) != (worker.address, worker.tls_name):
                self._remove(worker)
            else:
                self._update(worker, new, config)
        for item in workers.values():
            if item.id not in table.workers:
                self._add(item, config)
            most = item.max_in_flight or config.admission.worker_max_in_flight
            table.workers[item.id].max_in_flight = -(-most // self.routers) or NO_LIMIT
        if self._router.policy is not self._policy:
            self._policy = self._router.policy
            for worker in table.workers.values():
                self._introduce(worker)
        table.refresh()

    def _add(self, item: WorkerConfig, config: Config) -> None:
        worker = Worker(item)
        worker.pool = self._pool(item, config)
        worker.probe_pool = self._pool(item, config)
        self._router.table.add(worker)
        self._router.misses.worker_added()
        self._introduce(worker)
        self._router.log.event(
            "info", "worker_added", worker=worker.id, url=worker.url, source=worker.source
        )

    def _update(self, worker: Worker, new: WorkerConfig, config: Config) -> None:
        worker.url = new.url
        worker.source = new.source
        worker.kv_events = new.kv_events
        worker.kv_replay = new.kv_replay
        worker.config_draining = new.draining
        worker.pool.connect_timeout_s = config.limits.connect_timeout_s
        worker.probe_pool.connect_timeout_s = config.limits.connect_timeout_s
        if new.cache_tokens != worker.config_cache_tokens:
            worker.config_cache_tokens = worker.cache_tokens = new.cache_tokens
        self.set_capacity(worker)

    def _remove(self, worker: Worker) -> None:
        router = self._router
        router.table.remove(worker.id)
        router.policy.forget(worker)
        router.pace.forget(worker)
        router.note_worker_change(worker, "removed")
        router.metrics.forget_worker(worker.id)
        worker.pool.close()
        worker.probe_pool.close()
        router.log.event("info", "worker_removed", worker=worker.id, in_flight=worker.own_in_flight)

    def _introduce(self, worker: Worker) -> None:
        policy = self._router.policy
        decisions = self._router.metrics.decisions
        reasons = (*policy.reasons, base.RETRY, base.PINNED)
        worker.decisions = {
            reason: decisions.child(policy.name, reason, worker.id) for reason in reasons
        }
        self.set_capacity(worker)

    # -- TLS

    def _pool(self, worker: WorkerConfig, config: Config) -> ConnectionPool:
        tls = self._context if worker.tls_name else None
        name = config.worker_tls.server_name or worker.tls_name
        return ConnectionPool(worker.address, config.limits.connect_timeout_s, tls, name)

    def renew_tls(self, config: Config) -> None:
        """Rebuild the TLS context for https:// workers if it changed. Raise ConfigError."""
        if not config.discovery.tls and not any(worker.tls_name for worker in config.workers):
            return
        if config.worker_tls == self._tls:
            return
        context = worker_context(config.worker_tls)
        self._tls = config.worker_tls
        self._context = context
        if config.worker_tls.insecure_skip_verify:
            self._router.log.event(
                "warning",
                "worker_tls_not_verified",
                field="worker_tls.insecure_skip_verify",
                effect="traffic to the workers can be intercepted and modified",
            )
        for worker in self._router.table.workers.values():
            if worker.tls_name:
                name = config.worker_tls.server_name or worker.tls_name
                worker.pool.renew(context, name)
                worker.probe_pool.renew(context, name)

    # -- worker facts

    def learn_vitals(self, worker: Worker, vitals: Vitals) -> None:
        """Apply a worker's metrics; a changed process start time discards its remembered state."""
        router = self._router
        before, worker.started = worker.started, vitals.started or worker.started
        if before is not None and worker.started is not None and worker.started > before + 1:
            router.policy.forget(worker)
            router.pace.forget(worker)
            router.table.start_slowly(worker)
            router.note_worker_change(worker, "restarted")
            router.log.event("warning", "worker_restarted", worker=worker.id)
        worker.block_size = vitals.block_size or worker.block_size
        router.misses.learn_block_size(worker.id, vitals.block_size)
        if vitals.cache_tokens and not worker.config_cache_tokens:
            if vitals.cache_tokens != worker.cache_tokens:
                router.log.event(
                    "info", "worker_cache", worker=worker.id, tokens=vitals.cache_tokens
                )
            worker.cache_tokens = vitals.cache_tokens
        self.set_capacity(worker)

    def set_capacity(self, worker: Worker) -> None:
        router = self._router
        if worker.cache_tokens:
            router.policy.set_capacity(worker.id, worker.cache_tokens, router.config.l1_tokens)

"""Discovery sources and their tasks.

A source that stays configured keeps running; a removed one takes its workers and metrics with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from routing.engine.config import DiscoveryConfig, WorkerConfig
from routing.engine.discovery.api import KubernetesApi
from routing.engine.discovery.base import WorkerFinder
from routing.engine.discovery.dns import DnsFinder
from routing.engine.discovery.kubernetes import EndpointSlices

if TYPE_CHECKING:
    from routing.engine.observe.logs import Log
    from routing.engine.observe.metrics import Metrics


class Discovery:
    """Set of discovery sources. `found` is called with all discovered workers on every change."""

    def __init__(
        self, found: Callable[[tuple[WorkerConfig, ...]], None], log: Log, metrics: Metrics
    ) -> None:
        self._found = found
        self._log = log
        self._metrics = metrics
        self._config = DiscoveryConfig()
        self._finders: dict[str, WorkerFinder] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @staticmethod
    def check(config: DiscoveryConfig) -> None:
        """Raise ConfigError for a source that cannot be queried."""
        if config.services:
            KubernetesApi(config.kubernetes)

    def follow(self, config: DiscoveryConfig) -> None:
        if config == self._config:
            return
        finders: list[WorkerFinder] = [
            DnsFinder(name, config.dns_interval_s) for name in config.dns
        ]
        if config.services:
            api = KubernetesApi(config.kubernetes)
            finders += [EndpointSlices(service, api) for service in config.services]
        by_name = {finder.name: finder for finder in finders}
        # API server and interval affect all sources: restart them, keeping their last results.
        before, self._config = self._config, config
        anew = (config.dns_interval_s, config.kubernetes) != (
            before.dns_interval_s,
            before.kubernetes,
        )
        for name in list(self._finders):
            if anew or name not in by_name:
                self._stop(name, by_name.get(name))
        for finder in finders:
            if finder.name not in self._finders:
                self._start(finder)
        self._changed()

    def _start(self, finder: WorkerFinder) -> None:
        finder.attach(self._changed, self._log, self._metrics)
        self._finders[finder.name] = finder
        task = asyncio.get_running_loop().create_task(finder.run())
        task.add_done_callback(lambda done: self._ended(finder, done))
        self._tasks[finder.name] = task

    def _stop(self, name: str, heir: WorkerFinder | None) -> None:
        self._tasks.pop(name).cancel()
        finder = self._finders.pop(name)
        if heir is not None:
            heir.workers = finder.workers
        else:
            self._metrics.forget_source(name)

    def _ended(self, finder: WorkerFinder, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            finder.error = f"discovery stopped: {task.exception()!r}"
            self._log.event("error", "discovery_ended", source=finder.name, error=finder.error)

    def _changed(self) -> None:
        workers = [worker for finder in self._finders.values() for worker in finder.workers]
        self._found(tuple(workers))

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def show(self) -> list[dict[str, Any]]:
        return [
            {
                "source": finder.name,
                "workers": len(finder.workers),
                "last_success": finder.last_success,
                "error": finder.error,
            }
            for finder in self._finders.values()
        ]

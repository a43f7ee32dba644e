"""Worker discovery by a Service's EndpointSlices: list, then watch.

Continues from the last resourceVersion, lists again on 410, and backs off while the API is down.
Only pods that are ready and not terminating become workers. A former worker that is not ready
drains: its requests finish and its cache contents are remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from routing.engine.config import Address, Service, WorkerConfig
from routing.engine.discovery.api import ANSWER_S, KubernetesApi
from routing.engine.discovery.base import DiscoveryError, WorkerFinder

_WORKER_ID = re.compile(r"[a-z0-9][a-z0-9.-]{0,127}")
WATCH_S = 240  # server-side watch timeout; the next watch continues from the last version
PAGE_SIZE = 100
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0


def _find_port(data: Mapping[str, Any], wanted: str) -> int:
    """Return the named port, or the first one; 0 if there is none."""
    for port in data.get("ports") or ():
        if not wanted or port.get("name") == wanted:
            number = port.get("port")
            return number if isinstance(number, int) and 0 < number < 65536 else 0
    return 0


def _slice_name(endpoint: Mapping[str, Any], address: Address) -> str:
    target = endpoint.get("targetRef") or {}
    name = str(target.get("name", "")) if target.get("kind") == "Pod" else ""
    return name if _WORKER_ID.fullmatch(name) else str(address)


def _address_order(data: Mapping[str, Any]) -> tuple[bool, str]:
    """Sort key: a dual-stack pod is in slices of both families; prefer IPv4."""
    return data.get("addressType") != "IPv4", str((data.get("metadata") or {}).get("name"))


def workers_of_service(
    slices: Iterable[Mapping[str, Any]], service: Service, source: str, known: Collection[str]
) -> tuple[WorkerConfig, ...]:
    """Return the workers of a Service. `known`: ids of the previous workers."""
    worker_configs: dict[str, WorkerConfig] = {}
    for data in sorted(slices, key=_address_order):
        port = _find_port(data, service.port_name)
        if not port or data.get("addressType") not in ("IPv4", "IPv6"):
            continue
        for endpoint in data.get("endpoints") or ():
            addresses = endpoint.get("addresses") or ()
            if not addresses:
                continue
            address = Address(str(addresses[0]), port)
            name = _slice_name(endpoint, address)
            conditions = endpoint.get("conditions") or {}
            # Kubernetes API: an unset condition means ready and not terminating.
            serving = conditions.get("ready") is not False and not conditions.get("terminating")
            if not serving and name not in known:
                continue
            before = worker_configs.get(name)
            if before is None or (before.draining and serving):
                worker_configs[name] = _make_worker(
                    name, address, service, source, draining=not serving
                )
    return tuple(worker_configs[name] for name in sorted(worker_configs))


def _make_worker(
    name: str, address: Address, service: Service, source: str, draining: bool
) -> WorkerConfig:
    scheme = "https" if service.tls else "http"
    return WorkerConfig(
        name,
        f"{scheme}://{address}",
        address,
        draining,
        tls_name=f"{service.name}.{service.namespace}.svc" if service.tls else "",
        source=source,
    )


def _metadata(data: Any, name: str) -> str:
    metadata = data.get("metadata") if isinstance(data, dict) else None
    return str(metadata.get(name) or "") if isinstance(metadata, dict) else ""


class EndpointSlices(WorkerFinder):
    kind = "endpointslices"
    reasons = KubernetesApi.reasons

    def __init__(self, service: Service, api: KubernetesApi) -> None:
        super().__init__(str(service))
        self._service = service
        self._api = api
        self._slices: dict[str, Mapping[str, Any]] = {}
        self._version = ""  # "": a list is required
        self._pause = FIRST_PAUSE_S
        selector = quote(f"kubernetes.io/service-name={service.name}", safe="")
        self._path = (
            f"/apis/discovery.k8s.io/v1/namespaces/{service.namespace}/endpointslices"
            f"?labelSelector={selector}"
        )

    async def run(self) -> None:
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except DiscoveryError as error:
                if error.reason == "expired":
                    self._version = ""  # expired version, not an error
                    self.count(error)
                else:
                    self.failed(error)
            except TimeoutError:
                self.failed(DiscoveryError("unreachable", "the API did not respond in time"))
            # Minimum interval, also after a watch that ended at once.
            await asyncio.sleep(self._pause * random.uniform(0.8, 1.2))
            self._pause = min(self._pause * 2, MAX_PAUSE_S)

    async def _list(self) -> None:
        slices: dict[str, Mapping[str, Any]] = {}
        token = ""
        while True:
            more = f"&continue={quote(token, safe='')}" if token else ""
            page = await self._api.get(f"{self._path}&limit={PAGE_SIZE}{more}")
            if not isinstance(page, dict) or not isinstance(page.get("items"), list):
                raise DiscoveryError("bad_answer", "the API response is not a list")
            for item in page["items"]:
                slices[_metadata(item, "name")] = item
            token = _metadata(page, "continue")
            if not token:
                break
        self._slices = slices
        self._version = _metadata(page, "resourceVersion")
        self._apply_slices()

    async def _watch(self) -> None:
        """Apply changes, watch after watch, until one fails or ends too early."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            seconds = round(WATCH_S * random.uniform(0.8, 1.2))
            path = (
                f"{self._path}&watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}"
                f"&resourceVersion={quote(self._version, safe='')}"
            )
            async with contextlib.aclosing(self._api.lines(path, seconds + ANSWER_S)) as events:
                async for event in events:
                    if event is not None:
                        self._take(event)
                    self._apply_slices()
            if loop.time() - began < FIRST_PAUSE_S:
                return
            self._pause = FIRST_PAUSE_S

    def _take(self, event: Any) -> None:
        kind = event.get("type") if isinstance(event, dict) else None
        data = event.get("object") if isinstance(event, dict) else None
        if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR") or not isinstance(
            data, dict
        ):
            raise DiscoveryError("bad_answer", "the API sent no event")
        if kind == "ERROR":
            code = data.get("code")
            reason = "expired" if code == 410 else "status"
            raise DiscoveryError(reason, f"the watch ended: {code} {data.get('message', '')}"[:500])
        self._version = _metadata(data, "resourceVersion") or self._version
        if kind != "BOOKMARK":
            name = _metadata(data, "name")
            if kind == "DELETED":
                self._slices.pop(name, None)
            else:
                self._slices[name] = data

    def _apply_slices(self) -> None:
        ids = {worker.id for worker in self.workers}
        try:
            worker_configs = workers_of_service(
                self._slices.values(), self._service, self.name, ids
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self._version = ""  # the version cannot be trusted
            raise DiscoveryError(
                "bad_answer", f"the API response is not an EndpointSlice: {error}"
            ) from None
        self.succeeded(worker_configs)

"""Worker discovery by a Service's EndpointSlices: list, then watch.

Continues from the last resourceVersion, lists again on 410, and backs off while the API is down.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from routing.engine.config import Service
from routing.engine.discovery import slices
from routing.engine.discovery.api import ANSWER_S, KubernetesApi
from routing.engine.discovery.base import DiscoveryError, WorkerFinder

WATCH_S = 240  # server-side watch timeout; the next watch continues from the last version
PAGE_SIZE = 100
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0


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
                self.failed(DiscoveryError("unreachable", "the API did not answer in time"))
            # Minimum interval, also after a watch that ended at once.
            await asyncio.sleep(self._pause * random.uniform(0.8, 1.2))
            self._pause = min(self._pause * 2, MAX_PAUSE_S)

    async def _list(self) -> None:
        found: dict[str, Mapping[str, Any]] = {}
        token = ""
        while True:
            more = f"&continue={quote(token, safe='')}" if token else ""
            page = await self._api.get(f"{self._path}&limit={PAGE_SIZE}{more}")
            if not isinstance(page, dict) or not isinstance(page.get("items"), list):
                raise DiscoveryError("bad_answer", "the API's answer is no list")
            for item in page["items"]:
                found[_metadata(item, "name")] = item
            token = _metadata(page, "continue")
            if not token:
                break
        self._slices = found
        self._version = _metadata(page, "resourceVersion")
        self._told()

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
                    self._told()
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

    def _told(self) -> None:
        known = {worker.id for worker in self.workers}
        try:
            found = slices.workers_of_service(
                self._slices.values(), self._service, self.name, known
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self._version = ""  # the version cannot be trusted
            raise DiscoveryError("bad_answer", f"the API's answer is no slice: {error}") from None
        self.succeeded(found)

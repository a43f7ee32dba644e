"""EndpointSlices of a real API server: list, watch and errors.

No kubelet runs, so the pods are invented; tests/support/kube runs real ones.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.routing.engine.harness import metric, router, until
from tests.support.kube.client import Kube
from tests.support.kube.plane import Plane

SERVICE = {"kubernetes.io/service-name": "workers"}
SOURCE = "endpointslices:default/workers:http"

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(240)]


def put(api: Kube, name: str, *pods: dict[str, Any]) -> None:
    data = {
        "metadata": {"name": name, "labels": SERVICE},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}],
        "endpoints": list(pods),
    }
    api.apply("EndpointSlice", "default", data)


def pod(name: str, address: str, **conditions: bool) -> dict[str, Any]:
    target = {"kind": "Pod", "name": name, "namespace": "default"}
    return {"addresses": [address], "conditions": conditions, "targetRef": target}


async def test_discovery_against_a_real_api_server(own_plane: Plane, tmp_path: Path) -> None:
    """List, watch, drain, removal; a server which restarts; an unknown token."""
    plane, token = own_plane, tmp_path / "token"
    token.write_text(plane.tokens["admin"] + "\n")
    at = {"server": plane.url, "token_file": str(token), "ca_file": str(plane.ca)}
    settings = {"endpointslices": ["default/workers:http"], "kubernetes": at}
    with plane.client() as api:
        put(api, "a", pod("one", "10.1.0.1", ready=True), pod("off", "10.1.0.2", ready=False))
        async with router(ready=0, discovery=settings) as server:
            table = server.router.table.workers

            def seen() -> dict[str, bool]:
                return {worker.id: worker.draining for worker in table.values()}

            await until(lambda: seen() == {"one": False})
            put(api, "b", pod("two", "10.1.0.3", ready=True))
            await until(lambda: seen() == {"one": False, "two": False})
            put(api, "a", pod("one", "10.1.0.1", ready=False, serving=True, terminating=True))
            await until(lambda: seen() == {"one": True, "two": False})
            api.delete("EndpointSlice", "default", "a")
            await until(lambda: seen() == {"two": False})
            plane.stop_api()
            await until(lambda: server._discovery.show()[0]["error"])
            assert seen() == {"two": False}
            await asyncio.to_thread(plane.start_api)
            put(api, "c", pod("three", "10.1.0.4", ready=True))
            async with asyncio.timeout(60):
                while "three" not in seen():
                    await asyncio.sleep(0.05)
            name = "emberline_router_discovery_errors_total"
            assert await metric(server, name, source=SOURCE, reason="unreachable") > 0
        token.write_text("nobody")
        async with router(ready=0, discovery=settings) as server:
            await until(lambda: "401" in server._discovery.show()[0]["error"])

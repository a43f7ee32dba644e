"""EndpointSlices of a real API server, where one is at hand.

KUBEBUILDER_ASSETS names the folder with `etcd` and `kube-apiserver`, as the tests of controllers
have it; without it all this is skipped, and says so. No kubelet runs, so the pods are made up:
what is tested is the list, the watch, and what a real server says.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.routing.engine.harness import metric, router, until
from tests.support.certificates import authority
from tests.support.ports import free_ports

ASSETS = os.environ.get("KUBEBUILDER_ASSETS", "")
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
SOURCE = "endpointslices:default/workers"

pytestmark = [
    pytest.mark.skipif(
        not (Path(ASSETS) / "kube-apiserver").is_file() if ASSETS else True,
        reason="NOT TESTED against a real API server: KUBEBUILDER_ASSETS names no folder with one",
    ),
    pytest.mark.timeout(240),
]


class ApiServer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = secrets.token_hex(16)
        self.etcd_port, self.peer_port, self.port = free_ports(3)
        self.url = f"https://127.0.0.1:{self.port}"
        self.ca = authority().write_ca(folder / "ca.pem")
        self.token_file = folder / "token"
        self.token_file.write_text(self.token + "\n")
        (folder / "tokens.csv").write_text(f'{self.token},router,1,"system:masters"\n')
        authority().write(folder, "127.0.0.1", "localhost", stem="api")
        self.http = httpx.AsyncClient(
            base_url=self.url,
            headers={"authorization": f"Bearer {self.token}"},
            verify=ssl.create_default_context(cafile=self.ca),
        )
        self._programs: list[asyncio.subprocess.Process] = []

    async def _run(self, name: str, *flags: str) -> asyncio.subprocess.Process:
        log = (self.folder / f"{name}.log").open("ab")
        program = await asyncio.create_subprocess_exec(
            str(Path(ASSETS) / name), *flags, stdout=log, stderr=log
        )
        self._programs.append(program)
        return program

    async def start(self) -> None:
        peer = f"http://127.0.0.1:{self.peer_port}"
        await self._run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{self.etcd_port}",
            f"--advertise-client-urls=http://127.0.0.1:{self.etcd_port}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )
        await self.start_api()

    async def start_api(self) -> asyncio.subprocess.Process:
        key = self.folder / "api.key"
        program = await self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--tls-cert-file={self.folder / 'api.crt'}",
            f"--tls-private-key-file={key}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
        )
        async with asyncio.timeout(120):
            while not await self._answers("/api/v1/namespaces/default"):
                await asyncio.sleep(0.2)
        return program

    async def _answers(self, path: str) -> bool:
        try:
            return (await self.http.get(path)).status_code == 200
        except httpx.TransportError:
            return False

    async def stop(self) -> None:
        await self.http.aclose()
        for program in self._programs:
            if program.returncode is None:
                program.kill()
            await program.wait()

    async def put(self, name: str, *pods: dict[str, Any]) -> None:
        data = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "workers"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}],
            "endpoints": list(pods),
        }
        answer = await self.http.post(SLICES, json=data)
        if answer.status_code == 409:
            now = (await self.http.get(f"{SLICES}/{name}")).json()["metadata"]["resourceVersion"]
            data["metadata"]["resourceVersion"] = now
            answer = await self.http.put(f"{SLICES}/{name}", json=data)
        assert answer.status_code in (200, 201), answer.text


def pod(name: str, address: str, **conditions: bool) -> dict[str, Any]:
    target = {"kind": "Pod", "name": name, "namespace": "default"}
    return {"addresses": [address], "conditions": conditions, "targetRef": target}


@asynccontextmanager
async def api_server(folder: Path) -> AsyncIterator[ApiServer]:
    server = ApiServer(folder)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


async def test_a_real_api_server(tmp_path: Path) -> None:
    """List, watch, drain, removal; a server which restarts; a token it does not know."""
    async with api_server(tmp_path) as api:
        await api.put("a", pod("one", "10.1.0.1", ready=True), pod("off", "10.1.0.2", ready=False))
        settings = {
            "endpointslices": ["default/workers:http"],
            "kubernetes": {
                "server": api.url,
                "token_file": str(api.token_file),
                "ca_file": str(api.ca),
            },
        }
        async with router(ready=0, discovery=settings) as server:
            table = server.router.table.workers

            def seen() -> dict[str, bool]:
                return {worker.id: worker.draining for worker in table.values()}

            await until(lambda: seen() == {"one": False})
            await api.put("b", pod("two", "10.1.0.3", ready=True))
            await until(lambda: seen() == {"one": False, "two": False})
            await api.put("a", pod("one", "10.1.0.1", ready=False, serving=True, terminating=True))
            await until(lambda: seen() == {"one": True, "two": False})
            await api.http.delete(f"{SLICES}/a")
            await until(lambda: seen() == {"two": False})
            program = api._programs[-1]
            program.kill()
            await program.wait()
            await until(lambda: server._discovery.show()[0]["error"])
            assert seen() == {"two": False}
            await api.start_api()
            await api.put("c", pod("three", "10.1.0.4", ready=True))
            async with asyncio.timeout(60):
                while "three" not in seen():
                    await asyncio.sleep(0.05)
            name = "emberline_router_discovery_errors_total"
            assert await metric(server, name, source=SOURCE, reason="unreachable") > 0
        api.token_file.write_text("nobody")
        async with router(ready=0, discovery=settings) as server:
            await until(lambda: "401" in server._discovery.show()[0]["error"])

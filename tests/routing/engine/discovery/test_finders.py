"""Workers from DNS and EndpointSlices, and unavailable sources."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from routing.engine.config import (
    Address,
    ConfigError,
    KubernetesConfig,
    Service,
    WorkerConfig,
    parse,
)
from routing.engine.discovery import dns, kubernetes
from routing.engine.discovery.api import KubernetesApi
from routing.engine.discovery.base import DiscoveryError
from routing.engine.fleet.roster import merge_workers
from routing.engine.server import RouterServer
from tests.routing.engine.harness import (
    Client,
    admin,
    ask,
    chat,
    metric,
    post,
    router,
    until,
    workers,
)
from tests.support.certificates import authority, stranger
from tests.support.fake_kube import FakeKube, endpoint, endpoint_slice
from tests.support.fake_worker import Conversation, FakeWorker, event

SERVICE = Service("default", "workers")
SOURCE = "endpointslices:default/workers"
ERRORS = "emberline_router_discovery_errors_total"
SUCCESS = "emberline_router_discovery_last_success_timestamp_seconds"


# -- slices, purely


def found(*items: dict[str, Any], service: Service = SERVICE, known: tuple[str, ...] = ()) -> Any:
    listed = kubernetes.workers_of_service(items, service, SOURCE, known)
    return {worker.id: (str(worker.address), worker.draining) for worker in listed}


def test_only_ready_pods_become_workers() -> None:
    data = endpoint_slice(
        "a",
        endpoint("10.0.0.1", "ready", ready=True),
        endpoint("10.0.0.2", "untold"),
        endpoint("10.0.0.3", "starting", ready=False),
        endpoint("10.0.0.4", "ending", ready=False, serving=True, terminating=True),
        endpoint("10.0.0.5", "published", ready=True, terminating=True),
    )
    assert found(data) == {"ready": ("10.0.0.1:8000", False), "untold": ("10.0.0.2:8000", False)}


def test_terminating_or_unready_worker_drains() -> None:
    data = endpoint_slice(
        "a",
        endpoint("10.0.0.4", "ending", ready=False, serving=True, terminating=True),
        endpoint("10.0.0.3", "unwell", ready=False),
    )
    assert found(data, known=("ending", "unwell")) == {
        "ending": ("10.0.0.4:8000", True),
        "unwell": ("10.0.0.3:8000", True),
    }


def test_port_is_selected_by_name_or_is_the_first() -> None:
    data = endpoint_slice("a", endpoint("10.0.0.1", "a"))
    data["ports"] = [{"name": "metrics", "port": 9090}, {"name": "http", "port": 8000}]
    assert found(data) == {"a": ("10.0.0.1:9090", False)}
    assert found(data, service=Service("default", "workers", "http")) == {
        "a": ("10.0.0.1:8000", False)
    }
    assert found(data, service=Service("default", "workers", "grpc")) == {}
    data["ports"] = [{"name": "http", "port": None}]
    assert found(data) == {}


def test_pod_in_several_slices_is_one_worker() -> None:
    four = endpoint_slice("z", endpoint("10.0.0.1", "a"))
    six = endpoint_slice("a", endpoint("fd00::1", "a"), endpoint("fd00::2", "b"), family="IPv6")
    assert found(six, four) == {"a": ("10.0.0.1:8000", False), "b": ("[fd00::2]:8000", False)}
    old = endpoint_slice("a", endpoint("10.0.0.1", "a", ready=False))
    for order in ((old, four), (four, old)):
        assert found(*order, known=("a",)) == {"a": ("10.0.0.1:8000", False)}


def test_invalid_ids_and_addresses_that_are_no_pods_are_skipped() -> None:
    node = endpoint("10.0.0.1")
    node["targetRef"] = {"kind": "Node", "name": "n"}
    long = endpoint("10.0.0.2", "p" * 200)
    names = endpoint_slice("b", endpoint("workers.example", "x"), family="FQDN")
    assert set(found(endpoint_slice("a", node, long), names)) == {"10.0.0.1:8000", "10.0.0.2:8000"}
    assert found({"metadata": {}, "addressType": "IPv4"}) == {}
    assert found(endpoint_slice("a", {"addresses": []}, {"conditions": None})) == {}


def test_tls_verifies_the_service_name() -> None:
    service = Service("prod", "workers", tls=True)
    (one,) = kubernetes.workers_of_service(
        [endpoint_slice("a", endpoint("10.0.0.1", "a"))], service, SOURCE, ()
    )
    assert (one.url, one.tls_name) == ("https://10.0.0.1:8000", "workers.prod.svc")


def test_configured_worker_overrides_the_discovered_one() -> None:
    def worker(name: str, port: int, source: str) -> WorkerConfig:
        return WorkerConfig(name, f"http://h:{port}", Address("h", port), source=source)

    own = [worker("a", 1, "config"), worker("b", 1, "config")]
    merged = merge_workers(
        own, [worker("a", 2, "dns:x"), worker("h:1", 1, "dns:x"), worker("c", 3, "y")]
    )
    assert [(item.id, item.address.port) for item in merged.values()] == [
        ("a", 1), ("b", 1), ("c", 3),
    ]  # fmt: skip


# -- EndpointSlices over HTTP


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses short enough to wait for."""
    monkeypatch.setattr(kubernetes, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr("routing.engine.discovery.kubernetes.MAX_PAUSE_S", 0.05)


def pod(worker: FakeWorker, name: str, **conditions: bool) -> dict[str, Any]:
    """A slice of its own: only so can each pod have a port of its own."""
    return endpoint_slice(
        f"slice-{name}", endpoint("127.0.0.1", name, **conditions), port=worker.port
    )


@asynccontextmanager
async def watching(
    kube: FakeKube, *fakes: FakeWorker, ready: int | None = None, **more: Any
) -> AsyncIterator[RouterServer]:
    for index, fake in enumerate(fakes):
        await kube.put(pod(fake, f"pod-{index}", ready=True))
    settings = {
        "endpointslices": ["default/workers"],
        "kubernetes": {"server": kube.url, **more.pop("kubernetes", {})},
    }
    wanted = len(fakes) if ready is None else ready
    async with router(ready=wanted, discovery=settings, **more) as server:
        yield server


def states(server: RouterServer) -> dict[str, str]:
    return {worker.id: worker.state for worker in server.router.table.workers.values()}


async def test_pods_are_added_drained_and_removed(fast: None) -> None:
    """A terminating pod finishes its stream, gets nothing new, and its memory goes with it."""
    step = asyncio.Event()

    async def stream(talk: Conversation) -> None:
        await talk.stream_head()
        await talk.chunk(event("one"))
        await step.wait()
        await talk.chunk(event("two"))
        await talk.stream_end()

    async with FakeWorker() as one, FakeWorker() as two, FakeKube() as kube:
        async with watching(kube, one) as server:
            one.script = stream
            async with await Client.to(server.listen) as client:
                await client.send(post(chat("x" * 2000, stream=True)))
                _, headers = await client.head()
                assert headers["x-emberline-worker"] == "pod-0"
                await kube.put(pod(two, "pod-1", ready=False))
                await kube.put(pod(two, "pod-1", ready=True))
                await until(lambda: states(server).get("pod-1") == "up")
                await kube.put(pod(one, "pod-0", ready=False, serving=True, terminating=True))
                await until(lambda: states(server)["pod-0"] == "draining")
                for index in range(4):
                    answer = await ask(server, post(chat(f"{index}")))
                    assert answer.headers["x-emberline-worker"] == "pod-1"
                await kube.delete("slice-pod-0")
                await until(lambda: "pod-0" not in states(server))
                assert "pod-0" not in server.router.policy.sizes()
                step.set()
                async with asyncio.timeout(60):
                    assert b"two" in await client.reader.readuntil(b"0\r\n\r\n")
            assert kube.lists == 1, "changes are told, not asked for"
            shown = (await admin(server, "/workers")).json
            assert [(item["id"], item["source"]) for item in shown["workers"]] == [
                ("pod-1", SOURCE)
            ]
            (source,) = shown["discovery"]
            assert (source["source"], source["workers"], source["error"]) == (SOURCE, 1, "")
            assert await metric(server, SUCCESS, source=SOURCE) == source["last_success"] > 0
            assert await metric(server, "emberline_router_discovered_workers", source=SOURCE) == 1
            assert await metric(server, ERRORS, source=SOURCE) == 0


async def test_unready_pod_keeps_its_prefix_memory(fast: None) -> None:
    async with FakeWorker() as one, FakeKube() as kube, watching(kube, one) as server:
        await ask(server, post(chat("same " * 500)))
        before = server.router.policy.sizes()["pod-0"]
        await kube.put(pod(one, "pod-0", ready=False))
        await until(lambda: states(server)["pod-0"] == "draining")
        await kube.put(pod(one, "pod-0", ready=True))
        await until(lambda: states(server)["pod-0"] == "up")
        assert server.router.policy.sizes()["pod-0"] == before


async def test_pod_of_the_same_name_at_another_address_is_a_new_worker(fast: None) -> None:
    async with FakeWorker() as one, FakeWorker() as two, FakeKube() as kube:
        async with watching(kube, one) as server:
            await ask(server, post(chat("same " * 500)))
            await kube.put(pod(two, "pod-0", ready=True))
            worker = server.router.table.workers["pod-0"]
            await until(lambda: server.router.table.workers["pod-0"] is not worker)
            assert server.router.policy.sizes() == {}
            await until(lambda: states(server)["pod-0"] == "up")
            assert (await ask(server, post(chat("x")))).status == 200
            assert len(two.requests) == 1


async def test_watch_resumes_at_the_last_version(fast: None) -> None:
    async with FakeWorker() as one, FakeWorker() as two, FakeKube() as kube:
        async with watching(kube, one) as server:
            await until(lambda: kube.watches >= 1)
            await kube.bookmark()
            kube.end_watches = True
            await kube.bookmark()
            seen = kube.version
            await until(lambda: kube.watches >= 3)
            kube.end_watches = False
            await kube.put(pod(two, "pod-1", ready=True))
            await until(lambda: len(server.router.table.eligible) == 2)
            assert kube.lists == 1
            assert f"resourceVersion={seen}&" in kube.requests[-1].target + "&"
            assert "allowWatchBookmarks=true" in kube.requests[-1].target
            assert await metric(server, ERRORS, source=SOURCE) == 0


@pytest.mark.parametrize("how", ["status", "event"])
async def test_expired_version_is_listed_again(fast: None, how: str) -> None:
    async with FakeWorker() as one, FakeWorker() as two, FakeKube() as kube:
        async with watching(kube, one) as server:
            await until(lambda: kube.watches == 1)
            # Changes now are not observed: only a list reveals them.
            kube.slices["slice-pod-1"] = pod(two, "pod-1", ready=True)
            del kube.slices["slice-pod-0"]
            kube.version += 10
            kube.oldest = kube.version
            if how == "status":
                await kube.cut()
            else:
                await kube.send_event(
                    "ERROR", {"kind": "Status", "code": 410, "message": "too old"}
                )
            await until(lambda: states(server) == {"pod-1": "up"})
            assert kube.lists == 2
            assert await metric(server, ERRORS, reason="expired") == 1
            assert (await admin(server, "/workers")).json["discovery"][0]["error"] == ""


async def test_last_valid_result_is_kept_without_the_api(fast: None) -> None:
    async with FakeWorker() as one, FakeWorker() as two, FakeKube() as kube:
        async with watching(kube, one) as server:
            await until(lambda: kube.watches == 1)
            before = await metric(server, SUCCESS, source=SOURCE)

            async def shown() -> str:
                return str((await admin(server, "/workers")).json["discovery"][0]["error"])

            await kube.stop()
            async with asyncio.timeout(60):
                while await metric(server, ERRORS, reason="unreachable") < 3:
                    assert (await ask(server, post(chat("x")))).status == 200
            assert "cannot be reached" in await shown()
            assert await metric(server, SUCCESS, source=SOURCE) == before
            await kube.start()
            kube.status = 403
            async with asyncio.timeout(60):
                while await metric(server, ERRORS, reason="forbidden") == 0:
                    await asyncio.sleep(0.01)
            assert "no: 403" in await shown()
            assert states(server) == {"pod-0": "up"}
            kube.status = 200
            await kube.put(pod(two, "pod-1", ready=True))
            await until(lambda: len(server.router.table.eligible) == 2)
            assert kube.lists == 1, "a watch which broke goes on, too"
            assert await shown() == ""


async def test_slices_are_read_in_pages(fast: None) -> None:
    async with FakeKube() as kube:
        kube.page = 3
        for index in range(10):
            await kube.put(endpoint_slice(f"s{index}", endpoint(f"127.1.0.{index}", f"p{index}")))
        async with watching(kube, ready=0) as server:
            await until(lambda: len(server.router.table.workers) == 10)
            assert kube.lists == 4


async def test_tls_and_a_token_which_is_rotated(fast: None, tmp_path: Path) -> None:
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first\n")
    stranger().write_ca(ca)
    files = {"token_file": str(token), "ca_file": str(ca)}
    async with FakeWorker() as one:
        async with FakeKube("first", authority().server("127.0.0.1")) as kube:
            async with watching(kube, one, ready=0, kubernetes=files) as server:

                async def counted(reason: str) -> None:
                    async with asyncio.timeout(60):
                        while await metric(server, ERRORS, reason=reason) == 0:
                            await asyncio.sleep(0.01)

                await counted("unreachable")
                assert states(server) == {}
                authority().write_ca(ca)
                await until(lambda: states(server) == {"pod-0": "up"})
                kube.token = "second"
                await kube.cut()
                await counted("unauthorized")
                assert states(server) == {"pod-0": "up"}
                token.write_text("second\n")
                await kube.put(endpoint_slice("more", endpoint("127.1.0.9", "pod-1", ready=True)))
                await until(lambda: "pod-1" in states(server))
                token.unlink()
                await kube.cut()
                await counted("no_credentials")
                text = (await admin(server, "/workers")).body + (
                    await admin(server, "/config")
                ).body
                assert b"second" not in text.replace(b"seconds", b"")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{"items": [1]}',
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}, and more",
        b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{}",
        b"hello\r\n\r\n",
        b"",
    ],
)
async def test_invalid_api_responses(answer: bytes, fast: None) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    settings = {
        "endpointslices": ["default/workers"],
        "kubernetes": {"server": f"http://127.0.0.1:{port}"},
    }
    async with router(ready=0, discovery=settings) as server:
        async with asyncio.timeout(60):
            while await metric(server, ERRORS, source=SOURCE) < 2:
                await asyncio.sleep(0.01)
        assert not server._discovery._tasks[SOURCE].done()
    listener.close()


async def test_outside_a_cluster_the_server_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    config = parse({"listen": "h:1"}, Path()).discovery.kubernetes
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match=r"discovery\.kubernetes\.server"):
        KubernetesApi(config)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert str(KubernetesApi(config)._address) == "[fd00::1]:443"


async def test_sources_follow_the_configuration(fast: None, tmp_path: Path) -> None:
    """Kept sources are not queried again; removed ones take their workers and metrics along."""
    path = tmp_path / "r.json"
    async with FakeWorker() as one, FakeWorker() as two, FakeKube() as kube:
        async with watching(kube, one, path=path) as server:
            await until(lambda: kube.watches == 1)

            def rewrite(**changes: Any) -> None:
                data = json.loads(path.read_text())
                data["discovery"].update(changes)
                path.write_text(json.dumps(data))
                server.reload(False)

            rewrite(dns=[f"localhost:{two.port}"])
            await until(lambda: len(server.router.table.eligible) == 2)
            assert (kube.lists, kube.watches) == (1, 1)
            rewrite(dns_interval_s=7)
            assert len(states(server)) == 2, "asked anew, and meanwhile nothing is lost"
            await until(lambda: kube.lists == 2)
            rewrite(endpointslices=[])
            await until(lambda: "pod-0" not in states(server))
            text = (await admin(server, "/metrics")).body.decode()
            assert SOURCE not in text
            rewrite(endpointslices=["a b"])
            assert "discovery.endpointslices[0]" in server.router.config_error


# -- DNS


async def test_every_address_of_a_name_is_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shuffled, gone, away and back: only a good answer which differs changes anything."""
    answers: list[Any] = []

    async def answer(_name: str, _port: int) -> list[Address]:
        current = answers[-1]
        if isinstance(current, DiscoveryError):
            raise current
        return list(current)

    monkeypatch.setattr(dns, "resolve", answer)
    async with FakeWorker() as one, FakeWorker() as two:
        answers.append([Address("127.0.0.1", one.port)])
        settings = {"dns": ["workers.example:8000"], "dns_interval_s": 0.1}
        async with router(ready=1, discovery=settings) as server:
            name = "dns:workers.example:8000"
            assert server.router.table.workers[f"127.0.0.1:{one.port}"].source == name
            answers.append(DiscoveryError("no_name", "nobody knows it"))
            async with asyncio.timeout(60):
                while await metric(server, ERRORS, source=name, reason="no_name") < 2:
                    await asyncio.sleep(0.01)
            assert (await ask(server, post(chat("x")))).status == 200
            answers.append([Address("127.0.0.1", two.port)])
            await until(lambda: list(states(server).items()) == [(f"127.0.0.1:{two.port}", "up")])
            assert (await admin(server, "/workers")).json["discovery"][0]["error"] == ""


async def test_system_resolver_is_queried() -> None:
    assert Address("127.0.0.1", 80) in await dns.resolve("localhost", 80)
    assert await dns.resolve("::1", 80) == [Address("::1", 80)]
    with pytest.raises(DiscoveryError) as caught:
        await dns.resolve("does-not-exist.invalid", 80)
    assert caught.value.reason in dns.DnsFinder.reasons
    loop = asyncio.get_running_loop()
    with pytest.MonkeyPatch.context() as patch:

        async def again(*_arguments: object, **_more: object) -> None:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")

        patch.setattr(type(loop), "getaddrinfo", again)
        with pytest.raises(DiscoveryError) as caught:
            await dns.resolve("x", 80)
        assert caught.value.reason == "temporary"


async def test_static_and_found_workers_together() -> None:
    async with FakeWorker() as one, FakeWorker() as two:
        settings = {"dns": [f"localhost:{one.port}", f"localhost:{two.port}"]}
        async with router(ready=2, workers=workers(one), discovery=settings) as server:
            await until(lambda: len(server.router.table.workers) >= 2)
            sources = {item.id: item.source for item in server.router.table.workers.values()}
            assert sources["w0"] == "config"
            assert f"127.0.0.1:{one.port}" not in sources, "it is w0 already"
            assert sources[f"127.0.0.1:{two.port}"] == f"dns:localhost:{two.port}"


@pytest.mark.parametrize(
    ("discovery", "field"),
    [
        ({"dns": "x:1"}, "discovery.dns"),
        ({"dns": ["x"]}, "discovery.dns[0]"),
        ({"dns": ["x:0"]}, "discovery.dns[0]"),
        ({"dns": ["x:1", "x:1"]}, "discovery.dns[1]"),
        ({"dns": [5]}, "discovery.dns[0]"),
        ({"dns_interval_s": 0}, "discovery.dns_interval_s"),
        ({"endpointslices": ["workers"]}, "discovery.endpointslices[0]"),
        ({"endpointslices": ["a/b:C"]}, "discovery.endpointslices[0]"),
        ({"kubernetes": {"server": "k:6443"}}, "discovery.kubernetes.server"),
        ({"kubernetes": {"token": "x"}}, "discovery.kubernetes.token"),
        ({"consul": []}, "discovery.consul"),
    ],
)
def test_refusals(discovery: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"listen": "h:1", "discovery": discovery}, Path())
    assert caught.value.field == field


async def test_shuffled_answers_are_the_same_answer() -> None:
    loop = asyncio.get_running_loop()
    answers = iter([["10.0.0.2", "10.0.0.1", "10.0.0.1"], ["10.0.0.1", "10.0.0.2"]])

    async def shuffled(*_arguments: object, **_more: object) -> list[Any]:
        return [(2, 1, 6, "", (host, 80)) for host in next(answers)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(loop), "getaddrinfo", shuffled)
        first = await dns.resolve("x", 80)
        assert first == await dns.resolve("x", 80) == [
            Address("10.0.0.1", 80), Address("10.0.0.2", 80),
        ]  # fmt: skip


async def test_bytes_after_the_content_length_are_ignored() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}, and more")
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    api = KubernetesApi(KubernetesConfig(f"http://127.0.0.1:{port}"))
    assert await api.get("/x") == {}
    listener.close()

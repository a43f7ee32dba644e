"""TLS of the router: certificates, versions, rejections, metrics and renewal."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from routing.engine.config import ConfigError, parse
from routing.engine.server import RouterServer
from tests.routing.engine.harness import Client, ask, chat, metric, post, router, until, workers
from tests.support.certificates import authority, stranger
from tests.support.fake_worker import Conversation, FakeWorker, event

HANDSHAKES = "emberline_router_tls_handshake_failures_total"


@pytest.fixture
def pair(tmp_path: Path) -> dict[str, str]:
    cert, key = authority().write(tmp_path, "localhost")
    return {"cert": str(cert), "key": str(key)}


def shown(client: Client) -> bytes:
    """The certificate the router showed."""
    found = client.writer.get_extra_info("ssl_object").getpeercert(True)
    assert isinstance(found, bytes)
    return found


async def failed(server: RouterServer, **reason: str) -> None:
    """Wait until the handshake's failure is counted."""
    async with asyncio.timeout(60):
        while await metric(server, HANDSHAKES, **reason) == 0:
            await asyncio.sleep(0.01)


# -- clients


async def test_http_1_1_is_negotiated_and_served(pair: dict[str, str]) -> None:
    context = authority().client()
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with FakeWorker() as worker, router(worker, tls=pair) as server:
        async with await Client.to(server.listen, context) as client:
            chosen = client.writer.get_extra_info("ssl_object").selected_alpn_protocol()
            assert chosen == "http/1.1"
            await client.send(post(chat("hi")))
            assert (await client.response()).status == 200
        assert await metric(server, HANDSHAKES) == 0


async def test_plain_http_is_rejected_and_counted(pair: dict[str, str]) -> None:
    async with FakeWorker() as worker, router(worker, tls=pair) as server:
        async with await Client.plain(server.listen) as client:
            await client.send(post(chat("hi")))
            assert b"HTTP" not in await client.reader.read(-1)
        await failed(server, reason="not_tls")
        assert worker.requests == []


async def test_old_tls_versions_are_rejected(pair: dict[str, str]) -> None:
    context = authority().client()
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    async with FakeWorker() as worker, router(worker, tls=pair) as server:
        with pytest.raises(OSError):
            await Client.to(server.listen, context)
        await failed(server, reason="protocol_version")


async def test_client_without_trust_is_counted(pair: dict[str, str]) -> None:
    async with FakeWorker() as worker, router(worker, tls=pair) as server:
        # Not by asyncio, which goes away without the alert that other clients send.
        def blocking() -> None:
            with socket.create_connection(("127.0.0.1", server.listen.port), 10) as sock:
                stranger().client().wrap_socket(sock, server_hostname="localhost")

        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(blocking)
        await failed(server, reason="refused_by_client")


async def test_client_certificates_are_required(pair: dict[str, str], tmp_path: Path) -> None:
    tls = {**pair, "client_ca": str(authority().write_ca(tmp_path / "ca.pem"))}
    known, unknown = authority().client(), authority().client()
    authority().issue_for(known, "a-client")
    stranger().issue_for(unknown, "a-client")
    async with FakeWorker() as worker, router(worker, tls=tls) as server:
        async with await Client.to(server.listen, known) as client:
            await client.send(post(chat("hi")))
            assert (await client.response()).status == 200
        for context, reason in (
            (authority().client(), "client_certificate_missing"),
            (unknown, "client_certificate_refused"),
        ):
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                async with await Client.to(server.listen, context) as client:
                    await client.send(post(chat("hi")))
                    await client.response()
            await failed(server, reason=reason)
        assert len(worker.requests) == 1


async def test_silent_handshake_times_out(pair: dict[str, str]) -> None:
    limits = {"header_timeout_s": 0.1}
    async with FakeWorker() as worker, router(worker, tls=pair, limits=limits) as server:
        async with await Client.plain(server.listen) as client:
            assert await client.closed()


async def test_new_certificates_are_loaded_without_cutting_connections(
    pair: dict[str, str], tmp_path: Path
) -> None:
    """Also the client CA, and TLS itself: who connects now gets what the files say now."""
    step = asyncio.Event()

    async def stream(talk: Conversation) -> None:
        await talk.stream_head()
        await talk.chunk(event("one"))
        await step.wait()
        await talk.chunk(event("two"))
        await talk.stream_end()

    path = tmp_path / "r.json"
    context = authority().client()
    authority().issue_for(context, "a-client")
    async with FakeWorker() as worker, router(worker, path=path, tls=pair) as server:
        worker.script = stream
        async with await Client.to(server.listen, context) as busy:
            await busy.send(post(chat("x", stream=True)))
            await busy.head()
            before = shown(busy)

            async def now() -> bytes:
                async with await Client.to(server.listen, context) as client:
                    return shown(client)

            assert await now() == before
            (tmp_path / "server.crt").write_text("half a fi")
            await until(lambda: server.router.config_error, "the broken pair is refused")
            assert await now() == before
            authority().write(tmp_path, "localhost")
            await until(lambda: server._tls == server.router.config.tls and server._tls)
            async with asyncio.timeout(60):
                while await now() == before:
                    await asyncio.sleep(0.01)
            assert server.router.config_error == ""

            data = json.loads(path.read_text())
            data["tls"]["client_ca"] = str(stranger().write_ca(tmp_path / "other.pem"))
            path.write_text(json.dumps(data))
            server.reload(False)
            await until(lambda: server._tls == server.router.config.tls)
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                async with await Client.to(server.listen, context) as client:
                    await client.send(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
                    await client.response()
            step.set()
            assert b"two" in await busy.reader.readuntil(b"0\r\n\r\n")


# -- workers


async def test_worker_certificates_are_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right CA and name serve; a wrong one is down, and /workers states the reason."""
    monkeypatch.setattr(FakeWorker, "tls", authority().server("worker.example"))
    good = str(authority().write_ca(tmp_path / "ca.pem"))
    other = str(stranger().write_ca(tmp_path / "other.pem"))
    async with FakeWorker() as worker:
        tls: dict[str, Any]
        for tls, problem in (
            ({"ca": good}, "mismatch"),
            ({"ca": other, "server_name": "worker.example"}, "certificate"),
            ({}, "certificate"),
        ):
            async with router(worker, ready=0, worker_tls=tls) as server:
                known = server.router.table.workers["w0"]
                assert problem in await until(lambda known=known: known.last_error)
                assert (await ask(server, post(chat("hi")))).code == "no_healthy_worker"
        for tls in ({"ca": good, "server_name": "worker.example"}, {"insecure_skip_verify": True}):
            async with router(worker, worker_tls=tls) as server:
                assert (await ask(server, post(chat("hi")))).status == 200


async def test_disabled_worker_verification_is_logged_as_a_warning(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(FakeWorker, "tls", authority().server("worker.example"))
    async with FakeWorker() as worker:
        async with router(worker, worker_tls={"insecure_skip_verify": True}):
            pass
    assert '"worker_tls_not_verified"' in capfd.readouterr().err


async def test_router_presents_its_client_certificate_to_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = authority().server("127.0.0.1")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority().pem.decode())
    monkeypatch.setattr(FakeWorker, "tls", context)
    cert, key = authority().write(tmp_path, "router", stem="router")
    tls = {"ca": str(authority().write_ca(tmp_path / "ca.pem"))}
    async with FakeWorker() as worker:
        async with router(worker, ready=0, worker_tls=tls) as server:
            await until(lambda: server.router.table.workers["w0"].last_error)
        tls |= {"cert": str(cert), "key": str(key)}
        async with router(worker, worker_tls=tls) as server:
            assert (await ask(server, post(chat("hi")))).status == 200


async def test_changed_ca_applies_to_the_next_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeWorker, "tls", authority().server("127.0.0.1"))
    ca = stranger().write_ca(tmp_path / "ca.pem")
    path = tmp_path / "r.json"
    async with FakeWorker() as worker:
        async with router(worker, ready=0, path=path, worker_tls={"ca": str(ca)}) as server:
            await until(lambda: server.router.table.workers["w0"].last_error)
            authority().write_ca(ca)
            await until(lambda: server.router.table.eligible)
            stranger().write_ca(ca)
            await until(lambda: not server.router.table.eligible)


async def test_connection_in_use_is_not_kept_after_a_changed_ca(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeWorker, "tls", authority().server("127.0.0.1"))
    ca = authority().write_ca(tmp_path / "ca.pem")
    asked, changed = asyncio.Event(), asyncio.Event()

    async def slow(talk: Conversation) -> None:
        asked.set()
        await changed.wait()
        await talk.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async with FakeWorker() as worker:
        path = tmp_path / "r.json"
        async with router(worker, path=path, worker_tls={"ca": str(ca)}) as server:
            pool = server.router.table.workers["w0"].pool
            before = server.router.config.worker_tls.digest
            worker.script = slow
            in_use = asyncio.create_task(ask(server, post(chat("hi"))))
            await asked.wait()
            stranger().write_ca(ca)
            await until(lambda: server.router.config.worker_tls.digest != before)
            changed.set()
            assert (await in_use).body == b"ok"
            assert pool.idle == []


@pytest.mark.parametrize("clean", [True, False])
async def test_close_without_tls_shutdown_is_a_truncated_response(
    clean: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without length or chunks only TLS's close_notify distinguishes an end from a cut."""

    async def until_close(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        if clean:
            talk.writer.close()
        else:
            number = talk.writer.get_extra_info("socket").fileno()
            with socket.socket(fileno=os.dup(number)) as sock:
                sock.shutdown(socket.SHUT_WR)
        await talk.gone.wait()

    monkeypatch.setattr(FakeWorker, "tls", authority().server("127.0.0.1"))
    tls = {"ca": str(authority().write_ca(tmp_path / "ca.pem"))}
    async with FakeWorker() as worker, router(worker, worker_tls=tls) as server:
        worker.script = until_close
        if clean:
            assert (await ask(server, post(chat("hi")))).body == b"all of it"
        else:
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await ask(server, post(chat("hi")))
            name = "emberline_router_request_errors_total"
            assert await metric(server, name, reason="broken_stream") == 1


async def test_refused_named_address_is_down_at_once() -> None:
    """`localhost` may have two addresses: both refuse, and that is a refusal."""
    async with FakeWorker() as one:
        listed = [{"id": "w0", "url": one.url.replace("127.0.0.1", "localhost")}]
        async with router(workers=listed, ready=1, health={"fall": 100}) as server:
            await one.stop()
            await until(lambda: not server.router.table.eligible)


# -- refusals


def refused(data: dict[str, Any], folder: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse({"listen": "127.0.0.1:1", **data}, folder)
    return caught.value


def test_unusable_files_are_rejected(tmp_path: Path) -> None:
    authority().write(tmp_path, "localhost", stem="a")
    authority().write(tmp_path, "localhost", stem="b")
    (tmp_path / "text").write_text("hello")
    locked = (tmp_path / "a.key").read_text().replace("BEGIN", "BEGIN ENCRYPTED")
    (tmp_path / "locked.key").write_text(locked)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"tls": {"cert": "a.crt"}}, "tls.key"),
        ({"tls": {"key": "a.key"}}, "tls.cert"),
        ({"tls": {"client_ca": "a.crt"}}, "tls.cert"),
        ({"tls": {"cert": "absent", "key": "a.key"}}, "tls.cert"),
        ({"tls": {"cert": "a.crt", "key": "b.key"}}, "tls.cert"),
        ({"tls": {"cert": "text", "key": "a.key"}}, "tls.cert"),
        ({"tls": {"cert": "a.crt", "key": "locked.key"}}, "tls.cert"),
        ({"tls": {"cert": "a.crt", "key": "a.key", "client_ca": "text"}}, "tls.client_ca"),
        ({"tls": {"cert": "a.crt", "key": "a.key", "password": "x"}}, "tls.password"),
        ({"worker_tls": {"ca": "text"}}, "worker_tls.ca"),
        ({"worker_tls": {"ca": "absent"}}, "worker_tls.ca"),
        ({"worker_tls": {"cert": "a.crt"}}, "worker_tls.key"),
        (
            {"worker_tls": {"ca": "a.crt", "insecure_skip_verify": True}},
            "worker_tls.insecure_skip_verify",
        ),
    ]
    for data, field in cases:
        error = refused(data, tmp_path)
        assert error.field == field, error
        assert "PRIVATE" not in str(error)
    good = parse({"listen": "h:1", "tls": {"cert": "a.crt", "key": "a.key"}}, tmp_path)
    assert [path.name for path in good.files] == ["a.crt", "a.key"]


async def test_workers_and_listeners_on_ipv6() -> None:
    async with FakeWorker(host="::1") as worker:
        listen = ["[::1]:0", "127.0.0.1:0"]
        async with router(worker, listen=listen, workers=workers(worker)) as server:
            assert str(server.listen).startswith("[::1]:")
            for listener in server._data:
                async with await Client.to(listener.address) as client:
                    await client.send(post(chat("hi")))
                    assert (await client.response()).status == 200
            assert worker.requests[0].headers["host"] == f"[::1]:{worker.port}"

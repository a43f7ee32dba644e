"""Kubernetes client construction: trust, redaction, no retries or redirects."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from urllib3.exceptions import InsecureRequestWarning

from console.provisioners.base import PermanentError, TemporaryError
from console.provisioners.kubernetes.api import access
from console.provisioners.kubernetes.api.access import (
    CONTEXT,
    IN_CLUSTER,
    KUBECONFIG,
    ClusterAccess,
    machine_contexts,
    own_namespace,
)
from console.provisioners.kubernetes.api.reader import Reader
from tests.support.certificates import authority, stranger
from tests.support.http_stub import Stub, http_stub
from tests.support.waiting import until


@dataclass
class Server:
    """Records the Authorization header and the client certificate's names."""

    url: str
    requests: list[tuple[str, Any]]


@pytest.fixture
def server() -> Iterator[Server]:
    requests: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.headers.get("authorization", ""), self.connection.getpeercert()))
            body = b'{"gitVersion": "v1"}'
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    context = authority().server("127.0.0.1", "k.example")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=authority().pem.decode())
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    httpd.socket = context.wrap_socket(httpd.socket, server_side=True)
    thread = Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Server(f"https://127.0.0.1:{httpd.server_port}", requests)
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def b64(text: bytes) -> str:
    return base64.b64encode(text).decode()


def login(server: str, cluster: dict[str, Any] | None = None, **user: Any) -> ClusterAccess:
    text = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
    }
    return ClusterAccess(KUBECONFIG, json.dumps(text))


def trusted() -> dict[str, Any]:
    return {"certificate-authority-data": b64(authority().pem)}


def ask(login: ClusterAccess) -> str:
    return str(Reader(login).get("/version")["gitVersion"])


def test_token_is_sent_to_a_trusted_server(server: Server) -> None:
    assert ask(login(server.url, trusted(), token="t0ken")) == "v1"
    assert server.requests[0][0] == "Bearer t0ken"


def test_password_is_sent_to_a_trusted_server(server: Server) -> None:
    ask(login(server.url, trusted(), username="me", password="pässword"))
    assert server.requests[0][0] == f"Basic {b64('me:pässword'.encode())}"


@pytest.mark.parametrize("cluster", [{}, {"certificate-authority-data": "stranger"}])
def test_untrusted_server_gets_no_credentials(server: Server, cluster: dict[str, Any]) -> None:
    if cluster:
        cluster = {"certificate-authority-data": b64(stranger().pem)}
    with pytest.raises(PermanentError) as refused:
        ask(login(server.url, cluster, token="t0ken"))
    assert refused.value.reason == "ClusterUntrusted"
    assert server.requests == []


def test_other_server_name_is_untrusted_unless_configured(server: Server) -> None:
    url = server.url.replace("127.0.0.1", "localhost")
    with pytest.raises(PermanentError, match="certificate"):
        ask(login(url, trusted(), token="t0ken"))
    assert server.requests == []
    assert ask(login(url, {**trusted(), "tls-server-name": "k.example"}, token="t")) == "v1"


def test_insecure_access_must_be_configured(server: Server) -> None:
    with pytest.warns(InsecureRequestWarning):
        assert ask(login(server.url, {"insecure-skip-tls-verify": True}, token="t")) == "v1"


def test_client_certificate_is_presented_and_its_key_is_not_on_disk(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = authority().write(tmp_path, "me", stem="client")
    user = {
        "client-certificate-data": b64(cert.read_bytes()),
        "client-key-data": b64(key.read_bytes()),
    }

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a file was made")

    for maker in ("NamedTemporaryFile", "mkstemp"):
        monkeypatch.setattr(f"tempfile.{maker}", refuse)
    ask(login(server.url, trusted(), **user))
    names = [value for kind, value in server.requests[0][1]["subjectAltName"]]
    assert names == ["me"]


def test_encrypted_key_is_rejected_without_a_prompt(tmp_path: Path) -> None:
    cert, key = authority().write(tmp_path, "me", stem="client")
    plain = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = plain.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"x"),
    )
    user = {"client-certificate-data": b64(cert.read_bytes()), "client-key-data": b64(locked)}
    with pytest.raises(PermanentError, match="has a password"):
        login("https://k.example", **user).api_client()


def test_key_of_another_certificate_is_rejected(tmp_path: Path) -> None:
    cert, _key = authority().write(tmp_path, "me", stem="one")
    _cert, key = authority().write(tmp_path, "me", stem="two")
    user = {
        "client-certificate-data": b64(cert.read_bytes()),
        "client-key-data": b64(key.read_bytes()),
    }
    with pytest.raises(PermanentError, match="do not match"):
        login("https://k.example", **user).api_client()


def test_invalid_authority_is_rejected() -> None:
    cluster = {"certificate-authority-data": b64(b"-----BEGIN nothing\n")}
    with pytest.raises(PermanentError, match="cannot be read"):
        login("https://k.example", cluster).api_client()


def test_equal_access_shares_its_connections() -> None:
    one = login("https://k.example", token="t")
    assert one.api_client() is replace(one).api_client()
    assert one.api_client() is not login("https://k.example", token="other").api_client()


def test_repr_contains_no_secret() -> None:
    assert "t0ken" not in repr(login("https://k.example", token="t0ken"))


def test_redirect_is_not_followed() -> None:
    with http_stub({"/version": (200, {"gitVersion": "stolen"})}) as other:

        class Redirecting(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(302)
                self.send_header("location", f"{other.url}/version")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        httpd = ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)
        thread = Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            client = login(f"http://127.0.0.1:{httpd.server_port}", token="t").api_client()
            requested = client.param_serialize("GET", "/version", auth_settings=["BearerToken"])
            assert client.call_api(*requested).status == 302
        finally:
            httpd.shutdown()
            thread.join()
            httpd.server_close()
        assert other.seen == []


def test_call_without_a_deadline_has_a_default() -> None:
    from tests.support.http_stub import HANG

    def once(stub: Stub) -> None:
        short = replace(login(stub.url, token="t"), deadline_s=0.2)
        client = short.api_client()
        requested = client.param_serialize("GET", "/version", auth_settings=["BearerToken"])
        with pytest.raises(Exception, match=r"[Tt]imed out"):
            client.call_api(*requested)
        until(lambda: stub.seen, what="the call")
        assert len(stub.seen) == 1, "and it is not tried again"

    with http_stub({"/version": (HANG, "")}) as stub:
        once(stub)


def test_unreachable_address() -> None:
    with pytest.raises(TemporaryError) as refused:
        ask(login("http://127.0.0.1:1", token="t"))
    assert refused.value.reason == "ClusterUnreachable"


def test_outside_a_cluster_there_is_no_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(PermanentError) as refused:
        ClusterAccess(IN_CLUSTER).api_client()
    assert refused.value.reason == "NotInCluster"
    assert own_namespace() == "default"
    file = tmp_path / "namespace"
    file.write_text("llm\n")
    monkeypatch.setattr(access, "_NAMESPACE_FILE", file)
    assert own_namespace() == "llm"


def test_service_account_is_used_in_a_pod(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes.config import incluster_config

    ca = authority().write_ca(tmp_path / "ca.crt")
    token = tmp_path / "token"
    token.write_text("of-the-pod")
    host, _, port = server.url.removeprefix("https://").partition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(ca))
    # A unique deadline, so that no other test shares this cached client.
    assert ask(ClusterAccess(IN_CLUSTER, deadline_s=9.5)) == "v1"
    assert server.requests[0][0].lower() == "bearer of-the-pod"


def test_local_kubeconfig_context(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes.config import kube_config

    ca = authority().write_ca(tmp_path / "ca.crt")
    document = json.loads(login(server.url, token="mine").kubeconfig)
    # Files may be named here: they are this machine's own.
    document["clusters"][0]["cluster"]["certificate-authority"] = str(ca)
    document["contexts"].append({"name": "a", "context": {"cluster": "c"}})
    file = tmp_path / "config"
    file.write_text(json.dumps(document))
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    assert machine_contexts() == ("c", "a"), "the current one first"
    assert ask(ClusterAccess(CONTEXT, context="c", deadline_s=9.5)) == "v1"
    assert server.requests[0][0] == "Bearer mine"
    with pytest.raises(PermanentError, match="KUBECONFIG or"):
        ClusterAccess(CONTEXT, context="none").api_client()
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    assert machine_contexts() == ()

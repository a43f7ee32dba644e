"""Logins and TLS of the Prometheus client, verified by real servers."""

from __future__ import annotations

import base64
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from console.core.outbound import address_problem, url_problem
from dashboards.prometheus.http.client import FaultKind, Prometheus, Question
from dashboards.prometheus.http.login import Auth, Login
from dashboards.prometheus.http.session import NoReplyError, exchange, make_session
from tests.support.certificates import authority, stranger
from tests.support.http_stub import Answer, Stub, http_stub

FOUND = {
    "status": "success",
    "data": {"resultType": "vector", "result": [{"metric": {}, "value": [0, "7"]}]},
}
ANSWERS = {"/api/v1/query": (200, FOUND)}


def query_once(url: str, login: Login | None = None) -> object:
    client = Prometheus(url, login=login, name="eu")
    try:
        answer = client.ask({"q": Question("sum (up)", 60)})["q"]
    finally:
        client.close()
    return answer.fault or answer.series[0].latest


@pytest.fixture(scope="module")
def server() -> Iterator[Stub]:
    with http_stub(dict(ANSWERS)) as stub:
        yield stub


def sent(stub: Stub, login: Login | None = None, url: str = "") -> dict[str, str]:
    assert query_once(url or stub.url, login) == 7.0
    return {name.lower(): value for name, value in stub.headers[-1].items()}


def test_each_login_reaches_the_server_as_configured(server: Stub) -> None:
    assert "authorization" not in sent(server)
    bearer = sent(server, Login(Auth.BEARER, secret="t0ken"))
    assert bearer["authorization"] == "Bearer t0ken"
    basic = "Basic " + base64.b64encode("jo:p:ä".encode()).decode()
    assert sent(server, Login(Auth.BASIC, "jo", "p:ä"))["authorization"] == basic
    tenant = Login(tenant="team-a")
    assert sent(server, tenant)["x-scope-orgid"] == "team-a"
    assert sent(server, Login(tenant="b", tenant_header="THANOS-TENANT"))["thanos-tenant"] == "b"


def test_password_in_the_address_is_a_login(server: Stub) -> None:
    url = server.url.replace("http://", "http://jo:p%40ss@")
    basic = "Basic " + base64.b64encode(b"jo:p@ss").decode()
    assert sent(server, url=url)["authorization"] == basic


def test_signed_request_names_its_key_and_encodes_spaces_as_aws_does(server: Stub) -> None:
    login = Login(Auth.SIGV4, "AKID", "secret", region="eu-central-1", tenant="a")
    found = sent(server, login)
    assert found["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKID/")
    assert (
        "/eu-central-1/aps/aws4_request, SignedHeaders=host;x-amz-date;x-scope-orgid"
        in (found["authorization"])
    )
    assert "query=sum%20%28up%29" in server.seen[-1][1]


def test_redirects_are_not_followed() -> None:
    with http_stub(dict(ANSWERS)) as other:
        moved: Answer = (302, "")
        with http_stub({"/api/v1/query": moved}, {"location": f"{other.url}/api/v1/query"}) as stub:
            fault = query_once(stub.url, Login(Auth.BEARER, secret="t0ken"))
        assert getattr(fault, "kind", None) is FaultKind.NOT_PROMETHEUS
        assert other.seen == []


def test_rejected_login_is_reported() -> None:
    with http_stub({"/api/v1/query": (401, "no")}) as stub:
        fault = query_once(stub.url)
    assert getattr(fault, "kind", None) is FaultKind.REFUSED
    assert f"Prometheus eu at {stub.url} denied access (HTTP 401)." in str(fault)


def test_credential_endpoints_are_rejected_when_connecting() -> None:
    for host in ("169.254.169.254", "fe80::1%eth0", "::ffff:169.254.169.254", "fd00:ec2::254"):
        assert address_problem(host), host
    for host in ("127.0.0.1", "10.0.0.1", "::1", "prometheus.svc"):
        assert address_problem(host) == "", host
    for url in ("ftp://x", "http://u:p@x", "http://x/?a=b", "http://", "http://0.0.0.0", "//x"):
        assert url_problem(url), url
    assert url_problem("https://aps-workspaces.eu-central-1.amazonaws.com/workspaces/ws-1") == ""


def test_name_that_resolves_to_a_forbidden_address_is_not_queried(
    server: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address of the connection is checked, not an earlier resolution."""
    monkeypatch.setattr(
        "console.core.outbound.address_problem", lambda *_, **__: "It is forbidden."
    )
    before = len(server.seen)
    fault = query_once(server.url, Login(Auth.BEARER, secret="t0ken"))
    assert "It is forbidden." in str(fault)
    with pytest.raises(NoReplyError, match="It is forbidden"):
        exchange(Login(), "GET", f"{server.url}/api/v1/query")
    assert len(server.seen) == before


@contextmanager
def tls_server(*, asks_for_a_certificate: bool) -> Iterator[str]:
    context = authority().server("localhost")
    if asks_for_a_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=authority().pem.decode())

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"status":"success","data":{"result":[{"metric":{},"value":[0,"7"]}]}}'
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"https://localhost:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_only_logins_with_system_cas_share_a_context() -> None:
    """To load the system's CAs takes longer than a query, and one page makes many sessions."""
    assert Login().tls() is Login(Auth.BASIC, username="ada", secret="x").tls()
    own = Login(ca=authority().pem.decode()).tls()
    assert own is not Login().tls()
    assert Login().tls().verify_mode is own.verify_mode is ssl.CERT_REQUIRED


def test_tls_accepts_only_the_configured_authority() -> None:
    with tls_server(asks_for_a_certificate=False) as url:
        assert query_once(url, Login(ca=authority().pem.decode())) == 7.0
        for login in (Login(), Login(ca=stranger().pem.decode())):
            assert "is unreachable" in str(query_once(url, login))
            with pytest.raises(NoReplyError, match="TLS failed"):
                exchange(login, "GET", f"{url}/api/v1/query")


def test_client_certificate_is_presented(tmp_path: Path) -> None:
    certificate, key = (path.read_text() for path in authority().write(tmp_path, "console"))
    ca = authority().pem.decode()
    mine = Login(Auth.MTLS, ca=ca, certificate=certificate, key=key)
    with tls_server(asks_for_a_certificate=True) as url:
        assert query_once(url, mine) == 7.0
        assert "is unreachable" in str(query_once(url, Login(ca=ca)))
        odd = Login(Auth.MTLS, ca=ca, certificate=certificate, key="no key")
        assert "The certificate and key are not a matching" in str(query_once(url, odd))


def test_repr_contains_no_secret() -> None:
    shown = repr(Login(Auth.MTLS, "jo", "hidden-1", certificate="hidden-2", key="hidden-3"))
    assert "hidden" not in shown


def test_long_query_is_sent_as_a_form() -> None:
    """Proxies refuse first lines of more than 8 KiB; the short ones stay as they were."""
    with http_stub({"/q": (200, "fine")}) as stub, make_session(Login()) as asking:
        for query in ("up", "up or " * 1000 + "up"):
            answer = asking.request("GET", f"{stub.url}/q", params={"query": query, "time": 5})
            assert answer.text == "fine"
        (short, path, body), (long, bare, form) = stub.seen
    assert (short, path, body) == ("GET", "/q?query=up&time=5", b"")
    assert (long, bare) == ("POST", "/q")
    assert form.startswith(b"query=up+or+up")
    assert form.endswith(b"&time=5")

"""User-supplied URLs reach neither this machine, metadata services nor our admin ports."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings

from console.clusters import actions as clusters
from console.core import outbound
from console.core.errors import Refused
from console.core.outbound import Allowed, address_problem, parse_allowed, url_problem
from console.provisioners.base import PermanentError
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.access import KUBECONFIG, ClusterAccess
from console.provisioners.kubernetes.api.client import KubernetesClient
from dashboards.alerts.alertmanager import receivers
from dashboards.prometheus.http.login import Login
from dashboards.prometheus.http.session import NoReplyError, exchange
from dashboards.prometheus.sources import actions as sources
from tests.console.clusters.conftest import kubeconfig
from tests.support.console import person
from tests.support.http_stub import Stub, http_stub

HOSTS = (
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.8.9.1", "localhost",
    "localhost.", "x.localhost", "[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]",
    "[64:ff9b::7f00:1]", "169.254.169.254", "2852039166", "[::ffff:169.254.169.254]",
    "100.100.100.200", "0.0.0.0", "[fe80::1]",
)  # fmt: skip


@pytest.fixture
def strict() -> Iterator[None]:
    """Clear EMBERLINE_OUTBOUND_ALLOW."""
    outbound.set_allowed(())
    outbound._admins.cache_clear()
    yield
    outbound.set_allowed(settings.EMBERLINE.outbound_allow)
    outbound._admins.cache_clear()


@pytest.fixture(scope="module")
def stub() -> Iterator[Stub]:
    with http_stub({"/": (200, "{}")}) as found:
        yield found


def _receiver(url: str) -> Any:
    return receivers.create(person("admin"), {"name": "hook", "url": url})


def _source(url: str) -> Any:
    return sources.add(person("admin"), "mimir", {"url": url})


def _alertmanager(url: str) -> Any:
    facts = {"url": "http://10.0.0.1:9090", "alertmanager_url": url}
    return sources.add(person("admin"), "mimir", facts)


def _cluster(url: str) -> Any:
    facts = {"kind": "kubeconfig", "kubeconfig": kubeconfig(url.replace("http:", "https:"))}
    return clusters.add_cluster(person("admin"), "work", facts)


@pytest.mark.django_db
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("field", [_receiver, _source, _alertmanager, _cluster])
def test_forbidden_addresses_are_rejected_in_every_field(
    strict: None, field: Callable[[str], Any], host: str
) -> None:
    with pytest.raises(Refused) as refused:
        field(f"http://{host}:9090/x")
    assert refused.value.errors[0].field in ("url", "alertmanager_url", "kubeconfig")


@pytest.mark.django_db
def test_message_names_the_remedy(strict: None) -> None:
    with pytest.raises(Refused, match=r"EMBERLINE_OUTBOUND_ALLOW=127.0.0.1:9093"):
        _source("http://localhost:9093")


@pytest.fixture
def renamed(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a name that now resolves to this machine."""
    resolve = socket.getaddrinfo

    def lead_here(host: Any, *rest: Any, **more: Any) -> Any:
        return resolve("127.0.0.1" if host == "innocent.example" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lead_here)
    return "innocent.example"


def _query(url: str) -> None:
    exchange(Login(), "GET", f"{url}/")


def _list_pods(url: str) -> None:
    access = ClusterAccess(KUBECONFIG, kubeconfig=kubeconfig(url.replace("http:", "https:")))
    KubernetesClient(access, "default").listed(kinds.POD)


@pytest.mark.parametrize("connect", [_query, _list_pods])
def test_hostname_is_checked_when_connecting(
    strict: None, stub: Stub, renamed: str, connect: Callable[[str], None], db: None
) -> None:
    before = len(stub.seen)
    with pytest.raises((NoReplyError, PermanentError), match="own machine"):
        connect(stub.url.replace("127.0.0.1", renamed))
    assert len(stub.seen) == before


def test_operator_settings_may_use_localhost(strict: None, stub: Stub) -> None:
    assert exchange(Login(own=True), "GET", f"{stub.url}/").status == 200
    assert address_problem("127.0.0.1", 9090, own=True) == ""
    assert address_problem("169.254.169.254", 80, own=True)


def test_operator_allows_addresses_and_ports(strict: None) -> None:
    outbound.set_allowed((parse_allowed("127.0.0.1:9090"), parse_allowed("10.0.0.0/8")))
    assert url_problem("http://localhost:9090") == ""
    assert url_problem("http://127.0.0.1:9091")
    outbound.set_allowed((parse_allowed("0.0.0.0/0"),))
    assert url_problem("http://169.254.169.254"), "nobody allows metadata services"


@pytest.mark.parametrize(
    "text", ["", "x", "127.0.0.1:x", "127.0.0.1:0", "127.0.0.1:70000", "10/99"]
)
def test_invalid_allow_list_entries(text: str) -> None:
    with pytest.raises(ValueError):
        parse_allowed(text)


def test_allowed_forms() -> None:
    assert parse_allowed("[::1]:9090").port == 9090
    assert isinstance(parse_allowed("::1"), Allowed)


def test_own_admin_ports_are_rejected_on_private_networks(
    strict: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbound, "_admin_addresses", [lambda: ["10.1.2.3:9090", "x.invalid:1"]])
    assert "admin port" in url_problem("http://10.1.2.3:9090/drain")
    assert url_problem("http://10.1.2.3:8080/") == ""
    assert url_problem("http://[::ffff:10.1.2.3]:9090/")

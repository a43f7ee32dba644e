"""Parsing of cache URLs, and rejected ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachetier.client.address import Address, AddressError
from cachetier.client.node_list import Nodes, read_list, resolve_addresses


def test_node_lists_are_parsed_from_urls() -> None:
    assert Nodes.parse("redis://a") == Nodes("list", (Address("a", 6379),))
    assert Nodes.parse("redis://a:1,b:2/0?replicas=2") == Nodes(
        "list", (Address("a", 1), Address("b", 2)), replicas=2
    )
    assert Nodes.parse("redis://svc:6400?nodes=dns") == Nodes("dns", (Address("svc", 6400),))
    assert Nodes.parse("redis://a:1,b:2?nodes=cluster").kind == "cluster"
    assert Nodes.parse("file:///etc/nodes?replicas=2") == Nodes("file", (), "/etc/nodes", 2)


def test_options_apply_to_every_node() -> None:
    nodes = Nodes.parse("rediss://a:1,b:2?ca_file=/ca&cert_file=/c&key_file=/k&user=kv")
    for address in nodes.addresses:
        assert (address.tls, address.ca_file, address.cert_file) == (True, "/ca", "/c")
        assert (address.key_file, address.user) == ("/k", "kv")


def test_node_list_has_a_printable_form() -> None:
    assert str(Nodes.parse("redis://a:1,b:2?replicas=2")) == "redis://a:1,b:2/0"
    assert str(Nodes.parse("rediss://a:1?nodes=dns&ca_file=/s")) == "rediss://a:1/0?nodes=dns"
    assert str(Nodes.parse("file:///etc/nodes")) == "file:///etc/nodes"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://a,b,a", "a:6379 is listed twice"),
        ("redis://a,b?nodes=dns", "nodes=dns needs a single host name"),
        ("redis://a?nodes=etcd", "nodes=etcd is not one of"),
        ("redis://a,b?replicas=3", "replicas=3 is not 1 or 2"),
        ("redis://a?nodes=cluster&replicas=2", "manages its own replicas"),
        ("redis://a,b?name=x", "name= is for one node"),
        ("redis://a?ca_file=/x", "ca_file mean TLS"),
        ("rediss://a?cert_file=/x", "cert_file and key_file belong together"),
        ("redis://a?replica=2", "unknown cache URL option replica: use ca_file"),
        ("redis://a,,b", "needs a host"),
        ("redis://a?nodes", "name=value"),
        ("file://host/etc/nodes", "absolute path"),
        ("file:relative", "absolute path"),
        ("http://a", "must begin with redis://"),
    ],
)
def test_invalid_lists_are_rejected_with_a_message(url: str, words: str) -> None:
    with pytest.raises(AddressError, match=words):
        Nodes.parse(url)


@pytest.mark.parametrize("url", ["redis://u:hunter2@a,b", "redis://a,:hunter2@b:1"])
def test_credentials_are_rejected_and_not_repeated(url: str) -> None:
    with pytest.raises(AddressError, match="credentials") as caught:
        Nodes.parse(url)
    assert "hunter2" not in str(caught.value)


def test_node_list_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "nodes"
    path.write_text("# ours\nredis://a:1?name=cache-0\n\nrediss://b:2 # the other\n")
    assert read_list(str(path)) == (Address("a", 1, name="cache-0"), Address("b", 2, tls=True))
    path.write_text("redis://a\nhttp://b\n")
    with pytest.raises(AddressError, match="line 2 of"):
        read_list(str(path))
    path.write_text("redis://a:1?name=x\nredis://b:1?name=x\n")
    with pytest.raises(AddressError, match="x is listed twice"):
        read_list(str(path))


def test_hostname_resolves_to_all_nodes_and_tls_verifies_the_name() -> None:
    found = resolve_addresses(Address("localhost", 6400, tls=True))
    assert {address.host for address in found} <= {"127.0.0.1", "::1"}
    assert found
    for address in found:
        assert (address.port, address.tls, address.server_name) == (6400, True, "localhost")


def test_labels_distinguish_nodes() -> None:
    assert Address("::1", 7).label == "[::1]:7"
    assert Address("h", 7, name="cache-0").label == "cache-0"
    assert str(Address("::1", 7)) == "redis://[::1]:7/0"

"""Admin port: JSON facts and orders, which are atomic and rejected with a remedy."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from cachetier.engine import admin
from cachetier.engine.admin_orders import AdminCommands
from cachetier.engine.config import MIB, parse
from cachetier.engine.metrics import render_metrics
from cachetier.engine.node import Node
from cachetier.engine.store import Condition
from cachetier.wire.envelope import block_key
from tests.cachetier.engine.conftest import Start
from tests.support.cachenode import read_metric

HOST = "127.0.0.1"
A, B = "a" * 32, "b" * 32


def make(*flags: str) -> tuple[Node, AdminCommands, list[str]]:
    node = Node(parse(("--memory", "64MiB", "--admin", f"{HOST}:0", *flags)))
    drained: list[str] = []
    return node, AdminCommands(node, lambda: drained.append("drained")), drained


def put(node: Node, key: bytes, size: int = 1000) -> None:
    declined = node.store.put(
        key, bytes(size), now=time.monotonic(), ttl_s=None, condition=Condition.ALWAYS
    )
    assert declined is None


def fill(node: Node) -> None:
    for number in range(5):
        put(node, block_key(A, 0, b"%d" % number))
    for number in range(3):
        put(node, block_key(B, 0, b"%d" % number))
    put(node, b"another program's")


# -- facts -------------------------------------------------------------------------------------
def test_namespace_bytes_sum_to_the_used_bytes() -> None:
    node, _, _ = make("--quota", f"{A}=2MiB")
    fill(node)
    node.looked_up(block_key(A, 0, b"0"), True)
    node.looked_up(block_key(A, 0, b"9"), False)
    node.store.drop(block_key(A, 0, b"1"), time.monotonic())
    listed = {one["namespace"]: one for one in admin.namespaces_json(node)["namespaces"]}
    assert {name: one["blocks"] for name, one in listed.items()} == {A: 4, B: 3, "": 1}
    assert sum(one["bytes"] for one in listed.values()) == node.store.usage().used_bytes
    assert (listed[A]["lookups"], listed[A]["hits"]) == (2, 1)
    assert listed[A]["quota_bytes"] == 2 * MIB
    assert listed[B]["quota_bytes"] is None
    assert listed[A]["evicted"] == 0  # it was deleted


def test_evictions_are_counted_by_namespace_and_reason() -> None:
    node, _, _ = make("--quota", f"{A}=1MiB")
    for number in range(20):
        put(node, block_key(A, 0, b"%d" % number), 100_000)
    listed = {one["namespace"]: one for one in admin.namespaces_json(node)["namespaces"]}
    assert listed[A]["bytes"] <= MIB
    by = listed[A]["evicted_by"]
    assert by["quota"] == listed[A]["evicted"] == 20 - listed[A]["blocks"] > 0
    assert admin.stats_json(node)["evicted"]["quota"] == by["quota"]


def test_client_supplied_names_are_bounded() -> None:
    node, _, _ = make()
    put(node, block_key(A, 0, b"x"))
    for number in range(3000):
        node.looked_up(block_key(f"{number:032x}", 0, b"x"), False)
        gone = block_key(f"{number:016x}", 0, b"x")
        put(node, gone)
        assert node.store.drop(gone, time.monotonic())
    assert len(node.census.spaces()) <= 1025
    reported = admin.namespaces_json(node)
    assert reported["namespaces"][0]["namespace"] == A
    assert len(reported["namespaces"]) == 200
    assert reported["not_listed"] == 825


def test_curve_predicts_hits_of_other_sizes() -> None:
    node, _, _ = make()
    assert admin.curve_json(node)["points"] == []
    for turn in range(3):
        for number in range(100):
            key = block_key(A, 0, b"%d" % number)
            found = node.store.touch(key, time.monotonic())
            node.looked_up(key, found)
            if turn == 0:
                put(node, key, 100_000)  # ten megabytes, requested three times in turn
    reported = admin.curve_json(node)
    rates = {point["bytes"]: point["hit_rate"] for point in reported["points"]}
    assert rates[4 * MIB] < 0.1
    assert rates[64 * MIB] == pytest.approx(2 / 3, abs=0.01)
    assert reported["requests"] == 300
    assert reported["measured_hit_rate"] == pytest.approx(2 / 3)
    assert 8 * MIB < reported["knee_bytes"] <= 16 * MIB
    json.dumps(reported)


def test_stats_are_those_of_the_node() -> None:
    node, _, _ = make("--policy", "arc", "--pool", "warm")
    fill(node)
    reported = admin.stats_json(node)
    assert reported["memory"]["entries"] == 9
    assert reported["memory"]["capacity_bytes"] == 64 * MIB
    assert (reported["policy"], reported["pool"], reported["draining"]) == ("arc", "warm", False)
    json.dumps(reported)


def test_shares_are_exported_to_prometheus() -> None:
    node, _, _ = make("--quota", f"{A}=2MiB", "--policy", "lru", "--admission")
    fill(node)
    text = render_metrics(node)
    used = read_metric(text, "emberline_l2_used_bytes", medium="memory")
    total = read_metric(text, "emberline_l2_namespace_used_bytes")
    assert total == used == node.store.usage().used_bytes
    mine = read_metric(text, "emberline_l2_namespace_used_bytes", namespace=A)
    assert 0 < mine < total
    assert read_metric(text, "emberline_l2_namespace_quota_bytes", namespace=A) == 2 * MIB
    assert read_metric(text, "emberline_l2_policy_info", policy="lru") == 1
    for name in ("held_bytes", "receiving_bytes", "policy_ghosts", "refused_namespaces"):
        assert f"# TYPE emberline_l2_{name} gauge" in text
    assert B not in text  # a client's name makes no series of its own here


async def test_disk_is_in_the_stats(tmp_path: Path) -> None:
    node, _, _ = make("--disk", f"{tmp_path / 'disk'}:64MiB")
    try:
        document = json.loads(json.dumps(admin.stats_json(node)))["disk"]
        assert (document["state"], document["entries"]) == ("ok", 0)
    finally:
        assert node.disk is not None
        node.disk.close(1.0)


# -- orders ------------------------------------------------------------------------------------
def give(
    orders: AdminCommands, path: str, bearer: str = "", **query: str
) -> tuple[int, dict[str, Any]]:
    return orders.give(path, query, bearer, HOST)


def test_flush_affects_only_its_namespace() -> None:
    node, orders, _ = make()
    fill(node)
    assert give(orders, "/flush", namespace=A) == (200, {"namespace": A, "dropped": 5})
    assert node.store.usage().entries == 4
    assert give(orders, "/flush", namespace="")[1]["dropped"] == 1
    assert give(orders, "/flush")[1]["dropped"] == 3
    assert node.store.usage().used_bytes == 0


def test_size_is_changed_at_run_time() -> None:
    node, orders, _ = make()
    for number in range(30):
        put(node, b"%d" % number, MIB)
    status, reported = give(orders, "/resize", memory="16MiB")
    assert status == 200
    assert reported["capacity_bytes"] == 16 * MIB
    assert reported["used_bytes"] <= 16 * MIB
    assert node.store.peek(b"29", time.monotonic()) is not None
    assert give(orders, "/resize", memory="64MiB")[1]["capacity_bytes"] == 64 * MIB


@pytest.mark.parametrize(
    ("path", "query", "code", "field", "remedy"),
    [
        ("/resize", {}, "missing", "memory", "/resize?memory=4GiB"),
        ("/resize", {"memory": "much"}, "invalid", "memory", "write for example 512MiB"),
        ("/resize", {"memory": "1KiB"}, "invalid", "memory", "at least"),
        ("/resize", {"memory": "1MiB"}, "invalid", "memory", "every --quota"),
        ("/resize", {"memory": "8MiB", "disk": "1"}, "unknown_field", "disk", "use memory"),
        ("/flush", {"name": A}, "unknown_field", "name", "use namespace"),
        ("/drain", {"now": "1"}, "unknown_field", "now", "use to, rate"),
    ],
)
def test_invalid_orders_are_rejected_by_field_without_effect(
    path: str, query: dict[str, str], code: str, field: str, remedy: str
) -> None:
    node, orders, drained = make("--quota", f"{A}=2MiB")
    fill(node)
    status, reported = give(orders, path, **query)
    assert (status, reported["code"], reported["field"]) == (400, code, field)
    assert remedy in reported["detail"]
    assert node.store.usage().entries == 9
    assert node.store.usage().capacity_bytes == 64 * MIB
    assert not drained


def test_orders_need_the_password(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("open sesame")
    node, orders, drained = make("--password-file", str(secret))
    fill(node)
    for bearer in ("", "open sesame", "Bearer ", "Bearer open", "Digest open sesame"):
        for path in ("/flush", "/resize", "/drain"):
            status, reported = give(orders, path, bearer)
            assert (status, reported["code"]) == (401, "unauthorized")
            assert "Authorization: Bearer" in reported["detail"]
    assert node.store.usage().entries == 9
    assert not drained
    assert give(orders, "/drain", "bearer open sesame") == (202, {"draining": True})
    assert drained == ["drained"]


def test_wrong_tokens_are_limited_and_the_valid_one_is_not(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("open sesame")
    _, orders, _ = make("--password-file", str(secret), "--login-failures", "3")
    codes = [give(orders, "/flush", "Bearer guess")[1]["code"] for _ in range(4)]
    assert codes == ["unauthorized"] * 3 + ["locked"]
    assert give(orders, "/flush", "Bearer guess")[0] == 429
    assert give(orders, "/flush", "Bearer open sesame")[0] == 200


def test_open_port_without_a_password_accepts_no_orders() -> None:
    node = Node(parse(("--memory", "64MiB", "--admin", "0.0.0.0:0")))
    status, reported = AdminCommands(node, lambda: None).give("/flush", {}, "", "10.0.0.9")
    assert (status, reported["code"]) == (403, "protected")
    assert "--password-file" in reported["detail"]


def test_orders_are_json_over_http(start: Start) -> None:
    node = start(password="open sesame")
    for page in ("/stats", "/namespaces", "/curve"):
        assert isinstance(json.loads(node.page(page)), dict)
    url = f"http://127.0.0.1:{node.admin_port}/resize?memory=32MiB"
    request = urllib.request.Request(url, method="POST")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=60)
    with caught.value as answer:
        assert answer.status == 401
        assert json.load(answer)["field"] == "authorization"
    request.add_header("Authorization", "Bearer open sesame")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["capacity_bytes"] == 32 * MIB
    assert node.metric("emberline_l2_capacity_bytes", medium="memory") == 32 * MIB

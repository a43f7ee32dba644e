"""Handover of hot values to the nodes used by clients: bounded and counted."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from cachetier.client.rendezvous import Rendezvous
from cachetier.engine import handover
from cachetier.engine.config import ListenAddress, PeerConfig, parse, parse_peers
from cachetier.engine.handover import Peer, PeerFacts
from cachetier.engine.node import Node
from cachetier.engine.policies import POLICIES, make_policy
from cachetier.engine.store import Condition
from tests.cachetier.engine.conftest import Start
from tests.support.cachenode import CacheNode, Valkey
from tests.support.certificates import authority
from tests.support.ports import free_port
from tests.support.waiting import until

MIB = 1024 * 1024
VALUES = "emberline_l2_handover_values_total"
MOVED_IN = "emberline_l2_moved_in_values_total"


def client(node: CacheNode | Valkey) -> redis.Redis:
    return redis.Redis(port=node.port, password=node.password or None)


def order(node: CacheNode, path: str, scheme: str = "http") -> tuple[int, Any]:
    request = urllib.request.Request(
        f"{scheme}://localhost:{node.admin_port}{path}",
        method="POST",
        headers={"authorization": f"Bearer {node.password}"},
    )
    context = authority().client() if scheme == "https" else None
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def ended(node: CacheNode) -> dict[str, Any]:
    """Return the /stats of the handover once it is over."""

    def over() -> dict[str, Any] | None:
        facts = json.loads(node.page("/stats"))["handover"]
        return facts if facts["state"] != "running" else None

    return until(over, what="the handover")


def place(node: CacheNode | Valkey) -> str:
    return f"127.0.0.1:{node.port}"


def test_each_value_moves_to_the_node_used_by_clients(start: Start) -> None:
    """Several peers; expiry times are kept; values of a peer are not overwritten."""
    node, *peers = (start("--allow-flush", password="open sesame") for _ in range(3))
    db = client(node)
    values = {b"k%d" % i: os.urandom([10, 20_000, 300_000][i % 3]) for i in range(60)}
    for key, value in values.items():
        db.set(key, value, ex=500 if key.endswith(b"7") else None)
    names = {f"cache-{number}": client(peer) for number, peer in enumerate(peers)}
    placing = Rendezvous({"cache-0": 1.0, "cache-1": 3.0})
    listed = [
        f"redis://{place(peer)}/0?name=cache-{number}%26weight={2 * number + 1}"
        for number, peer in enumerate(peers)
    ]
    owner = {key: names[placing.place(key)[0]] for key in values}
    owner[b"k5"].set("k5", "theirs")
    status, text = order(node, f"/drain?to={','.join(listed)}")
    assert (status, text["draining"], text["handover"]["state"]) == (202, True, "running")
    facts = ended(node)
    assert (facts["state"], facts["problem"]) == ("done", "")
    assert (facts["handed"], facts["there"]) == (59, 1)
    assert facts["bytes"] == sum(len(value) for key, value in values.items() if key != b"k5")
    for key, value in values.items():
        assert owner[key].get(key) == (b"theirs" if key == b"k5" else value)
        ttl = owner[key].ttl(key)
        assert 400 < ttl <= 500 if key.endswith(b"7") else ttl == -1
    assert sum(peer.dbsize() for peer in names.values()) == 60
    stored = [peer.info("commandstats")["cmdstat_set"]["calls"] for peer in names.values()]
    assert sum(stored) == 60, "one of them is k5, stored above: it was not sent again"
    received = [peer.metric(MOVED_IN, source="handover") for peer in peers]
    assert sum(received) == 59
    assert received[1] > 1.5 * received[0], "by weight"
    assert db.get("k1") == values[b"k1"], "who is there goes on being served"
    assert node.metric(VALUES, result="handed") == 59
    assert node.metric("emberline_l2_handover_bytes_total") == facts["bytes"]
    db.flushall()
    left = db.info("memory")
    assert (left["used_memory"], left["emberline_held_bytes"]) == (0, 0), "nothing is pinned"


def handover_of(node: Node, rate: int = handover.DEFAULT_RATE) -> handover.Handover:
    peers = [PeerConfig(ListenAddress("peer", 1), "peer:1")]
    return handover.Handover(node.config, node.store, node.policy, node.password_file, peers, rate)


async def test_values_stored_on_the_target_during_a_handover_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The peer lacks the key when queried and has it when the value arrives."""
    sent = b""

    class Late(Peer):
        async def connect(self, *_: object) -> PeerFacts:
            return PeerFacts(0, 64 * MIB)

        async def ask(self, pieces: Sequence[bytes | memoryview], count: int) -> list[str]:
            nonlocal sent
            sent = b"".join(pieces)
            return ["0" if b"STRLEN" in sent else "-1"] * count

    monkeypatch.setattr(handover, "Peer", Late)
    node = Node(parse(("--memory", "1MiB")))
    node.store.put(b"k", b"ours", now=0.0, ttl_s=None, condition=Condition.ALWAYS)
    one = handover_of(node)
    await one.run()
    assert one.facts()["state"] == "done"
    assert one.facts()["there"] == 1
    assert sent == b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nours\r\n$2\r\nNX\r\n"


async def test_handover_rate_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    class Willing(Peer):
        async def connect(self, *_: object) -> PeerFacts:
            return PeerFacts(0, 64 * MIB)

        async def ask(self, pieces: Sequence[bytes | memoryview], count: int) -> list[str]:
            return ["0" if b"STRLEN" in bytes(pieces[0]) else "OK"] * count

    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(handover, "Peer", Willing)
    node = Node(parse(("--memory", "1MiB")))
    node.store.put(b"k", bytes(10_000), now=0.0, ttl_s=None, condition=Condition.ALWAYS)
    one = handover_of(node, rate=10)
    with monkeypatch.context() as patched:
        patched.setattr(handover.asyncio, "sleep", wait)
        await one.run()
    assert one.facts()["handed"] == 1
    assert 500 < waited[-1] <= 1000, "a thousand seconds' worth, less what has passed"


def test_full_target_gives_a_quarter_to_the_hottest_values(start: Start) -> None:
    node, peer = start("--policy", "lru"), start("--policy", "lru", memory="32MiB")
    ours, theirs = client(node), client(peer)
    for number in range(40):
        theirs.set(f"theirs{number}", bytes(MIB))
    for number in range(40):
        ours.set(f"ours{number}", bytes(MIB))
    assert ours.get("ours3")
    assert order(node, f"/drain?to={place(peer)}")[0] == 202
    facts = ended(node)
    assert facts["state"] == "done"
    assert 6 <= facts["handed"] <= 8
    assert facts["handed"] + facts["full"] == 40
    hottest = ["ours3", *(f"ours{number}" for number in range(39, 30, -1))]
    assert theirs.exists(*hottest[: facts["handed"]]) == facts["handed"]
    assert len(list(theirs.scan_iter("theirs*"))) >= 22


def test_valkey_can_be_the_target(start: Start, tmp_path: Path) -> None:
    node, peer = start(), Valkey(tmp_path)
    client(node).set("k", bytes(MIB), px=100_000)
    assert order(node, f"/drain?to={place(peer)}")[0] == 202
    assert ended(node)["handed"] == 1
    assert client(peer).get("k") == bytes(MIB)
    assert 90 < client(peer).ttl("k") <= 100
    peer.stop()


def test_handover_uses_tls_like_clients(start: Start, tmp_path: Path) -> None:
    cert, key = authority().write(tmp_path, "localhost")
    ca = str(authority().write_ca(tmp_path / "ca.pem"))
    tls = ("--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", ca, "--admin-plain")
    node, peer = start(*tls), start(*tls)
    shown = {"ssl_ca_certs": ca, "ssl_certfile": str(cert), "ssl_keyfile": str(key)}
    ours, theirs = (redis.Redis("localhost", one.port, ssl=True, **shown) for one in (node, peer))
    ours.set("k", bytes(MIB))
    assert order(node, f"/drain?to=localhost:{peer.port}")[0] == 202
    assert ended(node)["state"] == "done"
    assert theirs.get("k") == bytes(MIB)


@pytest.mark.parametrize("what", ["absent", "another password", "itself", "no cache"])
def test_invalid_target_is_named_and_nothing_is_lost(start: Start, what: str) -> None:
    node = start(password="open sesame")
    client(node).set("k", "v")
    port, words = {
        "absent": lambda: (free_port(), "is unreachable"),
        "another password": lambda: (start(password="other").port, "WRONGPASS"),
        "itself": lambda: (node.port, "draining|is gone"),  # it accepts no connection by then
        "no cache": lambda: (
            start(password="x").admin_port,
            "does not respond|does not answer|is gone",
        ),
    }[what]()
    assert order(node, f"/drain?to=127.0.0.1:{port}")[0] == 202
    facts = ended(node)
    assert facts["state"] == "failed"
    assert facts["problem"].startswith(f"127.0.0.1:{port}")
    assert any(part in facts["problem"] for part in words.split("|")), facts["problem"]
    assert "sesame" not in node.log.read_text()
    assert node.page("/healthz") == "ok\n"
    assert node.metric("emberline_l2_blocks") == 1


def test_target_that_disconnects_costs_only_misses(start: Start) -> None:
    node, peer = start(), start()
    db = client(node)
    for number in range(60):
        db.set(f"k{number}", bytes(MIB))
    assert order(node, f"/drain?to={place(peer)}&rate=4MiB")[0] == 202
    assert order(node, f"/drain?to={place(peer)}")[0] == 409
    until(lambda: node.metric(VALUES, result="handed") > 0, what="some of it")
    peer.kill()
    facts = ended(node)
    assert facts["state"] == "failed"
    assert facts["handed"] + facts["lost"] + facts["full"] == 60
    assert facts["lost"] > 0
    assert db.get("k59") == bytes(MIB)
    assert node.metric("emberline_l2_blocks") == 60


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("to=", "to"),
        ("to=host", "to"),
        ("to=a:1,", "to"),
        ("to=http://a:1", "to"),
        ("to=redis://a:1?weight=0", "to"),
        ("to=a:1&rate=1", "rate"),
        ("to=a:1&rate=fast", "rate"),
        ("rate=5MiB", "rate"),
        ("from=a:1", "from"),
    ],
)
def test_invalid_orders_drain_nothing(start: Start, query: str, field: str) -> None:
    node = start()
    status, content = order(node, f"/drain?{query}")
    assert (status, content["field"]) == (400, field)
    assert node.page("/readyz") == "ready\n"


def test_peers_are_addresses_or_lines_of_a_node_list() -> None:
    assert parse_peers("h:1, redis://[::1]:2/0?name=n&weight=4") == (
        PeerConfig(ListenAddress("h", 1), "h:1"),
        PeerConfig(ListenAddress("::1", 2), "n", 4.0),
    )


@pytest.mark.parametrize("name", POLICIES)
def test_ranking_lists_every_value_once_recently_used_first(name: str) -> None:
    policy = make_policy(name, 1000)
    for number in range(20):
        policy.added(b"k%d" % number, 10)
    for _ in range(3):
        policy.used(b"k4")
    before = policy.ranking()
    assert before[0] == b"k4"
    assert sorted(before) == sorted(b"k%d" % number for number in range(20))
    assert policy.ranking() == before, "asking changes nothing"
    policy.removed(b"k4")
    assert b"k4" not in policy.ranking()

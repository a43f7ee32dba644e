"""A tier of real nodes under a real supervisord, as an operator changes it while it serves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from pytest_django.fixtures import Settings

from cachetier import actions, reconciler, selectors
from cachetier.client.node_list import Nodes
from cachetier.client.outcomes import KeyOutcome
from cachetier.client.pool import CachePool
from cachetier.models import CacheNode, CacheTier
from cachetier.node_admin import password_file
from cachetier.wire.envelope import block_key
from console.accounts.models import User
from tests.support.supervised import Supervised
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
MIB = 1024**2
NAMESPACE = "3f9c0a"
KEYS = [block_key(NAMESPACE, 0, bytes([number]) * 32) for number in range(24)]
DISK = {"disk_bytes": 256 * MIB}
BODY = bytes(range(256)) * 256


@pytest.fixture
def supervised(settings: Settings) -> Iterator[Supervised]:
    found = Supervised()
    try:
        settings.EMBERLINE = dataclasses.replace(
            settings.EMBERLINE, var=found.var, provisioner="local"
        )
        found.start()
        yield found
    finally:
        found.close()


def settle(what: str, nodes: int) -> CacheTier:
    """Run passes until the tier serves with that many reporting nodes."""

    def settled() -> CacheTier | None:
        reconciler.reconcile(str(CacheTier.objects.get(name="chat").pk))
        tier = selectors.get_tier("chat")
        assert tier is not None
        received = [node for node in tier.nodes.all() if node.state == "ready" and node.stats]
        is_new = tier.status.observed_generation == tier.generation
        return tier if is_new and tier.status.phase == "Ready" and len(received) == nodes else None

    return until(settled, what=what)


def held(pool: CachePool) -> int:
    return sum(outcome is KeyOutcome.OK for outcome in pool.exists(KEYS, 5.0))


def test_a_tier_is_filled_grown_and_flushed_while_a_worker_uses_it(supervised: Supervised) -> None:
    operator = User.objects.create_user("olga", password="x", role="operator")
    actions.create(operator, "chat", {"memory_bytes": 64 * MIB, "node_count": 2} | DISK)
    tier = settle("two nodes serve", nodes=2)
    pool = CachePool(Nodes.parse(tier.status.url), password_file().read_text().strip())
    try:
        body = memoryview(BODY)
        until(lambda: pool.store([(KEYS[0], body)], 0, 5.0) == [KeyOutcome.OK], what="first store")
        assert set(pool.store([(key, body) for key in KEYS], 0, 5.0)) == {KeyOutcome.OK}
        assert held(pool) == len(KEYS)
        pids = dict(CacheNode.objects.values_list("name", "pid"))

        actions.change(operator, "chat", {"memory_bytes": 128 * MIB, "node_count": 3})
        settle("a third node serves", nodes=3)
        until(
            lambda: (
                settle("they are larger", nodes=3)
                and all(
                    node.stats["capacity_bytes"] == 128 * MIB for node in CacheNode.objects.all()
                )
            ),
            what="every node is larger",
        )
        assert pids.items() <= dict(CacheNode.objects.values_list("name", "pid")).items()
        until(lambda: len(pool.by_node()) == 3, what="the worker follows the list")
        assert len(KEYS) / 3 < held(pool) <= len(KEYS), "about a third of the keys moved"

        numbers = selectors.numbers(settle("numbers are seen", nodes=3))
        assert numbers.disk_capacity_bytes == 3 * 256 * MIB
        detail = selectors.detail(settle("numbers are seen", nodes=3))
        assert [one.namespace for one in detail.namespaces if one.blocks] == [NAMESPACE]
        assert detail.what_if is None, "too little was asked for"

        assert set(pool.store([(key, body) for key in KEYS], 0, 5.0)) == {KeyOutcome.OK}
        actions.change(operator, "chat", {"node_count": 2})
        settle("the third node has left", nodes=2)
        until(lambda: len(pool.open_breakers()) == 2, what="the worker follows the list")
        assert held(pool) == len(KEYS), "it has handed over what it held"

        dropped = actions.flush(operator, "chat", NAMESPACE)
        assert dropped >= len(KEYS), "those that moved left a copy behind"
        assert held(pool) == 0
    finally:
        pool.close()

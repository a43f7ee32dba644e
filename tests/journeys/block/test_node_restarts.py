"""A real node under a real supervisord: killed, it restarts empty, which is logged once."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator

import pytest
from pytest_django.fixtures import Settings

from cachetier import actions, reconciler
from cachetier.models import CacheNode, CacheTier
from console.audit.models import AuditEvent
from tests.support.supervised import Supervised
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


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


def ready(tier: CacheTier, other_than: int = 0) -> CacheNode:
    def is_ready() -> CacheNode | None:
        reconciler.reconcile(str(tier.pk))
        return CacheNode.objects.filter(state="ready").exclude(pid=other_than).first()

    return until(is_ready, what="the node is ready")


def restart_events() -> list[AuditEvent]:
    return list(AuditEvent.objects.filter(verb="cache-node.restart"))


def test_a_killed_node_is_reported_once_and_a_new_supervisord_is_not(
    supervised: Supervised,
) -> None:
    tier = actions.ensure_default_tier()
    before = ready(tier)
    assert restart_events() == []

    os.kill(before.pid, signal.SIGKILL)
    after = ready(tier, other_than=before.pid)
    for _ in range(3):
        reconciler.reconcile(str(tier.pk))
    (event,) = restart_events()
    assert event.target == "cache-node/cache-default-0"
    assert event.changes["restarts"] == [0, 1]
    assert after.lost_at == after.started_at

    supervised.stop()
    supervised.start()
    anew = ready(tier, other_than=after.pid)
    assert anew.pid != after.pid
    assert len(restart_events()) == 1
    assert anew.lost_at is None

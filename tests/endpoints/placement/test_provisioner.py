"""Users of a cluster, which prevent its removal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.conf import settings as live
from pytest_django import Settings

from cachetier import actions as tiers
from console.clusters import actions, refresh
from console.core import uses
from console.core.errors import Refused
from endpoints.models import Endpoint

pytestmark = pytest.mark.django_db


def test_cluster_lists_its_endpoints_and_tiers(demo_endpoint: Endpoint, settings: Settings) -> None:
    tiers.ensure_default_tier()
    assert uses.by_name("cluster") == {}, "this machine is no cluster"
    settings.EMBERLINE = replace(live.EMBERLINE, provisioner="kubernetes")
    refresh.ensure_in_cluster()
    assert uses.of("cluster", "in-cluster") == [
        "cache tier default",
        f"endpoint {demo_endpoint.name}",
    ]
    with pytest.raises(Refused, match="used by cache tier default, endpoint"):
        actions.remove_cluster(None, "in-cluster")


def test_users_follow_the_cluster_of_the_spec(demo_endpoint: Endpoint) -> None:
    demo_endpoint.spec["placement"] = {"cluster": "work"}
    demo_endpoint.save(update_fields=["spec"])
    assert uses.of("cluster", "work") == [f"endpoint {demo_endpoint.name}"]
    demo_endpoint.spec["placement"] = {"cluster": ""}
    demo_endpoint.save(update_fields=["spec"])
    assert uses.of("cluster", "work") == []

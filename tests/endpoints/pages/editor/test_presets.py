"""Presets are valid, locally and on a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from endpoints.pages.editor.presets import STARTS, Preset
from endpoints.placement import spec_context
from endpoints.spec.cluster_rules import ClusterFacts
from endpoints.spec.endpoint_spec import merge, nest
from endpoints.spec.fields import BY_PATH
from endpoints.spec.rules import Context, check

pytestmark = pytest.mark.django_db


@pytest.fixture
def with_cluster(monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setattr(spec_context.clusters, "names", lambda: ["prod"])
    monkeypatch.setattr(spec_context, "cluster_facts", lambda name: ClusterFacts(name))
    monkeypatch.setattr(spec_context, "tier_clusters", dict)
    return spec_context.context()


@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.key)
@pytest.mark.parametrize("place", ["", "prod"])
def test_preset_is_accepted_unchanged(
    start: Preset, place: str, with_cluster: Context, data: dict[str, Any]
) -> None:
    chosen = start.over({}, cluster=bool(place))
    wanted = merge(merge(data, nest(chosen)), {"placement": {"cluster": place}} if place else {})
    spec = check(wanted, with_cluster)
    flat = spec.flat()
    for one in start.here(cluster=bool(place)):
        value = list(one.value) if isinstance(one.value, tuple) else one.value
        assert flat[one.path] == value, one.path
        assert one.path in BY_PATH
        assert one.why.endswith(".")


def test_presets_differ_and_set_no_field_twice() -> None:
    assert len({start.key for start in STARTS}) == len(STARTS)
    for start in STARTS:
        for cluster in (True, False):
            paths = [one.path for one in start.here(cluster=cluster)]
            assert len(paths) == len(set(paths))

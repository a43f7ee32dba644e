"""How long a pod may take to end: an orderly end keeps its grace, a hung process has none."""

from __future__ import annotations

import pytest

from tests.console.provisioners.kubernetes.rendering.matrix import (
    SPECS,
    WORKER,
    pod_changed,
    pod_spec,
)


@pytest.mark.parametrize("name", SPECS)
def test_a_hung_process_is_killed_at_once_and_an_orderly_end_keeps_its_grace(name: str) -> None:
    """Kubernetes takes such a grace for liveness and startup probes alone."""
    pod = pod_spec(SPECS[name])
    container = pod["containers"][0]
    grace = "terminationGracePeriodSeconds"
    assert grace not in container["readinessProbe"]
    assert container["livenessProbe"][grace] == container["startupProbe"][grace] == 1
    assert pod[grace] >= SPECS[name].stop_grace_s


def test_a_grace_of_the_users_own_goes_first() -> None:
    probes = {"liveness": {"terminationGracePeriodSeconds": 7}}
    container = pod_spec(pod_changed(WORKER, probes=probes))["containers"][0]
    assert container["livenessProbe"]["terminationGracePeriodSeconds"] == 7
    assert container["livenessProbe"]["failureThreshold"] == 6

"""Termination grace: kept for an orderly shutdown, none for a hung process."""

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
    """Kubernetes accepts this grace only in liveness and startup probes."""
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

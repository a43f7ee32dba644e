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
def test_hung_process_is_killed_at_once_and_a_normal_stop_keeps_its_grace(name: str) -> None:
    """Kubernetes accepts this grace only in liveness and startup probes."""
    pod = pod_spec(SPECS[name])
    container = pod["containers"][0]
    grace = "terminationGracePeriodSeconds"
    assert grace not in container["readinessProbe"]
    assert container["livenessProbe"][grace] == container["startupProbe"][grace] == 1
    assert pod[grace] >= SPECS[name].stop_grace_s


def test_grace_period_of_the_user_has_precedence() -> None:
    probes = {"liveness": {"terminationGracePeriodSeconds": 7}}
    container = pod_spec(pod_changed(WORKER, probes=probes))["containers"][0]
    assert container["livenessProbe"]["terminationGracePeriodSeconds"] == 7
    assert container["livenessProbe"]["failureThreshold"] == 6

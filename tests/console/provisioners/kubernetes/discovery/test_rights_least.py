"""An account with only the displayed Role can do all of Emberline's work.

All verbs succeed, including those that grant rights to a router, and rights outside the Role stay
denied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.api.access import KUBECONFIG, ClusterAccess
from console.provisioners.kubernetes.api.capabilities import METRICS_SERVER
from console.provisioners.kubernetes.api.reader import Reader
from console.provisioners.kubernetes.discovery import rights
from console.provisioners.kubernetes.discovery.survey import discover
from console.provisioners.kubernetes.provisioner import KubernetesProvisioner
from tests.console.provisioners.kubernetes.rendering.matrix import SPECS
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

WHO = "person-7"


@pytest.fixture
def space(cluster: Cluster) -> str:
    return cluster.namespace(**cluster.restricted)


@pytest.fixture
def login(cluster: Cluster, space: str) -> ClusterAccess:
    text = cluster.plane.kubeconfig_of(WHO, space).read_text(encoding="utf-8")
    return ClusterAccess(KUBECONFIG, text)


@pytest.fixture
def granted(cluster: Cluster, space: str, login: ClusterAccess) -> Iterator[None]:
    """Grant the namespace level only, as a namespace owner can."""
    shown = rights.check_rights(Reader(login), space, discover(login)).manifest
    for body in yaml.safe_load_all(shown):
        if body["metadata"].get("namespace"):
            cluster.api.apply(body["kind"], space, body)
    until(
        lambda: rights.check_rights(Reader(login), space, discover(login)).enough,
        what="the Role in force",
    )
    yield


def here(spec: WorkloadSpec, folder: Path) -> WorkloadSpec:
    """Return the spec with secrets from test files."""
    file = folder / "secret"
    file.write_text("wurst")
    return replace(
        spec,
        secret_env=dict.fromkeys(spec.secret_env, str(file)),
        secret_files=dict.fromkeys(spec.secret_files, str(file)),
    )


@pytest.mark.usefixtures("granted")
@pytest.mark.parametrize(
    "name", ["worker-keda", "router-ingress-tls", "router-own-gateway", "cache"]
)
def test_displayed_role_is_sufficient(
    login: ClusterAccess, space: str, name: str, tmp_path: Path
) -> None:
    # Test control planes have no metrics-server.
    able = discover(login).capabilities | {METRICS_SERVER}
    provisioner = KubernetesProvisioner(login, space, able)
    ref = provisioner.apply(here(SPECS[name], tmp_path))
    seen = provisioner.observe(ref)
    assert seen.exists
    assert provisioner.drift(ref) == ()
    provisioner.events(ref)
    provisioner.logs(ref)

    def gone() -> bool:
        provisioner.delete(ref)
        return not provisioner.observe(ref).exists

    until(gone, what="nothing is left")


def test_error_without_a_right_names_the_right(
    login: ClusterAccess, space: str, tmp_path: Path
) -> None:
    with pytest.raises(PermanentError, match="Role in namespace") as refused:
        KubernetesProvisioner(login, space, frozenset()).apply(here(SPECS["plain"], tmp_path))
    assert refused.value.reason == "ClusterRefused"


@pytest.mark.usefixtures("granted")
def test_role_grants_nothing_in_other_namespaces(login: ClusterAccess, cluster: Cluster) -> None:
    reader = Reader(login)
    other = cluster.namespace()
    for right in rights.RIGHTS:
        for verb in right.verbs:
            assert not rights.is_allowed(reader, verb, right.group, right.resource, other)

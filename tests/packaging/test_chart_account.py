"""Chart account, used by the console's provisioner for every workload."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.api.access import KUBECONFIG, ClusterAccess
from console.provisioners.kubernetes.provisioner import KubernetesProvisioner
from tests.console.provisioners.kubernetes.rendering.matrix import SPECS, TARGET
from tests.packaging.test_chart_cluster import Installed, install
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until


def access_of_the_account(installed: Installed) -> ClusterAccess:
    """By a token as the kubelet would mount it."""
    api, plane = installed.cluster.api, installed.cluster.plane
    requested = api.ask(
        "POST",
        api.path("ServiceAccount", installed.home, "emberline", "token"),
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )
    config = yaml.load(plane.kubeconfig.read_text(), Loader=yaml.CSafeLoader)
    config["users"][0]["user"] = {"token": requested["status"]["token"]}
    return ClusterAccess(KUBECONFIG, kubeconfig=yaml.safe_dump(config))


def here(case: str, file: Path, space: str) -> WorkloadSpec:
    """With secrets that are there, and a name which is this case's alone, cluster-wide."""
    spec = SPECS[case]
    around = spec.around and replace(spec.around, owner_object={})
    own = hashlib.sha256(space.encode()).hexdigest()[:6]
    return replace(
        spec,
        name=f"{case}-{own}",
        secret_env=dict.fromkeys(spec.secret_env, str(file)),
        secret_files=dict.fromkeys(spec.secret_files, str(file)),
        around=around,
    )


@pytest.mark.kubernetes
def test_chart_account_creates_observes_and_deletes_every_workload(
    real_cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text("s")
    with install(real_cluster, "everything") as installed:
        space = installed.spaces["models"]
        account = access_of_the_account(installed)
        provisioner = KubernetesProvisioner(account, space, TARGET.capabilities)
        made = {case: provisioner.apply(here(case, file, space)) for case in SPECS}
        for case, ref in made.items():
            assert provisioner.observe(ref).exists, case
            provisioner.drift(ref)
            provisioner.delete(ref)
        for case, ref in made.items():
            until(lambda ref=ref: not provisioner.observe(ref).exists, 60, what=f"{case} gone")
        elsewhere = KubernetesProvisioner(account, installed.home, TARGET.capabilities)
        with pytest.raises(PermanentError) as refused:
            elsewhere.apply(here("plain", file, space))
        assert refused.value.reason == "ClusterRefused"

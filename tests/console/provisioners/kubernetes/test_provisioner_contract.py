"""The Kubernetes provisioner keeps the contract, on the real API server and on the fake one."""

from __future__ import annotations

import pytest

from tests.console.provisioners.contract import ProvisionerContract
from tests.console.provisioners.kuberig import KubeRig
from tests.support.kube.cluster import Cluster


class TestKubernetes(ProvisionerContract):
    @pytest.fixture
    def rig(self, cluster: Cluster) -> KubeRig:
        return KubeRig(cluster)

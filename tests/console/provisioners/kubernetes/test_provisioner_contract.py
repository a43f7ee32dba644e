"""Contract tests of the Kubernetes provisioner on the real and the fake API server."""

from __future__ import annotations

import pytest

from tests.console.provisioners.contract import ProvisionerContract
from tests.console.provisioners.kuberig import KubeRig
from tests.support.kube.cluster import Cluster


class TestKubernetes(ProvisionerContract):
    @pytest.fixture
    def provisioner_rig(self, cluster: Cluster) -> KubeRig:
        return KubeRig(cluster)

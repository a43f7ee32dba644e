"""Contract tests of the fake, in one process and shared through its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.provisioners.base import Probe, Provisioner, Ref, ReplicaState, WorkloadSpec
from console.provisioners.fake import FakeProvisioner
from tests.console.provisioners.contract import ProvisionerContract, settle


class FakeRig:
    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.provisioner: FakeProvisioner = FakeProvisioner(path)

    def spec(self, name: str, replicas: int, revision: str = "1") -> WorkloadSpec:
        return WorkloadSpec(
            owner="endpoint/demo",
            name=name,
            role="worker",
            argv=("serve", "--listen", "{host}:{port:http}", revision),
            ports=("http",),
            probe=Probe("/health", "http"),
            replicas=replicas,
        )

    def another(self) -> Provisioner:
        return FakeProvisioner(self.path) if self.path else self.provisioner

    def crash(self, ref: Ref, index: int) -> None:
        self.provisioner.crash(ref, index)


@pytest.fixture(params=["memory", "file"])
def provisioner_rig(request: pytest.FixtureRequest, tmp_path: Path) -> FakeRig:
    return FakeRig(tmp_path / "fake.json" if request.param == "file" else None)


class TestFake(ProvisionerContract):
    def test_lifecycle_states(self, provisioner_rig: FakeRig) -> None:
        ref = provisioner_rig.provisioner.apply(provisioner_rig.spec("demo", 1))
        states = [provisioner_rig.provisioner.observe(ref).replicas[0].state for _ in range(3)]
        assert states == [ReplicaState.STARTING, ReplicaState.READY, ReplicaState.READY]
        provisioner_rig.provisioner.delete(ref)
        assert provisioner_rig.provisioner.observe(ref).replicas[0].state is ReplicaState.STOPPING
        assert not provisioner_rig.provisioner.observe(ref).exists

    def test_fake_reports_that_nothing_runs(self, provisioner_rig: FakeRig) -> None:
        seen = settle(provisioner_rig, provisioner_rig.spec("demo", 1))
        assert seen.replicas[0].pid == 0
        assert "Simulated" in seen.replicas[0].message
        assert "no process runs" in provisioner_rig.provisioner.logs(Ref("fake", "demo"))["demo-0"]

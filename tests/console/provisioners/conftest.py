from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.provisioners.base import FileSpec, Probe, Provisioner, Ref, WorkloadSpec
from console.provisioners.local.provisioner import LocalProvisioner
from tests.support.supervised import Supervised

TINY_SERVER = Path(__file__).with_name("tiny_server.py")


class LocalRig:
    def __init__(self, supervised: Supervised) -> None:
        self.supervised = supervised
        self.var = supervised.var
        self.provisioner: Provisioner = LocalProvisioner(supervised.var)

    def spec(self, name: str, replicas: int, revision: str = "1", *words: str) -> WorkloadSpec:
        argv = (sys.executable, "-S", str(TINY_SERVER), "--listen", "{host}:{port:http}")
        return WorkloadSpec(
            owner="endpoint/demo",
            name=name,
            role="worker",
            argv=(*argv, *words),
            ports=("http",),
            probe=Probe("/health", "http", timeout_s=5.0),
            replicas=replicas,
            env={"REVISION": revision},
            files=(FileSpec("conf/worker.json", '{"port": {port:http}, "x": {}}'),),
            stop_grace_s=20,
        )

    def another(self) -> Provisioner:
        return LocalProvisioner(self.var)

    def crash(self, ref: Ref, index: int) -> None:
        os.kill(self.provisioner.observe(ref).replicas[index].pid, signal.SIGKILL)


@pytest.fixture
def supervised() -> Iterator[Supervised]:
    found = Supervised()
    try:
        found.start()
        yield found
    finally:
        found.close()


@pytest.fixture
def local(supervised: Supervised) -> LocalRig:
    return LocalRig(supervised)

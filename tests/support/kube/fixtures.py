"""Fixtures of clusters, for every test (imported by tests/conftest.py).

A real plane is started once for a run, or EMBERLINE_TEST_PLANE names the folder of one which runs
already. Without either, tests marked `kubernetes` are skipped, and say what was not tested.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kube import crds
from tests.support.kube.cluster import Cluster, Ground
from tests.support.kube.kubelet import Player
from tests.support.kube.plane import Plane, Reached, assets

__all__ = ["real_cluster", "real_plane"]

MISSING = (
    "NOT TESTED against a real Kubernetes: KUBEBUILDER_ASSETS names no folder with etcd and "
    "kube-apiserver, and EMBERLINE_TEST_PLANE no plane that runs"
)


def _shared() -> Path | None:
    folder = os.environ.get("EMBERLINE_TEST_PLANE", "")
    return Path(folder) if folder else None


@pytest.fixture(scope="session")
def real_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """With its kubelet, and everything of `crds`."""
    programs, folder = assets(), _shared()
    if folder is not None:
        yield Reached(folder)
    elif programs is None:
        pytest.skip(MISSING)
    else:
        plane = Plane(tmp_path_factory.mktemp("plane"), programs)
        try:
            plane.start()
            with plane.client() as admin, plane.client("kubelet-player") as api:
                crds.install(admin)
                player = Player(api, plane.folder / "kubelet", plane.kubelet_certificate)
                player.start()
                yield plane
                player.stop()
        finally:
            plane.stop()


@pytest.fixture
def real_cluster(real_plane: Ground) -> Iterator[Cluster]:
    cluster = Cluster("real" if isinstance(real_plane, Plane) else "shared", real_plane)
    yield cluster
    cluster.close()

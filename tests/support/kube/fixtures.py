"""Cluster fixtures, imported by tests/conftest.py.

A real plane is started once for a run, or EMBERLINE_TEST_PLANE names the folder of a running one.
Without either, tests marked `kubernetes` are skipped with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.kube import crds
from tests.support.kube.cluster import Cluster, Ground
from tests.support.kube.kubelet import Player
from tests.support.kube.plane import Plane, Reached, assets

if TYPE_CHECKING:
    from tests.support.kube.fake.plane import FakePlane

__all__ = [
    "cluster",
    "fake_cluster",
    "fake_plane",
    "own_cluster",
    "own_plane",
    "real_cluster",
    "real_plane",
]

MISSING = (
    "NOT TESTED against a real Kubernetes: KUBEBUILDER_ASSETS names no folder with etcd and "
    "kube-apiserver, and EMBERLINE_TEST_PLANE no plane that runs"
)
MISSING_OWN = (
    "NOT TESTED against a real Kubernetes of its own: KUBEBUILDER_ASSETS names no folder with "
    "etcd and kube-apiserver"
)


def _shared() -> Path | None:
    folder = os.environ.get("EMBERLINE_TEST_PLANE", "")
    return Path(folder) if folder else None


@pytest.fixture(scope="session")
def real_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Real plane with a simulated kubelet and all `crds`."""
    folder = _shared()
    if folder is not None:
        yield Reached(folder)
        return
    with _running(tmp_path_factory.mktemp("plane"), MISSING) as plane, _played(plane):
        yield plane


@contextmanager
def _running(folder: Path, missing: str, controllers: bool = True) -> Iterator[Plane]:
    programs = assets()
    if programs is None:
        pytest.skip(missing)
    plane = Plane(folder, programs, controllers)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@contextmanager
def _played(plane: Plane | FakePlane) -> Iterator[None]:
    """Add a simulated kubelet and all `crds`."""
    with plane.client() as admin, plane.client("kubelet-player") as api:
        crds.install(admin)
        player = Player(api, plane.folder / "kubelet", plane.kubelet_certificate)
        player.start()
        try:
            yield
        finally:
            player.stop()


@pytest.fixture
def own_plane(tmp_path: Path) -> Iterator[Plane]:
    """etcd and API server for one test, which may stop them; without controllers and kubelet."""
    with _running(tmp_path / "plane", MISSING_OWN, controllers=False) as plane:
        yield plane


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Whole plane for one test: `own_cluster.plane.stop_api()`."""
    with _running(tmp_path / "plane", MISSING_OWN) as plane, _played(plane):
        yield Cluster("real", plane)


@pytest.fixture
def real_cluster(real_plane: Ground) -> Iterator[Cluster]:
    cluster = Cluster("real" if isinstance(real_plane, Plane) else "shared", real_plane)
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def fake_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakePlane]:
    """Fake plane with a simulated kubelet and all `crds`."""
    # Imported lazily: its schemas need the official client, which takes a second to import.
    from tests.support.kube.fake.plane import FakePlane

    plane = FakePlane(tmp_path_factory.mktemp("fake-plane"))
    plane.start()
    with _played(plane):
        yield plane
    plane.stop()


@pytest.fixture
def fake_cluster(fake_plane: FakePlane) -> Iterator[Cluster]:
    """Cluster on the FakePlane, with `plane.failing`, `stop_api`, `start_api`, `expire`."""
    cluster = Cluster("fake", fake_plane)
    yield cluster
    fake_plane.mend()
    cluster.close()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kubernetes)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Runs the test on both planes."""
    found: Cluster = request.getfixturevalue(f"{request.param}_cluster")
    return found

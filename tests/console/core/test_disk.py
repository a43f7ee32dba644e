"""Full or failing disks: classification, reporting, and requests that still work."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.db import OperationalError, connection
from django.db.backends.signals import connection_created
from django.test import Client
from django.utils import timezone

from console.accounts.models import ApiToken
from console.core import counters, disk
from console.core.disk import Disk, DiskState, Trend
from console.processkit import metrics
from console.processkit.metrics import Registry
from console.signon.models import Session
from console.system import preflight, selectors
from console.web import health
from tests.support.database_template import sqlite_only
from tests.support.people import cast, client_of

GIB = 1024**3
FINE = Disk(Path("/v"), 100 * GIB, 50 * GIB, 1000, 900, read_only=False)
FULL = replace(FINE, free_bytes=0)


@pytest.mark.parametrize(
    ("found", "state", "message"),
    [
        (FINE, DiskState.OK, "50 GiB of 100 GiB free (50 %)"),
        (replace(FINE, free_bytes=4 * GIB), DiskState.LOW, "4 GiB of 100 GiB free (4 %)"),
        (replace(FINE, total_bytes=4000 * GIB), DiskState.OK, "(1 %)"),  # plenty on a large disk
        (replace(FINE, total_bytes=6 * GIB, free_bytes=3 * GIB), DiskState.OK, "3 GiB"),
        (replace(FINE, full_in_s=3 * 3600.0), DiskState.LOW, "full in about 3 h"),
        (replace(FINE, full_in_s=300.0), DiskState.LOW, "full in about 5 min"),
        (replace(FINE, full_in_s=7 * 3600.0), DiskState.OK, "50 GiB"),
        (replace(FINE, inodes_free=40), DiskState.LOW, "40 of 1000 inodes free"),
        (replace(FINE, inodes_free=0), DiskState.FULL, "0 of 1000 inodes free"),
        (replace(FINE, inodes=0, inodes_free=0), DiskState.OK, "50 GiB"),  # no inode limit
        (replace(FINE, free_bytes=16 * 1024**2), DiskState.FULL, "16 MiB of"),
        (
            replace(FINE, total_bytes=200 * 1024**2, free_bytes=4 * 1024**2),
            DiskState.LOW,
            "4 MiB of",
        ),
        (FULL, DiskState.FULL, "0 B of 100 GiB free (0 %)"),
        (replace(FINE, read_only=True), DiskState.FULL, "mounted read-only"),
    ],
)
def test_disk_thresholds_are_in_bytes_and_percent(
    found: Disk, state: DiskState, message: str
) -> None:
    assert found.state is state
    assert message in found.text
    assert bool(found.remedy) is (state is not DiskState.OK)
    assert "/v" not in found.text + found.remedy, "people who are not logged in read them"


def test_the_forecast_follows_the_trend_of_the_last_hour() -> None:
    now = [0.0]
    trend = Trend(lambda: now[0])
    free = 100_000.0
    found = []
    for _ in range(20):
        found.append(trend.full_in_s(int(free)))
        now[0] += 30.0
        free -= 300.0  # 10 bytes/s
    assert found[:10] == [None] * 10, "five minutes are too few to judge"
    assert found[-1] == pytest.approx((100_000 - 19 * 300) / 10)
    for _ in range(200):
        last = trend.full_in_s(int(free))
        now[0] += 30.0
    assert last is None, "what no longer shrinks has no forecast"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_file_system_errors_are_classified(number: int) -> None:
    wrapped = OperationalError("database or disk is full")
    wrapped.__cause__ = OSError(number, "")
    assert disk.disk_fault(wrapped) == os.strerror(number).lower()
    assert disk.disk_fault(OSError(errno.ENOENT, "")) == ""
    assert disk.disk_fault(ValueError("disk is full")) == ""
    assert disk.disk_fault(None) == ""


def test_database_errors_are_classified(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "x", isolation_level=None)
    database.execute("PRAGMA max_page_count = 2")
    database.execute("CREATE TABLE t (x)")
    with pytest.raises(sqlite3.OperationalError) as full:
        database.execute("INSERT INTO t VALUES (zeroblob(100000))")
    assert disk.disk_fault(full.value) == "database: disk full"
    with pytest.raises(sqlite3.OperationalError) as wrong:
        database.execute("SELECT * FROM nothing")
    assert disk.disk_fault(wrong.value) == ""
    database.close()
    with pytest.raises(sqlite3.OperationalError) as away:
        sqlite3.connect(tmp_path / "nowhere" / "x")
    assert disk.disk_fault(away.value) == "database: cannot be opened"
    postgres = OperationalError("could not extend file")
    postgres.__cause__ = type("DiskFull", (Exception,), {"sqlstate": "53100"})()
    assert disk.disk_fault(postgres) == "the database server's disk is full"


@pytest.fixture
def unwritable(transactional_db: None) -> Iterator[None]:
    """Make every write fail as on a full disk; reads work."""
    if connection.vendor != "sqlite":
        pytest.skip("what a full disk does to SQLite")
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = 1")
        yield
        cursor.execute("PRAGMA query_only = 0")


@pytest.fixture
def stale(transactional_db: None) -> Client:
    """Provide a browser whose session was last used some minutes ago."""
    client = client_of(cast().ada)
    Session.objects.update(last_seen_at=timezone.now() - timedelta(minutes=5))
    return client


def test_read_only_pages_are_served(stale: Client, unwritable: None) -> None:
    before = counters.total("uses_unrecorded", of="session")
    assert stale.get("/system/").status_code == 200
    assert stale.get("/api/v1/system/processes/").status_code == 200
    assert counters.total("uses_unrecorded", of="session") == before + 2


def test_token_requests_are_served(transactional_db: None, request: pytest.FixtureRequest) -> None:
    client = client_of(cast().ada)
    made = client.post("/profile/tokens/", {"name": "x", "role": "admin", "days": "30"}).text
    clear = "emb_" + made.partition("emb_")[2].partition("<")[0]
    assert ApiToken.objects.get().last_used_at is None
    request.getfixturevalue("unwritable")
    before = counters.total("uses_unrecorded", of="token")
    answer = Client().get("/api/v1/system/rounds/", headers={"Authorization": f"Bearer {clear}"})
    assert answer.status_code == 200
    assert counters.total("uses_unrecorded", of="token") == before + 1


@pytest.mark.parametrize("path", ["/profile/tokens/", "/login/"])
def test_failed_form_names_the_disk(
    stale: Client, unwritable: None, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(disk, "read_disk", lambda _path: FULL)
    client = stale if "tokens" in path else Client(raise_request_exception=False)
    form = {"name": "x", "role": "admin", "days": "30"}
    form |= {"username": "ada", "password": "correct-horse-7"}
    answer = client.post(path, form)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "30"
    for content in ("Disk full", "0 B of 100 GiB free (0 %)", disk.REMEDY.split("`")[0]):
        assert content in answer.text


def test_rest_reports_the_same_error(
    stale: Client, unwritable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "read_disk", lambda _path: FULL)
    answer = stale.post("/api/v1/teams/", {"name": "blue"}, content_type="application/json")
    found = answer.json()
    assert (answer.status_code, found["code"]) == (503, "disk_unavailable")
    assert "database: read-only database" in found["detail"]
    assert found["remedy"] == disk.REMEDY
    assert found["request_id"]


def test_readyz_warns_when_low_and_fails_when_full(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(found: Disk) -> tuple[int, str]:
        monkeypatch.setattr(disk, "read_disk", lambda _path: found)
        response = Client().get("/readyz")
        return response.status_code, response.json()["checks"]["disk"]

    monkeypatch.setattr(health, "_broker", lambda: None)
    assert answer(FINE) == (200, "ok")
    assert answer(replace(FINE, free_bytes=4 * GIB)) == (200, "low: 4 GiB of 100 GiB free (4 %)")
    if connection.vendor == "sqlite":
        assert answer(FULL) == (503, "failed: full: 0 B of 100 GiB free (0 %)")
        monkeypatch.setattr(connection, "vendor", "postgresql")  # its disk is a different one
    assert answer(FULL) == (200, "full: 0 B of 100 GiB free (0 %)")


@pytest.mark.parametrize("found", [FINE, replace(FINE, free_bytes=4 * GIB), FULL, None])
def test_system_page_rest_banner_doctor_and_metrics_agree(
    db: None, monkeypatch: pytest.MonkeyPatch, found: Disk | None
) -> None:
    def read_disk(_path: Path) -> Disk:
        if found is None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return found

    monkeypatch.setattr(disk, "read_disk", read_disk)
    viewer = client_of(cast().charlie)
    state = found.state.value if found else "unavailable"
    page = viewer.get("/system/").text
    assert f'data-disk="{state}"' in page
    assert ('data-banner="disk"' in page) is (state != "ok")
    rest = viewer.get("/api/v1/system/processes/").json()["disk"]
    assert rest is None if found is None else rest["state"] == state
    (doctor,) = (one for one in preflight.ask() if one.subject == "disk")
    assert doctor.ok is (state == "ok")
    assert bool(doctor.remedy) is (state != "ok")
    registry = Registry()
    selectors.expose_disk(registry)
    shown = metrics.total(
        metrics.parse_samples(str(registry.render())), f"{selectors.PREFIX}free_bytes", path="/v"
    )
    assert shown == (found.free_bytes if found else None)


@sqlite_only
def test_requests_wait_for_the_lock_for_two_seconds(transactional_db: None) -> None:
    from console import asgi

    connection_created.disconnect(asgi.answer_soon)
    with connection.cursor() as cursor:
        (before,) = cursor.execute("PRAGMA busy_timeout").fetchone()
        asgi.answer_soon(connection)
        assert cursor.execute("PRAGMA busy_timeout").fetchone() == (2000,)
        cursor.execute(f"PRAGMA busy_timeout = {before}")


def test_sqlite_wal_survives_requests(tmp_path: Path) -> None:
    from console import asgi

    connection_created.disconnect(asgi.answer_soon)  # other tests may wait for longer
    name = str(tmp_path / "x")

    def request() -> None:
        """Open and close a connection, like each web request."""
        opened = sqlite3.connect(name, isolation_level=None)
        opened.execute("PRAGMA journal_mode = WAL")
        opened.execute("CREATE TABLE IF NOT EXISTS t (x)")
        opened.close()

    request()
    assert not Path(f"{name}-wal").exists(), "without the held one it would be made anew each time"
    opened = SimpleNamespace(vendor="sqlite", settings_dict={"NAME": name})
    asgi.hold_database(opened)  # type: ignore[arg-type]
    try:
        request()
        assert Path(f"{name}-wal").exists()
        assert Path(f"{name}-shm").exists()
    finally:
        asgi._held.pop(name).close()

"""Prometheus with an unreadable file restarts without it, keeps the rest, and reports the loss."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from console.launcher import metrics_store
from console.launcher.metrics_store import last_failure, last_repair, list_losses, recover
from dashboards.alerts.settings import rule_file
from tests.support.ports import free_port
from tests.support.prometheus import PROMETHEUS, PROMTOOL
from tests.support.waiting import until

HOUR = 3600
START = int(time.time()) // (2 * HOUR) * 2 * HOUR - 24 * HOUR
BLOCK = "01M826K75KKN3XEZRTY0QS381F"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide two consecutive blocks of two hours."""
    folder = tmp_path_factory.mktemp("history")
    lines = ["# TYPE x gauge", *(f"x {n} {START + n * 60}" for n in range(240)), "# EOF", ""]
    (folder / "x.om").write_text("\n".join(lines))
    made_of = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", str(folder / "x.om")]
    subprocess.run([*made_of, str(folder / "data")], check=True, capture_output=True)
    return folder / "data"


def blocks(data: Path) -> list[Path]:
    """Return the blocks, oldest first."""
    found = [path for path in data.iterdir() if (path / "meta.json").is_file()]
    return sorted(found, key=lambda one: json.loads((one / "meta.json").read_text())["minTime"])


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def garbage(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(range(1, 129)) * 256)


def no_segment(data: Path) -> None:
    garbage(data / "wal" / "checkpoint.00000001" / "00000000")
    (data / "wal" / "00000002").touch()


def everything(data: Path) -> None:
    for block in blocks(data):
        cut(block / "index")
    no_segment(data)


DAMAGE: dict[str, tuple[Callable[[Path], None], set[str], int]] = {
    "index": (lambda data: cut(blocks(data)[0] / "index"), {"block"}, 120),
    "tombstones": (lambda data: cut(blocks(data)[0] / "tombstones"), {"block"}, 120),
    "chunks": (lambda data: garbage(blocks(data)[0] / "chunks" / "000001"), {"block"}, 120),
    "no index": (lambda data: (blocks(data)[0] / "index").unlink(), {"block"}, 120),
    "head": (lambda data: garbage(data / "chunks_head" / "000001"), {"chunks_head"}, 240),
    "checkpoint": (no_segment, {"wal"}, 240),
    "two blocks and the log": (everything, {"block", "wal"}, 0),
}


class Store:
    """Prometheus, restarted like under supervisord."""

    def __init__(self, var: Path, history: Path) -> None:
        self.folder = var / "prometheus"
        self.data, self.log = self.folder / "data", var / "log" / "prometheus.log"
        self.log.parent.mkdir(parents=True)
        shutil.copytree(history, self.data)
        (self.folder / "prometheus.yml").write_text("scrape_configs: []\n")
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> bool:
        """Return whether it serves; otherwise it exited."""
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        argv = [sys.executable, "-m", "console.launcher.metrics_store", str(self.data)]
        argv += [str(self.log), PROMETHEUS, f"--config.file={self.folder / 'prometheus.yml'}"]
        argv += [f"--storage.tsdb.path={self.data}", f"--web.listen-address=127.0.0.1:{port}"]
        argv += ["--storage.tsdb.retention.time=10y"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        until(lambda: self.process.poll() is not None or self._ready(), 60, "ready or ended")
        return self.process.poll() is None

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=60) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def count(self) -> int:
        """Return the number of readable samples of `x`."""
        query = urllib.parse.urlencode({"query": "count_over_time(x[1w])", "time": START + 86_400})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=60) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
        return int(found[0]["value"][1]) if found else 0

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)


@pytest.mark.parametrize("name", DAMAGE)
def test_prometheus_restarts_without_unreadable_data(
    name: str, tmp_path: Path, history: Path
) -> None:
    damage, lost, left = DAMAGE[name]
    store = Store(tmp_path, history)
    damage(store.data)
    first = json.loads((blocks(store.data)[0] / "meta.json").read_text())
    try:
        starts = next(n for n in range(1, 6) if store.start())
        assert starts > 1, "it must fail once, or this damage tests nothing"
        assert store.count() == left
    finally:
        store.stop()
    found = list_losses(store.folder)
    moved = [name for loss in found for name in loss.moved]
    assert {one if one.startswith(("wal", "chunks")) else "block" for one in moved} >= lost
    aside = {path.name for path in (store.folder / "set-aside").glob("*/*")}
    assert aside == {*moved, "why.json"}
    if lost == {"block"}:
        (loss,) = found
        assert loss.since == metrics_store._format_time(first["minTime"])
        assert loss.until == metrics_store._format_time(first["maxTime"])
        assert loss.failure.startswith("reloadBlocks: corrupted block")
    assert last_failure(store.log) == "", "Prometheus serves: nothing is wrong any more"


@pytest.mark.parametrize(
    "failure",
    [
        "reloadBlocks: corrupted block {b}: mmap files: mmap, size 9: cannot allocate memory",
        "reloadBlocks: corrupted block {b}: open /data/{b}/index: permission denied",
        "repair corrupted WAL: rename /data/wal/00000000: no space left on device",
        "open /data/chunks_head/000001: input/output error",
        "lock DB directory: resource temporarily unavailable",
        "reloadBlocks: corrupted block 01M826K75KKN3XEZRTY0QS3810: invalid magic number 1",
        "something new",
    ],
)
def test_machine_failure_moves_no_data(failure: str, tmp_path: Path) -> None:
    """Nor does an error that names no existing file."""
    data, log = _made(tmp_path, failure.format(b=BLOCK))
    assert last_failure(log)
    assert recover(data, log) is None
    assert {path.name for path in data.iterdir()} == {"wal", "chunks_head", BLOCK}
    assert list_losses(tmp_path) == ()


def test_old_failure_is_ignored(tmp_path: Path) -> None:
    data, log = _made(tmp_path, f"reloadBlocks: corrupted block {BLOCK}: invalid magic number 1")
    with log.open("a") as more:
        more.write('level=info msg="Server is ready to receive web requests."\nlevel=info bye\n')
    assert recover(data, log) is None


def test_kept_folders_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_store, "_MAX_LOSSES", 2)
    data, log = _made(tmp_path, f"reloadBlocks: corrupted block {BLOCK}: invalid magic number 1")
    for _ in range(4):
        assert recover(data, log) is not None
        (data / BLOCK).mkdir()
    assert len(list_losses(tmp_path)) == 2
    assert list_losses(tmp_path)[-1].since == "", "its meta.json cannot be read"


def test_repair_by_prometheus_is_reported(
    tmp_path: Path, history: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged record in the log: Prometheus starts, and has lost what followed."""
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, var=tmp_path)
    monkeypatch.setattr("dashboards.alerts.settings.rule_file.rule_file_location", lambda: object())
    store = Store(tmp_path, history)
    shutil.rmtree(store.data / "wal", ignore_errors=True)
    garbage(store.data / "wal" / "00000000")
    try:
        assert store.start()
    finally:
        store.stop()
    assert last_repair(store.log) is not None
    found = rule_file.storage_round()
    assert (found.state, found.fine) == ("late", False)
    assert "write-ahead log was damaged" in found.text
    later = timezone.now() + timedelta(days=8)
    monkeypatch.setattr("django.utils.timezone.now", lambda: later)
    assert rule_file.storage_round().fine


def test_system_page_states_loss_and_remedy(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "prometheus"
    data, _ = _made(folder, "")
    (tmp_path / "log").mkdir()
    log = tmp_path / "log" / "prometheus.log"
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, var=tmp_path)
    monkeypatch.setattr("dashboards.alerts.settings.rule_file.rule_file_location", lambda: object())
    assert rule_file.storage_round().fine
    log.write_text('level=error err="opening storage failed: something new"\n')
    failing = rule_file.storage_round()
    assert (failing.state, "something new" in failing.text) == ("failing", True)
    assert "mv var/prometheus/data" in failing.remedy
    log.write_text(f'level=error err="opening storage failed: corrupted block {BLOCK}: x"\n')
    assert recover(data, log) is not None
    log.write_text("level=info Server is ready\n")
    lost = rule_file.storage_round()
    assert (lost.state, lost.fine) == ("late", False)
    assert BLOCK in lost.text
    assert "set-aside" in lost.remedy


def _made(folder: Path, failure: str) -> tuple[Path, Path]:
    data, log = folder / "data", folder / "prometheus.log"
    for name in ("wal", "chunks_head", BLOCK):
        (data / name).mkdir(parents=True)
    log.write_text(f'level=info msg=bye\nlevel=error err="opening storage failed: {failure}"\n')
    return data, log

"""Decision journal on disk: bounded, private, and non-blocking."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from routing.engine.config import ConfigError, JournalConfig, parse
from routing.engine.observe.decisions import Decision
from routing.engine.observe.journal import Journal
from tests.routing.engine.harness import ask, becomes, chat, metric, post, router, until
from tests.support.fake_worker import FakeWorker
from tests.support.waiting import until as until_sync

RECORDS = "emberline_router_decision_records_total"


async def counted(server: Any, records: int) -> None:
    """Wait for the count, which the writer's thread updates after the file."""
    await becomes(server, records, RECORDS, result="written")


def show(decision: Decision) -> dict[str, Any]:
    return {"id": decision.id, "text": "x" * 1000}


def decision(number: int) -> Decision:
    return Decision(str(number), 1.0, "prefixaware")


def ids(path: Path) -> list[int]:
    return [int(json.loads(line)["id"]) for line in path.read_bytes().splitlines()]


def test_current_and_previous_file_stay_within_their_bound(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    journal = Journal(JournalConfig(path, max_bytes=400_000))
    for number in range(2000):
        journal.add((decision(number), show))
    journal.stop()
    assert journal.join(60)
    older = tmp_path / "decisions.jsonl.1"
    assert sorted(tmp_path.iterdir()) == [path, older]
    assert path.stat().st_size + older.stat().st_size <= 400_000
    kept = ids(older) + ids(path)
    assert kept == list(range(kept[0], 2000)), "the newest, in order, every line whole"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert journal.counts() == {"written": 2000, "failed": 0, "dropped": 0}


def test_existing_records_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    for number in range(3):
        journal = Journal(JournalConfig(path, max_bytes=65_536))
        journal.add((decision(number), show))
        journal.stop()
        assert journal.join(60)
    assert ids(path) == [0, 1, 2]


def test_oversized_file_is_rotated_first(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_text('{"id": "0"}\n' * 4000)
    journal = Journal(JournalConfig(path, max_bytes=65_536))
    journal.add((decision(1), show))
    journal.stop()
    assert journal.join(60)
    assert ids(path) == [1]
    assert (tmp_path / "decisions.jsonl.1").stat().st_size == 48_000


def test_torn_write_is_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "decisions.jsonl"
    write = os.write
    full = False

    def torn(fd: int, data: bytes) -> int:
        nonlocal full
        if not full:
            full = True
            return write(fd, data[:100])
        full = False
        raise OSError(errno.ENOSPC, "no space left")

    journal = Journal(JournalConfig(path))
    monkeypatch.setattr(os, "write", torn)
    journal.add((decision(1), show))
    until_sync(lambda: journal.counts()["failed"] == 1)
    monkeypatch.setattr(os, "write", write)
    journal.add((decision(2), show))
    journal.stop()
    assert journal.join(60)
    assert ids(path) == [2]


def test_full_disk_is_counted_and_recovery_noticed(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    path.symlink_to("/dev/full")
    journal = Journal(JournalConfig(path))
    journal.add((decision(1), show))

    def failed() -> bool:
        return journal.counts()["failed"] == 1

    until_sync(failed)
    assert journal.error
    path.unlink()
    journal.add((decision(2), show))
    journal.stop()
    assert journal.join(60)
    assert ids(path) == [2]
    assert (journal.counts()["written"], journal.error) == (1, "")


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"file": "no/such/folder/x"}, "decisions.file"),
        ({"file": "x", "sample": 2}, "decisions.sample"),
        ({"file": "x", "max_bytes": 1}, "decisions.max_bytes"),
        ({"files": "x"}, "decisions.files"),
    ],
)
def test_invalid_settings_are_rejected(tmp_path: Path, data: Any, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"listen": "127.0.0.1:1", "decisions": data}, tmp_path)
    assert caught.value.field == field


async def test_requests_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    async with FakeWorker() as worker:
        async with router(worker, decisions={"file": str(path)}) as server:
            answer = await ask(server, post(chat("tell nobody " * 100, user="alice")))
            await worker.stop()
            refused = await ask(server, post(chat("lost")))
            assert refused.status in (502, 503)
            await until(lambda: path.exists() and path.read_bytes().count(b"\n") == 2)
            await counted(server, 2)
        text = path.read_text()
        first, second = [json.loads(line) for line in text.splitlines()]
        assert first["id"] == answer.headers["x-emberline-decision"]
        assert (first["status"], first["chosen"]) == (200, "w0")
        assert second["error"]
        assert "tell nobody" not in text and "alice" not in text


async def test_hanging_disk_drops_records_but_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr("routing.engine.observe.journal.QUEUE_LIMIT", 3)
    path = tmp_path / "d.jsonl"
    os.mkfifo(path)  # opening it waits for a reader who does not come
    async with FakeWorker() as worker:
        async with router(worker, decisions={"file": str(path)}) as server:
            for number in range(40):
                assert (await ask(server, post(chat(f"{number}")))).status == 200
            assert await metric(server, RECORDS, result="dropped") > 0
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # now it goes on
            try:
                await until(lambda: server.router.recorder._journal.written > 0)  # type: ignore[union-attr]
            finally:
                os.close(reader)


async def test_file_changes_at_run_time(tmp_path: Path) -> None:
    config = tmp_path / "router.json"
    one, two = tmp_path / "one", tmp_path / "two"
    async with FakeWorker() as worker:
        async with router(worker, path=config, decisions={"file": str(one)}) as server:
            await ask(server, post(chat("a")))
            data = json.loads(config.read_text())
            data["decisions"] = {"file": str(two)}
            config.write_text(json.dumps(data))
            server.reload(True)
            await ask(server, post(chat("b")))
            await until(lambda: one.exists() and two.exists())
            await until(lambda: one.stat().st_size and two.stat().st_size)
            await counted(server, 2)
            data["decisions"] = {}
            config.write_text(json.dumps(data))
            server.reload(True)
            await ask(server, post(chat("c")))
            assert await metric(server, RECORDS, result="written") == 2
        assert len(one.read_bytes().splitlines()) == len(two.read_bytes().splitlines()) == 1

"""Notices reach the one that listens, once each; without a listener they cost nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.processkit import changes
from console.processkit.changes import ChangeReceiver, ChangeSender


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


@pytest.fixture
def sender(path: Path) -> Iterator[ChangeSender]:
    found = ChangeSender(path)
    yield found
    found.close()


@pytest.fixture
def receiver(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChangeReceiver]:
    monkeypatch.setattr(changes, "_GATHER_S", 0.0)
    found = ChangeReceiver(path)
    yield found
    found.close()


def test_repeated_notices_are_received_once(sender: ChangeSender, receiver: ChangeReceiver) -> None:
    for subject in ("program/demo-worker-0", "endpoint/demo", "program/demo-worker-0"):
        assert sender.send(subject)
    assert receiver.receive() == {"program/demo-worker-0", "endpoint/demo"}


def test_without_a_listener_nothing_is_sent(sender: ChangeSender, path: Path) -> None:
    assert not sender.send("endpoint/demo")
    receiver = ChangeReceiver(path)
    assert sender.send("endpoint/demo"), "the sender finds a later listener"
    receiver.close()
    assert not sender.send("endpoint/demo")
    unset = ChangeSender(changes.socket_path({}))
    assert not unset.send("endpoint/demo")
    unset.close()


def test_a_full_buffer_neither_blocks_nor_raises(
    sender: ChangeSender, receiver: ChangeReceiver
) -> None:
    sent = 0
    while sender.send(f"endpoint/{sent}"):
        sent += 1
        assert sent < 1_000_000
    assert len(receiver.receive()) == sent
    assert sender.send("endpoint/demo")


def test_a_notice_without_room_is_sent_again(
    sender: ChangeSender, receiver: ChangeReceiver, path: Path
) -> None:
    sent = 0
    while sender.send(f"endpoint/{sent}"):
        sent += 1
    sender.resend()
    assert f"endpoint/{sent}" not in receiver.receive(), "still full"
    sender.resend()
    sender.resend()
    assert sender.send("endpoint/demo")
    assert receiver.receive() == {f"endpoint/{sent}", "endpoint/demo"}
    receiver.close()
    path.unlink()
    assert not sender.send("endpoint/gone"), "nobody listens"
    sender.resend()
    later = ChangeReceiver(path)
    sender.resend()
    assert sender.send("endpoint/demo")
    assert later.receive() == {"endpoint/demo"}, "a later listener observes everything anyway"
    later.close()


def test_the_latest_listener_takes_over(
    sender: ChangeSender, receiver: ChangeReceiver, path: Path
) -> None:
    assert sender.send("endpoint/demo")
    later = ChangeReceiver(path)
    assert sender.send("endpoint/other")
    assert later.receive() == {"endpoint/other"}
    later.close()


def test_a_waiting_receiver_can_be_woken(receiver: ChangeReceiver) -> None:
    found: list[set[str]] = []
    waiting = threading.Thread(target=lambda: found.append(receiver.receive()))
    waiting.start()
    receiver.wake()
    waiting.join(30)
    assert found == [set()]

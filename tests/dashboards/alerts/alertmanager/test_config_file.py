"""Configuration file of a real Alertmanager: loaded without a restart, never a rejected one."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from console.core.mail import Mail
from console.processkit.files import hold_lock
from console.vault import store
from dashboards.alerts.alertmanager import config_file, receivers, routes, selectors
from dashboards.alerts.alertmanager.models import ConfigFile, ConfigState, Receiver
from tests.support.alertmanager import RunningAlertmanager
from tests.support.console import browser, person
from tests.support.ports import free_port

pytestmark = pytest.mark.django_db
INVALID = {"route": {"receiver": "missing"}, "receivers": [{"name": "nobody"}]}
URL = "https://hooks.example.org/T0KEN"


def create(name: str, **more: Any) -> None:
    facts = {"kind": "slack", "everything": True, **more}
    address = {} if facts["kind"] == "email" else {"url": URL}
    receivers.create(person("admin"), {"name": name, **address, **facts})


def loaded(manager: RunningAlertmanager) -> str:
    return str(manager.get("/api/v2/status").json()["config"]["original"])


def state() -> tuple[str, str]:
    row = ConfigFile.objects.get()
    return row.state, row.message


def test_changes_are_loaded(alertmanager: RunningAlertmanager, settings: Any) -> None:
    config_file.sync()
    assert state() == (ConfigState.LOADED, "")
    assert not config_file.has_work()
    create("chat")
    assert config_file.has_work()
    config_file.sync()
    assert state() == (ConfigState.LOADED, "")
    assert "name: chat" in loaded(alertmanager)
    assert "T0KEN" in alertmanager.file.read_text()
    assert alertmanager.file.stat().st_mode & 0o077 == 0
    before = alertmanager.file.stat().st_mtime_ns
    config_file.sync()
    assert alertmanager.file.stat().st_mtime_ns == before
    receivers.change(person("admin"), "chat", {"url": "https://hooks.example.org/OTHER"})
    assert config_file.has_work()  # the address is secret: the row's generation tells
    config_file.sync()
    assert "OTHER" in alertmanager.file.read_text()
    alertmanager.file.unlink()
    assert config_file.has_work()
    receivers.change(person("admin"), "chat", {"enabled": False})
    config_file.sync()
    assert "name: chat" not in loaded(alertmanager)


def test_tasks_that_run_at_the_same_time_check_and_write_one_after_the_other(
    alertmanager: RunningAlertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    create("chat")
    monkeypatch.setattr(config_file, "_WAIT_S", 0)
    with hold_lock(alertmanager.file.with_suffix(".lock"), 0):
        config_file.sync()
        assert not ConfigFile.objects.exists()
    config_file.sync()
    assert state() == (ConfigState.LOADED, "")


def test_rejected_configuration_never_replaces_a_loaded_one(
    alertmanager: RunningAlertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    create("chat")
    config_file.sync()
    good = alertmanager.file.read_text()
    Receiver.objects.update(kind="webhook", generation=2)
    routes.create(person("admin"), {"receiver": "chat"})
    for has_amtool in (True, False):
        if not has_amtool:  # Alertmanager itself then rejects it
            monkeypatch.setattr(config_file, "find_amtool", lambda _layout: None)
        with monkeypatch.context() as patch:
            patch.setattr(config_file.AlertmanagerConfig, "document", lambda *_: INVALID)
            config_file.sync()
        assert state()[0] == ConfigState.REFUSED
        assert "T0KEN" not in state()[1]
        assert alertmanager.file.read_text() == good
        page = browser("viewer").get("/alerts/receivers/").text
        assert "previous configuration stays active" in page or "worker is not running" in page
        ConfigFile.objects.update(digest="")
    config_file.sync()
    assert state() == (ConfigState.LOADED, "")


def test_unreachable_alertmanager_loads_the_file_later(
    alertmanager: RunningAlertmanager, settings: Any
) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    present = settings.EMBERLINE
    settings.EMBERLINE = dataclasses.replace(present, alertmanager_url=away)
    create("chat")
    config_file.sync()
    assert state()[0] == ConfigState.WAITING
    assert "at its next start" in state()[1]
    assert config_file.has_work()
    settings.EMBERLINE = present
    config_file.sync()
    assert state() == (ConfigState.LOADED, "")
    assert "name: chat" in loaded(alertmanager)


def test_receiver_whose_secret_is_lost_is_left_out_and_named(
    alertmanager: RunningAlertmanager,
) -> None:
    create("chat")
    create("hook", kind="webhook")
    store.drop(Receiver.objects.get(name="chat").secret_name("url"))
    config_file.sync()
    assert state() == (
        *(ConfigState.LOADED,),
        "Secrets of chat cannot be decrypted. Enter them again.",
    )
    text = loaded(alertmanager)
    assert "name: hook" in text
    assert "name: chat" not in text


def test_mail_needs_a_server(settings: Any, alertmanager: RunningAlertmanager) -> None:
    settings.MAIL = Mail("smtp.example.org", 587, "starttls", "u", "s3cret", "c@example.org")
    create("mail", kind="email", to="a@example.org")
    assert [one.name for one in selectors.config().receivers] == ["mail"]
    config_file.sync()
    assert "s3cret" in alertmanager.file.read_text()
    assert "s3cret" not in loaded(alertmanager)
    settings.MAIL = dataclasses.replace(settings.MAIL, host="")
    assert config_file.has_work()
    config_file.sync()
    assert state() == (ConfigState.LOADED, "")
    assert "name: mail" not in loaded(alertmanager)


def test_nothing_is_written_without_a_file(settings: Any) -> None:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, alertmanager_file=None)
    assert not config_file.has_work()
    config_file.sync()
    assert not ConfigFile.objects.exists()

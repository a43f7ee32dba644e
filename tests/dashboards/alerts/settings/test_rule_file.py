"""Rule file of our Prometheus: loaded at once, never replaced by an invalid one."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from console.launcher.layout import Layout, write_facts
from console.processkit.files import hold_lock
from console.provisioners.base import TemporaryError
from dashboards.alerts.rules.rule_file import render
from dashboards.alerts.settings import actions, rule_file
from dashboards.alerts.settings.models import Load, OwnRule, RuleFile
from tests.support.console import person
from tests.support.ports import free_port
from tests.support.prometheus import PROMETHEUS, PROMTOOL
from tests.support.waiting import until

pytestmark = pytest.mark.django_db


class Own:
    """Prometheus of this installation and its supervisor."""

    def __init__(self, layout: Layout, port: int) -> None:
        self.layout, self.port = layout, port
        self.url = f"http://127.0.0.1:{port}"
        self.rules = layout.prometheus / "alerts.yml"

    def started(self) -> subprocess.Popen[bytes]:
        config = {"rule_files": [str(self.rules)], "scrape_configs": []}
        file = self.layout.prometheus / "prometheus.yml"
        file.write_text(json.dumps(config))
        self.process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={file}",
                f"--storage.tsdb.path={self.layout.prometheus / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return self.process

    def hang_up(self, program: str) -> None:
        assert program == "prometheus"
        self.process.send_signal(signal.SIGHUP)

    def rounds(self, state: str) -> RuleFile:
        """Run passes until the state is reached."""

        def looked() -> RuleFile | None:
            rule_file.load()
            row = RuleFile.objects.first()
            return row if row is not None and row.state == state else None

        return until(looked, what=f"a rule file that is {state}")


@pytest.fixture
def own(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Own:
    layout = Layout(tmp_path)
    layout.prepare()
    ours = Own(layout, free_port())
    write_facts(layout, prometheus_port=ours.port)
    settings.EMBERLINE = dataclasses.replace(
        settings.EMBERLINE,
        var=tmp_path,
        prometheus_url=ours.url,
        public_url="https://console.example",
    )
    ours.rules.write_text(render())
    monkeypatch.setattr(rule_file, "Supervisor", lambda _path: ours)
    return ours


@pytest.fixture
def running(own: Own) -> Iterator[Own]:
    process = own.started()
    try:
        until(lambda: rule_file._reloaded(own.url)[0], what="Prometheus")
        yield own
    finally:
        process.kill()
        process.wait(60)


def test_settings_are_reloaded_without_a_restart_and_an_invalid_file_never_is(
    running: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(PROMTOOL).parent}:{os.environ['PATH']}")
    own = running
    own.rounds(Load.LOADED)
    assert "https://console.example/alerts/rules/HighTTFT/" in own.rules.read_text()
    actions.set_rule(person("operator"), "HighTTFT", "", {"threshold": 7})
    own.rounds(Load.LOADED)
    good = own.rules.read_text()
    assert "> 7 and on" in good
    place = rule_file.rule_file_location()
    assert place is not None
    assert place.good.read_text() == good
    # promtool checks first.
    bad = OwnRule.objects.create(name="Broken", expr="up ==", summary="x")
    refused = own.rounds(Load.REFUSED)
    assert "Broken" in refused.message
    assert own.rules.read_text() == good
    # Without promtool, Prometheus rejects the file and gets the previous one back.
    monkeypatch.setattr(rule_file, "prometheus_server", lambda _layout: None)
    OwnRule.objects.filter(pk=bad.pk).update(expr="up === 1")
    refused = own.rounds(Load.REFUSED)
    assert "keeps the previous rules" in refused.message
    assert own.rules.read_text() == good
    bad.delete()
    own.rounds(Load.LOADED)


def test_tasks_that_run_at_the_same_time_check_and_write_one_after_the_other(
    running: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_file, "_WAIT_S", 0)
    with hold_lock(running.rules.with_suffix(".lock"), 0):
        rule_file.load()
        assert not RuleFile.objects.exists()
    running.rounds(Load.LOADED)


class Scripted:
    """Prometheus with a given latest reload, and the number of reload requests."""

    def __init__(self, own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
        self.took: bool | None = True
        self.hang_ups = 0
        monkeypatch.setattr(rule_file, "_reloaded", lambda _url: (self.took, time.time() + 60))
        monkeypatch.setattr(rule_file, "prometheus_server", lambda _layout: None)
        monkeypatch.setattr(own, "hang_up", self.hang_up)

    def hang_up(self, _program: str) -> None:
        self.hang_ups += 1

    def state(self) -> str:
        rule_file.load()
        return RuleFile.objects.get().state


@pytest.fixture
def refused(own: Own, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """One rule rejected after a good file; the reload of the good one is not done yet."""
    scripted = Scripted(own, monkeypatch)
    assert [scripted.state(), scripted.state()] == [Load.WAITING, Load.LOADED]
    OwnRule.objects.create(name="Broken", expr="up === 1", summary="x")
    assert scripted.state() == Load.WAITING
    scripted.took = False
    assert scripted.state() == Load.REFUSED
    return scripted


def test_good_rules_are_not_blamed_for_the_reload_that_failed_before(refused: Scripted) -> None:
    OwnRule.objects.all().delete()
    before = refused.hang_ups
    assert [refused.state(), refused.state()] == [Load.WAITING, Load.WAITING]
    assert refused.hang_ups == before, "the reload of the good file is under way"
    RuleFile.objects.update(at=timezone.now() - timedelta(minutes=1))
    assert refused.state() == Load.WAITING
    assert refused.hang_ups == before + 1
    refused.took = True
    assert refused.state() == Load.LOADED


def test_new_rules_wait_until_the_good_file_is_loaded_again(own: Own, refused: Scripted) -> None:
    OwnRule.objects.update(expr="up == 1")
    good = own.rules.read_text()
    assert refused.state() == Load.WAITING
    assert own.rules.read_text() == good
    refused.took = True
    assert refused.state() == Load.WAITING
    assert "up == 1" in own.rules.read_text()
    assert refused.state() == Load.LOADED


def test_beat_sends_no_load_while_the_loaded_file_is_the_desired_one(
    own: Own, refused: Scripted
) -> None:
    assert not rule_file.has_work(), "the same text would be rejected again"
    OwnRule.objects.all().delete()
    assert rule_file.has_work()
    refused.took = True
    RuleFile.objects.update(at=timezone.now() - timedelta(minutes=1))
    refused.state()
    assert (refused.state(), rule_file.has_work()) == (Load.LOADED, False)
    own.rules.write_text("groups: []\n")
    assert rule_file.has_work(), "changed by another"
    RuleFile.objects.all().delete()
    assert rule_file.has_work()


def test_reload_before_the_file_was_written_is_not_one_of_it(
    own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = Scripted(own, monkeypatch)
    monkeypatch.setattr(
        rule_file, "_reloaded", lambda _url: (True, own.rules.stat().st_mtime - 0.5)
    )
    assert [scripted.state(), scripted.state()] == [Load.WAITING, Load.WAITING]


def test_external_prometheus_gets_no_rule_file(own: Own, settings: Any) -> None:
    RuleFile.objects.create(state=Load.LOADED)
    before = own.rules.read_text()
    settings.EMBERLINE = dataclasses.replace(
        settings.EMBERLINE, prometheus_url="http://127.0.0.1:1"
    )
    assert rule_file.has_work()
    rule_file.load()
    assert own.rules.read_text() == before
    assert not RuleFile.objects.exists()
    assert not rule_file.has_work()


def test_unavailable_supervisor_is_reported(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_program: str) -> None:
        raise TemporaryError("SupervisorUnavailable", "It does not answer.")

    monkeypatch.setattr(own, "hang_up", away)
    actions.set_rule(person("operator"), "HighTTFT", "", {"threshold": 8})
    rule_file.load()
    row = RuleFile.objects.get()
    assert (row.state, row.message) == (Load.WAITING, "It does not answer.")

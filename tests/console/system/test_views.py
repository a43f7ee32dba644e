"""System page, logs and REST: permissions and failure states."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from console.provisioners.local.rpc import ProcessState
from console.provisioners.local.supervisord import log_path
from console.system import program_watch
from console.system.models import ProcessSeen
from tests.console.system.conftest import Rig, point_at
from tests.support.people import Cast, client_of
from tests.support.supervised import Supervised
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
PART = {"HX-Request": "true"}


@pytest.fixture
def quiet(settings: Settings, tmp_path: Path) -> Path:
    """A var/ with logs, in which no supervisord runs."""
    (tmp_path / "log").mkdir()
    point_at(settings, tmp_path)
    return tmp_path


def test_viewer_sees_every_program_and_no_log(supervised_programs: Rig, people: Cast) -> None:
    program_watch.observe()
    after = supervised_programs.kill()
    program_watch.observe()
    page = client_of(people.charlie).get("/system/").text
    for shown in ("valkey", "Celery broker", "running", f">{after.pid}<", "last <time"):
        assert shown in page
    assert "/system/logs/" not in page
    assert 'href="/system/"' in page, "it is in the menu"


def test_htmx_gets_only_the_part(supervised_programs: Rig, people: Cast) -> None:
    part = client_of(people.charlie).get("/system/", headers=PART).text
    assert "valkey" in part
    assert "<html" not in part


def test_rest_returns_the_same(supervised_programs: Rig, people: Cast) -> None:
    program_watch.observe()
    after = supervised_programs.kill()
    program_watch.observe()
    answer = client_of(people.charlie).get("/api/v1/system/processes/")
    assert answer.status_code == 200
    found = answer.json()
    assert (found["reason"], found["problem"], found["remedy"]) == ("", "", "")
    (process,) = found["processes"]
    assert process["name"] == "valkey"
    assert (process["state"], process["pid"], process["restarts"]) == ("running", after.pid, 1)
    assert process["started_at"] == process["last_restart_at"]


def test_number_of_queries_is_one(supervised_programs: Rig, people: Cast) -> None:
    for number in range(20):
        ProcessSeen.objects.create(name=f"p{number}", supervisor="x")
    client = client_of(people.charlie)
    with CaptureQueriesContext(connection) as seen:
        client.get("/system/")
    assert sum("system_processseen" in query["sql"] for query in seen.captured_queries) == 1


@pytest.mark.parametrize(
    ("who", "status"), [("ada", 200), ("alice", 200), ("charlie", 403)], ids=str
)
def test_logs_need_an_operator(quiet: Path, people: Cast, who: str, status: int) -> None:
    log_path(quiet, "web").write_text("a line\n")
    answer = client_of(getattr(people, who)).get("/system/logs/web/")
    assert answer.status_code == status
    assert ("a line" in answer.text) == (status == 200)


def test_log_is_escaped_and_limited_to_its_end(quiet: Path, people: Cast) -> None:
    lines = [f"line {number}" for number in range(100)]
    bad = ["<script>alert(1)</script>", "\x1b[31mred\x1b[0m\x07", "x" * 5000]
    log_path(quiet, "web").write_text("\n".join([*lines, *bad]) + "\n")
    part = client_of(people.alice).get("/system/logs/web/", headers=PART).text
    assert "<html" not in part
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in part
    assert "<script" not in part
    assert "\x1b" not in part
    assert "\nred\n" in part
    assert "x" * 2001 not in part
    assert "line 53\n" in part
    assert "line 52\n" not in part


@pytest.mark.parametrize(
    "name",
    [
        "nobody",
        "..",
        "../secrets/key",
        "..%2Fsecrets%2Fkey",
        "%2e%2e%2fsecrets%2fkey",
        "..\\secrets\\key",
        "web.log",
        "web%00",
        "/etc/passwd",
    ],
)
def test_logs_are_limited_to_known_programs(quiet: Path, people: Cast, name: str) -> None:
    (quiet / "secrets").mkdir()
    (quiet / "secrets" / "key.log").write_text("do-not-show")
    log_path(quiet, "nobody").write_text("do-not-show")
    for known in ("../secrets/key", "web.log", ".."):
        ProcessSeen.objects.create(name=known, supervisor="x")
    answer = client_of(people.ada).get(f"/system/logs/{name}/")
    assert answer.status_code == 404
    assert "do-not-show" not in answer.text


def test_known_program_has_a_log_without_supervisord(quiet: Path, people: Cast) -> None:
    ProcessSeen.objects.create(name="demo-worker-0", supervisor="x")
    for name in ("demo-worker-0", "supervisord"):
        log_path(quiet, name).write_text(f"last words of {name}")
        assert "last words" in client_of(people.alice).get(f"/system/logs/{name}/").text


def test_missing_log_is_reported(quiet: Path, people: Cast) -> None:
    assert "Empty log" in client_of(people.alice).get("/system/logs/valkey/").text


def test_crash_loop_is_red_with_its_last_line(settings: Settings, people: Cast) -> None:
    supervised = Supervised()
    try:
        rig = Rig(supervised)
        point_at(settings, supervised.var)
        rig.add("prometheus", ("/bin/sh", "-c", "echo 'no <disk>'; exit 3"), start_secs=10)
        supervised.start()
        until(lambda: rig.seen("prometheus").state is ProcessState.BACKOFF, what="backoff")
        part = client_of(people.charlie).get("/system/", headers=PART).text
    finally:
        supervised.close()
    assert '<span class="badge bg-red-lt">backoff</span>' in part
    assert "Crashed (exit status 3); restarts automatically." in part
    assert "<code>no &lt;disk&gt;</code>" in part


def test_missing_supervisord_is_reported_with_the_remedy(
    supervised_programs: Rig, people: Cast
) -> None:
    program_watch.observe()
    supervised_programs.stop_all()
    client = client_of(people.charlie)
    page = client.get("/system/")
    assert page.status_code == 200
    for shown in ("supervisord does not respond", "make down", "make up", "not watched", "valkey"):
        assert shown in page.text
    found = client.get("/api/v1/system/processes/").json()
    assert found["reason"] == "SupervisorUnavailable"
    assert [process["state"] for process in found["processes"]] == ["not watched"]


def test_other_provisioner_is_reported(people: Cast) -> None:
    assert django_settings.EMBERLINE.provisioner == "fake"
    page = client_of(people.charlie).get("/system/")
    assert page.status_code == 200
    assert 'data-reason="NotLocal"' in page.text
    assert "“fake”" in page.text
    assert "make up" in page.text


@pytest.mark.parametrize("url", ["/system/", "/system/logs/web/", "/api/v1/system/processes/"])
def test_page_is_read_only(people: Cast, url: str) -> None:
    client = client_of(people.ada)
    for method in ("post", "put", "patch", "delete"):
        assert getattr(client, method)(url).status_code == 405

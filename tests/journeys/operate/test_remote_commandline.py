"""Script client against a served console: login, exit codes, progress stream and errors."""

from __future__ import annotations

import io
import json
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from console import cli
from console.accounts.models import User
from console.audit.models import AuditEvent
from console.commandline import context, profiles
from console.people import token_actions
from console.provisioners.fake import FakeProvisioner
from endpoints.logs import sources
from endpoints.models import Endpoint, EndpointStatus
from tests.support.asgi_server import asgi_server
from tests.support.console import make_endpoint, person, pretend_ready
from tests.support.ports import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
SPEC = ("--model", "smollm2-135m-instruct", "--set", "engine=simulated")


@dataclass
class Shell:
    """`emberline` as it is typed; `code`, `out` and `err` are of the last run."""

    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    code: int = 0
    out: str = ""
    err: str = ""

    def __call__(self, *words: str, typed: str = "") -> str:
        self.monkeypatch.setattr(sys, "argv", ["emberline", *words])
        self.monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        self.code = 0
        try:
            cli.main()
        except SystemExit as end:
            self.code = int(end.code or 0)
        shown = self.capsys.readouterr()
        self.out, self.err = shown.out, shown.err
        return self.out


@pytest.fixture
def url(transactional_db: Any) -> Iterator[str]:
    with asgi_server() as address:
        yield address


@pytest.fixture
def shell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Shell:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("URL", "TOKEN", "TOKEN_FILE", "PROFILE", "CA_FILE", "ALLOW_HTTP"):
        monkeypatch.delenv(f"EMBERLINE_{name}", raising=False)
    return Shell(capsys, monkeypatch)


def token(user: User, role: str) -> str:
    return token_actions.create_token(user, f"for-{role}", role)[1]


@pytest.fixture
def operator(shell: Shell, url: str, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("EMBERLINE_URL", url)
    monkeypatch.setenv("EMBERLINE_TOKEN", token(person("operator"), "operator"))
    return shell


def meanwhile(work: Callable[[], Any]) -> threading.Thread:
    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_login_is_stored_privately(shell: Shell, url: str, tmp_path: Path) -> None:
    clear = token(person("viewer"), "viewer")
    assert f"Logged in at {url} as one-viewer (viewer)" in shell("login", url, typed=clear + "\n")
    saved = tmp_path / "emberline" / "profiles.json"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert stat.S_IMODE(saved.parent.stat().st_mode) == 0o700
    assert clear not in shell.out + shell.err
    make_endpoint()
    assert shell("endpoint", "list", "-o", "name") == "demo\n"
    assert "one-viewer (viewer, API token for-viewer)" in shell("whoami")
    shell("endpoint", "pause", "demo")
    assert shell.code == context.NOT_ALLOWED
    assert "Deleted the saved token" in shell("logout")
    assert clear not in saved.read_text()
    assert "system (admin) at the local console" in shell("whoami")


def test_invalid_token_is_not_stored(shell: Shell, url: str, tmp_path: Path) -> None:
    shell("login", url, typed="emb_wrong\n")
    assert shell.code == context.NOT_ALLOWED
    assert "rejected the token" in shell.err
    shell("login", url, typed="\n")
    assert shell.code == context.USAGE
    assert not (tmp_path / "emberline").exists()


def test_profiles_are_separate(shell: Shell, url: str, monkeypatch: Any) -> None:
    shell("--profile", "west", "login", url, typed=token(person("viewer"), "viewer"))
    assert "as profile west" in shell.out
    assert "one-viewer" in shell("--profile", "west", "whoami")
    monkeypatch.setenv("EMBERLINE_PROFILE", "west")
    assert json.loads(shell("whoami", "-o", "json"))["named_by"] == "EMBERLINE_PROFILE"
    assert "system" in shell("--local", "whoami")
    shell("--profile", "east", "whoami")
    assert shell.code == context.USAGE
    assert "Known: west" in shell.err


def test_author_of_a_change_is_audited(operator: Shell) -> None:
    operator("endpoint", "create", "demo", *SPEC)
    assert (operator.code, "demo created" in operator.out) == (0, True)
    assert AuditEvent.objects.get(target="endpoint/demo").actor_name == "one-operator"
    assert Endpoint.objects.get().created_by == person("operator")


def test_each_error_has_its_exit_code(operator: Shell, monkeypatch: Any) -> None:
    def coded(*words: str) -> tuple[int, str]:
        assert operator(*words) == ""
        return operator.code, operator.err

    code, reported = coded("endpoint", "create", "demo", *SPEC, "--set", "replicas=-1")
    assert code == context.REFUSED
    assert "replicas: -1 was rejected." in reported and "from 0 to 64" in reported
    assert coded("endpoint", "get", "demo")[0] == context.NOT_FOUND
    assert coded("endpoint", "shrink")[0] == context.USAGE
    make_endpoint()
    stale = coded("endpoint", "update", "demo", "--replicas", "2", "--generation", "7")
    assert stale[0] == context.CONFLICT and "changed meanwhile" in stale[1]
    assert coded("follow", "add", "west", "a")[0] == context.NOT_ALLOWED
    assert coded("seed-demo")[0] == context.USAGE
    assert coded("doctor")[0] == context.USAGE
    monkeypatch.setenv("EMBERLINE_TOKEN", "emb_ended")
    assert coded("endpoint", "list")[0] == context.NOT_ALLOWED
    monkeypatch.setattr("console.client.client.MAX_TRIES", 1)
    monkeypatch.setenv("EMBERLINE_URL", f"http://127.0.0.1:{free_port()}")
    code, reported = coded("endpoint", "list")
    assert (code, "does not respond" in reported) == (context.UNREACHABLE, True)


def test_dry_run_previews_and_changes_nothing(operator: Shell) -> None:
    operator("endpoint", "create", "demo", *SPEC, "--dry-run")
    assert "Dry run: nothing was changed" in operator.out and "model" in operator.out
    assert not Endpoint.objects.exists()
    make_endpoint()
    assert "replicas: 1 -> 3" in operator("endpoint", "scale", "demo", "3", "--dry-run")
    assert "The request has no effect" in operator("endpoint", "scale", "demo", "1", "--dry-run")
    operator("endpoint", "delete", "demo", "--dry-run")
    assert (operator.code, Endpoint.objects.get().generation) == (0, 1)
    assert not Endpoint.objects.get().deleting


def test_waiting_prints_each_step_and_the_result(operator: Shell) -> None:
    def come_up() -> None:
        endpoint = until(lambda: Endpoint.objects.filter(name="demo").first())
        assert endpoint is not None
        steps = [{"code": "Accepted", "state": "done", "message": "as asked"}]
        EndpointStatus.objects.filter(pk=endpoint.pk).update(
            steps=[{**step, "started_at": "", "finished_at": ""} for step in steps]
        )
        pretend_ready(endpoint, url="http://r")

    thread = meanwhile(come_up)
    operator("endpoint", "create", "demo", *SPEC, "--wait", "--timeout=60", "-o", "json")
    thread.join()
    assert operator.code == 0, operator.err
    assert json.loads(operator.out)["phase"] == "Ready"
    assert "Accepted: done as asked" in operator.err
    assert "demo created" in operator.err
    assert "polling" not in operator.err, "it is a stream"


def test_waiting_without_a_stream_states_its_method(
    operator: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.web.server.sse.PLACES", 0)
    pretend_ready(make_endpoint(), url="http://r")
    operator("endpoint", "wait", "demo", "--timeout=60")
    assert operator.out == "demo is Ready. http://r\n"
    assert "polling instead of watching: the console rejected the stream" in operator.err


class Rolling(FakeProvisioner):
    """A console that streams a log; the connection ends after each line."""

    def __init__(self) -> None:
        self.log_requests: list[tuple[float, int]] = []

    def follow(self, _ref: Any, replica: str, _name: str, since: float, **how: Any) -> Any:
        self.log_requests.append((since, how["tail"]))
        for second in range(3):
            yield f"2026-01-01T00:00:0{second}Z {replica} {second}"

    heal = adopt = follow


def test_log_is_followed_to_its_end(operator: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = Rolling()
    monkeypatch.setattr(sources, "provisioner_of", lambda _spec: platform)
    pretend_ready(make_endpoint(), workers={"demo-worker-0": "http://w"})
    operator("endpoint", "logs", "demo", "-f", "--tail", "7")
    assert operator.out == "".join(f"demo-worker-0 {n}\n" for n in range(3)), operator.err
    assert operator.err.endswith("# process of demo-worker-0, ready\n")
    assert platform.log_requests == [(0.0, 7)]


def test_viewer_reads_no_log(shell: Shell, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_ready(make_endpoint(), workers={"demo-worker-0": "http://w"})
    monkeypatch.setenv("EMBERLINE_URL", url)
    monkeypatch.setenv("EMBERLINE_TOKEN", token(person("viewer"), "viewer"))
    for more in ((), ("-f",)):
        shell("endpoint", "logs", "demo", *more)
        assert (shell.code, shell.out) == (context.NOT_ALLOWED, "")


def test_ready_state_before_the_change_does_not_count(operator: Shell) -> None:
    pretend_ready(make_endpoint(), url="http://r")
    operator("endpoint", "scale", "demo", "3", "--wait", "--timeout=0.5")
    assert operator.code == context.TIMEOUT
    assert "generation 2 (observed 1)" in operator.err


def test_waiting_ends_on_timeout_and_deletion(operator: Shell) -> None:
    endpoint = make_endpoint()
    operator("endpoint", "wait", "demo", "--timeout=0.5")
    assert operator.code == context.TIMEOUT
    assert "Timed out after 0 s." in operator.err or "Timed out after 1 s." in operator.err
    assert "demo: Pending" in operator.err
    operator("endpoint", "wait", "nobody")
    assert operator.code == context.NOT_FOUND
    thread = meanwhile(lambda: Endpoint.objects.filter(pk=endpoint.pk).delete())
    assert operator("endpoint", "wait", "demo", "--for", "deleted", "--timeout=60") == (
        "demo is deleted.\n"
    )
    thread.join()


def test_permanent_failure_ends_the_wait(operator: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.commandline.endpoint.wait.RECOVERY_S", 0.2)
    endpoint = pretend_ready(make_endpoint())
    EndpointStatus.objects.filter(pk=endpoint.pk).update(phase="Failed", remedy="Mend it.")
    operator("endpoint", "wait", "demo", "--timeout=60")
    assert operator.code == context.FAILED
    assert "The rollout failed." in operator.err and "Mend it." in operator.err


def test_objects_are_applied_from_standard_input(operator: Shell) -> None:
    text = "name: demo\nmodel: smollm2-135m-instruct\nengine: simulated\n"
    operator("endpoint", "apply", "-f", "-", typed=text)
    assert operator.out == "endpoint/demo created\n", operator.err
    operator("endpoint", "apply", "-f", "-", typed="a: [")
    assert operator.code == context.REFUSED
    exported = operator("endpoint", "export", "demo")
    assert "kind: InferenceEndpointConfig" in exported


def test_lists_are_tables_json_or_names(operator: Shell) -> None:
    make_endpoint("a")
    make_endpoint("b")
    head, *rows = operator("endpoint", "list").splitlines()
    assert head.split()[:2] == ["NAME", "MODEL"] and [row.split()[0] for row in rows] == ["a", "b"]
    assert [one["name"] for one in json.loads(operator("endpoint", "list", "-o", "json"))] == [
        *("a", "b")
    ]
    assert operator("endpoint", "list", "-o", "name") == "a\nb\n"
    assert "No endpoint matches." in operator("endpoint", "list", "--phase", "Ready")


def test_profile_readable_by_others_is_not_used(shell: Shell, tmp_path: Path) -> None:
    place = profiles.profiles_path({"XDG_CONFIG_HOME": str(tmp_path)})
    profiles.write(place, {"default": profiles.Profile("https://console.example", "emb_x")})
    place.chmod(0o640)
    shell("endpoint", "list")
    assert shell.code == context.USAGE
    assert "chmod 600" in shell.err

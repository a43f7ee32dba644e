"""`manage.py emberline ...`: equal rules and messages on the command line."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command

from console.audit.models import AuditEvent
from console.commandline import input as commandline_input
from console.commandline.context import CommandError as Wrong
from endpoints.actions import SYSTEM
from endpoints.keys import actions as key_actions
from endpoints.keys import storage
from endpoints.models import Endpoint, EndpointStatus, InferenceKey
from endpoints.placement import installation
from endpoints.spec.endpoint_spec import GIB
from tests.support.console import make_endpoint, pretend_ready

pytestmark = pytest.mark.django_db


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("emberline", *words, stdout=out)
    return out.getvalue()


def refused(*words: str) -> str:
    with pytest.raises(CommandError) as caught:
        run(*words)
    return str(caught.value)


def test_create_from_arguments() -> None:
    text = run(
        *("endpoint", "create", "demo", "--model", "smollm2-135m-instruct", "--replicas", "2"),
        *("--set", "cache.l1.size_gib=0.25", "--set", "cache.l2.enabled=true"),
        *("--strategy", "session", "--worker-arg=--max-model-len=512"),
    )
    assert "demo created" in text
    spec = Endpoint.objects.get().parsed
    assert (spec.replicas, spec.cache.l1.size_gib, spec.cache.l2.enabled) == (2, 0.25, True)
    assert spec.routing.strategy == "session"
    assert spec.worker_args == ("--max-model-len=512",)
    assert AuditEvent.objects.get().actor_name == "system"


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_create_from_a_file(data: dict[str, Any], tmp_path: Path, dump: Any) -> None:
    path = tmp_path / "spec"
    path.write_text(dump(data))
    run("endpoint", "create", "-f", str(path), "--set", "replicas=1")
    assert Endpoint.objects.get().spec == {**data, "replicas": 1}


def test_exported_endpoint_can_be_created_again(data: dict[str, Any]) -> None:
    make_endpoint(**data)
    assert json.loads(run("endpoint", "get", "demo", "-o", "json"))["spec"] == data
    assert yaml.safe_load(run("endpoint", "list", "-o", "yaml"))[0]["spec"] == data


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("replicas=-1", ("replicas: -1", "less than 0", "from 0 to 64")),
        ("replicas=many", ('replicas: "many"', "whole number")),
        ("routing.strategy=fastest", ("routing.strategy", "not a value of", "kvaware")),
        ("cache.l2.enabled=perhaps", ("cache.l2.enabled", "true or false")),
        ("zzz=1", ("zzz", "Unknown field", "use one of")),
        ("nonsense", ("FIELD=VALUE",)),
    ],
)
def test_error_names_field_value_and_remedy(setting: str, words: tuple[str, ...]) -> None:
    text = refused(
        "endpoint", "create", "demo", "--model", "smollm2-135m-instruct", "--set", setting
    )
    for word in words:
        assert word in text
    assert not Endpoint.objects.exists()


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    assert "cannot be read" in refused("endpoint", "create", "-f", str(tmp_path / "none"))
    bad = tmp_path / "bad"
    bad.write_text("{")
    assert "neither JSON nor YAML" in refused("endpoint", "create", "-f", str(bad))
    bad.write_text("[]")
    assert "one object" in refused("endpoint", "create", "-f", str(bad))


def test_change_and_delete() -> None:
    make_endpoint()
    assert "generation 2, target 3 workers" in run("endpoint", "scale", "demo", "3")
    assert "0 workers" in run("endpoint", "pause", "demo")
    assert "3 workers" in run("endpoint", "resume", "demo")
    assert "target 1 worker." in run("endpoint", "rollback", "demo", "1")
    assert "generation 6" in run("endpoint", "update", "demo", "--set", "routing.strategy=session")
    assert "changed meanwhile" in refused(
        "endpoint", "update", "demo", "--replicas", "2", "--generation", "3"
    )
    assert "being deleted" in run("endpoint", "delete", "demo", "--yes")
    assert Endpoint.objects.get().deleting
    assert "Unknown endpoint other" in refused("endpoint", "delete", "other", "-y")


def test_from_a_real_shell(settings: Any) -> None:
    """Django's own options (--settings and the like) must not meet ours."""
    words = ["emberline", "endpoint", "create", "nobody", "--set", "replicas=-1", "--model", "m"]
    done = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=settings.BASE_DIR,
        env={**os.environ, "DATABASE_URL": "sqlite://:memory:", "EMBERLINE_TEST_DATABASE_URL": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in (1, 3)
    # No table was needed, or the missing table shows that the arguments were parsed.
    assert "replicas: -1" in done.stderr or "no such table" in done.stderr, done.stderr


def test_list_and_get() -> None:
    assert "No endpoints" in run("endpoint", "list")
    pretend_ready(make_endpoint(), url="http://r", workers={"demo-worker-0": "http://w"})
    assert "Ready" in run("endpoint", "list")
    assert "demo-worker-0" in run("endpoint", "get", "demo")
    assert "REASON" in run("endpoint", "events", "demo")


def test_keys() -> None:
    make_endpoint()
    clear = run("endpoint", "key", "create", "demo", "my app").strip()
    key = InferenceKey.objects.get(name="my app")
    assert storage.hash_key(clear) == key.sha256
    assert "my app" in run("endpoint", "key", "list", "demo")
    assert clear not in run("endpoint", "key", "list", "demo")
    assert "revoked" in run("endpoint", "key", "revoke", "demo", str(key.pk), "--yes")
    assert "No key of demo" in refused("endpoint", "key", "revoke", "demo", "nonsense")


def test_keys_are_chosen_by_name_prefix_or_id() -> None:
    make_endpoint()
    for name in ("app", "other", "third"):
        run("endpoint", "key", "create", "demo", name)
    app, other, third = (InferenceKey.objects.get(name=name) for name in ("app", "other", "third"))
    assert "Key app changed" in run(
        "endpoint", "key", "update", "demo", "app", "tokens_per_minute=9"
    )
    assert run("endpoint", "key", "rotate", "demo", other.prefix).strip()
    third.name = str(app.pk)
    third.save()
    revoked = run("endpoint", "key", "revoke", "demo", str(app.pk), "--yes")
    assert "Key app revoked" in revoked, "ids win"
    rows = [{"id": "1", "name": "other"}, {"id": "2", "name": "other"}]
    with pytest.raises(Wrong, match="Give one id: 1, 2"):
        commandline_input.find_row(rows, "other", "key of demo", "emberline endpoint key list demo")


def test_wait(capsys: pytest.CaptureFixture[str]) -> None:
    pretend_ready(make_endpoint(), url="http://r")
    assert "demo is Ready. http://r" in run("endpoint", "wait", "demo", "--timeout=60")
    assert "Accepted" in capsys.readouterr().err
    EndpointStatus.objects.update(phase="Provisioning", message="Loading.")
    assert "Loading" in refused("endpoint", "wait", "demo", "--timeout=0")


def test_seed_demo_once() -> None:
    assert "created" in run("seed-demo")
    assert "exists" in run("seed-demo")
    spec = Endpoint.objects.get().parsed
    assert (spec.name, spec.replicas, spec.engine) == ("demo", 2, "simulated")
    assert spec.needs_cache_tier


def test_demo_has_a_key_for_callers() -> None:
    run("seed-demo")
    demo, path = Endpoint.objects.get(), storage.quickstart_file("demo")
    (key,) = demo.keys.filter(name="quickstart")
    assert (
        key.sha256
        == storage.hash_key(path.read_text())
        != storage.hash_key(storage.read_console_key("demo"))
    )
    assert not key.pin
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.unlink()
    run("seed-demo")
    key.refresh_from_db()
    assert key.sha256 == storage.hash_key(path.read_text()), "a lost one is replaced"
    key_actions.revoke(SYSTEM, str(key.pk))
    path.unlink()
    run("seed-demo")
    assert not path.exists(), "a revoked one stays revoked"


@pytest.mark.parametrize(("mib", "l1"), [(8192, 0.5), (1024, 0.4), (64, 0.0)])
def test_demo_fits_the_shared_memory(
    mib: int, l1: float, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    from dataclasses import replace

    settings.EMBERLINE = replace(settings.EMBERLINE, workers="vllm")
    monkeypatch.setattr(installation, "shared_memory_bytes", lambda: mib * GIB // 1024)
    monkeypatch.setattr(installation, "models", lambda: {installation.DEMO_MODEL: "/models/demo"})
    run("seed-demo")
    cache = Endpoint.objects.get().parsed.cache
    assert cache.l1.enabled == (l1 > 0)
    assert cache.l2.enabled == (l1 > 0)
    if l1:
        assert cache.l1.size_gib == l1

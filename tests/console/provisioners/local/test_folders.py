"""Input of a process: argv, environment, secrets and files, byte for byte."""

from __future__ import annotations

import dataclasses
import json
import socket
import stat
import sys
from pathlib import Path

import pytest

from console.provisioners.base import (
    FileSpec,
    PermanentError,
    ReplicaState,
    TemporaryError,
    WorkloadSpec,
)
from console.provisioners.local.supervisord import include_dir
from tests.console.provisioners.conftest import TINY_SERVER, LocalRig
from tests.console.provisioners.contract import settle
from tests.support.waiting import until

ODD = (
    '--kv-transfer-config={"a": {"b": [1, 2]}, "c": "{dir}"}',
    "50% off %(here)s %d",
    "a ; comment # here",
    "quotes \" and ' and \\",
    "two\nlines",
    "{port:http}-{replica}-{host}",
    "{other} {{x}} {port:}",
    "",
    "grüße €",
)
# Prints its input, then serves like the tiny server.
SHOW = (
    "import json, os, runpy, sys; from pathlib import Path;"
    "Path('seen.json').write_text(json.dumps({'argv': sys.argv[2:], 'env': dict(os.environ)}));"
    "sys.argv = ['tiny', '--listen', sys.argv[1]];"
    "runpy.run_path(os.environ['TINY'], run_name='__main__')"
)


def showing(local: LocalRig, *words: str) -> WorkloadSpec:
    spec = local.spec("demo", 1)
    argv = (sys.executable, "-S", "-c", SHOW, "{host}:{port:http}", *words)
    return dataclasses.replace(
        spec, argv=argv, env={"TINY": spec.argv[2], "PLACE": "{dir}", "ODD": ODD[3]}
    )


def test_arguments_and_environment_arrive_unchanged(local: LocalRig) -> None:
    replica = settle(local, showing(local, *ODD)).replicas[0]
    folder = local.var / "workloads" / "demo" / "0"
    seen = json.loads((folder / "seen.json").read_text())
    port = replica.urls["http"].rpartition(":")[2]
    expected = list(ODD)
    expected[0] = ODD[0].replace("{dir}", str(folder))
    expected[5] = f"{port}-0-127.0.0.1"
    assert seen["argv"] == expected
    assert seen["env"]["PLACE"] == str(folder)
    assert seen["env"]["ODD"] == ODD[3]
    # The console's settings are not inherited.
    assert "DATABASE_URL" not in seen["env"]
    assert not [name for name in seen["env"] if name.startswith("SUPERVISOR_")]


def test_secrets_are_only_in_the_environment_and_one_private_file(
    local: LocalRig, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("tops3cret%(x)s\n")
    spec = dataclasses.replace(showing(local), secret_env={"SECRET": str(secret)})
    assert "tops3cret" not in repr(spec)
    replica = settle(local, spec).replicas[0]
    folder = local.var / "workloads" / "demo" / "0"
    seen = json.loads((folder / "seen.json").read_text())
    assert seen["env"]["SECRET"] == "tops3cret%(x)s"
    assert b"tops3cret" not in Path(f"/proc/{replica.pid}/cmdline").read_bytes()
    (folder / "seen.json").unlink()
    holding = {
        path for path in local.var.rglob("*") if path.is_file() and b"tops3cret" in _bytes(path)
    }
    assert holding == {folder / ".emberline" / "launch.json"}
    assert stat.S_IMODE(next(iter(holding)).stat().st_mode) == 0o600


def _bytes(path: Path) -> bytes:
    return path.read_bytes()


def test_missing_secret_changes_nothing_that_runs(local: LocalRig, tmp_path: Path) -> None:
    before = settle(local, showing(local))
    spec = dataclasses.replace(showing(local), secret_env={"SECRET": str(tmp_path / "none")})
    with pytest.raises(TemporaryError) as caught:
        local.provisioner.apply(spec)
    assert caught.value.reason == "SecretMissing"
    ref = local.provisioner.apply(showing(local))
    assert local.provisioner.observe(ref).replicas == before.replicas


def test_files_are_private_and_live_ones_are_updated(local: LocalRig) -> None:
    spec = local.spec("demo", 2)
    live = dataclasses.replace(spec, live_files=(FileSpec("table.json", '{"v": 1}'),))
    seen = settle(local, live)
    folder = local.var / "workloads" / "demo" / "1"
    port = seen.replicas[1].urls["http"].rpartition(":")[2]
    assert (folder / "conf" / "worker.json").read_text() == f'{{"port": {port}, "x": {{}}}}'
    modes = {stat.S_IMODE(p.stat().st_mode) for p in folder.rglob("*") if p.is_file()}
    assert modes == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    second = dataclasses.replace(live, live_files=(FileSpec("table.json", '{"v": 2}'),))
    ref = local.provisioner.apply(second)
    assert (folder / "table.json").read_text() == '{"v": 2}'
    assert local.provisioner.observe(ref).replicas == seen.replicas


def test_live_files_reach_replicas_that_await_their_turn(local: LocalRig) -> None:
    settle(local, local.spec("demo", 2))
    bad = dataclasses.replace(
        local.spec("demo", 2, "2", "--unready"), live_files=(FileSpec("table.json", "2"),)
    )
    local.provisioner.apply(bad)
    old = local.var / "workloads" / "demo" / "1" / "table.json"
    until(old.exists)


def test_gpus_are_not_supported(local: LocalRig) -> None:
    with pytest.raises(PermanentError) as caught:
        local.provisioner.apply(dataclasses.replace(local.spec("demo", 1), gpus=1))
    assert caught.value.reason == "GpusNotPlaced"


def test_broken_foreign_file_is_temporary_and_named(local: LocalRig) -> None:
    stranger = include_dir(local.var) / "stranger.conf"
    stranger.write_text("[program:stranger]\n")
    with pytest.raises(TemporaryError) as caught:
        local.provisioner.apply(local.spec("demo", 1))
    assert caught.value.reason == "SupervisorConfigInvalid"
    assert "stranger" in caught.value.message
    stranger.unlink()
    seen = settle(local, local.spec("demo", 1))
    assert seen.replicas[0].state is ReplicaState.READY


def test_peer_connects_to_a_bound_channel(local: LocalRig) -> None:
    """A channel is bound by a bare name in the replica's folder and reached by its full path."""
    bind = (
        "import runpy, socket, sys; s = socket.socket(socket.AF_UNIX);"
        "s.bind(sys.argv[1].removeprefix('ipc://')); s.listen();"
        "sys.argv = ['tiny', '--listen', sys.argv[2]];"
        f"runpy.run_path({str(TINY_SERVER)!r}, run_name='__main__')"
    )
    argv = (sys.executable, "-S", "-c", bind, "{channel:news}", "{host}:{port:http}")
    spec = dataclasses.replace(local.spec("demo", 1), argv=argv, channels=("news",))
    address = settle(local, spec).replicas[0].channels["news"]
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(address.removeprefix("ipc://"))
    unknown = dataclasses.replace(spec, channels=())
    with pytest.raises(PermanentError, match="channel 'news'; available: none"):
        local.provisioner.apply(unknown)

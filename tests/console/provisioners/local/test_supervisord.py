"""Rendered configuration is parsed unchanged by supervisord or rejected; RPC client."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from pathlib import Path

import pytest
from supervisor.options import ServerOptions

from console.provisioners.base import TemporaryError
from console.provisioners.local.rpc import Supervisor
from console.provisioners.local.supervisord import (
    Program,
    UnsafeValueError,
    render_config,
    render_program,
    socket_path,
)
from tests.support.supervised import Supervised

ODD = (
    "run",
    "--x={'a': 1}",
    "100%",
    "%(ENV_HOME)s",
    'a "quoted" word',
    "it's",
    "semi;colon",
    "a#b",
    "",
)


def read(path: Path) -> ServerOptions:
    options = ServerOptions()
    options.realize(["-c", str(path)])
    return options


def test_written_configuration_is_parsed_by_supervisord(tmp_path: Path) -> None:
    var = tmp_path / "with spaces"
    for folder in ("log", "run", "supervisor/conf.d"):
        (var / folder).mkdir(parents=True)
    programs = [
        Program("web", ODD, env={"URL": "http://h/?a=1&b=2,c", "EMPTY": "", "P": "50%"}),
        Program("celery-worker", ("x",), priority=5, stop_wait_s=7, directory=tmp_path),
    ]
    path = var / "supervisor" / "supervisord.conf"
    path.write_text(render_config(var, programs, var))
    more = render_program(var, Program("demo-worker-0", ("y",)), var)
    (var / "supervisor" / "conf.d" / "demo-worker-0.conf").write_text(more)
    options = read(path)
    groups = {group.name: group.process_configs[0] for group in options.process_group_configs}
    assert set(groups) == {"web", "celery-worker", "demo-worker-0"}
    web, worker = groups["web"], groups["celery-worker"]
    assert tuple(shlex.split(web.command)) == ODD
    assert web.environment == {"URL": "http://h/?a=1&b=2,c", "EMPTY": "", "P": "50%"}
    assert web.directory == str(var)
    assert web.stdout_logfile == str(var / "log" / "web.log")
    assert web.killasgroup
    assert not web.stopasgroup
    assert (worker.priority, worker.stopwaitsecs, worker.directory) == (5, 7, str(tmp_path))


@pytest.mark.parametrize("name", ["50%", "a[b]", "what?", "x ;y"])
def test_unusable_folder_is_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeValueError):
        render_config(tmp_path / name, [], tmp_path)
    with pytest.raises(UnsafeValueError):
        render_program(tmp_path / name, Program("x", ("run",)), tmp_path)


@pytest.mark.parametrize("word", ["a ;b", "a #b", "%(here)s", "two\nlines", "nul\0"])
def test_truncated_value_is_rejected(tmp_path: Path, word: str) -> None:
    with pytest.raises(UnsafeValueError):
        render_config(tmp_path, [Program("x", ("run", word))], tmp_path)


@pytest.mark.parametrize("value", ['say "hi"', "it's", "two\nlines"])
def test_unquotable_environment_is_rejected(tmp_path: Path, value: str) -> None:
    with pytest.raises(UnsafeValueError):
        render_config(tmp_path, [Program("x", ("run",), env={"A": value})], tmp_path)


@pytest.mark.parametrize("name", ["", "a b", "x]\n[y", "a:b", "a/b"])
def test_invalid_program_name_is_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeValueError):
        render_config(tmp_path, [Program(name, ("run",))], tmp_path)


def test_missing_supervisord(tmp_path: Path) -> None:
    for prepare in (lambda: None, lambda: (tmp_path / "sock").touch()):
        prepare()
        with pytest.raises(TemporaryError) as caught:
            Supervisor(tmp_path / "sock").all()
        assert caught.value.reason == "SupervisorUnavailable"
        assert "make up" in caught.value.message


def test_hung_supervisord_times_out(supervised: Supervised) -> None:
    assert supervised.process is not None
    os.kill(supervised.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(TemporaryError) as caught:
            Supervisor(socket_path(supervised.var), deadline_s=0.3).all()
    finally:
        os.kill(supervised.process.pid, signal.SIGCONT)
    assert caught.value.reason == "SupervisorSlow"


def test_repeated_request_is_no_error(supervised: Supervised) -> None:
    supervisor = Supervisor(socket_path(supervised.var))
    assert supervisor.remove("nobody")
    with pytest.raises(TemporaryError) as caught:
        supervisor.add("nobody")
    assert caught.value.reason == "SupervisorRefused"


def test_connection_is_thread_safe(supervised: Supervised) -> None:
    supervisor = Supervisor(socket_path(supervised.var))
    answers: list[object] = []
    threads = [threading.Thread(target=lambda: answers.append(supervisor.all())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [{}] * 8

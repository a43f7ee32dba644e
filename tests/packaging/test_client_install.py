"""The wheel with its extra `client`: the whole command line, and no Django."""

from __future__ import annotations

import json
import os
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from tests.packaging.test_bare_install import _WALK, installed, run
from tests.support.http_stub import Stub, http_stub

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def needed(names: list[str], extra: str = "") -> set[str]:
    """What these distributions need in turn, by what they say of themselves."""
    found: set[str] = set()
    for name in names:
        for line in metadata.requires(name) or ():
            requirement, _, marker = line.partition(";")
            wanted = f'extra == "{extra}"' in marker.replace("'", '"') if extra else not marker
            match = _NAME.match(requirement)
            if wanted and match:
                found.add(match[0])
    return found


def with_their_own(names: set[str]) -> set[str]:
    found, new = set(names), set(names)
    while new:
        new = needed(sorted(new)) - found
        found |= new
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `pip install emberline[client]` makes it, from what is installed here already."""
    made = installed(wheel, tmp_path_factory.mktemp("client") / "venv")
    there = next((made.parent.parent / "lib").glob("python3*/site-packages"))
    client = {"httpx", "pyyaml", "shtab", "orjson", "xxhash"}
    assert client <= {name.lower() for name in extra_of(there, "client")}, "as pyproject says"
    for name in with_their_own(client):
        for file in metadata.files(name) or ():
            top = file.parts[0]
            source = Path(str(metadata.distribution(name).locate_file(top)))
            if top not in ("..", "bin") and not (there / top).exists():
                (there / top).symlink_to(source)
    return made


def extra_of(site: Path, extra: str) -> set[str]:
    found = next(iter(metadata.distributions(name="emberline", path=[str(site)])))
    lines = [line for line in found.requires or () if f'extra == "{extra}"' in line]
    return {match[0] for line in lines if (match := _NAME.match(line))}


def emberline(
    python: Path, home: Path, *words: str, **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-I", python.parent / "emberline", *words],
        env={"HOME": str(home), "PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("room", ["console.client", "console.commandline"])
def test_every_module_imports_without_django(python: Path, room: str) -> None:
    found = json.loads(run(python, "-I", "-c", _WALK, room))
    assert found["lacking"] == {}
    assert len(found["names"]) > 4


def test_client_queries_a_remote_console(python: Path, tmp_path: Path) -> None:
    rows = {"next": None, "previous": None, "results": [{"name": "ml.g5", "vcpus": 4}]}
    with http_stub({"/api/v1/instance-types/": (200, rows)}) as stub:
        done = ask(python, tmp_path, stub)
    assert (done.returncode, done.stdout) == (0, "ml.g5\n"), done.stderr


def ask(python: Path, home: Path, stub: Stub) -> subprocess.CompletedProcess[str]:
    words = ("instance-type", "list", "-o", "name")
    return emberline(python, home, *words, EMBERLINE_URL=stub.url, EMBERLINE_TOKEN="emb_x")


def test_missing_console_url_is_reported_with_the_remedy(python: Path, tmp_path: Path) -> None:
    done = emberline(python, tmp_path, "endpoint", "list")
    assert done.returncode == 2
    assert "emberline login https://HOST" in done.stderr
    assert "Traceback" not in done.stderr


def test_prompts_are_checked_without_a_console(python: Path, tmp_path: Path) -> None:
    rules = "".join(f"Rule {number}: answer with care and in words.\n" for number in range(30))
    prompts = [f"Now: 2026-11-2{day}\n{rules}" for day in range(2)]
    (tmp_path / "prompts.json").write_text(json.dumps(prompts))
    done = emberline(python, tmp_path, "prompts", "check", str(tmp_path / "prompts.json"))
    assert (done.returncode, done.stderr) == (1, "")
    assert "changed_timestamp" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_works_in_every_shell(python: Path, tmp_path: Path, shell: str) -> None:
    done = emberline(python, tmp_path, "completion", shell)
    assert done.returncode == 0, done.stderr
    assert "cache-tier" in done.stdout
    if shell == "bash":
        checked = subprocess.run(["bash", "-n"], input=done.stdout, text=True, capture_output=True)
        assert (checked.returncode, checked.stderr) == (0, "")

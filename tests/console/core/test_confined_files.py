"""User-named files: nothing outside the folder is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from console.core import confined_files
from console.core.confined_files import FileRefused, read_text, refusal
from console.provisioners.base import PermanentError, TemporaryError
from console.provisioners.specs import read_secrets


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Lay out files like a mounted Secret: each a link through a link into a hidden folder."""
    inside = tmp_path / "allowed"
    (inside / "..2026").mkdir(parents=True)
    (inside / "..2026" / "password").write_text("open sesame\n")
    (inside / "..data").symlink_to("..2026")
    (inside / "password").symlink_to("..data/password")
    (tmp_path / "secret").write_text("the console's own")
    (tmp_path / "allowed-not").mkdir()
    (tmp_path / "allowed-not" / "file").write_text("a sibling's")
    return inside


def test_mounted_secret_is_read(folder: Path) -> None:
    assert read_text(str(folder / "password"), folder) == "open sesame\n"
    assert read_text(str(folder / ".." / "allowed" / "password"), folder) == "open sesame\n"
    assert refusal(str(folder / "password"), folder) is None


def test_linked_folder_is_resolved(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert read_text(str(tmp_path / "link" / "password"), tmp_path / "link") == "open sesame\n"


@pytest.mark.parametrize(
    "path",
    [
        "/proc/self/environ",
        "/etc/passwd",
        "{folder}/../secret",
        "{folder}/link",
        "{folder}/up/secret",
        "{folder}/chain",
        "{folder}-not/file",
        "{folder}/\0",
        "/dev/stdin",
        "secret",
        "",
    ],
)
def test_files_outside_are_not_read(folder: Path, path: str) -> None:
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "up").symlink_to("..")
    (folder / "chain").symlink_to("link")
    with pytest.raises(FileRefused, match="is not inside") as caught:
        read_text(path.format(folder=folder), folder)
    assert caught.value.outside


def test_large_or_special_file_is_rejected(folder: Path) -> None:
    os.mkfifo(folder / "pipe")  # without a writer
    (folder / "long").write_bytes(b"x" * (confined_files.MAX_BYTES + 1))
    (folder / "bytes").write_bytes(b"\xff\xfe")
    for name, why in (
        ("pipe", "regular"),
        ("long", "larger"),
        ("bytes", "UTF-8"),
        ("none", "cannot be read"),
        ("x" * 300, "cannot be read"),
        ("..2026", "regular"),
        (".", "regular"),
    ):
        with pytest.raises(FileRefused, match=why) as caught:
            read_text(str(folder / name), folder)
        assert not caught.value.outside


@pytest.mark.parametrize("swapped", ["file", "folder"])
def test_file_swapped_after_the_check_is_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    """The check sees a plain file, which is then replaced by a link to the secret."""
    (folder / "sub").mkdir()
    (folder / "sub" / "secret").write_text("harmless")
    opened = os.open

    def swap(path: Any, flags: int, *args: Any, **more: Any) -> int:
        if path == ("secret" if swapped == "file" else "sub"):
            (folder / "sub").rename(folder / "old")
            if swapped == "file":
                (folder / "sub").mkdir()
                (folder / "old" / "secret").unlink()
                (folder / "old" / "secret").symlink_to(folder.parent / "secret")
            else:
                (folder / "sub").symlink_to(folder.parent)
        return opened(path, flags, *args, **more)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(FileRefused, match="cannot be read"):
        read_text(str(folder / "sub" / "secret"), folder)


def test_provisioner_reads_user_files_only_from_their_folder(folder: Path, tmp_path: Path) -> None:
    within = {"P": str(folder)}
    assert read_secrets({"P": str(folder / "password")}, within) == {"P": "open sesame"}
    assert read_secrets({"P": str(tmp_path / "secret")}) == {"P": "the console's own"}
    with pytest.raises(PermanentError, match="is not inside"):
        read_secrets({"P": str(tmp_path / "secret")}, within)
    with pytest.raises(TemporaryError, match="cannot be read"):
        read_secrets({"P": str(folder / "later")}, within)

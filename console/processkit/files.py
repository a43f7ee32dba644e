"""Atomic writes of small private files."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replace `path` atomically; mode 0600 from the first byte on."""
    temporary = path.parent / f".{path.name}.{os.urandom(8).hex()}"
    handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def make_private_dir(path: Path) -> None:
    """Create the folder and its parents; set the mode of the last one only."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)

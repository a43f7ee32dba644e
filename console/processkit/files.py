"""Atomic writes of small private files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replace `path` atomically; mode 0600 from the first byte on."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def make_private_dir(path: Path) -> None:
    """Create the folder and its parents; set the mode of the last one only."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)

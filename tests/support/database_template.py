"""A migrated SQLite database, kept between test runs and copied by each of their processes.

Migrating an empty database takes four seconds of computing, opening a copy half a second. The
template's name is a hash of the migrations.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest
from django.conf import settings

_SQLITE = settings.DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3"
sqlite_only = pytest.mark.skipif(not _SQLITE, reason="about SQLite")
postgresql_only = pytest.mark.skipif(_SQLITE, reason="NOT TESTED: make test-postgresql")
KEPT = 3  # templates; a change of branch has its own


def digest(files: Iterable[Path], *versions: str) -> str:
    """Return a name for these files, their paths and versions."""
    found = hashlib.sha256(repr(versions).encode())
    for file in sorted(files):
        found.update(f"\n{file} {file.stat().st_size}\n".encode())
        found.update(file.read_bytes())
    return found.hexdigest()[:24]


class DatabaseTemplate:
    """`copy` what an earlier process kept; after a copy of nothing, `keep` what was made instead.

    Processes that need a template which one of them makes wait for it.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.file = folder / f"{name}.sqlite3"
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = self.file.with_suffix(".lock").open("w")  # freed when this process ends

    def copy(self, to: Path) -> bool:
        """Return whether there was a template; without one, the lock is held until `keep`."""
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        if not self.file.exists():
            return False
        shutil.copyfile(self.file, to)
        self.file.touch()
        self.lock.close()
        return True

    def keep(self, source: Path) -> None:
        unfinished = self.file.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        # Not a copy of the file: a part of the database may still be in its write-ahead log.
        read, written = sqlite3.connect(source), sqlite3.connect(unfinished)
        try:
            read.backup(written)
        finally:
            read.close()
            written.close()
        unfinished.replace(self.file)
        by_age = sorted(self.folder.glob("*.sqlite3"), key=lambda file: file.stat().st_mtime)
        for old in by_age[:-KEPT]:
            old.unlink(missing_ok=True)
        self.lock.close()

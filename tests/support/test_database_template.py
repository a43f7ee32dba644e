"""The test databases' template (tests/support/database_template.py)."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from tests.support.database_template import KEPT, DatabaseTemplate, digest


def made(path: Path) -> Path:
    """A database whose only row is still in the write-ahead log."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma journal_mode = wal")
        db.execute("create table t as select 'kept' as word")
        db.commit()
    return path


def word(path: Path) -> str:
    with closing(sqlite3.connect(path)) as db:
        return str(db.execute("select word from t").fetchone()[0])


def test_what_one_process_kept_the_next_one_copies(tmp_path: Path) -> None:
    first = DatabaseTemplate(tmp_path / "kept", "a")
    assert not first.copy(tmp_path / "first.sqlite3")
    first.keep(made(tmp_path / "first.sqlite3"))
    assert DatabaseTemplate(tmp_path / "kept", "a").copy(tmp_path / "second.sqlite3")
    assert word(tmp_path / "second.sqlite3") == "kept"
    assert not DatabaseTemplate(tmp_path / "kept", "b").copy(tmp_path / "third.sqlite3")


def test_who_needs_one_in_the_making_waits_for_it(tmp_path: Path) -> None:
    first, copied = DatabaseTemplate(tmp_path / "kept", "a"), []
    assert not first.copy(tmp_path / "first.sqlite3")
    second = DatabaseTemplate(tmp_path / "kept", "a")
    waiter = threading.Thread(target=lambda: copied.append(second.copy(tmp_path / "second")))
    waiter.start()
    first.keep(made(tmp_path / "first.sqlite3"))
    waiter.join()
    assert copied == [True]
    assert word(tmp_path / "second") == "kept"


def test_a_process_killed_in_the_making_blocks_no_other_process(tmp_path: Path) -> None:
    first = DatabaseTemplate(tmp_path / "kept", "a")
    assert not first.copy(tmp_path / "first.sqlite3")
    first.lock.close()  # as the kernel does
    assert not DatabaseTemplate(tmp_path / "kept", "a").copy(tmp_path / "second.sqlite3")


def test_old_ones_go(tmp_path: Path) -> None:
    for number in range(KEPT + 2):
        template = DatabaseTemplate(tmp_path / "kept", str(number))
        assert not template.copy(tmp_path / "made.sqlite3")
        template.keep(made(tmp_path / f"{number}.sqlite3"))
    assert len(list((tmp_path / "kept").glob("*.sqlite3"))) == KEPT
    assert template.file.exists()


def test_a_name_follows_files_paths_and_versions(tmp_path: Path) -> None:
    a, b = tmp_path / "0001.py", tmp_path / "0002.py"
    a.write_text("one")
    name = digest([a], "3.11")
    assert name == digest([a], "3.11")
    b.write_text("one")
    a_changed = tmp_path / "other" / "0001.py"
    a_changed.parent.mkdir()
    a_changed.write_text("one")
    assert len({name, digest([a], "3.12"), digest([b], "3.11"), digest([a, b], "3.11")}) == 4
    assert digest([a_changed], "3.11") != name
    a.write_text("two")
    assert digest([a], "3.11") != name

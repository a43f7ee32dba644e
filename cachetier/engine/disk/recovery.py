"""Opening a folder: what may be believed of it becomes an index, the rest is removed."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from cachetier.engine.disk.folder import Folder
from cachetier.engine.disk.format import FormatError
from cachetier.engine.disk.index import Index, Segment
from cachetier.engine.disk.segment import Found, SegmentFile

log = logging.getLogger(__name__)


def recover(folder: Folder, now_ms: int) -> tuple[Index, int]:
    """(index, segments removed). Blocks; OSError when the folder as a whole cannot be used."""
    index, removed = Index(), 0
    believable = folder.is_believable()
    for path in folder.segments():
        opened = _open(path) if believable else None
        if opened is None:
            path.unlink(missing_ok=True)
            removed += 1
        else:
            _add(index, *opened, now_ms)
    folder.mark_in_use()
    return index, removed


def _open(path: Path) -> tuple[SegmentFile, list[Found]] | None:
    try:
        return SegmentFile.open(path)
    except (FormatError, OSError) as exc:
        log.warning("segment %s is removed: %s", path.name, exc)
        return None


def _add(index: Index, file: SegmentFile, records: list[Found], now_ms: int) -> None:
    segment = Segment(file, file.size)
    segment.is_active = False
    index.open(segment)
    for record, ends_ms in records:
        if ends_ms <= now_ms:
            continue
        older = index.take(record.key)
        if older is not None:  # it was being moved: the copy is as good, and stays
            with contextlib.suppress(OSError):
                older[0].file.wipe(older[1])
        index.put(segment, record, ends_ms)

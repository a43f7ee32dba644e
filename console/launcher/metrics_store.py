"""Start this installation's Prometheus after moving aside unreadable storage.

    python -m console.launcher.metrics_store DATA LOG PROGRAM [ARGUMENT...]

Prometheus does not start while a block, the head chunks or the write-ahead log is unreadable; the
last line of its log names which. supervisord then restarts it through this module: the named
files are moved to a folder beside DATA with the reason and the lost period in `why.json`, and this
process becomes Prometheus. Each start moves what one error names, so several errors take several
starts. Machine errors (disk full, no permission, no memory) move nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from console.processkit.files import write_private

SET_ASIDE = "set-aside"
_MAX_LOSSES = 5  # folders; a block may be large
_TAIL_BYTES = 64 * 1024
_REPAIR_BYTES = 1024 * 1024
_AT = re.compile(r"\b(?:ts|time)=(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d))")
_LAST_LINES = 20
_SAID = "emberline: set aside"
_FAILURE = re.compile(r"opening storage failed: (.*)")
_SINCE_THEN = (_SAID, "Server is ready")
_MACHINE = re.compile(
    r"no space left|permission denied|read-only file system|input/output error|disk quota"
    r"|too many open files|cannot allocate memory|lock DB directory",
    re.IGNORECASE,
)
_BLOCK = re.compile(r"corrupted block ([0-9A-HJKMNP-TV-Z]{26})\b")
_HEAD = ("wal", "wbl", "chunks_head")


@dataclass(frozen=True, slots=True)
class Loss:
    """Files moved aside, and the period without metrics (ISO 8601, "" if unknown)."""

    at: str
    failure: str
    moved: tuple[str, ...]
    since: str
    until: str


def recover(data: Path, log: Path) -> Loss | None:
    """Move aside what failed the last start; return None if there is nothing to move."""
    failure = last_failure(log)
    unreadable = _unreadable_files(failure, data)
    if not unreadable:
        return None
    now = datetime.now(UTC)
    since, until = _lost_period(data, unreadable, now)
    folder = data.parent / SET_ASIDE / now.strftime("%Y%m%dT%H%M%S.%fZ")
    folder.mkdir(parents=True)
    for path in unreadable:
        path.rename(folder / path.name)
    names = tuple(path.name for path in unreadable)
    loss = Loss(now.isoformat(timespec="seconds"), failure[:500], names, since, until)
    write_private(folder / "why.json", json.dumps(asdict(loss), indent=1))
    for old in sorted(folder.parent.iterdir())[:-_MAX_LOSSES]:
        shutil.rmtree(old, ignore_errors=True)
    return loss


def list_losses(prometheus: Path) -> tuple[Loss, ...]:
    """Return the losses still stored, oldest first."""
    losses = []
    for file in sorted((prometheus / SET_ASIDE).glob("*/why.json")):
        try:
            document = json.loads(file.read_text())
            losses.append(Loss(**{**document, "moved": tuple(document["moved"])}))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return tuple(losses)


def last_repair(log: Path) -> datetime | None:
    """Return when Prometheus last cut off a damaged write-ahead log, which it does by itself."""
    for line in reversed(_tail(log, _REPAIR_BYTES)):
        if "attempting repair" in line and (match := _AT.search(line)):
            return datetime.fromisoformat(match[1])
    return None


def last_failure(log: Path) -> str:
    """Return the storage error that ended Prometheus, "" if it ended otherwise."""
    for line in reversed(_tail(log, _TAIL_BYTES)[-_LAST_LINES:]):
        if any(words in line for words in _SINCE_THEN):
            return ""
        if match := _FAILURE.search(line):
            return match[1].rstrip('"')
    return ""


def _tail(log: Path, most_bytes: int) -> list[str]:
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - most_bytes))
            return stream.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def _unreadable_files(failure: str, data: Path) -> list[Path]:
    if not failure or _MACHINE.search(failure):
        return []
    named: Sequence[str] = _BLOCK.findall(failure)
    if not named and "chunks_head" in failure:
        named = ("chunks_head",)  # the write-ahead log also has its samples
    elif not named and re.search(r"\bWAL\b|\bWBL\b|/wal/|/wbl/|checkpoint", failure):
        named = _HEAD
    return [path for name in dict.fromkeys(named) if (path := data / name).exists()]


def _lost_period(data: Path, unreadable: Sequence[Path], now: datetime) -> tuple[str, str]:
    names = {path.name for path in unreadable}
    times = [_block_times(path) for path in unreadable if path.name not in _HEAD]
    if times:
        periods = [period for period in times if period is not None]
        if len(periods) < len(times):
            return "", ""
        return _format_time(min(period[0] for period in periods)), _format_time(
            max(period[1] for period in periods)
        )
    if names == {"chunks_head"}:
        return "", ""
    others = [_block_times(path) for path in data.iterdir() if len(path.name) == 26]
    ends = [other[1] for other in others if other is not None]
    return _format_time(max(ends)) if ends else "", now.isoformat(timespec="seconds")


def _block_times(block: Path) -> tuple[float, float] | None:
    """Return the times of a block from meta.json (ms)."""
    try:
        meta = json.loads((block / "meta.json").read_text())
        return float(meta["minTime"]), float(meta["maxTime"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _format_time(milliseconds: float) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def main(argv: Sequence[str]) -> None:
    data, log, *command = argv
    try:
        loss = recover(Path(data), Path(log))
    except OSError as error:  # Prometheus then reports the error itself
        print(f"emberline: the metrics storage cannot be repaired: {error}", flush=True)
    else:
        if loss is not None:
            print(f"{_SAID} {', '.join(loss.moved)}: {loss.failure}", flush=True)
    os.execvp(command[0], command)  # noqa: S606  (supervisord's own child, no shell)


if __name__ == "__main__":
    main(sys.argv[1:])

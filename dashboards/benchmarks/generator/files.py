"""Files of one run, exchanged between console and generator.

    task.json          the job, its target and its key (mode 0600); written by the console
    trace.jsonl        rows of a trace, if any
    progress.json      replaced every second; `state` is the run's state
    samples.json.gz    one row per request, written at the end

Files are replaced atomically.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.processkit.files import write_private
from dashboards.benchmarks.generator import traces
from dashboards.benchmarks.generator.job import Job, from_json
from dashboards.benchmarks.generator.samples import COLUMNS, RequestSample, as_row, from_row

RUNNING, DONE, ABORTED, LOST = "running", "done", "aborted", "lost"


@dataclass(frozen=True, slots=True)
class Task:
    """Work of a load generator process. `workers` maps names to URLs whose /metrics export token
    sources.
    """

    job: Job
    url: str
    model: str
    key: str = field(default="", repr=False)
    workers: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        document = {
            "job": self.job.as_json(),
            "url": self.url,
            "model": self.model,
            "key": self.key,
            "workers": dict(self.workers),
        }
        if self.job.rows:
            write_private(folder / "trace.jsonl", traces.as_lines(self.job.rows))
        write_private(folder / "task.json", json.dumps(document))

    @classmethod
    def read(cls, folder: Path) -> Task:
        document = json.loads((folder / "task.json").read_text(encoding="utf-8"))
        trace = folder / "trace.jsonl"
        rows = traces.parse(trace.read_text(encoding="utf-8")) if trace.exists() else ()
        return cls(**{**document, "job": from_json(document["job"], rows)})


def lock_folder(folder: Path) -> bool:
    """Lock the folder until the process ends; False if another process holds it (double load)."""
    handle = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return False
    return True  # the open handle holds the lock


def write_progress(folder: Path, document: Mapping[str, Any]) -> None:
    write_private(folder / "progress.json", json.dumps(document, separators=(",", ":")))


def read_progress(folder: Path) -> dict[str, Any] | None:
    """Return None before the first progress."""
    try:
        progress = json.loads((folder / "progress.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return progress if isinstance(progress, dict) else None


def write_samples(folder: Path, samples: Sequence[RequestSample]) -> None:
    path = folder / "samples.json.gz"
    temporary = path.with_suffix(".new")
    temporary.write_bytes(pack(samples))
    temporary.replace(path)


def read_samples(folder: Path) -> bytes:
    try:
        return (folder / "samples.json.gz").read_bytes()
    except OSError:
        return b""


def pack(samples: Sequence[RequestSample]) -> bytes:
    rows = {"columns": COLUMNS, "rows": [as_row(sample) for sample in samples]}
    return gzip.compress(json.dumps(rows, separators=(",", ":")).encode(), 5)


def unpack(packed: bytes) -> list[RequestSample]:
    if not packed:
        return []
    document = json.loads(gzip.decompress(packed))
    return [from_row(row) for row in document["rows"]]

"""Serve recorded `/metrics` as if the recorded activity continued.

Names, types, labels and bounds are exactly as recorded. In each scrape, counters and buckets have
grown by the recorded amount, so that rates, shares and quantiles are those of the recording; gauges
are constant. Help texts, creation times (`_created`) and process metrics are omitted.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).parent
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)")
_NOISE = re.compile(r"python_|process_|go_|promhttp_")
_GROWING = ("counter", "histogram", "summary")
_PARTS = re.compile(r"_(bucket|count|sum|total)$")


def recorded() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.prom"))


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.prom").read_text()


def keep(name: str, how: str, page: str) -> None:
    """Writes a page of metrics down. `how` and when it was made stand in its first lines."""
    kept = [line for line in page.splitlines() if _is_sample(line)]
    first = f"# {how}, {datetime.now(UTC).date()}"
    (FOLDER / f"{name}.prom").write_text("\n".join([first, *kept]) + "\n")


def _is_sample(line: str) -> bool:
    if line.startswith("# TYPE "):
        name = line.split()[2]
        return not name.endswith("_created") and not _NOISE.match(name)
    found = _SAMPLE.fullmatch(line)
    return bool(found and not found[1].endswith("_created") and not _NOISE.match(found[1]))


@dataclass
class Replay:
    """One exporter; `page` is given to `http_stub`."""

    text: str
    _scrapes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def page(self, _path: str, _body: bytes) -> tuple[int, str]:
        with self._lock:
            self._scrapes += 1
            times = self._scrapes
        return 200, "\n".join(self._lines(times)) + "\n"

    def _lines(self, times: int) -> Iterator[str]:
        types: dict[str, str] = {}
        for line in self.text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                types[name] = kind
                yield line
            elif found := _SAMPLE.fullmatch(line):
                name, labels, value = found[1], found[2] or "", float(found[3])
                kind = types.get(name) or types.get(_PARTS.sub("", name), "gauge")
                yield f"{name}{labels} {value * times if kind in _GROWING else value:g}"

"""Copy one endpoint's day of metrics to many days and endpoints, as TSDB blocks.

Produces in seconds what a large fleet would write in hours. The index names each copied series;
series of other endpoints share the chunks of the first one, so that disk usage is lower and caches
hit more often than in production, while every sample is still decoded. Counters restart each day.
The format is Prometheus 2's (tsdb/docs/format).
"""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_INDEX, _CHUNKS = 0xBAAAD700, 0x85BD40DD
_DAY_MS = 86_400_000
_NUMBERED = re.compile(r"(llm|node|GPU)-0(?!\d)")
_ULID = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """`rest`: the chunks after the first, delta-encoded."""

    labels: Labels
    chunks: int
    mint: int
    rest: bytes


def copy(
    data: Path, endpoints: int, days: int, lasts: Callable[[str], bool] = lambda _name: True
) -> tuple[int, int]:
    """Copy each block under `data` to `days` days and `endpoints` endpoints, the original day last.
    The earlier days have only the metrics that `lasts` accepts by name.

    Return the maximum number of series in a block, and the total bytes.
    """
    blocks = [meta.parent for meta in data.glob("*/meta.json")]
    count = 0
    for number, block in enumerate(sorted(blocks)):
        found = list(_read((block / "index").read_bytes()))
        every = sorted(_copied(found, endpoints), key=lambda series: series.labels)
        count = max(count, len(every))
        for day in range(days):
            _write(block, data / _name(number * 1000 + day), every, -day * _DAY_MS)
            if not day:
                every = [series for series in every if lasts(dict(series.labels)["__name__"])]
        shutil.rmtree(block)
    size = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    return count, size


def _copied(found: list[Series], endpoints: int) -> Iterator[Series]:
    for series in found:
        ours = any(_NUMBERED.search(value) for _, value in series.labels)
        for number in range(endpoints if ours else 1):
            put = rf"\g<1>-{number}"
            labels = tuple((name, _NUMBERED.sub(put, value)) for name, value in series.labels)
            yield Series(labels, series.chunks, series.mint, series.rest)


def _write(old: Path, new: Path, every: list[Series], shift_ms: int) -> None:
    (new / "chunks").mkdir(parents=True)
    for file in sorted((old / "chunks").iterdir()):
        kept = bytearray(file.read_bytes())
        if shift_ms:
            _shift(kept, shift_ms)
        (new / "chunks" / file.name).write_bytes(kept)
    (new / "index").write_bytes(_index(every, shift_ms))
    meta = json.loads((old / "meta.json").read_text())
    meta |= {"ulid": new.name, "minTime": meta["minTime"] + shift_ms}
    meta["maxTime"] += shift_ms
    meta["compaction"] |= {"sources": [new.name]}
    (new / "meta.json").write_text(json.dumps(meta))


def _shift(file: bytearray, shift_ms: int) -> None:
    """Shift the first sample of each chunk; the others are deltas."""
    assert struct.unpack_from(">I", file)[0] == _CHUNKS
    at = 8
    while at < len(file):
        size, at = _uvarint(file, at)
        end = at + 1 + size  # encoding, then data
        moment, after = _varint(file, at + 3)  # after the number of samples
        moved = _put_varint(moment + shift_ms)
        assert len(moved) == after - at - 3
        file[at + 3 : after] = moved
        file[end : end + 4] = _crc(bytes(file[at:end]))
        at = end + 4


def _read(index: bytes) -> Iterator[Series]:
    assert struct.unpack_from(">I", index)[0] == _INDEX
    assert index[4] == 2
    symbols_at, at, indices, _, postings, _ = struct.unpack_from(">6Q", index, len(index) - 52)
    symbols = _symbols(index, symbols_at)
    end = indices or postings
    while (at := -(-at // 16) * 16) < end:
        size, begin = _uvarint(index, at)
        yield _one(index[begin : begin + size], symbols)
        at = begin + size + 4


def _symbols(index: bytes, at: int) -> list[str]:
    (count,) = struct.unpack_from(">I", index, at + 4)
    at += 8
    found = []
    for _ in range(count):
        size, at = _uvarint(index, at)
        found.append(index[at : at + size].decode())
        at += size
    return found


def _one(entry: bytes, symbols: list[str]) -> Series:
    pairs, at = _uvarint(entry, 0)
    labels = []
    for _ in range(pairs):
        name, at = _uvarint(entry, at)
        value, at = _uvarint(entry, at)
        labels.append((symbols[name], symbols[value]))
    chunks, at = _uvarint(entry, at)
    mint, at = _varint(entry, at)
    return Series(tuple(labels), chunks, mint, entry[at:])


def _index(every: list[Series], shift_ms: int) -> bytes:
    strings = sorted({text for series in every for pair in series.labels for text in pair})
    numbers = {text: _put_uvarint(number) for number, text in enumerate(strings)}
    out = bytearray(struct.pack(">IB", _INDEX, 2))
    symbols_at = len(out)
    out += _framed(struct.pack(">I", len(strings)) + b"".join(map(_text, strings)))
    series_at = -(-len(out) // 16) * 16
    postings: dict[tuple[str, str], list[int]] = {("", ""): []}
    for series in every:
        out += bytes(-len(out) % 16)
        for pair in (("", ""), *series.labels):
            postings.setdefault(pair, []).append(len(out) // 16)
        entry = _entry(series, numbers, shift_ms)
        out += _put_uvarint(len(entry)) + entry + _crc(entry)
    out += bytes(-len(out) % 4)
    postings_at = len(out)
    table = bytearray(struct.pack(">I", len(postings)))
    for (name, value), refs in sorted(postings.items()):
        table += b"\x02" + _text(name) + _text(value) + _put_uvarint(len(out))
        out += _framed(struct.pack(f">I{len(refs)}I", len(refs), *refs))
    table_at = len(out)
    out += _framed(bytes(table))
    # Without label value index: unused since format version 2.
    toc = struct.pack(">6Q", symbols_at, series_at, 0, 0, postings_at, table_at)
    return bytes(out + toc + _crc(toc))


def _entry(series: Series, numbers: dict[str, bytes], shift_ms: int) -> bytes:
    pairs = b"".join(numbers[name] + numbers[value] for name, value in series.labels)
    head = _put_uvarint(len(series.labels)) + pairs + _put_uvarint(series.chunks)
    return head + _put_varint(series.mint + shift_ms) + series.rest


def _framed(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content + _crc(content)


def _text(text: str) -> bytes:
    return _put_uvarint(len(text.encode())) + text.encode()


def _name(number: int) -> str:
    """Return a block name, which must be a ULID."""
    found = ""
    while number:
        number, digit = divmod(number, 32)
        found = _ULID[digit] + found
    return found.rjust(26, "0")


def _uvarint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return the number and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    value, at = _uvarint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _put_uvarint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes((*found, value))


def _put_varint(value: int) -> bytes:
    return _put_uvarint(value << 1 if value >= 0 else ~(value << 1))


def _table() -> tuple[int, ...]:
    found = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        found.append(value)
    return tuple(found)


_CASTAGNOLI = _table()


def _crc(data: bytes) -> bytes:
    """Return the CRC-32C, which the standard library lacks."""
    table, value = _CASTAGNOLI, 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 255] ^ value >> 8
    return struct.pack(">I", value ^ 0xFFFFFFFF)

"""Trace files, of which a few bytes may stand for any number of blocks."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterator

import pytest

from bench.fleet.workloads import TRACE, shared_folder
from dashboards.insight.traces import convert as convert_module
from dashboards.insight.traces.agentic import read_agentic
from dashboards.insight.traces.convert import MAX_LINE_BYTES, MAX_TEXT_BYTES, convert, read_lines
from dashboards.insight.traces.files import pack, unpack
from dashboards.insight.traces.formats import write_trace
from dashboards.insight.traces.trace import Trace, TraceError, TraceRequest

MIB = 2**20
ROW = b'{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[1,2]}\n'
# Twenty prompts of 10 million tokens without a common block.
LONG = json.dumps({"id": "a", "tool": 0, "system": 0, "requests": [[10**7, 1, 0, 0, 0]] * 190})


def zipped(pieces: Iterator[bytes]) -> bytes:
    return gzip.compress(b"".join(pieces))


@pytest.fixture
def peak() -> Iterator[list[int]]:
    """The most memory that this process takes for Python's objects, in bytes."""
    found: list[int] = []
    tracemalloc.start()
    yield found
    found.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    assert found[0] < 100 * MIB


@pytest.mark.usefixtures("peak")
@pytest.mark.parametrize(
    ("format_name", "data", "message"),
    [
        ("mooncake", gzip.compress(b"[" + b"1," * 20_000_000), "A line has more than 2 MiB"),
        ("mooncake", gzip.compress(b"\n" * (MAX_TEXT_BYTES + 2)), "more than 64 MiB of text"),
        ("mooncake", gzip.compress(ROW * 200_001), "The file has 200001 requests"),
        ("mooncake", gzip.compress(ROW)[:-9], "The gzip file is cut"),
        ("mooncake", gzip.compress(ROW)[:-8] + b"12345678", "damaged gzip"),
        ("mooncake", b"x" * (7 * MIB + 1), "larger than 7 MiB"),
        ("mooncake", b"", "The file has 0 requests"),
        ("mooncake", b"[" * 100_000, "Line 1 is not JSON"),
        ("agentic", LONG.encode(), "more than 5000000 different blocks"),
        ("nothing", ROW, "Unknown format 'nothing'"),
    ],
)
def test_hostile_file_is_refused_by_name(format_name: str, data: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        convert(format_name, data)


def test_file_that_needs_too_much_memory_or_time_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(convert_module, "MEMORY_BYTES", 48 * MIB)
        with pytest.raises(TraceError, match="needs more than 48 MiB to be read"):
            convert("mooncake", gzip.compress(ROW * 200_000))
    monkeypatch.setattr(convert_module, "TIMEOUT_S", 0.001)
    with pytest.raises(TraceError, match="was not read within"):
        convert("mooncake", ROW)
    with convert_module._busy, pytest.raises(TraceError, match="Other files are being read"):
        convert("mooncake", ROW)


def test_lines_are_those_of_the_text() -> None:
    text = b"\n".join(b"x" * (index * 37 % 5000) for index in range(200))
    for data in (text, gzip.compress(text)):
        assert list(read_lines(data)) == text.split(b"\n")
    longest = b"y" * MAX_LINE_BYTES
    assert list(read_lines(longest + b"\nz")) == [longest, b"z"]


@pytest.mark.usefixtures("peak")
def test_real_sessions_take_little_memory() -> None:
    with gzip.open((shared_folder() / TRACE).parent / "agentic_sessions.jsonl.gz") as file:
        trace = read_agentic(line for line, _ in zip(file, range(100), strict=False))
    packed = pack(trace)
    found = unpack(packed)
    assert len(found.requests) == len(trace.requests) > 4000
    assert found.requests[-1] == trace.requests[-1]
    assert sum(1 for _ in write_trace("dynamo", found, 64)) == len(found.requests)


@pytest.mark.usefixtures("peak")
def test_export_with_small_blocks_takes_one_prompt_at_a_time() -> None:
    requests = [TraceRequest(float(n), 100_000, 1, tuple(range(196))) for n in range(1000)]
    lines = write_trace("dynamo", Trace(512, requests), 1)
    assert len(json.loads(next(lines))["hash_ids"]) == 100_000
    assert sum(1 for _, _ in zip(lines, range(3), strict=False)) == 3
    with pytest.raises(TraceError, match="more than 200000 blocks of 1 tokens"):
        write_trace("dynamo", Trace(512, [TraceRequest(0.0, 200_001, 1, tuple(range(391)))]), 1)

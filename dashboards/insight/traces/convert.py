"""Reading a trace file in a process of its own, with a memory limit: what a file needs is not known
before it is read.

`python -m dashboards.insight.traces.convert FORMAT BLOCK_TOKENS MEMORY_BYTES < file` writes JSON,
the trace's totals or `{"error": message}`, and the trace as `files.unpack` reads it. No Django.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from typing import Any, Final

import orjson

from dashboards.insight.traces.files import pack
from dashboards.insight.traces.formats import read_trace
from dashboards.insight.traces.trace import Trace, TraceError

MAX_FILE_BYTES: Final = 7 * 2**20  # a form has at most 8 MiB (console.web.server.request_limits)
MAX_TEXT_BYTES: Final = 64 * 2**20
MAX_LINE_BYTES: Final = 2 * 2**20
MAX_REQUESTS: Final = 200_000
MEMORY_BYTES: Final = 2**30
TIMEOUT_S: Final = 60
_GZIP: Final = b"\x1f\x8b"
_PIECE_BYTES: Final = 65_536
_busy = threading.Lock()  # one file at a time


def convert(format_name: str, data: bytes, block_tokens: int = 0) -> tuple[dict[str, Any], bytes]:
    """Return the totals of a trace file, and its requests packed. Raise TraceError."""
    if len(data) > MAX_FILE_BYTES:
        raise TraceError(
            f"The file is larger than {MAX_FILE_BYTES >> 20} MiB. Compress or split it."
        )
    if not _busy.acquire(timeout=TIMEOUT_S):
        raise TraceError("Other files are being read. Send it again later.")
    try:
        command = [
            sys.executable,
            "-m",
            __name__,
            format_name,
            str(block_tokens),
            str(MEMORY_BYTES),
        ]
        done = subprocess.run(
            command, input=data, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise TraceError(f"The file was not read within {TIMEOUT_S} s. Split it.") from None
    finally:
        _busy.release()
    head, _, packed = done.stdout.partition(b"\n")
    if not head:
        raise TraceError(f"The file needs more than {MEMORY_BYTES >> 20} MiB to be read. Split it.")
    totals: dict[str, Any] = orjson.loads(head)
    if error := totals.get("error"):
        raise TraceError(error)
    return totals, packed


def read_lines(data: bytes) -> Iterator[bytes]:
    """Yield the lines of a file, plain or gzip. Raise TraceError for too long ones."""
    line, size = b"", 0
    for piece in _unzip(data) if data.startswith(_GZIP) else _cut(data):
        size += len(piece)
        if size > MAX_TEXT_BYTES:
            raise TraceError(
                f"The file has more than {MAX_TEXT_BYTES >> 20} MiB of text. Split it."
            )
        *whole, line = (line + piece).split(b"\n")
        yield from whole
        if len(line) > MAX_LINE_BYTES:
            raise TraceError(f"A line has more than {MAX_LINE_BYTES >> 20} MiB. Correct the file.")
    yield line


def _cut(data: bytes) -> Iterator[bytes]:
    for index in range(0, len(data), _PIECE_BYTES):
        yield data[index : index + _PIECE_BYTES]


def _unzip(data: bytes) -> Iterator[bytes]:
    reader = zlib.decompressobj(wbits=31)
    rest = data
    try:
        while not reader.eof:
            piece = reader.decompress(rest, _PIECE_BYTES)
            rest = reader.unconsumed_tail
            if not piece and not rest and not reader.eof:
                raise TraceError("The gzip file is cut. Send it again.")
            yield piece
    except zlib.error as error:
        raise TraceError(f"The file is damaged gzip: {error}. Send it again.") from None


def totals_of(trace: Trace) -> dict[str, Any]:
    """Raise TraceError for no or too many requests."""
    count = len(trace.requests)
    if not 0 < count <= MAX_REQUESTS:
        raise TraceError(f"The file has {count} requests. Import 1 to {MAX_REQUESTS} requests.")
    totals: dict[str, Any] = {"requests": count, "prompt_tokens": 0, "output_tokens": 0}
    sessions: set[str] = set()
    for request in trace.requests:
        totals["prompt_tokens"] += request.prompt_tokens
        totals["output_tokens"] += request.output_tokens
        sessions.add(request.session)
    totals["sessions"] = len(sessions - {""})
    totals["duration_s"] = trace.requests[-1].arrived_s - trace.requests[0].arrived_s
    return totals


def main(arguments: list[str]) -> int:
    format_name, block_tokens, memory_bytes = arguments
    resource.setrlimit(resource.RLIMIT_AS, (int(memory_bytes), int(memory_bytes)))
    resource.setrlimit(resource.RLIMIT_CPU, (TIMEOUT_S, TIMEOUT_S))
    packed = b""
    try:
        lines = read_lines(sys.stdin.buffer.read())
        trace = read_trace(format_name, lines, int(block_tokens))
        totals = totals_of(trace)
        packed = pack(trace)
    except TraceError as error:
        if "Not enough memory" in str(error):  # orjson's word for it
            return 1
        totals = {"error": str(error)}
    sys.stdout.buffer.write(orjson.dumps(totals) + b"\n" + packed)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
